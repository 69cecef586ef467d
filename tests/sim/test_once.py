"""What is done once, in the simulator: its law, while nodes and processes fail.

The law. Of all callers of a key whoever is told a result is told the same one, and it is one that somebody's function gave. Functions of a
key do not run at the same time while their leases hold. When nothing is wrong any more, everybody who lives is told a result. All this
while a majority remembers: a node is restarted only if a majority has what it has without it (rule R5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
from sim.conftest import Town
from sim.face import Holdfast

from holdfast import current
from holdfast.errors import ConfigError, LockLost, Misuse, NoQuorum, NotAcquired
from holdfast.face.values import Unfit
from holdfast.primitives.once import plan as turns
from holdfast.protocol import quorum
from holdfast.protocol.ticket import Tickets
from holdfast.testing.network import WALL, Node
from holdfast.wire.resp import pack

pytestmark = pytest.mark.stories

Build = Callable[..., Town]
TTL = 0.6
KEYS = ("a", "b")
SEEDS = range(30, 60)  # (with three nodes, none of the first thirty is told what ran for longer than a fence horizon)
SECONDS = 10.0


class Broken(AssertionError):
    """The law is."""


class Failed(Exception):
    """A function's own failure."""


@dataclass
class Job:
    """What is done for one key, seen from outside."""

    running: list[Any] = field(default_factory=list)  # the leases of functions that have not ended
    gave: list[str] = field(default_factory=list)  # what functions that succeeded have given
    told: set[str] = field(default_factory=set)  # what callers were told
    runs: int = 0


