"""Latches and barriers in the simulator: what they promise, looked at whenever anybody is told anything, while nodes and clients fail.

The laws. *Early*: nobody is told that a latch is open before so many different ids have begun to arrive, and nobody passes a generation
of a barrier before every party has begun to arrive in it. *Back*: once anybody was told that a latch is open, it is so for whoever asks
from then on. *Apart*: no two parties are ever more than one generation apart. *Stuck*: when all have arrived and the faults are over,
everybody passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from sim.conftest import Build, Town
from sim.face import Holdfast

from holdfast.errors import NoQuorum, NotAllArrived
from holdfast.primitives.latch.plan import Arrivals, Patience
from holdfast.testing.world import Violation
from holdfast.wire.resp import pack

pytestmark = pytest.mark.stories

# A node that restarts is left alone for four seconds; one that is slow may owe an answer for as long as two messages ever take.
OPTIONS: dict[str, Any] = {"ttl": 2.0, "max_ttl": 2.0, "node_timeout": 0.5, "outage": 1000.0}
SEEDS = range(12)
TROUBLE = 12.0  # seconds
SLOW = 0.0, 0.1, 0.3  # how much of what is sent takes long


class Storm:
    """What goes wrong: never with more nodes at a time than a minority, those in their guard included; and clients are stopped."""

    def __init__(self, town: Town, clients: list[Holdfast]) -> None:
        self.town, self.clients = town, clients
        self.world, self.dice = town.world, town.world.dice
        self._sick = [0.0] * len(town.nodes)  # until when
        self._end = self.world.now + TROUBLE
        self.world.slow = SLOW[self.world.seed % len(SLOW)]
        self._next()

    def _next(self) -> None:
        if self.world.now < self._end:
            self.world.after(self.dice.uniform(0.05, 0.8), self._strikes)

    def _strikes(self) -> None:
        dice, now = self.dice, self.world.now
        kind = dice.choice(["restarts", "restarts", "stops", "freezes", "vanishes", "breaks", "lags", "stopped", "false news", "late"])
        well = [it for it in self.town.nodes if self._sick[it.index] <= now]
        if len(well) > len(self.town.nodes) // 2 + 1:
            node = dice.choice(well)
            self._sick[node.index] = now + self._harms(node, kind)
        if kind == "stopped":
            process, seconds = dice.choice(self.clients).process, dice.uniform(0.1, 2.0)
            if not process.crashed:
                process.pause(seconds)
        if kind == "false news":  # (a push is no proof)
            for node in self.town.nodes:
                for key, value in list(node.server.data[0].values.items()):
                    if b":awaited" in key:
                        for _, token in value.line():  # type: ignore[union-attr]  # (it has a value)
                            node.tell(pack(b"PUBLISH", token[17:49], b"n %b 0 x" % token))
        self._next()

    def _harms(self, node: Any, kind: str) -> float:
        """Do it; for how long the node is of no use, or may be."""
        dice = self.dice
        seconds = dice.uniform(0.05, 1.5)
        if kind == "restarts":
            node.restart()
            return 6.0
        if kind == "stops":
            node.stop()
            self.world.after(seconds, node.start)
            return 6.0 + seconds
        if kind == "freezes":
            node.freeze(seconds)
        if kind == "vanishes":
            node.vanish(seconds)
        if kind in ("breaks", "late"):
            for link in list(node.links):
                if dice.random() < 0.5:
                    link.cut(dice.choice([None, 0.0, 0.3]))
        if kind == "lags":
            node.lag = dice.uniform(0.005, 0.03)
            self.world.after(seconds, setattr, node, "lag", 0.0)
        return seconds + 1.0


# ------------------------------------------------ latches


COUNT = 5


@dataclass
class Crowd:
    """Those who arrive at a latch, wait for it and look at it. `begun`: the ids that have begun to arrive; `open`: was anybody told so?"""

    town: Town
    begun: set[str] = field(default_factory=set)
    open: bool = False

    def told(self, open_: bool, before: bool) -> None:
        """Somebody is told. `before`: was anybody told that it is open when this one began to ask?"""
        if open_ and len(self.begun) < COUNT:
            raise Violation(f"early: it opens for {sorted(self.begun)}")
        if before and not open_:
            raise Violation("back: it was open before")
        self.open |= open_

    async def arrives(self, client: Holdfast, who: str, after: float) -> None:
        """Arrive, and again until that is sure; some do it once more."""
        world = self.town.world
        await world.sleep(after)
        latch, times = client.latch("go", COUNT), world.dice.choice([1, 1, 2])
        while times:
            self.begun.add(who)
            before = self.open
            try:
                arrived = await latch.arrive(who)
            except NoQuorum:
                await world.sleep(0.1)
                continue
            self.told(arrived == COUNT, before)
            times -= 1

    async def waits(self, client: Holdfast, after: float) -> None:
        await self.town.world.sleep(after)
        before = self.open
        await client.latch("go", COUNT).wait()
        self.told(True, before)

    async def looks(self, client: Holdfast, until: float) -> None:
        world = self.town.world
        while world.now < until:
            await world.sleep(world.dice.uniform(0.05, 0.6))
            before, soon = self.open, world.dice.random() < 0.3
            try:
                if soon:
                    await client.latch("go", COUNT, wait=world.dice.choice([0, 0.3])).wait()
                    self.told(True, before)
                else:
                    self.told(await client.latch("go", COUNT).is_open(), before)
            except NoQuorum:
                pass
            except NotAllArrived:
                self.told(False, before)


@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_latch_keeps_its_promise_whatever_fails(town: Build, seed: int, nodes: int) -> None:
    here = town(nodes, seed)
    world, dice, crowd = here.world, here.world.dice, Crowd(here)
    clients = [here.client(**OPTIONS) for _ in range(4)]
    for it in clients[1:]:
        world.do(it.latch("go", COUNT).arrived())
    Storm(here, clients)
    waits = [it.process.run(crowd.waits(it, dice.uniform(0, 3))) for it in clients[:3]]
    waits += [it.process.run(crowd.looks(it, world.now + TROUBLE)) for it in clients]
    for number in range(COUNT):
        client = dice.choice(clients)
        waits.append(client.process.run(crowd.arrives(client, f"p{number}", dice.uniform(0, TROUBLE))))
    world.run(world.now + TROUBLE)
    for node in here.nodes:
        node.heal()
    here.ends(waits, what=f"{sorted(crowd.begun)} have arrived")
    late = here.client(**{**OPTIONS, "restart_guard": None})
    crowd.told(world.do(late.latch("go", COUNT).is_open()), True)
    assert crowd.open


def test_a_crashed_party_has_arrived(town: Build) -> None:
    # Rule A4.
    here = town(3, 1)
    gone, client = here.client(**OPTIONS), here.client(**OPTIONS)
    here.world.do(gone.latch("go", 2).arrive("a"))
    waiting = client.process.run(client.latch("go", 2).wait())
    gone.process.crash()
    here.world.run(here.world.now + 5)
    assert not waiting.done()
    assert here.world.do(client.latch("go", 2).arrive("b")) == 2
    here.ends([waiting], 0.1)


def test_nothing_is_asked_while_nothing_happens(town: Build) -> None:
    """One look every ttl/3; and who waits is told within a message's way."""
    here = town(3, 2)
    clients = [here.client(ttl=9.0) for _ in range(3)]
    waiting = [it.process.run(it.latch("go", 1).wait()) for it in clients]
    here.world.run(here.world.now + 0.1)
    before = [node.server.calls[b"EVALSHA"] for node in here.nodes]
    here.world.run(here.world.now + 29.0)
    assert [node.server.calls[b"EVALSHA"] - was for node, was in zip(here.nodes, before, strict=True)] == [9 * len(clients)] * 3
    assert here.world.do(clients[0].latch("go", 1).arrive()) == 1
    here.ends(waiting, 0.02)


