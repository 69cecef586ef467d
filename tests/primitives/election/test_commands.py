"""An election, as bytes, and what nodes' answers mean together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from scripts.bench import spoken

from holdfast.errors import ConfigError
from holdfast.primitives.election.commands import LAST, LONGEST_VALUE, ElectionHeard, ElectionLock, LeaderStatements, Word, heard, value_of
from holdfast.protocol import quorum
from holdfast.protocol.exclusive import Exclusive, key_of
from holdfast.protocol.quorum import Quorum
from holdfast.scripts import ANNOUNCE, WATCH

unhurried = effort(deadline=None)
OFFICE = ElectionLock("boss", "a:1", prefix="app:", ttl=10, horizon=16_000)
TOKEN = b"1700000000000000:0123456789abcdef0123456789abcdef:00000001"


# ------------------------------------------------ what is said


def test_it_is_a_lock_of_its_own() -> None:
    lock = Exclusive("boss", prefix="app:", ttl=10, horizon=16_000, own="election")
    assert (OFFICE.name, OFFICE.label, OFFICE.part) == (b"app:boss[election]", "boss", "boss[election]")
    assert OFFICE.request(TOKEN, 10, b"w", 7) == lock.request(TOKEN, 10, b"w", 7)
    assert OFFICE.release(TOKEN) == lock.release(TOKEN)
    assert OFFICE.statement is None


def test_what_is_announced_and_who_watches() -> None:
    keys = [b"2", b"{app:boss[election]}:leader", b"{app:boss[election]}:watchers"]
    said = spoken(OFFICE.announce(Word(17, 3, 9.9994, "é")))
    assert said == [b"EVALSHA", ANNOUNCE.sha, *keys, b"17", b"3", b"9999", b"32000", "é".encode()]
    assert spoken(OFFICE.watch(TOKEN, 2.5)) == [b"EVALSHA", WATCH.sha, *keys, TOKEN, b"2500"]
    tagged = ElectionLock("a{b}c", "", ttl=10, horizon=16_000)
    assert spoken(tagged.watch(b"", 0))[3:] == [b"{b}:leader:a{b}c[election]", b"{b}:watchers:a{b}c[election]", b"", b"0"]


@pytest.mark.parametrize("name", ["{app:boss[election]}:leader", "{app:boss[election]}:watchers", "boss[election]"])
def test_no_lock_has_the_name_of_its_keys(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a lock's name"):
        key_of(name)


def test_what_a_leader_says_has_versions() -> None:
    # Rule E3.
    speech = LeaderStatements(OFFICE)
    assert speech.word(7, 2.0) == Word(7, 1, 2.0, "a:1")
    speech.says("b")
    speech.says("c")
    assert [speech.word(7, 1.0) for _ in range(2)] == [Word(7, 3, 1.0, "c")] * 2
    assert speech.word(8, 1.0) == Word(8, 3, 1.0, "c"), "another term"
    assert speech.word(8, 0.0) == Word(8, LAST), "the last word, whatever was said, and whatever will be"
    assert speech.statement(TOKEN, 7, 1.5) == OFFICE.announce(Word(7, 3, 1.5, "c"))
    assert speech.statement(TOKEN, 7, 0.0) == OFFICE.announce(Word(7, LAST))
    assert len(speech._said) == 1, "what nobody will say again is forgotten"


def test_who_leads_says_something_along_and_others_do_not() -> None:
    # Rule E1.
    speech = LeaderStatements(OFFICE)
    mine = OFFICE.with_statement(speech.statement)
    assert OFFICE.statement is None
    assert mine.statement is not None
    assert mine.statement(TOKEN, 7, 1.0) == OFFICE.announce(Word(7, 1, 1.0, "a:1"))
    assert mine.request(TOKEN, 10, b"w", 7) == OFFICE.request(TOKEN, 10, b"w", 7)


def test_what_can_be_said() -> None:
    for value in ("", "x" * LONGEST_VALUE, "a b\n\0{}"):
        assert value_of(value) == value
    with pytest.raises(ConfigError, match="what a leader says has 65537 bytes"):
        value_of("x" * (LONGEST_VALUE + 1))
    with pytest.raises(ConfigError, match="what a leader says is text, not b'x'"):
        ElectionLock("boss", b"x", ttl=10, horizon=16_000)  # type: ignore[arg-type]  # (the mistake)


# ------------------------------------------------ what answers mean


def answer(term: int, version: int = 1, left: int = 500, value: str = "v") -> list[Any]:
    return [term, version, left, value.encode()]


NONE = [0, 0, 0, b""]


def of(nodes: int) -> Quorum:
    """A majority of these."""
    return Quorum(range(nodes))


def test_the_highest_counts() -> None:
    found = heard({0: answer(5, 2), 1: answer(7), 2: answer(7, left=900)}, of(3))
    assert found == ElectionHeard(Word(7, 1, 0.9, "v"), frozenset({1, 2}), True, True)
    found = heard({0: answer(7, 1, 9000), 1: answer(7, 2, 0), 2: NONE}, of(3))
    assert found == ElectionHeard(Word(7, 2, 0.0, "v"), frozenset({1}), True, True)


def test_nobody_has_said_anything() -> None:
    assert heard({0: NONE, 1: NONE}, of(3)) == ElectionHeard(Word(0, 0), frozenset({0, 1}), True, True)
    assert heard({}, of(3)) == ElectionHeard(Word(0, 0), frozenset(), False, False)


def test_a_resignation_is_the_highest_that_a_node_can_count_to() -> None:
    assert LAST == 2**53 - 1
    assert heard({0: [7, LAST, 0, b""], 1: answer(7, LAST - 1)}, of(3)).word == Word(7, LAST)


def test_while_some_nodes_stay_a_majority_of_each_list_is_needed() -> None:
    # Rule SH5.
    both = Quorum([0, 1, 2], [1, 2, 3])
    assert heard({1: answer(7), 2: answer(7)}, both).clear
    assert not heard({0: answer(7), 1: answer(7)}, both).enough


def test_too_few_have_answered() -> None:
    assert heard({0: answer(7)}, of(3)) == ElectionHeard(Word(7, 1, 0.5, "v"), frozenset({0}), False, False)
    assert not heard({0: answer(7), 1: answer(7)}, of(4)).enough
    assert heard({0: answer(7), 1: answer(7), 3: answer(7)}, of(4)).clear


def test_its_time_is_over_when_a_majority_says_so() -> None:
    """Where they differ the others are waited for; and a single node whose clock is wrong is outvoted."""
    # Rule E5.
    wrong, over = answer(7, left=10**9), answer(7, left=0)
    found = heard({0: wrong, 1: over}, of(3))
    assert (found.word.left, found.enough, found.clear) == (1e6, True, False)
    assert heard({0: wrong, 1: over, 2: over}, of(3)) == ElectionHeard(Word(7, 1, 0.0, "v"), frozenset({0, 1, 2}), True, True)
    found = heard({0: wrong, 1: wrong, 2: over}, of(3))
    assert (found.word.left, found.clear) == (1e6, False)
    assert heard({0: over, 1: answer(5), 2: NONE}, of(3)).clear, "of those that have the highest, all say the same"


@pytest.mark.parametrize(
    "reply",
    [None, [7, 1, 500], [7, 1, 500, "v"], [7, 1, 500, None], [7, 1, -1, b""], [2**53, 1, 1, b""], [True, 1, 1, b""], [b"7", 1, 1, b""]],
)
def test_what_no_script_of_ours_says_does_not_count(reply: Any) -> None:
    assert heard({0: reply, 1: answer(7)}, of(3)) == heard({1: answer(7)}, of(3))
    assert heard({0: reply}, of(1)) == heard({}, of(1))


def test_a_value_that_is_no_text_is_shown_as_far_as_it_is() -> None:
    assert heard({0: [7, 1, 500, b"\xff"]}, of(1)).word.value == "\ufffd"


@unhurried
@given(st.integers(1, 7), st.data())
def test_whatever_a_majority_has_is_heard_by_every_majority(nodes: int, data: st.DataObject) -> None:
    """R2: a word that is on a majority is not missed, whoever answers and whatever the others say that is earlier."""
    # Rule R2.
    needed = quorum.majority(nodes)
    everybody = st.permutations(range(nodes))
    having, asked = set(data.draw(everybody)[:needed]), data.draw(everybody)[:needed]
    earlier = st.one_of(st.just(NONE), st.builds(answer, st.integers(1, 6), st.integers(1, 9), st.integers(0, 999)))
    answers = {node: answer(7, 3) if node in having else data.draw(earlier) for node in asked}
    found = heard(answers, of(nodes))
    assert found.enough
    assert found.word == Word(7, 3, 0.5, "v")
    assert found.by == having & set(asked)
