"""Notes, as bytes, and what a node's copy means."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from scripts.bench import spoken

from holdfast.errors import ConfigError
from holdfast.protocol import note
from holdfast.protocol.command import READER, WRITER
from holdfast.protocol.exclusive import Exclusive
from holdfast.protocol.note import LAST, Note, Word
from holdfast.protocol.readwrite import ReadWrite
from holdfast.protocol.semaphore import Slots
from holdfast.scripts import ANNOUNCE

unhurried = effort(deadline=None)
TOKEN = b"1700000000000000:0123456789abcdef0123456789abcdef:00000001"
OTHER = b"1700000000000000:0123456789abcdef0123456789abcdef:00000002"
LOCK = Exclusive("x", prefix="app:", ttl=10, horizon=16_000)


def kept(data: bytes) -> bytes:
    """What a node keeps of an announcement."""
    term, version, left, _, value = spoken(data)[5:]
    return b"%b %b %b %b" % (term, version, left, value)


def test_what_a_holder_says_begins_with_its_token() -> None:
    # Rule NO1.
    said = spoken(Note(b"app:x", 16_000, "build 4711").statement(TOKEN, 17, 9.9994))
    keys = [b"2", b"{app:x}:note", b"{app:x}:watchers"]
    assert said == [b"EVALSHA", ANNOUNCE.sha, *keys, b"17", b"1", b"9999", b"32000", TOKEN + b" build 4711"]


def test_the_last_word_comes_after_every_other_and_is_forgotten_at_once() -> None:
    # Rule NO2.
    assert spoken(Note(b"a{b}c", 16_000, "é").statement(TOKEN, 17, 0.0))[3:] == [
        b"{b}:note:a{b}c", b"{b}:watchers:a{b}c", b"17", b"%d" % LAST, b"0", b"1", b""
    ]  # fmt: skip


@unhurried
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
def test_whatever_is_said_is_read_again(text: str) -> None:
    data = kept(Note(b"x", 16_000, text).statement(TOKEN, 17, 5.0))
    assert note.read(data, TOKEN) == text
    assert note.read(data, OTHER) is None
    assert note.read(data, None) is None


@pytest.mark.parametrize("value", [None, 7, b"", b"17 1 5", b"17 1 5 ", b"x 1 5 %b text" % TOKEN, TOKEN, b"17 9 5 %b" % TOKEN])
def test_what_is_no_note_says_nothing(value: object) -> None:
    assert note.read(value, TOKEN) is None
    assert note.read(kept(Note(b"x", 16_000, "text").statement(TOKEN, 17, 0.0)), TOKEN) is None, "nor does the last word"


def test_what_can_be_said() -> None:
    for text in ("", "x" * 1024, "é" * 512, "a b\n\0{}"):
        assert note.text_of(text) == text
    assert note.text_of(None) == ""
    with pytest.raises(ConfigError, match=r"1025 bytes .*1024"):
        note.text_of("x" * 1025)
    with pytest.raises(ConfigError, match="a note is text, not b'x'"):
        note.text_of(b"x")


def test_a_lock_without_a_note_says_nothing() -> None:
    slots = Slots("pool", 3, 1, 10.0, horizon=16_000)
    writer = ReadWrite("x", WRITER, horizon=16_000)
    assert [it.statement for it in (LOCK, writer, *slots)] == [None] * 5


def test_each_of_several_names_and_each_slot_has_its_own() -> None:
    other = Exclusive("y", ttl=10, horizon=16_000)
    said = note.with_note((LOCK, other, ReadWrite("z", WRITER, horizon=16_000)), "me")
    keys = []
    for recipe in said:
        assert recipe.statement is not None
        keys.append(spoken(recipe.statement(TOKEN, 17, 5.0))[3])
    assert keys == [b"{app:x}:note", b"{y}:note", b"{z}:note"]
    assert LOCK.statement is None, "what is described stays as it was"
    slots = Slots("pool", 3, 1, 10.0, horizon=16_000)
    plain = slots[0]
    noted = note.with_note(slots, "me")
    assert isinstance(noted, Slots) and noted.permits == 3
    for number, slot in enumerate(noted):
        assert slot.statement is not None
        assert spoken(slot.statement(TOKEN, 17, 5.0))[3] == b"{pool[slot %d]}:note" % number
    assert slots[0] is plain and plain.statement is None
    assert noted[1].request(TOKEN, 10, b"w", 7) == slots[1].request(TOKEN, 10, b"w", 7), "the lock is the same"


def test_readers_have_none() -> None:
    with pytest.raises(ConfigError, match=r"'x' .*`write"):
        note.with_note((ReadWrite("x", READER, horizon=16_000),), "me")


def test_a_later_word_has_a_higher_rank() -> None:
    said = [Word(1, 1), Word(1, 2), Word(1, LAST), Word(2, 1)]
    assert all(earlier.rank < later.rank for earlier, later in pairwise(said))