def test_who_is_confirmed_last_sees_all(town: Build) -> None:
    """Three clients arrive at once, each of which reaches but two of three nodes, and each another two: a node knows of two ids at most."""
    # Rule A1.
    for seed in SEEDS:
        here = town(3, seed)
        clients = [here.client(**OPTIONS) for _ in range(3)]
        for number, client in enumerate(clients):
            here.cut_off(client, number)
        arrived = here.ends([it.process.run(it.latch("go", 3).arrive(f"p{number}")) for number, it in enumerate(clients)])
        assert max(arrived) == 3, seed


def test_who_waits_says_again_what_nodes_forget(town: Build) -> None:
    """An arrival is on two nodes of three, somebody waits; the first of the two restarts empty, and then the second, each after the other's
    guard. Then the rest arrive. A minority at any time; and each had somebody to say it again."""
    # Rule R5.
    here = town(3, 5)
    client, waiter = here.client(**OPTIONS), here.client(**OPTIONS)
    world = here.world
    here.nodes[2].stop()
    world.run(world.now + 0.1)
    assert world.do(client.latch("go", 2).arrive("a")) == 1
    waiting = waiter.process.run(waiter.latch("go", 2).wait())
    world.run(world.now + 1)
    here.nodes[2].start()
    for node in here.nodes[:2]:
        world.run(world.now + 8)
        node.restart()
    world.run(world.now + 8)
    assert world.do(client.latch("go", 2).arrive("b")) == 2
    here.ends([waiting], what="an arrival is forgotten")


