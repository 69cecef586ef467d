"""The library's loggers. `logging` is loaded with the first line, or used if the program has it.

A program that logs nothing should not pay for `logging`. Knows loggers. Must not know what is
written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

_before: list[Callable[[], object]] = []


def loaded() -> bool:
    """Has the program loaded `logging`?

    Otherwise it has configured nothing, and the level is WARNING.
    """
    return "logging" in sys.modules


def before_the_first_line(prepare: Callable[[], object]) -> None:
    """Have a function called when the library first needs a logger, to configure the log."""
    _before.append(prepare)


def logger(name: str = "") -> logging.Logger:
    """Return a logger of the library.

    Args:
        name: What follows "holdfast." in its name. Empty: the one above all others.
    """
    import logging

    while _before:
        try:
            prepare = _before.pop()
        except IndexError:
            # Another thread was faster.
            break
        prepare()
    return logging.getLogger(f"holdfast.{name}" if name else "holdfast")
