"""Fills in the simulator: who computes, what is kept, dropped and shown, while nodes and processes fail.

The law is looked at from outside, at every event: who computes under a lease that runs, what stands on the nodes, and how old what somebody
is given is by the one true clock. Once a call of `invalidate` has returned, no call of `get` or `peek` that begins later gives a value
whose computing began before that `invalidate` did. This holds while a majority of the nodes answers and remembers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from sim.conftest import AWAY, Build, Town, strikes
from sim.face import Holdfast

from holdfast.errors import NoQuorum
from holdfast.primitives.fill.plan import Found
from holdfast.protocol.exclusive import beside
from holdfast.protocol.ticket import Tickets
from holdfast.testing.network import Node
from holdfast.testing.world import Violation
from holdfast.wire.resp import pack

pytestmark = pytest.mark.stories

KEY, PART, CACHE = "price", "price[fill]", beside(b"price[fill]", b"cache")
TTL, STALE, LEASE = 1.0, 4.0, 1.0  # seconds
LONGEST = 0.3  # that computing takes
SEEDS = range(4)


class Burnt(Exception):
    """Computing went wrong."""


@dataclass(eq=False)
class Computation:
    number: int
    client: Holdfast
    task: Any
    began: float
    ended: float | None = None

    @property
    def held(self) -> bool:
        """Does its lease run, as far as its own process can know?"""
        leases = [it for it in self.client.driver.leases() if it.name == PART and it._going]
        return not self.client.process.crashed and any(it._owner.task() is self.task for it in leases)


@dataclass
class Kitchen:
    """Callers of some clients, and the law that watches them. `fails`: how often computing does."""

    town: Town
    stale: float = 0.0
    fails: float = 0.0
    ttl: float = TTL
    late: float = 0.05  # seconds that what is put, or shown, may be under way
    pause: float = 0.3  # between a caller's visits, on the average
    calls: Sequence[str] = ()  # what callers call; none: only `get`
    all: list[Computation] = field(default_factory=list)
    going: list[Computation] = field(default_factory=list)
    found: list[Found[int]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)  # for how long each of these was waited
    dropped: list[tuple[float, float]] = field(default_factory=list)  # when each call began, and when it had returned
    looked: int = 0
    unknown: int = 0
    kept: dict[Node, tuple[Any, int, int]] = field(default_factory=dict)  # by node: its server, the fence and the deadline there

    def __post_init__(self) -> None:
        self.town.world.looks.append(self.look)

    def fill(self, client: Holdfast, **options: Any) -> Any:
        return client.fill(KEY, self.ttl, lambda: self.compute(client), **{"stale": self.stale, "lease": LEASE, **options})

    async def compute(self, client: Holdfast) -> int:
        world = self.town.world
        mine = Computation(len(self.all), client, asyncio.current_task(world.loop), world.now)
        for other in self.going:
            if other.held and mine.held:
                raise Violation(f"two compute: {mine.number} begins while {other.number} computes under a lease that runs")
        self.all.append(mine)
        self.going.append(mine)
        try:
            await world.sleep(world.dice.uniform(0.01, LONGEST))
            if world.dice.random() < self.fails:
                raise Burnt
        finally:
            self.going.remove(mine)
        mine.ended = world.now
        return mine.number

    def look(self) -> None:
        """What stands on a node is never replaced by what has a lower fence."""
        for node in self.town.nodes:
            space = node.server.data[0]
            value, deadline = space.values.get(CACHE), space.deadlines.get(CACHE, 0)
            if isinstance(value, bytes):
                fence = int(value.split(b":", 1)[0])
                server, before, until = self.kept.get(node, (None, 0, 0))
                if server is node.server and fence < before and node.server.micros() // 1000 < until:
                    raise Violation(f"lower fence: {before} is replaced by {fence} on {node}")
                self.kept[node] = node.server, fence, deadline

    def judge(self, found: Found[int], began: float) -> None:
        now, made = self.town.world.now, self.all[found.value]
        for start, end in self.dropped:
            if made.began < start and end < began:
                raise Violation(f"dropped: {found} was computed at {made.began:.3f}, before {start:.3f}")
        self.found.append(found)
        self.waits.append(now - began)
        age = now - made.began  # (what it was computed from is as old as that)
        most = self.ttl + LONGEST + self.late + (self.stale if found.stale else 0.0)
        if not found.computed and age > most:
            raise Violation(f"too old: {found} is {age:.3f} s old, and may be {most:.3f}")

    async def visits(self, client: Holdfast, seconds: float, **options: Any) -> None:
        world = self.town.world
        end = world.now + seconds
        await world.sleep(world.dice.uniform(0, self.pause))
        while world.now < end:
            began, described = world.now, self.fill(client, **options)
            try:
                match world.dice.choice(self.calls) if self.calls else "get":
                    case "get":
                        self.judge(await described.get(), began)
                    case "peek":
                        if (found := await described.peek()) is not None:
                            self.looked += 1
                            self.judge(found, began)
                    case _:
                        await described.invalidate()
                        self.dropped.append((began, world.now))
            except Burnt:
                pass
            except NoQuorum:
                self.unknown += 1
            await world.sleep(world.dice.uniform(0, 2 * self.pause))

    def run(self, clients: list[Holdfast], seconds: float, callers: int = 3, **options: Any) -> None:
        world = self.town.world
        tasks = [(it, it.process.run(self.visits(it, seconds, **options))) for it in clients for _ in range(callers)]
        over = lambda: all(task.done() or client.process.crashed for client, task in tasks)  # noqa: E731 (a name for a condition)
        world.run(world.now + seconds + 2 * LEASE + 4 * AWAY + 2, over)
        if not over():
            raise Violation("liveness: somebody still waits for a value")


def calm(build: Build, seed: int, seconds: float = 6.0, **options: Any) -> Kitchen:
    """Nothing fails but, perhaps, computing."""
    kitchen = Kitchen(build(3, seed), **options)
    kitchen.run([kitchen.town.client(ttl=LEASE) for _ in range(3)], seconds)
    return kitchen


@pytest.mark.parametrize("stale", [0.0, STALE])
def test_without_failures_one_computes_for_each_ttl(town: Build, stale: float) -> None:
    for seed in SEEDS:
        kitchen = calm(town, seed, stale=stale)
        assert 4 <= len(kitchen.all) <= 7, (seed, "one for each ttl, and the time it takes")
        assert len(kitchen.found) > 10 * len(kitchen.all)
        computed = [it for it in kitchen.found if it.computed]
        assert len(computed) == len(kitchen.all)
        if stale:
            waits = [wait for it, wait in zip(kitchen.found, kitchen.waits, strict=True) if it.value > 0 and not it.computed]
            assert max(waits) < 0.05, (seed, "nobody waits for a new value who can be shown the old one")
            assert any(it.stale for it in kitchen.found)
        else:
            assert not any(it.stale for it in kitchen.found)
            assert any(it.waited for it in kitchen.found)


def test_where_computing_fails_the_next_one_computes(town: Build) -> None:
    # Rule FI6.
    for seed in SEEDS:
        kitchen = calm(town, seed, fails=0.6)
        assert any(it.ended is None for it in kitchen.all), seed
        assert max(kitchen.waits) < 8 * LONGEST, (seed, "and no lease has to run out for that")
        assert sum(it.ended is not None for it in kitchen.all) >= 3, seed


# ------------------------------------------------ nodes and processes that fail


# By how much what somebody is given may be older than its ttl: what was put may lie at a node that is frozen, a process that is stopped for
# less than a lease takes that much longer to compute, and one that is stopped while it looks shows what it has seen when it goes on.
LATE = {"restarted": 0.3, "cut": 0.6, "away": 0.3, "frozen": AWAY + 0.3, "slow": 0.7, "killed": 0.3, "stopped": 3 * LEASE + 0.3}


def trouble(kitchen: Kitchen, fault: str, count: int, seconds: float = 8.0) -> None:
    """So many clients want values, while something happens to a minority of the nodes, the same that may forget, or to a process."""
    world, dice = kitchen.town.world, kitchen.town.world.dice
    clients = [kitchen.town.client(ttl=LEASE, node_timeout=0.1) for _ in range(count)]
    strikes(kitchen.town, fault, seconds, dice.sample(kitchen.town.nodes, 2))

    def strike() -> None:
        going = [it for it in clients if not it.process.crashed]
        busy = [it.client for it in kitchen.going if not it.client.process.crashed]
        if fault == "killed" and len(going) > 1:
            dice.choice(busy or going).process.crash()
        if fault == "stopped":
            dice.choice(busy or going).process.pause(dice.uniform(0.2, 3 * LEASE))

    for at in range(int(seconds)):
        world.at(world.now + 0.5 + at, strike)
    kitchen.run(clients, seconds)


@pytest.mark.parametrize("fault", LATE)
@pytest.mark.parametrize("stale", [0.0, STALE])
def test_with_failures_one_computes_at_a_time_and_everybody_is_served(town: Build, fault: str, stale: float) -> None:
    for seed in SEEDS[:2]:
        kitchen = Kitchen(town(5, seed), stale=stale, fails=0.1, late=LATE[fault])
        trouble(kitchen, fault, 5)
        assert len([it for it in kitchen.all if it.ended is not None]) >= 3, seed
        assert len(kitchen.found) >= 30, (seed, "and all the while values are found")
        assert not kitchen.unknown, (seed, "a majority is always there")


def test_a_majority_that_is_away_for_a_moment_is_waited_for(town: Build) -> None:
    here = town(3, 1)
    kitchen = Kitchen(here)
    client = here.client(ttl=LEASE, node_timeout=0.1)
    for node in here.nodes:
        node.vanish(0.5)
    here.world.run(here.world.now + 0.3)
    assert here.world.do(kitchen.fill(client).get()).computed


# ------------------------------------------------ a thundering herd


def herd(
    build: Build, callers: int = 200, clients: int = 5, seed: int = 7, over: float = 0.0, **options: Any
) -> tuple[Kitchen, float, list[int]]:
    """So many, `over` so many seconds, for what nobody has computed. For how long anybody waited after it was, or after the last came; the
    commands that each node executed."""

    async def one(client: Holdfast) -> Found[int]:
        await here.world.sleep(here.world.dice.uniform(0, over))
        found: Found[int] = await kitchen.fill(client, **options).get()
        return found

    here = build(5, seed)
    kitchen = Kitchen(here, ttl=60.0)
    several = [here.client() for _ in range(clients)]
    before = [node.server.calls.get(b"EVALSHA", 0) for node in here.nodes]
    last = here.world.now + over
    found = here.ends([it.process.run(one(it)) for it in several for _ in range(callers // clients)])
    assert {it.value for it in found} <= {it.number for it in kitchen.all}
    ended = kitchen.all[0].ended
    assert ended is not None
    after = here.world.now - max(ended, last)
    here.world.run(here.world.now + 0.5)
    return kitchen, after, [node.server.calls.get(b"EVALSHA", 0) - it for node, it in zip(here.nodes, before, strict=True)]


def test_of_a_herd_one_computes_and_the_others_cost_four_commands_each(town: Build) -> None:
    """On each node: a look, a place in line, a look when there is news, and the place given back."""
    # Rule FI3.
    kitchen, after, commands = herd(town)
    assert len(kitchen.all) == 1
    assert after < 0.05, "all have it as soon as it is there"
    assert max(commands) <= 4.5 * 200, commands  # (and some to agree on whose turn it is)


def test_a_herd_that_comes_while_one_computes_and_afterwards(town: Build) -> None:
    for seed in SEEDS:
        kitchen, after, _ = herd(town, seed=seed, over=LONGEST)
        assert len(kitchen.all) == 1, seed
        assert after < 0.05, seed


def test_of_a_herd_at_a_mapping_one_computes_and_the_others_come_in_turn(town: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    # In step: the first heartbeats come no sooner than the others (rule C21).
    monkeypatch.setattr(Tickets, "place", lambda tickets, ticket: 0.0)
    kitchen, after, commands = herd(town, callers=50, cache={})
    assert len(kitchen.all) == 1
    assert after < 50 * 0.02
    assert max(commands) <= 3 * 50 + 15, commands


def test_those_who_only_try_do_not_defeat_each_other_for_long(town: Build) -> None:
    """Five come in every millisecond, see a stale value, and try once for the lock: soon one of them has it, and computes."""
    for seed in SEEDS:
        here = town(5, seed)
        world, kitchen = here.world, Kitchen(here, ttl=0.5, stale=1000.0)
        clients = [here.client() for _ in range(10)]
        world.do(kitchen.fill(clients[0]).get())
        world.run(world.now + 0.6)
        began = world.now
        while len(kitchen.all) == 1:
            for client in world.dice.sample(clients, 5):
                client.process.run(kitchen.fill(client).get())
            world.run(world.now + 0.001)
            assert world.now - began < 1.0, seed


# ------------------------------------------------ what one node knows, and who comes late


def test_one_answer_that_there_is_nothing_is_not_enough_to_compute(town: Build) -> None:
    """A node has missed the value, and clients ask for it again and again."""
    for seed in SEEDS:
        here = town(3, seed)
        kitchen = Kitchen(here, ttl=60.0)
        clients = [here.client(node_timeout=0.5) for _ in range(3)]
        here.nodes[seed % 3].vanish(0.5)
        here.world.do(kitchen.fill(clients[0]).get())
        here.world.run(here.world.now + 5)
        assert [CACHE in set(node.keys()) for node in here.nodes].count(False) == 1
        for client in clients * 4:
            here.world.do(kitchen.fill(client).get())
        assert len(kitchen.all) == 1, seed


def test_news_of_one_node_is_not_missed_because_others_have_none_yet(town: Build) -> None:
    """How often it is computed, and how long waiters wait, for a value that two of five nodes have at once, and the others much later."""
    # Rule FI5.
    here = town(5, 3)
    kitchen = Kitchen(here, ttl=60.0)
    computer, *others = [here.client() for _ in range(31)]
    computer.process.run(kitchen.fill(computer).get())
    here.world.run(here.world.now + 5, lambda: bool(kitchen.going))
    tasks = [other.process.run(kitchen.fill(other).get()) for other in others]
    here.world.run(here.world.now + 0.008)
    here.cut_off(computer, 0, 1, 2, seconds=LONGEST + 0.5)
    here.ends(tasks)
    assert kitchen.all[0].ended is not None
    computed, waited = len(kitchen.all), here.world.now - kitchen.all[0].ended
    assert computed == 1 and waited < 0.05


def test_a_late_value_replaces_nothing(town: Build) -> None:
    """One is stopped while it computes, for longer than its lease; another computes meanwhile; it goes on, and puts what it has."""
    # Rule FI4.
    here = town(3, 5)
    kitchen = Kitchen(here, ttl=20.0, late=0.5)
    slow, other = here.client(ttl=LEASE), here.client(ttl=LEASE)
    task = slow.process.run(kitchen.fill(slow).get())
    here.world.run(here.world.now + 5, lambda: bool(kitchen.going))
    slow.process.pause(2.5 * LEASE)
    found = other.process.run(kitchen.fill(other).get())
    late, quick = here.ends([task, found])
    here.world.run(here.world.now + 0.5)
    assert (quick.value, quick.computed, late.value, late.computed) == (1, True, 0, True)
    assert here.world.do(kitchen.fill(other).get()).value == 1


def slept(build: Build, ttl: float) -> Found[int]:
    """One is stopped for a minute while it computes; nobody else wants the value but afterwards."""
    here = build(3, 5)
    kitchen = Kitchen(here, ttl=ttl)
    slow, other = here.client(ttl=LEASE), here.client(ttl=LEASE)
    task = slow.process.run(kitchen.fill(slow).get())
    here.world.run(here.world.now + 5, lambda: bool(kitchen.going))
    slow.process.pause(60.0)
    assert here.ends([task], 100)[0].computed
    here.world.run(here.world.now + 0.5)
    began, found = here.world.now, here.world.do(kitchen.fill(other).get())
    kitchen.judge(found, began)
    return found


def test_a_value_is_no_younger_than_its_lease(town: Build) -> None:
    # Rule FI4.
    assert slept(town, 5.0).computed, "what was computed in the sleeper's time is out of date"
    assert not slept(town, 90.0).computed, "or it is not: then it is kept, for what is left of its time"


# ------------------------------------------------ values that are dropped

CALLS = ("get", "get", "get", "peek", "invalidate")


@pytest.mark.parametrize("fault", [it for it in LATE if it != "restarted"])  # (a node that restarts has forgotten what it was to refuse)
def test_what_was_dropped_is_given_to_nobody_who_comes_later(town: Build, fault: str) -> None:
    # Rule FI8.
    looked = 0
    for seed in SEEDS[:3]:
        kitchen = Kitchen(town(5, seed), calls=CALLS, stale=4.0 if seed % 2 else 0.0, fails=0.1, late=LATE[fault], ttl=3.0)
        trouble(kitchen, fault, 4)
        assert len(kitchen.dropped) > 5, seed
        looked += kitchen.looked
        assert len([it for it in kitchen.all if it.ended is not None]) > len(kitchen.dropped) / 4, "values are computed again"
    assert looked > 9


def test_a_late_value_on_a_node_that_was_not_told_is_shown_to_nobody(town: Build) -> None:
    """One computes; the value is dropped by another, who reaches two of three nodes; then the first puts what it has. Who looks sees what?

    The looker reaches the node that has heard of nothing, and one that has.
    """
    here = town(3, 4)
    kitchen = Kitchen(here, ttl=20.0)
    computer, dropper, looker = [here.client(ttl=LEASE, node_timeout=0.3) for _ in range(3)]
    for client in (dropper, looker):
        assert here.world.do(kitchen.fill(client).peek()) is None
    task = computer.process.run(kitchen.fill(computer).get())
    here.world.run(here.world.now + 5, lambda: bool(kitchen.going))
    here.cut_off(dropper, 2, seconds=3.0)
    here.world.do(kitchen.fill(dropper).invalidate())
    here.ends([task], 5)
    here.world.run(here.world.now + 0.02)
    assert CACHE in set(here.nodes[2].keys()), "the late value is where nobody has refused it"
    here.cut_off(looker, 0, seconds=3.0)
    found = here.world.do(kitchen.fill(looker).peek())
    assert found is None


def test_it_stays_dropped_for_as_long_as_any_node_may_show_it(town: Build) -> None:
    """A value is dropped while a node is away, and comes to that node a while later. What is shown when the others' time is up?"""
    here = town(3, 4)
    kitchen = Kitchen(here, ttl=5.0)
    described = kitchen.fill(here.client(ttl=LEASE, node_timeout=0.3))
    here.world.do(described.get())
    here.world.run(here.world.now + 0.2)
    late = here.nodes[2]
    fence = int(late.holder(CACHE).split(b":")[0])
    late.tell(pack(b"DEL", CACHE))
    late.vanish(0.4)
    here.world.do(described.invalidate())
    dropped = here.world.now
    here.world.run(dropped + 1.0)
    late.tell(described._terms.store._cache.put(fence, 5000, 0, 5000, b"0"))
    here.world.run(dropped + 5.3)
    looker = here.client(ttl=LEASE)
    here.nodes[0].vanish(1.0)
    found: Found[int] | None = here.world.do(kitchen.fill(looker).peek())
    assert found is None
