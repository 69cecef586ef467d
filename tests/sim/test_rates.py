"""Rates in the simulator: callers who race, nodes that fail, and what may be allowed then.

The law is looked at from outside: a call counts from the moment at which its caller was told that it is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor
from typing import Any

import pytest
from sim.conftest import Build, Town, strikes
from sim.face import Holdfast

from holdfast.errors import NoQuorum, RateLimited
from holdfast.primitives.rate import plan as rate

pytestmark = pytest.mark.worlds

LIMIT, PERIOD = 5, 1.0
Limits = tuple[Any, Any]
ONE: Limits = (LIMIT, PERIOD)
SEEDS = range(2)


@dataclass
class Crowd:
    """Clients that call as often as they can, each with some callers; `allowed`: when, by the first node's clock less the way there."""

    town: Town
    options: dict[str, Any]
    callers: int = 2
    pause: float = 0.02
    limits: Limits = ONE
    allowed: list[float] = field(default_factory=list)
    refused: int = 0
    unknown: int = 0

    async def calls(self, client: Holdfast, seconds: float) -> None:
        world, limit = self.town.world, client.rate("mail", *self.limits, **self.options)
        await world.sleep(world.dice.uniform(0, self.pause))
        end = world.now + seconds
        while world.now < end:
            began = world.now
            try:
                told = await limit.take()
            except NoQuorum:
                self.unknown += 1
            else:
                self.refused += not told.allowed
                if told.allowed:
                    self.allowed.append(began)
            await world.sleep(world.dice.uniform(0, 2 * self.pause))

    def run(self, clients: list[Holdfast], seconds: float) -> None:
        self.town.ends([client.process.run(self.calls(client, seconds)) for client in clients for _ in range(self.callers)], seconds + 30)


def worst(moments: list[float], span: float) -> int:
    """How many there are at most in any stretch of time of this length."""
    moments = sorted(moments)
    return max((sum(start <= it < start + span for it in moments[at:]) for at, start in enumerate(moments)), default=0)


def crowd(build: Build, seed: int, fault: str = "", seconds: float = 3.0, limits: Limits = ONE, **options: Any) -> tuple[Town, Crowd]:
    """Callers of three clients race for `seconds`, while a minority of the nodes is harmed every second, others each time."""
    town = build(5, seed)
    clients = [town.client(node_timeout=0.1) for _ in range(3)]
    if fault:
        strikes(town, fault, seconds)
    callers = Crowd(town, options, limits=limits)
    callers.run(clients, seconds)
    return town, callers


# A call is counted from when it began, and a node counts it when it has got there: by as much the stretches may differ.
WAY = 0.02
# By options: how many calls there may be at most in a period.
MOST: list[tuple[dict[str, Any], int]] = [({}, 2 * LIMIT - 1), ({"burst": 1}, LIMIT), ({"algorithm": "fixed window"}, 2 * LIMIT)]


@pytest.mark.parametrize("options, most", MOST, ids=["gcra", "no burst", "fixed window"])
def test_without_failures_never_more_than_the_limit_and_hardly_less(town: Build, options: dict[str, Any], most: int) -> None:
    """Hardly anything is lost to their racing: most of three periods' calls are allowed, though far more are wanted."""
    # Rule RA1.
    for seed in SEEDS:
        _, callers = crowd(town, seed, **options)
        assert worst(callers.allowed, PERIOD - WAY) <= most, seed
        assert 0.8 * 3 * LIMIT <= len(callers.allowed) <= 4 * LIMIT, seed
        assert callers.refused > 4 * len(callers.allowed), "they asked for far more"
        assert not callers.unknown


def test_without_failures_never_more_than_any_limit(town: Build) -> None:
    for seed in SEEDS:
        _, callers = crowd(town, seed, seconds=5.0, limits=([(LIMIT, PERIOD), (2 * LIMIT, 2.5)], None))
        assert worst(callers.allowed, PERIOD - WAY) <= 2 * LIMIT - 1, seed
        assert worst(callers.allowed, 2.5 - WAY) <= 4 * LIMIT - 1, seed
        assert len(callers.allowed) >= 0.8 * (2 * LIMIT + 5.0 / 2.5 * 2 * LIMIT), "and nearly all of it is used"


