"""What operators ask of nodes, as bytes, and what all answers mean together: who holds, who waits, for how long, and what is certain."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from scripts.bench import spoken

import holdfast.scripts
from holdfast.operations.inspection import commands as inspection
from holdfast.operations.inspection.commands import LockStatus, NodeView, PermitHolder, Reader, Waiter
from holdfast.protocol.exclusive import keys_of
from holdfast.protocol.quorum import Quorum
from holdfast.protocol.readwrite import rw_keys_of
from holdfast.scripts import PERMITS

patient = effort(deadline=None)  # a machine that is busy is no failure

LABELS = ("redis://n0:1", "redis://n1:1", "redis://n2:1")
ONE, TWO, THREE = (f"17000000000{it:05d}:{it:032x}:{it:08x}".encode() for it in (0xA, 0xB, 0xC))
ALIEN = b"alien\xff"
MINE = {it[17:49]: "me" for it in (ONE, TWO, THREE)}  # whose their inboxes are
REFUSED = ConnectionError("refused")


def script(name: str) -> bytes:
    return holdfast.scripts.bare((Path(holdfast.scripts.__file__).parent / f"{name}.lua").read_bytes())


# ------------------------------------------------ what is asked


def test_what_is_asked_of_one_lock() -> None:
    keys, rw_keys = list(keys_of(b"app:x")), list(rw_keys_of(b"app:x"))
    inspected = [*keys, *rw_keys[2:5], b"{app:x}:note"]
    assert spoken(inspection.inspect(b"app:x")) == [b"EVAL", script("inspect"), b"8", *inspected, b"100"]
    rw_script = script("rw_common") + script("rw_force_release")
    said = spoken(inspection.rw_force_release(b"app:x", 16_000, "é".encode()))
    assert said == [b"EVAL", rw_script, b"6", *rw_keys, "é".encode(), b"16000"]
    assert spoken(inspection.force_release(b"app:x", 16_000, b"")) == [b"EVAL", script("force_release"), b"4", *keys, b"16000", b""]
    assert spoken(inspection.force_release(b"app:x", 1, b"\xff"))[-1] == b"\xff"
    assert spoken(inspection.holder(b"app:x")) == [b"GET", b"app:x"]


MEANT = {
    "": [b""],
    "a value": [b"a value"],
    "é": ["é".encode()],
    "\\xff\\x80a": [b"\xff\x80a", b"\\xff\\x80a"],
    "\\x1b \\xFF \\n": [b"\\x1b \\xFF \\n"],
}


@pytest.mark.parametrize("shown, values", MEANT.items(), ids=ascii)
def test_a_value_that_is_no_text_is_taken_as_it_was_shown(shown: str, values: list[bytes]) -> None:
    assert inspection.meant(shown) == values
    assert {it.decode("utf-8", "backslashreplace") for it in values} == {shown}


def test_b56_names_are_looked_for_in_steps_and_under_their_prefix() -> None:
    assert spoken(inspection.names("app:", "x*", b"17")) == [b"EVAL", script("names"), b"0", b"17", b"app:x*", b"1000"]
    assert spoken(inspection.names("*[a]?\\", "[b]?", b"0"))[4] == rb"\*\[a\]\?\\[b]?", "a prefix is no pattern"
    assert spoken(inspection.names("", "*", b"0", b"200"))[-1] == b"200"
    assert b"KEYS'" not in script("names") and b"'SCAN'" in script("names")


@pytest.mark.parametrize(
    "reply, cursor, looked, keys",
    [
        ([b"17", 9, b"a", b"b"], b"17", 9, [b"a", b"b"]),
        ([b"17", 9, b"a", 7], b"17", 9, [b"a"]),
        ([b"0", 0], b"0", 0, []),
        ([b"17", b"a"], b"0", 0, []),
        (None, b"0", 0, []),
        ([7], b"0", 0, []),
    ],
)
def test_what_a_step_found(reply: object, cursor: bytes, looked: int, keys: list[bytes]) -> None:
    assert inspection.found(reply) == (cursor, looked, keys)


# ------------------------------------------------ what is on a majority


@pytest.mark.parametrize(
    "values, nodes, said",
    [
        ({}, 3, (False, None)),
        ({0: b"a", 1: b"a"}, 3, (True, b"a")),
        ({0: b"a", 1: b"b"}, 3, (False, None)),
        ({0: b"a", 1: b"b", 2: None}, 3, (True, None)),
        ({0: None, 1: None}, 3, (True, None)),
        ({0: None, 1: b"a"}, 3, (False, None)),
        ({0: b"a", 1: b"a"}, 4, (False, None)),
        ({0: b"a", 1: b"a", 2: b"b", 3: b"b"}, 4, (True, None)),
        ({0: b"a"}, 1, (True, b"a")),
        ({0: ["no", "value"], 1: b"a", 2: b"a"}, 3, (True, b"a")),
    ],
)
def test_b50_what_most_nodes_have_is_said_as_soon_as_it_is_certain(
    values: dict[int, object], nodes: int, said: tuple[bool, bytes | None]
) -> None:
    assert inspection.on_majority(values, Quorum(range(nodes))) == said


@patient
@given(st.lists(st.sampled_from([None, b"a", b"b"]), min_size=1, max_size=6), st.data())
def test_whatever_is_certain_stays_true_when_the_others_answer(everything: list[bytes | None], data: st.DataObject) -> None:
    heard = data.draw(st.sets(st.integers(0, len(everything) - 1)))
    decides = Quorum(range(len(everything)))
    certain, value = inspection.on_majority({it: everything[it] for it in heard}, decides)
    at_last = inspection.on_majority(dict(enumerate(everything)), decides)
    assert at_last[0]
    if certain:
        assert value == at_last[1]


@pytest.mark.parametrize("lefts, left", [([3000, 1000, 2000], 2000), ([-1, 5, -1], inf), ([0, -1, 0], 0)])
def test_for_how_long_a_majority_keeps_a_value(lefts: list[int], left: float) -> None:
    assert inspection.lasting(dict(enumerate(lefts)), Quorum(range(3))) == left


# ------------------------------------------------ all of it


def told(
    holder: bytes | None = None, left: int = -2, fence: int | None = None, *queue: tuple[bytes, int], note: bytes | None = None
) -> list[Any]:
    """A node's answer."""
    number = None if fence is None else b"%d" % fence
    return [holder, left, number, len(queue), 0, note, *[it for pair in queue for it in pair]]


