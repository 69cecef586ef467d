"""What a seed's world has in it before anything happens: nodes, clients, and laws that watch.

Knows how the pieces are put together. Must not know what will happen to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from random import Random
from types import SimpleNamespace
from typing import Any, TypedDict, Unpack

from holdfast.drivers.access import accesses
from holdfast.drivers.aio.driver import Driver
from holdfast.engine.ready import Want
from holdfast.engine.settings import DEFAULT_GUARD, settings
from holdfast.events import Event
from holdfast.node import Node as Named
from holdfast.protocol.claim import Claim
from holdfast.protocol.command import Recipe
from holdfast.protocol.exclusive import Exclusive
from holdfast.protocol.quorum import bound
from holdfast.protocol.ticket import Tickets
from holdfast.protocol.timing import Timing
from holdfast.testing.client import SimulatedClient
from holdfast.testing.network import WALL
from holdfast.testing.process import Process
from holdfast.testing.world import DriftingClock, Violation

from .calm import CalmLaws
from .laws import SwarmLaws
from .nodes import ReplaceableNode
from .tasks import TaskWorld

# By how much clocks run too fast or too slow, at most: less than the drift allows for.
RATE = 0.002


class Hold:
    """What a user holds who needs no face."""

    __slots__ = ("__weakref__", "_want")
    # A Claim; of several names, a JointRequest. Drivers write it.
    _want: Any

    @property
    def claim(self) -> Any:
        """A Claim; of several names, a JointRequest."""
        return self._want

    def _told_lost(self) -> None:
        pass


class Hasty(Tickets):
    """Tickets of a client that may be ahead of their time, or behind it, by `haste` seconds."""

    def __init__(self, inbox: bytes, dice: Random, haste: float) -> None:
        super().__init__(inbox)
        self.dice, self.haste = dice, haste

    def ticket(self, time: float) -> int:
        return super().ticket(time + self.dice.uniform(-self.haste, self.haste))


# What a scene does step by step, and `Driver.acquire` at once.


def wants(driver: SimulatedClient, recipe: Recipe, timing: Timing) -> Claim:
    """Make a claim with a ticket of now. A scene may begin it later."""
    return driver.engine.claim(recipe, timing, driver.clock())


def begins(driver: SimulatedClient, claim: Claim) -> asyncio.Future[None]:
    """Send the claim's requests. Await its next news."""
    future = news(driver, claim)
    driver.driver.do(driver.engine.begin, claim, driver.clock())
    return future


def news(driver: SimulatedClient, claim: Want) -> asyncio.Future[None]:
    """The next news of a claim, to be awaited."""
    future: asyncio.Future[None] = driver.driver.loop.create_future()
    driver.driver.waiting.for_claim(claim, future)
    return future


async def extends(driver: SimulatedClient, claim: Want, ttl: float, **options: Any) -> None:
    """Extend the lease. Laws see to it that it lasts as long as that was confirmed."""
    until = bound(driver.clock(), ttl)
    await driver.driver.extend(claim, ttl, **options)
    if claim.setback is None and isinstance(driver.laws, SwarmLaws):
        for it in claim.claims:
            driver.laws.extended(driver, it, until)


class How(TypedDict, total=False):
    """What may be different on any stage.

    `only`, `records`: as of a World.
    """

    only: Collection[str] | None
    records: bool


class Stage:
    """A world, and everything in it. `how`: see How."""

    name = ""
    # What has to happen in it, or a run does not count.
    aim: tuple[str, ...] = ()

    def __init__(
        self, seed: int, nodes: int, max_ttl: float, *, calm: bool = False, outlives: float = 0.0, moves: bool = False, **how: Unpack[How]
    ) -> None:
        world = TaskWorld(seed, only=how.get("only"), records=how.get("records", True))
        self.world = world
        self.nodes = [ReplaceableNode(world, index, self._clock(f"node {index}", WALL, 0.05)) for index in range(nodes)]
        # Where a node's place can be asked for, clients see to it that nobody uses the old one.
        failover = outlives if outlives and not moves else None
        named = [Named(it.url, resolve=it.where if moves else None, failover=failover) for it in self.nodes]
        self.access = accesses(named, None, None)
        self.settings = settings(
            [it.address for it in named],
            ttl=max_ttl,
            max_ttl=max_ttl,
            prefix="",
            node_timeout=0.3,
            restart_guard=DEFAULT_GUARD,
            outage=5.0,
            owner="simulated",
        )
        self.guard = max_ttl + 2.0
        # For how long nobody may use a node that restarted, or was promoted.
        self.longest = self.guard + (max_ttl / 2 if moves else outlives)
        self.laws = (CalmLaws if calm else SwarmLaws)(world, self.nodes, self.longest)
        self.drivers: list[SimulatedClient] = []
        # What their observers would have heard.
        self.told: dict[SimulatedClient, list[Event]] = {}
        self._clients = 0

    def client(self, haste: float = 0.0) -> SimulatedClient:
        """One more client, in a process of its own. `haste`: of its tickets."""
        self._clients += 1
        world, dice = self.world, self.world.dice
        clock = self._clock(f"client {self._clients}", 1e6, 1e6)
        process: Process[Any] = Process(world, f"process {self._clients}", self.nodes, world.loop, clock)
        told: list[Event] = []
        # (A log that takes no event has seen each of them.)
        listeners: Any = SimpleNamespace(observers=(), logs=told.append)
        made = world.loop.enter(process.within, Driver, self.settings, self.access, listeners, dice.random() < 0.5)
        driver = world.clients[made]
        self.told[driver] = told
        driver.engine.tickets = Hasty(driver.engine.tickets.inbox, dice, haste)
        # It dials at once, and not only when it is used.
        driver.driver.steer(lambda engine, now: None)
        self.drivers.append(driver)
        return driver

    def recipe(self, ttl: float, name: str = "L") -> Exclusive:
        """The lock that everybody wants."""
        return Exclusive(name, ttl=ttl, horizon=self.settings.horizon)

    def run(self) -> dict[str, int]:
        """Let it all happen. Raises Violation. Returns how often what happened."""
        try:
            self._play()
        finally:
            self.world.close()
        return self.world.seen

    @property
    def void(self) -> tuple[str, ...]:
        """What the run was aimed at, and did not happen: then it does not count."""
        return tuple(it for it in self.aim if it not in self.world.seen)

    def _play(self) -> None:
        """What happens on it. (Not abstract: tests of the laws set a bare stage, and never let it
        run.)
        """
        raise NotImplementedError

    def _clock(self, whose: str, ahead: float, about: float) -> DriftingClock:
        dice = self.world.chance.dice(f"the clock of {whose}")
        return DriftingClock(self.world, ahead + dice.uniform(-about, about), 1 + dice.uniform(-RATE, RATE))

    def _by(self, ends: float, done: Callable[[], bool], what: str, law: str = "recovery") -> None:
        """It has to be done by then."""
        world = self.world
        began = self.world.now
        self.laws.looked[law] += 1
        world.run(ends, done)
        if not done():
            waits = ", ".join(claim.token.decode() for claim in self.laws.open) or "somebody"
            raise Violation(f"{law}: {what}: {waits} still waits, {world.now - began:.1f} s after the last fault")
