"""One request for one name on N nodes, from its first byte to its release.

This is the client's side of the protocol. It knows the protocol and nothing else: no bytes, socket,
clock, thread or random number. `now` is local monotonic time, in seconds.

The claim is written in layers. `vote` has what happens to one node's vote. `ballot` asks the nodes
and keeps their votes. `renewal` has when they are asked again, and what a majority has confirmed of
that. `outcome` explains an end to people. This module has the states and the decisions.

Theory of operation
===================

Numbers such as Q9 are rules of `docs/protocol.md`, which says what breaks without each of them.

**What a claim is.** One caller wants one name. The claim holds one token, sends it to every node in
`request` commands, and keeps one `Vote` for each node: what that node said last. The lock is held
at the moment at which a majority of the votes count and have the same fence (rule C5). Nothing else
makes it held. There is no leader among the nodes, and nodes do not talk to each other.

**How it is driven.** Everything that happens comes in through one of a few methods: `begin`,
`answered`, `pushed`, `broke`, `joined`, `changed`, `tick`, `extend` and `release`. Each returns
whether there is something to do: commands to send (`sends`), news for the caller (`news`), notes
for observers, or an earlier wake (`wake`). A claim never waits and never asks for the time. So the
engine, the model checker, the simulator and the tests drive the same class.

**Its states.** WAITING, then HELD, then LOST or OVER; or from WAITING straight to OVER.

    WAITING   asks for votes. It becomes HELD by `_hold`, or OVER by `refuse` and `release`.
    HELD      renews its votes. `until` is D, the time at which it ends. It becomes LOST by `lose`.
    LOST      nobody can be sure of it any longer. For good.
    OVER      released, cancelled or refused. For good.

On its way to LOST or OVER it sends a release to every node that may know the token (`_undo`). That
is the last command about the token (rule C10). A claim that `stay`s sends none, and its keys run
out (rule C20).

**When a vote counts.** It must be granted, its bound must not have passed, and no cede may be
unanswered. Then the node holds our token (this is V in `docs/proof.md`), which follows from four
rules:

* Commands to a node and its answers keep their order (rule T1). So its latest word is its state
  after everything that was said before.
* The bound counts from the *sending* of the request whose answer has come (rules C2 and C4), or for
  a pushed grant from the latest request that was answered (rule C3). The node's lease began later
  than that, so it ends later.
* A cede may take the token away at any time from its sending on. So from then on nothing counts
  (rule Q9), and if the answer can no longer come, the vote is `burnt` for this token (rule Q10). A
  waiter then starts over with another token (rule Q11).
* A node that restarted is not asked before its guard is over (rule G1). The connection and the
  engine see to it.

Two majorities share a node, and a node holds one token. So two claims are not held at the same
time.

**What a decision needs.** After each input `check` asks, in this order:

1. Is a held claim's time over? `_late` comes first, before anything is done with the input, and
   with the deadline as it was (rule C6). An answer that is read too late saves nothing.
2. Do a majority of votes count, with one fence? Then it is held, and that fence is its T (rule F8).
3. Does a lower ticket wait where a vote counts? Then cede there, at once (rule Q8). A holder never
   cedes, and neither does a try. The lowest ticket therefore waits for holders only.
4. Do a majority count, but with different fences? Then write the largest back (rule F9).
5. Can nothing come of it? A try ends as soon as fewer than a majority can still grant (rule Q15).
   If a majority is away, both end when it was away for too long (rule C17).

**While it is held.** Every ttl/3 the claim asks all nodes again with its own fence (rules C8 and
F10). D is the bound that a majority of votes reaches, so it moves on when a majority has answered,
and a minority that is away changes nothing. A renewal that is not confirmed in time is repeated
(rule C9). When a connection breaks, its vote counts on until its bound (rule C11).

**The gap rule.** A held claim may hear that a node lost the token by itself: by an operator's hand,
or by a restart. One such node is taken back in silence. But if a majority was without the token at
one moment, somebody else may have held the lock then, and the claim must be lost although every
vote counts again. So each vote knows since when it is certain that its node had the token
(`since`), and up to when (`last`). A break is harmless if enough *other* votes cover the last
moment at which the broken one is certain (rules C12 and C13). An answer that got lost may have told
of a break. Then only the fence can show it, because a grant raises it (rule C14).

**Fences.** The claim proposes its ticket, and later the largest fence that it wrote back or agreed
on. A fence that is further ahead than any sound clock allows is not counted (rule F5): one damaged
record must not become everybody's.

**Two paths.** In the usual case every node is free and nobody waits. Then every answer is the same
text, the claim's own ticket, and is only counted (`as_usual`). At the first thing that is not as
usual, what was counted is unfolded into one `Vote` a node, and from then on every input takes the
long path. Both lead to the same state, which a test checks for every order of answers.

**In company.** The claims of several names, or of a semaphore's slots, are held together by a
`JointRequest`. A claim asks it before it becomes held (`JointRequest.complete`), and tells it of
denials and of its end (rules N2, N3 and P2).
"""

