"""What may be given as an argument, and that every complaint is a ConfigError that says what to write instead."""

from __future__ import annotations

import re
import threading
from datetime import timedelta
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast import checks
from holdfast.errors import ConfigError, HoldfastError

unhurried = settings(deadline=None)  # others may have the machine

NO_NUMBERS = st.one_of(st.none(), st.text(), st.binary(), st.complex_numbers(), st.decimals(), st.fractions(), st.lists(st.integers()))

# ---------------------------------------------------------------- seconds


@unhurried
@given(st.floats(0, 1e12) | st.integers(0, 10**12))
def test_a_number_of_seconds_is_a_float(value: float) -> None:
    found = checks.seconds(value, "ttl")
    assert type(found) is float
    assert found == value


@unhurried
@given(st.timedeltas(min_value=timedelta(0)))
def test_a_timedelta_is_its_seconds(value: timedelta) -> None:
    assert checks.seconds(value, "ttl") == value.total_seconds()


@unhurried
@given(st.floats(-5, 15) | st.integers(-5, 15))
def test_B02_B36_seconds_are_within_their_limits(value: float) -> None:
    """The limits themselves are allowed."""
    if 2.5 <= value <= 10:
        assert checks.seconds(value, "ttl", least=2.5, most=10.0) == value
    else:
        with pytest.raises(ConfigError, match=r"^ttl is from 2.5 to 10 seconds, not "):
            checks.seconds(value, "ttl", least=2.5, most=10.0)


@unhurried
@given(st.floats(max_value=0, exclude_max=True) | st.integers(max_value=-1) | st.timedeltas(max_value=timedelta(microseconds=-1)))
def test_B02_B36_negative_seconds_are_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^wait is 0 or more seconds, not -"):
        checks.seconds(value, "wait")


@pytest.mark.parametrize("value", [nan, inf, -inf])
@pytest.mark.parametrize("most", [inf, 10.0])
def test_B02_B36_what_is_no_finite_number_is_refused(value: float, most: float) -> None:
    """Not even where there is no upper limit: a lease that never ends is what nobody may ask for."""
    with pytest.raises(ConfigError, match=f"not {value}"):
        checks.seconds(value, "ttl", most=most)


@pytest.mark.parametrize("value", [10**400, -(10**400), 10**5000], ids=["large", "small", "too large to write"])
def test_a_number_that_no_float_can_hold_is_refused(value: int) -> None:
    with pytest.raises(ConfigError):
        checks.seconds(value, "ttl")


@unhurried
@given(st.booleans())
def test_B02_B41_a_bool_is_no_number_of_seconds(value: bool) -> None:
    with pytest.raises(ConfigError, match=f"^wait is a number of seconds or a timedelta, not {value} \\["):
        checks.seconds(value, "wait")


@unhurried
@given(NO_NUMBERS)
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        checks.seconds(value, "ttl")
    assert caught.value.message == f"ttl is a number of seconds or a timedelta, not {checks.shown(value)}"


# ---------------------------------------------------------------- whole numbers


@unhurried
@given(st.integers(), st.integers(0, 100), st.integers(0, 100))
def test_a_whole_number_has_its_limits(value: int, least: int, more: int) -> None:
    if least <= value <= least + more:
        assert checks.whole(value, "limit", least=least, most=least + more) is value
    else:
        with pytest.raises(ConfigError) as caught:
            checks.whole(value, "limit", least=least, most=least + more)
        assert caught.value.message == f"limit is a whole number from {least} to {least + more}, not {checks.shown(value)}"


@unhurried
@given(NO_NUMBERS | st.booleans() | st.floats())
def test_what_is_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        checks.whole(value, "limit", most=5)
    assert caught.value.message == f"limit is a whole number, not {checks.shown(value)}"


def test_a_whole_number_is_one_at_least() -> None:
    assert checks.whole(1, "limit", most=1) == 1
    with pytest.raises(ConfigError):
        checks.whole(0, "limit", most=1)


# ---------------------------------------------------------------- texts


@unhurried
@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_a_text_is_as_long_as_its_utf8(value: str) -> None:
    size = len(value.encode())
    assert checks.text(value, "owner", most=size) is value
    assume(size)
    with pytest.raises(ConfigError, match=f"^owner has {size} bytes of UTF-8; at most {size - 1} are allowed \\["):
        checks.text(value, "owner", most=size - 1)


@unhurried
@given(st.text(max_size=5), st.characters(categories=["Cs"]), st.text(max_size=5))
def test_half_of_a_surrogate_pair_is_refused(before: str, half: str, after: str) -> None:
    """And in words that can be written to a log."""
    with pytest.raises(ConfigError, match="surrogate") as caught:
        checks.text(before + half + after, "a lock's name", most=512)
    str(caught.value).encode()
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_text_that_cannot_be_a_name_has_a_reason_of_its_own() -> None:
    """It may be a client's of a service. What is no text at all is the program's."""
    for text in ("four", "\ud800"):
        with pytest.raises(ConfigError) as refused:
            checks.name(text, "a lock's name", most=3)
        assert refused.value.reason == "bad_name"
    with pytest.raises(ConfigError) as caught:
        checks.name(5, "a lock's name", most=3)
    assert type(caught.value) is ConfigError
    assert checks.name("two", "a lock's name", most=3) == "two"


@unhurried
@given(NO_NUMBERS.filter(lambda value: not isinstance(value, str)) | st.integers() | st.booleans())
def test_B25_what_is_no_text_is_refused(value: object) -> None:
    """Bytes neither: nobody knows what they mean."""
    with pytest.raises(ConfigError) as caught:
        checks.text(value, "prefix", most=512)
    assert caught.value.message == f"prefix is text, not {checks.shown(value)}"


# ---------------------------------------------------------------- flags


@unhurried
@given(st.booleans())
def test_a_flag_is_a_bool(value: bool) -> None:
    assert checks.flag(value, "renew") is value


@unhurried
@given(st.integers() | st.floats() | NO_NUMBERS)
def test_what_only_looks_like_a_bool_is_refused(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        checks.flag(value, "renew")
    assert caught.value.message == f"renew is True or False, not {checks.shown(value)}"


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


# ---------------------------------------------------------------- all


@pytest.mark.parametrize(
    "check, value", [(checks.seconds, "1"), (checks.seconds, -1), (lambda *it: checks.text(*it, most=1), b""), (checks.flag, 1)]
)
def test_a_complaint_is_a_value_error_of_our_own_and_names_the_argument(check: Any, value: object) -> None:
    with pytest.raises(ValueError, match=r"^the argument is ") as caught:
        check(value, "the argument")
    assert isinstance(caught.value, HoldfastError)


# ---------------------------------------------------------------- flags


def test_flags_are_checked_at_once_and_named() -> None:
    checks.flags(renew=True, reentrant=False)
    for wrong in (0, 1, None, "yes"):
        with pytest.raises(ConfigError, match=f"^reentrant is True or False, not {wrong!r}"):
            checks.flags(renew=True, reentrant=wrong)


# ---------------------------------------------------------------- what ends a wait


def test_only_an_event_ends_a_wait() -> None:
    for event in (None, threading.Event()):
        checks.cancel(event)
    for wrong in (False, 5, "now", SimpleNamespace(is_set=True)):
        with pytest.raises(ConfigError, match=f"; not {re.escape(checks.shown(wrong))}"):
            checks.cancel(wrong)
