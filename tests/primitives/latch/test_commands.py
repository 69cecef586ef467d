"""Latches and barriers: their keys, what is said of those who arrive, and what a node's answer means."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts.bench import spoken

from holdfast.errors import ConfigError
from holdfast.primitives.latch.commands import BARRIER, LATCH, MOST, Gathering, LatchAnswer, id_of
from holdfast.protocol.exclusive import key_of, keys_of
from holdfast.scripts import ARRIVE

NAMES = st.text(st.sampled_from("a{}:7latched"), min_size=1, max_size=9)


def latch(name: str = "n", count: int = 3, keep: float = 60.0, prefix: str = "") -> Gathering:
    return Gathering(LATCH, name, count, keep, prefix=prefix)


def test_what_is_said_at_a_latch() -> None:
    here = latch(prefix="app:", keep=60.0004)
    said = spoken(here.say(0, [b"a", b"\r\nb"], b"17", 2))
    assert said[:7] == [b"EVALSHA", ARRIVE.sha, b"4", b"{app:n}:latch", b"{app:n}:arrived", b"{app:n}:awaited", b"{app:n}:arrived"]
    assert said[7:] == [b"3", b"0", b"60000", b"0", b"17", b"2", b"", b"0", b"a\0\r\nb"]
    assert spoken(here.say(0, [], b"0", 0, over=True, token=b"t", ttl=1.5))[10:] == [b"1", b"0", b"0", b"t", b"1500", b""]
    assert (here.kind, here.name, here.count) == ("latch", "n", 3)


def test_what_is_said_at_a_barrier() -> None:
    here = Gathering(BARRIER, "{a}b", 2, 60.0)
    said = spoken(here.say(7, [b"x"], b"0", 0))
    assert said[3:7] == [b"{a}:barrier:{a}b", b"{a}:arrived7:{a}b", b"{a}:awaited7:{a}b", b"{a}:arrived6:{a}b"]
    assert said[7:9] == [b"2", b"7"]
    assert here.state == said[3]


def test_what_a_node_answers() -> None:
    read = latch().read
    assert read([0, b"17", 2, b"a\0b"]) == LatchAnswer(0, b"17", 2, b"a\0b")
    assert LatchAnswer(0, b"17", 2, b"a\0b").ids == [b"a", b"b"]
    assert LatchAnswer(1, b"17", 0).ids == []
    assert read(b"5") == "5"


@pytest.mark.parametrize(
    "reply", [None, 5, [], [1, b"1", 0], [1, b"1", 0, b"", 1], [b"1", b"1", 0, b""], [1, 1, 0, b""], [1, b"1", 0, None]]
)
def test_what_no_script_of_ours_says(reply: object) -> None:
    assert latch().read(reply) is None


def test_what_others_have_written_is_shown_on_one_short_line() -> None:
    told = latch().read(b"4\n\x1b[2J" * 10**6)
    assert isinstance(told, str) and told.startswith("4\\n\\x1b[2J4") and len(told) < 500


def test_a_disagreement_says_what_to_do() -> None:
    assert str(latch("x").disagreement(["5", "4", "5"])).startswith("latch 'x' waits for 4 or 5 for others, and for 3 here: all who use it")
    assert "the same `parties`" in str(Gathering(BARRIER, "x", 2, 60.0).disagreement(["3"]))


@given(*[st.tuples(st.sampled_from([LATCH, BARRIER]), NAMES, st.integers(0, 12))] * 2)
def test_no_two_share_a_key(one: tuple[str, str, int], other: tuple[str, str, int]) -> None:
    """Neither with each other, nor with a lock. (A barrier's generations have one key in common, and each the set of the one before.)"""

    def keys(kind: str, name: str, generation: int) -> tuple[bytes, set[bytes]]:
        state, arrived, awaited, _ = spoken(Gathering(kind, name, 2, 60.0).say(generation, [], b"0", 0))[3:7]
        return state, {arrived, awaited}

    try:
        (state, sets), (its_state, its_sets) = keys(*one), keys(*other)
        locks = {*keys_of(key_of(one[1])), *keys_of(key_of(other[1]))}
    except ConfigError:
        return  # no name of a lock's either
    same = one[:2] == other[:2]
    assert (state == its_state) is same
    assert bool(sets & its_sets) is (same and (one[2] == other[2] or one[0] == LATCH))
    assert not {state, its_state} & (sets | its_sets)
    assert not locks & {state, its_state, *sets, *its_sets}
    for key in {state, *sets}:
        if key.decode().count("{") == 1:
            with pytest.raises(ConfigError, match="cannot be a lock's name"):
                key_of(key.decode())


@pytest.mark.parametrize("count", [0, -1, MOST + 1, True, 2.0, "3", None])
def test_counts_that_cannot_be(count: Any) -> None:
    with pytest.raises(
        ConfigError, match="count is a whole number from 1 to 1000" if type(count) is int else "count is a whole number, not"
    ):
        latch(count=count)
    with pytest.raises(ConfigError, match="parties is a whole number"):
        Gathering(BARRIER, "n", count, 60.0)


@pytest.mark.parametrize("name", ["", 5, "x" * 513, "a}", "{n}:latch", "{n}:arrived7", "n[once]"])
def test_names_that_are_none(name: Any) -> None:
    with pytest.raises(ConfigError):
        latch(name)


def test_who_arrives() -> None:
    assert id_of("worker é 7") == "worker é 7".encode()
    assert id_of("x" * 512) == b"x" * 512
    for wrong, told in [
        ("", "an id is a text of 1 to 512 bytes without NUL, not ''"),
        ("a\0b", r"without NUL, not 'a"),
        ("x" * 513, "513 bytes"),
        (7, "an id is text, not 7"),
        (b"x", "is text"),
    ]:
        with pytest.raises(ConfigError, match=told):
            id_of(wrong)
    with pytest.raises(ConfigError, match="surrogate"):
        id_of("\ud800")


def test_a_look_says_nothing_and_keeps_nothing() -> None:
    said = spoken(latch("x").look(0))
    assert said[:4] == [b"EVALSHA", ARRIVE.sha, b"4", b"{x}:latch"]
    assert dict(zip(ARRIVE.arguments, said[7:], strict=True)) == {
        "count": b"3", "generation": b"0", "keep": b"0", "over": b"0", "birth": b"0", "known": b"0", "token": b"", "ttl": b"0", "ids": b"",
    }  # fmt: skip
