"""What a seed's world has in it before anything happens: nodes, clients, and laws that watch.

Knows how the pieces are put together. Must not know what will happen to them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypedDict, Unpack

from holdfast.engine.settings import DEFAULT_GUARD, settings
from holdfast.protocol.exclusive import Exclusive
from holdfast.testing.driver import Driver
from holdfast.testing.laws import Laws
from holdfast.testing.network import WALL, Node
from holdfast.testing.server import Lua
from holdfast.testing.world import DriftingClock, Violation, World
from holdfast.wire.address import parse

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


class How(TypedDict, total=False):
    """What may be different on any stage.

    `guard`: do clients know of the restart guard? `failover`: what they are told of old primaries,
    if that is not the truth; `lua`: what nodes run scripts in; `only`, `records`: as of a World.
    """

    guard: bool
    failover: float
    lua: Lua | None
    only: Collection[str] | None
    records: bool


class Stage:
    """A world, and everything in it. `how`: see How."""

    name = ""
    # What has to happen in it, or a run does not count.
    aim: tuple[str, ...] = ()

    def __init__(
        self,
        seed: int,
        nodes: int,
        max_ttl: float,
        *,
        calm: bool = False,
        outlives: float = 0.0,
        moves: bool = False,
        **how: Unpack[How],
    ) -> None:
        world = World(seed, only=how.get("only"), records=how.get("records", True))
        self.world = world
        # Where a node's place can be asked for, clients see to it that nobody uses the old one.
        bound = f"?failover={how.get('failover', outlives):g}" if outlives and not moves else ""
        self.settings = settings(
            [parse(f"redis://node{index}{bound}").but(moves=moves) for index in range(nodes)],
            ttl=max_ttl,
            max_ttl=max_ttl,
            prefix="",
            node_timeout=0.3,
            restart_guard=DEFAULT_GUARD if how.get("guard", True) else None,
            outage=5.0,
            owner="simulated",
        )
        self.guard = max_ttl + 2.0
        # For how long nobody may use a node that restarted, or was promoted.
        self.longest = self.guard + (max_ttl / 2 if moves else outlives)
        self.nodes = [
            Node(world, index, self._clock(f"node {index}", WALL, 0.05), how.get("lua")) for index in range(nodes)
        ]
        self.laws = Laws(world, self.nodes, self.longest, world.swift if calm else None)
        self.drivers: list[Driver] = []
        self._clients = 0

    def client(self, haste: float = 0.0) -> Driver:
        """One more client."""
        self._clients += 1
        clock = self._clock(f"client {self._clients}", 1e6, 1e6)
        driver = Driver(self.world, self.nodes, self.settings, clock, self.laws, haste)
        driver.engine.record.telling = self.world.dice.random() < 0.5
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
            for driver in self.drivers:
                driver.dead = driver.gone = True
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