def seen(replies: dict[int, object], causes: dict[int, Exception] | None = None, known: dict[bytes, str] | None = None) -> LockStatus:
    return inspection.status("x", LABELS, replies, causes or {}, known or {}, Quorum(range(len(LABELS))))


def test_a_free_lock() -> None:
    assert seen({0: told(), 1: told(), 2: told()}) == LockStatus(
        name="x",
        state="free",
        holder=None,
        owner=None,
        ttl_left=None,
        fence=None,
        queue=(),
        nodes=tuple(NodeView(node=it) for it in LABELS),
    )


def test_a_held_lock_and_who_waits_for_it() -> None:
    replies = {
        1: told(ONE, 3000, 17, (THREE, 3500)),
        0: told(ONE, 5000, 17, (TWO, 4000), (THREE, 3000)),
        2: told(ONE, 4000, 17, (THREE, 1000), (TWO, 1000)),
    }
    status = seen(replies, known=MINE)
    assert (status.state, status.holder, status.owner, status.fence) == ("held", ONE.decode(), "me", 17)
    assert status.ttl_left == 4.0, "a majority keeps it for as long as the second of three"
    assert status.queue == (
        Waiter(token=TWO.decode(), owner="me", left=4.0, nodes=2),
        Waiter(token=THREE.decode(), owner="me", left=3.5, nodes=3),
    )
    assert status.nodes[1] == NodeView(node=LABELS[1], holder=ONE.decode(), ttl_left=3.0, fence=17, waiting=1)
    assert str(status).splitlines() == [
        f"'x' is held by me ({ONE.decode()}), 4.0 s left unless renewed, fence 17",
        f"  1. waits: me ({TWO.decode()}) on 2 nodes",
        f"  2. waits: me ({THREE.decode()}) on 3 nodes",
        f"  redis://n0:1: {ONE.decode()}, fence 17, 2 waiting",
        f"  redis://n1:1: {ONE.decode()}, fence 17, 1 waiting",
        f"  redis://n2:1: {ONE.decode()}, fence 17, 2 waiting",
    ]


def test_readers_are_told_of_with_who_they_are() -> None:
    one, two = ONE + b":r", TWO + b":r"
    status = seen({it: [b"shared", 2000, b"7", 1, 2, None, one, 1000 + it, two, 2000, THREE + b":w", 500] for it in range(3)}, known=MINE)
    assert (status.state, status.holder, status.owner) == ("held", "shared", None)
    assert status.readers == (
        Reader(token=one.decode(), owner="me", left=1.002, nodes=3),
        Reader(token=two.decode(), owner="me", left=2.0, nodes=3),
    )
    assert [it.token for it in status.queue] == [THREE.decode() + ":w"]
    assert f"  reads: me ({one.decode()}) on 3 nodes, 1.0 s left" in str(status).splitlines()


