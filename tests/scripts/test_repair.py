"""The scripts of repair, on simulated servers and on real ones: what they find, what they tell, and what they write back."""

from __future__ import annotations

from typing import Any

import pytest
from scripts.bench import SLACK, Bench, about, simulated
from scripts.dialects import VALKEY_9

from holdfast.operations.repair import commands as repair
from holdfast.primitives.latch.commands import BARRIER, LATCH, Gathering
from holdfast.protocol.exclusive import beside
from holdfast.scripts import ARRIVE, MEND, RECALL

RESULT, CACHE, RATE, WINDOW = b"{n[once]}:result", b"{n[fill]}:cache", b"{n}:rate:a", b"{n}:window"
LONG = 30_000  # ms
MINUTE = 60_000_000  # microseconds


class Node:
    """One server, and what it is told with the bytes of the recipe."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        bench.load(RECALL, MEND, ARRIVE)

    def recall(self, *keys: bytes) -> list[Any]:
        told: list[Any] = self.bench.told(repair.recall(keys))
        assert abs(told[0] - self.now) < SLACK * 1000
        return told[1:]

    def mend(self, key: bytes, first: int, second: int, value: bytes = b"", until: int | None = None) -> int:
        until = self.now + MINUTE if until is None else until
        said = (b"%d" % until, b"%d" % first, b"%d" % second, value)
        answer: int = self.bench.client.say("EVALSHA", MEND.sha, 1, key, *said)
        self.bench.mortal()
        return answer

    def put(self, key: bytes, value: bytes, ms: int = LONG) -> None:
        self.bench.operator.say("SET", key, value, "PX", ms)

    def see(self, key: bytes) -> tuple[bytes | None, int]:
        value, left = self.bench.operator.batch(("GET", key), ("PTTL", key))
        return value, left

    @property
    def now(self) -> int:
        return self.bench.now() * 1000


@pytest.fixture
def node(bench: Bench) -> Node:
    return Node(bench)


# ------------------------------------------------ what a node tells


def test_what_is_not_there_is_an_empty_list(node: Node) -> None:
    assert node.recall(RESULT, RATE, b"{n}:latch", b"no register") == [[], [], [], []]
    assert node.recall() == []


def test_a_result_and_a_cached_value_have_a_version_and_an_expiry(node: Node) -> None:
    node.put(RESULT, b"%016d a result" % 1_800_000_000_000_000)
    node.put(CACHE, b"17 500 a value")
    [[ballot, note, left], [fence, *_]] = node.recall(RESULT, CACHE)
    assert (ballot, fence, note) == (1_800_000_000_000_000, 17, 0)
    assert about(left, LONG)


def test_a_cached_value_that_was_dropped_leaves_a_note(node: Node) -> None:
    other = b"{o[fill]}:cache"
    node.put(CACHE, b"17:")
    node.put(other, b"17:500:700 a value")
    [[fence, note, _], [other_fence, other_note, _]] = node.recall(CACHE, other)
    assert (fence, note, other_fence, other_note) == (17, 1, 17, 0)


def test_what_somebody_else_wrote_there_is_nothing(node: Node) -> None:
    node.put(RESULT, b"no number")
    node.put(RATE, b"1 2 3 4")
    node.put(b"{n}:latch", b"x")
    node.bench.operator.batch(("HSET", CACHE, "a", "b"), ("PEXPIRE", CACHE, LONG))
    assert node.recall(RESULT, RATE, b"{n}:latch", CACHE) == [[], [], [], []]


def test_a_rate_tells_what_is_owed_and_a_window_what_was_taken(node: Node) -> None:
    node.put(RATE, b"%d 3" % (node.now + MINUTE))
    node.put(WINDOW, b"%d 7" % (node.now + MINUTE))
    [[owed, parts], [left, taken]] = node.recall(RATE, WINDOW)
    assert (parts, taken) == (3, 7)
    assert MINUTE - SLACK * 1000 < owed <= MINUTE
    assert MINUTE - SLACK * 1000 < left <= MINUTE


def test_what_stands_behind_the_numbers_of_a_rate_is_kept(node: Node) -> None:
    line = node.now + 2 * MINUTE
    node.put(RATE, b"%d 3 %d" % (node.now + MINUTE // 2, line), 120_000)
    [[owed, parts]] = node.recall(RATE)
    assert (0 < owed <= MINUTE // 2, parts) == (True, 3)
    free = node.now + MINUTE
    assert node.mend(RATE, free, 0) == 1
    kept, left = node.see(RATE)
    assert kept == b"%d 0 %d" % (free, line)
    assert about(left, 120_001)


def test_a_line_that_is_over_is_not_kept(node: Node) -> None:
    node.put(RATE, b"%d 3 %d" % (node.now - MINUTE, node.now - MINUTE))
    free = node.now + MINUTE
    assert node.mend(RATE, free, 0) == 1
    assert node.see(RATE)[0] == b"%d 0" % free


def test_what_is_owed_no_more_is_nothing(node: Node) -> None:
    node.put(RATE, b"%d 0" % (node.now - 1_000_000))
    assert node.recall(RATE) == [[]]


def test_a_latch_and_a_barrier_tell_who_has_arrived(node: Node) -> None:
    node.bench.told(Gathering(LATCH, "n", 3, 60.0).say(0, [b"a", b"b c"], b"0", 0))
    node.bench.told(Gathering(BARRIER, "n", 3, 60.0).say(4, [b"d"], b"0", 0))
    [latch, barrier] = node.recall(b"{n}:latch", b"{n}:barrier")
    assert (latch[:2], sorted(latch[3].split(b"\0"))) == ([3, 0], [b"a", b"b c"])
    assert (barrier[:2], barrier[3]) == ([3, 4], b"d")
    assert about(latch[2], 60_000)


def test_a_name_with_a_hash_tag(node: Node) -> None:
    gathering = Gathering(BARRIER, "app{t}", 3, 60.0)
    node.bench.told(gathering.say(2, [b"d"], b"0", 0))
    [told] = node.recall(beside(b"app{t}", b"barrier"))
    assert (told[:2], told[3]) == ([3, 2], b"d")


def test_an_open_latch_tells_so(node: Node) -> None:
    node.bench.told(Gathering(LATCH, "n", 1, 60.0).say(0, [b"a"], b"0", 0))
    [told] = node.recall(b"{n}:latch")
    assert (told[:2], told[3]) == ([1, 1], b"")


# ------------------------------------------------ what is written back


def test_a_result_is_written_back_as_it_was(node: Node) -> None:
    value = b"%016d a\0result" % 17
    assert node.mend(RESULT, 17, node.now // 1000 + LONG, value) == 1
    kept, left = node.see(RESULT)
    assert kept == value
    assert about(left, LONG)


def test_a_higher_version_stays(node: Node) -> None:
    node.put(RESULT, b"%016d new" % 18)
    assert node.mend(RESULT, 17, node.now // 1000 + LONG, b"%016d old" % 17) == 0
    assert node.see(RESULT)[0] == b"%016d new" % 18


def test_a_note_replaces_the_value_of_its_version_and_no_value_replaces_it(node: Node) -> None:
    node.put(CACHE, b"17:500:700 dropped")
    expiry = node.now // 1000 + LONG
    assert node.mend(CACHE, 17, expiry, b"17:") == 1
    assert node.mend(CACHE, 17, expiry, b"17:500:700 dropped") == 0
    assert node.mend(CACHE, 17, expiry, b"17:") == 0
    assert node.see(CACHE)[0] == b"17:"


def test_the_same_version_lasts_no_longer_for_being_said_again(node: Node) -> None:
    node.put(RESULT, b"%016d x" % 17, 10_000)
    assert node.mend(RESULT, 17, node.now // 1000 + LONG, b"%016d x" % 17) == 0
    assert node.see(RESULT)[1] <= 10_000


def test_what_has_expired_meanwhile_is_not_written(node: Node) -> None:
    assert node.mend(RESULT, 17, node.now // 1000 - 1, b"%016d x" % 17) == 0
    assert node.see(RESULT)[0] is None


def test_what_comes_too_late_is_not_written(node: Node) -> None:
    # Rule RP5.
    assert node.mend(RESULT, 17, node.now // 1000 + LONG, b"%016d x" % 17, until=node.now - 1) == -1
    assert node.mend(RATE, node.now + MINUTE, 0, until=node.now - 1) == -1
    assert (node.see(RESULT)[0], node.see(RATE)[0]) == (None, None)


def test_a_rate_is_raised_and_never_lowered(node: Node) -> None:
    owed = node.now + MINUTE
    assert node.mend(RATE, owed, 0) == 1
    kept, left = node.see(RATE)
    assert kept == b"%d 0" % owed
    assert about(left, 60_001)
    assert node.mend(RATE, owed - 1, 0) == 0
    assert node.see(RATE)[0] == b"%d 0" % owed
    assert node.mend(RATE, node.now - 1, 0) == 0


def test_where_there_is_no_line_there_is_none_on_any_clock() -> None:
    """Not at the first microsecond of a clock, either, where every line that counts from 1 would go on."""
    node = Node(simulated(VALKEY_9, now=0.0))
    assert (node.mend(RATE, MINUTE // 2, 0), node.see(RATE)[0]) == (1, b"%d 0" % (MINUTE // 2))


def test_what_is_owed_no_more_is_not_written(node: Node) -> None:
    assert node.mend(RATE, node.now - 500, 0) == 0
    assert node.mend(WINDOW, node.now - 500, 3) == 0
    assert (node.see(RATE)[0], node.see(WINDOW)[0]) == (None, None)


def test_a_window_is_taken_over_from_those_who_counted_more(node: Node) -> None:
    ends = node.now + MINUTE
    node.put(WINDOW, b"%d 2" % (ends + MINUTE))
    assert node.mend(WINDOW, ends, 2) == 0
    assert node.mend(WINDOW, ends, 3) == 1
    assert node.see(WINDOW)[0] == b"%d 3" % ends


def test_a_window_that_is_over_here_is_no_reason_to_keep_it(node: Node) -> None:
    node.put(WINDOW, b"%d 9" % (node.now - MINUTE))
    assert node.mend(WINDOW, node.now + MINUTE, 3) == 1


# ------------------------------------------------ looking for registers


def test_registers_are_found_and_other_keys_are_not(node: Node) -> None:
    for key in (RESULT, CACHE, RATE, b"{n}:fence", b"n", b"{t}:result:app{t}[once]"):
        node.put(key, b"1 1")
    node.bench.told(Gathering(LATCH, "n", 3, 60.0).say(0, [b"a"], b"0", 0))
    found, cursor = set[bytes](), b"0"
    while True:
        step = repair.listed(node.bench.told(repair.registers("", cursor)), "")
        assert step is not None
        cursor, keys = step
        found.update(keys)
        if cursor == b"0":
            break
    assert found == {RESULT, CACHE, RATE, b"{n}:latch", b"{t}:result:app{t}[once]"}
