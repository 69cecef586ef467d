"""The slots of a semaphore: their names, which of them a ticket asks for first, and what nodes say of permits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recipes.test_looking import words

from holdfast.errors import ConfigError
from holdfast.recipes.exclusive import Exclusive, key_of, keys_of
from holdfast.recipes.semaphore import MOST, Slots
from holdfast.scripts import PERMITS

K = 16_000


def pool(permits: int = 5, count: int = 1, name: str = "pool", prefix: str = "") -> Slots:
    return Slots(name, permits, count, 10.0, prefix=prefix, horizon=K)


def test_a_slot_is_a_lock_that_no_other_lock_can_be() -> None:
    slot = pool(prefix="app:")[3]
    assert (slot.label, slot.part, slot.slot, slot.name) == ("pool", "pool[slot 3]", 3, b"app:pool[slot 3]")
    assert slot.request(b"t", 10.0, b"w", 5) == Exclusive("pool", prefix="app:", ttl=10.0, horizon=K, slot=3).request(b"t", 10.0, b"w", 5)
    assert words(slot.release(b"t"))[3:7] == list(keys_of(b"app:pool[slot 3]"))
    with pytest.raises(ConfigError, match="looks like a slot of a semaphore"):
        key_of("pool[slot 3]")
    assert key_of("pool[slot 3]", parts=True) == b"pool[slot 3]"
    assert key_of("pool[slot x]") == b"pool[slot x]"
    with pytest.raises(ConfigError, match="keep their queues"):
        key_of("{pool}:permits")


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
    assert sorted(it.slot for it in [*first, *others]) == list(range(permits))  # type: ignore[type-var]


def test_those_who_come_together_begin_elsewhere() -> None:
    assert {pool(7).first(ticket)[0].slot for ticket in range(1000, 1007)} == set(range(7))


@pytest.mark.parametrize("permits", [0, -1, MOST + 1, True, 2.0, "3", None])
def test_permits_that_cannot_be(permits: int) -> None:
    with pytest.raises(ConfigError, match="permits is a whole number"):
        pool(permits)
    with pytest.raises(ConfigError, match="count is a whole number"):
        pool(5, permits)


def test_more_than_there_are() -> None:
    with pytest.raises(ConfigError, match="6 permits at once can never be had of 'pool', which has 5"):
        pool(5, 6)
    with pytest.raises(ConfigError, match="needs a name"):
        pool(name="")


def test_what_is_said_of_permits() -> None:
    said = pool(prefix="app:").agrees(30.0)
    assert words(said) == [b"EVALSHA", PERMITS.sha, b"1", b"{app:pool}:permits", b"5", b"30000"]
    assert words(pool(name="{a}b").agrees(0.05))[3:] == [b"{a}:permits:{a}b", b"5", b"50"]


@pytest.mark.parametrize(
    "answers, agreed",
    [
        ({}, None),
        ({0: b"5", 1: b"5"}, None),
        ({0: b"5", 1: b"5", 4: b"5"}, True),
        ({0: b"5", 1: b"5", 2: b"4", 3: b"4", 4: b"5"}, True),
        ({2: b"4", 3: b"4"}, None),
        ({1: b"4", 2: b"4", 3: b"4"}, False),
        ({1: b"4", 2: b"3", 3: 7}, False),
    ],
)
def test_a_majority_has_to_say_the_same(answers: dict[int, object], agreed: bool | None) -> None:
    assert pool().agreed(answers, 5) is agreed


def test_no_two_numbers_of_permits_have_a_majority() -> None:
    answers = {0: b"5", 1: b"5", 2: b"4", 3: b"4"}
    assert pool(5).agreed(answers, 4) is pool(4).agreed(answers, 4) is False


def test_a_disagreement_says_who_says_what_and_what_to_do() -> None:
    told = str(pool().disagreement({0: b"5", 1: b"4", 2: b"3", 3: 7, 4: b"4"}))
    assert told.startswith("semaphore 'pool' has 3 or 4 or 7 permits for others, and 5 here")
    assert "wait for max_ttl" in told
    forged = str(pool().disagreement({0: b"5", 1: b"4\n\x1b[2J" * 10**6}))
    assert "has 4\\n\\x1b[2J4\\n" in forged and forged.isprintable() and len(forged) < 700
