"""What may be given as an argument, and that every complaint is a ConfigError that says what to write instead."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import checks
from holdfast.errors import ConfigError, HoldfastError

between = partial(checks.seconds, what="ttl", least=2.5, most=10.0)
ttl = partial(checks.seconds, what="ttl")
limit = partial(checks.whole, what="limit", least=0, most=100)
owner = partial(checks.text, what="owner", most=6)
renew = partial(checks.flag, what="renew")
Check = Callable[[Any], object]

TAKEN: list[tuple[Check, object, object]] = [
    *((ttl, it, float(it)) for it in (0, 0.0, 7, 0.05, 1e12, 10**12)),
    *((ttl, it, it.total_seconds()) for it in (timedelta(0), timedelta(microseconds=1), timedelta(days=400))),
    *((between, it, float(it)) for it in (2.5, 3, 10.0)),
    *((limit, it, it) for it in (0, 1, 100)),
    (partial(checks.whole, what="limit", most=1), 1, 1),
    *((owner, it, it) for it in ("", "abcdef", "äöü", "\0")),
    *((renew, it, it) for it in (True, False)),
]


@pytest.mark.parametrize("check, value, found", TAKEN)
def test_what_is_right_is_returned(check: Check, value: object, found: object) -> None:
    result = check(value)
    assert result == found and type(result) is type(found)


NO_NUMBERS = [None, "1", b"1", True, 1j, Decimal(1), Fraction(1), [1]]
REFUSED: list[tuple[Check, Any, str]] = [
    *((ttl, it, f"ttl is a number of seconds or a timedelta, not {checks.shown(it)}") for it in NO_NUMBERS),
    # Not even where there is no upper limit: a lease that never ends is what nobody may ask for.
    *((ttl, it, f"ttl is 0 or more seconds, not {it}") for it in (nan, inf, -inf, -1, -0.5)),
    (ttl, timedelta(microseconds=-1), "ttl is 0 or more seconds, not -1e-06"),
    (ttl, 10**400, "ttl is 0 or more seconds, not inf"),
    *((between, it, f"ttl is from 2.5 to 10 seconds, not {it:g}") for it in (nan, inf, 2.4, 0, 11)),
    *((limit, it, f"limit is a whole number, not {checks.shown(it)}") for it in (*NO_NUMBERS, 1.0)),
    *((limit, it, f"limit is a whole number from 0 to 100, not {it}") for it in (-1, 101)),
    (partial(checks.whole, what="limit", most=1), 0, "limit is a whole number from 1 to 1, not 0"),
    *((owner, it, f"owner is text, not {checks.shown(it)}") for it in (None, b"", 5, True, ["a"])),
    *((owner, it, "owner has 7 bytes of UTF-8; at most 6 are allowed") for it in ("abcdefg", "äöüx")),
    (owner, "a\ud800b", r"owner 'a\ud800b' has half of a surrogate pair in it, which UTF-8 cannot say"),
    *((renew, it, f"renew is True or False, not {checks.shown(it)}") for it in (0, 1, 1.0, None, "yes")),
    (checks.encrypted, "a.key", "the private key a.key is encrypted. Write it without a password: openssl pkey -in a.key"),
]


@pytest.mark.parametrize("check, value, told", REFUSED)
def test_B02_B25_B36_B41_what_is_wrong_is_refused_with_what_to_write_instead(check: Check, value: object, told: str) -> None:
    with pytest.raises(ValueError) as caught:
        check(value)
    assert isinstance(caught.value, ConfigError) and isinstance(caught.value, HoldfastError)
    assert caught.value.message == told
    assert caught.value.__cause__ is None
    str(caught.value).encode()


def test_a_text_that_cannot_be_a_name_has_a_reason_of_its_own() -> None:
    """It may be a client's of a service. What is no text at all is the program's."""
    for text, reason in (("four", "bad_name"), ("\ud800", "bad_name"), (5, "other")):
        with pytest.raises(ConfigError) as refused:
            checks.name(text, "a lock's name", most=3)
        assert refused.value.reason == reason
    assert checks.name("two", "a lock's name", most=3) == "two"


def test_flags_are_checked_at_once_and_named() -> None:
    checks.flags(renew=True, reentrant=False)
    for wrong in (0, 1, None, "yes"):
        with pytest.raises(ConfigError, match=f"^reentrant is True or False, not {wrong!r}"):
            checks.flags(renew=True, reentrant=wrong)


# ---------------------------------------------------------------- how a complaint shows what was given


class Silent:
    """Cannot be printed."""

    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "value, shown",
    [
        ("a\nb", r"'a\nb'"),
        (5, "5"),
        ("x" * 198, repr("x" * 198)),
        ("x" * 199, "'" + "x" * 199 + "..."),
        (Silent(), "something of type Silent that cannot be shown"),
        (10**5000, "something of type int that cannot be shown"),
        (["redis://me:pw@h", "redis://h"], "['redis://...@h', 'redis://h']"),
        ("redis://me:p@//w@h:1/2", "'redis://...@h:1/2'"),
    ],
    ids=["text", "number", "just short enough", "too long", "a stranger's", "too many digits", "addresses", "an odd password"],
)
def test_b58_what_was_given_is_shown_short_and_without_a_password(value: object, shown: str) -> None:
    assert checks.shown(value) == shown


@pytest.mark.parametrize(
    "value, told", [(30.0, "30"), (0.05, "0.05"), (86400.0, "86400"), (30.0000001, "30.0000001"), (0.1 + 0.2, "0.30000000000000004")]
)
def test_a_number_is_told_with_as_many_digits_as_it_takes(value: float, told: str) -> None:
    """Else a complaint would ask for what it was given."""
    assert checks.number(value) == told


def test_a_complaint_about_a_number_does_not_round_it() -> None:
    with pytest.raises(ConfigError, match=r"^ttl is from 0.05 to 30 seconds, not 30.0000001 \["):
        checks.seconds(30.0000001, "ttl", least=0.05, most=30)


# ---------------------------------------------------------------- options and units


def test_an_unknown_option_is_named_with_what_it_is_called_here_or_with_all_that_are_valid() -> None:
    meant = {"timeout": "wait (how long to wait)"}
    checks.known({}, "lock", ("wait", "ttl"), meant)
    with pytest.raises(ConfigError, match=r"^unknown lock option 'timeout'. Did you mean wait \(how long to wait\)\? \["):
        checks.known({"timeout": 1}, "lock", ("wait", "ttl"), meant)
    with pytest.raises(ConfigError, match=r"^unknown lock option 'colour'. Valid options are wait, ttl. \["):
        checks.known({"colour": 1}, "lock", ("wait", "ttl"), meant)


@pytest.mark.parametrize(
    "value, hint",
    [
        (999.9, ""),
        (1000, " (seconds, not milliseconds: did you mean ttl=1?)"),
        (12500, " (seconds, not milliseconds: did you mean ttl=12.5?)"),
        (inf, ""),
    ],
)
def test_what_looks_like_milliseconds_is_told(value: float, hint: str) -> None:
    assert checks.milliseconds(value, "ttl") == hint
    with pytest.raises(ConfigError) as caught:
        checks.seconds(value, "ttl", most=30)
    assert caught.value.message.endswith(hint or checks.number(value))
    with pytest.raises(ConfigError) as caught:
        checks.seconds(timedelta(seconds=5000), "ttl", most=30)
    assert "milliseconds" not in str(caught.value), "a timedelta has its unit with it"


@pytest.mark.parametrize("value", [2000, 5000, 30_000, 60_000, 9_999_000])
def test_d18_a_wait_that_looks_like_milliseconds_is_refused(value: int) -> None:
    with pytest.raises(ConfigError) as caught:
        checks.seconds(value, "wait", waits=True)
    told = f"wait is a number of seconds or a timedelta, and {value} looks like milliseconds"
    assert caught.value.message == f"{told}: write wait={value // 1000}, or wait={value}.0 if it is seconds"
    for meant in (float(value), timedelta(seconds=value), value + 1, value - 1, value * 3600):
        assert checks.seconds(meant, "wait", waits=True) in (value, value + 1, value - 1, value * 3600)
    assert checks.seconds(value, "keep") == value, "results are kept for long"


# ---------------------------------------------------------------- what ends a wait


def test_only_an_event_ends_a_wait() -> None:
    for event in (None, threading.Event()):
        checks.cancel(event)
    for wrong in (False, 5, "now", SimpleNamespace(is_set=True)):
        with pytest.raises(ConfigError, match=f"; not {re.escape(checks.shown(wrong))}"):
            checks.cancel(wrong)