def test_refusals_cost_one_node_one_command(town: Build) -> None:
    """Whoever is refused is so by the first node: load that is turned away is no load for the others."""
    here, callers = crowd(town, 1)
    calls = sorted(node.server.calls[b"EVALSHA"] for node in here.nodes)
    assert calls[-2] <= 1.5 * len(callers.allowed) + 3
    assert calls[-1] >= callers.refused


# ------------------------------------------------ nodes that fail


@pytest.mark.parametrize("fault", ["frozen", "cut", "away"])
def test_with_failures_at_most_n_of_q_times_the_limit(town: Build, fault: str) -> None:
    most = floor(5 / 3 * (2 * LIMIT - 1))
    for seed in SEEDS:
        _, callers = crowd(town, seed, fault)
        assert worst(callers.allowed, PERIOD - 0.2) <= most, seed
        assert len(callers.allowed) >= 4, "and some are allowed all the while"


def test_a_node_that_hangs_is_waited_for_once(town: Build) -> None:
    here = town(3)
    client = here.client(node_timeout=0.5)
    here.nodes[1].freeze(100)
    limit, times = client.rate("mail", 1000, 1), list[float]()
    for _ in range(4):
        began = here.world.now
        assert here.world.do(limit.take())
        times.append(here.world.now - began)
    assert 0.4 < times[0] < 1.1
    assert max(times[1:]) < 0.05


def test_what_a_quorum_could_not_be_had_for_is_given_back(town: Build) -> None:
    # Rule RA2.
    here = town(3)
    client = here.client(node_timeout=0.2)
    limit = client.rate("mail", 2, 100)
    for node in here.nodes[:2]:
        node.stop()
    for _ in range(5):
        with pytest.raises(NoQuorum):
            here.world.do(limit.take())
    for node in here.nodes[:2]:
        node.start()
    other = here.client(restart_guard=None)
    assert [bool(here.world.do(other.rate("mail", 2, 100).take())) for _ in range(3)] == [True, True, False]


# ------------------------------------------------ turns


@dataclass
class Queue:
    """Callers that wait, of several clients, who come one after the other. `served`: who, when, in that order."""

    town: Town
    options: dict[str, Any]
    limit: Limits = ONE
    served: list[tuple[int, float]] = field(default_factory=list)
    limited: int = 0
    unknown: int = 0

    async def waits(self, client: Holdfast, number: int, after: float) -> None:
        await self.town.world.sleep(after)
        try:
            await client.rate("mail", *self.limit, **self.options).acquire()
        except RateLimited:
            self.limited += 1
        except NoQuorum:
            self.unknown += 1
        else:
            self.served.append((number, self.town.world.now))

    def begin(self, clients: list[Holdfast], count: int, gap: float) -> list[Any]:
        turns = zip(range(count), clients * count, strict=False)
        return [client.process.run(self.waits(client, at, at * gap)) for at, client in turns]

    def run(self, count: int, gap: float, seconds: float) -> None:
        self.town.ends(self.begin([self.town.client() for _ in range(3)], count, gap), seconds)

    @property
    def commands(self) -> int:
        return sum(node.server.calls[b"EVALSHA"] for node in self.town.nodes)


def test_a_hundred_who_wait_cost_a_turn_and_a_take_each(town: Build) -> None:
    """Twenty calls a second, and a hundred who want one each: those who polled asked more than six thousand times."""
    here = town(5)
    queue = Queue(here, {"burst": 1}, (20, 1.0))
    queue.run(100, 0.001, 20)
    assert len(queue.served) == 100
    assert queue.commands <= 100 * (1 + 5) * 1.5
    moments = [at for _, at in queue.served]
    assert worst(moments, 1.0 - WAY) <= 20, "and never more than the limit"
    assert max(moments) - min(moments) <= 99 / 20 * 1.05 + 0.1, "and all of it is used"


@pytest.mark.parametrize("count", [1, 3, 5])
def test_they_are_served_in_the_order_in_which_they_came(town: Build, count: int) -> None:
    for seed in SEEDS:
        queue = Queue(town(count, seed), {"burst": 1})
        queue.run(30, 0.03, 20)
        order = [number for number, _ in queue.served]
        assert len(order) == 30
        assert order == sorted(order), seed


