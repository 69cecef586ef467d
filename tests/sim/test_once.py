"""What is done once, in the simulator: its law, while nodes and processes fail, results are forgotten, and keys move to other nodes.

The law. Of all callers of a key whoever is told a result is told the same one, and it is one that somebody's function gave: unless some
call of `forget` lies between them. Once a call of `forget` has returned, no call that begins later is told the result of a run that began
before that `forget` did. Functions of a key do not run at the same time while their leases hold. When nothing is wrong any more, everybody
who lives is told a result. All this while a majority remembers: a node restarts only if a majority has what it has without it (rule R5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Self

import pytest
from sim.conftest import Build
from sim.face import Holdfast

from holdfast import current
from holdfast.errors import LockLost, Misuse, NotAcquired
from holdfast.face.values import Unfit
from holdfast.primitives.once import plan as turns
from holdfast.protocol import quorum
from holdfast.testing.network import WALL, Node
from holdfast.testing.world import DriftingClock, Violation
from holdfast.wire.resp import pack

pytestmark = pytest.mark.stories

TTL = 0.6


class Failed(Exception):
    """A function's own failure."""


@dataclass(eq=False)
class Forgetting:
    """One call of `forget`. `ended`: inf if it failed, so that it may have happened at any time since it began."""

    began: float
    ended: float = inf


@dataclass
class Job:
    """What is done for one key, seen from outside, by one clock."""

    running: list[Any] = field(default_factory=list)  # the leases of functions that have not ended
    ran: dict[Any, float] = field(default_factory=dict)  # by what a function gave: when its run began
    told: list[tuple[Any, float, float]] = field(default_factory=list)  # the result, when the call began, and when it returned
    forgotten: list[Forgetting] = field(default_factory=list)

    def faults(self) -> Iterator[str]:
        """What breaks the law."""
        for number, (result, began, ended) in enumerate(self.told):
            if result not in self.ran:
                yield f"nobody gave {result}"
                return
            for it in self.forgotten:
                if self.ran[result] < it.began and it.ended < began:
                    yield f"{result} is told although it was forgotten"
            for other, _, later in self.told[:number]:
                first, last = min(self.ran[result], self.ran[other]), max(ended, later)
                if result != other and not any(it.began < last and it.ended > first for it in self.forgotten):
                    yield f"{result} and {other} are told, and nothing was forgotten between them"