# ------------------------------------------------ barriers


PARTIES, ROUNDS = 3, 6


@dataclass
class Meeting:
    """The parties of a barrier. `reach`: the generations, counted, in which each may have arrived; `passed`: how many each has passed."""

    town: Town
    reach: list[int] = field(default_factory=lambda: [0] * PARTIES)
    passed: list[int] = field(default_factory=lambda: [0] * PARTIES)
    crashes: int = 0

    def passes(self, party: int, generation: int) -> None:
        """A party is told that it has passed."""
        if min(self.reach) <= generation:
            raise Violation(f"early: {generation} is over for party {party}, but not all have come: {self.reach}")
        self.passed[party] = self.reach[party] = generation + 1
        if max(self.passed) > 1 + min(max(passed, reach - 1) for passed, reach in zip(self.passed, self.reach, strict=True)):
            raise Violation(f"apart: {self.passed}")

    async def party(self, client: Holdfast, number: int) -> None:
        """Meet the others again and again; some give up now and then, and come again."""
        world, dice = self.town.world, self.town.world.dice
        barrier = client.barrier("meet", PARTIES, wait=dice.choice([None, 0.2, 1.0]))
        again = self.reach[number] > self.passed[number]
        self.reach[number] += again  # (it cannot tell whether the others have passed meanwhile: then it is in the next generation)
        while self.passed[number] < ROUNDS:
            await world.sleep(dice.choice([0.0, 0.05, dice.uniform(0, 3.0)]))
            self.reach[number] = max(self.reach[number], self.passed[number] + 1)
            try:
                generation = await barrier.wait(f"party {number}")
            except (NotAllArrived, NoQuorum):
                continue
            if not again and generation != self.passed[number]:
                raise Violation(f"apart: party {number} is told {generation} instead of {self.passed[number]}")
            again = False
            self.passes(number, generation)


def met(town: Town, fragile: bool) -> Meeting:
    """A barrier in trouble; Violation says which law is broken. `fragile`: parties crash as well, and begin anew."""
    world, dice, meeting = town.world, town.world.dice, Meeting(town)
    clients = [town.client(**OPTIONS) for _ in range(PARTIES)]
    tasks = [it.process.run(meeting.party(it, number)) for number, it in enumerate(clients)]
    Storm(town, clients)

    def crash() -> None:
        number = dice.randrange(PARTIES)
        if meeting.reach[number] >= ROUNDS:  # (or it would begin a generation in which nobody else comes)
            return
        clients[number].process.crash()
        meeting.crashes += 1
        heir = clients[number] = Holdfast(world, town.nodes, **OPTIONS)
        tasks[number] = heir.process.run(meeting.party(heir, number))

    if fragile:
        for _ in range(2):
            world.after(dice.uniform(0, TROUBLE), crash)
    world.run(world.now + TROUBLE)
    for node in town.nodes:
        node.heal()
    town.ends(tasks, 120, f"{meeting.passed} generations are passed")
    return meeting


