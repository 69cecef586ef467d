"""A computed value, as bytes, and what nodes' answers mean: what is fresh, which is the newest, and when there is no need to ask on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts.bench import spoken

from holdfast.primitives.fill.commands import Cache, FillHeard, Kept, best, heard, read, settled
from holdfast.protocol.exclusive import Exclusive, keys_of
from holdfast.scripts import PEEK, PUT, VOID

VALUES = st.tuples(st.integers(-9, 9), st.integers(1, 4), st.just(9), st.binary(max_size=2)).map(list)
NOTES = st.tuples(st.just(0), st.integers(1, 4)).map(list)
REPLIES = st.none() | VALUES | NOTES


def cache(name: str = "price", prefix: str = "") -> Cache:
    return Cache(Exclusive(name, prefix=prefix, ttl=10.0, horizon=16_000))


def test_what_is_asked() -> None:
    assert spoken(cache(prefix="app:").peek) == [b"EVALSHA", PEEK.sha, b"1", b"{app:price}:cache"]
    data = bytes(range(256))
    said = spoken(cache().put(17, 60_000, 5_000, 70_000, data))
    assert said == [b"EVALSHA", PUT.sha, b"3", b"price", b"{price}:cache", b"{price}:queue", b"17", b"60000", b"5000", b"70000", data]
    assert spoken(cache().void()) == [b"EVALSHA", VOID.sha, b"2", b"{price}:fence", b"{price}:cache", b"0", b"16000", b"0"]
    assert spoken(cache().void(17, 900))[-3:] == [b"17", b"16000", b"900"]
    assert cache().horizon == 16_000


def test_its_keys_are_in_the_slot_of_its_lock_s() -> None:
    said = spoken(cache("{shop}:price").put(1, 1, 0, 1, b""))
    assert said[3:6] == [b"{shop}:price", b"{shop}:cache:{shop}:price", b"{shop}:queue:{shop}:price"]
    assert said[5] == keys_of(b"{shop}:price")[2]
    said = spoken(cache("{shop}:price").void())
    assert said[3:5] == [keys_of(b"{shop}:price")[1], b"{shop}:cache:{shop}:price"]
    assert cache("{shop}:price").key == said[4]


@pytest.mark.parametrize(
    "reply",
    [None, 0, b"value", [], [1], [1, None], [1, b"value"], [1, b"5", 9, b"v"], [1, 5, 9, None], [1.5, 5, 9, b"v"], [1, 5, 9]],
)
def test_what_is_no_value(reply: object) -> None:
    assert read(reply) is None
    assert best([reply]) is None


def test_a_value() -> None:
    assert read([1500, 7, 60_000, b"value"]) == Kept(1.5, 7, 60.0, b"value")
    assert [Kept(left, 7).fresh for left in (0.001, 0, -0.001)] == [True, False, False]


def test_a_note_that_a_value_was_dropped() -> None:
    assert read([0, 7]) == Kept(0.0, 7)
    assert best([[0, 7]]) is None


def test_what_a_node_tells_before_a_value_is_dropped() -> None:
    assert heard([7, 500]) == FillHeard(7, 500)
    for reply in (None, 7, [], [7], [7, None], [b"7", 500], [7, 500, 1]):
        assert heard(reply) is None


def test_for_whom_it_is_fresh() -> None:
    kept = Kept(50.0, 7, 60.0, b"value")  # ten seconds old
    assert kept.left_for(60.0) == kept.left_for(1000.0) == 50.0, "as long as whoever computed it has said, for all who take it so long"
    assert kept.left_for(15.0) == 5.0
    assert kept.left_for(4.0) == -6.0, "it is too old by so much"
    assert Kept(-1.0, 7, 60.0, b"").left_for(100.0) == -1.0


@given(st.lists(REPLIES))
def test_the_best_is_the_newest_and_of_these_the_one_that_is_fresh_for_longest(replies: list[object]) -> None:
    # Rule FI1.
    found = best(replies)
    known = [it for it in map(read, replies) if it is not None]
    highest = max((it.fence for it in known), default=0)
    newest = [it for it in known if it.fence == highest]
    if not newest or any(it.data is None for it in newest):
        assert found is None
    else:
        assert found in newest
        assert found.left == max(it.left for it in newest)


@given(st.lists(REPLIES, max_size=5))
def test_a_fresh_value_on_a_majority_settles_it_and_so_do_enough_without(replies: list[object]) -> None:
    found = best(replies)
    fresh = found is not None and found.fresh
    assert settled(replies, len(replies) >= 3, 3) is (len(replies) >= 3)
    assert settled(replies, len(replies) >= 3, 5) is (len(replies) >= 5 or (len(replies) >= 3 and fresh))


def test_too_few_settle_nothing() -> None:
    assert not settled([], False, 2)
    assert not settled([None], False, 2)
    assert not settled([[5, 7, 9, b"new"]], False, 2), "another node may know that it was dropped"
    assert settled([None, None], True, 2)
    assert settled([None, [1, 7, 9, b"new"]], True, 3)
    assert not settled([None, [-1, 7, 9, b"old"]], True, 3)
    assert not settled([[0, 8], [1, 7, 9, b"old"]], True, 3)