class Story:
    """Clients whose users all want the same few things done, while much fails. `long`: some run for longer than a fence horizon."""

    calls: Sequence[str] = ("run", "run", "run", "result")  # what a user may call
    strikes: Sequence[str] = ("cut", "cut", "freeze", "away", "restart", "restart", "stop", "stop", "kill", "slow")
    keys = ("a", "b", "c", "d")
    fails = 0.2  # how often functions do
    seconds = 10.0  # in which users come, and things go wrong

    def __init__(self, build: Build, seed: int, nodes: int = 5, long: bool = False) -> None:
        self.town = town = build(nodes, seed)
        self.world, self.dice, self.seed = town.world, town.world.dice, seed
        self.nodes: Sequence[Node] = town.nodes
        self.jobs = {key: Job() for key in self.keys}
        self.long = long
        self.few = (nodes - 1) // 2
        self.lost = self.stopped = self.killed = self.restarted = self.failed = self.forgot = self.serial = 0
        self.until = 0.0  # until when things go wrong
        self.slow: set[str] = set()  # what functions gave that ran for longer than a fence horizon
        self.users: list[tuple[Any, Any]] = []
        self.clients: list[Holdfast] = []
        self.begin()

    def begin(self) -> None:
        """Who is there from the beginning."""
        for _ in range(3):
            self.joins()

    def joins(self) -> None:
        """A process, with users for each key."""
        client = Holdfast(self.world, self.town.nodes, ttl=TTL, max_ttl=TTL, node_timeout=0.1, outage=5)
        self.clients.append(client)
        self.come(client, self.keys)

    def come(self, client: Holdfast, keys: Sequence[str]) -> None:
        """Two users for each of these keys."""
        self.users += [(client.process, client.process.run(self.wants(client, key))) for key in keys for _ in range(2)]

    # ------------------------------------------------ users

    async def wants(self, client: Holdfast, key: str) -> None:
        """Somebody who comes at some time, and tries until told a result."""
        await self.world.sleep(self.dice.uniform(0, self.seconds))
        while not await self.call(client, key):
            await self.world.sleep(self.dice.uniform(0.05, 0.3))

    async def call(self, client: Holdfast, key: str) -> bool:
        """Whether a result is told."""
        job, dice = self.jobs[key], self.dice
        once = client.once(key, keep=1000, wait=dice.choice((None, None, 0, 1.0)))
        what, began = dice.choice(self.calls), self.world.now
        found = None
        try:
            if what == "forget":
                forgetting = Forgetting(began)
                job.forgotten.append(forgetting)
                await once.forget()
                forgetting.ended = self.world.now
                self.forgot += 1
            elif what == "run":
                found = await once.run(self.does, job)
            elif result := await once.result():
                found = result.value
        except LockLost:
            self.lost += 1
        except (NotAcquired, Failed):
            pass
        if found is not None:
            job.told.append((found, began, self.world.now))
        return found is not None

    async def does(self, job: Job) -> str:
        """The function: gives what no other gives."""
        lease = current()
        if any(it.held for it in job.running) and lease.held:
            raise Violation("alone: two functions run, and the leases of both hold")
        job.running.append(lease)
        self.serial += 1
        mine, began = f"{self.serial}", self.world.now
        takes = self.dice.choice((0.01, 0.1, 0.4, 0.9, *((2.5, 4.0) if self.long else ())))
        if takes > (2 + TTL) / 2:
            self.slow.add(mine)
        try:
            await self.world.sleep(takes)
        finally:
            job.running.remove(lease)
        if self.dice.random() < self.fails:
            self.failed += 1
            raise Failed
        job.ran[mine] = began
        return mine

    # ------------------------------------------------ what goes wrong

    def copies(self, node: Node) -> dict[bytes, bytes]:
        """The ballots of the results that a node has."""
        return {it: node.holder(it)[:16] for it in node.keys() if it.endswith(b":result")}  # noqa: SIM118 (a node is no dict)

    def may_restart(self, node: Node) -> bool:
        """Does a majority remember without it; and is hardly any other in its guard?"""
        others = [it for it in self.nodes if it is not node]
        young = [it for it in others if self.world.now - it.born < 3 * TTL + 3]
        needed = quorum.majority(len(self.nodes))
        mine = self.copies(node)
        return len(young) < self.few and all(sum(self.copies(it).get(key) == mine[key] for it in others) >= needed for key in mine)

    def strike(self) -> None:
        """Something goes wrong, and something else soon afterwards."""
        dice = self.dice
        self.world.after(dice.uniform(0.05, 0.4), self.strike)
        if self.world.now > self.until:
            return
        node, client = dice.choice(self.nodes), dice.choice(self.clients)
        match dice.choice(self.strikes):
            case "cut":
                for link in list(node.links):
                    link.cut(dice.choice([None, 0.0, 0.3, 1.0]))
            case "freeze":
                node.freeze(dice.uniform(0.05, 1.0))
            case "away":
                node.vanish(dice.uniform(0.05, 0.8))
            case "slow":
                node.lag = dice.choice((0.0, 0.0, 0.05, 0.2))
            case "restart" if self.may_restart(node):
                self.restarted += 1
                node.restart()
            case "stop":
                self.stopped += any(job.running for job in self.jobs.values())
                client.process.pause(dice.uniform(0.1, 2.0))
            case "kill" if self.killed < 4:
                self.killed += 1
                self.clients.remove(client)
                client.process.crash()
                for job in self.jobs.values():
                    job.running = [it for it in job.running if it._driver is not client.driver]
                self.world.after(0.1, self.joins)

    def storm(self) -> None:
        """Things go wrong; then nothing does, and everybody who lives is told a result."""
        self.until = self.world.now + self.seconds
        self.world.run(self.until)
        for node in self.nodes:
            node.heal()
        for client in self.clients:
            client.process.resume()
        self.town.ends([task for process, task in self.users if not process.crashed], 40, "somebody is never told")

    def play(self) -> None:
        """All that happens."""
        self.storm()
        last = self.town.client(ttl=TTL, max_ttl=TTL)
        for key, job in self.jobs.items():
            began, told = self.world.now, self.world.do(last.once(key, keep=1000).result())
            if told:
                job.told.append((told.value, began, self.world.now))
            elif not job.forgotten:
                raise Violation("kept: the result is forgotten")

    def run(self) -> Self:
        """Everything, to its end."""
        self.world.after(0.5, self.strike)
        try:
            self.play()
            for job in self.jobs.values():
                for fault in job.faults():
                    raise Violation(f"told: {fault}")
        except Violation as broken:
            raise Violation(f"{broken} (seed {self.seed})") from None
        return self


