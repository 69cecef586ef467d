"""Results that are forgotten, in the simulator: the law of `forget`, in whole worlds and in every order.

The law. Once a call of `forget` has returned, no call that begins later is told the result of a run that began before that `forget` did.
Two callers are told two different results only if some `forget` lies between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from sim.conftest import Town
from sim.test_once import SECONDS, TTL, Broken, Calm, Failed, Job, Story
from sim.test_once_orders import HORIZON, NAME, NODES, Orders, Runner

from holdfast.engine.plans import Ask
from holdfast.errors import LockLost, NotAcquired
from holdfast.primitives.once import commands as recipes
from holdfast.primitives.once.plan import Turn, begin
from holdfast.protocol.exclusive import beside
from holdfast.protocol.quorum import Quorum
from holdfast.testing.server import Lua
from holdfast.wire.resp import pack

pytestmark = pytest.mark.stories

Build = Callable[..., Town]
SEEDS, ORDERS = range(12), range(150)


@dataclass(eq=False)
class Forgetting:
    """One call of `forget`. `ended`: inf if it failed, so that it may have happened at any time since it began."""

    began: float
    ended: float = inf


@dataclass
class History:
    """Who was told what, and what was forgotten, by one clock."""

    ran: dict[Any, float]  # by result: when its run began
    told: list[tuple[Any, float, float]]  # the result, when the call began, and when it returned
    forgotten: list[Forgetting]

    def faults(self) -> Iterator[str]:
        """What breaks the law."""
        for result, began, _ in self.told:
            for it in self.forgotten:
                if self.ran[result] < it.began and it.ended < began:
                    yield f"{result} is told although it was forgotten"
        for number, (one, _, ended) in enumerate(self.told):
            for other, _, later in self.told[:number]:
                first, last = min(self.ran[one], self.ran[other]), max(ended, later)
                if one != other and not any(it.began < last and it.ended > first for it in self.forgotten):
                    yield f"{one} and {other} are told, and nothing was forgotten between them"


# ------------------------------------------------ whole worlds


class Amnesia(Story):
    """Users who want things done, look for results, and have them forgotten, again and again."""

    def __init__(self, build: Build, seed: int, nodes: int = 3) -> None:
        self.histories: dict[int, History] = {}
        self.forgot = self.again = 0
        super().__init__(build, seed, nodes)

    def history(self, job: Job) -> History:
        return self.histories.setdefault(id(job), History({}, [], []))

    async def does(self, job: Job) -> str:
        began = self.world.now
        mine = await super().does(job)
        self.history(job).ran[mine] = began
        return mine

    async def wants(self, client: Any, key: str) -> None:
        job, dice = self.jobs[key], self.dice
        history = self.history(job)
        await self.world.sleep(dice.uniform(0, SECONDS / 2))
        while self.world.now < SECONDS:
            once = client.once(key, keep=1000, wait=dice.choice((None, 1.0)))
            what, began = dice.choice(("run", "run", "result", "forget")), self.world.now
            forgetting = Forgetting(began)
            try:
                if what == "forget":
                    history.forgotten.append(forgetting)
                    await once.forget()
                    forgetting.ended = self.world.now
                    self.forgot += 1
                elif what == "run":
                    history.told.append((await once.run(self.does, job), began, self.world.now))
                elif found := await once.result():
                    history.told.append((found.value, began, self.world.now))
            except LockLost:
                self.lost += 1
            except (NotAcquired, Failed):
                pass
            await self.world.sleep(dice.uniform(0.05, 0.3))

    def check(self) -> None:
        for history in self.histories.values():
            self.again += len({it for it, _, _ in history.told}) > 1
            for fault in history.faults():
                raise Broken(fault)


def test_the_law_of_forgetting(town: Build) -> None:
    # Rule O9.
    stories = [Amnesia(town, seed).run() for seed in SEEDS]
    assert sum(it.forgot for it in stories) > 5 * len(stories)
    assert sum(it.again for it in stories) > len(stories), "and what was forgotten is done again"
    assert sum(it.restarted for it in stories) > len(stories) / 2
    assert sum(it.lost for it in stories) > 0


# ------------------------------------------------ what single stories show

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


# ------------------------------------------------ every order


class Oblivious(Runner):
    """A caller of `forget`, who tries until that is certain."""

    def play(self) -> Any:
        while True:
            yield None
            self.lease = lease = self.world.take(self.number)
            forgetting = Forgetting(self.world.clock)
            self.world.history.forgotten.append(forgetting)  # type: ignore[attr-defined]  # (of this world's history)
            try:
                yield from self.turn.forget(lease)  # type: ignore[arg-type]  # (a stand-in)
            except LockLost as lost:
                try:
                    yield from self.turn.last(lost)
                except LockLost:
                    self.turn = Turn(self.world.deed, "n", 0)
                    continue
            forgetting.ended = self.world.clock
            return


class Doer(Runner):
    """A caller of `run`, whose results no other gives; it calls a few times."""

    def play(self) -> Any:
        world: Any = self.world
        for call in range(2):
            began = world.clock
            while not (yield from self.turn.read()):
                yield None
                self.lease = lease = world.take(self.number)
                mine = f"{self.number}.{call}.{world.clock}"
                try:
                    if not (yield from self.turn.look(lease)):
                        world.history.ran[mine] = world.clock
                        yield None
                        yield from self.turn.keep(lease, mine)
                except LockLost as lost:
                    try:
                        yield from self.turn.last(lost)
                    except LockLost:
                        self.turn = Turn(world.deed, "n", 0)
                        continue
                break
            world.history.told.append((self.turn.value, began, world.clock))
            self.turn = Turn(world.deed, "n", 0)
            yield None


class Mixed(Orders):
    """Runners, and callers who forget, in one order."""

    def __init__(self, seed: int, lua: Lua | None = None) -> None:
        self.history, self.clock = History({}, [], []), 0.0
        super().__init__(seed, lua, runners=2)
        kinds = (Doer, Doer, Oblivious, self.dice.choice((Doer, Oblivious)))
        self.connections.clear()
        self.runners = [kind(self, number, "") for number, kind in enumerate(kinds)]

    def turn(self) -> None:
        self.clock += 1
        super().turn()

    def run(self) -> dict[int, Any]:
        for _ in range(900):
            self.turn()
            if all(it.done for it in self.runners):
                break
        return {}


def test_the_law_of_forgetting_holds_in_every_order() -> None:
    told = forgotten = several = 0
    for seed in ORDERS:
        orders = Mixed(seed)
        orders.run()
        assert not list(orders.history.faults()), seed
        told += len(orders.history.told)
        forgotten += sum(it.ended < inf for it in orders.history.forgotten)
        several += len({it for it, _, _ in orders.history.told}) > 1
    assert told > 2 * len(ORDERS)
    assert forgotten > len(ORDERS) / 2
    assert several > len(ORDERS) / 5, "results are made again"


# ------------------------------------------------ what orders at random hardly ever show


def carried_out(orders: Orders, plan: Any) -> Any:
    """What comes of a plan, when all nodes answer at once."""
    try:
        step = next(plan)
        while True:
            if isinstance(step, Ask):
                answers = {node: orders.do(node, data) for node, data in step.asks.items()}
                step = plan.send(SimpleNamespace(answers=answers, began=1.0, ended=1.0, sufficient=True))
            else:
                step = plan.send(True)
    except StopIteration as end:
        return end.value


def test_a_run_that_has_its_nodes_back_does_not_undo_forgetting() -> None:
    """A caller runs; another one has the result forgotten; then the first one has its nodes back, before it hears that it had lost them.

    What the nodes agree on when it has tried to keep its result.
    """
    orders = Orders(0, runners=2)
    runner, other = Turn(orders.deed, "n", 0), Turn(orders.deed, "n", 0)
    lease: Any = orders.take(1)
    assert not carried_out(orders, runner.look(lease))
    carried_out(orders, other.forget(orders.take(2)))  # type: ignore[arg-type]  # (a stand-in)
    for node in range(NODES):
        orders.do(node, pack(b"SET", NAME, lease.token.encode(), b"PX", b"1000000"))
    with suppress(LockLost):
        carried_out(orders, runner.keep(lease, "late"))
    register = recipes.Register(NAME, HORIZON)
    copy = recipes.agreed({node: orders.do(node, register.look()) for node in range(NODES)}, Quorum(range(NODES)))
    assert copy is not None
    assert copy.void


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