def test_nobody_gets_in_before_those_who_wait(town: Build) -> None:
    """How many of those who do not wait get in while others do."""
    here = town(3)
    queue = Queue(here, {})
    tasks = queue.begin([here.client()], 20, 0.001)
    here.world.run(here.world.now + 0.3)
    client, allowed = here.client(), 0
    for _ in range(200):
        allowed += bool(here.world.do(client.rate("mail", LIMIT, PERIOD).take()))
        here.world.run(here.world.now + 0.002)
    here.ends(tasks, 10)
    assert len(queue.served) == 20
    assert allowed == 0


@pytest.mark.parametrize("fault", ["frozen", "cut", "away"])
def test_with_failures_those_who_wait_are_served_and_never_more_than_may_be(town: Build, fault: str) -> None:
    for seed in SEEDS:
        here = town(5, seed)
        queue = Queue(here, {"burst": 1})
        tasks = queue.begin([here.client(node_timeout=0.1) for _ in range(3)], 20, 0.01)
        strikes(here, fault, 3)
        here.ends(tasks)
        assert len(queue.served) + queue.unknown == 20
        assert len(queue.served) >= 10
        assert worst([at for _, at in queue.served], PERIOD - 0.2) <= floor(5 / 3 * LIMIT), seed


def test_turns_of_those_who_die_are_lost_for_a_while_at_most(town: Build) -> None:
    """Ninety callers want a call a second each, and die soon. How long does one that comes then wait?"""
    here = town(3)
    queue = Queue(here, {}, (1, 1.0))
    doomed = here.client()
    queue.begin([doomed], 90, 0.001)
    here.world.run(here.world.now + 2.5)
    doomed.process.crash()
    client, began = here.client(), here.world.now
    here.world.do(client.rate("mail", 1, 1.0).acquire())
    assert here.world.now - began <= 2 * rate.LEAD


def test_turns_far_ahead_are_reserved_later_and_everybody_is_served(town: Build) -> None:
    """Sixty who want a call a second each: ten turns at first, then as many more as time goes by. Who came first is not starved."""
    # Rule RA7.
    queue = Queue(town(3), {}, (1, 1.0))
    queue.run(60, 0.01, 120)
    assert len(queue.served) == 60
    assert queue.commands <= 60 * 14
    moments = [at for _, at in queue.served]
    assert max(moments) - min(moments) <= 70


def test_who_cannot_wait_long_enough_reserves_nothing(town: Build) -> None:
    here = town(3)
    queue = Queue(here, {"wait": 2.0}, (1, 1.0))
    queue.run(10, 0.001, 30)
    began = here.world.now
    assert (queue.limited, len(queue.served)) == (7, 3)
    here.world.do(here.client().rate("mail", 1, 1.0).acquire())
    assert here.world.now - began < 1.5


# ------------------------------------------------ what is given back


def take_at_once(tally: Any, patience: int, turn: int) -> Any:
    """All nodes are asked together, from the first on."""
    yield from tally.ask(len(tally._place.order), tally._limits.algorithm.take(tally._cost))


@pytest.mark.parametrize("together", [False, True])
def test_a_rush_gets_the_limit_in_the_end_and_no_more(town: Build, monkeypatch: pytest.MonkeyPatch, together: bool) -> None:
    """Eighteen callers of three clients come at the same moment, and then as many one by one as the limit allows."""
    if together:
        monkeypatch.setattr(rate.RateTally, "take", take_at_once)
    for seed in range(12):
        here = town(5, seed)
        clients = [here.client() for _ in range(3)]
        first = here.ends([it.process.run(it.rate("mail", LIMIT, 1000).take()) for it in clients for _ in range(6)], 1)
        here.world.run(here.world.now + 0.1)
        after = [here.world.do(clients[0].rate("mail", LIMIT, 1000).take()) for _ in range(LIMIT)]
        assert sum(map(bool, [*first, *after])) == LIMIT, seed
        # Why one node is asked first: those who race for a call would get it on some nodes each, and nobody on all.
        assert sum(map(bool, first)) <= 1 if together else all(not it for it in after), seed


def test_nothing_is_given_back_to_nodes_that_did_not_answer(town: Build) -> None:
    """It may overtake what it gives back, or outlive it, and would make more of the limit then."""
    for seed in SEEDS:
        here = town(3, seed)
        one, other = here.client(), here.client()
        told = [bool(here.world.do(it.rate("mail", 2, 1000).take())) for it in (one, one, other, other, other, other)]
        assert told == [True] * 2 + [False] * 4, seed