class Story:
    """Clients whose users all want the same few things done, while others break what they can."""

    def __init__(self, build: Build, seed: int, nodes: int = 5, long: bool = False) -> None:
        self.town = town = build(nodes, seed)
        self.world, self.dice, self.seed = town.world, town.world.dice, seed
        self.jobs = {key: Job() for key in KEYS}
        self.long = long  # functions that run for longer than a fence horizon
        self.few = (nodes - 1) // 2
        self.lost = self.stopped = self.killed = self.restarted = self.failed = self.above = 0
        self.serial = 0
        self.slow: set[str] = set()  # what functions gave that ran for longer than a fence horizon
        self.users: list[tuple[Any, Any]] = []
        self.clients: list[Holdfast] = []
        for _ in range(3):
            self.joins()

    def joins(self) -> None:
        """A process, with two users for each key."""
        client = Holdfast(self.world, self.town.nodes, ttl=TTL, max_ttl=TTL, node_timeout=0.1, outage=5)
        self.clients.append(client)
        for key in KEYS:
            for _ in range(2):
                self.users.append((client.process, client.process.run(self.wants(client, key))))

    # ------------------------------------------------ users

    async def wants(self, client: Holdfast, key: str) -> None:
        """Somebody who comes at some time, and tries until told a result."""
        job, wait = self.jobs[key], self.dice.choice((None, None, 0, 1.0))
        await self.world.sleep(self.dice.uniform(0, SECONDS))
        while True:
            try:
                told = await client.once(key, keep=1000, wait=wait).run(self.does, job)
            except LockLost:
                self.lost += 1
            except (NotAcquired, Failed):
                pass
            else:
                job.told.add(told)
                self.look(job)
                self.above += told in self.slow
                return
            await self.world.sleep(self.dice.uniform(0.05, 0.3))

    async def does(self, job: Job) -> str:
        """The function: gives what no other gives."""
        lease = current()
        if any(it.held for it in job.running) and lease.held:
            raise Broken("two functions run, and the leases of both hold")
        job.running.append(lease)
        job.runs += 1
        self.serial += 1
        mine = f"{self.serial}"
        takes = self.dice.choice((0.01, 0.1, 0.4, 0.9, *((2.5, 4.0) if self.long else ())))
        if takes > (2 + TTL) / 2:
            self.slow.add(mine)
        try:
            await self.world.sleep(takes)
        finally:
            job.running.remove(lease)
        if self.dice.random() < 0.2:
            self.failed += 1
            raise Failed
        job.gave.append(mine)
        return mine

    def look(self, job: Job) -> None:
        """Does the law hold?"""
        if len(job.told) > 1:
            raise Broken(f"told were {sorted(job.told)}")
        if not job.told <= set(job.gave):
            raise Broken(f"nobody gave {job.told}")

    # ------------------------------------------------ what goes wrong

    def copies(self, node: Node) -> dict[bytes, bytes]:
        """The ballots of the results that a node has."""
        return {it: node.holder(it)[:16] for it in node.keys() if it.endswith(b":result")}  # noqa: SIM118 (a node is no dict)

    def may_restart(self, node: Node) -> bool:
        """Does a majority remember without it; and is hardly any other in its guard?"""
        others = [it for it in self.town.nodes if it is not node]
        young = [it for it in others if self.world.now - it.born < 3 * TTL + 3]
        needed = quorum.majority(len(self.town.nodes))
        mine = self.copies(node)
        return len(young) < self.few and all(sum(self.copies(it).get(key) == mine[key] for it in others) >= needed for key in mine)

    def strike(self) -> None:
        """Something goes wrong."""
        dice, town = self.dice, self.town
        if self.world.now > SECONDS:
            return
        self.world.after(dice.uniform(0.05, 0.4), self.strike)
        what = dice.choice(("cut", "cut", "freeze", "away", "restart", "restart", "stop", "stop", "kill", "slow"))
        node = dice.choice(town.nodes)
        if what == "cut":
            for link in list(node.links):
                link.cut(dice.choice([None, 0.0, 0.3, 1.0]))
        elif what == "freeze":
            node.freeze(dice.uniform(0.05, 1.0))
        elif what == "away":
            node.vanish(dice.uniform(0.05, 0.8))
        elif what == "slow":
            node.lag = dice.choice((0.0, 0.0, 0.05, 0.2))
        elif what == "restart":
            if self.may_restart(node):
                self.restarted += 1
                node.restart()
        else:
            client = dice.choice(self.clients)
            if what == "stop":
                self.stopped += any(job.running for job in self.jobs.values())
                client.process.pause(dice.uniform(0.1, 2.0))
            elif self.killed < 4:
                self.killed += 1
                self.clients.remove(client)
                client.process.crash()
                for job in self.jobs.values():
                    job.running = [it for it in job.running if it._driver is not client.driver]
                self.world.after(0.1, self.joins)

    def run(self) -> Self:
        """Everything, to its end."""
        try:
            self.world.after(0.5, self.strike)
            self.world.run(SECONDS)
            for node in self.town.nodes:
                node.heal()
            for client in self.clients:
                client.process.resume()
            alive = [task for process, task in self.users if not process.crashed]
            self.world.run(self.world.now + 40, lambda: all(it.done() for it in alive))
            for task in alive:
                if not task.done():
                    raise Broken("somebody is never told")
                task.result()
            self.check()
        except Broken as broken:
            raise Broken(f"seed {self.seed}: {broken}") from None
        return self

    def check(self) -> None:
        """The law at the end, when nothing is wrong any more."""
        last = self.town.client(ttl=TTL, max_ttl=TTL)
        for key, job in self.jobs.items():
            told = self.world.do(last.once(key, keep=1000).result())
            if not told:
                raise Broken("the result is forgotten")
            job.told.add(told.value)
            self.look(job)


@pytest.mark.parametrize("nodes", [3, 5])
def test_the_law(town: Build, nodes: int) -> None:
    stories = [Story(town, seed, nodes, long=seed % 2 == 0).run() for seed in SEEDS]
    assert sum(it.above for it in stories) > 3, "functions run for longer than a fence horizon, and their results are told"
    assert sum(it.restarted for it in stories) > len(stories)
    assert sum(it.killed for it in stories) > len(stories)
    assert sum(it.stopped for it in stories) > len(stories) / 3, "processes are stopped while something runs in them"
    assert sum(it.lost for it in stories) > 3, "and leases are lost"
    assert sum(it.failed for it in stories) > 3
    again = sum(len(job.gave) > 1 for it in stories for job in it.jobs.values())
    assert again > 2, "now and then what had succeeded was done again: then only one of the results is told"


