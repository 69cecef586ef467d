"""Records the events of an engine and counts them.

Knows events, and what a change of a claim means for its acquisition: the request for one name, or
for several names or permits under one ticket, and the lease it gets. Must not know connections, or
who listens.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from .. import events
from ..errors import outcome_of
from ..protocol.claim import Claim, State
from ..protocol.joint import JointRequest
from .ready import Want

WAITING, HELD, LOST, OVER = State

# Events that are made although nobody listens, for the log.
_TROUBLE = ("lost", events.Doubt)
# Warnings that are not repeated: of as many names and nodes; then the oldest is forgotten.
REMEMBERED = 10_000


class Stats(NamedTuple):
    """What a client has done since it was made, in this process or event loop.

    Everything counts acquisitions: several names, or several permits, are one. So
    `attempts == acquired + refused + waiting`, and `acquired == released + lost + left + held`.

    `contended / acquired` shows how often callers compete, and `waited / (acquired + refused)` how
    many seconds a request waits on average.

    Attributes:
        held: Acquisitions that are held now.
        waiting: Acquisitions that are waited for now.
        attempts: Requests that began.
        acquired: Requests that got the lock.
        refused: Requests that ended without the lock, for whatever reason.
        released: Leases that were released.
        lost: Leases that were lost.
        renewed: Renewals that a majority confirmed.
        doubts: Renewals that were not confirmed in time.
        down: How often a node went down.
        dropped: Events that were dropped because an observer or a log handler is too slow.
        contended: Acquired locks that another client held or wanted when this one asked.
        waited: Seconds that all requests together have waited, whether or not they got the lock.
        busy: Refused because another client held the lock.
        no_quorum: Refused because too few nodes answered.
        gave_up: Refused because the caller gave up: cancelled, interrupted, or its client was
            closed.
        opened: How often a body ran without its lock, because `fail_open` allows it.
        forced: How often an operator used this client to take a lock away.
        longest_wait: Seconds that the oldest request of those that wait now has waited.
        left: Leases that were left to run out, by `lease.leave()` or `close(leave=True)`.
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
    busy: int = 0
    no_quorum: int = 0
    gave_up: int = 0
    opened: int = 0
    forced: int = 0
    longest_wait: float = 0.0
    left: int = 0


def total(them: Iterable[Stats]) -> Stats:
    """Return the sums over several shards, and the longest wait of all of them."""
    given = list(them)
    sums = Stats(*map(sum, zip([0] * len(Stats._fields), *given, strict=True)))
    return sums._replace(longest_wait=max([it.longest_wait for it in given], default=0.0))


