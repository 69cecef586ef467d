"""Results that are forgotten, in the simulator: what single stories show. (Its law: test_once and test_once_orders.)"""

from __future__ import annotations

import pytest
from sim.conftest import Build
from sim.test_once import TTL, Calm, Failed

from holdfast.errors import LockLost
from holdfast.primitives.once import commands as recipes
from holdfast.primitives.once.plan import begin
from holdfast.protocol.exclusive import beside
from holdfast.wire.resp import pack

pytestmark = pytest.mark.stories

KEEP = 10.0


class Late(Calm):
    """A result is forgotten while a node is away. The store of the run that made it arrives there later."""

    def __init__(self, build: Build, seed: int = 0) -> None:
        super().__init__(build, nodes=3, seed=seed)
        self.onces = [it.once("a", keep=KEEP) for it in self.clients]
        lock = self.onces[0]._terms.lock("a")
        register = recipes.Register(lock.name, lock.horizon)
        assert self.world.do(self.onces[0].run(self.does)) == 1
        node, self.other = self.town.nodes[seed % 3], self.town.nodes[(seed + 1) % 3]
        node.tell(pack(b"DEL", beside(lock.name, b"result")))
        node.vanish(0.4)
        assert self.world.do(self.onces[1].forget())
        self.forgotten = self.world.now
        self.world.run(self.world.now + 0.6)
        node.tell(register.store(self.fences[0], b"1", round(KEEP * 1000)))
        assert node.runs_out(beside(lock.name, b"result")) > self.forgotten + KEEP + 0.4, "it is kept there"

    def at_the_end_of_its_keep(self) -> Late:
        """When a note that lasts as long as the result would be gone, and the copy that came late is not."""
        self.world.run(self.forgotten + KEEP + 0.3)
        return self

    def asks(self) -> int:
        """What is told to a caller who hears of the late copy, since another node is away."""
        self.other.vanish(1.0)
        told: int = self.world.do(self.onces[2].run(self.does))
        return told


def test_a_late_store_does_not_undo_forgetting(town: Build) -> None:
    # Rule O13.
    for seed in range(3):
        assert Late(town, seed).asks() == 2
        assert Late(town, seed).at_the_end_of_its_keep().asks() == 2


def test_a_run_that_is_overtaken_by_forgetting_does_not_store_its_result(town: Build) -> None:
    """Its process is stopped for longer than its ttl, and its result is forgotten meanwhile."""
    # Rule O12.
    for seed in range(3):
        calm = Calm(town, nodes=3, seed=seed, clients=2, takes=0.3)
        first, second = calm.clients
        task = calm.wants(first)
        calm.world.run(calm.world.now + 0.1)
        first.process.pause(3 * TTL)
        assert calm.world.do(second.once("a", keep=1000).forget()) is False
        assert isinstance(calm.ends([task])[0], LockLost)
        assert not calm.world.do(second.once("a", keep=1000).result())
        assert calm.all_at_once() == [2] * 10


def test_what_was_forgotten_on_a_minority_only_is_forgotten_for_all_or_for_nobody(town: Build) -> None:
    """A note that a majority does not have yet is stored again before the function runs because of it."""
    # Rule O11.
    calm = Calm(town, nodes=3, clients=1)
    once = calm.clients[0].once("a", keep=1000)
    assert calm.world.do(once.run(calm.does)) == 1
    lock = once._terms.lock("a")
    register = recipes.Register(lock.name, lock.horizon)
    calm.town.nodes[0].tell(register.store(calm.fences[0] + 1, recipes.FORGOTTEN, 10**6))
    calm.town.nodes[1].vanish(0.3)

    async def fails() -> int:
        raise Failed

    with pytest.raises(Failed):
        calm.world.do(once.run(fails))
    calm.world.run(calm.world.now + 1)
    assert not calm.world.do(once.result()), "the function ran because the result was forgotten: so it is"
    assert calm.world.do(once.run(calm.does)) == 2


def test_forgetting_takes_a_ballot_of_its_own_where_it_needs_one(town: Build) -> None:
    """All nodes restart, one after the other, while somebody who forgets holds the lock. Is the result forgotten all the same?"""
    calm = Calm(town, nodes=3, clients=1)
    client = calm.clients[0]
    once = client.once("a", keep=1000)
    calm.world.do(once.run(calm.does))

    async def forgets() -> None:
        turn = await client._look(begin(once._terms))
        lease = await client._describe(turn.alone).acquire()
        for node in calm.town.nodes:
            node.restart()
            await calm.world.sleep(calm.town.laws.guard + 2 * TTL)
            await client.repair()
        await client._look(turn.forget(lease))
        assert turn.had
        assert turn._ballot > lease.fence
        await lease.release()

    calm.world.do(forgets())
    assert not calm.world.do(once.result())
