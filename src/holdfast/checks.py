"""Checks arguments: seconds, numbers, texts, flags. Every error says what to pass instead.

Knows values. Must not know what they are for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from math import inf, isfinite
from typing import Literal, NoReturn

from .errors import ConfigError

Seconds = float | timedelta
# The password in an address that was passed as another argument.
_PASSWORD = r"//\S*@"  # a text, which `re` compiles at its first use
_MOST_SHOWN = 200  # characters


def seconds(value: object, what: str, *, least: float = 0.0, most: float = inf, waits: bool = False) -> float:
    """Return a number or a timedelta as seconds.

    Args:
        value: The argument.
        what: Its name, for the error.
        least: The smallest value that is allowed.
        most: The largest value that is allowed.
        waits: Whether somebody waits for so long. Then an int of whole thousands, from 2,000 to 10
            million, looks like milliseconds unless it is a whole number of hours.

    Returns:
        The seconds.

    Raises:
        ConfigError: The value is no duration, out of range, or looks like milliseconds.
    """
    counted, given = not isinstance(value, timedelta), value
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{what} is a number of seconds or a timedelta, not {shown(value)}")
    try:
        found = float(value)
    except OverflowError:
        # An int that is too large for a float.
        found = inf
    if not isfinite(found) or not least <= found <= most:
        limits = f"{number(least)} or more" if most == inf else f"from {number(least)} to {number(most)}"
        hint = milliseconds(found, what) if counted else ""
        raise ConfigError(f"{what} is {limits} seconds, not {number(found)}{hint}")
    if waits and type(given) is int and 1000 < given < 10**7 and given % 1000 == 0 and given % 3600:
        told = f"{given} looks like milliseconds: write {what}={found / 1000:g}, or {what}={found} if it is seconds"
        raise ConfigError(f"{what} is a number of seconds or a timedelta, and {told}")
    return found


def known(unknown: Mapping[str, object], what: str, valid: Iterable[str], meant: Mapping[str, str]) -> None:
    """Refuse options that do not exist.

    Args:
        unknown: The unknown options, with their values.
        what: What takes the options, such as "lock".
        valid: The names of the valid options.
        meant: For names that other libraries use, the option of holdfast.

    Raises:
        ConfigError: There is an unknown option. The message names the option to use instead, or
            lists the valid ones.
    """
    for name in unknown:
        hint = f"Did you mean {meant[name]}?" if name in meant else f"Valid options are {', '.join(valid)}."
        raise ConfigError(f"unknown {what} option {name!r}. {hint}")


def milliseconds(value: float, what: str) -> str:
    """Return a hint for a duration that looks like milliseconds (>= 1,000), or an empty string."""
    return f" (seconds, not milliseconds: did you mean {what}={value / 1000:g}?)" if 1000 <= value < inf else ""


def whole(value: object, what: str, *, most: int, least: int = 1) -> int:
    """Return an int between `least` and `most`. Raise ConfigError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{what} is a whole number, not {shown(value)}")
    if not least <= value <= most:
        raise ConfigError(f"{what} is a whole number from {least} to {most}, not {shown(value)}")
    return value


def text(value: object, what: str, *, most: int, reason: Literal["bad_name", "other"] = "other") -> str:
    """Return a text of at most `most` bytes of UTF-8. Raise ConfigError for anything else.

    `reason` is that of the error about a text that is too long, or no UTF-8.
    """
    if not isinstance(value, str):
        raise ConfigError(f"{what} is text, not {shown(value)}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        told = f"{what} {shown(value)} has half of a surrogate pair in it, which UTF-8 cannot say"
        raise ConfigError(told, reason) from None
    if size > most:
        raise ConfigError(f"{what} has {size} bytes of UTF-8; at most {most} are allowed", reason)
    return value


def name(value: object, what: str, *, most: int) -> str:
    """As `text`, for a name or a key. A bad one has the reason "bad_name"."""
    return text(value, what, most=most, reason="bad_name")


def flag(value: object, what: str) -> bool:
    """Return a bool. Raise ConfigError for anything else, also for 0 and 1."""
    if not isinstance(value, bool):
        raise ConfigError(f"{what} is True or False, not {shown(value)}")
    return value


def flags(**given: object) -> None:
    """Check several flags at once, by their names. Raise ConfigError for the first that is none."""
    for what, value in given.items():
        if value is not True and value is not False:
            flag(value, what)


def cancel(value: object) -> None:
    """Refuse what cannot end a wait, such as the False of `acquire(False)`.

    None is allowed: nothing ends the wait.

    Raises:
        ConfigError: It is no event.
    """
    if value is not None and not callable(getattr(value, "is_set", None)):
        told = f"cancel is an event, such as threading.Event(), which ends waiting when it is set; not {shown(value)}"
        raise ConfigError(told)


def encrypted(key: str) -> NoReturn:
    """Refuse a private key that is encrypted.

    Without this, OpenSSL would ask for its password at the terminal.

    Args:
        key: The file.

    Raises:
        ConfigError: Always.
    """
    raise ConfigError(f"the private key {key} is encrypted. Write it without a password: openssl pkey -in {key}")


def shown(value: object) -> str:
    """Return a value as an error shows it: short, and without the password of an address."""
    try:
        text = re.sub(_PASSWORD, "//...@", repr(value))
    except Exception:
        # An int with thousands of digits, or an object whose own __repr__ fails.
        return f"something of type {type(value).__name__} that cannot be shown"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def number(value: float) -> str:
    """Return a number as text, with as many digits as it takes to keep its value."""
    text = f"{value:g}"
    return text if float(text) == value else repr(value)