class Recorder:
    """Events to pass on, in order.

    Attributes:
        events: The events.
        counts: How often each kind of event has happened. How a lease ended and the state of a node
            are kinds of their own.
        telling: Whether an observer wants the events of locks without trouble.
        epoch: The wall clock less `now`.
        dropped: How many events the driver has dropped because too many are waiting.
    """

    def __init__(self) -> None:
        self.events: list[events.Event] = []
        self.counts: Counter[type[events.Event] | str] = Counter()
        self.telling = False
        self.epoch = 0.0
        self.dropped = 0
        self._contended = 0
        self._waited = 0.0
        # How often requests were refused, by outcome.
        self._refused = {"busy": 0, "no_quorum": 0, "gave_up": 0, "error": 0}
        # A set, in order.
        self._warned: dict[tuple[str, str], None] = {}
        # What kinds of warnings there were about each node: sets, in order.
        self._kinds: dict[str, dict[str, None]] = {}

    def happened(self, kind: type[events.LockEvent], want: Want, now: float, **facts: Any) -> None:
        """Count an event of an acquisition. Record it if it is trouble, or if an observer wants it.

        The event also gets the facts that all events of its acquisition have.
        """
        counted = facts.get("how", kind)
        self.counts[counted] += 1
        if self.telling or counted in _TROUBLE:
            claims = want.claims
            names = tuple(dict.fromkeys([it.recipe.label for it in claims]))
            if issubclass(kind, events.LeaseEvent):
                fences = {it.recipe.part: it.fence for it in claims}
                facts = {"fence": max(fences.values()), "fences": fences, **facts}
            event = kind(
                at=self.at(now),
                name=",".join(names),
                token=claims[0].token.decode(),
                waited=(want.since or now) - want.began,
                kind=claims[0].recipe.primitive,
                names=names,
                want=want.want,
                **facts,
            )
            self.events.append(event)

    def notes(self, claim: Claim, now: float) -> None:
        """Record what a claim has noted."""
        notes = claim.notes
        claim.notes = ()
        for kind in notes:
            if kind is events.Queued:
                self._queued(claim, now)
            elif kind is events.Renewed:
                self._renewed(claim, now)
            else:
                self._doubted(claim, now)

    def _queued(self, claim: Claim, now: float) -> None:
        """Record that a claim was denied, unless its acquisition need not wait for that."""
        company = claim.company
        waiting = [claim]
        if company is not None:
            if company.queued or not company.waits():
                return
            company.queued = True
            waiting = [it for it in company.claims if it.queued]
        holder = next((it.holder for one in waiting for it in one.votes if it.holder), None)
        self.happened(
            events.Queued,
            company or claim,
            now,
            holder=None if holder is None else holder.decode("utf-8", "backslashreplace"),
            place=min(it.place for it in waiting) + 1,
        )

    def _renewed(self, claim: Claim, now: float) -> None:
        """Record a renewal, once all claims of the acquisition have one."""
        want: Want = claim
        left: float | None = claim.left
        if claim.company is not None:
            want = claim.company
            left = want.renewed(claim)
            if left is None:
                return
            want.doubted = False
        self.happened(events.Renewed, want, now, remaining=want.until - now, left=left)

    def _doubted(self, claim: Claim, now: float) -> None:
        """Record that a renewal is overdue, unless another one of the acquisition was already."""
        want: Want = claim
        if claim.company is not None:
            want = claim.company
            if want.doubted:
                return
            want.doubted = True
        self.happened(events.Doubt, want, now, remaining=want.until - now, why=want.why)

    def news(self, claim: Claim, now: float) -> None:
        """Record the state of a claim, which may have changed, and with it its acquisition's."""
        want: Want = claim
        state = claim.state
        if claim.company is not None:
            want = claim.company
            state = want.state
            # Each of its claims has the same news.
            if state is want.told:
                return
            if state is not OVER or want.refusal is not None:
                want.told = state
        if state is LOST:
            if want.stays and want.reason == "closed":
                self._left(want, now)
            else:
                facts = {"reason": want.reason, "held": now - want.since, "why": want.why}
                self.happened(events.Ended, want, now, how="lost", **facts)
        elif state is HELD and want.since == now:
            self._contended += want.contended
            self._waited += now - want.began
            self.happened(events.Acquired, want, now, contended=want.contended)
        elif state is OVER and want.refusal is not None:
            self._refuse(want, want.refusal, now)

    def ended(self, want: Want, before: State, now: float) -> None:
        """Record that the caller has ended an acquisition.

        Args:
            want: The acquisition.
            before: Its state before that.
            now: The time.
        """
        if want.state is not OVER or before is OVER or before is LOST:
            return
        if isinstance(want, JointRequest):
            want.told = OVER
        if before is HELD and want.stays:
            self._left(want, now)
        elif before is HELD:
            self.happened(events.Ended, want, now, how="released", held=now - want.since)
        else:
            self._refuse(want, None, now)

    def _refuse(self, want: Want, error: Exception | None, now: float) -> None:
        self._waited += now - want.began
        outcome = outcome_of(error)
        self._refused[outcome] += 1
        self.happened(events.Refused, want, now, error=error, outcome=outcome)

    def _left(self, want: Want, now: float) -> None:
        """Record that an acquisition has ended and its keys stay."""
        self.happened(events.Ended, want, now, how="left", remaining=want.until - now, held=now - want.since)

    def note(self, event: events.Event) -> None:
        """Record an event that no claim has caused: a node's, or a caller's."""
        self.counts[event.state if isinstance(event, events.NodeEvent) else type(event)] += 1
        self.events.append(event)

    def note_at(self, now: float, event: events.Event) -> None:
        """Record an event that a caller caused, with the time `now`. Callers have no clock."""
        self.note(event.replace(at=self.at(now)))

    def warn(self, node: str, warning: str, now: float, about: str, topic: str | None = None) -> None:
        """Record once that something about a node is dangerous.

        Args:
            node: The node.
            warning: What is dangerous, and what to do about it.
            now: The time.
            about: What kind of danger it is, as in `NodeEvent.about`.
            topic: Identifies the warning, so that it is not repeated. Default: its kind.
        """
        self._kinds.setdefault(node, {})[about] = None
        known = (node, about if topic is None else topic)
        if known in self._warned:
            return
        self._warned[known] = None
        if len(self._warned) > REMEMBERED:
            del self._warned[next(iter(self._warned))]
        self.events.append(events.NodeEvent(at=self.at(now), node=node, state="warned", warning=warning, about=about))

    def kinds_of(self, node: str) -> tuple[str, ...]:
        """Return the kinds of the warnings that there were about a node."""
        return tuple(self._kinds.get(node, ()))

    def stats(self, wants: Iterable[Want], now: float) -> Stats:
        """Return the counts so far.

        Args:
            wants: The acquisitions that live.
            now: The time.
        """
        counts = self.counts
        held = 0
        waiting: list[float] = []
        for want in wants:
            state = want.state
            held += state is HELD
            if state is WAITING:
                waiting.append(now - want.began)
        return Stats(
            held=held,
            waiting=len(waiting),
            attempts=counts[events.Attempt],
            acquired=counts[events.Acquired],
            refused=counts[events.Refused],
            released=counts["released"],
            lost=counts["lost"],
            renewed=counts[events.Renewed],
            doubts=counts[events.Doubt],
            down=counts["down"],
            dropped=self.dropped,
            contended=self._contended,
            waited=self._waited,
            busy=self._refused["busy"],
            no_quorum=self._refused["no_quorum"],
            gave_up=self._refused["gave_up"],
            opened=counts[events.Opened],
            forced=counts[events.Forced],
            longest_wait=max(waiting, default=0.0),
            left=counts["left"],
        )

    def at(self, now: float) -> datetime:
        """Return the time of the wall clock at a moment."""
        return datetime.fromtimestamp(now + self.epoch, UTC)