def test_a_note_is_shown_only_if_it_is_the_holder_s() -> None:
    mine, other = b"17 1 9000 %b build 4711\n" % ONE, b"18 1 9000 %b something else" % TWO
    status = seen({0: told(ONE, 900, 17, note=other), 1: told(ONE, 900, 17, note=mine), 2: told(TWO, 900, 18, note=other)}, known=MINE)
    assert (status.holder, status.note) == (ONE.decode(), "build 4711\n")
    assert f"'x' is held by me ({ONE.decode()}), who says 'build 4711\\\\n', 0.9 s left" in str(status)
    assert seen({0: told(ONE, 900, 17, note=other), 1: told(ONE, 900, 17)}).note is None
    assert seen({it: told(None, -2, 17, note=mine) for it in range(3)}).note is None, "its lease is over"


def test_when_somebody_asked_is_in_the_token() -> None:
    status = seen({it: told(ONE, 900, 17, (TWO, 5)) for it in range(3)})
    moment = datetime(2023, 11, 14, 22, 13, 20, 10, tzinfo=UTC)
    assert status.asked == moment
    assert status.queue[0].asked == moment + timedelta(microseconds=1)
    shared = seen({it: [b"shared", 900, b"7", 0, 1, None, TWO + b":r", 900] for it in range(3)})
    assert (shared.asked, shared.readers[0].asked) == (None, moment + timedelta(microseconds=1))
    assert seen({it: told(ALIEN, 900) for it in range(3)}).asked is None
    assert seen({}).asked is None
    assert inspection.asked_at(b"9" * 16 + ONE[16:]) == datetime(2286, 11, 20, 17, 46, 39, 999999, tzinfo=UTC)


def test_nobody_is_known_where_servers_may_not_tell() -> None:
    status = seen({it: told(ONE, 1000, 1, (TWO, 1)) for it in range(3)}, known={b"ffffffff": "somebody else"})
    assert (status.owner, status.queue[0].owner) == (None, None)
    assert "is held by somebody (" in str(status) and "waits: somebody (" in str(status)


def test_the_holder_s_fence_is_that_of_the_nodes_that_it_has() -> None:
    assert seen({0: told(ONE, 9, 5), 1: told(ONE, 9, 5), 2: told(TWO, 9, 99)}).fence == 5
    assert seen({0: told(ONE, 9, 5), 1: told(ONE, 9, 7), 2: told(fence=9)}).fence == 7, "while it is written back, the highest"
    assert seen({0: told(fence=5), 1: told(fence=7), 2: told()}).fence == 7, "of a free lock, the last one that was seen"


def test_a_lease_that_ends_at_this_moment_has_no_time_left() -> None:
    status = seen({it: told(ONE, 0, 5) for it in range(3)})
    assert (status.ttl_left, status.nodes[0].ttl_left) == (0.0, 0.0)


def test_a_split_lock() -> None:
    status = seen({0: told(ONE, 9, 5), 1: told(TWO, 9, 6), 2: told()})
    assert (status.state, status.holder, status.owner, status.ttl_left) == ("split", None, None, None)
    assert str(status).splitlines()[0] == "'x' is split, fence 6"


def test_somebody_elses_lock() -> None:
    status = seen({0: told(ALIEN, -1), 1: told(ALIEN, 2000), 2: told()}, known={b"": "nobody"})
    assert (status.state, status.holder, status.owner, status.fence) == ("held", "alien\\xff", None, None)
    assert status.ttl_left is None, "one of the two never ends"
    assert str(status).splitlines()[0] == "'x' is held by somebody (alien\\xff), without an expiry"
    assert [it.ttl_left for it in status.nodes] == [None, 2.0, None]


def test_what_others_wrote_cannot_forge_a_line_nor_fill_the_screen() -> None:
    value = b"\x1b[2Jfree\n  redis://n2:1: free" + b"x" * 10**6
    lines = str(seen({0: told(value, 9), 1: told(value, 9)}, {2: ValueError("no\n" * 10**6)})).split("\n")
    assert len(lines) == 4 and all(it.isprintable() and len(it) < 600 for it in lines)
    assert "\\x1b[2Jfree\\n" in lines[0] and "\\x1b[2Jfree\\n" in lines[1] and "no\\nno" in lines[3]
    assert seen({0: told(value, 9), 1: told(value, 9)}).holder == value.decode(), "the attribute has it whole"
    known = {ONE[17:49]: "me\x1b[2J"}
    assert "is held by me\\x1b[2J (" in str(seen({it: told(ONE, 9, 5) for it in range(3)}, known=known))


