"""Restart guards that end early: for how long a node is left alone, and that no law is broken by it."""

from __future__ import annotations

from typing import Any

import pytest
from sim.conftest import Build
from sim.face import Holdfast

from holdfast.errors import LockLost, NotAcquired

SHORT = 12.0  # seconds: the short guard


def until_used(place: Any, locks: Holdfast, node: int) -> float:
    """Restart a node. Returns for how many seconds it is not used."""
    place.nodes[node].restart()
    began = place.world.now
    place.world.run(began + 1.0)
    place.world.run(began + 60.0, lambda: locks.driver.engine.node_set.states[node] == "up")
    return float(place.world.now - began)


def test_a_rolling_restart_takes_twelve_seconds_a_node(town: Build) -> None:
    # Rule G15.
    place = town(3)
    locks = place.client()
    fences = []
    for node in range(3):
        assert SHORT < until_used(place, locks, node) < SHORT + 0.5
        lease = place.world.do(locks.lock("x").acquire())
        fences.append(lease.fence)
        place.world.do(lease.release())
    assert fences == sorted(set(fences))


def test_a_node_waits_for_all_of_its_guard_while_a_long_ttl_is_in_use(town: Build) -> None:
    place = town(3)
    locks, long = place.client(), place.client()
    lease = place.world.do(long.lock("y", ttl=20.0).acquire())
    assert 31.5 < until_used(place, locks, 0) < 33.0
    assert lease.held


class Restarts:
    """Nodes that restart empty again and again, beside clients with long and with usual ttls that lose touch with some of them."""

    def __init__(self, build: Build, seed: int) -> None:
        self.place = build(3 + 2 * (seed % 2), seed)
        self.world, self.dice = self.place.world, self.place.world.dice
        self.held = 0
        self.clients: list[Holdfast] = []
        for _ in range(3):
            self.joins()
        self.world.after(5.0, self.goes_wrong)

    def joins(self) -> None:
        """A client that knows nothing of what was before, with a user."""
        client = Holdfast(self.world, self.place.nodes, outage=5)
        self.clients.append(client)
        client.process.run(self.wants(client, self.dice.choice((2.0, 10.0, 10.0, 30.0, 30.0))))

    async def wants(self, client: Holdfast, ttl: float) -> None:
        while True:
            await self.world.sleep(self.dice.choice((0.0, 0.1, self.dice.uniform(0.0, 5.0))))
            try:
                async with client.lock("x", ttl=ttl, wait=self.dice.choice((0, 1.0, None))):
                    self.held += 1
                    await self.world.sleep(self.dice.choice((0.01, 1.0, ttl, 2 * ttl)))
            except (NotAcquired, LockLost):
                pass

    def goes_wrong(self) -> None:
        node, client = self.dice.choice(self.place.nodes), self.dice.choice(self.clients)
        match self.dice.choice(("restart", "restart", "restart", "vanish", "cut", "stop", "kill")):
            case "restart":
                node.restart()
            case "vanish":
                node.vanish(self.dice.uniform(0.0, 30.0))
            case "cut":
                for link in list(node.links):
                    link.cut(self.dice.choice((None, self.dice.uniform(0.0, 20.0))))
            case "stop":
                client.process.pause(self.dice.uniform(0.0, 10.0))
            case "kill":
                client.process.crash()
                self.clients.remove(client)
                self.joins()
        self.world.after(self.dice.expovariate(1 / 6), self.goes_wrong)


@pytest.mark.worlds
def test_no_law_is_broken_where_guards_end_early(town: Build) -> None:
    stories = [Restarts(town, seed) for seed in range(3)]
    for it in stories:
        it.world.run(150.0)
    assert sum(it.held for it in stories) > 10
