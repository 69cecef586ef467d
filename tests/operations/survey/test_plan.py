"""The steps of a survey, one by one: which nodes are asked what, how long it rests, and when it gives up."""

from __future__ import annotations

from typing import Any

import pytest
from scripts.bench import spoken

from holdfast.engine.plans import Ask, Pause
from holdfast.engine.settings import Settings, settings
from holdfast.errors import ConfigError, NoQuorum
from holdfast.operations.survey.commands import Row
from holdfast.operations.survey.plan import Search
from holdfast.protocol.query import Query
from holdfast.wire.address import parse

TOOK = 0.004  # seconds that a round takes
LOCKS = [b"a", b"b"]


def token(number: int) -> bytes:
    return b"%016d:%032x:%08x" % (10**15 + number, number, number)


def of(nodes: int) -> Settings:
    return settings(
        [parse(f"redis://node{it}") for it in range(nodes)],
        ttl=10.0,
        max_ttl=30.0,
        prefix="",
        node_timeout=None,
        restart_guard=32.0,
        outage=None,
        owner="me",
    )


class Nodes:
    """Nodes that take two steps each to be looked through, and have the same locks.

    `away`: these do not answer, and are waited for that many seconds; `fails`: this one does not after its first step.
    """

    def __init__(self, away: tuple[int, ...] = (), fails: int | None = None, silent: float = 0.0) -> None:
        self.away, self.fails, self.silent = away, fails, silent
        self.asked: list[tuple[int, ...]] = []
        self.rests: list[float] = []
        self.now = 0.0

    def rows(self, search: Search) -> list[Row]:
        found = []
        while True:
            plan, answer = search.next(), None
            try:
                while True:
                    answer = self._do(plan.send(answer))
            except StopIteration as end:
                if end.value is None:
                    return found
                found.append(end.value)

    def _do(self, step: Any) -> Any:
        if isinstance(step, Pause):
            self.rests.append(step.seconds)
            self.now += step.seconds
            return True
        assert isinstance(step, Ask)
        self.asked.append(tuple(step.asks))
        told = Query.__new__(Query)
        told.began, told.heard = self.now, self.now + TOOK
        if self.fails is not None and self.asked.count((self.fails,)) == 2:
            self.away = (*self.away, self.fails)
        told.answers = {node: self._says(spoken(data)) for node, data in step.asks.items() if node not in self.away}
        told.causes = {node: ConnectionError("away") for node in step.asks if node in self.away}
        told.ended = self.now = told.heard + (self.silent if told.causes else 0.0)
        return told

    def _says(self, asked: list[bytes]) -> object:
        if asked[0] == b"MGET":
            return [b"host:%d" % int(key[-32:], 16) for key in asked[1:]]
        if asked[3] in (b"0", b"7"):
            return [b"7", 200, LOCKS[0]] if asked[3] == b"0" else [b"0", 100, LOCKS[1]]
        # How the locks are that have these keys.
        keys = [key for key in LOCKS if key in asked[3]]
        return [item for key in keys for item in (token(key[0]), 900, b"5", 0, None, None)]


@pytest.mark.parametrize("nodes, looked", [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (7, 4)])
def test_as_many_nodes_are_looked_through_as_a_lock_can_be_missing_on_and_one(nodes: int, looked: int) -> None:
    world = Nodes()
    search = Search([of(nodes)], "*", 0.0)
    assert [it.name for it in world.rows(search)] == ["a", "b"]
    single = [it for it in world.asked if it in [(node,) for node in range(nodes)]]
    if nodes > 1:
        assert single == [(node,) for node in range(looked) for _ in range(2)], "one after the other, two steps each"
        assert [it for it in world.asked if it not in single].count(tuple(range(nodes))) == 4, "locks, and owners, once each"
    assert search.scanned == 300 * looked
    assert world.rests == []


def test_owners_are_asked_for_once() -> None:
    world = Nodes()
    found = world.rows(Search([of(3)], "*", 0.0))
    assert [it.owner for it in found] == ["host:97", "host:98"]


def test_it_rests_in_proportion_to_what_a_step_took() -> None:
    world = Nodes()
    world.rows(Search([of(3)], "*", 0.02))
    # A step is one round; with a lock that is new, three.
    assert world.rests == pytest.approx([49 * it for it in (3 * TOOK, 3 * TOOK, TOOK)]), "and not after the last step"
    worked = 8 * TOOK
    assert worked / (worked + sum(world.rests) + 49 * TOOK) == pytest.approx(0.02)
    hurried = Nodes()
    hurried.rows(Search([of(3)], "*", 1))
    assert hurried.rests == []


def test_it_does_not_rest_for_a_node_that_is_silent() -> None:
    world = Nodes(away=(4,), silent=1.0)
    assert [it.name for it in world.rows(Search([of(5)], "*", 0.02))] == ["a", "b"]
    assert max(world.rests) == pytest.approx(49 * 3 * TOOK)


def test_a_node_that_does_not_answer_is_left_out_while_enough_others_do() -> None:
    world = Nodes(away=(0, 2))
    assert [it.name for it in world.rows(Search([of(5)], "*", 0.0))] == ["a", "b"]
    assert [it for it in world.asked if len(it) == 1] == [(0,), (1,), (1,), (2,), (3,), (3,), (4,), (4,)]


def test_a_node_that_fails_in_the_middle_is_replaced_by_another_from_its_beginning() -> None:
    world = Nodes(fails=1)
    search = Search([of(5)], "*", 0.0)
    assert [it.name for it in world.rows(search)] == ["a", "b"]
    assert [it for it in world.asked if len(it) == 1] == [(0,), (0,), (1,), (1,), (2,), (2,), (3,), (3,)]
    assert search.scanned == 300 + 200 + 300 + 300


def test_too_few_nodes_are_an_error_that_says_why() -> None:
    world = Nodes(away=(0, 2, 4))
    with pytest.raises(NoQuorum, match=r"'x\*': .*3 nodes") as caught:
        world.rows(Search([of(5)], "x*", 0.0))
    assert caught.value.causes.keys() <= {"redis://node0:6379", "redis://node2:6379", "redis://node4:6379"}
    assert caught.value.waited > 0
    alone = Nodes(away=(0,))
    with pytest.raises(NoQuorum, match="no node is usable"):
        alone.rows(Search([of(1)], "*", 0.0))


def test_several_sets_are_looked_through_one_after_the_other() -> None:
    world = Nodes()
    search = Search([of(3), of(1)], "*", 0.0)
    assert [it.name for it in world.rows(search)] == ["a", "b"], "a lock that is on both is shown once"
    assert search.scanned == 900
    assert world.asked[-2:] == [(0,), (0,)]


@pytest.mark.parametrize("pause", [None, "0.1", True, -1, 1.5, 0.0001, float("inf"), float("nan")])
def test_what_is_no_share(pause: Any) -> None:
    with pytest.raises(ConfigError, match=r"^pause is"):
        Search([of(3)], "*", pause)
