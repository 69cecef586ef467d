"""A computed value, as bytes, and what nodes' answers mean: what is fresh, which is the best, and when there is no need to ask on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recipes.test_looking import words

from holdfast.recipes.exclusive import Exclusive, keys_of
from holdfast.recipes.fill import Cache, Kept, best, read, settled
from holdfast.scripts import PEEK, PUT

REPLIES = st.none() | st.tuples(st.integers(-9, 9), st.binary(max_size=2)).map(list)


def cache(name: str = "price", prefix: str = "") -> Cache:
    return Cache(Exclusive(name, prefix=prefix, ttl=10.0, horizon=16_000))


def test_what_is_asked() -> None:
    assert words(cache(prefix="app:").peek) == [b"EVALSHA", PEEK.sha, b"1", b"{app:price}:cache"]
    data = bytes(range(256))
    said = words(cache().put(17, 60_000, 5_000, data))
    assert said == [b"EVALSHA", PUT.sha, b"3", b"price", b"{price}:cache", b"{price}:queue", b"17", b"60000", b"5000", data]


def test_its_keys_are_in_the_slot_of_its_lock_s() -> None:
    said = words(cache("{shop}:price").put(1, 1, 0, b""))
    assert said[3:6] == [b"{shop}:price", b"{shop}:cache:{shop}:price", b"{shop}:queue:{shop}:price"]
    assert said[5] == keys_of(b"{shop}:price")[2]
    assert cache("{shop}:price").key == said[4]


@pytest.mark.parametrize("reply", [None, 0, b"value", [], [1], [1, None], [b"1", b"value"], [1, b"value", 2], [1.5, b"value"]])
def test_what_is_no_value(reply: object) -> None:
    assert read(reply) is None
    assert best([reply]) is None


def test_a_value() -> None:
    assert read([1500, b"value"]) == Kept(1.5, b"value")
    assert [Kept(left, b"").fresh for left in (0.001, 0, -0.001)] == [True, False, False]


@given(st.lists(REPLIES))
def test_the_best_is_fresh_for_longest(replies: list[object]) -> None:
    found = best(replies)
    values = [it for it in map(read, replies) if it is not None]
    assert (found is None) is (not values)
    assert found is None or (found in values and found.left == max(it.left for it in values))


@given(st.lists(REPLIES, max_size=5))
def test_a_fresh_value_settles_it_and_so_do_enough_without(replies: list[object]) -> None:
    found = best(replies)
    assert settled(replies, 3) is ((found is not None and found.fresh) or len(replies) >= 3)


def test_one_that_has_nothing_settles_nothing() -> None:
    assert not settled([], 2)
    assert not settled([None], 2)
    assert not settled([[-5, b"old"]], 2)
    assert settled([None, None], 2)
    assert settled([None, [1, b"new"]], 3)
    assert settled([None], 1)
