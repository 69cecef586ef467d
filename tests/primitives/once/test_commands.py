"""What is done once: its register as bytes, and what nodes' answers mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts.bench import spoken

from holdfast.primitives.once.commands import (
    FORGOTTEN,
    OnceCopy,
    OnceLook,
    Register,
    agreed,
    called,
    decided,
    highest,
    lacking,
    longest,
    newest,
    note,
    noted,
    parted,
    promised,
    reserved,
    seen,
    stored,
)
from holdfast.protocol import quorum
from holdfast.protocol.exclusive import Exclusive
from holdfast.protocol.quorum import Quorum
from holdfast.scripts import LOOK, STORE

K = 16_000
THREE, FOUR, FIVE = (Quorum(range(it)) for it in (3, 4, 5))
B = 1_800_000_000_000_000


def register(name: str = "order:7", prefix: str = "") -> Register:
    return Register(Exclusive(name, prefix=prefix, ttl=10.0, horizon=K, own="once").name, K)


def said(promise: int = 0, fence: int = 0, left: int = -2, text: bytes | None = None) -> list[Any]:
    return [promise, fence, left, text]


def kept(ballot: int, value: bytes = b"1", left: int = 1000, **other: int) -> list[Any]:
    return said(left=left, text=b"%016d %b" % (ballot, value), **other)


def test_what_is_asked() -> None:
    keys = [b"app:order:7[once]", b"{app:order:7[once]}:fence", b"{app:order:7[once]}:queue", b"{app:order:7[once]}:result"]
    mine = register(prefix="app:")
    assert spoken(mine.look()) == [b"EVALSHA", LOOK.sha, b"3", keys[0], keys[1], keys[3], b"0", b"16000", b""]
    assert spoken(mine.look(B, b"token"))[6:] == [b"%d" % B, b"16000", b"token"]
    assert spoken(mine.store(7, b"a b", 500)) == [b"EVALSHA", STORE.sha, b"4", *keys, b"0000000000000007", b"16000", b"500", b"a b"]


def test_where_a_result_is_kept() -> None:
    assert register(prefix="app:").key == b"{app:order:7[once]}:result"


@pytest.mark.parametrize(
    "ballots, lacks",
    [([], False), ([0], False), ([7, 7], False), ([7, 0, 7], True), ([7, 8], True), ([0, 0], False)],
)
def test_a_node_that_has_answered_without_the_newest_copy_lacks_it(ballots: list[int], lacks: bool) -> None:
    assert lacking({node: kept(it) if it else said() for node, it in enumerate(ballots)}) is lacks


def test_all_keys_lie_in_one_slot() -> None:
    assert spoken(register("{user}:mail").look())[3:6] == [
        b"{user}:mail[once]", b"{user}:fence:{user}:mail[once]", b"{user}:result:{user}:mail[once]"
    ]  # fmt: skip


def test_what_nodes_have_answered() -> None:
    answers = {0: said(), 1: kept(B, b"a b", 30), 2: said(1, B), 3: kept(B, left=0), 4: kept(B, left=-1)}
    brief = OnceLook(False, 0, OnceCopy(B, b"1", 1))
    told = [OnceLook(False, 0, None), OnceLook(False, 0, OnceCopy(B, b"a b", 30)), OnceLook(True, B, None), brief, brief]
    assert [*seen(answers).values()] == told


@pytest.mark.parametrize("reply", [None, 1, b"x", [], [1, 2, 3], [1, 2, 3, 4], [True, 1, 1, None], [1, None, 1, None], [1, 1, "1", None]])
def test_what_no_script_of_ours_says(reply: object) -> None:
    assert seen({0: reply}) == {}


@pytest.mark.parametrize("text", [b"", b"x", b"1 x", b"%015dx y" % 0, b"%016d" % 1, b"%016d_x" % 1, b"%016d x" % 0])
def test_what_somebody_else_has_written_there_is_nothing(text: bytes) -> None:
    assert seen({0: said(text=text, left=10)}) == {0: OnceLook(False, 0, None)}


@pytest.mark.parametrize(
    "ballots, one, known",
    [
        ([], None, False),
        ([0, 0], None, False),
        ([0, 0, 0], None, True),
        ([7, 0, 0], None, False),
        ([7, 7, 0], None, False),
        ([7, 7, 7], 7, True),
        ([7, 8, 7, 7], 7, True),
        ([7, 8, 9], None, False),
        ([7, 8, 9, 0], None, True),
        ([7, 8, 7, 8, 0], None, True),
    ],
)
def test_a_result_is_what_a_majority_has_with_one_ballot(ballots: list[int], one: int | None, known: bool) -> None:
    # Rule O1.
    answers = {node: kept(it) if it else said() for node, it in enumerate(ballots)}
    found = agreed(answers, FIVE)
    assert (None if found is None else found.ballot) == one
    assert decided(answers, FIVE) is known


def test_fewer_than_a_majority_decide_nothing() -> None:
    assert not decided({0: said(), 1: said()}, FOUR), "of the other two nobody has told anything"
    assert decided({0: said(), 1: said(), 2: said()}, FOUR)


@given(st.lists(st.integers(0, 3), min_size=5, max_size=5), st.integers(0, 5))
def test_what_is_decided_stays_so(ballots: list[int], first: int) -> None:
    every = {node: kept(it) if it else said() for node, it in enumerate(ballots)}
    some = dict(list(every.items())[:first])
    if decided(some, FIVE):
        assert (agreed(some, FIVE) is None) is (agreed(every, FIVE) is None)
    assert decided(every, FIVE)


def test_a_note_stands_for_a_result_that_cannot_be_kept() -> None:
    assert noted(note("it is a s\u00e9t")) == "it is a s\u00e9t"
    assert noted(note("")) == ""
    assert noted(note("cut").replace(b"cut", b"\xff")) == "\ufffd"
    for result in (b"", b"null", b"1", b'"\\u0000holdfast"', b"\x80\x05N.", note("")[:-1]):
        assert noted(result) is None
    answers = {it: kept(B, note("why")) for it in range(3)}
    found = agreed(answers, THREE)
    assert found is not None
    assert noted(found.value) == "why", "it is kept like any result"


def test_d21_a_digest_of_its_call_may_precede_a_result() -> None:
    for result in (b"", b"1", b"a\0b", FORGOTTEN):
        assert parted(called(result, b"0f")) == (b"0f", result)
        assert called(result, b"") == result, "as earlier clients keep it"
        assert parted(result) == (b"", result)
        assert noted(called(result, b"0f")) is None
    assert reserved(called(b"1", b"0f"))


def test_of_a_result_that_is_agreed_on_the_longest_life_counts() -> None:
    found = agreed({0: kept(B, b"v", 10), 1: kept(B, b"v", 30), 2: kept(B, b"v", 20)}, THREE)
    assert found == OnceCopy(B, b"v", 30)


def test_the_newest_copy() -> None:
    # Rule O3.
    assert newest({}) is None
    assert newest({0: said()}) is None
    assert newest({0: kept(7, b"a"), 1: kept(9, b"b", 5), 2: kept(8, b"c"), 3: kept(9, b"b", 6), 4: said()}) == OnceCopy(9, b"b", 6)


def test_a_majority_has_to_promise() -> None:
    # Rule O3.
    answers = {0: said(1, 5), 1: kept(3, promise=0, fence=9), 2: [1]}
    assert not promised(answers, THREE)
    assert promised({**answers, 2: kept(3, promise=1, fence=5)}, THREE)
    assert not promised({**answers, 2: kept(3, promise=1, fence=5)}, FOUR)


@given(st.lists(st.sampled_from([7, 8]), max_size=5))
def test_stored_on_a_majority_or_not_or_nobody_knows(replies: list[int]) -> None:
    # Rule R1.
    told = stored(dict(enumerate(replies)), 7, FIVE)
    yes, open_ = replies.count(7), 5 - len(replies)
    assert told is (True if yes >= quorum.majority(5) else False if yes + open_ < quorum.majority(5) else None)


def test_the_highest_fence_that_was_heard_of() -> None:
    assert highest({}) == 0
    assert highest({0: 5, 1: 9, 2: 7}) == 9
    assert highest({0: 5, 1: 2**53 - 3, 2: True}) == 5, "a damaged record is not gone by"
    assert highest({0: said(1, 12), 1: kept(3, promise=0, fence=15), 2: [1]}) == 15


def test_a_note_stands_for_a_result_that_was_forgotten() -> None:
    # Rule O10.
    assert OnceCopy(B, FORGOTTEN, 1).void
    assert not OnceCopy(B, b"1", 1).void
    assert not OnceCopy(B, note("why"), 1).void
    assert noted(FORGOTTEN) is None


def test_no_result_may_begin_like_a_note() -> None:
    assert reserved(FORGOTTEN)
    assert reserved(FORGOTTEN + b"1")
    assert reserved(note("why"))
    assert not reserved(b"1")
    assert not reserved(b"\0")


def test_of_two_lists_each_has_to_agree_to_promise_and_to_store_under_one_ballot() -> None:
    # Rule O14.
    both = Quorum(range(3), range(3, 6))
    one, other = {it: kept(B, promise=1) for it in range(6)}, {it: kept(B + 1) for it in range(3, 6)}
    for missing in (0, 1, 3, 4):
        most = {it: copy for it, copy in one.items() if it not in (0, 3, missing)}
        assert [agreed(most, both) is not None, decided(most, both), promised(most, both)] == [missing in (0, 3)] * 3
    assert (agreed({**one, **other}, both), decided({**one, **other}, both)) == (None, True)
    assert [stored(dict.fromkeys(it, B), B, both) for it in ((0, 1), (0, 1, 4), (0, 1, 4, 5))] == [None, None, True]
    assert stored({0: B, 1: B, 3: 9, 4: 9}, B, both) is False


def test_how_long_any_copy_lasts() -> None:
    assert longest({}) == longest({0: said(), 1: None}) == 0
    assert longest({0: kept(B, left=500), 1: kept(B - 5, left=900), 2: said()}) == 900
