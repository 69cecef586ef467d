"""What may be given as an argument: seconds, names, texts. Every complaint says what to write instead.

Knows values. Must not know what they are for.
"""

from __future__ import annotations

import re
from datetime import timedelta
from math import inf, isfinite

from .errors import ConfigError

Seconds = float | timedelta
_PASSWORD = re.compile(r"//\S*@")  # of an address that was given where none belongs
_MOST_SHOWN = 200  # characters


def seconds(value: object, what: str, *, least: float = 0.0, most: float = inf) -> float:
    """The number of seconds that `value` means: a number or a timedelta, between `least` and `most`."""
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
        raise ConfigError(f"{what} is {limits} seconds, not {number(found)}")
    return found


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
