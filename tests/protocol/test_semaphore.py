"""The slots of a semaphore: their names, which of them a ticket asks for first, and what is noted of their number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts.bench import spoken

from holdfast.errors import ConfigError
from holdfast.protocol.command import Statement
from holdfast.protocol.exclusive import Exclusive, key_of, keys_of
from holdfast.protocol.semaphore import MOST, Slots

K = 16_000


def pool(permits: int = 5, count: int = 1, name: str = "pool", prefix: str = "") -> Slots:
    return Slots(name, permits, count, 10.0, prefix=prefix, horizon=K)


def test_a_slot_is_a_lock_that_no_other_lock_can_be() -> None:
    slot = pool(prefix="app:")[3]
    assert (slot.label, slot.part, slot.slot, slot.name) == ("pool", "pool[slot 3]", 3, b"app:pool[slot 3]")
    assert slot.request(b"t", 10.0, b"w", 5) == Exclusive("pool", prefix="app:", ttl=10.0, horizon=K, slot=3).request(b"t", 10.0, b"w", 5)
    assert spoken(slot.release(b"t"))[3:7] == list(keys_of(b"app:pool[slot 3]"))
    assert key_of("pool[slot x]") == b"pool[slot x]"


def test_it_is_a_sequence_of_slots_which_are_made_once() -> None:
    slots = pool(4)
    assert len(slots) == 4 and [it.slot for it in slots] == [0, 1, 2, 3]
    assert slots[1] is slots[1] and slots[-1] is slots[3] and [it.slot for it in slots[1:3]] == [1, 2]
    with pytest.raises(IndexError):
        slots[4]


@given(st.integers(0, 2**53), st.integers(1, 40), st.integers(1, 40))
def test_first_and_others_are_all_slots_once(ticket: int, permits: int, count: int) -> None:
    slots = pool(permits, min(count, permits))
    first, others = slots.first(ticket), slots.others(ticket)
    assert len(first) == slots.needed
    assert sorted(it.slot for it in [*first, *others]) == list(range(permits))  # type: ignore[type-var]  # (slots are numbers here)


def test_those_who_come_together_begin_elsewhere() -> None:
    assert {pool(7).first(ticket)[0].slot for ticket in range(1000, 1007)} == set(range(7))


@pytest.mark.parametrize("permits", [0, -1, MOST + 1, True, 2.0, "3", None])
def test_permits_that_cannot_be(permits: int) -> None:
    with pytest.raises(ConfigError, match="permits is a whole number"):
        pool(permits)
    with pytest.raises(ConfigError, match="count is a whole number"):
        pool(5, permits)


def test_more_than_there_are() -> None:
    # Rule P7.
    with pytest.raises(ConfigError, match=r"6 permits .*'pool', which has 5"):
        pool(5, 6)
    with pytest.raises(ConfigError, match="needs a name"):
        pool(name="")


def test_what_is_noted_of_the_number() -> None:
    said = pool(prefix="app:").tells(30.0)
    assert spoken(said) == [b"SET", b"{app:pool}:permits", b"5", b"PX", b"30000", b"GET"]
    assert spoken(pool(name="{a}b").tells(0.05))[1:] == [b"{a}:permits:{a}b", b"5", b"PX", b"50", b"GET"]
    assert pool(prefix="app:").key == b"app:pool"


@pytest.mark.parametrize("before", [None, b"5", b"05", b"", b"x", b"4\n", b"-4", b"44444", 4, "4", Exception("NOPERM")])
def test_an_equal_number_or_what_is_none_is_no_difference(before: object) -> None:
    assert pool().differs(before) == ""


def test_another_number_is_warned_of() -> None:
    assert pool().differs(b"4") == (
        "another client names 4 permits for semaphore 'pool', and this one 5: while both are in use, up to 5 permits can be held. "
        "Unless you are changing the number just now, name the same one everywhere."
    )
    assert "up to 1000 permits can be held" in pool().differs(b"1000")


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**53))
def test_whoever_names_fewer_permits_uses_slots_of_whoever_names_more(few: int, more: int, ticket: int) -> None:
    """So together they hold no more than the larger number, whichever slots each has."""
    # Rule P8.
    few, more = sorted((few, more))
    small, large = pool(few), pool(more)
    theirs = {it.name for it in large}
    assert {it.name for it in [*small.first(ticket), *small.others(ticket)]} <= theirs
    assert len(theirs) == more


def test_the_holder_of_a_slot_may_have_something_to_say() -> None:
    slots = pool(3)
    plain = slots[0]

    def rider_of(key: bytes) -> Statement:
        return lambda token, fence, ttl: key

    other = slots.with_statements(rider_of)
    said = []
    for slot in other:
        assert slot.statement is not None
        said.append(slot.statement(b"t", 7, 1.0))
    assert said == [b"pool[slot 0]", b"pool[slot 1]", b"pool[slot 2]"]
    assert slots[0] is plain and plain.statement is None
    assert (other.permits, other.needed, other.horizon) == (3, 1, K)
