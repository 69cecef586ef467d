"""What the environment tells a client: the `HOLDFAST_...` variables, checked and named in every complaint.

Knows the variables' names and forms. Must not know what the values are for: `engine.settings` checks them.

All clients of the same nodes must agree on nodes, prefix and `max_ttl`. The environment carries these to every process
of a service without a line of code.
"""

from __future__ import annotations

import os
from typing import Any

from .. import checks
from ..errors import ConfigError

NODES, PREVIOUS, FRESH = "HOLDFAST_NODES", "HOLDFAST_PREVIOUS", "HOLDFAST_FRESH"
OFF = "off"


def nodes() -> str:
    """The text of HOLDFAST_NODES, empty if it is not set."""
    return os.environ.get(NODES, "").strip()


def previous() -> str:
    """The text of HOLDFAST_PREVIOUS, empty if it is not set."""
    return os.environ.get(PREVIOUS, "")


def fresh() -> list[str]:
    """The run ids in HOLDFAST_FRESH, separated by commas or spaces."""
    return os.environ.get(FRESH, "").replace(",", " ").split()


def options() -> dict[str, Any]:
    """The client's options that the environment sets, by the names of the arguments that they stand in for.

    Raises:
        ConfigError: A variable cannot be read. The message names it and the form it should have.
    """
    found: dict[str, Any] = {}
    for option in ("ttl", "max_ttl", "restart_guard"):
        variable = f"HOLDFAST_{option.upper()}"
        text = os.environ.get(variable, "").strip()
        if not text:
            continue
        if option == "restart_guard" and text.lower() == OFF:
            found[option] = None
            continue
        try:
            found[option] = float(text)
        except ValueError:
            more = f", or {OFF}" if option == "restart_guard" else ""
            raise ConfigError(f"{variable} must be a number of seconds{more}, not {checks.shown(text)}") from None
    for option in ("prefix", "owner"):
        if text := os.environ.get(f"HOLDFAST_{option.upper()}", ""):
            found[option] = text
    return found
