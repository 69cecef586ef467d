"""A rate, as bytes, and what a node's answer means: held against the same in fractions."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import settings as effort
from hypothesis import strategies as st
from scripts.bench import spoken

from holdfast.errors import ConfigError
from holdfast.primitives.rate.commands import LONGEST, MOST, SECOND, TURN, Gcra, Limit, RateAnswer, Window, key_of, reset
from holdfast.protocol.exclusive import key_of as lock_key
from holdfast.scripts import GCRA, WINDOW

unhurried = effort(deadline=None)
NOW = 1_800_000_000 * SECOND
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="{}"), min_size=1, max_size=8)
KEYS = st.text(st.sampled_from("a{}:rate window"), min_size=1, max_size=12)


def numbers(data: bytes, keys: int = 1) -> list[int]:
    """The script's arguments."""
    return [int(it) for it in spoken(data)[3 + keys :]]


def gcra(limit: int, period: int, burst: int) -> Gcra:
    """One limit, at a key of no importance."""
    return Gcra([b"k"], [Limit(limit, period, burst)])


def window(limit: int, period: int) -> Window:
    return Window([b"k"], [Limit(limit, period, limit)])


def told(allowed: bool, retry: int, reset: int, remaining: int, *at: int, limit: int = 0, reserved: bool = False) -> RateAnswer:
    return RateAnswer(allowed, reserved, retry, reset, remaining, at, limit)


# ------------------------------------------------ what is asked


def test_what_is_taken_and_given_back() -> None:
    even, fixed = Gcra([b"{mail}:rate"], [Limit(3, SECOND, 2)]), Window([b"{mail}:window"], [Limit(3, SECOND, 3)])
    assert spoken(even.take(1))[:4] == [b"EVALSHA", GCRA.sha, b"1", b"{mail}:rate"]
    assert numbers(even.take(1)) == [0, 0, 3, 333_333, 1, 666_666, 2]
    assert numbers(even.take(2)) == [0, 0, 3, 666_666, 2, 666_666, 2]
    assert numbers(even.take(1, 5 * SECOND)) == [0, 5 * SECOND, 3, 333_333, 1, 666_666, 2]
    assert numbers(even.take(1, TURN)) == [0, -1, 3, 333_333, 1, 666_666, 2]
    assert numbers(even.peek(1)) == [-1, 0, 3, 333_333, 1, 666_666, 2]
    assert numbers(even.give(1, [NOW])) == [NOW, 0, 3, 333_333, 1, 666_666, 2]
    assert spoken(fixed.take(2))[:4] == [b"EVALSHA", WINDOW.sha, b"1", b"{mail}:window"]
    assert numbers(fixed.take(2)) == numbers(fixed.take(2, 5 * SECOND)) == [2, 3, SECOND, 0]
    assert numbers(fixed.peek(2)) == [2, 3, SECOND, -1]
    assert numbers(fixed.give(2, [NOW])) == [2, 3, SECOND, NOW]
    assert (even.most, fixed.most) == (2, 3)
    assert even.orderly
    assert not fixed.orderly


def test_several_limits_are_one_call() -> None:
    keys, limits = [b"{mail}:a", b"{mail}:b"], [Limit(3, SECOND, 3), Limit(2, 10 * SECOND, 2)]
    even, fixed = Gcra(keys, limits), Window(keys, limits)
    for data, sha in ((even.take(1), GCRA.sha), (fixed.take(1), WINDOW.sha)):
        assert spoken(data)[:5] == [b"EVALSHA", sha, b"2", b"{mail}:a", b"{mail}:b"]
    assert numbers(even.take(1), 2) == [0, 0, 3, 333_333, 1, SECOND, 0, 2, 5 * SECOND, 0, 10 * SECOND, 0]
    assert numbers(fixed.take(1), 2) == [1, 3, SECOND, 0, 2, 10 * SECOND, 0]
    assert numbers(fixed.give(1, [NOW, NOW + 5]), 2) == [1, 3, SECOND, NOW, 2, 10 * SECOND, NOW + 5]
    assert (even.most, fixed.most) == (2, 2)


