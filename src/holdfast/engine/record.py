"""What a crew tells observers, and what it counts.

Knows events, and what a claim's news mean. Must not know lanes, or who listens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from typing import NamedTuple

from .. import events
from ..core.claim import HELD, LOST, OVER, WAITING, Claim, State

_TROUBLE = (events.Lost, events.Doubt, events.HeldLong)  # what the log tells, though nobody listens
REMEMBERED = 10_000  # warnings that are not repeated: of as many names and nodes; then the oldest is forgotten


class Stats(NamedTuple):
    """What a client has done since it was made, in this process or event loop.

    `held` and `waiting` are names now; the others count: requests begun (`attempts`), that got the lock, that came to nothing (busy, no
    quorum, given up: `refused`), leases given back and lost, renewals confirmed and late (`doubts`), nodes that went `down`,
    and events that were `dropped` because the observer or a log handler is too slow. `contended`: how many of the locks that were
    got somebody else had when they were asked for; `waited`: seconds that all requests together have waited for their end, whatever
    it was. So `contended / acquired` tells how often callers compete, and `waited / (acquired + refused)` what that costs each.
    """

    held: int
    waiting: int
    attempts: int
    acquired: int
    refused: int
    released: int
    lost: int
    renewed: int
    doubts: int
    down: int
    dropped: int = 0
    contended: int = 0
    waited: float = 0.0


def total(them: Iterable[Stats]) -> Stats:
    """Of several sets of nodes, what was done altogether."""
    return Stats(*map(sum, zip([0] * len(Stats._fields), *them, strict=True)))


class Record:
    """Events to be handed on, in order.

    `telling`: does anybody want those of locks that go well? `epoch`: the wall clock less `now`. `dropped`: how many
    events the driver has dropped, because too many wait already. `long`: seconds of holding after which it is worth a word.
    """

    def __init__(self) -> None:
        self.events: list[events.Event] = []
        self.counts: Counter[type[events.Event]] = Counter()
        self.telling = False
        self.epoch = 0.0
        self.dropped = 0
        self.long = inf
        self._contended, self._waited = 0, 0.0
        self._told_long: set[bytes] = set()  # the tokens of claims that live and have been held for long
        self._warned: dict[tuple[str, str], None] = {}  # (a set, in order)

    def happened(self, kind: type[events.LockEvent], claim: Claim, now: float, **facts: object) -> None:
        """Something happened to a lock: counted in any case, and told if it is trouble."""
        self.counts[kind] += 1
        if self.telling or kind in _TROUBLE:
            waited = (claim.since or now) - claim.began
            self.events.append(kind(at=self.at(now), name=claim.recipe.label, token=claim.token.decode(), waited=waited, **facts))

    def notes(self, claim: Claim, now: float) -> None:
        """What a claim noted meanwhile."""
        notes, claim.notes = claim.notes, ()
        for kind in notes:
            if kind is events.Queued:
                holder = next((it.holder for it in claim.votes if it.holder), None)
                self.happened(kind, claim, now, holder=None if holder is None else holder.decode("utf-8", "backslashreplace"))
            else:
                self.happened(kind, claim, now, fence=claim.fence, remaining=claim.until - now)
                if now - (claim.since or now) >= self.long and claim.token not in self._told_long:
                    self._told_long.add(claim.token)
                    self.happened(events.HeldLong, claim, now, fence=claim.fence, held=now - (claim.since or now))

    def news(self, claim: Claim, now: float) -> None:
        """A claim has news: its state may be a new one."""
        if claim.state is LOST:
            self._told_long.discard(claim.token)
            self.happened(events.Lost, claim, now, fence=claim.fence, reason=claim.reason)
        elif claim.state is HELD and claim.since == now:
            self._contended += claim.contended
            self._waited += now - claim.began
            self.happened(events.Acquired, claim, now, fence=claim.fence, contended=claim.contended)
        elif claim.state is OVER and claim.refusal is not None:
            self._waited += now - claim.began
            self.happened(events.Refused, claim, now, error=claim.refusal)

    def ended(self, claim: Claim, before: State, now: float) -> None:
        """Its caller has ended it."""
        self._told_long.discard(claim.token)
        if claim.state is OVER and before is HELD:
            self.happened(events.Released, claim, now, fence=claim.fence)
        elif claim.state is OVER and before is WAITING:
            self._waited += now - claim.began
            self.happened(events.Refused, claim, now, error=None)

    def note(self, event: events.Event) -> None:
        """Something that is no claim's news: a node stands differently, or what a caller did."""
        self.counts[type(event)] += 1
        self.events.append(event)

    def note_at(self, now: float, event: events.Event) -> None:
        """Note what a caller did at this moment. Callers have no clock, so the event does not say when yet."""
        self.note(replace(event, at=self.at(now)))

    def warn(self, node: str, warning: str, now: float, about: str = "") -> None:
        """Something about a node is dangerous: told once. `about`: what, where the words may be others the next time."""
        topic = (node, about or warning)
        if topic in self._warned:
            return
        self._warned[topic] = None
        if len(self._warned) > REMEMBERED:
            del self._warned[next(iter(self._warned))]
        self.events.append(events.Warned(at=self.at(now), node=node, warning=warning))

    def stats(self, states: Iterable[State]) -> Stats:
        """What was done so far; `states`: of the claims that live."""
        counts, now = self.counts, list(states)
        return Stats(
            held=now.count(HELD),
            waiting=now.count(WAITING),
            attempts=counts[events.Attempt],
            acquired=counts[events.Acquired],
            refused=counts[events.Refused],
            released=counts[events.Released],
            lost=counts[events.Lost],
            renewed=counts[events.Renewed],
            doubts=counts[events.Doubt],
            down=counts[events.NodeDown],
            dropped=self.dropped,
            contended=self._contended,
            waited=self._waited,
        )

    def at(self, now: float) -> datetime:
        """The wall clock's time at that moment."""
        return datetime.fromtimestamp(now + self.epoch, UTC)
