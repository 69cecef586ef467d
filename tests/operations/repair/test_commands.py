"""What nodes remember of registers, what a majority knows better, and what is written back, as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from operations.inspection.test_commands import script
from scripts.bench import spoken

from holdfast.operations.repair import commands as repair
from holdfast.operations.repair.commands import BATCH, RepairAnswer, RepairTally, mending
from holdfast.primitives.latch.commands import BARRIER, LATCH, Gathering
from holdfast.protocol.exclusive import beside
from holdfast.protocol.nodes import NodeSet, Standing
from holdfast.protocol.query import Query
from holdfast.scripts import ARRIVE, MEND, RECALL

RESULT, CACHE, RATE, WINDOW = b"{n[once]}:result", b"{n[fill]}:cache", b"{n}:rate:a", b"{n}:window"
LATCHED, MET = b"{n}:latch", b"{n}:barrier"
NOW = 1_800_000_000_000_000  # microseconds, by node 0's clock; each other one is a second ahead of the one before
PATIENCE = 8_000_000
TOOK = 101  # milliseconds, rounded up


def seen(answers: Mapping[int, Any]) -> Query:
    """A round that took a tenth of a second."""
    node_set = NodeSet([f"n{it}" for it in range(9)], 1.0, 10.0, 16_000)
    for node in range(9):
        node_set.note(node, Standing.UP, 0.0)
    round_ = Query(dict.fromkeys(answers, b""), node_set, deadline=1.0)
    round_.began, round_.ended = 5.0, 5.1
    round_.answers = dict(answers)
    return round_


def states(*told: Any) -> dict[int, Any]:
    """What nodes answer that are asked about one register. None: nothing."""
    return {node: [NOW + node * 1_000_000, it] for node, it in enumerate(told) if it is not None}


def table(key: bytes, *told: Any) -> RepairAnswer:
    return RepairAnswer(seen(states(*told)), [key], len(told))


def until(node: int) -> bytes:
    return b"%d" % (NOW + node * 1_000_000 + PATIENCE)


# ------------------------------------------------ what is asked


def test_what_is_asked() -> None:
    assert spoken(repair.registers("app:", b"7")) == [b"EVAL", script("registers"), b"0", b"7", b"{*", b"1000"]
    assert spoken(repair.recall([RATE, b"{a}:latch"])) == [b"EVALSHA", RECALL.sha, b"0", b"10:{n}:rate:a9:{a}:latch"]
    assert spoken(repair.server()) == [b"INFO", b"server"]
    key = b"{app:}:repaired:" + b"ab" * 20
    assert spoken(repair.noted("app:", "ab" * 20)) == [b"GET", key]
    assert spoken(repair.note("app:", "ab" * 20)) == [b"SET", key, b"1", b"PX", b"31536000000"]


def test_which_run_of_a_server_it_is() -> None:
    run_id = "0123456789abcdef" * 2 + "01234567"
    text = f"# Server\r\nredis_version:7.0\r\nrun_id:{run_id}\r\n"
    assert repair.run_of(text) == repair.run_of(text.encode()) == run_id
    assert repair.run_of("# Server\r\nrun_id:x\r\n") == repair.run_of(None) == ""


def test_the_registers_of_a_step_are_those_with_the_prefix() -> None:
    keys = [b"{app:n}:rate", b"{t}:result:app:{t}[once]", b"{n}:rate", b"app:n", b"{t}:result:n{t}"]
    assert repair.listed([b"5", *keys], "app:") == (b"5", keys[:2])
    assert repair.listed([b"0", *keys], "") == (b"0", [*keys[:3], keys[4]])
    assert repair.listed([], "") is repair.listed(None, "") is repair.listed([1], "") is None


# ------------------------------------------------ copies of a version


def test_a_version_that_a_majority_has_is_what_the_others_lack() -> None:
    # Rule RP2.
    lack = table(RESULT, [17, 0, 5000], [], [17, 0, 4000]).lack(RESULT, PATIENCE)
    assert lack is not None
    expiry = (NOW + 1_000_000) // 1000 + 4000 - TOOK
    assert (list(lack.nodes), lack.rank, lack.holders) == ([1], 34, [0, 2])
    assert lack.said == {1: (until(1), b"17", b"%d" % expiry)}


SETTLED: dict[str, Any] = {
    "all have it": ([17, 0, 5000], [17, 0, 5000], [17, 0, 5000]),
    "one has it": ([17, 0, 5000], [], []),
    "two versions": ([17, 0, 5000], [18, 0, 5000], []),
    "a newer one": ([17, 0, 5000], [17, 0, 5000], [18, 0, 5000]),
    "a newer one under way": ([17, 0, 5000], [17, 0, 5000], [], [17, 1, 5000], [17, 0, 5000]),
    "it expires": ([17, 0, 50], [17, 0, 5000], []),
    "nobody": ([], [], []),
    "for ever": ([17, 0, -1], [17, 0, -1], []),
    "no version": ([0, 0, 5000], [0, 0, 5000], []),
    "no answer": ([17], [17, 0, "x"], []),
    "a note": ([17, 0, 5000], [17, 1, 5000], []),
}


@pytest.mark.parametrize("told", SETTLED.values(), ids=SETTLED)
def test_where_nothing_is_to_be_written_back(told: Any) -> None:
    assert table(CACHE, *told).lack(CACHE, PATIENCE) is None


def test_a_lower_version_is_replaced() -> None:
    lack = table(CACHE, [16, 0, 5000], [17, 0, 5000], [17, 0, 5000]).lack(CACHE, PATIENCE)
    assert lack is not None
    assert list(lack.nodes) == [0]


def test_a_result_that_a_majority_has_is_the_result_under_any_ballot() -> None:
    told = table(RESULT, [17, 0, 5000], [17, 0, 5000], [], [18, 0, 5000], [17, 0, 5000])
    lack = told.lack(RESULT, PATIENCE)
    assert lack is not None
    assert list(lack.nodes) == [2]


def test_a_note_is_later_than_the_value_of_its_version() -> None:
    lack = table(CACHE, [17, 1, 5000], [17, 0, 5000], [17, 1, 5000]).lack(CACHE, PATIENCE)
    assert lack is not None
    assert (list(lack.nodes), lack.rank) == ([1], 35)


def test_a_note_is_fetched_and_written_back() -> None:
    nodes = Nodes(states([17, 1, 5000], [17, 1, 5000], []), {0: b"17:"}, {2: 1})
    assert nodes.run([CACHE]) == RepairTally(found=1, mended=1)
    assert nodes.asked[2][2][-1] == b"17:"
    for other in (b"17:500:700 x", b"17 500 x", b"x"):
        assert Nodes(states([17, 1, 5000], [17, 1, 5000], []), {0: other}).run([CACHE]).lacking == 1


def test_a_node_that_has_not_answered_lacks_nothing_that_is_known() -> None:
    told = table(RESULT, [17, 0, 5000], [17, 0, 5000], None)
    assert told.lack(RESULT, PATIENCE) is None
    assert told.silent == {2}
    assert told.holders(RESULT) == [0, 1]


@pytest.mark.parametrize("reply", [None, [NOW], [NOW, [], []], [b"1", []], b"x"])
def test_what_no_script_of_ours_says_is_no_answer(reply: object) -> None:
    assert RepairAnswer(seen({0: reply}), [RESULT], 1).silent == {0}


@pytest.mark.parametrize("key, state", [(RATE, [17, 0, 5000]), (RESULT, [0, 0, 5000]), (RESULT, [17, 0, 0])])
def test_what_is_no_copy_of_a_version_is_held_by_nobody(key: bytes, state: list[int]) -> None:
    assert table(key, state, state).holders(key) == []


# ------------------------------------------------ counts


def test_a_rate_is_raised_to_what_a_majority_counts() -> None:
    # Rule RP3.
    lack = table(RATE, [9_000_000, 1], [], [7_000_000, 0]).lack(RATE, PATIENCE)
    assert lack is not None
    assert lack.said == {1: (until(1), b"%d" % (NOW + 1_000_000 + 7_000_000), b"0", b"")}


COUNTED: dict[str, Any] = {
    "one counts it": ([9_000_000, 0], [], []),
    "calls under way": ([9_000_000, 0], [8_500_000, 0], [8_100_000, 0]),
    "soon over": ([900_000, 0], [900_000, 0], []),
    "nobody": ([], [], []),
}


@pytest.mark.parametrize("told", COUNTED.values(), ids=COUNTED)
def test_a_rate_that_nobody_need_raise(told: Any) -> None:
    assert table(RATE, *told).lack(RATE, PATIENCE) is None


def test_a_window_that_was_forgotten_is_taken_over() -> None:
    lack = table(WINDOW, [9_000_000, 3], [60_000_000, 1], [9_000_100, 4]).lack(WINDOW, PATIENCE)
    assert lack is not None
    assert lack.said == {1: (until(1), b"%d" % (NOW + 1_000_000 + 9_000_000), b"3", b"")}


def test_a_window_in_which_a_call_is_under_way_is_left_alone() -> None:
    assert table(WINDOW, [9_000_000, 3], [9_000_000, 2], [9_000_000, 3]).lack(WINDOW, PATIENCE) is None
    assert table(WINDOW, [9_000_000, 3], [60_000_000, 3], [9_000_000, 3]).lack(WINDOW, PATIENCE) is None


# ------------------------------------------------ latches and barriers


def say(kind: str, count: int, generation: int, keep: int, ids: list[bytes], over: bool = False, name: str = "n") -> list[bytes]:
    """What the recipe of gatherings says."""
    return spoken(Gathering(kind, name, count, keep / 1000).say(generation, ids, b"0", 0, over=over))


def lacking(key: bytes, *told: Any) -> tuple[list[int], list[bytes]] | None:
    """Which nodes lack something of a latch or barrier, and what they are told."""
    lack = table(key, *told).lack(key, PATIENCE)
    if lack is None:
        return None
    [said] = set(lack.said.values())
    assert list(lack.said) == list(lack.nodes)
    return list(lack.nodes), [b"EVALSHA", ARRIVE.sha, b"4", *said]


def test_whoever_has_arrived_anywhere_has_arrived() -> None:
    # Rule RP4.
    told = lacking(LATCHED, [3, 0, 5000, b"a"], [], [3, 0, 5000, b"b"])
    assert told == ([0, 1, 2], say(LATCH, 3, 0, 5000 - TOOK, [b"a", b"b"]))


def test_an_open_latch_is_open() -> None:
    told = lacking(LATCHED, [3, 1, 5000, b""], [3, 0, 5000, b"a"], [])
    assert told == ([1, 2], say(LATCH, 3, 0, 5000 - TOOK, [], over=True))


def test_generations_that_are_over() -> None:
    told = lacking(MET, [3, 4, 5000, b"a"], [3, 2, 5000, b"x"], [])
    assert told == ([1, 2], say(BARRIER, 3, 4, 5000 - TOOK, [b"a"]))


def test_what_was_over_when_it_was_told_ends_at_once() -> None:
    assert lacking(MET, [3, 4, TOOK, b"a"], []) == ([1], say(BARRIER, 3, 4, 1, [b"a"]))


def test_a_name_with_a_hash_tag() -> None:
    told = lacking(beside(b"n{t}", b"barrier"), [3, 4, 5000, b"a"], [])
    assert told is not None
    assert told == ([1], say(BARRIER, 3, 4, 5000 - TOOK, [b"a"], name="n{t}"))


GATHERED: dict[str, Any] = {
    "all know it": ([3, 0, 5000, b"a"], [3, 0, 5000, b"a"]),
    "nobody has arrived": ([3, 0, 5000, b""], []),
    "two numbers": ([3, 0, 5000, b"a"], [4, 0, 5000, b"b"]),
    "nobody knows it": ([], []),
}


@pytest.mark.parametrize("told", GATHERED.values(), ids=GATHERED)
def test_what_nobody_need_be_told(told: Any) -> None:
    assert lacking(LATCHED, *told) is None


# ------------------------------------------------ what is done


class Nodes:
    """What three nodes keep, and what they are told."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)  # of each round: by node, what it answers
        self.asked: list[dict[int, list[bytes]]] = []

    def run(self, keys: list[bytes], **finding: Any) -> RepairTally:
        work = mending(keys, 3, PATIENCE, **finding)
        asks = next(work)
        while True:
            self.asked.append({node: spoken(it) for node, it in asks.items()})
            try:
                asks = work.send(seen(self.answers.pop(0)))
            except StopIteration as end:
                tally: RepairTally = end.value
                assert not self.answers
                return tally