# ------------------------------------------------ what single stories show


class Calm:
    """Nothing fails; a function counts its runs."""

    def __init__(self, build: Build, nodes: int = 5, seed: int = 0, clients: int = 3, takes: float = 0.05, **options: Any) -> None:
        self.town, self.takes, self.runs, self.fences = build(nodes, seed), takes, 0, list[int]()
        self.world = self.town.world
        self.clients = [self.town.client(**{"ttl": TTL, "max_ttl": TTL, **options}) for _ in range(clients)]

    async def does(self) -> int:
        self.runs += 1
        run = self.runs
        self.fences.append(current().fence)
        await self.world.sleep(self.takes)
        return run

    def all_at_once(self, each: int = 5, key: str = "a") -> list[Any]:
        """Each client has some users who come at the same time; what they are told."""
        return self.ends([self.wants(it, key) for it in self.clients for _ in range(each)])

    def wants(self, client: Holdfast, key: str = "a", after: float = 0.0) -> Any:
        """A user, who comes a little later; told: the result, or what was raised."""

        async def tries() -> Any:
            await self.world.sleep(after)
            try:
                return await client.once(key, keep=1000).run(self.does)
            except LockLost as lost:
                return lost

        return client.process.run(tries())

    def ends(self, tasks: list[Any]) -> list[Any]:
        """What they are told."""
        self.world.run(self.world.now + 60, lambda: all(it.done() for it in tasks))
        return [it.result() for it in tasks]


def rush(build: Build, seed: int) -> tuple[Calm, list[Any]]:
    """Users who come at any time while somebody runs, and just afterwards."""
    calm = Calm(build, seed=seed)
    return calm, calm.ends([calm.wants(it, after=calm.world.dice.uniform(0, 0.1)) for it in calm.clients for _ in range(10)])


def test_without_failures_it_runs_once(town: Build) -> None:
    # Rule O5.
    for seed in range(10):
        calm = Calm(town, seed=seed)
        assert calm.all_at_once() == [1] * 15
        assert calm.runs == 1, seed
        calm, told = rush(town, seed)
        assert told == [1] * 30
        assert calm.runs == 1, seed


def test_however_long_it_takes(town: Build) -> None:
    """Longer than a fence horizon: the fence record lasts as long as the lease, and nothing is lost."""
    # Rule O4.
    for seed in range(5):
        calm = Calm(town, seed=seed, takes=5.0)
        assert calm.all_at_once() == [1] * 15
        assert calm.runs == 1, seed


