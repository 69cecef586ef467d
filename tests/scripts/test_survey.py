"""The scripts that look at many locks, on simulated servers and on real ones."""

from __future__ import annotations

from contextlib import closing

import pytest
from scripts.bench import SLACK, Bench, real

from holdfast.operations.inspection import commands as inspection
from holdfast.operations.survey import commands as survey
from holdfast.operations.survey.commands import SurveyAnswer
from holdfast.protocol import note
from holdfast.protocol.exclusive import beside
from holdfast.protocol.quorum import Quorum

LONG = 30_000  # ms
ONE, TWO, THREE = (b"%016d:%032x:%08x" % (17 * 10**14 + it, it, it) for it in (1, 2, 3))
NOTE = b"5 1 9000 %b build 4711 \n\0\xff" % ONE
ODD = (b"a\0b", b"{tag}", b"a{tag}b", b"{", b"a{}b{c}", b"\xff", b"7:x", b"spaces and\r\nlines")


class Node:
    """One server, and what it is asked with the bytes of the recipes."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def lock(self, key: bytes, value: bytes, ms: int = LONG, fence: int = 0, noted: bytes = b"") -> None:
        self.bench.operator.say("SET", key, value, "PX", ms)
        if fence:
            self.bench.operator.say("SET", beside(key, b"fence"), fence, "PX", LONG)
        if noted:
            self.bench.operator.say("SET", note.key_of(key), noted, "PX", LONG)

    def queue(self, key: bytes, kind: bytes, *tokens: bytes) -> None:
        for token in tokens:
            self.bench.operator.say("ZADD", beside(key, kind), int(token[:16]), token)
            self.bench.operator.say("PEXPIRE", beside(key, kind), LONG)

    def survey(self, *keys: bytes) -> list[SurveyAnswer]:
        found = survey.told(self.bench.told(survey.look(keys)), len(keys))
        assert found is not None
        return found

    def names(self, pattern: str = "*") -> tuple[int, set[bytes]]:
        """How many keys were looked at, and those of locks."""
        cursor, looked, found = b"0", 0, set[bytes]()
        while True:
            cursor, more, keys = inspection.found(self.bench.told(inspection.names("", pattern, cursor, survey.STEP)))
            looked += more
            found.update(keys)
            if cursor == b"0":
                return looked, found


@pytest.fixture
def node(bench: Bench) -> Node:
    return Node(bench)


def test_a_lock_and_who_waits(node: Node) -> None:
    node.lock(b"a", ONE, fence=5, noted=NOTE)
    node.queue(b"a", b"queue", THREE, TWO)
    node.lock(b"w", ONE + b":w", ms=LONG // 2)
    node.queue(b"w", b"rwqueue", THREE + b":r")
    one, none, other = node.survey(b"a", b"nothing", b"w")
    assert (one.value, one.fence, one.waiting, one.first, one.note) == (ONE, 5, 2, TWO, NOTE)
    assert LONG - SLACK < one.left <= LONG
    assert none == SurveyAnswer(None, -2, 0, 0, None, None)
    assert (other.value, other.waiting, other.first, other.note) == (ONE + b":w", 1, THREE + b":r", None)
    assert LONG // 2 - SLACK < other.left <= LONG // 2


def test_whatever_the_names_are(node: Node) -> None:
    for number, key in enumerate(ODD, 1):
        node.lock(key, ONE, fence=number, noted=b"5 1 9 %b %d" % (ONE, number))
        node.queue(key, b"queue", TWO)
    found = node.survey(*ODD)
    assert [(it.value, it.fence, it.waiting) for it in found] == [(ONE, number, 1) for number in range(1, len(ODD) + 1)]
    assert [note.read(it.note, ONE) for it in found] == [str(number) for number in range(1, len(ODD) + 1)]
    assert node.survey() == []


def test_keys_of_other_types(node: Node) -> None:
    say = node.bench.operator.say
    for key in (b"h", beside(b"x", b"queue"), beside(b"x", b"fence"), beside(b"x", b"note")):
        say("HSET", key, "a", "b")
        say("PEXPIRE", key, LONG)
    node.lock(b"x", ONE)
    odd, one = node.survey(b"h", b"x")
    assert odd.value is None
    assert (one.value, one.fence, one.waiting, one.first, one.note) == (ONE, 0, 0, None, None)
    assert node.names()[1] == {b"x"}


def test_long_values_are_cut(node: Node) -> None:
    node.lock(b"x", b"v" * 10**6, noted=b"n" * 10**6)
    (one,) = node.survey(b"x")
    assert (one.value, one.note) == (b"v" * 256, b"n" * 2048)
    answer = node.bench.told(inspection.inspect(b"x"))
    assert (answer[0], answer[5]) == (b"v" * 256, b"n" * 2048)


def test_names_of_locks_and_how_many_keys_were_looked_at(node: Node) -> None:
    node.lock(b"a", ONE, fence=5, noted=NOTE)
    node.lock(b"b", b"shared")
    node.lock(b"c:w", ONE + b":w")
    node.lock(b"d", b"no token")
    assert node.names() == (6, {b"a", b"b", b"c:w"})
    assert node.names("c*") == (6, {b"c:w"})


def test_an_inspection_has_the_note(node: Node) -> None:
    node.lock(b"a", ONE, fence=5, noted=NOTE)
    node.queue(b"a", b"queue", TWO)
    status = inspection.status("a", ["n"], {0: node.bench.told(inspection.inspect(b"a"))}, {}, {}, Quorum([0]))
    assert (status.note, status.holder, len(status.queue)) == ("build 4711 \n\0\ufffd", ONE.decode(), 1)
    node.lock(b"b", b"shared", fence=5)
    node.bench.operator.say("ZADD", beside(b"b", b"readers"), 9 * 10**15, ONE + b":r")
    node.bench.operator.say("PEXPIRE", beside(b"b", b"readers"), LONG)
    status = inspection.status("b", ["n"], {0: node.bench.told(inspection.inspect(b"b"))}, {}, {}, Quorum([0]))
    assert ([it.token for it in status.readers], status.note) == ([(ONE + b":r").decode()], None)


def test_steps_find_every_lock(real_url: str) -> None:
    """A real server takes steps; a simulated one answers in one go."""
    with closing(real(real_url)) as bench:
        node = Node(bench)
        for number in range(900):
            node.lock(b"lock:%d" % number, ONE)
        looked, found = node.names()
        assert found == {b"lock:%d" % number for number in range(900)}
        assert looked >= 900
        first = node.bench.told(inspection.names("", "*", b"0", survey.STEP))
        assert 1 <= first[1] < 600, "a step is a small part of it"
