"""What operators ask, in bytes, and what nodes' answers mean together: without a node."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest

from holdfast.recipes import looking
from holdfast.recipes.looking import LockStatus, NodeView
from holdfast.scripts import FORCE_RELEASE, INSPECT, NAMES

TOKEN = b"1700000000000001:" + b"a" * 32 + b":00000001"
LATER = b"1700000000000002:" + b"b" * 32 + b":00000002"
LABELS = [f"redis://node{it}" for it in range(5)]
OWNERS = {b"a" * 8: "one@host", b"b" * 8: "two"}


def words(data: bytes) -> list[bytes]:
    reader = hiredis.Reader()
    reader.feed(data)
    return reader.gets()


def told(holder: bytes | None, left: int = 5000, fence: bytes | None = b"1700000000000001", *queue: Any) -> list[object]:
    return [holder, left, fence, len(queue) // 2, *queue]


def status(replies: dict[int, object], causes: dict[int, Exception] | None = None) -> LockStatus:
    return looking.status("x", LABELS, replies, causes or {}, OWNERS)


# ------------------------------------------------ what is asked


def test_the_commands() -> None:
    assert words(looking.inspect(b"x")) == [b"EVAL", INSPECT.source, b"4", b"x", b"{x}:fence", b"{x}:queue", b"{x}:waiters", b"100"]
    assert words(looking.holder(b"x")) == [b"GET", b"x"]
    asked = words(looking.force_release(b"a{t}", 16000, "me"))
    assert asked[:3] == [b"EVAL", FORCE_RELEASE.source, b"4"]
    assert asked[3:] == [b"a{t}", b"{t}:fence:a{t}", b"{t}:queue:a{t}", b"{t}:waiters:a{t}", b"16000", b"me"]
    assert words(looking.names("", "*", b"0")) == [b"EVAL", NAMES.source, b"0", b"0", b"*", b"1000"]


@pytest.mark.parametrize(
    "prefix, pattern",
    [("app:", b"app:a*"), ("a*?", rb"a\*\?a*"), ("[x]", rb"\[x\]a*"), ("\\", rb"\\a*"), ("ä", "äa*".encode())],
)
def test_a_prefix_is_no_pattern(prefix: str, pattern: bytes) -> None:
    assert words(looking.names(prefix, "a*", b"17"))[3:5] == [b"17", pattern]


# ------------------------------------------------ what is answered


def test_a_step_of_looking_for_names() -> None:
    assert looking.found([b"17", b"a", b"b"]) == (b"17", [b"a", b"b"])
    assert looking.found([b"0"]) == (b"0", [])
    assert looking.found([]) == looking.found(7) == looking.found([5]) == (b"0", []), "what is no answer ends the search"


def test_owners_by_their_connections() -> None:
    line = "id=7 addr=10.0.0.1:5 name=holdfast:one@host:aaaaaaaa db=0 sub=1\n"
    other = b"id=8 addr=10.0.0.1:6 name=holdfast:w:x:y:bbbbbbbb\nid=9 name=redis-py:cccccccc\nid=10 name=holdfast:bad:zzzzzzzz db=0\n"
    assert looking.owners([line, other, 5]) == {b"aaaaaaaa": "one@host", b"bbbbbbbb": "w:x:y"}


@pytest.mark.parametrize(
    "values, certain, value",
    [
        ({}, False, None),
        ({0: b"a", 1: b"a"}, False, None),
        ({0: b"a", 1: b"a", 2: b"a"}, True, b"a"),
        ({0: b"a", 1: b"a", 2: None}, False, None),
        ({0: b"a", 1: b"b", 2: None}, False, None),
        ({0: b"a", 1: b"b", 2: None, 3: None}, True, None),
        ({0: None, 1: None, 2: None}, True, None),
        ({0: b"a", 1: b"a", 2: b"b", 3: b"b", 4: b"c"}, True, None),
    ],
)
def test_what_a_majority_has(values: dict[int, object], certain: bool, value: bytes | None) -> None:
    assert looking.on_majority(values, 5) == (certain, value)


def test_held_by_a_majority() -> None:
    replies: dict[int, object] = {
        0: told(TOKEN, 9000, b"1700000000000001", LATER, 4000),
        1: told(TOKEN, 7000, b"1700000000000001", LATER, 3000),
        2: told(TOKEN, 5000, b"1700000000000001"),
        3: told(LATER, 9000, b"1700000000000009"),
    }
    found = status(replies, {4: OSError("refused")})
    assert (found.state, found.holder, found.owner, found.fence) == ("held", TOKEN.decode(), "one@host", 1700000000000001)
    assert found.ttl_left == 5.0, "the third of them is the first that a majority lacks"
    (waiter,) = found.queue
    assert (waiter.token, waiter.owner, waiter.left, waiter.nodes) == (LATER.decode(), "two", 4.0, 2)
    assert found.nodes[0] == NodeView(node=LABELS[0], holder=TOKEN.decode(), ttl_left=9.0, fence=1700000000000001, waiting=1)
    assert str(found.nodes[4].error) == "refused"
    assert str(found).splitlines()[:2] == [
        f"'x' is held by one@host ({TOKEN.decode()}), 5.0 s left unless renewed, fence 1700000000000001",
        f"  1. waits: two ({LATER.decode()}) on 2 nodes",
    ]
    assert str(found).splitlines()[-1] == "  redis://node4: no answer: refused"


def test_free_and_split() -> None:
    free = status(dict.fromkeys(range(3), told(None, -2, None)))
    assert (free.state, free.holder, free.ttl_left, free.fence) == ("free", None, None, None)
    assert str(free).splitlines()[0] == "'x' is free"
    assert [it.error is None for it in free.nodes] == [True, True, True, False, False]
    split = status({0: told(TOKEN), 1: told(LATER), 2: told(None, -2, b"1700000000000007")})
    assert (split.state, split.holder, split.fence) == ("split", None, 1700000000000007)


def test_a_foreign_holder_that_never_expires() -> None:
    found = status(dict.fromkeys(range(5), told(b"al\xffien", -1, None)))
    assert (found.state, found.holder, found.owner, found.ttl_left) == ("held", "al\\xffien", None, None)
    assert str(found).splitlines()[0] == "'x' is held by somebody (al\\xffien)"


@pytest.mark.parametrize("reply", [None, 5, [], [b"x"], [5, 5, None, 0], [TOKEN, b"5", None, 0]])
def test_what_is_no_answer(reply: object) -> None:
    found = status({0: reply})
    assert isinstance(found.nodes[0].error, TypeError)
    assert found.state == "split"


def test_what_is_no_token_is_not_in_the_queue() -> None:
    found = status({0: told(TOKEN, 5, b"no number", b"stray", 5, LATER, b"5", LATER, 7)})
    assert [it.left for it in found.queue] == [0.007]
    assert found.nodes[0].fence is None
