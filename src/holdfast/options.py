"""The options of a client: which there are, and how settings and variables write each as text.

Knows names and forms. Must not know what an option is for: `engine.settings` checks the values.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from .checks import shown
from .errors import ConfigError

OFF = "off"


class Option(NamedTuple):
    """An option of a client.

    Attributes:
        form: What it is. Nodes are addresses, of one shard or of several.
        variable: Whether a variable of the environment sets it.
        off: Whether it may be None, which text writes as "off".
    """

    form: Literal["nodes", "seconds", "flag", "text", "object"]
    variable: bool = False
    off: bool = False


# In the order of the client's signature.
OPTIONS = {
    "nodes": Option("nodes", variable=True),
    "ttl": Option("seconds", variable=True),
    "max_ttl": Option("seconds", variable=True),
    "prefix": Option("text", variable=True),
    "node_timeout": Option("seconds"),
    "restart_guard": Option("seconds", variable=True, off=True),
    "outage": Option("seconds"),
    "owner": Option("text", variable=True),
    **dict.fromkeys(("observer", "around"), Option("object")),
    "guardian": Option("flag", variable=True),
    **dict.fromkeys(("ssl", "credentials"), Option("object")),
    # (Semicolons separate shards in HOLDFAST_NODES, so they have no variable of their own.)
    "shards": Option("nodes"),
    "previous": Option("nodes", variable=True),
}
NODES = tuple(name for name, it in OPTIONS.items() if it.form == "nodes")


def variable(name: str) -> str:
    """Return the variable of the environment that sets an option."""
    return f"HOLDFAST_{name.upper()}"


def seconds(text: str, name: str, called: str) -> float | None:
    """Read an option that is a number of seconds.

    Args:
        text: What was written.
        name: The option.
        called: What its user calls it.

    Raises:
        ConfigError: The text is no number.
    """
    off = OPTIONS[name].off
    if off and text.strip().lower() == OFF:
        return None
    try:
        return float(text)
    except ValueError:
        more = f", or {OFF}" if off else ""
        raise ConfigError(f"{called} must be a number of seconds{more}, not {shown(text)}") from None


def flag(text: str, called: str) -> bool:
    """Read an option that is 1 or 0.

    Args:
        text: What was written.
        called: What its user calls it.

    Raises:
        ConfigError: The text is neither.
    """
    if text.strip() not in ("0", "1"):
        raise ConfigError(f"{called} must be 1 or 0, not {shown(text)}")
    return text.strip() == "1"
