"""Scenes: what chance alone would hardly ever bring about, set up step by step; how long everything
takes is left to chance.

Knows the protocol's rare rules, each of which has its scene. Must not know what the laws say.
"""

from __future__ import annotations

from typing import Unpack

from holdfast.protocol.claim import Claim, State
from holdfast.protocol.timing import Timing
from holdfast.testing.client import SimulatedClient
from holdfast.testing.faults import CEDE
from holdfast.testing.network import SimulatedConnection
from holdfast.wire.resp import pack

from .faults import promote
from .stage import Hold, How, Stage, begins, extends, news, wants


class LateCede(Stage):
    """A cede is cut, and executed late; meanwhile its claim comes back to the node, and could have
    its majority there.

    High has the higher ticket, and is first on nodes 0 and 1; low is first on node 2, and asks high
    to make way on node 0. That cede is cut. High speaks to node 0 again: if it took the answer for
    a grant, it would hold 0 and 1. Then the cede is executed, and low holds 0 and 2.
    """

    name = "a late cede"
    aim = ("cedes cut", "commands executed after their connection broke", "held")

    def __init__(self, seed: int, **how: Unpack[How]) -> None:
        super().__init__(seed, 3, 1.0, **how)

    def _play(self) -> None:
        world = self.world
        dice = self.world.dice
        low = self.client()
        high = self.client()
        world.run(1.5)
        first = wants(low, self.recipe(1.0), Timing(1.0))
        world.run(1.6)
        second = wants(high, self.recipe(1.0), Timing(1.0))
        for node in self.nodes:
            node.sent = self._cut
        tasks = [high.process.run(self._user(high, second, {1: dice.uniform(0.008, 0.016), 2: dice.uniform(0.3, 0.5)}))]
        world.run(1.606)
        tasks.append(low.process.run(self._user(low, first, {1: dice.uniform(0.3, 0.5)})))
        self._by(12.0, lambda: all(task.done() for task in tasks), "both are to be served")

    async def _user(self, driver: SimulatedClient, claim: Claim, slow: dict[int, float]) -> None:
        for node, seconds in slow.items():
            _link(driver, node).stall(seconds)
        await begins(driver, claim)
        if claim.state is State.HELD:
            self.world.saw("held")
            await self.world.sleep(self.world.dice.uniform(0.0, 3.0))
        driver.driver.let_go(claim)

    def _cut(self, link: SimulatedConnection, data: bytes) -> None:
        if CEDE in data and "cedes cut" not in self.world.seen:
            self.world.saw("cedes cut")
            link.cut(self.world.dice.uniform(0.01, 0.4))


class ShorterLease(Stage):
    """A renewal is late, and executed after an extension by a longer ttl, on a node where its claim
    waits by now.

    An operator gives node 2 to somebody else. The holder's next renewal is under way to it for
    long, its connection is given up, and on the next one the lease is extended: on node 0 it is,
    node 1 does not hear of it, on node 2 it waits. Then the old renewal comes there, then the other
    goes, and the holder has the node: for how long?
    """

    name = "a shorter lease, late"
    aim = ("node 2 is back", "commands executed after their connection broke")

    def __init__(self, seed: int, **how: Unpack[How]) -> None:
        super().__init__(seed, 3, 1.0, **how)

    def _play(self) -> None:
        holder = self.client()
        other = self.client()
        self.world.run(1.5)
        task = holder.process.run(self._hold(holder, other))
        self._by(12.0, task.done, "it is to end")

    async def _hold(self, holder: SimulatedClient, other: SimulatedClient) -> None:
        world = self.world
        dice = self.world.dice
        node = self.nodes[2]
        hold = Hold()
        name = self.recipe(1.0).name
        # Its ticket is lower: it will not make way.
        waiting = wants(other, self.recipe(1.0), Timing(1.0))
        await world.sleep(0.1)
        await holder.driver.acquire(hold, [self.recipe(0.5)], Timing(0.5))
        began = world.now
        claim = hold.claim
        await world.sleep(0.01)
        begins(other, waiting)
        await world.sleep(0.01)
        self.laws.takes_away(node, name)
        node.tell(pack(b"DEL", name))
        promote(node, self.recipe(1.0))
        _link(holder, 2).stall(dice.uniform(0.36, 0.40))
        await world.sleep(began + 0.36 - world.now)
        self.nodes[1].vanish(0.1)
        holder.process.run(extends(holder, claim, 1.0))
        await world.sleep(dice.uniform(0.03, 0.1))
        other.driver.let_go(waiting)
        await world.sleep(0.005)
        world.saw("node 2 is back", node.holder(name) == claim.token)
        for each in self.nodes:
            each.vanish(2.0)
        await world.sleep(2.0)
        holder.driver.let_go(claim)


class LastMoment(Stage):
    """Clocks are as wrong as they may be: the holder's is slow, the nodes' are fast, and step
    forward.

    Answers take long.

    It holds the lock to the last moment, and does not renew it.
    """

    name = "the last moment"
    aim = ("held to the end", "another is next")

    def __init__(self, seed: int, **how: Unpack[How]) -> None:
        super().__init__(seed, 3, 1.0, **how)

    def _play(self) -> None:
        holder = self.client()
        other = self.client()
        self.world.run(1.5)
        holder.clock.becomes(0.9965)
        for node in self.nodes:
            node.clock.becomes(1.0035)
        tasks = [holder.process.run(self._hold(holder)), other.process.run(self._wait(other))]
        self._by(12.0, lambda: all(task.done() for task in tasks), "both are to be served")

    async def _hold(self, holder: SimulatedClient) -> None:
        hold = Hold()
        dice = self.world.dice
        for index in range(3):
            _link(holder, index).stall(dice.uniform(0.02, 0.1), answers_only=True)
        await holder.driver.acquire(hold, [self.recipe(1.0)], Timing(1.0, renew=False))
        await self.world.sleep(dice.uniform(0.0, 0.8))
        for node in self.nodes:
            node.clock.step(0.002)
        await news(holder, hold.claim)
        self.world.saw("held to the end")

    async def _wait(self, other: SimulatedClient) -> None:
        await self.world.sleep(0.1)
        hold = Hold()
        await other.driver.acquire(hold, [self.recipe(1.0)], Timing(1.0))
        self.world.saw("another is next")
        other.driver.let_go(hold.claim)


def _link(driver: SimulatedClient, node: int) -> SimulatedConnection:
    link = driver.link(node)
    assert link is not None
    return link


SCENES = (LateCede, ShorterLease, LastMoment)
