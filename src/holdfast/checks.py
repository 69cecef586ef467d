"""What may be given as an argument: seconds, names, texts. Every complaint says what to write instead.

Knows values. Must not know what they are for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from math import inf, isfinite

from .errors import ConfigError

Seconds = float | timedelta
_PASSWORD = re.compile(r"//\S*@")  # of an address that was given where none belongs
_MOST_SHOWN = 200  # characters


def seconds(value: object, what: str, *, least: float = 0.0, most: float = inf) -> float:
    """The number of seconds that `value` means: a number or a timedelta, between `least` and `most`."""
    counted = not isinstance(value, timedelta)
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{what} is a number of seconds or a timedelta, not {shown(value)}")
    try:
        found = float(value)
    except OverflowError:  # (of a whole number that no float can hold, and perhaps no screen)
        found = inf
    if not isfinite(found) or not least <= found <= most:
        limits = f"{number(least)} or more" if most == inf else f"from {number(least)} to {number(most)}"
        raise ConfigError(f"{what} is {limits} seconds, not {number(found)}{milliseconds(found, what) if counted else ''}")
    return found


def known(unknown: Mapping[str, object], what: str, valid: Iterable[str], meant: Mapping[str, str]) -> None:
    """Refuse options that do not exist.

    Args:
        unknown: The options that were given and are not known, with their values.
        what: What they were given to, as in "lock".
        valid: The names of the options that exist.
        meant: For names that other libraries use, what to write here instead.

    Raises:
        ConfigError: There is one. The message says what it is called here, or lists the valid options.
    """
    for name in unknown:
        hint = f"Did you mean {meant[name]}?" if name in meant else f"Valid options are {', '.join(valid)}."
        raise ConfigError(f"unknown {what} option {name!r}. {hint}")


def milliseconds(value: float, what: str) -> str:
    """The hint for a duration that looks as if it were given in milliseconds: from 1,000 on. Else nothing."""
    return f" (seconds, not milliseconds: did you mean {what}={value / 1000:g}?)" if 1000 <= value < inf else ""


def whole(value: object, what: str, *, most: int, least: int = 1) -> int:
    """A whole number between `least` and `most`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{what} is a whole number, not {shown(value)}")
    if not least <= value <= most:
        raise ConfigError(f"{what} is a whole number from {least} to {most}, not {shown(value)}")
    return value


def text(value: object, what: str, *, most: int) -> str:
    """A text of at most `most` bytes of UTF-8."""
    if not isinstance(value, str):
        raise ConfigError(f"{what} is text, not {shown(value)}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ConfigError(f"{what} {shown(value)} has half of a surrogate pair in it, which UTF-8 cannot say") from None
    if size > most:
        raise ConfigError(f"{what} has {size} bytes of UTF-8; at most {most} are allowed")
    return value


def flag(value: object, what: str) -> bool:
    """A bool, and nothing that only looks like one."""
    if not isinstance(value, bool):
        raise ConfigError(f"{what} is True or False, not {shown(value)}")
    return value


def shown(value: object) -> str:
    """How a complaint shows what was given: short, whatever it is, and without anything that could be an address's password."""
    try:
        text = _PASSWORD.sub("//...@", repr(value))
    except Exception:  # a number of thousands of digits, or a stranger's own
        return f"something of type {type(value).__name__} that cannot be shown"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def number(value: float) -> str:
    """A number as one would write it, with all of its digits where fewer would make another number of it."""
    text = f"{value:g}"
    return text if float(text) == value else repr(value)