@pytest.mark.parametrize("nodes", [3, 5])
def test_the_law(town: Build, nodes: int) -> None:
    # Rule O4.
    stories = [Story(town, seed, nodes, long=seed % 2 == 0).run() for seed in range(20)]
    above = sum(result in it.slow for it in stories for job in it.jobs.values() for result, _, _ in job.told)
    assert above > 3, "functions run for longer than a fence horizon, and their results are told"
    assert sum(it.restarted for it in stories) > len(stories)
    assert sum(it.killed for it in stories) > len(stories)
    assert sum(it.stopped for it in stories) > len(stories) / 3, "processes are stopped while something runs in them"
    assert sum(it.lost for it in stories) > 3, "and leases are lost"
    assert sum(it.failed for it in stories) > 3
    again = sum(len(job.ran) > 1 for it in stories for job in it.jobs.values())
    assert again > 2, "now and then what had succeeded was done again: then only one of the results is told"


class Amnesia(Story):
    """Users come again and again, and have results forgotten, too."""

    calls = ("run", "run", "result", "forget")

    async def wants(self, client: Holdfast, key: str) -> None:
        await self.world.sleep(self.dice.uniform(0, self.seconds / 2))
        while self.world.now < self.seconds:
            await self.call(client, key)
            await self.world.sleep(self.dice.uniform(0.05, 0.3))


def test_the_law_of_forgetting(town: Build) -> None:
    # Rule O9.
    stories = [Amnesia(town, seed, nodes=3).run() for seed in range(12)]
    assert sum(it.forgot for it in stories) > 5 * len(stories)
    again = sum(len({it for it, _, _ in job.told}) > 1 for it in stories for job in it.jobs.values())
    assert again > len(stories), "and what was forgotten is done again"
    assert sum(it.restarted for it in stories) > len(stories) / 2
    assert sum(it.lost for it in stories) > 0


class Change(Story):
    """Set b takes over from set a: clients know the former set, or both, or the next one, and come one kind after the other.

    For each key, a client that knows both sets asks before the first one that knows only b.
    """

    strikes = ("cut", "freeze", "away", "stop", "stop", "slow")
    fails = 0.0
    seconds = 4.0  # that each step of the change takes
    steps = ((("old",), 2), (("old", "both"), 4), (("both", "new"), 4), (("new",), 4))

    def begin(self) -> None:
        a, b = ([Node(self.world, index, DriftingClock(self.world, WALL)) for index in range(3)] for _ in range(2))
        self.nodes = [*a, *b]  # (the town's laws are about one set of nodes)
        sets: dict[str, dict[str, Any]] = {"old": {"shards": {"a": a}}, "new": {"shards": {"b": b}}}
        sets["both"] = {**sets["new"], "previous": sets["old"]["shards"]}
        options = {"ttl": TTL, "max_ttl": TTL, "node_timeout": 0.1, "outage": 5}
        self.kinds = {name: [Holdfast(self.world, [], **options, **given) for _ in range(2)] for name, given in sets.items()}
        self.clients = [it for them in self.kinds.values() for it in them]

    def play(self) -> None:
        for names, count in self.steps:
            for name in names:
                for client in self.kinds[name]:
                    self.come(client, self.keys[:count])
            self.storm()
            self.world.run(self.world.now + 5)  # (all that these have sent is over)


def test_while_a_key_moves_all_are_told_one_result(town: Build) -> None:
    # Rule O14.
    changes = [Change(town, seed).run() for seed in range(20)]
    assert sum(it.lost for it in changes) > 3
    assert sum(it.serial > len(it.keys) for it in changes) > 1, "leases are lost, and it runs again"


