"""A rate, as bytes, and what a node's answer means: held against the same in fractions."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import settings as effort
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.recipes.exclusive import key_of as lock_key
from holdfast.recipes.rate import LONGEST, MOST, SECOND, Gcra, Told, Window, key_of
from holdfast.scripts import GCRA, WINDOW

unhurried = effort(deadline=None)
NOW = 1_800_000_000 * SECOND
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="{}"), min_size=1, max_size=8)
KEYS = st.text(st.sampled_from("a{}:rate window"), min_size=1, max_size=12)


def words(data: bytes) -> list[bytes]:
    """What a command says."""
    return data.split(b"\r\n")[2::2]


def numbers(data: bytes) -> list[int]:
    """The script's arguments."""
    return [int(it) for it in words(data)[4:]]


# ------------------------------------------------ what is asked


def test_what_is_taken_and_given_back() -> None:
    gcra, window = Gcra(b"{mail}:rate", 3, SECOND, 2), Window(b"{mail}:window", 3, SECOND)
    assert words(gcra.take(1))[:4] == [b"EVALSHA", GCRA.sha, b"1", b"{mail}:rate"]
    assert numbers(gcra.take(1)) == [3, 333_333, 1, 666_666, 2, 0]
    assert numbers(gcra.take(2)) == [3, 666_666, 2, 666_666, 2, 0]
    assert numbers(gcra.give(1, NOW)) == [3, 333_333, 1, 666_666, 2, NOW]
    assert words(window.take(2))[:4] == [b"EVALSHA", WINDOW.sha, b"1", b"{mail}:window"]
    assert numbers(window.take(2)) == [2, 3, SECOND, 0]
    assert numbers(window.give(2, NOW)) == [2, 3, SECOND, NOW]
    assert (gcra.most, window.most) == (2, 3)


@unhurried
@given(st.integers(1, MOST), st.integers(1000, 10**14), st.integers(1, MOST), st.integers(1, MOST))
def test_shares_of_a_period_are_exact(limit: int, period: int, burst: int, cost: int) -> None:
    parts, q, r, most, rest, at = numbers(Gcra(b"k", limit, period, burst).take(cost))
    assert (parts, at) == (limit, 0)
    assert q + Fraction(r, limit) == Fraction(cost * period, limit)
    assert most + Fraction(rest, limit) == Fraction(burst * period, limit)
    assert 0 <= r < limit
    assert 0 <= rest < limit


# ------------------------------------------------ what the answer means


@unhurried
@given(st.integers(1, 10**6), st.integers(1000, 10**12), st.integers(1, 100), st.data())
def test_what_is_left_and_when_more_is(limit: int, period: int, burst: int, data: st.DataObject) -> None:
    cost = data.draw(st.integers(1, burst))
    owed = Fraction(data.draw(st.integers((burst - cost) * period + 1, burst * period)), limit)  # it does not fit
    share, most, micros = Fraction(period, limit), Fraction(burst * period, limit), floor(owed)
    told = Gcra(b"k", limit, period, burst).read(cost, [0, micros, int((owed - micros) * limit), NOW])
    assert told is not None
    assert told == Told(False, ceil(owed + cost * share - most), ceil(owed), floor((most - owed) / share), NOW)
    assert told.retry >= 1, "who is refused has to wait"
    assert told.remaining < cost


def test_a_call_that_is_allowed() -> None:
    assert Gcra(b"k", 3, SECOND, 3).read(1, [1, 333_333, 1, NOW]) == Told(True, 0, 333_334, 2, NOW)
    assert Window(b"k", 3, SECOND).read(1, [1, 400_000, 2, NOW]) == Told(True, 0, 400_000, 1, NOW + 400_000)


def test_a_window_that_is_full() -> None:
    assert Window(b"k", 3, SECOND).read(2, [0, 400_000, 2, NOW]) == Told(False, 400_000, 400_000, 1, NOW + 400_000)


def test_an_answer_to_who_names_a_smaller_limit_than_others() -> None:
    assert Window(b"k", 2, SECOND).read(1, [0, 400_000, 7, NOW]) == Told(False, 400_000, 400_000, 0, NOW + 400_000)
    assert Gcra(b"k", 1, SECOND, 1).read(1, [1, 1_500_000, 0, NOW]) == Told(True, 0, 1_500_000, 0, NOW)


@pytest.mark.parametrize("reply", [None, b"OK", 1, [], [1, 2, 3], [1, 2, 3, 4, 5], [1, 2, b"3", 4], [True, 1, 2, 3]])
@pytest.mark.parametrize("algorithm", [Gcra(b"k", 1, SECOND, 1), Window(b"k", 1, SECOND)], ids=["gcra", "window"])
def test_what_no_script_of_ours_says(algorithm: Gcra | Window, reply: object) -> None:
    assert algorithm.read(1, reply) is None


# ------------------------------------------------ keys


def test_where_rates_are_kept() -> None:
    assert key_of(Gcra, "mail", "app:", None) == b"{app:mail}:rate"
    assert key_of(Gcra, "mail", "app:", "user:7") == b"{app:mail}:rate:user:7"
    assert key_of(Gcra, "mail", "", 7) == b"{mail}:rate:7"
    assert key_of(Window, "\u00e9", "", "\u00e9") == "{\u00e9}:window:\u00e9".encode()


@unhurried
@given(*[st.tuples(st.sampled_from([Gcra, Window]), NAMES, st.none() | KEYS)] * 2)
def test_no_two_rates_share_a_key(one: Any, other: Any) -> None:
    (kind, name, key), (its_kind, its_name, its_key) = one, other
    same = key_of(kind, name, "", key) == key_of(its_kind, its_name, "", its_key)
    assert same is (one == other)


@unhurried
@given(NAMES, st.none() | KEYS, st.sampled_from([Gcra, Window]))
def test_no_lock_has_the_name_of_a_rate_s_key(name: str, key: str | None, kind: Any) -> None:
    kept = key_of(kind, name, "", key).decode()
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
        key_of(Gcra, name, "", key)
