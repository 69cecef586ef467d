"""Elections in the simulator: candidates who come, crash, stop and resign, nodes that fail, and observers who look on.

The law is looked at from outside, at every event and at everything that an observer is shown (`Country`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from math import nextafter
from types import SimpleNamespace
from typing import Any

import pytest
from sim.conftest import Build, Town
from sim.face import Holdfast

from holdfast.engine.plans import Ask, Do, Plan
from holdfast.errors import LockLost, Misuse, NoQuorum, NotAcquired, is_closed
from holdfast.primitives.election.aio import Observation
from holdfast.primitives.election.commands import ElectionHeard
from holdfast.primitives.election.plan import Leader, View
from holdfast.protocol.claim import Claim, State
from holdfast.protocol.query import Query
from holdfast.testing.world import Violation

pytestmark = pytest.mark.stories

TTL, MAX_TTL = 1.0, 2.0
SEEDS = range(8)
STORM = 12.0  # seconds for which things go wrong
TRIP = 0.02  # seconds: more than a few round trips take


class Noted(View):
    """A view that remembers when its latest look began."""

    __slots__ = ("began",)

    def _sees(self, found: ElectionHeard, seen: Query) -> Plan[Leader]:
        self.began = seen.began
        return super()._sees(found, seen)


@dataclass
class Shown:
    """Somebody was shown this. `began`: when the look began that found it; `rank`: how late a word it is."""

    when: float
    began: float
    rank: tuple[int, int]
    leader: Leader


@dataclass
class Country:
    """A town with an election: those who stand for it, those who look on, and what must hold.

    Whoever believes to lead does so alone, in growing terms. Whoever is shown as a leader has led with that term, and has said that. What
    one observer is shown is never earlier than what it was shown before, nor than what others were shown before its look began. Nobody sees
    a leader who had resigned, on a majority, before the look began.
    """

    town: Town
    clients: list[Holdfast] = field(default_factory=list)
    observers: list[tuple[Holdfast, list[Shown]]] = field(default_factory=list)
    terms: list[int] = field(default_factory=list)  # those that somebody was the leader for, in this order
    said: dict[str, int] = field(default_factory=dict)  # by value: its version
    shown: list[Shown] = field(default_factory=list)
    terms_shown: set[int] = field(default_factory=set)
    resigned: dict[int, float] = field(default_factory=dict)  # by term: when a majority had confirmed that
    over: bool = False
    serial: int = 0
    crashes: int = 0
    doubts: int = 0

    def __post_init__(self) -> None:
        self.world, self.dice = self.town.world, self.town.world.dice
        self.world.looks.append(self.look)

    def client(self) -> Holdfast:
        self.clients.append(Holdfast(self.world, self.town.nodes, ttl=TTL, max_ttl=MAX_TTL))
        return self.clients[-1]

    # ------------------------------------------------ who takes part

    async def stands(self, client: Holdfast) -> None:
        """A candidate: comes again and again, leads for a while, says something now and then, and resigns."""
        world, dice = self.world, self.dice
        while not self.over:
            self.serial += 1
            me, version = f"{self.serial}", 1
            self.said[f"{me}.1"] = 1
            options = {"ttl": dice.choice([0.4, TTL, MAX_TTL]), "wait": dice.uniform(0.5, 4.0)}
            try:
                leadership = await client.election("boss", f"{me}.1", **options).campaign()
            except NotAcquired:
                await world.sleep(0.05)
                continue
            except Misuse as error:
                if not is_closed(error):
                    raise
                return
            try:
                for _ in range(dice.randint(0, 5)):
                    await world.sleep(dice.uniform(0, 0.6))
                    if dice.random() < 0.6:
                        version += 1
                        self.said[f"{me}.{version}"] = version
                        try:
                            await leadership.publish(f"{me}.{version}")
                        except NoQuorum:
                            self.doubts += 1
                if await leadership.resign(confirm=True) > len(self.town.nodes) // 2:
                    self.resigned[leadership.term] = world.now
            except LockLost:
                pass

    def observe(self, client: Holdfast) -> None:
        """Somebody who looks on, until its client is closed."""
        seen: list[Shown] = []
        election = client.election("boss")
        view = Noted(client.driver.settings, election._office, election.ttl, None)

        async def look() -> None:
            try:
                async for leader in Observation(view, lambda: client.driver):
                    seen.append(self.sees(view.began, view._rank, leader))
                    if len(seen) > 1 and seen[-1].rank < seen[-2].rank:
                        raise Violation(f"back: {seen[-2]}, then {seen[-1]}")
            except Misuse as error:
                if not is_closed(error):
                    raise

        self.observers.append((client, seen))
        client.process.run(look())

    async def comes_new(self, client: Holdfast) -> None:
        """Somebody who looks now and then, and remembers nothing."""
        while not self.over:
            await self.world.sleep(self.dice.uniform(0, 0.1))
            began = self.world.now
            try:
                leader = await client.election("boss").leader()
            except NoQuorum:
                self.doubts += 1
            else:
                self.sees(began, (leader.term, leader.version), leader)

    # ------------------------------------------------ what must hold

    def look(self) -> None:
        """At most one believes to lead, at any moment."""
        leading: list[Claim] = []
        for client in self.clients:
            driver = client.driver
            live = driver.engine.live.values()
            leading += [it for it in live if it.state is State.HELD and driver.clock() < it.until and not client.process.crashed]
        if len(leading) > 1:
            raise Violation(f"two leaders: {leading[0].fence} and {leading[1].fence}")
        if leading and (not self.terms or leading[0].fence != self.terms[-1]):
            if self.terms and leading[0].fence < self.terms[-1]:
                raise Violation(f"terms go back: {leading[0].fence} after {self.terms[-1]}")
            self.terms.append(leading[0].fence)

    def sees(self, began: float, rank: tuple[int, int], leader: Leader) -> Shown:
        shown = Shown(self.world.now, began, rank, leader)
        if leader and leader.certain:
            assert leader.value is not None
            if leader.term not in self.terms:
                raise Violation(f"nobody led: {leader}")
            if self.said.get(leader.value) != leader.version:
                raise Violation(f"nobody said so: {leader}")
            if self.resigned.get(leader.term, began) < began:
                raise Violation(f"resigned: {leader}")
            before = max((it.rank for it in self.shown if it.when < began), default=(0, 0))
            if rank < before:
                raise Violation(f"back: {shown} after somebody saw {before}")
            self.terms_shown.add(leader.term)
        if leader.certain:
            self.shown.append(shown)
        return shown

    # ------------------------------------------------ what goes wrong

    def strike(self) -> None:
        dice, world = self.dice, self.world
        node = dice.choice(self.town.nodes)
        candidates = [it for it in self.clients[:3] if not it.process.crashed]
        match dice.choice(["cut", "cut", "freeze", "restart", "vanish", "stop", "crash", "none"]):
            case "cut" if node.links:
                dice.choice(list(node.links)).cut(dice.choice([None, 0.0, 0.3]))
            case "freeze":
                node.freeze(dice.uniform(0.05, 1.5))
            case "restart" if node.running:
                node.restart()
            case "vanish":
                node.vanish(dice.uniform(0.05, 1.0))
            case "stop":
                dice.choice(candidates).process.pause(dice.uniform(0.1, 3.0))
            case "crash":
                self.crash(dice.choice(candidates))
        if not self.over:
            world.after(dice.uniform(0.05, 0.8), self.strike)

    def crash(self, client: Holdfast) -> None:
        """Killed, and started anew."""
        client.process.crash()
        self.crashes += 1
        at = self.clients.index(client)
        new = self.client()
        self.clients.remove(new)
        self.clients[at] = new
        new.process.run(self.stands(new))

    def run(self) -> None:
        """A storm; then calm, and all must end well."""
        world = self.world
        for _ in range(3):
            client = self.client()
            client.process.run(self.stands(client))
        for _ in range(2):
            self.observe(self.client())
        for _ in range(2):
            new = self.client()
            new.process.run(self.comes_new(new))
        world.after(1.0, self.strike)
        world.slow = self.dice.choice([0.0, 0.05, 0.1])
        world.run(world.now + STORM)
        self.over, world.slow = True, 0.0
        for node in self.town.nodes:
            node.heal()
        world.run(world.now + 15)  # the guard, the campaigns that still run, and the terms

    def ends_well(self) -> None:
        """Without faults: who leads is seen by everybody, and who resigns, too; and the next one leads at once."""
        world = self.world
        one, other = self.client(), self.client()
        leader = world.do(one.election("boss", "last", ttl=TTL).campaign(), within=10)
        self.said["last"] = 1
        world.run(world.now + TTL + TRIP)
        self.all_see(leader.term, "last")
        waits = other.process.run(other.election("boss", "very last").campaign())
        self.said["very last"] = 1
        world.run(world.now + TRIP)
        world.do(leader.resign())
        world.run(world.now + TRIP, lambda: waits.done())
        assert waits.done(), "at once"
        world.run(world.now + TRIP)
        self.all_see(waits.result().term, "very last")
        world.do(waits.result().resign())
        world.run(world.now + TRIP)
        self.all_see(waits.result().term, None)

    def all_see(self, term: int, value: str | None) -> None:
        for _, seen in self.observers:
            assert seen, "an observer sees something"
            assert (seen[-1].leader.term, seen[-1].leader.value, seen[-1].leader.certain) == (term, value, True), seen[-3:]


@pytest.mark.timeout(180)
def test_no_law_is_broken(town: Build) -> None:
    crashes = doubts = 0
    for seed in SEEDS:
        here = Country(town(3 + 2 * (seed % 2), seed, guard=MAX_TTL + 2))
        here.run()
        here.ends_well()
        assert len(here.terms) >= 4 and len(here.terms_shown) >= 4, (seed, here.terms)
        crashes, doubts = crashes + here.crashes, doubts + here.doubts
    assert crashes and doubts, "what these worlds are aimed at never happens"


# ------------------------------------------------ one thing at a time


def calls(here: Country) -> int:
    return sum(node.server.calls.get(b"EVALSHA", 0) for node in here.town.nodes)


def test_what_a_late_leader_says_is_not_heard(town: Build) -> None:
    """What is seen after a leader was stopped until another one led, and goes on: it says its last words late."""
    # Rule E5.
    here = Country(town(3))
    world, (one, other, eye) = here.world, (here.client() for _ in range(3))
    world.do(one.election("boss", "one").campaign())
    waits = other.process.run(other.election("boss", "other").campaign())
    world.run(world.now + TRIP)
    one.process.pause(2 * TTL)
    world.run(world.now + 1.9 * TTL)
    assert waits.done()
    found = []
    for _ in range(20):
        found.append(world.do(eye.election("boss").leader()))
        world.run(world.now + 0.02)
    assert {it.value for it in found} == {"other"}


def test_what_few_nodes_had_is_written_back_before_it_is_shown(town: Build) -> None:
    """What is seen of a word that one node of three has heard, by somebody who asks that node, and then by somebody who cannot."""
    # Rule R3.
    here = Country(town(3))
    world, (one, eye, new) = here.world, (here.client() for _ in range(3))
    world.do(eye.ready())
    world.do(new.ready())
    leader = world.do(one.election("boss", "one", ttl=MAX_TTL).campaign())
    world.run(world.now + TRIP)

    async def says() -> None:
        with suppress(NoQuorum):
            await leader.publish("two")

    for link in one.simulated.links[1:]:
        assert link is not None
        link.stall(1.0)
    one.process.run(says())
    world.run(world.now + 0.01)
    seen = []
    for away, looks in [(2, eye), (0, new)]:
        here.town.nodes[away].freeze(10)
        seen.append(world.do(looks.election("boss").leader()).value)
        here.town.nodes[away].thaw(now=True)
    assert seen == ["two", "two"]


def test_an_earlier_word_does_not_outlast_a_later_one(town: Build) -> None:
    """What is seen after a short term of somebody with a short ttl, while a node has not heard that the leader before that had resigned."""
    # Rule E2.
    here = Country(town(3))
    world, (one, other, eye) = here.world, (here.client() for _ in range(3))
    leader = world.do(one.election("boss", "one", ttl=MAX_TTL).campaign())
    world.run(world.now + TRIP)
    here.town.nodes[2].vanish(0.3)
    world.do(leader.resign())
    world.do(other.election("boss", "other", ttl=0.2).campaign())
    world.run(world.now + TRIP)
    other.process.crash()
    seen = []
    for _ in range(100):
        seen.append(world.do(eye.election("boss").leader()))
        world.run(world.now + 0.02)
    assert {it.value for it in seen} == {"other", None}
    assert len({it.term for it in seen}) == 1, "that nobody leads is said of the last term"


@pytest.mark.parametrize("ttl", [0.4, MAX_TTL])
def test_after_a_crash_a_standby_leads_within_a_ttl(town: Build, ttl: float) -> None:
    for seed in SEEDS:
        here = Country(town(3, seed))
        world, (one, other, eye) = here.world, (here.client() for _ in range(3))
        here.said |= {"one": 1, "other": 1}
        world.do(one.election("boss", "one", ttl=ttl).campaign())
        waits = other.process.run(other.election("boss", "other", ttl=ttl).campaign())
        here.observe(eye)
        world.run(world.now + world.dice.uniform(0.1, 2))
        one.process.crash()
        killed = world.now
        world.run(killed + ttl + eye.settings.node_timeout + TRIP)
        assert waits.done(), seed
        world.run(world.now + TRIP)
        here.all_see(waits.result().term, "other")


def test_an_observer_of_whose_time_nothing_is_left_that_a_clock_could_show_looks_no_more(town: Build) -> None:
    """Whoever would sleep for the difference, in virtual time, would do so for ever."""
    eye = Country(town(3)).client()
    view = View(eye.settings, eye.election("boss")._office, TTL, 0.2)

    def looks(ended: float) -> Any:
        plan, watch = view.next(), eye.driver.listen()
        step = next(plan)
        while not isinstance(step, Ask):
            step = plan.send(watch if isinstance(step, Do) else True)
        with pytest.raises(StopIteration) as end:
            plan.send(SimpleNamespace(answers={}, began=1.0, ended=ended))
        return end.value.value

    assert not looks(1.0).certain
    assert looks(nextafter(1.2, 0.0)) is None


def test_what_observers_cost(town: Build) -> None:
    """A look in each ttl for an observer, and a renewal with a word in every third of the leader's ttl; and a change costs an observer two
    looks: one when it is told, and one when it is back from showing that. (Each node tells it; a look is enough for all.)"""
    here = Country(town(3))
    world, one = here.world, here.client()
    here.said |= {str(it): it for it in range(1, 12)}
    leader = world.do(one.election("boss", "1", ttl=MAX_TTL).campaign())
    for _ in range(4):
        here.observe(here.client())
    world.run(world.now + 3.0)
    before = calls(here)
    world.run(world.now + 10 * TTL)
    quiet = calls(here)
    assert quiet - before <= 3 * (4 * 16 + 2 * 16)
    for version in range(2, 12):
        world.do(leader.publish(str(version)))
        world.run(world.now + 0.01)
    here.all_see(leader.term, "11")
    assert calls(here) - quiet <= 3 * 10 * (1 + 4 * 3), "and a write-back, now and then"


def test_what_a_term_costs(town: Build) -> None:
    """Nobody waits for the first word: one round trip to lead, and one to resign, with a word in each write."""
    here = Country(town(3))
    one = here.client()
    here.world.do(one.ready())
    here.world.swift, before, began = 0.001, calls(here), here.world.now
    leader = here.world.do(one.election("boss", "one").campaign())
    assert here.world.now - began <= 0.0025
    here.world.run(here.world.now + TRIP)
    assert calls(here) - before == 2 * 3
    here.world.do(leader.resign(confirm=True))
    here.world.run(here.world.now + TRIP)
    assert calls(here) - before == 4 * 3
