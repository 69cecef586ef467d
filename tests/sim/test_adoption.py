"""Leases that go from owner to owner, while nodes, connections and clients fail.

The laws of every world watch, for which giver and adopter are one holder after the other. *Once*: no ticket is adopted twice. *Stuck*: when
the faults are over, the name can be had.
"""

from __future__ import annotations

from typing import Any

import pytest
from sim.conftest import Build, Town
from sim.face import Holdfast
from sim.test_latches import Storm

from holdfast.aio import Lease
from holdfast.errors import Cancelled, LockBusy, LockLost, NoQuorum
from holdfast.testing.world import Violation

pytestmark = pytest.mark.stories

OPTIONS: dict[str, Any] = {"ttl": 1.0, "max_ttl": 2.0, "node_timeout": 0.3, "outage": 1000.0}
SEEDS = range(10)
SECONDS = 25.0


class Relay:
    """Clients that hand one lease on and on. A ticket reaches several of them, soon, late or never."""

    def __init__(self, town: Town, seed: int) -> None:
        self.town, self.world, self.dice = town, town.world, town.world.dice
        self.clients = [Holdfast(town.world, town.nodes, **OPTIONS) for _ in range(4)]
        self.tickets: list[str] = []
        self.adopted: dict[str, int] = {}
        self.failed = self.handed = 0
        self.ends = self.world.now + SECONDS
        self.tasks = [it.process.run(self.owner(it)) for it in self.clients]
        self.tasks += [it.process.run(self.adopter(it)) for it in self.clients for _ in range(2)]
        if seed % 3:
            Storm(town, self.clients)

    async def owner(self, client: Holdfast) -> None:
        """Takes the lock now and then, and hands it over."""
        while self.world.now < self.ends:
            await self.world.sleep(self.dice.uniform(0.0, 1.0))
            try:
                await self.hands_over(await client.lock("x", wait=2.0).acquire())
            except (LockBusy, LockLost, NoQuorum):
                pass

    async def hands_over(self, lease: Lease) -> None:
        await self.world.sleep(self.dice.choice([0.0, 0.01, 0.5]))
        try:
            self.tickets.append(await lease.hand_over(self.dice.choice([0.1, 0.5, 2.0])))
            self.handed += 1
        except NoQuorum:
            await lease.release()

    async def adopter(self, client: Holdfast) -> None:
        """Adopts what there is, works, and gives it back, hands it on, or is not heard of again."""
        while self.world.now < self.ends:
            await self.world.sleep(self.dice.choice([0.0, 0.02, 0.3]))
            if not self.tickets:
                await self.world.sleep(0.01)
                continue
            ticket = self.dice.choice(self.tickets[-3:])
            try:
                lease = await client.adopt(ticket)
                self.adopted[ticket] = self.adopted.get(ticket, 0) + 1
                if self.adopted[ticket] > 1:
                    raise Violation(f"once: {ticket} is adopted by two")
                if self.dice.random() < 0.4:
                    await self.hands_over(lease)
                else:
                    await self.world.sleep(self.dice.uniform(0.0, 0.6))
                    await lease.release()
            except (LockLost, NoQuorum, Cancelled):
                self.failed += 1


@pytest.mark.parametrize("seed", SEEDS)
def test_no_law_is_broken_while_leases_go_from_owner_to_owner(town: Build, seed: int) -> None:
    here = town((3, 5, 2)[seed % 3], seed, guard=4.0)
    relay = Relay(here, seed)
    here.world.run(relay.ends)
    for node in here.nodes:
        node.heal()
    here.ends(relay.tasks, what="owners and adopters")
    here.ends([relay.clients[0].process.run(relay.clients[0].lock("x").acquire())], 20.0, "the name")
    assert sum(relay.adopted.values()) and relay.handed and relay.failed, "some were adopted, and some came too late"