from __future__ import annotations

import enum
from math import inf
from typing import TYPE_CHECKING

from .. import events
from ..errors import NoQuorum, Overtaken, readable
from . import explain as outcome
from . import quorum
from .answer import LASTING, NO_KEY, Denied, Granted, read
from .ballot import Ballot
from .command import CEDE, GRANTED, INQUIRY, KEEP, READER, RELEASE, TAKEN, WAIT, Command, Recipe
from .nodes import NodeSet, Standing
from .renewal import Renewal
from .ticket import TOKEN, Tickets
from .timing import Timing
from .vote import Vote

if TYPE_CHECKING:
    from .joint import JointRequest


class State(enum.Enum):
    """How far a claim has come. LOST and OVER are for good."""

    WAITING = enum.auto()
    HELD = enum.auto()
    # It was held, and nobody can be sure of it any longer.
    LOST = enum.auto()
    # It was released, cancelled or refused.
    OVER = enum.auto()


WAITING, HELD, LOST, OVER = State

# The nodes of all claims whose release nobody waits for: nothing is ever put into it.
_NOBODY: set[int] = set()


class Decision(Ballot):
    """What becomes of a claim: its state, and what is decided after each input.

    A `Claim` adds what can happen to it. The arguments are those of a claim.
    """

    # fmt: off
    __slots__ = (
        "_away_since", "_freed", "_news_from", "_parting", "_renewal", "absurd", "armed", "company", "contended",
        "deadline", "dropped", "left", "limit", "news", "notes", "patient", "place", "queued", "reason", "refusal",
        "routed", "setback", "since", "state", "stays", "timing", "unfit", "until", "wake", "want", "why",
    )
    # fmt: on

    def __init__(
        self,
        recipe: Recipe,
        timing: Timing,
        ticket: int,
        tickets: Tickets,
        node_set: NodeSet,
        deadline: float = inf,
    ) -> None:
        super().__init__(recipe, timing.ttl, ticket, tickets, node_set, timing.wait != 0)
        self.timing = timing
        self.patient = timing.wait != 0
        self._renewal = Renewal(timing.ttl, self._quorum.least, timing.renew, tickets.place(ticket))
        self.deadline = deadline
        # The token by which the engine knows it: after a new start, the one before.
        self.routed = self.token
        # The claims, of one ticket, that it is held together with: all of them, some or none.
        self.company: JointRequest | None = None
        # What observers know the acquisition by: the ticket that it began with.
        self.want = ticket

        # Its state, and until when it is held: D, and when `max_hold` ends it.
        self.state = WAITING
        self.since = 0.0
        self.until = 0.0
        self.limit = inf
        # Do its keys stay on the nodes when it ends, until they run out (rule C20)?
        self.stays = False
        # When it wants a tick, and when the engine will give one.
        self.wake = inf
        self.armed = inf

        # The state changed by itself, or what the caller waits for came: the caller is to be told.
        self.news = False
        # What observers should hear.
        self.notes: tuple[type[events.LockEvent], ...] = ()
        # Nodes that have just said that the name's key is no lock there, or a value without an
        # expiry.
        self.unfit: tuple[int, ...] = ()
        # Nodes that have just told a fence that no clock allows.
        self.absurd: tuple[int, ...] = ()
        # Was somebody else in the way? Was that told?
        self.contended = False
        self.queued = False
        # Its place in the queue of the node that denied it first: 0 is first in line.
        self.place = 0
        # Seconds that were left of the lease just before the latest renewal was confirmed.
        self.left = 0.0
        # Did its owner let it die without a release?
        self.dropped = False
        # Why it came to nothing, why its latest extension did, and why it was lost.
        self.refusal: Exception | None = None
        self.setback: NoQuorum | None = None
        self.reason = ""
        # What the nodes have against its latest renewal, if that is not confirmed.
        self.why = ""

        # Since when too few nodes are of use, as far as this claim has seen.
        self._away_since = inf
        # The nodes that had news, a bit for each.
        self._news_from = 0
        # Nodes whose answer to the release somebody waits for, and those that have confirmed it.
        self._parting = _NOBODY
        self._freed: tuple[int, ...] = ()

    # ------------------------------------------------ the decision

    def check(self, now: float, otherwise: str = "expired") -> bool:
        """Decide, after anything has arrived: is it held? If not, what else is there to say?

        Args:
            now: The time.
            otherwise: Why it is lost, if it is.
        """
        good = self._counting(now)
        if self.state is HELD:
            return self._confirm(good, now, otherwise)
        fence, until = self.could_hold(now)
        if fence and self._hold(fence, until, now):
            return True
        if self.patient:
            self._cede(now)
        elif self._hopeless() and self._node_set.dark == inf:
            return self.refuse(self.verdict(now), now)
        self._write_back(now)
        return self._dismayed(now) or self._stirs

    def _counting(self, now: float) -> dict[int, Vote]:
        """Return the votes that count, by node. A grant whose bound has passed counts no longer."""
        good = {}
        for node, vote in enumerate(self.votes):
            if vote.counts(now):
                good[node] = vote
            elif vote.granted:
                vote.lapses()
                # If enough others had the token all the time, it does not matter what became of
                # this one. If not, its series stays open until the node speaks (rule C12).
                if not self._gap(vote, now):
                    vote.breaks()
        self.counted = len(good)
        return good

    def could_hold(self, now: float) -> tuple[int, float]:
        """Return the fence, and until when, if it could be held (rules C5, F8, F11); else zeros."""
        if self.as_usual is not None:
            agreed = self._quorum.met(self.as_usual) and now < self._base
            return (self.ticket, self._base) if agreed else (0, 0.0)
        good = self._counting(now)
        fence = self._quorum.agreed({node: vote.fence for node, vote in good.items()})
        if fence <= self._above:
            return 0, 0.0
        return fence, self._quorum.reached_by({node: vote.bound for node, vote in good.items()})

    def _hold(self, fence: int, until: float, now: float) -> bool:
        """Hold it, unless it is too late or its company is not complete."""
        # Only the short path comes here unchecked (rule C5).
        if now >= until:
            return False
        if self.company is not None and not self.company.complete(self, now):
            return False
        self.hold(fence, until, now)
        return True

    def hold(self, fence: int, until: float, now: float) -> None:
        """Be held from now on, with this fence."""
        self.news = True
        self.fence = fence
        self.since = now
        # Renewals propose T, so a node that stood below it and then says it was raised by us.
        self._propose = fence
        self._largest = max(self._largest, fence)
        self.limit = now + self.timing.max_hold
        self.until = min(until, self.limit)
        self._renewal.holds(until, now)
        self.wake = min(self.until, self._renewal.due)
        # Last, because other threads look at it.
        self.state = HELD

    def _dismayed(self, now: float) -> bool:
        """Refuse a wait that cannot succeed (rule C17).

        The name's key is of another type, or a majority has been away for too long since the claim
        began: a claim that finds the nodes away gives them the time to come back.
        """
        node_set = self._node_set
        if node_set.dark == inf and all(vote.error is None for vote in self.votes):
            self._away_since = inf
            return False
        misfit = outcome.misfit(self.recipe.label, self.votes, node_set)
        if misfit is not None:
            return self.refuse(misfit, now)
        if not self._away():
            self._away_since = inf
            return False
        self._away_since = min(self._away_since, now)
        if now >= self._gives_up:
            return self.refuse(self.verdict(now), now)
        self.wake = min(self.wake, self._gives_up)
        return False

    def _confirm(self, good: dict[int, Vote], now: float, otherwise: str) -> bool:
        """Move D to what the votes that count reach, and see what that confirms (rule C6)."""
        good_until = self._quorum.reached_by({node: vote.bound for node, vote in good.items()})
        if good_until <= now:
            return self.lose(now, otherwise)
        left = self.until - now
        self.until = min(good_until, self.limit)
        sent = self._quorum.reached_by({node: vote.last for node, vote in good.items()})
        renewed, extended = self._renewal.confirms(sent, good_until)
        if renewed:
            self.why = ""
            self.left = left
            self.notes += (events.Renewed,)
        if extended:
            self.setback = None
            self.news = True
            # A downgrade has raised it.
            if self.token.endswith(READER):
                self.fence = self._propose
        self._plan()
        return self._stirs

    # ------------------------------------------------ the gap rule

    def _breaks(self, vote: Vote, now: float) -> bool:
        """End a node's series: it lost the token by itself. Returns True if that was a gap."""
        if self._gap(vote, now):
            return True
        vote.breaks()
        return False

    def _gap(self, vote: Vote, now: float) -> bool:
        """Return whether others may have held a majority while a holder's node was lost (C12).

        From its last grant on, the node may have been without the token. That is harmless if enough
        others certainly had it from then on, or from the beginning of the lease.
        """
        if self.state is not HELD:
            return False
        moment = max(vote.last, self.since)
        unsure = [i for i, other in enumerate(self.votes) if other is vote or not other.covers(moment, now)]
        return self._quorum.met_by_some(unsure)

    def _begins(self, vote: Vote, fence: int, now: float) -> float:
        """Return since when a series is certain that begins with a grant of this fence (rule C13).

        A node that counts when the claim becomes held has the token then. The first grant of
        another node is as good if it was asked for before then, and its fence is T at most: nobody
        held it in between.
        """
        if self.state is not HELD:
            return -inf
        first = vote.last == -inf and vote.sent <= self.since
        return -inf if first and fence <= self.fence else now

    # ------------------------------------------------ ends

    def release(self, now: float, heard: bool = False) -> None:
        """Give the lock back, or stop waiting for it (rule C10).

        Args:
            now: The time.
            heard: Give news when a quorum has confirmed it, or no other node can.
        """
        if self._late(now):
            self._lapse(now)
        if self.state is LOST or self.state is OVER:
            return
        if self.stays:
            self.state = OVER
            self.news = heard
            return
        if heard:
            self._parting = set(self._may_know).intersection(self._node_set.up)
            self.news = not self._parting
        least = self.timing.at_least
        rest = max(0.0, self.since + least - now) if least and self.state is HELD else 0.0
        self._undo(self._may_know, now, heard, rest)
        # Last: a caller that is interrupted in here has its lease released by the I/O thread.
        self.state = OVER

    def refuse(self, error: Exception, now: float) -> bool:
        """End it: nothing came of it."""
        self.release(now)
        self.refusal = error
        self.news = True
        if self.company is not None:
            self.company.ended(self, now)
        return True

    def lose(self, now: float, reason: str) -> bool:
        """Lose it, for good. The caller is told at once; the release is a courtesy to waiters."""
        # The reason first: another thread that sees the state reads it.
        if reason == "expired":
            self.why = outcome.obstacles(self.votes, self._node_set, self._patience, now)
            # Nobody would look for a cause among nodes that are up.
            if self._away() and any(vote.error is not None for vote in self.votes):
                reason = "refused"
        over = reason in ("expired", "refused", "slow", "max_hold")
        self.reason = "dropped" if over and self.dropped else reason
        self.state = LOST
        self.news = True
        self.wake = inf
        if not self.stays:
            self._undo(self._may_know, now)
        if self.company is not None:
            self.company.ended(self, now)
        return True

    def _late(self, now: float) -> bool:
        """Return whether a held claim's time is over (rule C6)."""
        return self.state is HELD and now >= self.until

    def _lapse(self, now: float, unread: bool = False) -> bool:
        """Lose it because its time has passed.

        Args:
            now: The time.
            unread: An answer that lay unread shows it: then this process did not run, or did not
                look. The same is true if it is noticed much later.
        """
        if self.until >= self.limit:
            return self.lose(now, "max_hold")
        slow = unread or now > self.until + self._patience
        return self.lose(now, "slow" if slow else "expired")

    def _let_go(self, node: int, certain: bool) -> bool:
        """Note that a node answered a release that somebody waits for, or never will."""
        if node not in self._parting:
            return False
        self._parting.discard(node)
        if certain:
            self._freed += (node,)
        decides = self._quorum
        enough = len(self._freed) >= decides.least and (decides.plain or decides.met(self._freed))
        if enough or not self._parting:
            self._parting = _NOBODY
            self.news = True
        return self.news

    # ------------------------------------------------ how it stands

    def _plan(self) -> None:
        """Say when to be woken next."""
        if self.state is HELD:
            self.wake = min(self.until, self._renewal.wake(self._patience))
        else:
            self.wake = min(self._renewal.due, self.deadline, self._gives_up, self._next_expiry())

    @property
    def _stirs(self) -> bool:
        """Is there something to do: commands to send, news, or an earlier wake?"""
        to_tell = self.news or self.notes or self.unfit or self.absurd
        return bool(self.sends or to_tell) or self.wake < self.armed

    @property
    def _patience(self) -> float:
        """How many seconds it waits for answers before it doubts: a third of its ttl at most."""
        return min(self._node_set.patience, self.ttl / 3)

    @property
    def _gives_up(self) -> float:
        """When a majority has been away for too long: `outage`, and for a try `node_timeout`."""
        patience = self._patience
        return self._away_since + (max(self._node_set.outage, patience) if self.patient else patience)

    @property
    def doubt(self) -> bool:
        """Is a renewal overdue?"""
        return self._renewal.doubt

    @property
    def done(self) -> bool:
        """Is there nothing more to hear about it?"""
        # A release that somebody waits for is still to be heard of.
        return self.state is LOST or (self.state is OVER and not self._parting)

    @property
    def awaited(self) -> bool:
        """Does somebody wait for the nodes to confirm an extension or a release of it?"""
        return (self._renewal.extending and self.state is HELD) or bool(self._parting)

    @property
    def freed(self) -> int:
        """How many nodes have confirmed its release, to a caller that waits for them."""
        return len(self._freed)

    # ------------------------------------------------ what people are told

    def verdict(self, now: float) -> Exception:
        """Return what to tell a caller who waited in vain: is it busy, or does nobody know?"""
        if self.as_usual is not None:
            self._unfold()
        return outcome.in_vain(self.recipe, self.tickets.inbox, self.votes, self._node_set, self.began, now)

    def warning(self, node: int) -> str:
        """Return what is to be said of a node that is `unfit` for the name."""
        return outcome.warning(self.recipe, self.votes[node])


