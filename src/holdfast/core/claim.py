"""One request for one name on N nodes, from its first byte to its release: the client's side of the protocol.

Knows the protocol and nothing else: no bytes, socket, clock, thread or random number. `now` is local
monotonic time, in seconds.

Theory of operation
===================

Numbers such as Q9 are rules of `docs/protocol.md`, which says what breaks without each of them.

**What a claim is.** One caller wants one name. The claim holds one token, sends it to every node in
`request` commands, and keeps one `Vote` for each node: what that node said last. The lock is held at
the moment at which a majority of the votes count and have the same fence (rule C5). Nothing else makes
it held. There is no leader among the nodes, and nodes do not talk to each other.

**How it is driven.** Everything that happens comes in through one of a few methods: `begin`,
`answered`, `pushed`, `broke`, `joined`, `changed`, `tick`, `extend` and `release`. Each returns whether
there is something to do: commands to send (`sends`), news for the caller (`news`), notes for observers,
or an earlier wake (`wake`). A claim never waits and never asks for the time. So the crew, the model
checker, the simulator and the tests drive the same class.

**Its states.** WAITING, then HELD, then LOST or OVER; or from WAITING straight to OVER.

    WAITING   asks for votes. It becomes HELD by `_hold`, or OVER by `refuse` and `release`.
    HELD      renews its votes. `until` is D, the time at which it ends. It becomes LOST by `lose`.
    LOST      nobody can be sure of it any longer. For good.
    OVER      released, cancelled or refused. For good.

On its way to LOST or OVER it sends a release to every node that may know the token (`_undo`). That is
the last command about the token (rule C10).

**When a vote counts.** It must be granted, its bound must not have passed, and no cede may be
unanswered. Then the node holds our token (this is V in `docs/proof.md`), which follows from four rules:

* Commands to a node and its answers keep their order (rule T1). So its latest word is its state after
  everything that was said before.
* The bound counts from the *sending* of the request whose answer has come (rules C2 and C4), or for a
  pushed grant from the latest request that was answered (rule C3). The node's lease began later than
  that, so it ends later.
* A cede may take the token away at any time from its sending on. So from then on nothing counts
  (rule Q9), and if the answer can no longer come, the vote is `burnt` for this token (rule Q10). A
  waiter then starts over with another token (rule Q11).
* A node that restarted is not asked before its guard is over (rule G1). The lane and the crew see to it.

Two majorities share a node, and a node holds one token. So two claims are not held at the same time.

**What a decision needs.** After each input `check` asks, in this order:

1. Is a held claim's time over? `_late` comes first, before anything is done with the input, and with
   the deadline as it was (rule C6). An answer that is read too late saves nothing.
2. Do a majority of votes count, with one fence? Then it is held, and that fence is its T (rule F8).
3. Does a lower ticket wait where a vote counts? Then cede there, at once (rule Q8). A holder never
   cedes, and neither does a try. The lowest ticket therefore waits for holders only.
4. Do a majority count, but with different fences? Then write the largest back (rule F9).
5. Can nothing come of it? A try ends as soon as fewer than a majority can still grant (rule Q15).
   Waiting ends when a majority was away for too long (rule C17).

**While it is held.** Every ttl/3 the claim asks all nodes again with its own fence (rules C8 and F10).
D is the bound that a majority of votes reaches, so it moves on when a majority has answered, and a
minority that is away changes nothing. A renewal that is not confirmed in time is repeated (rule C9).
When a connection breaks, its vote counts on until its bound (rule C11).

**The gap rule.** A held claim may hear that a node lost the token by itself: by an operator's hand, or
by a restart. One such node is taken back in silence. But if a majority was without the token at one
moment, somebody else may have held the lock then, and the claim must be lost although every vote counts
again. So each vote knows since when it is certain that its node had the token (`since`), and up to when
(`last`). A break is harmless if enough *other* votes cover the last moment at which the broken one is
certain (rules C12 and C13). An answer that got lost may have told of a break. Then only the fence can
show it, because a grant raises it (rule C14).

**Fences.** The claim proposes its ticket, and later the largest fence that it wrote back or agreed on. A
fence that is further ahead than any sound clock allows is not counted (rule F5): one damaged record must
not become everybody's.

**Two paths.** In the usual case every node is free and nobody waits. Then every answer is the same text,
the claim's own ticket, and is only counted (`plain`). At the first thing that is not as usual, what was
counted is unfolded into one `Vote` a node, and from then on every input takes the long path. Both lead to
the same state, which a test checks for every order of answers.

**In company.** The claims of several names, or of a semaphore's slots, are held together by a `Goal`. A
claim asks it before it becomes held (`Company.complete`), and tells it of denials and of its end (rules
N2, N3 and P2).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from math import inf
from typing import Protocol

from .. import events
from ..errors import ITSELF, ConfigError, LockBusy, NoQuorum, Overtaken, readable
from . import quorum
from .command import CEDE, GRANTED, INQUIRY, READER, RELEASE, SHARED, TAKEN, TRY, WAIT, Command, Recipe
from .reach import DOWN, HOPED, UP, Reach
from .ticket import FENCE, TOKEN, Mint, inbox_of


class State(enum.Enum):
    """How far a claim has come. LOST and OVER are for good."""

    WAITING = enum.auto()
    HELD = enum.auto()
    LOST = enum.auto()  # was held, and nobody can be sure of it any longer
    OVER = enum.auto()  # released, cancelled or refused


WAITING, HELD, LOST, OVER = State

LASTING, NO_KEY = -1, -2  # what a node says instead of milliseconds: the holder's key never expires; there is none
SHOWN = 64  # bytes of the holder's value that a denial shows
AHEAD = 0.1  # seconds by which a renewal may leave before it is due, together with others; less where leases are short
_NOBODY: set[int] = set()  # (of all claims whose release nobody waits for: nothing is ever put into it)


class Vote:
    """What one node said last. (Defaults on the class: most votes never leave them.)"""

    granted = False
    lower = False  # a lower ticket waits there
    denied = False
    ceding = False  # asked to make way there, and the answer is not here: nothing it says counts
    burnt = False  # that answer will never come: it never counts again for this token
    broken = False  # it once lost the token by itself
    unsure = False  # its connection broke with an answer under way that may have said so
    fence = 0
    wrote = 0  # the fence last sent to be written back
    owed = 0  # answers not yet here
    sent = -inf  # when the last request that was answered on this connection had been sent; -inf: none yet
    base: float  # the bound that a pushed grant has: by that request
    bound = -inf  # until when its grant counts, drift taken off
    last = -inf  # when the request behind its latest grant had been sent
    since = inf  # when its unbroken series of grants began; inf: there is none
    first = 0  # the fence of the grant that began it
    expiry = inf  # first in line: when the holder's key there runs out
    holder: bytes | None = None
    left = NO_KEY  # milliseconds that the holder's key had there when it was told, or LASTING
    told = 0.0  # when that was
    watched: bytes | None = None  # the holder, no client of ours, whose leaving the node will tell: it tells every change once
    error: Exception | None = None  # its last answer, if that was none


class Company(Protocol):
    """The claims, of one ticket, that a claim is held together with: all of them, or some, or none."""

    def complete(self, claim: Claim, now: float) -> bool:
        """The claim could be held. Could enough others, at this moment? Then they are."""

    def denied(self, now: float) -> bool:
        """A node says that somebody else has what the claim asks for. True if others are asked for now."""

    def ended(self, claim: Claim, now: float) -> None:
        """The claim is lost, or came to nothing."""

    def verdict(self, now: float) -> Exception:
        """What to tell a caller who waited in vain."""


class Claim:
    """A request for a name. `ttl`: of the lease, seconds; `patient`: wait, or try once; `deadline`: when to stop waiting.

    `renew`: keep the lease alive until `max_hold` seconds after it began; `heed`: so many nodes that have news end the wait, 0: none do.
    Its state is for reading only.
    """

    __slots__ = (
        "__weakref__", "_asked", "_base", "_beat", "_dark", "_deadline", "_extended", "_goal", "_heard", "_heed", "_largest",
        "_parting", "_propose", "_quorum", "_reach", "_renew", "_renewed", "_touched", "_usual", "absurd",
        "armed", "began", "company", "contended",
        "doubt", "fence", "freed", "limit", "max_hold", "mint", "news", "notes", "patient", "plain", "queued", "reason", "recipe",
        "refusal", "routed", "sends", "setback", "since", "state", "ticket", "token", "ttl", "unfit", "until", "votes", "wake",
        "yes",
    )  # fmt: skip

    def __init__(
        self,
        recipe: Recipe,
        ttl: float,
        ticket: int,
        mint: Mint,
        reach: Reach,
        *,
        patient: bool = True,
        deadline: float = inf,
        renew: bool = True,
        max_hold: float = inf,
        heed: int = 0,
    ) -> None:
        self.recipe, self.ttl, self.ticket, self.mint, self._reach = recipe, ttl, ticket, mint, reach
        self.patient, self._deadline, self._renew, self.max_hold = patient, deadline, renew, max_hold
        self.token = self.routed = mint.token(ticket) + recipe.kind  # routed: the one under which the crew knows it
        self.state, self.fence, self.until, self.limit = WAITING, 0, 0.0, inf
        self.company: Company | None = None
        self.wake = self.armed = inf  # when it wants a tick; when the crew will give one
        self.sends: list[tuple[Sequence[int], Command]] = []
        self.notes: tuple[type[events.LockEvent], ...] = ()  # what observers should hear
        # Nodes that have just said that the name's key is no lock there, or another program's lock that never expires.
        self.unfit: tuple[int, ...] = ()
        # Nodes that have just told a fence that no clock allows.
        self.absurd: tuple[int, ...] = ()
        self.news = False  # the state changed by itself, or what the caller waits for came: tell
        self.doubt = self.contended = self.queued = False
        self.refusal: Exception | None = None  # why it came to nothing
        self.setback: NoQuorum | None = None  # why its latest extension came to nothing
        self.reason = ""  # why it was lost
        self.began = self.since = 0.0  # when it began; when it was held
        self.yes = 0  # never less than the nodes that count
        self.plain: list[int] | None = []  # the nodes whose answer was as usual; None once every vote is kept apart
        self.votes: Sequence[Vote] = ()
        self.freed = 0  # nodes that have confirmed the release
        self._parting = _NOBODY  # nodes whose answer to the release somebody waits for
        self._quorum, self._propose = reach.quorum, ticket
        self._largest = ticket  # the largest fence ever proposed
        self._usual = self.token[:16]  # granted now, nobody waits, and the fence is our ticket
        self._touched: Sequence[int] = ()  # nodes that may know the token
        self._asked = inf  # when the renewal that is not yet confirmed was sent
        self._extended = inf  # the same of the extension that somebody waits for
        self._renewed = 0  # grants heard since the first of the two was sent, a quorum at most
        self._goal = 0.0  # until when that one has to make it last
        self._heed, self._heard = heed, 0  # the nodes that had news, a bit for each
        self._beat = inf  # when to ask everybody again
        self._dark = inf  # since when too few nodes are of use
        self._base = self.began  # until when a grant of the first request counts, once that was made

    # ------------------------------------------------ what the caller wants

    def begin(self, now: float) -> None:
        """Ask every node that can be spoken to, all at once."""
        self.began, self._base = now, quorum.bound(now, self.ttl)
        self._beat = now + self.ttl / 3
        if not self.patient and self._beat < self._deadline:
            self._deadline = self._beat  # a try is over before it would have a heartbeat
        self.wake = min(self._beat, self._deadline)
        self._touched = nodes = self._reach.up
        if nodes:
            self.sends.append((nodes, self._request(WAIT if self.patient else TRY, self.ttl, now)))
        if len(nodes) < self._quorum:
            self._unfold()
            self.check(now)

    def decline(self, error: Exception, now: float) -> None:
        """It cannot work: refused before anything is asked."""
        self.began = now
        self.refuse(error, now)

    def extend(self, ttl: float, now: float, fence: int = 0, share: bool = False) -> bool:
        """Make the lease last at least `ttl` seconds from now, and raise the nodes' fences to this one. False: it is not held.

        `share`: a writer becomes a reader; whatever a node says of it from now on counts, and until then what it said of the writer.
        News come when a quorum has confirmed, or, with a `setback`, when it has not in time.
        """
        if self._late(now):
            self._lapse(now)
        if self.state is not HELD:
            return False
        if fence > self._propose:
            self._propose, self._largest = fence, max(self._largest, fence)
        if self.plain is not None:
            self._unfold()
        if share:
            self._share()
        self._asks_again(now)
        self._extended, self._goal = now, max(quorum.bound(now, ttl), self._goal if self._extended < inf else 0.0)
        self._ask([i for i in self._reach.up if not self.votes[i].burnt], WAIT, now, ttl)
        self._plan()
        return True

    def _share(self) -> None:
        """The same token, of the other kind. A node that has the writer's takes it for the reader's, and gives it to no other writer."""
        self.token = self.token[: -len(READER)] + READER
        self._propose = self.fence + 1  # a reader's is above every writer's, its own too: what it wrote late is refused
        self._largest += 1  # so far a node may have gone by what was ever proposed, its answer still under way
        for vote in self.votes:
            vote.owed = 0  # what was asked for the writer is not listened to
            vote.fence += vote.granted

    def release(self, now: float, heard: bool = False) -> None:
        """Give the lock back, or stop waiting for it. `heard`: news come when a quorum has confirmed, or nobody else can."""
        if self._late(now):
            self._lapse(now)
        if self.state is LOST or self.state is OVER:
            return
        self.state = OVER
        if heard:
            self._parting = set(self._touched).intersection(self._reach.up)
            self.news = not self._parting
        self._undo(self._touched, now, heard)

    def abandon(self) -> None:
        """Its owner is gone without a release: not renewed any longer, so that it ends with its lease."""
        self._renew, self._beat = False, inf

    def close(self, now: float) -> None:
        """The client is being closed under it."""
        if self._late(now):
            self._lapse(now)
        elif self.state is HELD:
            self.lose(now, "closed")
        elif self.state is WAITING:
            self.release(now)
            self.news = True

    # ------------------------------------------------ what happens

    def answered(self, node: int, command: Command, reply: object, now: float) -> bool:
        """A node has answered a command of this claim."""
        if command.token is not self.token:  # about the token before a new start
            return False
        if self.plain is not None and reply == self._usual:
            self.plain.append(node)
            if self.state is WAITING:
                return len(self.plain) == self._quorum and self._hold(self.ticket, self._base, now)
            return self._late(now) and self._lapse(now, unread=True)
        if command.mode is RELEASE:
            return self._let_go(node, not isinstance(reply, Exception))
        if self.state is LOST or self.state is OVER:
            return False
        if self.plain is not None:
            self._unfold()
        if self._late(now):  # whatever arrives, this is looked at first, with the deadline as it was
            return self._lapse(now, unread=True)
        vote = self.votes[node]
        vote.owed -= 1
        answer = _read(reply)
        if answer is None:
            return self._failed(node, vote, command, reply, now)
        fence, second, third, holder = answer
        lower, fresh = second == 1, third == 1  # (if granted)
        if vote.burnt:
            return fence > 0 and self._undo((node,), now)
        if vote.ceding:  # from a cede to its answer, nothing counts
            if command.mode is not CEDE:
                return False
            vote.ceding = False
        anew = fresh or self._raised(vote, fence)
        vote.unsure = False
        if vote.since < inf and (not fence or anew) and self._breaks(vote, now):
            return self.lose(now, "gap")
        vote.sent, vote.error = command.sent, None
        vote.base = base = command.bound or quorum.bound(command.sent, command.ttl)
        command.bound = base  # (the same for all whom it was sent to)
        # (Who holds the lock by this node's vote loses nothing if the record is damaged meanwhile: the token is there.)
        if fence > self.latest(now) and (anew or not vote.granted or self.state is not HELD):
            return self._discounts(node, vote, fence, now)
        if fence:
            return self._granted(vote, fence, lower, base if anew or not vote.granted else max(base, vote.bound), now)
        return self._denied(node, vote, second, third, holder, now, command.watch)

    def _granted(self, vote: Vote, fence: int, lower: bool, bound: float, now: float) -> bool:
        """The node answers that it holds the token."""
        sunk = bound < vote.bound  # (granted anew, and by a shorter lease than an extension had asked for)
        vote.fence, vote.bound, vote.last, vote.lower, vote.denied = fence, bound, vote.sent, lower, False
        if vote.since == inf:
            self._begins(vote, now)
        if not vote.granted:
            vote.granted = True
            self.yes += 1
        if self.state is WAITING:
            plain = self.yes < self._quorum
        elif self._asked < inf or self._extended < inf:
            self._renewed = min(self._renewed + 1, self._quorum)
            plain = self._renewed < self._quorum
        else:
            plain = bound <= self.until
        if plain and not lower and not sunk:
            return False  # one more yes, and nothing to decide
        return self.check(now)

    def latest(self, now: float) -> int:
        """The largest fence that a node can have granted by now, if nothing is wrong with its fence record.

        Clocks of nodes that are used are at most half the horizon from the median, ours is, too, and a fence that was proposed may be
        another half above the clock of the client that did (`once`). What is above is not counted, and is proposed to nobody: a node's
        record that was damaged, or written by a clock that is wrong, must not become the record of all nodes.
        """
        return self.ticket + int((now - self.began) * 1e6) + self._reach.horizon * 1500

    def _discounts(self, node: int, vote: Vote, fence: int, now: float) -> bool:
        """The node has granted a fence that no clock allows: it has no vote for this name."""
        vote.granted = vote.lower = vote.denied = False
        vote.bound, vote.fence, vote.wrote = 0.0, 0, 0
        self._ends(vote)
        ahead = (fence - self.ticket) / 1e6 - (now - self.began)
        vote.error = ConfigError(
            f"its fence of {self.recipe.label!r} is {fence}, {ahead:.0f} s ahead of the clocks, and is not used. "
            "Check the node's clock. If it is right, force_release() repairs the fence."
        )
        self.absurd += (node,)
        return self.check(now, "gap")

    def _denied(self, node: int, vote: Vote, left: int, place: int, holder: bytes | None, now: float, watch: bool) -> bool:
        """The node answers that another has it."""
        vote.granted = vote.lower = False
        vote.bound, vote.fence, vote.wrote = 0.0, 0, 0
        vote.denied, vote.left, vote.told, vote.holder = True, left, now, holder
        if left == LASTING:
            self.unfit += (node,)
        if self.state is WAITING and self.patient:
            if not self.queued:
                self.queued = True
                self.notes += (events.Queued,)
            if place == 0 and left >= 0:  # first in line: look again when the holder's key has run out
                vote.expiry = now + (left + 1) / 1000
                self.wake = min(self.wake, vote.expiry)
            # A holder of another kind hands nothing on when it leaves: the first in line has the node tell of that.
            if place == 0 and left != NO_KEY and holder is not None and not TOKEN.fullmatch(holder) and vote.watched != holder:
                vote.watched = holder
                if not watch:
                    self._ask((node,), WAIT, now, watch=True)
        self.contended = True
        more = self.company is not None and self.company.denied(now)
        return self.check(now, "gap") or more

    def pushed(self, node: int, kind: bytes, fence: int, now: float) -> bool:
        """A node says of its own accord: granted, make way (an inquiry), or taken away by an operator."""
        if self.plain is not None:
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
            vote.lower = vote.granted
            return self.check(now)
        if vote.since < inf and self._breaks(vote, now):
            return self.lose(now, "forced" if kind == TAKEN else "gap")
        if kind == GRANTED and fence > self.latest(now):
            return self._discounts(node, vote, fence, now)
        vote.granted = granted = kind == GRANTED and vote.sent > -inf  # before the first answer on this connection it has no bound
        vote.lower, vote.denied = False, kind == TAKEN
        if granted:
            vote.bound, vote.fence, vote.last = vote.base, fence, vote.sent
            self._begins(vote, now)
        else:
            vote.bound, vote.fence, vote.wrote = 0.0, 0, 0
        return self.check(now, "forced" if kind == TAKEN else "gap")

    def heard(self, node: int, now: float) -> bool:
        """A node says that what is waited for may have come by other means."""
        self._heard |= 1 << node
        overtaken = self.state is WAITING and 0 < self._heed <= self._heard.bit_count()
        return overtaken and self.refuse(Overtaken(self.recipe.label, now - self.began), now)

    def changed(self, node: int, now: float, flushed: bool = False) -> bool:
        """Something happened to the name's key on a node that was asked to tell. `flushed`: to all keys of the node."""
        if flushed and self.state is HELD:
            return self._flushed(node, now)
        if self.state is not WAITING or self.plain is not None or self.votes[node].watched is None:
            return False
        self.votes[node].watched = None
        return self._ask((node,), WAIT, now, watch=True)

    def _flushed(self, node: int, now: float) -> bool:
        """The node may have lost the key of a lease: ask it at once, and not when the next renewal is due.

        It says so of every flush, also of another database's keys: so nothing is known before it has answered. A waiter does not ask,
        so that holders hear of it, and ask, before anybody else does.
        """
        if self.plain is not None:
            self._unfold()
        if self._late(now):
            return self._lapse(now, unread=True)
        vote = self.votes[node]
        # An answer that it still owes comes after this news, and so is as new. That also bounds what flush upon flush makes us say.
        if vote.owed or vote.burnt or self._reach.standing[node] is not UP:
            return False
        ttl = self.ttl if self._renew else max(self.until - now, 0.001)  # (what is not renewed gets no longer lease by this)
        return self._ask((node,), WAIT, now, ttl)

    def broke(self, node: int, now: float) -> bool:
        """The connection to the node is gone. What the node granted counts on, to its bound."""
        if self.state is OVER or self.state is LOST:
            return self._let_go(node, False)
        if self.plain is not None:
            self._unfold()
        if self._late(now):
            return self._lapse(now)
        vote = self.votes[node]
        vote.unsure |= vote.owed > 0
        vote.owed, vote.sent, vote.wrote, vote.expiry, vote.denied, vote.error, vote.watched = 0, -inf, 0, inf, False, None, None
        if vote.ceding:  # that cede may yet be executed
            return self._burn(vote, now)
        return self.check(now)

    def joined(self, node: int, now: float) -> bool:
        """The node can be spoken to, on a new connection."""
        if self.state is OVER or self.state is LOST:
            return False
        if self.plain is not None:
            self._unfold()
        if self._late(now):
            return self._lapse(now)
        if self.votes[node].burnt:
            return self._undo((node,), now)
        if self.state is WAITING:
            return self._ask((node,), WAIT if self.patient else TRY, now)
        if self.doubt and self._renew:
            return self._ask((node,), WAIT, now)
        return False  # a holder asks it at its next renewal: so holders that rejoin are spread over ttl/3

    def tick(self, now: float) -> bool:
        """It is `wake` or later, or a node stands differently from before."""
        if self.state is OVER or self.state is LOST:
            return False
        if self.plain is not None:
            self._unfold()
        if self._late(now):
            return self._lapse(now)
        if self.state is HELD:
            self._renewal(now)
        elif now >= self._deadline:
            return self.refuse((self.company or self).verdict(now), now)
        else:
            self._heartbeat(now)
        self.check(now)
        self._plan()
        return True

    def _heartbeat(self, now: float) -> None:
        """Every ttl/3 ask each node that owes nothing; first in line, also when the holder's key there has run out."""
        beat = now >= self._beat
        if beat:
            self._beat = now + self.ttl / 3
        due = []
        for node in self._reach.up:
            vote = self.votes[node]
            expired = vote.expiry <= now
            if expired:
                vote.expiry = inf
            if not vote.owed and (beat or (expired and not vote.granted)):
                due.append(node)
        self._ask(due, WAIT if self.patient else TRY, now)

    def _renewal(self, now: float) -> None:
        """Every ttl/3 ask all nodes, save those that owe two answers; in doubt more often, while the lease lasts."""
        patience = self._patience
        if not self.doubt and now >= self._asked + patience:
            self.doubt = True
            self.notes += (events.Doubt,)
            if self._renew:
                self._beat = now
        if now >= self._extended + patience:  # whoever waits for that waits no longer; the lease itself is kept as long as it lasts
            self.setback, self.news, self._extended = self._unheard(now, "extend", self._extended), True, inf
        if now >= self._beat - min(AHEAD, self.ttl / 30):
            self._beat = inf if not self._renew else now + (patience if self.doubt else self.ttl / 3)
            self._asks_again(now)
            self._ask([i for i in self._reach.up if self.votes[i].owed < 2 and not self.votes[i].burnt], WAIT, now)

    def _asks_again(self, now: float) -> None:
        """A renewal, or an extension, is sent: less than a quorum of grants cannot confirm it, nor move the deadline."""
        if self._asked == inf and self._extended == inf:
            self._renewed = 0
        self._asked = min(self._asked, now)

    # ------------------------------------------------ the decision

    def check(self, now: float, otherwise: str = "expired") -> bool:
        """After whatever arrived: is it held? If not, what else is there to say? `otherwise`: why it is lost if it is."""
        good = self._counting(now)
        if self.state is HELD:
            return self._confirm(good, now, otherwise)
        fence, until = self.could_hold(now)
        if fence and self._hold(fence, until, now):
            return True
        if self.patient:
            self._cede(now)
        elif quorum.hopeless(self._quorum, map(self._able, range(self._reach.size))):
            return self.refuse(self.verdict(now), now)
        self._write_back(now)
        return self._dismayed(now) or self._stirs

    def _counting(self, now: float) -> list[Vote]:
        """The votes that count: granted, in time, and no cede unanswered (that takes the grant away)."""
        good = []
        for vote in self.votes:
            if not vote.granted:
                continue
            if now < vote.bound:
                good.append(vote)
                continue
            vote.granted = False
            if not self._gap(vote, now):  # whatever became of it, enough others had the token all the time
                self._ends(vote)
        self.yes = len(good)
        return good

    def _hold(self, fence: int, until: float, now: float) -> bool:
        """A quorum has granted the same fence: that is the fencing token."""
        if now >= until:  # (only the short path comes here unchecked)
            return False
        if self.company is not None and not self.company.complete(self, now):
            return False
        self.hold(fence, until, now)
        return True

    def could_hold(self, now: float) -> tuple[int, float]:
        """The fence, and until when, if it could be held at this moment; (0, 0.0) if not."""
        if self.plain is not None:
            return (self.ticket, self._base) if len(self.plain) >= self._quorum and now < self._base else (0, 0.0)
        good = self._counting(now)
        fence = quorum.agreed(self._quorum, [v.fence for v in good])
        return (fence, quorum.reached_by(self._quorum, [v.bound for v in good])) if fence else (0, 0.0)

    def hold(self, fence: int, until: float, now: float) -> None:
        """It is held from now on."""
        self.state, self.news, self.fence, self.since = HELD, True, fence, now
        # Renewals propose this fence, so a node that stood below it and then says it was raised by us.
        self._propose, self._largest = fence, max(self._largest, fence)
        for vote in self.votes:
            if vote.granted:
                self._begins(vote, vote.since)
        self.limit = now + self.max_hold
        self.until = min(until, self.limit)
        if self._renew:
            self._beat = until - self.ttl * 2 / 3
        elif until - now < self.ttl * 0.9:  # it waited for its lease: renewed once, at once
            self._beat = now
        else:
            self._beat = inf
        self.wake = min(self.until, self._beat)

    def _cede(self, now: float) -> None:
        """Make way at each node that counts and at which a lower ticket waits."""
        for node in self._reach.up:
            vote = self.votes[node]
            if vote.granted and vote.lower:
                vote.granted = vote.lower = False
                vote.bound, vote.fence, vote.wrote, vote.ceding, vote.since, vote.first = 0.0, 0, 0, True, inf, 0
                self._ask((node,), CEDE, now)

    def _write_back(self, now: float) -> None:
        """A quorum counts, but not with one fence: propose the largest to those that have less, once for each."""
        good = [v for v in self.votes if v.granted]
        if len(good) < self._quorum:
            return
        fence = self._propose = self._largest = max(self._propose, *[v.fence for v in good])
        behind = [i for i in self._reach.up if self.votes[i].granted and self.votes[i].fence < fence and self.votes[i].wrote != fence]
        for node in behind:
            self.votes[node].wrote = fence
        self._ask(behind, WAIT if self.patient else TRY, now)

    def _able(self, node: int) -> bool:
        """May this node still grant a try? One that denied, failed or is out of reach cannot."""
        vote, standing = self.votes[node], self._reach.standing[node]
        return vote.granted or (vote.sent == -inf and vote.error is None and (standing is UP or standing is HOPED))

    def _dismayed(self, now: float) -> bool:
        """Has waiting no point: is the name's key of another type, or a majority away for too long?"""
        reach = self._reach
        if reach.dark == inf and all(v.error is None for v in self.votes):
            self._dark = inf
            return False
        if (misfit := self._misfit()) is not None:
            return self.refuse(misfit, now)
        of_use = (v.error is None and s is not DOWN for v, s in zip(self.votes, reach.standing, strict=True))
        if not quorum.hopeless(self._quorum, of_use):
            self._dark = inf
        else:
            self._dark = min(self._dark, reach.dark, now)
            if now >= self._dark + reach.outage:
                return self.refuse(self.verdict(now), now)
            self.wake = min(self.wake, self._dark + reach.outage)
        return False

    def _misfit(self) -> ConfigError | None:
        """Why waiting cannot help: a majority was never usable by this client, or has a key of another type under the name."""
        if (misconfiguration := self._reach.misconfiguration) is not None:
            return misconfiguration
        unfit = [i for i, v in enumerate(self.votes) if _no_lock(v)]
        if len(unfit) < self._quorum:
            return None
        where = ", ".join(self._reach.labels[i] for i in unfit)
        return ConfigError(
            f"{self.recipe.label!r} cannot be locked: its key on {where} holds data of another type than a lock's (a string). "
            "Choose another name, or remove that key."
        )

    def warning(self, node: int) -> str:
        """What is to be said of a node that is `unfit` for the name."""
        vote, part = self.votes[node], self.recipe.part
        if _no_lock(vote):
            return (
                f"the key of {part!r} holds data of another type than a lock's (a string): this node grants the lock to nobody. "
                "Choose another name, or remove that key."
            )
        shown = readable(repr(_text(vote.holder)), 80)
        return f"{part!r} is held there by {shown}, a value without an expiry: it stays until it is removed. {self._removal(vote)}"

    def _removal(self, vote: Vote) -> str:
        """How to remove a value that never expires."""
        part, value = self.recipe.part, vote.holder or b""
        only = f", only={_text(value)!r}" if value else ""
        if len(value) == SHOWN:  # there may be more of it
            only = f", only=locked_by({part!r})"
        return f"If the program that wrote it is gone, call force_release({part!r}, reason{only})."

    def _busy(self, vote: Vote, waited: float, now: float) -> LockBusy:
        """Somebody else has it: who, as far as an answer of one node tells."""
        value, advice = vote.holder or b"", ""
        left = max(0.0, vote.told + vote.left / 1000 - now) if vote.left >= 0 else None
        if TOKEN.fullmatch(value):
            inbox = inbox_of(value)
            who = ITSELF if inbox == self.mint.inbox else f"holdfast client {inbox[:8].decode()}"
        elif value == SHARED:
            who = "readers of the read-write lock of this name"
        else:
            who = f"another program, which wrote {readable(repr(_text(value)), 80)}"
        if vote.left == LASTING:
            who += ", without an expiry"
            advice = self._removal(vote)
        return LockBusy(self.recipe.label, waited, _text(value), left, who=who, advice=advice)

    def verdict(self, now: float) -> Exception:
        """What to tell a caller who waited in vain: is somebody else in the way, or does nobody know?"""
        if self.plain is not None:
            self._unfold()
        waited, reach, label = now - self.began, self._reach, self.recipe.label
        if (misfit := self._misfit()) is not None:
            return misfit
        of_use = [v for v, s in zip(self.votes, reach.standing, strict=True) if v.error is None and (s is UP or s is HOPED)]
        against = [v for v in of_use if v.denied or v.lower or v.ceding]
        if len(of_use) < self._quorum or not against:
            return self._unheard(now, "acquire", self.began)
        holders = [v for v in against if v.holder is not None]
        who = max(holders, key=lambda v: sum(it.holder == v.holder for it in holders), default=None)
        return LockBusy(label, waited, None, None) if who is None else self._busy(who, waited, now)

    def _unheard(self, now: float, doing: str, since: float) -> NoQuorum:
        """Too few nodes have answered what was asked `since` then: why, node by node."""
        causes, reach = {}, self._reach
        for node, vote in enumerate(self.votes):
            cause = reach.cause(node, now) or vote.error
            if cause is None and vote.sent < since < now:  # (what was asked at this very moment cannot have been answered)
                cause = TimeoutError("no answer yet")
            if cause is not None:
                causes[reach.labels[node]] = cause
        return NoQuorum(self.recipe.label, now - since, causes, self._quorum, doing)

    # ------------------------------------------------ while it is held

    def _confirm(self, good: list[Vote], now: float, otherwise: str) -> bool:
        """Moves the deadline to what the votes that count are good for, and sees whether a renewal is confirmed."""
        good_until = quorum.reached_by(self._quorum, [v.bound for v in good])
        if good_until <= now:
            return self.lose(now, otherwise)
        self.until = min(good_until, self.limit)
        confirmed = quorum.reached_by(self._quorum, [v.last for v in good])
        if self._asked <= confirmed:
            self._asked, self.doubt = inf, False
            self.notes += (events.Renewed,)
        if self._extended <= confirmed and self._goal <= good_until:
            self._extended, self.setback, self.news = inf, None, True
            if self.token.endswith(READER):
                self.fence = self._propose  # (a downgrade has raised it)
        self._plan()
        return self._stirs

    @property
    def _stirs(self) -> bool:
        """Is there something to do: commands to send, news, or an earlier wake?"""
        return bool(self.sends or self.news or self.notes or self.unfit or self.absurd) or self.wake < self.armed

    def _late(self, now: float) -> bool:
        return self.state is HELD and now >= self.until

    def _begins(self, vote: Vote, now: float) -> None:
        """A series of grants begins, or T was agreed. With T or less at its first grant, and no break, nobody had the node after T."""
        vote.first = vote.first or vote.fence
        vote.since = 0.0 if vote.first <= self.fence and not vote.broken else now

    def _breaks(self, vote: Vote, now: float) -> bool:
        """The node lost the token by itself, which ends its series. True if that was a gap."""
        if self._gap(vote, now):
            return True
        self._ends(vote)
        return False

    def _ends(self, vote: Vote) -> None:
        vote.since, vote.first, vote.broken = inf, 0, True

    def _raised(self, vote: Vote, fence: int) -> bool:
        """Does the fence show that the node granted the token anew, in an answer that never came?

        A grant raises it, by one at least; so does what we propose; and so does the clock, once the node's record has run out, but
        that by half the horizon at least. By so much it also rises if others had the node meanwhile: where an answer went missing, that
        is what is believed.
        """
        return max(vote.fence, self._largest) < fence and (vote.unsure or fence < vote.fence + self._reach.horizon * 500)

    def _gap(self, vote: Vote, now: float) -> bool:
        """Some time after its last grant the node may have lost the token. True if too many others may have been without it then."""
        sure = sum(v.granted and now < v.bound and v.since <= vote.last and v is not vote for v in self.votes)
        return self.state is HELD and quorum.uncertain(len(self.votes), self._quorum, sure)

    # ------------------------------------------------ ends

    def refuse(self, error: Exception, now: float) -> bool:
        """Nothing came of it."""
        self.release(now)
        self.refusal, self.news = error, True
        if self.company is not None:
            self.company.ended(self, now)
        return True

    def _lapse(self, now: float, unread: bool = False) -> bool:
        """Its time has passed. Whoever notices that much later, or by an answer that lay unread, did not run or did not look."""
        if self.until >= self.limit:
            return self.lose(now, "max_hold")
        return self.lose(now, "slow" if unread or now > self.until + self._patience else "expired")

    def lose(self, now: float, reason: str) -> bool:
        """Lost, for good. Told at once; the release is only courtesy to whoever waits."""
        self.state, self.reason, self.news, self.wake = LOST, reason, True, inf
        self._undo(self._touched, now)
        if self.company is not None:
            self.company.ended(self, now)
        return True

    def _let_go(self, node: int, certain: bool) -> bool:
        """A node has answered a release that somebody waits for, or never will on this connection."""
        if node not in self._parting:
            return False
        self._parting.discard(node)
        self.freed += certain
        if self.freed >= self._quorum or not self._parting:
            self._parting = _NOBODY
            self.news = True
        return self.news

    def _failed(self, node: int, vote: Vote, command: Command, error: object, now: float) -> bool:
        """A node answered with an error: nobody knows what it did."""
        vote.error = error if isinstance(error, Exception) else TypeError(f"unexpected answer {readable(repr(error))}")
        if _no_lock(vote):
            self.unfit += (node,)
        if command.mode is CEDE and vote.ceding:
            return self._burn(vote, now)
        return self.check(now)

    def _burn(self, vote: Vote, now: float) -> bool:
        """A cede that was not answered: it may have been executed, or not, or will be."""
        if self.state is WAITING:
            return self._start_over(now)
        vote.burnt, vote.granted, vote.since = True, False, inf
        return self.check(now)

    def _start_over(self, now: float) -> bool:
        """A new token with the same ticket, hence the same place in line; the old one leaves after the new one has queued."""
        old, before = self.token, self._touched
        self.token = self.mint.token(self.ticket) + self.recipe.kind
        self.votes, self.yes, self._touched = [Vote() for _ in self.votes], 0, ()
        self._ask(self._reach.up, WAIT if self.patient else TRY, now)
        if before:
            self.sends.append((before, Command(None, RELEASE, old, now)))
        return True

    def moved(self, seconds: float, now: float) -> bool:
        """The clock that its ticket was taken from was wrong by so much: it starts over, with the ticket that it should have had."""
        if self.state is not WAITING:
            return False
        if self.plain is not None:
            self._unfold()
        self.ticket += int(seconds * 1e6)
        self._propose = self._largest = self.ticket
        return self._start_over(now)

    # ------------------------------------------------ how it says things

    def _request(self, mode: bytes, ttl: float, now: float, watch: bool = False) -> Command:
        clock = self.ticket if now == self.began else self.ticket + int((now - self.began) * 1e6)
        return Command(self, mode, self.token, now, ttl, self._propose, watch=watch, clock=clock)

    def _ask(self, nodes: Sequence[int], mode: bytes, now: float, ttl: float = 0.0, watch: bool = False) -> bool:
        if nodes:
            for node in nodes:
                self.votes[node].owed += 1
                if node not in self._touched:
                    self._touched = sorted((*self._touched, node))
            self.sends.append((nodes, self._request(mode, ttl or self.ttl, now, watch)))
        return True

    def _undo(self, nodes: Sequence[int], now: float, heard: bool = False) -> bool:
        self.sends.append((nodes, Command(self if heard else None, RELEASE, self.token, now)))
        return True

    def _plan(self) -> None:
        """When to be woken next."""
        if self.state is HELD:
            asked = min(self._asked if not self.doubt else inf, self._extended)
            self.wake = min(self.until, self._beat, asked + self._patience)
        elif self.state is WAITING:
            self.wake = min(self._beat, self._deadline, self._dark + self._reach.outage, *[v.expiry for v in self.votes])

    def _unfold(self) -> None:
        """Something is not as usual: from here on keep apart what each node said."""
        self.votes = [Vote() for _ in range(self._reach.size)]
        for node in self._touched:
            self.votes[node].owed = 1
        for node in self.plain or ():
            vote = self.votes[node]
            vote.granted, vote.fence, vote.first, vote.owed, vote.since = True, self.ticket, self.ticket, 0, 0.0
            vote.bound = vote.base = self._base
            vote.last = vote.sent = self.began
        self.yes, self.plain = len(self.plain or ()), None

    @property
    def _patience(self) -> float:
        """How many seconds it waits for answers before it doubts: a third of its ttl at most."""
        return min(self._reach.patience, self.ttl / 3)

    @property
    def done(self) -> bool:
        """Is there nothing more to hear about it? (A release that somebody waits for is still to be heard of.)"""
        return self.state is LOST or (self.state is OVER and not self._parting)

    @property
    def awaited(self) -> bool:
        """Does somebody wait for the nodes to confirm an extension or a release of it?"""
        return (self._extended < inf and self.state is HELD) or bool(self._parting)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What it is made of. (Several names are a Goal.)"""
        return (self,)

    def counting(self, now: float, fence: int = 0) -> int:
        """How many nodes count now, and have this fence or a larger one. (For whoever looks from outside: changes nothing.)"""
        # Read once: another thread may look while the keeper unfolds the claim, which takes the list away.
        if (plain := self.plain) is not None:
            return len(plain) if now < self._base and fence <= self.ticket else 0
        return sum(v.granted and now < v.bound and v.fence >= fence for v in self.votes)


def _no_lock(vote: Vote) -> bool:
    """Is the name's key there of another type than a lock's?"""
    # (Redis 6.2 puts words of its own before the code of an error within a script.)
    return "WRONGTYPE" in str(vote.error)


def _text(value: bytes | None) -> str:
    """A holder's value as people see it, and as `force_release` takes it."""
    return (value or b"").decode("utf-8", "backslashreplace")


def _read(reply: object) -> tuple[int, int, int, bytes | None] | None:
    """An answer to a request: F, lower, fresh; or 0, PTTL, place, holder. None if that is not what a node has said."""
    if type(reply) is int:  # held before, and nobody waits (a boolean of RESP3 is no answer of ours)
        return (reply, 0, 0, None) if reply > 0 else None
    if isinstance(reply, bytes):  # granted now, with the P that it was sent, and nobody waits
        return (fence, 0, 1, None) if FENCE.fullmatch(reply) and 0 < (fence := int(reply)) < 2**53 else None
    if not isinstance(reply, list) or len(reply) < 3:
        return None
    fence, second, third = reply[:3]
    holder = reply[3] if len(reply) > 3 else None
    if not all(type(it) is int for it in (fence, second, third)) or not isinstance(holder, bytes | None):
        return None
    return (fence, second, third, None if holder is None else holder[:SHOWN]) if fence >= 0 else None