def test_without_failures_nothing_runs_twice_while_it_moves(town: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Change, "strike", lambda change: None)
    change = Change(town, 1).run()
    assert change.serial == len(change.keys)


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

    def wants(self, client: Holdfast, key: str = "a", after: float = 0.0, **options: Any) -> Any:
        """A user, who comes a little later; told: the result, or what was raised."""

        async def tries() -> Any:
            await self.world.sleep(after)
            try:
                return await client.once(key, keep=1000, **options).run(self.does)
            except LockLost as lost:
                return lost

        return client.process.run(tries())

    def ends(self, tasks: list[Any]) -> list[Any]:
        """What they are told."""
        return self.town.ends(tasks, 70)


def test_without_failures_it_runs_once(town: Build) -> None:
    # Rule O5.
    for seed in range(10):
        calm = Calm(town, seed=seed)
        assert calm.all_at_once() == [1] * 15
        assert calm.runs == 1, seed
        calm = Calm(town, seed=seed)
        told = calm.ends([calm.wants(it, after=calm.world.dice.uniform(0, 0.1)) for it in calm.clients for _ in range(10)])
        assert told == [1] * 30, "nor by users who come at any time while somebody runs, and just afterwards"
        assert calm.runs == 1, seed


def test_those_who_wait_have_the_result_at_once(town: Build) -> None:
    """Told by the nodes: they do not wait for one another's turn at the lock."""
    # Rule O2.
    calm = Calm(town, takes=1.0, clients=2)
    began = calm.world.now
    calm.all_at_once(each=40)
    assert calm.world.now - began < 1.2


def test_what_succeeded_under_a_lost_lease_is_kept_if_nobody_has_looked_since(town: Build) -> None:
    """A runner's process is stopped for longer than its ttl; nobody else wants to run meanwhile."""
    # Rule O7.
    for seed in range(5):
        calm = Calm(town, seed=seed, clients=2, takes=0.3)
        task = calm.wants(calm.clients[0])
        calm.world.run(calm.world.now + 0.1)
        calm.clients[0].process.pause(TTL + 0.3)
        assert calm.ends([task]) == [1], seed
        assert calm.all_at_once() == [1] * 10


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


# ------------------------------------------------ slots


def test_the_slot_is_that_of_the_nodes_median_clock(town: Build) -> None:
    """The clocks of two nodes are an hour behind, or ahead; clients come one after the other, in the same slot."""
    for seed in range(3):
        calm = Calm(town, nodes=5, seed=seed)
        for node in calm.town.nodes[seed : seed + 2]:
            node.clock.step(3600.0 if seed % 2 else -3600.0)
        assert [calm.world.do(it.once("a", keep=10_000, per=600).run(calm.does)) for it in calm.clients] == [1, 1, 1]
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
        before, slot = calm.runs, {"per": 60, "slack": slack}
        hosts = [calm.wants(it, after=begins + calm.world.dice.uniform(-0.02, 0.02), **slot) for it in calm.clients]
        assert len(set(calm.ends(hosts))) <= 2
        runs.append(calm.runs - before)
    return runs


def test_a_schedule_that_fires_around_a_boundary_runs_once(town: Build) -> None:
    for seed in range(10):
        assert boundary(town, seed) == [1, 1, 1], seed
    assert any(boundary(town, seed, slack=0.0) != [1, 1, 1] for seed in range(10)), "without slack this would fail"


# ------------------------------------------------ results that cannot be kept


@pytest.mark.parametrize("looked", [False, True])
def test_what_cannot_be_kept_is_noted_under_a_lost_lease_too_if_nobody_has_looked_since(town: Build, looked: bool) -> None:
    """A process is stopped for longer than its ttl, while it runs what cannot be kept. If somebody has looked, its caller is told why it
    has no result."""
    calm = Calm(town, nodes=3, clients=2, takes=0.3)
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
    others = [calm.wants(second)] if looked else []
    first.process.pause(3 * TTL if looked else TTL + 0.3)
    told, *results = calm.ends([task, *others])
    if looked:
        assert isinstance(told, LockLost)
        assert isinstance(told.__cause__, Unfit)
        assert results == [2]
    else:
        assert isinstance(told, Misuse)
        assert "was run before" in str(calm.ends([second.process.run(tries(second))])[0])
        assert calm.runs == 1