def test_what_is_forgotten() -> None:
    assert spoken(reset([b"a", b"b"])) == [b"DEL", b"a", b"b"]


@unhurried
@given(st.integers(1, MOST), st.integers(1000, 10**14), st.integers(1, MOST), st.integers(1, MOST))
def test_shares_of_a_period_are_exact(limit: int, period: int, burst: int, cost: int) -> None:
    what, patience, parts, q, r, most, rest = numbers(gcra(limit, period, burst).take(cost))
    assert (what, patience, parts) == (0, 0, limit)
    assert q + Fraction(r, limit) == Fraction(cost * period, limit)
    assert most + Fraction(rest, limit) == Fraction(burst * period, limit)
    assert 0 <= r < limit
    assert 0 <= rest < limit


# ------------------------------------------------ what the answer means


@unhurried
@given(st.integers(1, 10**6), st.integers(1000, 10**12), st.integers(1, 100), st.booleans(), st.data())
def test_what_is_left_and_when_more_is(limit: int, period: int, burst: int, reserved: bool, data: st.DataObject) -> None:
    cost = data.draw(st.integers(1, burst))
    owed = Fraction(data.draw(st.integers((burst - cost) * period + 1, burst * period)), limit)  # it does not fit
    share, most, micros = Fraction(period, limit), Fraction(burst * period, limit), floor(owed)
    said = gcra(limit, period, burst).read(cost, [2 * reserved, NOW, micros, int((owed - micros) * limit)])
    assert said is not None
    retry, remaining = ceil(owed + cost * share - most), floor((most - owed) / share)
    assert said == told(False, retry, ceil(owed), remaining, NOW, reserved=reserved)
    assert said.retry >= 1, "who is refused has to wait"
    assert said.remaining < cost


def test_a_call_that_is_allowed() -> None:
    assert gcra(3, SECOND, 3).read(1, [1, NOW, 333_333, 1]) == told(True, 0, 333_334, 2, NOW)
    assert window(3, SECOND).read(1, [1, NOW, 400_000, 2]) == told(True, 0, 400_000, 1, NOW + 400_000)


def test_a_call_that_is_counted_ahead() -> None:
    assert gcra(3, SECOND, 1).read(1, [3, NOW, 350_000, 0]) == told(True, 16_667, 350_000, 0, NOW)


def test_a_call_behind_others_in_line_finds_nothing_left() -> None:
    assert gcra(1, SECOND, 2).read(1, [0, NOW, 5 * SECOND, 0]) == told(False, 4 * SECOND, 5 * SECOND, 0, NOW)


def test_a_window_that_is_full() -> None:
    assert window(3, SECOND).read(2, [0, NOW, 400_000, 2]) == told(False, 400_000, 400_000, 1, NOW + 400_000)


def test_a_window_that_has_not_begun_has_nothing_to_come_back() -> None:
    assert window(3, SECOND).read(1, [1, NOW, SECOND, 0]) == told(True, 0, 0, 3, NOW + SECOND)


def test_of_several_limits_the_last_one_to_allow_it_counts() -> None:
    limits = [Limit(10, SECOND, 10), Limit(2, 100 * SECOND, 2), Limit(5, 10 * SECOND, 5)]
    even, fixed = Gcra([b"a", b"b", b"c"], limits), Window([b"a", b"b", b"c"], limits)
    assert even.read(1, [0, NOW, 100_000, 0, 70 * SECOND, 0, 10 * SECOND, 0]) == told(False, 20 * SECOND, 70 * SECOND, 0, NOW, limit=1)
    assert even.read(1, [1, NOW, 100_000, 0, 50 * SECOND, 0, 2 * SECOND, 0]) == told(True, 0, 50 * SECOND, 1, NOW)
    assert fixed.read(1, [0, NOW, 900_000, 10, 7, 1, 8 * SECOND, 5]) == told(
        False, 8 * SECOND, 8 * SECOND, 0, NOW + 900_000, NOW + 7, NOW + 8 * SECOND, limit=2
    )


