"""Durations and rates as people type them: "90", "1.5s", "250ms", "10m", "1h", "2d"; "10/1m". And
times as programs read them.

Knows text. Must not know what a duration is for.
"""

from __future__ import annotations

import re
from datetime import datetime

from ..checks import number, shown
from ..errors import ConfigError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
# Texts, which `re` compiles at their first use.
_DURATION = r"(?a)(\d+(?:\.\d+)?|\.\d+)(ms|s|m|h|d|w)?"
_CALENDAR = ("hour", "day", "week", "month")


def seconds_of(text: str) -> float:
    """Read a duration.

    Args:
        text: A number, with ms, s (the default), m, h, d or w behind it.

    Returns:
        Seconds.

    Raises:
        ConfigError: It is no duration. The message has examples.
    """
    found = re.fullmatch(_DURATION, text.strip())
    if not found:
        raise ConfigError(f"{shown(text)} is no duration. Write 30, 30s, 250ms, 10m, 2h or 1d")
    return float(found[1]) * _UNITS[found[2] or "s"]


def slot_of(text: str) -> float | str:
    """Read the length of a slot: a duration, or "hour", "day", "week" or "month".

    Raises:
        ConfigError: It is neither. The message has examples.
    """
    if text in _CALENDAR:
        return text
    try:
        return seconds_of(text)
    except ConfigError as error:
        raise ConfigError(f"{error.message}; or hour, day, week or month") from None


def rate_of(text: str) -> tuple[int, float]:
    """Read a rate, such as "10/1m" or "5/s".

    Returns:
        How many calls, and in how many seconds.

    Raises:
        ConfigError: It is no rate. The message has examples.
    """
    limit, slash, period = text.partition("/")
    if not slash or not (limit.isascii() and limit.strip().isdigit()):
        raise ConfigError(f"{shown(text)} is no rate. Write LIMIT/PERIOD, such as 10/1m or 5/s")
    period = period.strip()
    return int(limit), seconds_of(f"1{period}" if period in _UNITS else period)


def told(seconds: float) -> str:
    """Write seconds for people: "850 ms", "4.2 s", "3 min", "2.5 h"."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{number(round(seconds, 1))} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def moment(at: datetime | None) -> str | None:
    """A time in UTC, as ISO 8601."""
    return None if at is None else at.isoformat().replace("+00:00", "Z")
