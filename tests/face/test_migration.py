"""Where names are locked that move: on a joint shard, or on the new one if both lists name the same servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.engine.plans import Do, Meet, Pause
from holdfast.errors import ConfigError, NoQuorum
from holdfast.face.migration import place
from holdfast.face.shards import Shards
from holdfast.face.spreading import alone
from holdfast.protocol.timing import Timing

ALL, OTHER = frozenset("abc"), frozenset("xyz")
NEW, OLD, JOINT = range(3)
OPTIONS: dict[str, Any] = {
    "ttl": 9.0,
    "max_ttl": 9.0,
    "prefix": "",
    "node_timeout": 1.0,
    "restart_guard": None,
    "outage": 5.0,
    "owner": "me",
}


def shards() -> Shards:
    """Three nodes that replace three others."""
    now, before = ([alone(f"redis://{it}{number}" for number in range(3))] for it in ("new", "old"))
    return Shards(now, before, OPTIONS, None, None)


def placed(seen: dict[int, Sequence[frozenset[str]]], wait: float | None = None, goes_on: bool = True) -> tuple[int, float | None, int]:
    """Where it is locked, what is left of the wait, and how often each shard was met. `seen`: its servers each time.

    A second passes with each round.
    """
    plan, answer, rounds = place(shards(), JOINT, "it", Timing(9.0, wait)), None, {NEW: 0, OLD: 0}
    while True:
        try:
            step: Any = plan.send(answer)
        except StopIteration as end:
            at, timing = end.value
            assert rounds[NEW] == rounds[OLD]
            return at, timing.wait, rounds[OLD]
        if isinstance(step, Meet):
            answer = seen[step.shard][min(rounds[step.shard], len(seen[step.shard]) - 1)]
            rounds[step.shard] += 1
        else:
            assert isinstance(step, Do | Pause)
            answer = goes_on if isinstance(step, Pause) else float(rounds[OLD])


def test_other_servers_are_locked_with_those_of_before_and_the_same_ones_are_not() -> None:
    joint = shards().every[JOINT].settings
    assert ([it.label for it in joint.addresses], joint.lists) == (
        [f"redis://{it}{number}:6379" for it in ("new", "old") for number in range(3)],
        ((0, 1, 2), (3, 4, 5)),
    )
    assert placed({NEW: [ALL], OLD: [OTHER]}, wait=3.0) == (JOINT, 2.0, 1)
    assert placed({NEW: [ALL], OLD: [ALL]}, wait=0.5) == (NEW, 0.0, 1)
    with pytest.raises(ConfigError, match="1 servers in common"):
        placed({NEW: [ALL], OLD: [frozenset("xya")]})


@pytest.mark.parametrize("left", [frozenset("c"), frozenset()], ids=["one", "none"])
def test_servers_whose_connections_break_are_met_again(left: frozenset[str]) -> None:
    """One that is left would be in common, and too few; of none nobody knows that they are the same."""
    assert placed({NEW: [ALL], OLD: [left, left, ALL]}) == (NEW, None, 3)


def test_servers_that_cannot_be_met_are_judged_when_the_time_is_over() -> None:
    few = {NEW: [ALL], OLD: [frozenset("x")]}
    assert placed(few) == (JOINT, None, 5)
    assert placed(few, wait=0.0) == (JOINT, 0.0, 3), "a try waits for a third of the ttl"


def test_the_error_of_a_shard_that_cannot_be_reached_names_the_lock() -> None:
    plan, causes = place(shards(), JOINT, "it", Timing(9.0, None)), {"redis://old1:6379": ConnectionError("refused")}
    assert isinstance(next(plan), Do)
    assert isinstance(plan.send(0.0), Meet)
    with pytest.raises(NoQuorum, match=r"could not acquire 'it': fewer than 2 nodes are usable .*\n.*old1:6379: refused"):
        plan.throw(NoQuorum("a majority of the nodes", 5.0, causes, 2, "reach"))


def test_a_caller_whose_wait_was_ended_meets_nobody_again() -> None:
    assert placed({NEW: [frozenset()], OLD: [frozenset()]}, goes_on=False) == (JOINT, None, 1)


def test_names_of_several_former_shards_move_to_one() -> None:
    now, before = [alone(["redis://c"], "c")], [alone([f"redis://{it}"], it) for it in "ab"]
    found = Shards(now, before, OPTIONS, None, None)
    assert found.parts == ((0, 1), (0, 2), (0, 1, 2))
    assert [found.together(0, it) for it in ([], [1], [2], [1, 2])] == [0, 3, 4, 5]


def test_names_move_only_to_shards_that_are_new_and_from_those_that_go() -> None:
    a, b, c, other = (alone([f"redis://{it}"], it[0]) for it in ("a", "b", "c", "a-2"))
    assert Shards([a, b, c], [a, b], OPTIONS, None, None).parts == ((2, 0), (2, 1), (2, 0, 1))
    assert Shards([a, b], [a, b, c], OPTIONS, None, None).parts == ((0, 2), (1, 2))
    assert Shards([other, b], [a, b], OPTIONS, None, None).parts == ((0, 2),)
