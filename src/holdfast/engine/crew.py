"""The lanes of one client, and the claims that speak through them: routing, timers, reconnects, health.

Knows lanes and claims. Must not know sockets, threads, tasks or clocks.

A driver's duties, whenever it wakes: `received`, `lost` and `connected` for all that has happened; then, everything that
could be read having been read, `tick` if `next_wake()` is due; then empty `hangups`, `dials`, each lane's `take()`,
`settled` and `events`, in this order. Calls never overlap. `now` is monotonic, runs on in suspend, and is read before
bytes leave and after they were read.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from math import inf

from .. import events, scripts
from ..core.claim import HELD, LOST, OVER, WAITING, Claim
from ..core.command import GRANTED, RELEASE, Command, Recipe
from ..core.reach import DOWN, GUARDED, HOPED, UP, Reach
from ..core.ticket import FENCE, TOKEN, Mint
from ..errors import ConfigError, NoQuorum
from ..wire import lane as wire
from ..wire.address import Address
from ..wire.lane import Lane, Manners
from .settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """How a node is. `state`: up, guarded, down or connecting; `cause`: why it is no use; `ahead`: its clock less ours, seconds."""

    node: str
    state: str
    cause: Exception | None
    version: str
    run_id: str
    ahead: float | None


class Crew:
    """All of a client's conversation with its nodes, in one process or event loop.

    `inbox`: 32 hex digits of fresh randomness; `undo`: packs the release of a grant that nobody wants, from (key, token, horizon);
    `version`: this library's, for the servers' CLIENT LIST.
    """

    def __init__(self, settings: Settings, inbox: bytes, undo: Callable[[bytes, bytes, int], bytes], version: str = "0") -> None:
        self.settings, self.mint, self._undo = settings, Mint(inbox), undo
        self.reach = Reach([it.label for it in settings.addresses], settings.node_timeout, settings.outage, settings.horizon)
        self._manners = Manners(
            inbox,
            name=f"holdfast:{settings.owner}:{inbox[:8].decode()}".encode(),
            version=version.encode(),
            guard=settings.guard,
            fresh=settings.fresh,
            patience=settings.node_timeout,
            keep=settings.max_ttl,
            scripts=[it.source for it in scripts.EXCLUSIVE],
            jitter=int(inbox[:4], 16) / 0xFFFF,
        )
        self.lanes: list[Lane[Command]] = [Lane(self, i, it, self._manners) for i, it in enumerate(settings.addresses)]
        self.live: dict[bytes, Claim] = {}
        self.settled: list[Claim] = []  # those with news for whoever waits
        self.dials: list[int] = []  # nodes to connect to
        self.hangups: list[int] = []  # nodes whose connection to close, with a reset
        self.events: list[events.Event] = []
        self.telling = False  # does anybody want the events of locks that go well?
        self.epoch = 0.0  # the wall clock less `now`, as the driver last saw it
        self.changes = 0  # how often any node's standing changed
        self._ahead: float | None = None  # the nodes' clocks (their median) less `now`
        self._told: list[object] = [None] * len(self.lanes)
        self._warned: set[tuple[int, str]] = set()
        self._timers: list[tuple[float, int, Claim]] = []
        self._pulse, self._stale, self._sequence = -inf, 0, count()

    # ------------------------------------------------ what callers want

    def claim(
        self,
        recipe: Recipe,
        ttl: float,
        now: float,
        *,
        patient: bool = True,
        deadline: float = inf,
        renew: bool = True,
        max_hold: float = inf,
    ) -> Claim:
        """A new request, with a ticket: its time by the nodes' clocks, or by ours until one of them has told its own."""
        if ttl / 3 < self.reach.patience:  # nothing may stay unanswered for longer than a third of a lease
            self.reach.patience = self._manners.patience = ttl / 3
        ticket = self.mint.ticket(now + (self.epoch if self._ahead is None else self._ahead))
        return Claim(recipe, ttl, ticket, self.mint, self.reach, patient=patient, deadline=deadline, renew=renew, max_hold=max_hold)

    def begin(self, claim: Claim, now: float) -> None:
        """Ask for it."""
        self.live[claim.token] = claim
        claim.begin(now)
        if self.telling:
            self._tell(events.Attempt, claim, now)
        self.act(claim, now)

    def extend(self, claim: Claim, ttl: float, now: float) -> bool:
        """Make it last at least `ttl` seconds from now; news when that is sure, or was not to be had. False: it is not held."""
        going = claim.extend(ttl, now)
        self.act(claim, now)
        return going

    def end(self, claim: Claim, now: float, heard: bool = False) -> None:
        """Give it back, or stop waiting. `heard`: news when a majority has confirmed."""
        before = claim.state
        claim.release(now, heard)
        if self.telling and claim.state is OVER:
            if before is HELD:
                self._tell(events.Released, claim, now, fence=claim.fence)
            elif before is WAITING:
                self._tell(events.Refused, claim, now, error=None)
        self.act(claim, now)

    def close(self, now: float) -> None:
        """End everything. The answers, once they are here, show that the nodes know."""
        for claim in list(self.live.values()):
            waiting = claim.state is WAITING
            claim.close(now)
            if self.telling and waiting:
                self._tell(events.Refused, claim, now, error=None)
            self.act(claim, now)

    @property
    def owing(self) -> bool:
        """Does a node that can be spoken to owe an answer?"""
        return any(lane.line is wire.UP and lane.ledger for lane in self.lanes)

    def status(self, now: float) -> tuple[NodeStatus, ...]:
        """How the nodes are, in the order of their addresses."""
        state = {HOPED: "connecting", GUARDED: "guarded", UP: "up", DOWN: "down"}
        return tuple(
            NodeStatus(
                node=lane.address.label,
                state=state[self.reach.standing[i]],
                cause=self.reach.cause(i, now),
                version=_software(lane.facts),
                run_id=lane.run_id,
                ahead=None if lane.ahead is None else lane.ahead - self.epoch,
            )
            for i, lane in enumerate(self.lanes)
        )

    def verdict(self, waited: float, now: float) -> Exception | None:
        """Can these nodes be used? Else what is wrong: a ConfigError waits for no time to pass."""
        causes = {label: cause for i, label in enumerate(self.reach.labels) if (cause := self.reach.cause(i, now)) is not None}
        if wrong := {label: cause for label, cause in causes.items() if isinstance(cause, ConfigError)}:
            return ConfigError("these nodes cannot be used:" + "".join(f"\n  {label}: {cause}" for label, cause in wrong.items()))
        if len(self.reach.up) >= self.reach.quorum:
            return None
        return NoQuorum("a majority of the nodes", waited, causes, self.reach.quorum, "reach")

    # ------------------------------------------------ what the driver reports

    def connected(self, node: int, now: float, address: Address | None = None) -> None:
        """A connection to the node can carry bytes. `address`: with the credentials of the moment, if there are such."""
        self.lanes[node].connected(now, address)

    def received(self, node: int, data: bytes | bytearray | memoryview, now: float) -> None:
        """The node sent this."""
        lane, before = self.lanes[node], self.lanes[node].line
        lane.received(data, now)
        if lane.line is not before:
            if lane.line is wire.GUARDED:
                self._introduced(lane, now)
            else:
                self._stands(lane, now)
        if lane.bad is not None:
            self.lost(node, now, lane.bad)

    def lost(self, node: int, now: float, cause: Exception) -> None:
        """The connection to the node is gone, could not be made, or is no good: it is hung up."""
        lane = self.lanes[node]
        cause = lane.explained(cause)
        lane.broke(now)
        self.hangups.append(node)
        self._pulse = min(self._pulse, lane.wake)
        self._stands(lane, now, cause)

    def tick(self, now: float) -> None:
        """Time has passed. To be called only when everything that could be read has been: what lies unread is not late."""
        timers = self._timers
        while timers and timers[0][0] <= now:
            due, _, claim = heapq.heappop(timers)
            if due != claim.armed:  # another has taken its place
                self._stale -= 1
                continue
            claim.armed = inf
            if claim.wake > now or claim.tick(now):
                self.act(claim, now)
        if self._pulse <= now:
            for lane in self.lanes:
                if lane.late(now):
                    self.lost(lane.node, now, lane.silence())
                elif lane.line is wire.DOWN and lane.wake <= now:
                    lane.dial(now)
                    self.dials.append(lane.node)
                elif lane.line is wire.GUARDED and lane.wake <= now:
                    self._open(lane, now)
            self._pulse = min(lane.due() for lane in self.lanes)

    def excuse(self, now: float) -> None:
        """The driver was kept from sending for a while: no node's silence counts until now."""
        for lane in self.lanes:
            lane.excuse(now)

    def next_wake(self) -> float:
        """When to call `tick` at the latest."""
        return min(self._timers[0][0], self._pulse) if self._timers else self._pulse

    # ------------------------------------------------ what lanes report

    def heard(self, node: int, question: Command, reply: object, now: float) -> None:
        """A node has answered a command."""
        claim = question.owner
        if claim is not None and claim.answered(node, question, reply, now):
            assert isinstance(claim, Claim)  # nobody else owns commands yet
            self.act(claim, now)

    def told(self, node: int, message: bytes, now: float) -> None:
        """A node has said something to this crew's inbox."""
        parts = message.split(b" ", 3)
        if len(parts) != 4 or not TOKEN.fullmatch(parts[1]) or not FENCE.fullmatch(parts[2]):
            return  # nothing that our scripts say
        kind, token, fence, key = parts
        claim = self.live.get(token)
        if claim is not None and claim.recipe.name == key and (claim.state is WAITING or claim.state is HELD):
            if claim.pushed(node, kind, int(fence), now):
                self.act(claim, now)
        elif kind == GRANTED:  # one that nobody wants any more
            self.lanes[node].say(Command(None, RELEASE, token, now, data=self._undo(key, token, self.settings.horizon)))
            self._expect(now)

    # ------------------------------------------------ within

    def act(self, claim: Claim, now: float) -> None:
        """Do what a claim asks for."""
        if claim.sends:
            recipe, lanes = claim.recipe, self.lanes
            for nodes, command in claim.sends:
                if command.mode is RELEASE:
                    command.data = recipe.release(command.token)
                else:
                    command.data = recipe.request(command.token, command.ttl, command.mode, command.fence)
                for node in nodes:
                    lanes[node].say(command)
            claim.sends.clear()
            self._expect(now)
        if claim.token is not claim.routed:  # begun anew
            self.live[claim.token] = self.live.pop(claim.routed)
            claim.routed = claim.token
        if claim.notes:
            self._note(claim, now)
        if claim.news:
            claim.news = False
            self.settled.append(claim)
            self._report(claim, now)
        if claim.done:
            self.live.pop(claim.token, None)
            self._disarm(claim)
        elif claim.wake < claim.armed:
            self._disarm(claim)
            heapq.heappush(self._timers, (claim.wake, next(self._sequence), claim))
            claim.armed = claim.wake

    def _expect(self, now: float) -> None:
        """Something was asked: look after the lanes when its answer is overdue."""
        self._pulse = min(self._pulse, now + self._manners.patience)

    def _disarm(self, claim: Claim) -> None:
        """A timer that nobody needs stays in the heap, until half of them are such."""
        if claim.armed == inf:
            return
        claim.armed = inf
        self._stale += 1
        if self._stale > 100 and self._stale * 2 > len(self._timers):
            self._timers[:] = [it for it in self._timers if it[0] == it[2].armed]
            heapq.heapify(self._timers)
            self._stale = 0

    def _introduced(self, lane: Lane[Command], now: float) -> None:
        """The lane knows whom it speaks to."""
        for twin in self.lanes:
            if twin is not lane and twin.run_id == lane.run_id and twin.line in (wire.GUARDED, wire.LOADING, wire.UP):
                lane.bad = ConfigError(f"it is the same server as {twin.address.label}: a majority of one server means nothing")
                return
        ahead = sorted(it.ahead for it in self.lanes if it.ahead is not None)
        self._ahead = ahead[len(ahead) // 2]
        policy = lane.facts.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            self._warn(lane, f"its maxmemory-policy is {policy}: it may evict locks that are held. Set maxmemory-policy noeviction.", now)
        if lane.wake <= now:
            self._open(lane, now)
        else:
            self._pulse = min(self._pulse, lane.wake)
            self._stands(lane, now)

    def _open(self, lane: Lane[Command], now: float) -> None:
        lane.opened(now)
        self._stands(lane, now)

    def _stands(self, lane: Lane[Command], now: float, cause: Exception | None = None) -> None:
        """How does the node stand, after something happened to its lane? Tell claims and observers if that is new."""
        node, reach = lane.node, self.reach
        before = reach.standing[node]
        if lane.line is wire.LOADING:
            return  # as before, until it has taken the scripts
        if lane.line is wire.UP:
            standing = UP
        elif lane.line is wire.GUARDED:
            standing = GUARDED
        else:
            standing = HOPED if not lane.fails else DOWN
        reach.note(node, standing, now, cause or reach.causes[node] if standing is DOWN else None, lane.wake)
        if standing is before:
            return
        self.changes += 1
        if standing is not HOPED and standing is not self._told[node]:
            self._told[node] = standing
            at, label = self._at(now), lane.address.label
            if standing is UP:
                self.events.append(events.NodeUp(at=at, node=label))
            elif standing is GUARDED:
                self.events.append(events.NodeGuarded(at=at, node=label, left=lane.wake - now))
            else:
                self.events.append(events.NodeDown(at=at, node=label, cause=reach.causes[node] or ConnectionError("no connection")))
        for claim in list(self.live.values()):
            if standing is UP:
                news = claim.joined(node, now)
            elif before is UP:
                news = claim.broke(node, now)
            else:
                news = claim.state is WAITING and claim.tick(now)
            if news:
                self.act(claim, now)

    # ------------------------------------------------ what observers hear

    def _note(self, claim: Claim, now: float) -> None:
        notes, claim.notes = claim.notes, []
        for kind in notes:
            if kind is events.Queued:
                if self.telling:
                    holder = next((it.holder for it in claim.votes if it.holder), None)
                    self._tell(kind, claim, now, holder=None if holder is None else holder.decode("utf-8", "backslashreplace"))
            elif self.telling or kind is events.Doubt:
                self._tell(kind, claim, now, fence=claim.fence, remaining=claim.until - now)

    def _report(self, claim: Claim, now: float) -> None:
        """Its state may be a new one."""
        if claim.state is LOST:
            self._tell(events.Lost, claim, now, fence=claim.fence, reason=claim.reason)
        elif self.telling and claim.state is HELD and claim.since == now:
            self._tell(events.Acquired, claim, now, fence=claim.fence)
        elif self.telling and claim.state is OVER and claim.refusal is not None:
            self._tell(events.Refused, claim, now, error=claim.refusal)

    def _tell(self, kind: type[events.LockEvent], claim: Claim, now: float, **facts: object) -> None:
        waited = (claim.since or now) - claim.began
        self.events.append(kind(at=self._at(now), name=claim.recipe.label, token=claim.token.decode(), waited=waited, **facts))

    def _warn(self, lane: Lane[Command], warning: str, now: float) -> None:
        if (lane.node, warning) not in self._warned:
            self._warned.add((lane.node, warning))
            self.events.append(events.Warned(at=self._at(now), node=lane.address.label, warning=warning))

    def _at(self, now: float) -> datetime:
        return datetime.fromtimestamp(now + self.epoch, UTC)


def _software(facts: dict[str, str]) -> str:
    """What a server says it is, like "valkey 9.1.2"; empty until it has said so."""
    if version := facts.get("valkey_version"):
        return f"valkey {version}"
    return f"redis {facts['redis_version']}" if "redis_version" in facts else ""