def test_a_copy_is_fetched_and_written_back() -> None:
    value = b"%016d a result" % 17
    nodes = Nodes(states([17, 0, 5000], [17, 0, 5000], []), {0: value}, {2: 1})
    assert nodes.run([RESULT]) == RepairTally(found=1, mended=1)
    assert nodes.asked[1:] == [
        {0: [b"GET", RESULT]},
        {2: [b"EVALSHA", MEND.sha, b"1", RESULT, until(2), b"17", b"%d" % ((NOW + 2_000_000) // 1000 + 5000 - TOOK), value]},
    ]


def test_the_fence_of_a_cached_value_has_no_zeros_before_it() -> None:
    assert Nodes(states([17, 0, 5000], [17, 0, 5000], []), {0: b"17 500 x"}, {2: 0}).run([CACHE]) == RepairTally(found=1)


@pytest.mark.parametrize("fetched", [{0: b"18 500 x"}, {0: None}, {}])
def test_a_value_that_has_changed_meanwhile_is_left_alone(fetched: Any) -> None:
    # Rule RP1.
    assert Nodes(states([17, 0, 5000], [17, 0, 5000], []), fetched).run([CACHE]) == RepairTally(found=1, lacking=1, unsure=frozenset({2}))


@pytest.mark.parametrize("reply", [{}, {2: -1}])
def test_a_node_that_has_not_taken_it_still_lacks_it(reply: Any) -> None:
    nodes = Nodes(states([17, 0, 5000], [17, 0, 5000], []), {0: b"17 500 x"}, reply)
    assert nodes.run([CACHE]) == RepairTally(found=1, lacking=1, unsure=frozenset({2}))


def test_arrivals_are_told_to_all_who_lack_them() -> None:
    nodes = Nodes(states([3, 0, 5000, b"a"], [3, 0, 5000, b"b"], []), {0: [0, b"1", 0, b""], 1: b"4", 2: [0, b"1", 0, b""]})
    assert nodes.run([LATCHED]) == RepairTally(found=1, mended=2, lacking=1, unsure=frozenset({1}))
    assert all(said[:2] == [b"EVALSHA", ARRIVE.sha] for said in nodes.asked[1].values())


def test_a_count_is_asked_for_twice_and_raised_by_what_was_lacking_both_times() -> None:
    first, again = states([9_000_000, 0], [9_000_000, 0], []), states([20_000_000, 0], [20_000_000, 0], [])
    nodes = Nodes(first, again, {2: 1})
    assert nodes.run([RATE]) == RepairTally(found=1, mended=1)
    moment = b"%d" % (NOW + 2_000_000 + 9_000_000)
    assert nodes.asked[2] == {2: [b"EVALSHA", MEND.sha, b"1", RATE, until(2), moment, b"0", b""]}


def test_what_was_only_under_way_is_not_written() -> None:
    first = states([9_000_000, 0], [9_000_000, 0], [])
    assert Nodes(first, states(*[[9_000_000, 0]] * 3)).run([RATE]) == RepairTally(found=1)
    other = states([9_000_000, 0], [], [9_000_000, 0])
    assert Nodes(first, other).run([RATE]) == RepairTally(found=1)


def test_each_register_is_seen_to_by_the_first_node_that_has_it() -> None:
    told = states([17, 0, 5000], [17, 0, 5000], [])
    assert Nodes(told).run([RESULT], finders={RESULT: {1}}, among={0, 1, 2}) == RepairTally()
    assert Nodes(told, {0: b"17 x"}, {2: 1}).run([RESULT], finders={RESULT: {1}}, among={1, 2}) == RepairTally(found=1, mended=1)
    assert Nodes(told).run([RESULT], finders={RESULT: {1}}, among={2}) == RepairTally()


def test_a_node_that_is_silent_may_lack_anything() -> None:
    assert Nodes(states([17, 0, 5000], [17, 0, 5000], None)).run([RESULT]) == RepairTally(found=1, unsure=frozenset({2}))


def test_what_became_of_several() -> None:
    tally = RepairTally(1, 2, 3, frozenset({1}))
    tally.add(RepairTally(10, 20, 30, frozenset({2})))
    assert tally == RepairTally(11, 22, 33, frozenset({1, 2}))


def test_what_is_no_register_has_no_kind() -> None:
    assert repair.kind_of(b"n") == b""
    assert repair.kind_of(RATE) == b"rate"
    assert BATCH == 25
