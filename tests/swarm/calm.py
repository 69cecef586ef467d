"""The laws of worlds in which nothing goes wrong: more is promised there.

Knows claims, and how long a message takes at most. Must not know how other laws are watched.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.protocol.claim import Claim, State
from holdfast.protocol.command import READER
from holdfast.protocol.joint import JointRequest
from holdfast.protocol.renewal import AHEAD
from holdfast.protocol.ticket import kind_of
from holdfast.testing.client import SimulatedClient
from holdfast.testing.laws import TICK, HeldClaim
from holdfast.testing.network import Node
from holdfast.testing.world import Violation, World

from .laws import SwarmLaws

CALM = {
    "order": "P-L3: waiters are served in the order of their tickets",
    "idle": "P-L1: a free name does not stay free for long while a waiter needs no other name that is taken",
    "polling": "a waiter sends few requests: as time passes, at most one to each node in every third of a ttl",
    "lost": "no lease is lost",
    "pace": "no holder is in doubt, and each renews its lease once in every third of a ttl",
}


class CalmLaws(SwarmLaws):
    """Watches one shard in a world without faults."""

    def __init__(self, world: World, nodes: Sequence[Node], guard: float) -> None:
        super().__init__(world, nodes, guard)
        self.looked |= dict.fromkeys(CALM, 0)
        # When each claim that is held was renewed last, in the world's time, and how often it was before.
        self.renewed: dict[Claim, tuple[float, int]] = {}
        # Since when nobody has the name, and somebody waits.
        self.idle: dict[bytes, float] = {}

    def sends(self, driver: SimulatedClient, node: Node, data: bytes) -> None:
        """A client is about to send this to a node."""
        super().sends(driver, node, data)
        for claim in self.held:
            if claim.state is State.HELD and self.renewed[claim][0] < self.world.now and claim.token in data:
                self._renews(claim)

    def look(self) -> None:
        """See whether everything is as it must be."""
        super().look()
        self._served(self.world.swift)

    def _granted(self, claim: Claim, driver: SimulatedClient) -> None:
        super()._granted(claim, driver)
        self.renewed[claim] = self.world.now, 0
        self._in_order(claim, self.world.swift)

    def _holds(self, claim: Claim, held: HeldClaim, happened: int) -> bool:
        holds = super()._holds(claim, held, happened)
        if holds and held.driver.clock() < claim.until:
            self._in_time(claim)
        return holds

    def _ends(self, claim: Claim) -> None:
        driver, began = self.open[claim]
        super()._ends(claim)
        self.renewed.pop(claim, None)
        self._no_polling(claim, len(driver.nodes), self.world.now - began)
        self.looked["lost"] += 1
        if claim.state is State.LOST and not driver.dead:
            raise Violation(f"lost: {_of(claim)} is lost ({claim.reason}), though nothing has happened")

    def _in_order(self, claim: Claim, swift: float) -> None:
        """P-L3: nobody passes a lower ticket that every node knows, and that has had the time to
        ask for way.
        """
        self.looked["order"] += 1
        # A try makes no way: it has to find the other in line.
        latest = self.world.now - 3 * swift if claim.patient else self.open[claim][1] - swift
        for other, (_, began) in self.open.items():
            waits = other.state is State.WAITING and other.patient and other.recipe.name == claim.recipe.name
            waits = waits and not (kind_of(other.token) == kind_of(claim.token) == READER)
            if waits and other.ticket < claim.ticket and began < latest:
                raise Violation(f"order: {_of(claim)} is served before {_of(other)}, which waits since {began:.6f}")

    def _served(self, swift: float) -> None:
        """P-L1: when all names are free that the lowest ticket waits for, they are not free for
        long, and no lease has to run out for that.

        (Names of a joint request may be free while it waits for another one. The lowest ticket is
        the lowest that waits for any of them.)
        """
        taken = {claim.recipe.name for claim in self.held}
        waiting = [
            claim
            for claim, (_, began) in self.open.items()
            if claim.state is State.WAITING and claim.patient and began + 2 * swift < self.world.now
        ]
        lowest: dict[bytes, int] = {}
        for claim in waiting:
            lowest[claim.recipe.name] = min(claim.ticket, lowest.get(claim.recipe.name, claim.ticket))
        waited_for = {
            claim.recipe.name
            for claim in waiting
            if all(it not in taken and lowest.get(it, claim.ticket) == claim.ticket for it in _names(claim))
        }
        self.looked["idle"] += len(waited_for)
        self.idle = {name: self.idle.get(name, self.world.now) for name in waited_for}
        for name, since in self.idle.items():
            if self.world.now > since + 12 * swift:
                raise Violation(f"idle: nobody has had {name.decode()!r} since {since:.6f}, and somebody waits")

    def _renews(self, claim: Claim) -> None:
        """C8 and C21: from the second renewal on, the next comes after a third of a ttl."""
        early = min(AHEAD, claim.ttl / 30) + TICK
        self.looked["pace"] += 1
        last, before = self.renewed[claim]
        # (A downgrade of a writer asks as a renewal does.)
        often = before > 1 and not kind_of(claim.token)
        if often and self.world.now < last + claim.ttl / 3 - early:
            raise Violation(f"pace: {_of(claim)} is renewed {self.world.now - last:.6f} s after the last time")
        self.renewed[claim] = self.world.now, before + 1

    def _in_time(self, claim: Claim) -> None:
        """C8 and C9: it is renewed as often as is needed, and all of that is confirmed in time."""
        if claim.doubt:
            raise Violation(f"pace: {_of(claim)} is in doubt, though nothing has happened")
        since = self.world.now - self.renewed[claim][0]
        if claim.timing.renew and since - claim.ttl / 3 - claim.ttl / 30 > claim.ttl / 100:
            raise Violation(f"pace: {_of(claim)} was not renewed for {since:.6f} s")

    def _no_polling(self, claim: Claim, nodes: int, lasted: float) -> None:
        """Requests are few: to each node the first, some to make way or to agree, and one in every
        third of a ttl.
        """
        self.looked["polling"] += 1
        most = nodes * (5 + 3 * lasted / claim.ttl)
        if self.requests.pop(claim.token, 0) > most:
            raise Violation(f"polling: {_of(claim)} has sent more than {most:.0f} requests in {lasted:.3f} s")


def _names(claim: Claim) -> list[bytes]:
    """All that is wanted together with it."""
    together = claim.company.claims if isinstance(claim.company, JointRequest) else [claim]
    return [it.recipe.name for it in together]


def _of(claim: Claim) -> str:
    return claim.token.decode()
