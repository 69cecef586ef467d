"""What may be given as an argument: seconds, names, texts. Every complaint says what to write instead.

Knows values. Must not know what they are for.
"""

from __future__ import annotations

from datetime import timedelta
from math import inf, isfinite

from .errors import ConfigError

Seconds = float | timedelta


def seconds(value: object, what: str, *, least: float = 0.0, most: float = inf) -> float:
    """The number of seconds that `value` means: a number or a timedelta, between `least` and `most`."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{what} is a number of seconds or a timedelta, not {value!r}")
    try:
        number = float(value)
    except OverflowError:  # (of a whole number that no float can hold, and perhaps no screen)
        number = inf
    if not isfinite(number) or not least <= number <= most:
        limits = f"{least:g} or more" if most == inf else f"from {least:g} to {most:g}"
        raise ConfigError(f"{what} is {limits} seconds, not {number:g}")
    return number


def text(value: object, what: str, *, most: int) -> str:
    """A text of at most `most` bytes of UTF-8."""
    if not isinstance(value, str):
        raise ConfigError(f"{what} is text, not {value!r}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ConfigError(f"{what} {value!r} has half of a surrogate pair in it, which UTF-8 cannot say") from None
    if size > most:
        raise ConfigError(f"{what} has {size} bytes of UTF-8; at most {most} are allowed")
    return value


def flag(value: object, what: str) -> bool:
    """A bool, and nothing that only looks like one."""
    if not isinstance(value, bool):
        raise ConfigError(f"{what} is True or False, not {value!r}")
    return value
