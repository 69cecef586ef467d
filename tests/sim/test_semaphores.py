"""Semaphores whose number of permits is changed by a rolling deployment, while nodes and clients fail.

The laws. *More*: the permits that are held at one moment are never more than the largest number that a living client names, and a client
holds none beyond its own number. *Twice*: nobody holds a permit that somebody else holds. *Stuck*: when the faults are over, everybody is
served, whatever number each names. *Refused*: nobody is told NoQuorum sooner than the client's `outage` allows.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from sim.conftest import Build, Town
from sim.face import Holdfast
from sim.test_latches import Storm

from holdfast.aio import Lease
from holdfast.errors import LockLost
from holdfast.protocol.claim import State
from holdfast.testing.world import Violation

pytestmark = pytest.mark.stories

OPTIONS: dict[str, Any] = {"ttl": 2.0, "max_ttl": 2.0, "node_timeout": 0.5, "outage": 1000.0}
SEEDS = range(8)
USERS, TIMES = 3, 4  # of each client; how often each of them has a permit
CHANGES = {"grows": (2, 5), "shrinks": (5, 2), "is one": (3, 3)}


class Deployment:
    """Clients that name one number of permits, and are replaced one after the other by clients that name another one."""

    def __init__(self, town: Town, before: int, after: int) -> None:
        self.town, self.after = town, after
        self.numbers: dict[Holdfast, int] = {}
        self.inside: dict[Lease, Holdfast] = {}
        self.tasks: list[Any] = []
        self.most = 0
        for _ in range(3):
            self.start(before)
        town.world.looks.append(self.look)

    def start(self, number: int) -> Holdfast:
        """One more client, and its users."""
        client = Holdfast(self.town.world, self.town.nodes, **OPTIONS)
        self.numbers[client] = number
        self.tasks += [client.process.run(self.user(client, it)) for it in range(USERS)]
        return client

    def replace(self, client: Holdfast) -> None:
        """Its process is killed, and another one comes."""
        client.process.crash()
        del self.numbers[client]
        self.start(self.after)

    async def user(self, client: Holdfast, which: int) -> None:
        world, dice = self.town.world, self.town.world.dice
        for _ in range(TIMES):
            await world.sleep(dice.uniform(0.0, 1.5))
            count = min(1 + (which == 0), self.numbers[client])
            lease = await client.semaphore("pool", self.numbers[client], count=count).acquire()
            self.inside[lease] = client
            try:
                await world.sleep(dice.uniform(0.01, 0.5))
                await lease.release()
            except LockLost:
                world.saw("lost")
            finally:
                del self.inside[lease]

    def look(self) -> None:
        """See whether everything is as it must be."""
        held = Counter[int]()
        for lease, client in self.inside.items():
            if client not in self.numbers or lease._want.state is not State.HELD or client.driver.clock() >= lease._want.until:
                continue
            if max(lease.slots) >= self.numbers[client]:
                raise Violation(f"more: {lease.slots} of a client that names {self.numbers[client]}")
            held.update(lease.slots)
        if held and max(held.values()) > 1:
            raise Violation(f"twice: {held}")
        self.most = max(self.most, len(held))
        if len(held) > max(self.numbers.values()):
            raise Violation(f"more: {len(held)} are held, and the living name {sorted(self.numbers.values())}")


def deployed(build: Build, seed: int, change: str) -> Deployment:
    """A rolling deployment in trouble; Violation says which law is broken."""
    town = build(5, seed)
    before, after = CHANGES[change]
    here = Deployment(town, before, after)
    world, old = town.world, list(here.numbers)
    Storm(town, old)
    for number, client in enumerate(old):
        world.after(2.0 + 3.0 * number, here.replace, client)
    world.run(world.now + 12.0)
    for node in town.nodes:
        node.heal()
    # The first three clients were killed: their tasks never end.
    town.ends(here.tasks[3 * USERS :])
    return here


@pytest.mark.parametrize("change", CHANGES)
def test_a_rolling_deployment_keeps_to_the_largest_number_that_is_named(town: Build, change: str) -> None:
    most = [deployed(town, seed, change).most for seed in SEEDS]
    assert max(most) == max(CHANGES[change]), "all of them were held at some moment, or nothing was shown"


@pytest.mark.parametrize("trouble", ["guard", "freeze"])
def test_permits_are_waited_for_as_a_lock_is(town: Build, trouble: str) -> None:
    """No majority can be spoken to for some seconds: a request waits, and takes its place afterwards."""
    here = town(3, 1)
    client = here.client(**OPTIONS)
    for node in here.nodes[:2]:
        if trouble == "guard":
            node.restart()
        else:
            node.freeze(3.0)
    here.world.run(here.world.now + 1.0)
    task = client.process.run(client.semaphore("pool", 2, wait=20.0).acquire())
    here.world.run(here.world.now + 1.0)
    assert not task.done()
    assert here.ends([task], 18.0, "no permit")[0].held