def test_an_answer_to_a_caller_that_does_not_know_the_numbers() -> None:
    assert window(2, SECOND).read(1, [0, NOW, 400_000, 7]) == told(False, 400_000, 400_000, 0, NOW + 400_000)
    assert gcra(1, SECOND, 1).read(1, [1, NOW, 1_500_000, 0]) == told(True, 0, 1_500_000, 0, NOW)


ODD: list[object] = [None, b"OK", 1, [], [1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6], [1, 2, b"3", 4]]


@pytest.mark.parametrize("reply", [*ODD, [True, 1, 2, 3], [4, 1, 2, 3], [-1, 1, 2, 3]])
@pytest.mark.parametrize("algorithm", [gcra(1, SECOND, 1), window(1, SECOND)], ids=["gcra", "window"])
def test_what_no_script_of_ours_says(algorithm: Gcra | Window, reply: object) -> None:
    assert algorithm.read(1, reply) is None


def test_a_window_reserves_nothing() -> None:
    for verdict in (2, 3):
        assert window(1, SECOND).read(1, [verdict, NOW, 400_000, 1]) is None


# ------------------------------------------------ keys

MINUTE = Limit(10, 60 * SECOND, 10)
PERIODS = st.sampled_from([1000, 1500, SECOND, SECOND * 3 // 2, 10 * SECOND])
LIMITS = st.builds(Limit, st.integers(1, 12), PERIODS, st.integers(1, 3))


def test_where_rates_are_kept() -> None:
    assert key_of(Gcra, "mail", "app:", None, MINUTE) == b"{app:mail}:rate:10/60/10"
    assert key_of(Gcra, "mail", "app:", "user:7", MINUTE) == b"{app:mail}:rate:10/60/10:user:7"
    assert key_of(Gcra, "mail", "", 7, Limit(1, 1500, 3)) == b"{mail}:rate:1/0.0015/3:7"
    assert key_of(Window, "\u00e9", "", "\u00e9", MINUTE) == "{\u00e9}:window:10/60:\u00e9".encode()


@unhurried
@given(*[st.tuples(st.sampled_from([Gcra, Window]), NAMES, st.none() | KEYS, LIMITS)] * 2)
def test_no_two_limits_share_a_key(one: Any, other: Any) -> None:
    # Rule RA4.
    (kind, name, key, limit), (its_kind, its_name, its_key, its_limit) = one, other
    if kind is Window:  # (which has no burst of its own)
        one = (kind, name, key, limit := limit._replace(burst=limit.calls))
    if its_kind is Window:
        other = (its_kind, its_name, its_key, its_limit := its_limit._replace(burst=its_limit.calls))
    same = key_of(kind, name, "", key, limit) == key_of(its_kind, its_name, "", its_key, its_limit)
    assert same is (one == other)


@unhurried
@given(NAMES, st.none() | KEYS, st.sampled_from([Gcra, Window]))
def test_no_lock_has_the_name_of_a_rate_s_key(name: str, key: str | None, kind: Any) -> None:
    kept = key_of(kind, name, "", key, MINUTE).decode()
    assume(len(kept.encode()) <= LONGEST)
    with pytest.raises(ConfigError, match="cannot be a lock's name"):
        lock_key(kept)


@pytest.mark.parametrize(
    "name, key, told",
    [
        ("", None, "a rate needs a name"),
        (5, None, "a rate's name is text, not 5"),
        ("x" * (LONGEST + 1), None, "a rate's name has 513 bytes"),
        ("{user}", None, "it has a brace in it"),
        ("a}", None, "it has a brace in it"),
        ("mail", "", "a rate's key is empty"),
        ("mail", True, "a rate's key is text, not True"),
        ("mail", b"x", "a rate's key is text, not b'x'"),
        ("mail", 7.0, "a rate's key is text, not 7.0"),
        ("mail", "x" * (LONGEST + 1), "a rate's key has 513 bytes"),
    ],
)
def test_names_and_keys_that_are_none(name: Any, key: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        key_of(Gcra, name, "", key, MINUTE)