def test_nodes_that_do_not_answer() -> None:
    status = seen({0: told(), 2: told(ONE, 9, 5)}, {1: REFUSED})
    assert status.state == "split", "one of two is free, and the third may be anything"
    assert status.nodes[1] == NodeView(node=LABELS[1], error=REFUSED)
    assert "  redis://n1:1: no answer: refused" in str(status)
    assert "  redis://n0:1: free, fence -, 0 waiting" in str(status)
    assert seen({0: told(), 2: told()}, {1: REFUSED}).state == "free"


def test_nodes_that_say_the_same_have_one_line_together() -> None:
    lines = str(seen({it: told(ONE, 9, 5) for it in range(3)})).splitlines()
    assert lines[1:] == [f"  on all 3 nodes: {ONE.decode()}, fence 5, 0 waiting"]
    lines = str(seen({0: told(ONE, 9, 5), 1: told(ONE, 9, 5), 2: told()})).splitlines()
    assert [it.partition(": ")[0] for it in lines[1:]] == [f"  {it}" for it in LABELS]


@pytest.mark.parametrize(
    "reply", [None, [ONE, b"5", None, 0, 0, None], [ONE, 5, 7, 0, 0, None], [ONE, 5, None, 0, 0], ["text", 5, None, 0, 0, None]]
)
def test_what_no_script_of_ours_says(reply: object) -> None:
    status = seen({0: reply, 1: told(), 2: told()})
    assert status.state == "free"
    assert isinstance(status.nodes[0].error, TypeError)


def test_what_no_client_of_ours_wrote_is_passed_over() -> None:
    status = seen({it: [None, -2, b"many", 4, 0, b"a note", b"alien", 5, TWO, b"soon", 5, 5, THREE, 1000, TWO] for it in range(3)})
    assert (status.fence, [it.token for it in status.queue], status.nodes[0].waiting) == (None, [THREE.decode()], 4)


# ------------------------------------------------ permits


def test_what_is_asked_of_permits() -> None:
    assert spoken(inspection.permits(b"app:pool", 4)) == [b"EVALSHA", PERMITS.sha, b"1", b"app:pool", b"4"]


@pytest.mark.parametrize(
    "answers, held, unknown",
    [
        ({}, {}, 3),
        ({0: [], 1: []}, {}, 0),
        ({0: []}, {}, 3),
        ({0: [0, b"a", 900], 1: [0, b"a", 700], 2: []}, {0: (b"a", 700)}, 0),
        ({0: [0, b"a", 900], 1: [0, b"a", 700], 2: [0, b"a", 800]}, {0: (b"a", 800)}, 0),
        ({0: [0, b"a", -1], 1: [0, b"a", 700], 2: [0, b"a", 800]}, {0: (b"a", 800)}, 0),
        ({0: [0, b"a", -1], 1: [0, b"a", -1], 2: [0, b"a", 800]}, {0: (b"a", -1)}, 0),
        ({0: [2, b"a", 900, 1, b"b", 1], 1: [2, b"a", 900, 1, b"b", 2]}, {1: (b"b", 1), 2: (b"a", 900)}, 0),
        ({0: [0, b"a", 900], 1: []}, {}, 1),
        ({0: [0, b"a", 900], 1: [0, b"b", 900]}, {}, 1),
        ({0: [0, b"a", 900], 1: [0, b"b", 900], 2: []}, {}, 0),
        ({0: [], 1: [0, b"a"], 2: None}, {}, 3),
        ({0: [], 1: [b"0", b"a", 1], 2: [0, 7, 1]}, {}, 3),
        ({0: [], 1: [0, b"a", b"1"]}, {}, 3),
    ],
)
def test_a_permit_is_held_by_what_is_on_a_majority(answers: dict[int, object], held: object, unknown: int) -> None:
    assert inspection.held(answers, 3, Quorum(range(3))) == (held, unknown)


def test_who_holds_permits_is_told_as_users_know_it() -> None:
    found = inspection.permit_holders("pool", {1: (ONE, 1500), 3: (ALIEN, -1)}, {ONE[17:49]: "host:7"})
    assert found == (
        PermitHolder(slot=1, name="pool[slot 1]", token=ONE.decode(), owner="host:7", left=1.5),
        PermitHolder(slot=3, name="pool[slot 3]", token="alien\\xff", owner=None, left=None),
    )
