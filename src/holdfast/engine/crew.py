"""The lanes of one client, and the claims that speak through them: routing, timers, reconnects, health.

Knows lanes and claims. Must not know sockets, threads, tasks or clocks.

A driver's duties, whenever it wakes: `received`, `lost` and `connected` for all that has happened; then, everything that
could be read having been read, `tick` if `next_wake()` is due; then empty `hangups`, `dials`, each lane's `take()`,
`settled`, `found` and `record.events`, in this order. Calls never overlap. `now` is monotonic, runs on in suspend, and is read before
bytes leave and after they were read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import replace
from math import ceil, inf
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from .. import events, scripts
from ..core.claim import AHEAD, HELD, WAITING, Claim
from ..core.command import GRANTED, NEWS, READ, RELEASE, Command, Recipe
from ..core.goal import Goal, Some
from ..core.reach import DOWN, GUARDED, HOPED, UP, Reach, unusable
from ..core.round import Answers, Round
from ..core.ticket import FENCE, TOKEN, Mint
from ..errors import ConfigError, NoQuorum
from ..wire import lane as wire
from ..wire.address import Address
from ..wire.lane import Lane, Manners
from ..wire.resp import pack
from . import census
from .census import Census
from .record import Record, Stats
from .roll import Roll, Straggler
from .settings import SLACK, Settings
from .sizes import Sizes
from .timers import Timers

RECENT = 60.0  # seconds for which the measure of a node's clock is exact: no two clocks drift apart by much in a minute

CHORES = 8  # at a time: there are others, and none of them is urgent
REST = 5.0  # seconds after which the same chore is run again, if somebody still wants it
RESTING = 1000  # chores whose rest is remembered; then the oldest is forgotten

T = TypeVar("T")
Work = Generator[Mapping[int, bytes], Round, object]  # a chore: it yields what to ask which node, and is sent the round when it is over
Want = Claim | Goal  # what a lease stands on
FORGETFUL = (
    "it does not log what is written to it (appendonly no), and this client uses {} there: results and counts may be forgotten when the "
    "node restarts. Set appendonly yes, or call repair() after each restart and before the next."
)
PROMOTED = "it was a replica, was promoted lately, and may lack leases that its old primary granted"


class NodeStatus(NamedTuple):
    """How a node is.

    Attributes:
        node: Its address, without a password.
        state: "up", "guarded", "down" or "connecting".
        cause: Why it is of no use, if it is not.
        version: Of its server, such as "valkey 9.1.2"; empty until it has told.
        run_id: Of its server; empty until it has told.
        ahead: Its clock less this client's, in seconds; None until it has told.
        shard: The name of its set of nodes, where there are several sets.
        stragglers: The clients that use the node and do not know this client's list of sets. Those that reported last come first,
            at most 16 of each list that clients know. None if the node has not told, or does not allow it.
    """

    node: str
    state: str
    cause: Exception | None
    version: str
    run_id: str
    ahead: float | None
    shard: str = ""
    stragglers: tuple[Straggler, ...] | None = None
    repaired: bool | None = None


class Watch:
    """Whom nodes tell when something has changed that is no lock, for as long as somebody refers to it. `token`: what they know it by."""

    __slots__ = ("__weakref__", "news", "token")

    def __init__(self, token: bytes) -> None:
        self.token, self.news = token, False


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
            timeout=settings.node_timeout,
            reigns=b"{%b}:reign:" % settings.prefix.encode(),
            keep=settings.max_ttl,
            scripts=[it.source for it in scripts.LOADED],
            jitter=int(inbox[:4], 16) / 0xFFFF,
        )
        self.lanes: list[Lane[Command]] = [Lane(self, i, it, self._manners) for i, it in enumerate(settings.addresses)]
        self.live: dict[bytes, Claim] = {}
        self.rounds: set[Round] = set()
        self.watches: WeakValueDictionary[bytes, Watch] = WeakValueDictionary()
        self.settled: list[Want] = []  # those with news for whoever waits
        self.found: list[Round] = []  # those that are over
        self.dials: list[int] = []  # nodes to connect to
        self.hangups: list[int] = []  # nodes whose connection to close, with a reset
        self.spoke = False  # may lanes have something to send? (Said by them; taken back by a driver that has sent all.)
        self.record = Record()
        self.record.long = settings.long_hold
        self.changes = 0  # how often something did that is nobody's in particular: a node's standing, what a watch is for, the end
        self._ahead: float | None = None  # the clock that tickets are taken from, less `now`; None: ours, no node has told its own
        self._checkup: Round | None = None  # that asks the nodes for their clocks again
        self._checked, self._recheck = -inf, inf  # when it was begun last, and is due again
        self._told: list[object] = [None] * len(self.lanes)
        self._census = Census(settings.prefix, settings.max_ttl, settings.node_timeout)
        self._roll = Roll(settings.prefix, settings.owner, inbox, settings.spreads, settings.leaving, len(self.lanes))
        self._sizes = Sizes(settings.max_ttl)
        # By what questions share: the round that is under way, and the one that comes next.
        self._shared: dict[Hashable, list[Round]] = {}
        self._shares: dict[Round, Hashable] = {}  # the same, the other way round, of those that are under way
        self._timers: Timers[Claim | Round] = Timers()
        self._brief = settings.node_timeout * 3  # a claim with a shorter ttl than this cannot wait for an answer that long
        self._briefs: Counter[float] = Counter()  # the ttls of such claims that live, and how many claims have each
        self._runs: dict[str, tuple[int, float]] = {}  # of each run of a server: its node, and when that last heard of it; inf: it does
        self._chores: dict[Round, tuple[bytes, Work]] = {}  # by the round that each waits for: what it is about, and how it goes on
        self._rests: dict[bytes, float] = {}  # until when no such chore is run again
        self._examine_due = inf  # when nodes are to be asked whether they write to a disk
        self._examined: dict[int, str] = {}  # the run of each node's server that was asked
        self._lasting = ""  # what this client keeps that should outlive a restart: once, rate and so on
        self._repaired: dict[str, bool] = {}  # was the run of a server repaired? by run_id
        self._bug: Exception | None = None  # raised by what a lane told us, and no failure of the lane
        self._pulse = -inf

    # ------------------------------------------------ what callers want

    def claim(self, recipe: Recipe, ttl: float, now: float, **terms: Any) -> Claim:
        """A new request for one name. `terms`: as of a Claim."""
        claim: Claim = self.want([recipe], ttl, now, **terms).claims[0]
        return claim

    def want(self, recipes: Sequence[Recipe], ttl: float, now: float, **terms: Any) -> Want:
        """A new request for these names, under one ticket: the time by the nodes' clocks, or by ours. `terms`: as of a Claim."""
        reach = self.reach
        ticket = self.mint.ticket(now + (self.record.epoch if self._ahead is None else self._ahead))
        if len(recipes) == 1:
            return Claim(recipes[0], ttl, ticket, self.mint, reach, **terms)

        def claims(recipes: Sequence[Recipe], ticket: int) -> list[Claim]:
            return [Claim(it, ttl, ticket, self.mint, reach, **terms) for it in recipes]

        if isinstance(recipes, Some):
            # (The others have the ticket of the first, which may be another one by then.)
            self._sizes.wanted(recipes, now)
            goal = Goal(claims(recipes.first(ticket), ticket), lambda: claims(recipes.others(ticket), goal.claims[0].ticket))
            return goal
        return Goal(claims(recipes, ticket))

    def listen(self, now: float) -> Watch:
        """A new watch, by its token: what nodes are told to tell it is no business of this."""
        watch = Watch(self.mint.token(self.mint.ticket(now + self._clock)))  # (its place in line means nothing)
        self.watches[watch.token] = watch
        return watch

    def begin(self, want: Want, now: float) -> None:
        """Ask for it."""
        self._census.used(now)
        if now >= self._recheck:
            self._check_clocks(now)
        claims = want.claims
        for claim in claims:
            self.live[claim.token] = claim
            if claim.ttl < self._brief:
                self._hasten(claim.ttl)
        wrong = self._too_brief(claims[0].ttl) if claims[0].ttl < self._brief else None
        if wrong is None:
            want.begin(now)
        else:
            for claim in claims:
                claim.decline(wrong, now)
            self._measure(now)
        for claim in claims:
            self.record.happened(events.Attempt, claim, now)
        for claim in claims:
            self.act(claim, now)
        if self._sizes.due:
            self._note_sizes(now)
        if self._roll.fresh:
            self._sign_first(now)

    def extend(self, want: Want, ttl: float, now: float, fence: int = 0, share: bool = False) -> bool:
        """Make it last at least `ttl` seconds from now, and raise the nodes' fences to this one; news when that is sure, or was not to be
        had. False: it is not held. `share`: a writer becomes a reader.
        """
        going = want.extend(ttl, now, fence, share)
        for claim in want.claims:
            self.act(claim, now)
        return going

    def end(self, want: Want, now: float, heard: bool = False) -> None:
        """Give it back, or stop waiting. `heard`: news when a majority has confirmed."""
        before, claims = want.state, want.claims
        want.release(now, heard)
        for claim in want.claims:
            self.record.ended(claim, before, now)
        for claim in claims:
            self.act(claim, now)

    def consult(
        self,
        asks: Mapping[int, bytes],
        now: float,
        enough: Callable[[Answers], bool] | None = None,
        share: Hashable = None,
    ) -> Round:
        """Ask nodes something that is no lock; news when it is over.

        Args:
            asks: The bytes for each node.
            now: The time.
            enough: Need the others be waited for?
            share: None, or what questions have in common that are to be answered together. One of them is under way
                at a time. All that are asked meanwhile are one question, which goes out when that one is over. So each
                is asked after its caller came, and what a hundred callers want at once crosses each connection twice
                at most.

        Returns:
            The round: over after `node_timeout` at the latest, or after twice as long if another one is under way.
        """
        line = self._shared.get(share)
        if line is not None:
            if len(line) == 1:
                line.append(Round(asks, self.reach, deadline=inf, enough=enough))
            return line[1]
        round_ = Round(asks, self.reach, deadline=now + self.settings.node_timeout, enough=enough)
        if share is not None:
            self._shared[share] = [round_]
            self._shares[round_] = share
        self._consult(round_, now)
        if self._roll.fresh:
            self._sign_first(now)
        return round_

    def chore(self, about: bytes, work: Work, now: float) -> None:
        """Ask nodes something for which nobody waits, round after round, unless the same was asked just before.

        Args:
            about: What it is about: the same chore is run again after `REST` seconds at the earliest.
            work: Yields what to ask which node, and is sent the round when it is over. What it raises ends it, and nothing else.
            now: The time.
        """
        if len(self._chores) >= CHORES or now < self._rests.get(about, -inf):
            return
        self._rests.pop(about, None)
        self._rests[about] = now + REST
        if len(self._rests) > RESTING:
            del self._rests[next(iter(self._rests))]
        self._further(about, work, None, now)

    def _further(self, about: bytes, work: Work, told: Round | None, now: float) -> None:
        """Take a chore's next step."""
        try:
            asks = next(work) if told is None else work.send(told)
        except StopIteration:
            return
        except Exception as error:  # leases do not depend on it
            self.record.warn(self.reach.labels[0], str(_failure(error)), now, "chore")
            return
        round_ = Round(asks, self.reach, deadline=now + self.settings.node_timeout)
        self._chores[round_] = about, work
        self._consult(round_, now)

    @property
    def keeping(self) -> bool:
        """Is it known that this client keeps something that should outlive a restart?"""
        return bool(self._lasting)

    def keeps(self, what: str, now: float) -> None:
        """This client uses `what`, such as "once", which keeps something on the nodes that should outlive a restart."""
        if not self._lasting:
            self._lasting = what
            self._examine_soon(now)

    def _examine_soon(self, now: float) -> None:
        # Not at once: what this client is about to do comes first.
        self._examine_due = min(self._examine_due, now + self.settings.node_timeout)

    def _examine(self, now: float) -> None:
        """Ask the nodes whether they write what they keep to a disk, once in each run of their servers."""
        self._examine_due = inf
        nodes = [node for node in self.reach.up if self._examined.get(node) != self.lanes[node].run_id]
        if nodes:
            self.chore(b"persistence", self._persistence(nodes, now), now)

    def _persistence(self, nodes: Sequence[int], now: float) -> Work:
        seen = yield dict.fromkeys(nodes, pack(b"INFO", b"persistence"))
        for node, told in seen.answers.items():
            self._examined[node] = self.lanes[node].run_id
            text = told if isinstance(told, str) else told.decode("utf-8", "replace") if isinstance(told, bytes) else ""
            if "aof_enabled:0" in text.split():
                self.record.warn(self.reach.labels[node], FORGETFUL.format(self._lasting), now, "persistence")
        return None

    def repaired(self, runs: Mapping[str, bool]) -> None:
        """These runs of servers, by run_id, have been repaired, or have not."""
        self._repaired.update(runs)

    def _consult(self, round_: Round, now: float) -> None:
        self.rounds.add(round_)
        round_.begin(now)
        self._conduct(round_, now)

    def close(self, now: float) -> None:
        """End everything. The answers, once they are here, show that the nodes know."""
        for claim in list(self.live.values()):
            before = claim.state
            claim.close(now)
            self.record.ended(claim, before, now)
            self.act(claim, now)
        self._roll.end()
        self.changes += 1

    @property
    def patience(self) -> float:
        """How many seconds a node may owe an answer now: a third of the shortest ttl of a claim that lives, at most `node_timeout`."""
        return self._manners.patience

    @property
    def owing(self) -> bool:
        """Does a node that can be spoken to owe an answer?"""
        return any(lane.line is wire.UP and lane.ledger for lane in self.lanes)

    def stats(self) -> Stats:
        """What was done so far."""
        return self.record.stats([it.state for it in list(self.live.values())])

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
                ahead=None if lane.ahead is None else lane.ahead - self.record.epoch,
                shard=self.settings.shard,
                stragglers=self._roll.stragglers(i, now),
                repaired=self._repaired.get(lane.run_id),
            )
            for i, lane in enumerate(self.lanes)
        )

    def verdict(self, waited: float, now: float) -> Exception | None:
        """Can these nodes be used? Else what is wrong: a ConfigError waits for no time to pass."""
        causes = {label: cause for i, label in enumerate(self.reach.labels) if (cause := self.reach.cause(i, now)) is not None}
        if wrong := {label: cause for label, cause in causes.items() if isinstance(cause, ConfigError)}:
            return unusable(wrong)
        if len(self.reach.up) >= self.reach.quorum:
            return None
        return NoQuorum("a majority of the nodes", waited, causes, self.reach.quorum, "reach")

    def servers(self) -> frozenset[str]:
        """The runs of the servers that the lanes are connected to, by run_id."""
        return frozenset(it.run_id for it in self.lanes if it.line in wire.MET)

    def acquainted(self, left: float) -> bool:
        """Is it known which servers these nodes are? A majority must have said so, and with time left, whoever is being dialled."""
        undecided = HOPED in self.reach.standing and left > 0
        return not undecided and len(self.servers()) >= self.reach.quorum

    # ------------------------------------------------ what the driver reports

    def connected(self, node: int, now: float, address: Address | None = None) -> None:
        """A connection to the node can carry bytes. `address`: with the credentials of the moment, if there are such."""
        lane = self.lanes[node]
        self._try(lane, lane.connected, None, now, address)
        if lane.bad is not None:
            self.lost(node, now, lane.bad)

    def received(self, node: int, data: bytes | bytearray | memoryview, now: float) -> None:
        """The node sent this."""
        lane, before = self.lanes[node], self.lanes[node].line
        try:
            lane.received(data, now)
        except Exception as error:
            if error is self._bug:
                raise
            self.faulted(node, now, error)
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
        if isinstance(cause, MemoryError):
            cause = _failure(cause)
        cause = self._try(lane, lane.explained, cause, cause)
        if self._runs.get(lane.run_id) == (node, inf):
            self._runs[lane.run_id] = node, lane.heard
        try:
            lane.broke(now)
        except Exception as error:  # nobody knows in which state this has left the lane
            cause = _failure(error)
            lane.renounce(now)
        if node in self.dials:
            self.dials.remove(node)
        self.hangups.append(node)
        self._pulse = min(self._pulse, lane.wake)
        self._stands(lane, now, cause)
        self._compare_clocks(now)

    def tick(self, now: float) -> None:
        """Time has passed. To be called only when everything that could be read has been: what lies unread is not late."""
        renewed = False
        for timed in self._timers.passed(now):
            renewed |= timed.wake <= now and isinstance(timed, Claim) and timed.state is HELD
            if timed.wake > now or timed.tick(now):
                self._follow(timed, now)
        if renewed:
            self._renew_ahead(now)
        if self._census.due <= now:
            self._take_census(now)
        if self._roll.due <= now:
            self._sign(now)
        if self._examine_due <= now:
            self._examine(now)
        if self._pulse <= now:
            self._pulse = inf
            for lane in self.lanes:
                self._look_after(lane, now)
            due = min([self._due(lane, now) for lane in self.lanes])
            self._pulse = min(self._pulse, due)

    def _look_after(self, lane: Lane[Command], now: float) -> None:
        """Hang up, dial or open one lane, if it is time to. Whatever fails there is this lane's failure."""
        late = self._try(lane, lane.late, False, now)
        if lane.bad is None and late:
            silence = self._try(lane, lane.silence, None)
            # (a `silence` that fails sets it, too)
            lane.bad = lane.bad or silence  # type: ignore[redundant-expr]
        elif lane.bad is None and lane.line is wire.DOWN and lane.wake <= now:
            self._try(lane, lane.dial, None, now)
            self.dials.append(lane.node)
        elif lane.bad is None and lane.line is wire.GUARDED and lane.wake <= now:
            self._open(lane, now)
        if lane.bad is not None:
            self.lost(lane.node, now, lane.bad)

    def _due(self, lane: Lane[Command], now: float) -> float:
        """When to look after a lane next."""
        due = self._try(lane, lane.due, inf)
        if lane.bad is None:
            return due
        self.lost(lane.node, now, lane.bad)
        return self.lanes[lane.node].wake

    def faulted(self, node: int, now: float, error: Exception) -> None:
        """Something of ours failed, or memory ran out, while it dealt with one node: the node is lost at the next tick, and no other."""
        lane = self.lanes[node]
        lane.bad = lane.bad or _failure(error)
        self._pulse = min(self._pulse, now)

    def _try(self, lane: Lane[Command], call: Callable[..., T], otherwise: T, *arguments: object) -> T:
        """Call a method of a lane. What it raises makes the lane bad."""
        try:
            return call(*arguments)
        except Exception as error:
            lane.bad = lane.bad or _failure(error)
            return otherwise

    def _say(self, nodes: Sequence[int], command: Command) -> None:
        """Have lanes say something. One that fails keeps no other from it."""
        for node in nodes:
            try:
                self.lanes[node].say(command)
            except Exception as error:
                self.faulted(node, command.sent, error)

    def _renew_ahead(self, now: float) -> None:
        """Renewals that are due soon go along with those that are due, and are due together from then on: one write for all of them."""
        for timed in list(self._timers.passed(now + AHEAD)):
            if isinstance(timed, Claim) and timed.state is HELD:
                timed.tick(now)
            self._follow(timed, now)

    def excuse(self, now: float) -> None:
        """The driver was kept from sending for a while: no node's silence counts until now."""
        for lane in self.lanes:
            self._try(lane, lane.excuse, None, now)
            if lane.bad is not None:
                self.lost(lane.node, now, lane.bad)

    def next_wake(self) -> float:
        """When to call `tick` at the latest."""
        return min(self._timers.due, self._pulse, self._census.due, self._roll.due, self._examine_due)

    # ------------------------------------------------ what lanes report

    def heard(self, node: int, question: Command, reply: object, now: float) -> None:
        """A node has answered a command."""
        owner = question.owner
        try:
            if owner is not None and owner.answered(node, question, reply, now):
                assert isinstance(owner, Claim | Round)  # nobody else owns commands
                self._follow(owner, now)
        except Exception as error:
            self._bug = error
            raise

    def told(self, node: int, message: bytes, now: float) -> None:
        """A node has said something to this crew's inbox."""
        try:
            self._told_by(node, message, now)
        except Exception as error:
            self._bug = error
            raise

    def _told_by(self, node: int, message: bytes, now: float) -> None:
        parts = message.split(b" ", 3)
        if len(parts) != 4 or not TOKEN.fullmatch(parts[1]) or not FENCE.fullmatch(parts[2]):
            return  # nothing that our scripts say
        kind, token, fence, key = parts
        claim = self.live.get(token)
        if kind == NEWS:
            if claim is not None and claim.heard(node, now):
                self.act(claim, now)
            elif (watch := self.watches.get(token)) is not None:
                watch.news = True
                self.changes += 1
        elif claim is not None and claim.recipe.name == key and (claim.state is WAITING or claim.state is HELD):
            if claim.pushed(node, kind, int(fence), now):
                self.act(claim, now)
        elif kind == GRANTED:  # one that nobody wants any more
            self._say((node,), Command(None, RELEASE, token, now, data=self._undo(key, token, self.settings.horizon)))
            self._expect(now)

    def changed(self, node: int, key: bytes | None, now: float) -> None:
        """Something happened to a key that a node was asked to watch; or, without a key, to every key of the node."""
        try:
            for claim in [it for it in self.live.values() if key is None or it.recipe.name == key]:
                if claim.changed(node, now, flushed=key is None):
                    self.act(claim, now)
        except Exception as error:
            self._bug = error
            raise

    # ------------------------------------------------ within

    def _follow(self, owner: Claim | Round, now: float) -> None:
        if isinstance(owner, Claim):
            self.act(owner, now)
        else:
            self._conduct(owner, now)

    def _conduct(self, round_: Round, now: float) -> None:
        """Do what a round asks for."""
        for node, command in round_.sends:
            self._say((node,), command)
        if round_.sends:
            round_.sends.clear()
            self._expect(now)
        if not round_.over:
            self._timers.arm(round_)
            return
        self.rounds.discard(round_)
        self._timers.disarm(round_)
        if round_ is self._census.round:
            self._compare(round_, now)
        elif round_ in self._roll.asked:
            self._called(round_, now)
        elif round_ in self._sizes.asked:
            self._compare_sizes(round_, now)
        elif round_ is self._checkup:
            self._clocks_told(round_, now)
        elif (chore := self._chores.pop(round_, None)) is not None:
            self._further(*chore, round_, now)
        else:
            self.found.append(round_)
            self._next_of(round_, now)

    def _next_of(self, round_: Round, now: float) -> None:
        """Ask what callers have wanted while this shared question was under way."""
        share = self._shares.pop(round_, None)
        if share is None:
            return
        _, *waiting = self._shared.pop(share)
        for it in waiting:
            it.put_off(now + self.settings.node_timeout)
            self._shared[share] = [it]
            self._shares[it] = share
            self._consult(it, now)

    def act(self, claim: Claim, now: float) -> None:
        """Do what a claim asks for."""
        recipe = claim.recipe
        if claim.sends:
            lanes = self.lanes
            for nodes, command in claim.sends:
                if command.mode is RELEASE:
                    command.data = recipe.release(command.token)
                else:
                    command.data = recipe.request(command.token, command.ttl, command.mode, command.fence, command.clock)
                if recipe.rider is not None and claim.fence and (command.mode is RELEASE) is not (claim.state is HELD):
                    self._say_along(recipe.rider(claim.fence, command.ttl), nodes, now)  # (before a release, on the same connections)
                for node in nodes:  # (as `_say` does, without a call on the way of every acquire)
                    try:
                        lanes[node].say(command)
                    except Exception as error:
                        self.faulted(node, now, error)
            claim.sends.clear()
            self._expect(now)
        if claim.token is not claim.routed:  # begun anew
            self.live[claim.token] = self.live.pop(claim.routed)
            claim.routed = claim.token
        if claim.notes:
            self.record.notes(claim, now)
        if claim.unfit:
            unfit, claim.unfit = claim.unfit, ()
            for node in unfit:  # (once for a name: its value may be another one each time)
                self.record.warn(self.reach.labels[node], claim.warning(node), now, f"key {claim.recipe.part}")
        if claim.absurd:
            absurd, claim.absurd = claim.absurd, ()
            for node in absurd:
                about = f"the fence of {claim.recipe.label!r}"
                self.record.warn(self.reach.labels[node], str(claim.votes[node].error), now, about)
            self._check_clocks(now)
        if claim.news:
            claim.news = False
            self.record.news(claim, now)
            if recipe.rider is not None and claim.state is HELD and claim.since == now:
                self._say_along(recipe.rider(claim.fence, claim.until - now), self.reach.up, now)
            if claim.company is None:
                self.settled.append(claim)
            elif isinstance(claim.company, Goal) and claim.company.settled and claim.company not in self.settled:
                self.settled.append(claim.company)
        if claim.done:
            if self.live.pop(claim.token, None) is not None and claim.ttl < self._brief:
                self._relax(claim.ttl)
            self._timers.disarm(claim)
        elif claim.wake < claim.armed:
            self._timers.arm(claim)
        if isinstance(claim.company, Goal):
            stirred, claim.company.stirred = claim.company.stirred, []
            for other in stirred:
                if other.routed not in self.live:  # (it may be new)
                    self.live[other.routed] = other
                    if other.ttl < self._brief:
                        self._hasten(other.ttl)
                self.act(other, now)

    def _say_along(self, data: bytes, nodes: Sequence[int], now: float) -> None:
        """Say something whose answer nobody waits for."""
        self._say(nodes, Command(None, READ, b"", now, data=data))
        self._expect(now)

    def _expect(self, now: float) -> None:
        """Something was asked: look after the lanes when its answer is overdue."""
        self._pulse = min(self._pulse, now + self._manners.patience)

    def _hasten(self, ttl: float) -> None:
        """A claim lives that cannot wait `node_timeout` for an answer: nothing may stay unanswered for longer than a third of a lease."""
        self._briefs[ttl] += 1
        self._manners.patience = min(self._manners.patience, ttl / 3)

    def _relax(self, ttl: float) -> None:
        """Such a claim is over: nodes may take the time again that the claims allow which still live."""
        self._briefs[ttl] -= 1
        if not self._briefs[ttl]:
            del self._briefs[ttl]
            self._manners.patience = min([self.settings.node_timeout, *[it / 3 for it in self._briefs]])

    def _too_brief(self, ttl: float) -> ConfigError | None:
        """Why no lock can have this ttl here, if answers take longer than a third of it. A node that was not measured counts as quick."""
        trip = sorted(it.trip for it in self.lanes)[self.reach.quorum - 1]
        if ttl / 3 >= trip:
            return None
        return ConfigError(
            f"ttl={ttl:g} is too short for these nodes: answers from a majority of them take {trip * 1000:.3g} ms, and each has to come "
            f"within a third of the ttl. The shortest ttl that can work is {ceil(trip * 3000) / 1000:g} seconds; choose several times that"
        )

    def _refuse_briefs(self, now: float) -> None:
        """Refuse the claims that wait, and for whose ttl the nodes have turned out to answer too slowly."""
        for claim in [it for it in self.live.values() if it.ttl < self._brief]:
            if claim.state is WAITING and (wrong := self._too_brief(claim.ttl)) is not None:
                claim.refuse(wrong, now)
                self.act(claim, now)
                self._measure(now)

    def _measure(self, now: float) -> None:
        """A claim was refused for the round trip. Measure it again, so that a moment when this machine was busy does not count for ever."""
        for lane in self.lanes:
            self._try(lane, lane.measure, None, now)
        self._expect(now)

    def _twin(self, lane: Lane[Command], now: float) -> Lane[Command] | None:
        """Another lane that may still have votes of the server which this lane has met: votes outlive a connection by a lease at most."""
        lately = now - self.settings.max_ttl - SLACK
        self._runs = {run_id: it for run_id, it in self._runs.items() if it[1] > lately}
        node, _ = self._runs.get(lane.run_id, (lane.node, inf))
        return None if node == lane.node else self.lanes[node]

    def _introduced(self, lane: Lane[Command], now: float) -> None:
        """The lane knows whom it speaks to."""
        twin = self._twin(lane, now)
        if twin is not None:
            lane.bad = ConfigError(f"it is the same server as {twin.address.label}: a majority of one server means nothing")
            return
        self._runs[lane.run_id] = lane.node, inf
        self._look_over(lane, now)
        self._compare_clocks(now)
        self._recheck = min(self._recheck, now + census.AGAIN)
        self._judge_clocks(now, lane)
        if lane.bad is not None:
            return
        if lane.wake <= now:
            self._open(lane, now)
        else:
            self._pulse = min(self._pulse, lane.wake)
            self._stands(lane, now)

    def _look_over(self, lane: Lane[Command], now: float) -> None:
        """Is there something about the node that works, and is dangerous?"""
        policy = lane.facts.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            warning = f"its maxmemory-policy is {policy}: it may evict locks that are held. Set maxmemory-policy noeviction."
            self.record.warn(lane.address.label, warning, now)
        if lane.address.tls is not None and not lane.address.tls.verify:
            warning = "nobody verifies its certificate (ssl_cert_reqs=none), so others can pose as it. Name its authority: ssl_ca_certs."
            self.record.warn(lane.address.label, warning, now, "tls")
        replicas = lane.facts.get("connected_slaves", "0")
        if replicas != "0":
            guard = self.settings.guard
            cost = "no client waits for them to end" if guard is None else f"clients leave the promoted server alone for {guard:g} s"
            warning = (
                f"it has replicas ({replicas}). If one is promoted in its place, the locks that it had not received are forgotten, and "
                f"{cost}. As long as the old primary goes on, two clients can hold the same lock. Use primaries without replicas."
            )
            self.record.warn(lane.address.label, warning, now, "replicas")

    def _compare_clocks(self, now: float) -> None:
        """Is a node's clock far from what most of them say? Where they cannot outvote one another, ours decides."""
        if any(it.ahead is None and self.reach.standing[it.node] is not DOWN for it in self.lanes):
            return  # who has not spoken yet may make those that seem to be wrong the majority
        told, ours = [(it.address.label, it.ahead) for it in self.lanes if it.ahead is not None], self.record.epoch
        voices = sorted([it for _, it in told] + [ours] * (1 - len(told) % 2))
        right = voices[len(voices) // 2] if len(told) > 1 else ours
        for label, ahead in told:
            if abs(off := ahead - right) > self.settings.horizon / 2000:
                word = "ahead of" if off > 0 else "behind"
                danger = "it is not used" if len(self.lanes) > 1 else "after a restart, fences may repeat"
                warning = f"its clock is {abs(off):.0f} s {word} what others say: {danger}. Set it (NTP)."
                self.record.warn(label, warning, now, "clock")

    @property
    def _clock(self) -> float:
        """The clock that tickets are taken from, less `now`."""
        return self.record.epoch if self._ahead is None else self._ahead

    def _judge_clocks(self, now: float, new: Lane[Command] | None = None) -> None:
        """What time is it, by most clocks? A node whose clock is far from that is not used: its fences would be far from all others'.

        Each node has a voice. Where a node has not told its time, our own clock has the voice, and where the number of nodes is even,
        ours has one more. So no minority of nodes decides, and once a majority has told its time, neither does our own clock. A node
        that is alone is always right. `new`: the lane that is just being introduced: its caller hangs it up.
        """
        told = [(it.ahead, it.blur) for it in self.lanes if it.ahead is not None]
        size, ours = len(self.lanes), (self.record.epoch, 0.0)
        voices = sorted([*told, *[ours] * (size - len(told) + (size % 2 == 0))])
        right, blur = voices[len(voices) // 2]
        # Processes of one machine would each be wrong by as much as their greeting took, and by that not be served in order: where what the
        # nodes say leaves room for our own clock, that is what tickets are taken from.
        before, self._ahead = self._clock, self.record.epoch if abs(right - self.record.epoch) <= blur else right
        far = self.settings.horizon / 2000
        old = [it for it in self.lanes if it.line is wire.UP and it.measured < now - RECENT]
        for lane in self.lanes:
            if lane.ahead is None or lane.line not in wire.MET or abs(off := lane.ahead - right) <= far:
                continue
            # Our own clock runs at another rate than theirs: measures of long ago prove nothing, and are taken again first.
            if old:
                self._check_clocks(now)
            if lane in old:
                continue
            word = "ahead of" if off > 0 else "behind"
            cause = ConnectionError(f"not used: its clock is {abs(off):.0f} s {word} what others say. Set it (NTP).")
            if lane is new:
                lane.bad = cause
            else:
                self.lost(lane.node, now, cause)
        if abs(self._ahead - before) > far:
            self._moved(self._ahead - before, now)

    def _moved(self, seconds: float, now: float) -> None:
        """The clock that tickets were taken from was wrong: those who wait start over, with others."""
        self.mint.forget()
        for claim in list(self.live.values()):
            if claim.moved(seconds, now):
                self.act(claim, now)

    def _check_clocks(self, now: float) -> None:
        """Ask the nodes for their clocks again: they may have been set since they were connected to."""
        if self._checkup is None and now >= self._checked + self._manners.patience:
            self._checked = now
            self._recheck = now + census.AGAIN
            self._checkup = Round(dict.fromkeys(self.reach.up, pack(b"TIME")), self.reach, deadline=now + self.settings.node_timeout)
            self._consult(self._checkup, now)

    def _clocks_told(self, round_: Round, now: float) -> None:
        """The nodes have told their clocks again. (What a lane measured as it was connected is more exact, unless it is wrong by now.)"""
        self._checkup = None
        for node, reply in round_.answers.items():
            lane = self.lanes[node]
            self._try(lane, lane.told_time, None, reply, round_.began, now)
        self._judge_clocks(now)

    def _take_census(self, now: float) -> None:
        # (a node that cannot be reached may be another run by now)
        data = self._census.question([it.run_id if it.line in wire.MET else "" for it in self.lanes], now)
        self._census.round = Round(dict.fromkeys(self.reach.up, data), self.reach, deadline=now + self.settings.node_timeout)
        self._consult(self._census.round, now)

    def _compare(self, round_: Round, now: float) -> None:
        """What others take for granted has come."""
        young = [it.run_id for it in self.lanes if it.uptime < census.LIFE]
        for node, reply in round_.answers.items():
            if (difference := self._census.difference(reply, young)) and self._census.news(difference):
                self.record.warn(self.reach.labels[node], difference, now)

    def _sign_first(self, now: float) -> None:
        """Sign the roll with the client's first use, in the same write."""
        self._roll.used(now)
        self._sign(now)

    def _sign(self, now: float) -> None:
        """Sign the roll, on the nodes on which that is due."""
        if not (nodes := self._roll.asks(self.reach.up, now)):
            return
        data = self._roll.question()
        round_ = Round(dict.fromkeys(nodes, data), self.reach, deadline=now + self.settings.node_timeout)
        self._roll.asked.add(round_)
        self._consult(round_, now)

    def _called(self, round_: Round, now: float) -> None:
        """Nodes have told who else is on their rolls."""
        self._roll.asked.discard(round_)
        for node, answer in round_.answers.items():
            if warning := self._roll.told(node, answer, now):
                self.record.warn(self.reach.labels[node], warning, now)

    def _note_sizes(self, now: float) -> None:
        """Note the sizes of semaphores on all nodes. The bytes leave with the requests, and nobody waits for the answers."""
        nodes = range(len(self.lanes))
        for slots, data in self._sizes.questions():
            round_ = Round(dict.fromkeys(nodes, data), self.reach, deadline=now + self.settings.node_timeout)
            self._sizes.asked[round_] = slots
            self._consult(round_, now)

    def _compare_sizes(self, round_: Round, now: float) -> None:
        """The nodes have told which size other clients noted."""
        if (found := self._sizes.difference(round_)) is not None:
            node, warning = found
            self.record.warn(self.reach.labels[node], warning, now)

    def _open(self, lane: Lane[Command], now: float) -> None:
        self._try(lane, lane.opened, None, now)
        if lane.bad is None:
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
        if standing is GUARDED:
            cause = ConnectionError(PROMOTED) if lane.promoted else None
        elif standing is DOWN:
            cause = cause or reach.causes[node]
        else:
            cause = None
        reach.note(node, standing, now, cause, lane.wake, now - lane.uptime)
        if standing is before:
            return
        self.changes += 1
        if standing is not HOPED and standing is not self._told[node]:
            self._told[node] = standing
            at, label = self.record.at(now), lane.address.label
            if standing is UP:
                self._census.soon(now)
                self.record.note(events.NodeUp(at=at, node=label))
                if self._lasting:
                    self._examine_soon(now)
            elif standing is GUARDED:
                guarded = events.NodeGuarded(at=at, node=label, left=lane.wake - now)
                self.record.note(replace(guarded, cause=PROMOTED) if lane.promoted else guarded)
            else:
                self.record.note(events.NodeDown(at=at, node=label, cause=reach.causes[node] or ConnectionError("no connection")))
        if standing is UP:
            self._roll.up(node, now if self.live or self.rounds else now + self.settings.node_timeout)
            if self._briefs:
                self._refuse_briefs(now)
        for claim in list(self.live.values()):
            if standing is UP:
                news = claim.joined(node, now)
            elif before is UP:
                news = claim.broke(node, now)
            else:
                news = claim.state is WAITING and claim.tick(now)
            if news:
                self.act(claim, now)
        for round_ in list(self.rounds):
            if round_.joined(node, now) or round_.tick(now):
                self._conduct(round_, now)


def _failure(error: Exception) -> ConnectionError:
    """What failed, and where; but not its words, in which a password may be."""
    kind, at = type(error).__name__, error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if isinstance(error, MemoryError):
        return ConnectionError("this process has no memory left for what the node says")
    where = "" if at is None else f" in {at.tb_frame.f_code.co_qualname}, line {at.tb_lineno}"
    return ConnectionError(f"holdfast failed on this node's connection ({kind}{where}); the other nodes go on. Please report this")


def _software(facts: dict[str, str]) -> str:
    """What a server says it is, like "valkey 9.1.2"; empty until it has said so."""
    if version := facts.get("valkey_version"):
        return f"valkey {version}"
    return f"redis {facts['redis_version']}" if "redis_version" in facts else ""