def test_nobody_polls_meanwhile(town: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    # In step: the first heartbeats come no sooner than the others (rule C21).
    monkeypatch.setattr(Tickets, "place", lambda tickets, ticket: 0.0)
    calm = Calm(town, takes=6.0, ttl=3.0, max_ttl=3.0)
    tasks = [it.process.run(it.once("a", keep=1000).run(calm.does)) for it in calm.clients for _ in range(5)]
    calm.world.run(calm.world.now + 0.5)
    before = sum(node.server.calls[b"EVALSHA"] for node in calm.town.nodes)
    calm.world.run(calm.world.now + 4.5)
    asked = sum(node.server.calls[b"EVALSHA"] for node in calm.town.nodes) - before
    assert asked <= 5 * 15 * 5, "a heartbeat of each on each node, once in a third of a ttl"
    calm.world.run(calm.world.now + 10, lambda: all(it.done() for it in tasks))
    assert [it.result() for it in tasks] == [1] * 15


def test_those_who_wait_have_the_result_at_once(town: Build) -> None:
    """Told by the nodes: they do not wait for one another's turn at the lock."""
    # Rule O2.
    calm = Calm(town, takes=1.0, clients=2)
    began = calm.world.now
    calm.all_at_once(each=40)
    assert calm.world.now - began < 1.2


def test_a_runner_that_dies_is_replaced_within_its_ttl(town: Build) -> None:
    for seed in range(5):
        calm = Calm(town, seed=seed, clients=2, takes=0.3)
        first, second = calm.clients
        first.process.run(first.once("a", keep=1000).run(calm.does))
        calm.world.run(calm.world.now + 0.1)
        task = second.process.run(second.once("a", keep=1000).run(calm.does))
        calm.world.run(calm.world.now + 0.05)
        first.process.crash()
        began = calm.world.now
        calm.world.run(began + 10, lambda task=task: task.done())  # type: ignore[misc]  # (mypy knows no type of a default in a loop)
        assert task.result() == 2
        assert calm.world.now - began < TTL + 0.3 + 0.1, seed
        assert calm.fences[1] > calm.fences[0]


def stopped_while_it_runs(build: Build, seed: int = 0) -> tuple[Calm, Any]:
    """A runner's process is stopped for longer than its ttl; nobody else wants to run meanwhile."""
    calm = Calm(build, seed=seed, clients=2, takes=0.3)
    first = calm.clients[0]
    task = calm.wants(first)
    calm.world.run(calm.world.now + 0.1)
    first.process.pause(TTL + 0.3)
    return calm, calm.ends([task])[0]


def test_what_succeeded_under_a_lost_lease_is_kept_if_nobody_has_looked_since(town: Build) -> None:
    # Rule O7.
    for seed in range(5):
        calm, told = stopped_while_it_runs(town, seed)
        assert told == 1, seed
        assert calm.all_at_once() == [1] * 10


@pytest.mark.parametrize("takes", [0.3, 2.5])
def test_what_succeeded_under_a_lost_lease_is_lost_if_somebody_has(town: Build, takes: float) -> None:
    """Who has run since, or is still running: either has looked."""
    calm = Calm(town, clients=2, takes=0.3)
    first, second = calm.clients
    task = calm.wants(first)
    calm.world.run(calm.world.now + 0.1)
    calm.takes = takes
    other = calm.wants(second)
    first.process.pause(3 * TTL)
    [lost, told] = calm.ends([task, other])
    assert isinstance(lost, LockLost)
    assert told == 2
    assert calm.all_at_once() == [2] * 10


def test_a_ballot_of_one_s_own_does_no_harm_to_the_lease(town: Build) -> None:
    """A fence that rises looks to a claim as if another had had the lock meanwhile, if it does not expect it."""
    # Rule O8.
    calm = Calm(town, nodes=3, clients=1)
    client = calm.clients[0]

    async def runs() -> bool:
        turn = await client._look(turns.begin(client.once("a", keep=60)._terms))
        lease = await client._describe(turn.terms).acquire()
        assert not await client._look(turn.look(lease))
        for node in calm.town.nodes:
            node.restart()
            await calm.world.sleep(calm.town.laws.guard + 2 * TTL)
        await client._look(turn.keep(lease, 1))
        assert turn._ballot > lease.fence
        await calm.world.sleep(2 * TTL)
        held = lease.held
        if held:
            await lease.release()
        return bool(held)

    assert calm.world.do(runs())


def test_a_result_outlives_the_restart_of_any_minority_again_and_again(town: Build) -> None:
    """Whoever asks mends what a restart has torn, but only with what is left of its time."""
    calm = Calm(town, nodes=3, clients=1)
    client = calm.clients[0]
    once = client.once("a", keep=60)
    assert calm.world.do(once.run(calm.does)) == 1
    began = calm.world.now
    for turn in range(9):
        calm.town.nodes[turn % 3].restart()
        calm.world.run(calm.world.now + 5)
        node = calm.town.nodes[(turn + 1) % 3]
        node.stop()  # so that one copy is a minority's
        calm.world.run(calm.world.now + 0.1)
        assert calm.world.do(once.run(calm.does)) == 1, turn
        node.start(0)
        calm.world.run(calm.world.now + 0.5)
    assert calm.runs == 1
    calm.world.run(began + 61)
    assert not calm.world.do(once.result()), "and it ends when it was to end"
    assert calm.world.do(once.run(calm.does)) == 2


def test_what_is_written_back_gets_what_is_left_of_its_time(town: Build) -> None:
    """However long the way is: the time that a look takes is no gift."""
    calm = Calm(town, nodes=3, clients=1, ttl=6.0, max_ttl=6.0, node_timeout=2.0)
    once, key = calm.clients[0].once("a", keep=60), b"{a[once]}:result"
    assert calm.world.do(once.run(calm.does)) == 1
    calm.world.run(calm.world.now + 1)
    ends = max(node.runs_out(key) for node in calm.town.nodes)
    for node in calm.town.nodes[:2]:
        node.tell(pack(b"DEL", key))
    for node in calm.town.nodes:
        node.lag = 0.4
    calm.town.nodes[2].lag = 0.36  # (else chance decides whether the one copy is among those that a majority tells of)
    assert calm.world.do(once.run(calm.does)) == 1
    assert all(ends - 1 < node.runs_out(key) < ends + 0.1 for node in calm.town.nodes)


def test_a_look_mends_what_only_a_minority_has(town: Build) -> None:
    calm = Calm(town, nodes=3, clients=2)
    once = calm.clients[0].once("a", keep=60)
    calm.town.nodes[2].stop()
    calm.world.run(1)
    assert calm.world.do(once.run(calm.does)) == 1
    calm.town.nodes[2].start()
    calm.world.run(calm.world.now + 5)
    calm.town.nodes[1].stop()
    calm.world.run(calm.world.now + 0.5)
    assert calm.world.do(calm.clients[1].once("a", keep=60).result()).value == 1
    calm.town.nodes[0].stop()
    calm.world.run(calm.world.now + 1)
    with pytest.raises(NoQuorum, match="look for the result of 'a'"):
        calm.world.do(once.result())
    calm.town.nodes[1].start(0)
    calm.world.run(calm.world.now + 5)
    assert calm.world.do(once.result()).value == 1, "the node that was away at first has it, too"


# ------------------------------------------------ slots


def slots(build: Build, seed: int = 0) -> tuple[Calm, list[Any]]:
    """One node's clock is an hour ahead; clients come one after the other, in the same slot. What they are told."""
    calm = Calm(build, nodes=3, seed=seed)
    calm.town.nodes[seed % 3].clock.step(3600.0)
    told = [calm.world.do(it.once("a", keep=10_000, per=600).run(calm.does)) for it in calm.clients]
    return calm, told


def test_the_slot_is_that_of_the_nodes_median_clock(town: Build) -> None:
    for seed in range(3):
        calm, told = slots(town, seed)
        assert told == [1, 1, 1]
        client = calm.clients[0]
        assert calm.world.do(client.once("a", keep=10_000, per=600).at(WALL + calm.world.now).result()).value == 1
        assert not calm.world.do(client.once("a", keep=10_000, per=600).at(WALL + 3600).result())
        calm.world.run(calm.world.now + 600)
        assert calm.world.do(client.once("a", keep=10_000, per=600).run(calm.does)) == 2, "the next slot"


def boundary(build: Build, seed: int, slack: float | None = None) -> list[int]:
    """A schedule fires on four hosts, up to 20 ms before or after a slot begins. How often the job runs, boundary by boundary."""
    calm = Calm(build, nodes=3, seed=seed, clients=4)
    for node in calm.town.nodes:
        node.clock.step(calm.world.dice.uniform(-0.005, 0.005))
    runs = []
    for _ in range(3):
        begins = 60 - (WALL + calm.world.now) % 60
        before, hosts = calm.runs, []
        for client in calm.clients:
            once = client.once("a", keep=1000, per=60, slack=slack)
            after = begins + calm.world.dice.uniform(-0.02, 0.02)
            hosts.append(client.process.run(fires(calm, once, after)))
        calm.world.run(calm.world.now + 70, lambda hosts=hosts: all(it.done() for it in hosts))  # type: ignore[misc]  # (mypy knows no type of a default in a loop)
        assert len({it.result() for it in hosts}) <= 2
        runs.append(calm.runs - before)
    return runs


async def fires(calm: Calm, once: Any, after: float) -> int:
    await calm.world.sleep(after)
    told: int = await once.run(calm.does)
    return told


def test_a_schedule_that_fires_around_a_boundary_runs_once(town: Build) -> None:
    for seed in range(10):
        assert boundary(town, seed) == [1, 1, 1], seed
    assert any(boundary(town, seed, slack=0.0) != [1, 1, 1] for seed in range(10)), "without slack this would fail"


# ------------------------------------------------ results that cannot be kept


def unfit(build: Build, seed: int, stops: bool = False) -> tuple[Calm, list[str]]:
    """Six callers of a function whose result cannot be kept. What each is told: the beginning of its error."""
    calm = Calm(build, seed=seed, nodes=3, takes=0.3)

    async def charges(client: Any, after: float) -> str:
        async def charge() -> object:
            return {await calm.does()}

        await calm.world.sleep(after)
        try:
            return str(await client.once("a", keep=1000).run(charge))
        except (Misuse, ConfigError, LockLost) as error:
            return str(error)

    tasks = [it.process.run(charges(it, calm.world.dice.uniform(0, 0.2))) for it in calm.clients for _ in range(2)]
    if stops:
        calm.world.run(calm.world.now + 0.25)
        calm.town.nodes[seed % 3].restart()
    return calm, calm.ends(tasks)


@pytest.mark.parametrize("stops", [False, True])
def test_what_cannot_be_kept_runs_once(town: Build, stops: bool) -> None:
    for seed in range(10):
        calm, told = unfit(town, seed, stops)
        assert calm.runs == 1, seed
        assert sum("'a' has run, but its result cannot be kept" in it for it in told) == 1, told
        assert sum("'a' was run before, but its result could not be kept" in it for it in told) == 5, told


def lost_unfit(build: Build) -> tuple[Calm, BaseException | None]:
    """A process is stopped for longer than its ttl, while it runs what cannot be kept. What its caller is told."""
    calm = Calm(build, nodes=3, clients=2, takes=0.3)
    first, second = calm.clients

    async def charge() -> object:
        return {await calm.does()}

    async def tries(client: Any) -> BaseException | None:
        try:
            await client.once("a", keep=1000).run(charge)
        except (Misuse, LockLost) as error:
            return error
        return None

    task = first.process.run(tries(first))
    calm.world.run(calm.world.now + 0.1)
    first.process.pause(TTL + 0.3)
    [told] = calm.ends([task])
    again = second.process.run(tries(second))
    assert "was run before" in str(calm.ends([again])[0])
    return calm, told


def test_what_cannot_be_kept_is_noted_under_a_lost_lease_too_if_nobody_has_looked_since(town: Build) -> None:
    calm, told = lost_unfit(town)
    assert isinstance(told, Misuse)
    assert calm.runs == 1


def test_a_caller_whose_note_comes_too_late_is_told_why_it_had_no_result(town: Build) -> None:
    calm = Calm(town, clients=2, takes=0.3)
    first, second = calm.clients

    async def charge() -> object:
        return {await calm.does()}

    async def tries() -> LockLost:
        with pytest.raises(LockLost) as caught:
            await first.once("a", keep=1000).run(charge)
        return caught.value

    task = first.process.run(tries())
    calm.world.run(calm.world.now + 0.1)
    other = calm.wants(second)
    first.process.pause(3 * TTL)
    [lost, told] = calm.ends([task, other])
    assert isinstance(lost.__cause__, Unfit)
    assert told == 2
    assert calm.all_at_once() == [2] * 10
