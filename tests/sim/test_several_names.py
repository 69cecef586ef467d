"""Several names under contention: 64 sets that overlap, asked for in any order, beside single locks and read-write locks.

The law: a set is held as a whole or not at all; each of its names has one holder (readers apart), whose fence is above all earlier ones;
nobody who waits for a set is passed by a later ticket for any name of it, unless that one was served before it could be asked to make way;
and everybody is served: with faults, after they have ended. What has to be true of each name by itself, and of each node that is counted,
is watched by the laws that watch every world (`holdfast.testing.laws`); what has to be true of sets only, here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from swarm.faults import Faults, WorldSettings
from swarm.stage import Hold, Stage

from holdfast.errors import NotAcquired
from holdfast.protocol.claim import Claim, State
from holdfast.protocol.command import READER, WRITER, Recipe
from holdfast.protocol.readwrite import ReadWrite
from holdfast.protocol.timing import Timing
from holdfast.testing.client import SimulatedClient
from holdfast.testing.faults import LATEST
from holdfast.testing.timeline import timeline
from holdfast.testing.world import Violation

pytestmark = pytest.mark.stories

TTL = 1.0
NAMES = [f"lock {letter}" for letter in "abcdefghijkl"]
SHARED = ["shared x", "shared y"]
SETS, SINGLES, READS = 64, 24, 24
CALM = WorldSettings(name="64 sets, calm", nodes=3, clients=8, calm=True)
ROUGH = WorldSettings(name="64 sets, rough", nodes=5, clients=8, ttls=(TTL,), seconds=8.0, faults=3.0, cuts=0.05, naps=0.02)
SERVED = 8.0  # seconds in which all are served where nothing goes wrong, if nobody has to wait for a lease to run out


@dataclass
class Wish:
    """What one caller wants, in his own order. `inside`: how often he was."""

    recipes: Sequence[Recipe]
    asks: float  # when
    keeps: float  # seconds
    inside: int = 0


class Crowd(Stage):
    """64 callers with sets of names, others with one of these names, and others who read and write names of their own."""

    def __init__(self, seed: int, plan: WorldSettings, **how: Any) -> None:
        super().__init__(seed, plan.nodes, TTL, calm=plan.calm, **how)
        self.plan, self.name = plan, plan.name
        for _ in range(plan.clients):
            self.client()
        self.faults = Faults(self.world, self.nodes, self.drivers, self.laws, plan, self.guard, lambda: None)
        dice = self.world.chance.dice("who wants what")
        self.wishes = [self._wish(dice, dice.sample(NAMES, dice.randint(2, 5))) for _ in range(SETS)]
        self.wishes += [self._wish(dice, [dice.choice(NAMES)]) for _ in range(SINGLES)]
        self.wishes += [self._wish(dice, [dice.choice(SHARED)], dice.choice((READER, READER, READER, WRITER))) for _ in range(READS)]
        self.world.looks.append(self.look)

    def _wish(self, dice: Random, names: Sequence[str], kind: bytes | None = None) -> Wish:
        horizon = self.settings.horizon
        recipes = [self.recipe(TTL, it) if kind is None else ReadWrite(it, kind, horizon=horizon) for it in names]
        burst, alone = dice.randrange(4) / 10, dice.uniform(0.0, 0.4 if self.plan.calm else self.plan.seconds)
        return Wish(recipes, burst if dice.random() < 0.7 else alone, dice.uniform(0.0, 0.02))

    def look(self) -> None:
        """All or nothing: the claims of a set are held together, and nobody has less than he asked for."""
        for joint in {claim.company: None for claim in self.laws.open if claim.company is not None}:
            states = Counter(it.state for it in joint.claims)
            if states[State.HELD] not in (0, len(joint.claims)):
                names = [it.recipe.label for it in joint.claims]
                raise Violation(f"whole: of {len(joint.claims)} names {states[State.HELD]} are held: {names}")

    def _play(self) -> None:
        world, calm = self.world, self.plan.calm
        world.run(1.5)
        tasks = [self.drivers[i % len(self.drivers)].process.run(self._user(it, i)) for i, it in enumerate(self.wishes)]
        if calm:
            ends = world.now + SERVED
        else:
            world.run(world.now + self.plan.seconds)
            self.faults.settle()
            ends = world.now + LATEST + TTL * 4 / 3 + self.guard * 5 / 4 + 2.3 + self.settings.node_timeout + SERVED
        self._by(ends, lambda: all(it.done() for it in tasks), "everybody is to be served")
        assert all(it.inside == 1 for it in self.wishes)

    async def _user(self, wish: Wish, number: int) -> None:
        """Ask until it is had; keep it for a moment; give it back. (Who is told that a majority is away asks again.)"""
        driver = self.drivers[number % len(self.drivers)]
        await self.world.sleep(wish.asks)
        while not wish.inside:
            hold = Hold()
            try:
                await driver.driver.acquire(hold, wish.recipes, Timing(TTL))
            except NotAcquired:
                self.world.saw("refused")
                await self.world.sleep(0.1)
            else:
                await self._reentrancy(driver, wish, hold)

    async def _reentrancy(self, driver: SimulatedClient, wish: Wish, hold: Hold) -> None:
        wish.inside += 1
        claims: Sequence[Claim] = hold.claim.claims
        assert [it.recipe for it in claims] == list(wish.recipes), "one claim for each name, in the caller's order"
        self.world.saw("a set held", len(claims) > 1)
        self.world.saw("waited for", any(it.contended for it in claims))
        await self.world.sleep(wish.keeps)
        self.world.saw("lost", hold.claim.state is State.LOST)
        driver.driver.let_go(hold.claim)


def lives(seed: int, plan: WorldSettings) -> Crowd:
    """Live through a seed's world: the test fails if a law is broken."""
    crowd = Crowd(seed, plan)
    try:
        crowd.run()
    except Violation as violation:
        pytest.fail("\n".join([f"seed {seed} ({plan.name}): {violation}", *timeline(crowd.world, 30)]), pytrace=False)
    return crowd


@pytest.mark.parametrize("seed", range(12))
def test_64_sets_are_each_had_as_a_whole_in_the_order_of_tickets(seed: int) -> None:
    crowd = lives(seed, CALM)
    seen, looked = crowd.world.seen, crowd.laws.looked
    assert seen["a set held"] == SETS
    assert seen["waited for"] > SETS // 2, "there was hardly any contention"
    assert seen["read by two"]
    assert looked["order"] >= SETS
    assert looked["fence"] >= SETS
    assert looked["idle"], "nobody ever was the lowest who waited for what was free"
    assert "lost" not in seen
    assert "refused" not in seen


@pytest.mark.parametrize("seed", range(12))
def test_64_sets_while_connections_nodes_and_clocks_fail(seed: int) -> None:
    crowd = lives(seed, ROUGH)
    assert crowd.world.seen["a set held"] == SETS
    assert crowd.world.chance.happened, "no fault happened"
    assert crowd.laws.looked["fence"] >= SETS // 2