@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("fragile", [False, True])
def test_a_barrier_keeps_its_promise_whatever_fails(town: Build, nodes: int, fragile: bool) -> None:
    # Rule BA1.
    meetings = [met(town(nodes, seed), fragile) for seed in SEEDS]
    assert all(it.passed == [ROUNDS] * PARTIES for it in meetings)
    assert not fragile or any(it.crashes for it in meetings)


def test_who_waits_says_again_which_generation_it_is(town: Build) -> None:
    """One of two waits while all nodes restart empty, one after the other; then the other one comes, and knows nothing."""
    # Rule BA2.
    here = town(3, 6)
    one, two, other = [here.client(**OPTIONS) for _ in range(3)]
    for _ in range(2):
        tasks = [it.process.run(it.barrier("meet", 2).wait(f"{it is one}")) for it in (one, two)]
        here.ends(tasks)
    waiting = one.process.run(one.barrier("meet", 2).wait("True"))
    for node in here.nodes:
        here.world.run(here.world.now + 8)
        node.restart()
    here.world.run(here.world.now + 8)
    came = other.process.run(other.barrier("meet", 2).wait("False"))
    assert here.ends([waiting, came], what="the newcomer is in another generation") == [2, 2]


async def caught(call: Any) -> Any:
    """What it returns, or raises. (What a task raises that nobody awaits ends the run.)"""
    try:
        return await call
    except Exception as error:
        return error


@pytest.mark.parametrize("answers, told", [(2, NotAllArrived), (0, NoQuorum)])
def test_a_wait_of_which_nothing_is_left_that_a_clock_could_show_is_over(town: Build, answers: int, told: type[Exception]) -> None:
    """1.2 - 1.0 is less than 0.2: whoever would sleep for the difference, in virtual time, would do so for ever."""
    client = town(3, 9).client(outage=1000.0)
    terms = client.latch("go", 2, wait=0.2)._terms
    sight = Arrivals(terms)
    sight.began = sight.asked = 1.0
    sight.ended, sight.heard = 1.2, set(range(answers))
    with pytest.raises(told):
        next(Patience(terms, client.driver.listen()).pause(sight))


# ------------------------------------------------ what one node knows


def lopsided(here: Town, first: Holdfast, second: Holdfast, what: Callable[[Holdfast, str], Any]) -> Any:
    """The first of two comes to one node only, and dies; the second finds it there. Then that node is gone. What the second was told."""
    here.cut_off(first, 0, 2)
    first.process.run(caught(what(first, "a")))
    here.world.run(here.world.now + 0.02)
    first.process.crash()
    [came] = here.ends([second.process.run(what(second, "b"))], 3)
    here.nodes[1].stop()
    return came


def test_what_somebody_was_told_is_so_for_all(town: Build) -> None:
    # Rule A2.
    here = town(3, 8)
    first, second, other = [here.client(**OPTIONS) for _ in range(3)]
    assert lopsided(here, first, second, lambda client, who: client.latch("go", 2).arrive(who)) == 2
    assert here.world.do(other.latch("go", 2).is_open())


def test_who_has_passed_is_in_the_next_generation_though_it_knows_nothing(town: Build) -> None:
    here = town(3, 8)
    first, second, other = [here.client(**OPTIONS) for _ in range(3)]
    barriers = {it: it.barrier("meet", 2) for it in (first, second)}

    def meet(client: Holdfast, who: str) -> Any:
        return barriers[client].wait(who)

    here.ends([client.process.run(meet(client, who)) for client, who in ((first, "a"), (second, "b"))])
    assert lopsided(here, first, second, meet) == 1
    again = [other.process.run(other.barrier("meet", 2).wait(who)) for who in ("a", "b")]
    assert here.ends(again) == [2, 2]