class Claim(Decision):
    """A request for a name, from its first byte to its release. Its state is for reading only.

    Args:
        recipe: How its primitive talks to a node about the name.
        timing: What its caller demands of the lease. With a `wait` of 0, it tries once.
        ticket: Its place in the queue, and the fence that it proposes first.
        tickets: Where its tokens come from.
        node_set: The nodes, and which of them can be spoken to.
        deadline: When to stop waiting.
    """

    __slots__ = ()

    # ------------------------------------------------ what the caller wants

    def begin(self, now: float) -> None:
        """Ask every node that can be spoken to, all at once."""
        self.began = now
        # (A call would cost every acquire something.)
        lasting = self.ttl if self.ttl <= quorum.UNMARKED else self._node_set.lasting(self.ttl, now)
        self._base = quorum.bound(now, lasting)
        if self._node_set.floor >= self.ticket:
            self._rise()
        self._renewal.waits(now)
        # A try is over before it would have a heartbeat (rule Q15).
        if not self.patient:
            self.deadline = min(self.deadline, now + self.ttl / 3)
        self.wake = min(self._renewal.due, self.deadline)
        nodes = self._node_set.up
        self._may_know = nodes
        if nodes:
            # Made here, and not by `_request`: this is on the way of every acquire.
            first = Command(
                self, self._mode, self.token, now, self.ttl, self._propose, clock=self.ticket, lasting=lasting
            )
            first.expected = b"$16\r\n%b\r\n" % self.usual
            self.sends.append((nodes, first))
        if not self._node_set.enough:
            self._unfold()
            self.check(now)

    def hurry(self, now: float) -> None:
        """Renew a lease at once, because its grants count for longer from now on (rule G14)."""
        if self.state is HELD:
            self._renewal.hurries(now)
            self._plan()

    def decline(self, error: Exception, now: float) -> None:
        """Refuse it before anything is asked, because it cannot work."""
        self.began = now
        self.refuse(error, now)

    def extend(self, ttl: float, now: float, share: bool = False, hold: float | None = None) -> bool:
        """Make the lease last at least `ttl` seconds from now (rule C18).

        News come when a quorum has confirmed it, or, with a `setback`, when it has not in time.

        Args:
            ttl: Seconds from now.
            now: The time.
            share: Make a reader of a writer (rule D2). What a node says from now on counts; until
                it has answered, what it said of the writer does.
            hold: Move the end that `max_hold` sets to this many seconds from now. None leaves it.

        Returns:
            False if the claim is not held.
        """
        if self._late(now):
            self._lapse(now)
        if self.state is not HELD:
            return False
        if hold is not None:
            # A later end counts when a quorum has confirmed that the lease lasts longer.
            self.limit = now + hold
            self.until = min(self.until, self.limit)
        if self.as_usual is not None:
            self._unfold()
        if share:
            self._share()
        self._renewal.extends(quorum.bound(now, ttl), now)
        self._ask([node for node in self._node_set.up if not self.votes[node].burnt], KEEP, now, ttl)
        self._plan()
        return True

    def expects(self, fence: int) -> None:
        """Note that its owner raises the nodes' fences to this one by other means (rule O8)."""
        self._largest = max(self._largest, fence)

    def abandon(self, owner: object = None) -> None:
        """Stop renewing: its owner is gone without a release, so that it ends with its lease.

        Args:
            owner: The weak reference to it, if this is what that calls.
        """
        self._renewal.stops()
        self.dropped = True

    def stay(self) -> None:
        """Have its keys stay on the nodes when it ends, however it ends (rule C20)."""
        if self.state is HELD:
            self.stays = True

    def close(self, now: float) -> None:
        """End it, because its client is being closed."""
        if self._late(now):
            self._lapse(now)
        elif self.state is HELD:
            self.lose(now, "closed")
        elif self.state is WAITING:
            self.release(now)
            self.news = True

    # ------------------------------------------------ what a node answers

    def answered(self, node: int, command: Command, reply: object, now: float) -> bool:
        """Take in what a node has answered to a command of this claim."""
        # What is still said of the token before a new start means nothing (rule Q11).
        if command.token is not self.token:
            return False
        if self.as_usual is not None and reply == self.usual:
            self.as_usual.append(node)
            if self.state is WAITING:
                # Without a call: this is on the way of every acquire.
                decides = self._quorum
                enough = len(self.as_usual) >= decides.least and (decides.plain or decides.met(self.as_usual))
                return enough and self._hold(self.ticket, self._base, now)
            return self._late(now) and self._lapse(now, unread=True)
        if command.mode is RELEASE:
            return self._let_go(node, not isinstance(reply, Exception))
        if self.state is LOST or self.state is OVER:
            return False
        if self.as_usual is not None:
            self._unfold()
        # Whatever has arrived, the clock comes first, with the deadline as it was (rule C6).
        if self._late(now):
            return self._lapse(now, unread=True)
        vote = self.votes[node]
        vote.heard()
        # The usual answer to a renewal is counted without reading it further.
        if self.state is HELD and type(reply) is int and vote.keeps(reply, command.sent, command.grants_until()):
            return self._decides(vote) and self.check(now)
        answer = read(reply)
        if answer is None:
            return self._failed(node, command, reply, now)
        return self._told(node, command, answer, now)

    def _told(self, node: int, command: Command, answer: Granted | Denied, now: float) -> bool:
        """Take in an answer that the script gave, in the order of the rules."""
        vote = self.votes[node]
        # A burnt node never counts again: what it grants is given back (rule Q10).
        if vote.burnt:
            return isinstance(answer, Granted) and self._undo((node,), now)
        # From a cede to its answer, nothing counts (rule Q9).
        if vote.ceding and command.mode is not CEDE:
            return False
        # Did the node lose the token since its last grant (rules C12 and C14)?
        # A record that is damaged meanwhile shows no grant (rule F5).
        again = isinstance(answer, Granted) and (
            answer.fresh or (vote.raised(answer.fence, self._largest) and answer.fence <= self.latest(now))
        )
        if vote.since < inf and (again or isinstance(answer, Denied)) and self._breaks(vote, now):
            return self.lose(now, "gap")
        vote.answered(command.sent, command.grants_until())
        if isinstance(answer, Denied):
            return self._denied(node, answer, now, command.watch)
        # A holder that the node had before loses nothing if the record is damaged meanwhile: its
        # token is there (rule F5).
        if answer.fence > self.latest(now) and (again or not vote.granted or self.state is not HELD):
            return self._discounts(node, answer.fence, now)
        return self._granted(vote, answer, again, now)

    def _granted(self, vote: Vote, answer: Granted, again: bool, now: float) -> bool:
        """Count a grant. Most of them are one more yes that decides nothing."""
        if not vote.granted:
            self.counted += 1
        # A lease that was granted again may be shorter than an extension had asked for.
        shorter = vote.grants(answer, again, self._begins(vote, answer.fence, now))
        if self.state is WAITING:
            decides = self.counted >= self._quorum.least
        else:
            decides = self._decides(vote)
        return (decides or answer.lower or shorter) and self.check(now)

    def _decides(self, vote: Vote) -> bool:
        """Return whether a grant to a holder may confirm something, or move D."""
        decides = self._renewal.hears()
        return vote.bound > self.until if decides is None else decides

    def _denied(self, node: int, answer: Denied, now: float, watching: bool) -> bool:
        """Note who has the name instead, and ask for others that would do as well."""
        self.votes[node].denies(answer, now)
        # The holder there may have it, and a node of ours may have lost its record (rule F11).
        if self.state is WAITING and self._above < answer.fence < self.latest(now):
            self._above = answer.fence
            self._propose = max(self._propose, self._above + 1)
        if answer.left == LASTING:
            self.unfit += (node,)
        if self.state is WAITING and self.patient:
            if not self.queued:
                self.queued = True
                self.place = answer.place
                self.notes += (events.Queued,)
            if answer.place == 0:
                self._first_in_line(node, answer, now, watching)
        self.contended = True
        more = self.company is not None and self.company.denied(now)
        return self.check(now, "gap") or more

    def _first_in_line(self, node: int, answer: Denied, now: float, watching: bool) -> None:
        """Plan to notice the end of a holder that may hand nothing on.

        Args:
            node: The node that has denied.
            answer: What it said.
            now: The time.
            watching: The request had the node watch the key already.
        """
        vote = self.votes[node]
        # A holder that crashed: ask again when its key has run out (rule Q13).
        if answer.left >= 0:
            vote.expects_expiry(answer.left, now)
            self.wake = min(self.wake, vote.expiry)
        # A holder of another kind wakes nobody: the node is to tell when it leaves (rule Q14).
        holder = answer.holder
        if answer.left == NO_KEY or holder is None or TOKEN.fullmatch(holder) or holder == vote.watched:
            return
        vote.watches(holder)
        if not watching:
            self._ask((node,), WAIT, now, watch=True)

    def _failed(self, node: int, command: Command, error: object, now: float) -> bool:
        """Note an answer that is an error: nobody knows what the node did (rule C4)."""
        vote = self.votes[node]
        vote.failed(error if isinstance(error, Exception) else TypeError(f"unexpected answer {readable(repr(error))}"))
        if vote.no_lock:
            self.unfit += (node,)
        if command.mode is CEDE and vote.ceding:
            return self._burn(vote, now)
        return self.check(now)

    def _discounts(self, node: int, fence: int, now: float) -> bool:
        """Give a node no vote for this name: no clock allows the fence that it has granted."""
        ahead = (fence - self.ticket) / 1e6 - (now - self.began)
        self.votes[node].refused(outcome.too_far_ahead(self.recipe.label, fence, ahead))
        self.absurd += (node,)
        return self.check(now, "gap")

    # ------------------------------------------------ what a node says by itself

    def pushed(self, node: int, kind: bytes, fence: int, now: float) -> bool:
        """Take in a push: granted, make way (an inquiry), or taken away by an operator."""
        if self.as_usual is not None:
            self._unfold()
        if self._late(now):
            return self._lapse(now, unread=True)
        vote = self.votes[node]
        if vote.burnt:
            return kind == GRANTED and self._undo((node,), now)
        if vote.ceding or kind not in (GRANTED, INQUIRY, TAKEN):
            return False
        self.contended |= self.state is WAITING
        if kind == INQUIRY:
            vote.inquires()
            return self.check(now)
        reason = "forced" if kind == TAKEN else "gap"
        if vote.since < inf and self._breaks(vote, now):
            return self.lose(now, reason)
        if kind == TAKEN:
            vote.taken()
        elif fence > self.latest(now):
            return self._discounts(node, fence, now)
        else:
            vote.grants_by_push(fence, self._begins(vote, fence, now))
        return self.check(now, reason)

    def had_news(self, node: int, now: float) -> bool:
        """Note that what is waited for may have come by other means, as a node says."""
        self._news_from |= 1 << node
        overtaken = self.state is WAITING and 0 < self.timing.news_needed <= self._news_from.bit_count()
        return overtaken and self.refuse(Overtaken(self.recipe.label, now - self.began), now)

    def changed(self, node: int, now: float, flushed: bool = False) -> bool:
        """Note that something happened to the name's key on a node that was asked to tell.

        Args:
            node: The node.
            now: The time.
            flushed: It happened to all keys of the node.
        """
        if flushed and self.state is HELD:
            return self._flushed(node, now)
        if self.state is not WAITING or self.as_usual is not None or self.votes[node].watched is None:
            return False
        self.votes[node].changed()
        return self._ask((node,), WAIT, now, watch=True)

    def _flushed(self, node: int, now: float) -> bool:
        """Ask a node that may be empty at once, and not when the next renewal is due (rule C15).

        A node tells of every flush, also of another database's keys. So nothing is known before it
        has answered. A waiter does not ask, so that holders hear of it, and ask, before others do.
        """
        if self.as_usual is not None:
            self._unfold()
        if self._late(now):
            return self._lapse(now, unread=True)
        vote = self.votes[node]
        # An answer that the node still owes comes after this news, and so is as new. That also
        # bounds what many flushes make us send.
        if vote.owed or vote.burnt or self._node_set.standing[node] is not Standing.UP:
            return False
        # A lease that is not renewed gets no longer by this.
        ttl = self.ttl if self._renewal.wanted else max(self.until - now, 0.001)
        return self._ask((node,), KEEP, now, ttl)

    # ------------------------------------------------ what happens to connections, and time

    def broke(self, node: int, now: float) -> bool:
        """Note that the connection to the node is gone. Its grant counts on (rule C11)."""
        if self.state is OVER or self.state is LOST:
            return self._let_go(node, False)
        if self.as_usual is not None:
            self._unfold()
        if self._late(now):
            return self._lapse(now)
        vote = self.votes[node]
        vote.disconnected()
        # The cede that was under way may yet be executed (rule Q10).
        if vote.ceding:
            return self._burn(vote, now)
        return self.check(now)

    def joined(self, node: int, now: float, restarted: bool = False) -> bool:
        """Note that the node can be spoken to, on a new connection (rule C16).

        Args:
            node: The node.
            now: The time.
            restarted: Its server is another run, of which nobody waits until it can have forgotten
                nothing. Then a holder asks at once, as after a flush (rule C15).
        """
        if self.state is OVER or self.state is LOST:
            return False
        if self.as_usual is not None:
            self._unfold()
        if self._late(now):
            return self._lapse(now)
        if self.votes[node].burnt:
            return self._undo((node,), now)
        if self.state is WAITING:
            self._rise()
            return self._ask((node,), self._mode, now)
        if restarted:
            return self._flushed(node, now)
        if self.doubt and self._renewal.wanted:
            return self._ask((node,), KEEP, now)
        # A holder asks it at its next renewal, so that holders which rejoin are spread over ttl/3.
        return False

    def relented(self, node: int, now: float) -> bool:
        """Note that a node that refused writes takes them again: a waiter asks it again (C17)."""
        if self.as_usual is not None or self.votes[node].error is None:
            return False
        vote = self.votes[node]
        vote.relents()
        return self.state is WAITING and not vote.owed and self._ask((node,), self._mode, now)

    def tick(self, now: float) -> bool:
        """Do what is due: it is `wake` or later, or a node stands differently from before."""
        if self.state is OVER or self.state is LOST:
            return False
        if self.as_usual is not None:
            self._unfold()
        if self._late(now):
            return self._lapse(now)
        if self.state is HELD:
            self._renew(now)
        elif now >= self.deadline:
            return self.refuse((self.company or self).verdict(now), now)
        else:
            self._heartbeat(now)
        self.check(now)
        if self.state is WAITING:
            self._plan()
        return True

    def _heartbeat(self, now: float) -> None:
        """Ask each node that owes nothing, every ttl/3 (rule Q12).

        A node where it is first in line is also asked when the holder's key there has run out.
        """
        beat = self._renewal.beats(now)
        due = []
        for node in self._node_set.up:
            vote = self.votes[node]
            expired = vote.expired(now)
            if not vote.owed and (beat or (expired and not vote.granted)):
                due.append(node)
        self._ask(due, self._mode, now)

    def _renew(self, now: float) -> None:
        """Ask all nodes every ttl/3, save those that owe two answers (rules C8 and C9)."""
        renewal = self._renewal
        patience = self._patience
        if renewal.doubts(now, patience):
            self.why = outcome.obstacles(self.votes, self._node_set, self._patience, now)
            self.notes += (events.Doubt,)
        # The caller of an extension waits no longer. The lease itself is kept as long as it lasts.
        sent = renewal.gives_up(now, patience)
        if sent < inf:
            self.setback = outcome.unheard(self.recipe.label, self.votes, self._node_set, "extend", sent, now)
            self.news = True
        if renewal.leaves(now, patience):
            votes = self.votes
            self._ask([node for node in self._node_set.up if votes[node].owed < 2 and not votes[node].burnt], KEEP, now)

    # ------------------------------------------------ new starts

    def _burn(self, vote: Vote, now: float) -> bool:
        """Give up a node whose cede was not answered: it may be executed later (rule Q10)."""
        if self.state is WAITING:
            return self._start_over(now)
        vote.burns()
        return self.check(now)

    def moved(self, seconds: float, now: float) -> bool:
        """Start over with the right ticket: its clock was wrong by this many seconds (rule F6)."""
        if self.state is not WAITING:
            return False
        if self.as_usual is not None:
            self._unfold()
        self.ticket += int(seconds * 1e6)
        # A node far ahead, which our clock had let pass, may have told it: F5 would refuse it now
        # (rule F11).
        if self._above >= self.latest(now):
            self._above = 0
        self._propose = max(self.ticket, self._above + 1)
        self._largest = self._propose
        return self._start_over(now)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims that it consists of: itself. (Several names are a JointRequest.)"""
        return (self,)
