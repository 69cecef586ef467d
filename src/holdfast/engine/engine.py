"""The connections of one client, and the claims that use them: routing, timers, reconnects, health.

Knows connections and claims. Must not know sockets, tasks or clocks, or how threads wait.
`Engine.ready` states what drivers have to do.

One thread makes all calls, but other threads look in while it works: by `status`, `stats`,
`servers`, `readiness`, `met` and `keeping`. Such a method must read each value once, and judge only
what it has read.
"""

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from math import ceil, inf
from operator import attrgetter
from typing import TypeVar
from weakref import WeakValueDictionary

from .. import events, scripts
from ..errors import ConfigError, NoQuorum, message_of
from ..protocol.answer import Granted, is_below, read
from ..protocol.claim import Claim, State
from ..protocol.command import GRANTED, NEWS, READ, RELEASE, TRY, WAIT, Command, Recipe
from ..protocol.joint import JointRequest, Some
from ..protocol.nodes import NodeSet, Standing, unusable
from ..protocol.query import Answers, Query
from ..protocol.renewal import AHEAD
from ..protocol.ticket import FENCE, TOKEN, Tickets
from ..protocol.timing import Timing
from ..wire import rights
from ..wire.address import Address
from ..wire.connection import MET, Connection, ConnectionSettings, Line, clustered, replicas
from ..wire.resp import pack
from .ready import Ready, Want
from .recorder import Recorder, Stats
from .registry import Registry
from .settings import SLACK, Settings
from .status import EFFICIENT, SAFE, UNPROVEN, NodeStatus, majorities
from .timers import Timers

# Seconds for which the measure of a node's clock is exact: no two clocks drift apart by much in a
# minute.
RECENT = 60.0

# Seconds after which a client that is in use asks the nodes for their clocks again.
RECHECK = 1200.0

# Seconds that a client's end waits for other nodes once a majority has answered everything.
GRACE = 0.02

# The modes of commands that are no renewal and no release.
FIRST = (WAIT, TRY, READ)

# How many claims and queries one turn wakes at most: a few milliseconds of work.
TURN = 50
# How many chores run at a time. None of them is urgent, and other work comes first.
CHORES = 8
# Seconds after which the same chore is run again, if it is still wanted.
REST = 5.0
# How many chores have their rest remembered. Then the oldest is forgotten.
RESTING = 1000

# (On the way of every acquire, an attribute of an enum costs as much as a call.)
WAITING, HELD, LOST, OVER = State
UP = Line.UP

T = TypeVar("T")
# A chore: it yields what to ask which node, and is sent the query when it is over.
Work = Generator[Mapping[int, bytes], Query, object]
FORGETFUL = (
    "it does not log what is written to it (appendonly no), and this client uses {} there: "
    "results and counts may be forgotten when the node restarts. "
    "Set appendonly yes, or call repair() after each restart and before the next."
)
REPLACED = "its server is new to clients of this node, and does not know which leases an earlier one granted"
STARTED = "it started lately and may have forgotten leases"
PROMOTED = "it was a replica, was promoted lately, and may lack leases that its old primary granted"

# The bytes before the digest in a command that calls a script by it, and where they end at the
# latest.
CALLED = b"\r\n$7\r\nEVALSHA\r\n$40\r\n"
CALLED_BY = 80

# Makes a Ready of a tuple in one C call: this is on the way of every acquire.
_made: Callable[[tuple[object, ...]], Ready] = partial(tuple.__new__, Ready)


class Watch:
    """A token that nodes notify of changes that are no locks, as long as somebody refers to it.

    Attributes:
        token: What the nodes know it by.
        news: Whether a node has notified it.
    """

    __slots__ = ("__weakref__", "news", "token")

    def __init__(self, token: bytes) -> None:
        self.token, self.news = token, False


class Engine:
    """All of a client's conversation with its nodes, in one process or event loop.

    Args:
        settings: The client's.
        inbox: 32 hex digits of fresh randomness.
        undo: Packs the release of a grant that nobody wants, from (key, token, horizon).
        version: The version of this library, for the servers' CLIENT LIST.
    """

    def __init__(
        self, settings: Settings, inbox: bytes, undo: Callable[[bytes, bytes, int], bytes], version: str = "0"
    ) -> None:
        self.settings, self.tickets, self._undo = settings, Tickets(inbox), undo
        self.node_set = NodeSet(
            [it.label for it in settings.addresses], settings.node_timeout, settings.outage, settings.horizon
        )
        self._manners = _connection_settings(settings, inbox, version)
        self.connections: list[Connection[Command]] = [
            Connection(self, i, it, self._manners) for i, it in enumerate(settings.addresses)
        ]
        # Whether it has to stay connected while nobody uses it: where a function says which server
        # a node is, a client that does not ask for a while cannot know that it was the same all
        # along.
        self.stays = any(it.moves and it.sentinels is None for it in settings.addresses)
        self.live: dict[bytes, Claim] = {}
        self.queries: set[Query] = set()
        self.watches: WeakValueDictionary[bytes, Watch] = WeakValueDictionary()
        # Whether connections may have something new to send. The connections set it.
        self.spoke = False
        # Whether a connection has failed since the last `ready` or `cut`, so that drivers may have
        # to close a socket.
        self.broken = False
        # What `ready` hands over next.
        self._settled: list[Want] = []
        self._found: list[Query] = []
        self._dials: list[int] = []
        self._hangups: list[int] = []
        self._places: list[int] = []
        # The last `Ready` with nothing but a time, and the last with nothing but something to send.
        self._lulls = [Ready(), Ready(speaks=True, idle=False)]
        # The number of changes that drivers have heard of.
        self._shown = 0
        self.record = Recorder()
        # How often something has changed that belongs to no claim or query: a node's standing, a
        # watch, the end.
        self.changes = 0
        # The clock of tickets, less `now`. None: our own clock, because no node has told its own.
        self._ahead: float | None = None
        # The query that asks the nodes for their clocks again.
        self._checkup: Query | None = None
        # When that query was begun last, and when it is due again.
        self._checked = -inf
        self._recheck = inf
        # The state of each node that observers have heard of.
        self._told = [""] * len(self.connections)
        # Since when each node cannot be used, as far as observers and the log were told.
        self._fell = [inf] * len(self.connections)
        self._registry = Registry(settings, inbox, version)
        # Whether it notes its settings on the nodes. A client that only looks does not.
        self.registers = True
        # By what questions share: the query that is under way, and the one that comes next.
        self._shared: dict[Hashable, list[Query]] = {}
        # By the query that is under way: what its questions share.
        self._shares: dict[Query, Hashable] = {}
        self._timers: Timers[Claim | Query] = Timers()
        # A claim with a shorter ttl than this cannot wait `node_timeout` for an answer.
        self._brief = settings.node_timeout * 3
        # The ttls of such claims that live, and how many claims have each.
        self._briefs: Counter[float] = Counter()
        # By the run of a server: its node, and when this last heard from it. inf: it is connected.
        self._runs: dict[str, tuple[int, float]] = {}
        # The run of each node's server when it was up last.
        self._served: dict[int, str] = {}
        # The chores, by the query that each waits for: what it is about, and how it goes on.
        self._chores: dict[Query, tuple[bytes, Work]] = {}
        # By what a chore is about: until when no such chore is run again.
        self._rests: dict[bytes, float] = {}
        # When nodes are to be asked whether they write to a disk.
        self._examine_due = inf
        # The run of each node's server that was asked.
        self._examined: dict[int, str] = {}
        # What this client keeps that should outlive a restart, such as "once". Empty: nothing.
        self._lasting = ""
        # By run id: whether that run of a server was repaired.
        self._repaired: dict[str, bool] = {}
        # An error in a claim or a query. It is no failure of the connection that brought the
        # answer.
        self._bug: Exception | None = None
        # When to look after the connections next.
        self._pulse = -inf
        # Until when the end waits for nodes' answers.
        self._ends = inf

    # ------------------------------------------------ what callers want

    def claim(self, recipe: Recipe, timing: Timing, now: float, deadline: float = inf) -> Claim:
        """Make a request for one name, as `want` does."""
        claim: Claim = self.want([recipe], timing, now, deadline).claims[0]
        return claim

    def want(self, recipes: Sequence[Recipe], timing: Timing, now: float, deadline: float = inf) -> Want:
        """Make a request for these names, under one ticket.

        The ticket is the time by the clock of most nodes, or by the client's own clock.

        Args:
            recipes: One for each name.
            timing: What the caller demands of the lease.
            now: The time, by the driver's clock.
            deadline: When to stop waiting, by the same clock.
        """
        node_set = self.node_set
        ticket = self.tickets.ticket(now + (self.record.epoch if self._ahead is None else self._ahead))
        if len(recipes) == 1:
            return Claim(recipes[0], timing, ticket, self.tickets, node_set, deadline)

        def claims(recipes: Sequence[Recipe], ticket: int) -> list[Claim]:
            return [Claim(it, timing, ticket, self.tickets, node_set, deadline) for it in recipes]

        if isinstance(recipes, Some):
            # The others get the ticket of the first claim, which may have changed by then.
            self._registry.wanted(recipes, now)
            joint = JointRequest(
                claims(recipes.first(ticket), ticket), lambda: claims(recipes.others(ticket), joint.claims[0].ticket)
            )
            return joint
        return JointRequest(claims(recipes, ticket))

    def listen(self, now: float) -> Watch:
        """Make a watch. What the nodes tell its token is for the caller to ask them."""
        # The ticket only makes the token unique: a watch has no place in a queue.
        watch = Watch(self.tickets.token(self.tickets.ticket(now + self._clock)))
        self.watches[watch.token] = watch
        return watch

    def begin(self, want: Want, now: float) -> None:
        """Begin to acquire it."""
        if now >= self._recheck:
            self._check_clocks(now)
        if len(self.node_set.up) < self.node_set.quorum:
            self._open_free(now)
        if self.node_set.dark < inf:
            self._dial_soon(now)
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
        self.record.happened(events.Attempt, want, now)
        for claim in claims:
            self.act(claim, now)
        if self._registry.permits:
            for slots, data in self._registry.sizes():
                self._note(dict.fromkeys(range(len(self.connections)), data), slots, now)
        if self._registry.fresh:
            self._register_first(now)

    def _dial_soon(self, now: float) -> None:
        """Have nodes dialled that are away, because a caller has come."""
        for connection in self.connections:
            self._try(connection, connection.hurry, None, now)
        self._pulse = now

    def _open_free(self, now: float) -> None:
        """Open the nodes whose guard is over, before a claim or a query is told that it is not."""
        for connection in self.connections:
            if connection.line is Line.GUARDED and connection.wake <= now < connection.sure:
                self._open(connection, now)

    def calm(self, timing: Timing, now: float) -> bool:
        """Return whether a request has to be cared for now, and nothing else."""
        return not (
            self.spoke
            or self.broken
            or now >= self._recheck
            or (timing.ttl < self._brief and self._too_brief(timing.ttl) is not None)
            or self._registry.fresh
            or len(self.node_set.up) < self.node_set.quorum
        )

    def adopt(self, claim: Claim, now: float) -> None:
        """Look after a claim that its caller has begun by itself, until it has ended."""
        if not claim.done and claim.token not in self.live:
            self.live[claim.token] = claim
            if claim.ttl < self._brief:
                self._hasten(claim.ttl)
        self.act(claim, now)
        self._expect(now)

    def extend(
        self, want: Want, ttl: float, now: float, fence: int = 0, share: bool = False, hold: float | None = None
    ) -> bool:
        """Make it last at least `ttl` seconds from now, and raise the nodes' fences to this one.

        There is news when a majority has confirmed, or cannot be had.

        Args:
            want: The acquisition.
            ttl: Seconds.
            now: The time.
            fence: The fence to raise to. 0: the nodes keep theirs.
            share: Turn a writer into a reader.
            hold: Move the end that `max_hold` sets to this many seconds from now.

        Returns:
            False if it is not held.
        """
        going = want.extend(ttl, now, fence, share, hold)
        for claim in want.claims:
            self.act(claim, now)
        return going

    def end(self, want: Want, now: float, heard: bool = False) -> None:
        """Give it back, or stop waiting for it.

        Args:
            want: The acquisition.
            now: The time.
            heard: Whether there is to be news when a majority has confirmed.
        """
        before, claims = want.state, want.claims
        want.release(now, heard)
        self.record.ended(want, before, now)
        for claim in claims:
            self.act(claim, now)

    def consult(
        self,
        asks: Mapping[int, bytes],
        now: float,
        enough: Callable[[Answers], bool] | None = None,
        share: Hashable = None,
    ) -> Query:
        """Ask nodes something that is no lock. There is news when the query is over.

        Args:
            asks: The bytes for each node.
            now: The time.
            enough: Whether these answers suffice. Then the other nodes are not waited for.
            share: What questions have in common that are to be answered together. One of them is
                under way at a time. All that are asked meanwhile become one question, which goes
                out when that one is over. So each is asked after its caller came, and what a
                hundred callers want at once crosses each connection twice at most. None: the
                question is asked by itself.

        Returns:
            The query: over after `node_timeout` at the latest, or after twice as long if another
            one is under way.
        """
        if len(self.node_set.up) < self.node_set.quorum:
            self._open_free(now)
        if self.node_set.dark < inf:
            self._dial_soon(now)
        line = self._shared.get(share)
        if line is not None:
            if len(line) == 1:
                line.append(Query(asks, self.node_set, deadline=inf, enough=enough))
            return line[1]
        query = Query(asks, self.node_set, deadline=now + self.settings.node_timeout, enough=enough)
        if share is not None:
            self._shared[share] = [query]
            self._shares[query] = share
        self._consult(query, now)
        if self._registry.fresh:
            self._register_first(now)
        return query

    def chore(self, about: bytes, work: Work, now: float) -> None:
        """Ask nodes something for which no caller waits, one query after the other.

        Does nothing if the same was asked just before, or if there are `CHORES` at work.

        Args:
            about: What it is about: the same chore is run again after `REST` seconds at the
                earliest.
            work: Yields what to ask which node, and is sent the query when it is over. What it
                raises ends it, and nothing else.
            now: The time.
        """
        if len(self._chores) >= CHORES or now < self._rests.get(about, -inf):
            return
        self._rests.pop(about, None)
        self._rests[about] = now + REST
        if len(self._rests) > RESTING:
            del self._rests[next(iter(self._rests))]
        self._further(about, work, None, now)

    def _further(self, about: bytes, work: Work, told: Query | None, now: float) -> None:
        """Take a chore's next step."""
        try:
            asks = next(work) if told is None else work.send(told)
        except StopIteration:
            return
        except Exception as error:
            # No lease depends on a chore.
            self.record.warn(self.node_set.labels[0], str(_failure(error)), now, "bug")
            return
        query = Query(asks, self.node_set, deadline=now + self.settings.node_timeout)
        self._chores[query] = about, work
        self._consult(query, now)

    @property
    def keeping(self) -> bool:
        """Whether this client is known to keep something that should outlive a restart."""
        return bool(self._lasting)

    def keeps(self, what: str, now: float) -> None:
        """Note that this client keeps something on the nodes that should outlive a restart.

        Args:
            what: What uses it, such as "once".
            now: The time.
        """
        if not self._lasting:
            self._lasting = what
            self._examine_soon(now)

    def _examine_soon(self, now: float) -> None:
        # Not at once: what this client is about to do comes first.
        self._examine_due = min(self._examine_due, now + self.settings.node_timeout)

    def _examine(self, now: float) -> None:
        """Ask the nodes whether they write to a disk, once in each run of their servers."""
        self._examine_due = inf
        nodes = [node for node in self.node_set.up if self._examined.get(node) != self.connections[node].run_id]
        if nodes:
            self.chore(b"persistence", self._persistence(nodes, now), now)

    def _persistence(self, nodes: Sequence[int], now: float) -> Work:
        seen = yield dict.fromkeys(nodes, pack(b"INFO", b"persistence"))
        for node, told in seen.answers.items():
            self._examined[node] = self.connections[node].run_id
            text = told if isinstance(told, str) else told.decode("utf-8", "replace") if isinstance(told, bytes) else ""
            if "aof_enabled:0" in text.split():
                self.record.warn(self.node_set.labels[node], FORGETFUL.format(self._lasting), now, "persistence")
        return None

    def repaired(self, runs: Mapping[str, bool]) -> None:
        """Note of these runs of servers, by run id, whether they have been repaired."""
        self._repaired.update(runs)

    def _consult(self, query: Query, now: float) -> None:
        self.queries.add(query)
        query.begin(now)
        self._conduct(query, now)

    def close(self, now: float) -> None:
        """End everything. The answers show that the nodes know: see `farewell`."""
        self._ends = min(self._ends, now + self.settings.node_timeout)
        claims = list(self.live.values())
        before = [(want, want.state) for want in _wants(claims)]
        for claim in claims:
            claim.close(now)
            self.act(claim, now)
        for want, state in before:
            self.record.ended(want, state, now)
        self._registry.end()
        self.changes += 1

    def farewell(self, now: float) -> float:
        """Return until when the driver waits for nodes' answers after `close`, if all bytes left.

        That is `now` if no node owes an answer. Once a majority owes none, every lock that was
        given back can be had by others, so all other nodes together have `GRACE` seconds. Their
        bytes are on the way, and they execute them when they can. Without a majority it is
        `node_timeout` after `close`.
        """
        if not self.owing:
            return now
        if (
            sum(connection.line is UP and not connection.ledger for connection in self.connections)
            >= self.node_set.quorum
        ):
            self._ends = min(self._ends, now + GRACE)
        return self._ends

    @property
    def patience(self) -> float:
        """How many seconds a node may owe an answer now.

        That is a third of the shortest ttl of a claim that lives, and at most `node_timeout`.
        """
        return self._manners.patience

    @property
    def owing(self) -> bool:
        """Whether a node owes an answer whose connection works."""
        return any(connection.line is UP and connection.ledger for connection in self.connections)

    def stats(self, now: float, begun: Sequence[Want] = ()) -> Stats:
        """Return counts of what was done so far.

        Args:
            now: The time.
            begun: Acquisitions that callers have begun by themselves, and that are not known here.
        """
        wants = _wants(list(self.live.values()))
        return self.record.stats(dict.fromkeys([*wants, *begun]), now)

    def status(self, now: float) -> tuple[NodeStatus, ...]:
        """Return the state of the nodes, in the order of their addresses."""
        node_set = self.node_set
        seen = [self._registry.seen(node, now) for node in range(len(self.connections))]
        return tuple(
            NodeStatus(
                node=connection.address.label,
                state=node_set.states[i],
                cause=node_set.cause(i, now),
                version=_software(connection.facts),
                run_id=connection.run_id,
                ahead=None if connection.ahead is None else connection.ahead - self.record.epoch,
                shard=self.settings.shard,
                stragglers=seen[i][0],
                repaired=self._repaired.get(connection.run_id),
                guard_left=max(0.0, node_set.free[i] - now) if node_set.standing[i] is Standing.GUARDED else None,
                since=max(0.0, now - node_set.since[i]),
                uptime=now - connection.started if connection.line in MET else None,
                rtt=connection.rtt if connection.answered else None,
                answered=connection.answered,
                owing=len(connection.ledger),
                warnings=self.record.kinds_of(connection.address.label),
                guarantee=_guarantee(connection),
                differences=seen[i][1],
            )
            for i, connection in enumerate(self.connections)
        )

    def verdict(self, waited: float, now: float) -> Exception | None:
        """Return why these nodes cannot be used, or None if they can.

        A ConfigError does not get better by waiting.
        """
        causes = {
            label: cause
            for i, label in enumerate(self.node_set.labels)
            if (cause := self.node_set.cause(i, now)) is not None
        }
        if wrong := {label: cause for label, cause in causes.items() if isinstance(cause, ConfigError)}:
            return unusable(wrong)
        if self.node_set.states.count("up") >= self.node_set.quorum:
            return None
        return NoQuorum(
            "a majority of the nodes", waited, causes, self.node_set.quorum, "reach", away=now - self.node_set.dark
        )

    def readiness(self, waited: float, wait: float, now: float) -> tuple[NodeStatus, ...] | None:
        """Decide for a caller that waits until the nodes can be used.

        Args:
            waited: Seconds that it has waited.
            wait: Seconds that it waits at most.
            now: The time.

        Returns:
            The state of the nodes. None: it waits on, and asks again when there is news, or soon.

        Raises:
            ConfigError: What is wrong does not get better by waiting.
            NoQuorum: A majority cannot be used, and the time is over.
        """
        late = waited >= wait
        wrong = self.verdict(waited, now)
        if wrong is not None and (late or isinstance(wrong, ConfigError)):
            raise wrong
        # Other threads ask while nodes come and go. So the state is read last, and judged by
        # itself.
        status = self.status(now)
        usable = majorities(status)[0].spare >= 0 and all(it.state != "connecting" for it in status)
        return status if late or usable else None

    def met(self, waited: float, within: float, now: float) -> bool:
        """Decide for a caller that waits until it is known which servers these nodes are.

        Args:
            waited: Seconds that it has waited.
            within: Seconds that it waits at most. Nodes that are being dialled are waited for
                `node_timeout` at most.
            now: The time.

        Returns:
            True if it is known. False: it waits on, and asks again when there is news, or soon.

        Raises:
            ConfigError: A node cannot be used, and the time is over.
            NoQuorum: A majority cannot be reached, and the time is over.
        """
        if self.acquainted(min(within, self.settings.node_timeout) - waited):
            return True
        if waited >= within and (wrong := self.verdict(waited, now)) is not None:
            raise wrong
        return False

    def servers(self) -> frozenset[str]:
        """Return the runs of the servers that the connections are connected to, by run id."""
        return frozenset(it.run_id for it in self.connections if it.line in MET)

    def acquainted(self, left: float) -> bool:
        """Return whether it is known which servers these nodes are.

        A majority must have said so. While time is left, nodes that are being dialled must have,
        too.
        """
        undecided = Standing.CONNECTING in self.node_set.standing and left > 0
        return not undecided and len(self.servers()) >= self.node_set.quorum

    # ------------------------------------------------ what the driver reports

    def connected(self, node: int, now: float, address: Address | None = None, asked: float = -inf) -> None:
        """Note that a connection to the node can carry bytes.

        Args:
            node: The node.
            now: The time.
            address: The address with the present place and credentials, if these change. None: as
                in the settings.
            asked: When the place was asked for, if it can change.
        """
        connection = self.connections[node]
        self._try(connection, connection.connected, None, now, address, asked)
        if connection.bad is not None:
            self.lost(node, now, connection.bad)

    def placed(self, node: int, now: float, address: Address | Exception, asked: float) -> None:
        """Note where a node of `Ready.places` is, or why that is not known, as of `asked`."""
        connection = self.connections[node]
        self._try(connection, connection.placed, None, address, asked, now)
        # The node may be asked to keep its note.
        self._expect(now)
        if connection.bad is not None:
            self.lost(node, now, connection.bad)

    def received(self, node: int, data: bytes | bytearray | memoryview, now: float) -> None:
        """Take in what a node has sent."""
        connection = self.connections[node]
        before, refusal = connection.line, connection.refusal
        try:
            connection.received(data, now)
        except Exception as error:
            if error is self._bug:
                raise
            self.faulted(node, now, error)
        if connection.line is not before:
            if connection.line is Line.GUARDED:
                self._introduced(connection, now)
            else:
                self._stands(connection, now)
        elif connection.bad is None and connection.refusal is not refusal:
            self._stands(connection, now)
        if connection.wake < self._pulse:
            self._pulse = connection.wake
        if connection.bad is not None:
            self.lost(node, now, connection.bad)

    def expected(
        self, node: int, data: bytes, now: float, takes: Callable[[int, Command, float], bool]
    ) -> bytes:
        """Take in the usual answers that a node has sent.

        Args:
            node: The node.
            data: What it has sent.
            now: The time.
            takes: Takes in one of them, for the node and the question. False: it is to be read.

        Returns:
            The bytes that are left, for `received`.
        """
        connection = self.connections[node]
        try:
            return connection.expected(data, now, takes)
        except Exception as error:
            if error is self._bug:
                raise
            connection.bad = connection.bad or _failure(error)
            return data

    def takes(self, node: int, question: Command, now: float) -> bool:
        """Take in a usual answer, for drivers that may touch every claim: see `expected`."""
        claim = question.owner
        if not isinstance(claim, Claim):
            return False
        try:
            if claim.answered(node, question, claim.usual, now):
                self.act(claim, now)
        except Exception as error:
            self._bug = error
            raise
        return True

    @property
    def still(self) -> bool:
        """Whether `ready` would have nothing to tell but when to wake, and whether to send."""
        return not (
            self.broken
            or self._settled
            or self._found
            or self._hangups
            or self._dials
            or self._places
            or self.record.events
            or self.changes != self._shown
        )

    def lost(self, node: int, now: float, cause: Exception) -> None:
        """Note that the connection to the node is gone, or no good, and hang it up."""
        connection = self.connections[node]
        if isinstance(cause, MemoryError):
            cause = _failure(cause)
        cause = self._try(connection, connection.explained, cause, cause)
        if self._runs.get(connection.run_id) == (node, inf):
            self._runs[connection.run_id] = node, connection.heard
        try:
            connection.broke(now)
        except Exception as error:
            # The connection may be in any state.
            cause = _failure(error)
            connection.renounce(now)
        if node in self._dials:
            self._dials.remove(node)
        self._hangups.append(node)
        self.broken = True
        self._pulse = min(self._pulse, connection.wake)
        self._stands(connection, now, cause)
        self._compare_clocks(now)

    def tick(self, now: float) -> None:
        """Note that time has passed.

        Call it only when everything that could be read has been read: what lies unread is not late.
        """
        if len(self.node_set.up) < self.node_set.quorum:
            self._open_free(now)
        self._wake_timed(now)
        if self._registry.due <= now:
            self._register(now)
        if self._examine_due <= now:
            self._examine(now)
        if self._pulse <= now:
            self._pulse = inf
            for connection in self.connections:
                self._look_after(connection, now)
            due = min([self._due(connection, now) for connection in self.connections])
            self._pulse = min(self._pulse, due)

    def _wake_timed(self, now: float) -> None:
        """Wake claims and queries whose time has come, `TURN` of them at most.

        The others have the next turn, which comes at once. What has arrived, and what callers want,
        comes in between. So no number of leases keeps an acquire waiting.
        """
        renewed = False
        left = TURN
        for timed in islice(self._timers.passed(now), TURN):
            left -= 1
            renewed |= timed.wake <= now and isinstance(timed, Claim) and timed.state is HELD
            if timed.wake > now or timed.tick(now):
                self._follow(timed, now)
        if renewed:
            self._renew_ahead(now, left)
        self._timers.looked(now)

    def _look_after(self, connection: Connection[Command], now: float) -> None:
        """Hang up, dial or open one connection, if it is time to.

        Every failure in there is this connection's failure.
        """
        late = self._try(connection, connection.late, False, now)
        if (lapse := self._try(connection, connection.lapsed, None, now)) is not None:
            connection.bad = lapse
        if connection.bad is None and connection.reask <= now and connection.line in MET:
            connection.reask = now + (connection.outlives or 0.0) / 3
            self._places.append(connection.node)
        if connection.bad is None and late:
            silence = self._try(connection, connection.silence, None)
            # A `silence` that fails sets `bad`, which a type checker does not see.
            connection.bad = connection.bad or silence  # type: ignore[redundant-expr]
        elif connection.bad is None and connection.line is Line.DOWN and connection.wake <= now:
            self._try(connection, connection.dial, None, now)
            self.node_set.tried(connection.node, now)
            self._dials.append(connection.node)
        elif connection.bad is None and connection.line is Line.GUARDED and connection.wake <= now:
            self._open(connection, now)
        elif connection.bad is None and connection.line is UP and connection.wake <= now:
            self._try(connection, connection.probe, None, now)
            self._expect(now)
        if connection.bad is not None:
            self.lost(connection.node, now, connection.bad)

    def _due(self, connection: Connection[Command], now: float) -> float:
        """Return when to look after a connection next."""
        due = self._try(connection, connection.due, inf)
        if connection.bad is None:
            return min(due, connection.wake, *((connection.reask, connection.sure) if connection.line in MET else ()))
        self.lost(connection.node, now, connection.bad)
        return self.connections[connection.node].wake

    def faulted(self, node: int, now: float, error: Exception) -> None:
        """Note that our own code failed, or memory ran out, while it dealt with one node.

        That node is lost at the next tick, and no other.
        """
        connection = self.connections[node]
        connection.bad = connection.bad or _failure(error)
        self.broken = True
        self._pulse = min(self._pulse, now)

    def _try(self, connection: Connection[Command], call: Callable[..., T], otherwise: T, *arguments: object) -> T:
        """Call a method of a connection. What it raises makes the connection bad."""
        try:
            return call(*arguments)
        except Exception as error:
            connection.bad = connection.bad or _failure(error)
            return otherwise

    def _say(self, nodes: Sequence[int], command: Command) -> None:
        """Have connections say something. A connection that fails keeps no other from it."""
        self._provide(command)
        for node in nodes:
            try:
                self.connections[node].say(command)
            except Exception as error:
                self.faulted(node, command.sent, error)

    @cached_property
    def _unused(self) -> dict[bytes, bytes]:
        """The scripts that this client has not used, by digest. No connection has loaded them."""
        return {it.sha: it.source for it in scripts.LOADED if it not in scripts.BASIC}

    def _provide(self, command: Command) -> None:
        """Have every connection load the script that this command calls, if nothing has called it
        so far.

        It goes in the same write as the command, and with each connection from now on. So a
        connection's first words are few, and a script that a node does not know still means that
        its server was restarted.
        """
        _, _, called = command.data[:CALLED_BY].partition(CALLED)
        source = self._unused.pop(called[:40], None)
        if source is None:
            return
        self._manners.scripts.append(source)
        more = self._manners.probe is self._manners.basic and called[:40] in rights.needs()
        if more:
            # It needs rights of its own. The answer comes before the one to the command.
            self._manners.probe = rights.question(self.settings.prefix, b"more")
        for connection in self.connections:
            try:
                connection.learn(source, command.sent)
                if more and connection.line is UP:
                    connection.probe(command.sent)
            except Exception as error:
                self.faulted(connection.node, command.sent, error)

    def _renew_ahead(self, now: float, most: int) -> None:
        """Let renewals that are due soon go along with those that are due, in one write.

        At most `most` of them do.
        """
        for timed in list(islice(self._timers.passed(now + AHEAD), most)):
            if isinstance(timed, Claim) and timed.state is HELD:
                timed.tick(now)
            self._follow(timed, now)

    def lapse(self, now: float) -> None:
        """End the leases that have run out by now: no answer that lies unread can save them."""
        claims = [it for it in self._timers.overdue(now) if isinstance(it, Claim) and it.state is HELD]
        over = [it for it in claims if now >= it.until]
        for claim in sorted(over, key=attrgetter("until")):
            if claim.tick(now):
                self.act(claim, now)

    def excuse(self, now: float, lag: float) -> None:
        """Note that the driver was busy for `lag` seconds: no node's silence counts until now."""
        for connection in self.connections:
            self._try(connection, connection.excuse, None, now, lag)
            if connection.bad is not None:
                self.lost(connection.node, now, connection.bad)

    def next_wake(self) -> float:
        """Return when to call `tick` at the latest."""
        return min(self._timers.due, self._pulse, self._registry.due, self._examine_due)

    def ready(self) -> Ready:
        """Take over what is to be done now.

        Call it in every turn, after everything else, and do all of it.

        A turn of a driver has these steps, in this order. Calls never overlap.

        1. Call `connected`, `placed`, `received` and `lost` for all that has happened, and pass on
           what callers want. `now` is monotonic, and runs on while the machine sleeps. Read it
           after the bytes were read: an answer that lay unread while this process was stopped must
           not count as prompt. If `broken` is set between two reads, call `cut`.
        2. Call `tick` if `next_wake` is due, and only when everything that could be read has been
           read: what lies unread is not late. Its `now` is the time from before that reading, for
           the same reason.
        3. Call `ready`, and then:
            a. Reset the connections of `hangups` before anything is dialled or sent. The server
               would execute a command that the kernel still has after what is said on the next
               connection.
            b. Dial `dials`, and report how that ended, by `connected` or `lost`. Ask where `places`
               are, and report that by `placed`.
            c. If it `speaks`, send what `take` of each connected connection returns, in one write.
               A connection whose socket cannot take it yet is asked later. What `take` raises
               goes to `faulted`.
            d. Wake the callers that wait for `settled`, `queries` and news (`changed`), and tell
               owners what they have lost. This comes after the sending, because a thread that is
               woken may keep the interpreter.
            e. Tell observers and the log of `events`. This comes last, because they are the user's
               and may do anything.
        4. If `broken` is set by now, something has failed meanwhile: call `ready` again.
        5. Sleep until `wake`, or until something happens.

        Returns:
            What is to be done. Nothing of it is returned again. If nothing is to be done, or
            nothing but to send, no new value is made.
        """
        wake = min(self._timers.due, self._pulse, self._registry.due, self._examine_due)
        record = self.record
        changed = self.changes != self._shown
        spoke = self.spoke
        self.spoke = False
        self.broken = False
        connects = self._hangups or self._dials or self._places
        if not (changed or self._settled or self._found or record.events or connects):
            ready = self._lulls[spoke]
            if ready.wake != wake:
                ready = ready._replace(wake=wake)
                self._lulls[spoke] = ready
            return ready
        # Lists that are handed over are replaced, because the engine goes on to fill its own.
        hangups: Sequence[int] = ()
        dials: Sequence[int] = ()
        places: Sequence[int] = ()
        queries: Sequence[Query] = ()
        settled: Sequence[Want] = ()
        told: Sequence[events.Event] = ()
        if connects or self._found:
            hangups = self._hangups
            dials = self._dials
            places = self._places
            queries = self._found
            self._hangups = []
            self._dials = []
            self._places = []
            self._found = []
        if self._settled:
            settled = self._settled
            self._settled = []
        if record.events:
            told = record.events
            record.events = []
        self._shown = self.changes
        return _made((hangups, dials, places, spoke, settled, queries, changed, told, wake, False))

    def cut(self) -> Sequence[int]:
        """Take over which connections to reset, in the middle of reading.

        Do not read another byte of a connection that the engine has given up, and do not report it
        as lost a second time. `ready` returns those that were not taken over here.
        """
        hangups = self._hangups
        self._hangups = []
        self.broken = False
        return hangups

    # ------------------------------------------------ what connections report

    def heard(self, node: int, question: Command, reply: object, now: float) -> None:
        """Take in a node's answer to a command."""
        owner, connection = question.owner, self.connections[node]
        proposed = question.fence
        usual = proposed if type(reply) is int else b"%016d" % proposed
        if proposed and reply != usual and is_below(reply, proposed):
            # Nobody knows what else on this connection answers something else (rule T5).
            connection.bad = ConnectionError("it answers another request: a grant below the proposed fence")
            return
        try:
            if connection.lacks and question.mode in FIRST:
                # Also where it was granted: it may need what is forbidden as soon as there are
                # others.
                reply = self._try(connection, connection.forbids, None, question.data, now) or reply
            if type(reply) is list and question.data in (self._manners.probe, self._manners.basic):
                connection.judge(reply, question.data)
            elif self.node_set.causes[node] is not None and isinstance(owner, Claim):
                if isinstance(answer := read(reply), Granted) and answer.fresh:
                    # The node has just accepted a write.
                    connection.refusal = None
            if owner is not None and owner.answered(node, question, reply, now):
                # Nobody else owns commands.
                assert isinstance(owner, (Claim, Query))
                self._follow(owner, now)
        except Exception as error:
            self._bug = error
            raise

    def told(self, node: int, message: bytes, now: float) -> None:
        """Take in what a node has said to this engine's inbox."""
        try:
            self._told_by(node, message, now)
        except Exception as error:
            self._bug = error
            raise

    def _told_by(self, node: int, message: bytes, now: float) -> None:
        parts = message.split(b" ", 3)
        if len(parts) != 4 or not TOKEN.fullmatch(parts[1]) or not FENCE.fullmatch(parts[2]):
            # Nothing that our scripts say.
            return
        kind, token, fence, key = parts
        claim = self.live.get(token)
        if kind == NEWS:
            if claim is not None and claim.had_news(node, now):
                self.act(claim, now)
            elif (watch := self.watches.get(token)) is not None:
                watch.news = True
                self.changes += 1
        elif (
            claim is not None
            and claim.recipe.name == key
            and (claim.state is WAITING or claim.state is HELD)
        ):
            if claim.pushed(node, kind, int(fence), now):
                self.act(claim, now)
        elif kind == GRANTED:
            # A grant that nobody wants any more.
            self._say((node,), Command(None, RELEASE, token, now, data=self._undo(key, token, self.settings.horizon)))
            self._expect(now)

    def changed(self, node: int, key: bytes | None, now: float) -> None:
        """Take in that a key which a node was asked to watch has changed.

        Args:
            node: The node.
            key: The key. None: every key of the node may have changed.
            now: The time.
        """
        try:
            for claim in [it for it in self.live.values() if key is None or it.recipe.name == key]:
                if claim.changed(node, now, flushed=key is None):
                    self.act(claim, now)
        except Exception as error:
            self._bug = error
            raise

    # ------------------------------------------------ within

    def _follow(self, owner: Claim | Query, now: float) -> None:
        if isinstance(owner, Claim):
            self.act(owner, now)
        else:
            self._conduct(owner, now)

    def _conduct(self, query: Query, now: float) -> None:
        """Do what a query asks for."""
        for node, command in query.sends:
            self._say((node,), command)
        if query.sends:
            query.sends.clear()
            self._expect(now)
        if not query.over:
            self._timers.arm(query)
            return
        self.queries.discard(query)
        self._timers.disarm(query)
        if query in self._registry.asked:
            self._registered(query, now)
        elif query is self._checkup:
            self._clocks_told(query, now)
        elif (chore := self._chores.pop(query, None)) is not None:
            self._further(*chore, query, now)
        else:
            self._found.append(query)
            self._next_of(query, now)

    def _next_of(self, query: Query, now: float) -> None:
        """Ask what callers have wanted while this shared question was under way."""
        share = self._shares.pop(query, None)
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
        recipe, company = claim.recipe, claim.company
        if claim.sends:
            connections = self.connections
            for nodes, command in claim.sends:
                if command.mode is RELEASE:
                    command.data = recipe.release(command.token)
                else:
                    command.data = recipe.request(
                        command.token, command.ttl, command.mode, command.fence, command.clock
                    )
                if (
                    recipe.rider is not None
                    and claim.fence
                    and (command.mode is RELEASE) is not (claim.state is HELD)
                ):
                    # Before a release, on the same connections.
                    self._say_along(recipe.rider(claim.token, claim.fence, command.ttl), nodes, now)
                # Every connection has the scripts of exclusive locks, whose tokens have no kind.
                if recipe.kind and self._unused:
                    self._provide(command)
                # As `_say` does, without a call on the way of every acquire.
                for node in nodes:
                    try:
                        connections[node].say(command)
                    except Exception as error:
                        self.faulted(node, now, error)
            claim.sends.clear()
            self._expect(now)
        # The claim has begun again, with another token.
        if claim.token is not claim.routed:
            self.live[claim.token] = self.live.pop(claim.routed)
            claim.routed = claim.token
        if claim.notes:
            self.record.notes(claim, now)
        if claim.unfit or claim.absurd:
            self._warn_of(claim, now)
        if claim.news:
            claim.news = False
            self.record.news(claim, now)
            if recipe.rider is not None and claim.state is HELD and claim.since == now:
                self._say_along(recipe.rider(claim.token, claim.fence, claim.until - now), self.node_set.up, now)
            if company is None:
                self._settled.append(claim)
            elif isinstance(company, JointRequest) and company.settled and company not in self._settled:
                self._settled.append(company)
        if claim.state is not WAITING and claim.state is not HELD and claim.done:
            if self.live.pop(claim.token, None) is not None and claim.ttl < self._brief:
                self._relax(claim.ttl)
            self._timers.disarm(claim)
        elif claim.wake < claim.armed:
            self._timers.arm(claim)
        if company is not None and isinstance(company, JointRequest) and company.stirred:
            self._act_on_others(company, now)

    def _act_on_others(self, joint: JointRequest, now: float) -> None:
        """Do what other claims of a joint request ask for because of what has happened to one."""
        stirred = joint.stirred
        joint.stirred = []
        for other in stirred:
            # It may be new.
            if other.routed not in self.live:
                self.live[other.routed] = other
                if other.ttl < self._brief:
                    self._hasten(other.ttl)
            self.act(other, now)

    def _warn_of(self, claim: Claim, now: float) -> None:
        """Warn of values in the key that no lock has, and of fences that no clock explains."""
        unfit = claim.unfit
        claim.unfit = ()
        for node in unfit:
            # Once for a name, because its value may be another one each time.
            self.record.warn(self.node_set.labels[node], claim.warning(node), now, "key", f"key {claim.recipe.part}")
        absurd = claim.absurd
        claim.absurd = ()
        for node in absurd:
            topic = f"the fence of {claim.recipe.label!r}"
            self.record.warn(self.node_set.labels[node], message_of(claim.votes[node].error), now, "fence", topic)
        if absurd:
            self._check_clocks(now)

    def _say_along(self, data: bytes, nodes: Sequence[int], now: float) -> None:
        """Send something whose answer nobody waits for."""
        self._say(nodes, Command(None, READ, b"", now, data=data))
        self._expect(now)

    def _expect(self, now: float) -> None:
        """Note that something was asked: look after the connections when its answer is overdue."""
        due = now + self._manners.patience
        if due < self._pulse:
            self._pulse = due

    def _hasten(self, ttl: float) -> None:
        """Note a claim that cannot wait `node_timeout` for an answer.

        No answer may take longer than a third of a lease.
        """
        self._briefs[ttl] += 1
        self._manners.patience = min(self._manners.patience, ttl / 3)

    def _relax(self, ttl: float) -> None:
        """Note that such a claim is over. Nodes may take as long as the living claims allow."""
        self._briefs[ttl] -= 1
        if not self._briefs[ttl]:
            del self._briefs[ttl]
            self._manners.patience = min([self.settings.node_timeout, *[it / 3 for it in self._briefs]])

    def _too_brief(self, ttl: float) -> ConfigError | None:
        """Return why no lock can have this ttl here, if answers take longer than a third of it.

        A node that was not measured counts as quick.
        """
        trip = sorted(it.trip for it in self.connections)[self.node_set.quorum - 1]
        if ttl / 3 >= trip:
            return None
        return ConfigError(
            f"ttl={ttl:g} is too short for these nodes: answers from a majority of them take {trip * 1000:.3g} ms, "
            "and each has to come within a third of the ttl. The shortest ttl that can work is "
            f"{ceil(trip * 3000) / 1000:g} seconds; choose several times that"
        )

    def _refuse_briefs(self, now: float) -> None:
        """Refuse the waiting claims whose ttl has turned out to be too short for these nodes."""
        for claim in [it for it in self.live.values() if it.ttl < self._brief]:
            if claim.state is WAITING and (wrong := self._too_brief(claim.ttl)) is not None:
                claim.refuse(wrong, now)
                self.act(claim, now)
                self._measure(now)

    def _measure(self, now: float) -> None:
        """Measure the round trip again, because a claim was refused for it.

        So a moment in which this machine was busy does not count for ever.
        """
        for connection in self.connections:
            self._try(connection, connection.measure, None, now)
        self._expect(now)

    def _twin(self, connection: Connection[Command], now: float) -> Connection[Command] | None:
        """Return another connection that may have votes of the server that this connection has met,
        or None.

        Votes outlive a connection by a lease at most.
        """
        lately = now - self.settings.max_ttl - SLACK
        self._runs = {run_id: it for run_id, it in self._runs.items() if it[1] > lately}
        node, _ = self._runs.get(connection.run_id, (connection.node, inf))
        return None if node == connection.node else self.connections[node]

    def _introduced(self, connection: Connection[Command], now: float) -> None:
        """Judge a connection that has learned which server it speaks to."""
        twin = self._twin(connection, now)
        if twin is not None:
            connection.bad = ConfigError(
                f"it is the same server as {twin.address.label}: a majority of one server means nothing"
            )
            return
        self._runs[connection.run_id] = connection.node, inf
        self._look_over(connection, now)
        self._compare_clocks(now)
        self._recheck = min(self._recheck, now + RECHECK)
        self._judge_clocks(now, connection)
        if connection.bad is not None:
            return
        if connection.wake <= now:
            self._open(connection, now)
        else:
            self._pulse = min(self._pulse, connection.wake)
            self._stands(connection, now)

    def _look_over(self, connection: Connection[Command], now: float) -> None:
        """Warn of what works on this node, and is dangerous."""
        policy = connection.facts.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            warning = (
                f"its maxmemory-policy is {policy}: it may evict locks that are held. Set maxmemory-policy noeviction."
            )
            self.record.warn(connection.address.label, warning, now, "eviction", warning)
        if connection.address.tls is not None and not connection.address.tls.verify:
            warning = (
                "nobody verifies its certificate (ssl_cert_reqs=none), so others can pose as it. Name its "
                "authority: ssl_ca_certs."
            )
            self.record.warn(connection.address.label, warning, now, "tls")
        if connection.stranger:
            warning = (
                f"its server is {connection.stranger}, which is neither Redis nor Valkey. It is used because its "
                "address says unproven, but nobody has shown that locks are safe on it. Examine it: python -m "
                "holdfast.testing.conformance URL."
            )
            self.record.warn(connection.address.label, warning, now, "product")
        if connection.several:
            warning = (
                "another server answers at its address than before, and it was running already while the former one "
                "answered. If the address leads to several servers, clients lock on different ones, and two can "
                "hold the same lock: name a single server."
            )
            self.record.warn(connection.address.label, warning, now, "several servers")
        self._look_over_replicas(connection, now)

    def _look_over_replicas(self, connection: Connection[Command], now: float) -> None:
        """Warn of a failover that could give a lock of this node to a second client."""
        if connection.unbounded:
            warning = _unbounded(replicas(connection.facts), self.settings.guard)
            self.record.warn(connection.address.label, warning, now, "replicas")
        # Where the place can be asked for, clients do not depend on what the server does.
        stops = connection.address.moves or clustered(connection.facts) or "min_slaves_good_slaves" in connection.facts
        if connection.address.failover and not stops:
            warning = (
                f"its address says failover={connection.address.failover:g}, but the server goes on granting locks "
                "without replicas. Set min-replicas-to-write to the number of its replicas, and min-replicas-max-lag "
                "to at most those seconds."
            )
            self.record.warn(connection.address.label, warning, now, "failover")

    def _compare_clocks(self, now: float) -> None:
        """Warn of nodes whose clocks are far from what most of them say.

        If they cannot outvote one another, the client's own clock decides.
        """
        if any(it.ahead is None and self.node_set.standing[it.node] is not Standing.DOWN for it in self.connections):
            # Nodes that have not told their time may turn those that seem to be wrong into the
            # majority.
            return
        told, ours = (
            [(it.address.label, it.ahead) for it in self.connections if it.ahead is not None],
            self.record.epoch,
        )
        voices = sorted([it for _, it in told] + [ours] * (1 - len(told) % 2))
        right = voices[len(voices) // 2] if len(told) > 1 else ours
        far = self.settings.horizon / 2000
        for label, ahead in told:
            if abs(ahead - right) > far:
                danger = "it is not used" if len(self.connections) > 1 else "after a restart, fences may repeat"
                warning = f"its clock is {_off(ahead - right, len(told) > 1)}: {danger}. Set it (NTP)."
                self.record.warn(label, warning, now, "clock")

    @property
    def _clock(self) -> float:
        """The clock that tickets are taken from, less `now`."""
        return self.record.epoch if self._ahead is None else self._ahead

    def _judge_clocks(self, now: float, new: Connection[Command] | None = None) -> None:
        """Find the time by most clocks. A node whose clock is far from it is not used.

        Its fences would be far from all others'.

        Each node has a voice. If a node has not told its time, our own clock has the voice, and if
        the number of nodes is even, our own clock has one more. So no minority of nodes decides,
        and once a majority has told its time, neither does our own clock. A node that is alone is
        always right.

        Args:
            now: The time.
            new: The connection that is just being introduced. Its caller hangs it up.
        """
        told = [(it.ahead, it.blur) for it in self.connections if it.ahead is not None]
        size, ours = len(self.connections), (self.record.epoch, 0.0)
        voices = sorted([*told, *[ours] * (size - len(told) + (size % 2 == 0))])
        right, blur = voices[len(voices) // 2]
        # Each process of one machine would be wrong by as long as its greeting took, and the queue
        # would not be in order. So tickets are taken from our own clock if what the nodes say
        # leaves room for it.
        before, self._ahead = self._clock, self.record.epoch if abs(right - self.record.epoch) <= blur else right
        far = self.settings.horizon / 2000
        old = [it for it in self.connections if it.line is UP and it.measured < now - RECENT]
        for connection in self.connections:
            if connection.ahead is None or connection.line not in MET or abs(off := connection.ahead - right) <= far:
                continue
            # Our own clock runs at another rate than theirs. So old measures prove nothing, and are
            # taken again first.
            if old:
                self._check_clocks(now)
            if connection in old:
                continue
            cause = ConnectionError(f"not used: its clock is {_off(off, 2 * len(told) > size)}. Set it (NTP).")
            if connection is new:
                connection.bad = cause
            else:
                self.lost(connection.node, now, cause)
        if abs(self._ahead - before) > far:
            self._moved(self._ahead - before, now)

    def _moved(self, seconds: float, now: float) -> None:
        """Start the claims that wait over with other tickets: the clock of tickets was wrong."""
        self.tickets.forget()
        for claim in list(self.live.values()):
            if claim.moved(seconds, now):
                self.act(claim, now)

    def _check_clocks(self, now: float) -> None:
        """Ask the nodes for their clocks again, because they may have been set meanwhile."""
        if self._checkup is None and now >= self._checked + self._manners.patience:
            self._checked = now
            self._recheck = now + RECHECK
            self._checkup = Query(
                dict.fromkeys(self.node_set.up, pack(b"TIME")), self.node_set, deadline=now + self.settings.node_timeout
            )
            self._consult(self._checkup, now)

    def _clocks_told(self, query: Query, now: float) -> None:
        """Take in the clocks that the nodes have told again.

        What a connection measured when it connected is more exact, unless it is wrong by now.
        """
        self._checkup = None
        for node, reply in query.answers.items():
            connection = self.connections[node]
            self._try(connection, connection.told_time, None, reply, query.began, now)
        self._judge_clocks(now)

    def _register_first(self, now: float) -> None:
        """Note this client's settings with its first use, in the same write."""
        self._registry.used(now)
        self._register(now)

    def _register(self, now: float) -> None:
        """Note this client's settings on the nodes on which that is due."""
        dialled = Standing.CONNECTING in self.node_set.standing
        runs = [it.run_id if it.line in MET and not dialled else "" for it in self.connections]
        if asked := self._registry.questions(runs, self.node_set.up, now):
            self._note(asked, None, now)

    def _note(self, asks: Mapping[int, bytes], slots: Some | None, now: float) -> None:
        """Note something on nodes, for whose answers nobody waits."""
        query = Query(asks, self.node_set, deadline=now + self.settings.node_timeout)
        self._registry.asked[query] = slots
        self._consult(query, now)

    def _registered(self, query: Query, now: float) -> None:
        """Warn of other clients whose settings or permits differ."""
        lasted = {it.run_id: now - it.started for it in self.connections if it.line in MET}
        for node, kind, warning in self._registry.told(query, lasted, now):
            self.record.warn(self.node_set.labels[node], warning, now, kind, warning)

    def _open(self, connection: Connection[Command], now: float) -> None:
        self._try(connection, connection.opened, None, now)
        if connection.bad is None:
            self._stands(connection, now)

    def _stands(self, connection: Connection[Command], now: float, cause: Exception | None = None) -> None:
        """Note how a node stands after something has happened to its connection.

        If that is new, tell claims and observers.
        """
        node, node_set = connection.node, self.node_set
        before = node_set.standing[node]
        if connection.line is Line.LOADING:
            # As before, until it has taken the scripts.
            return
        if connection.line is UP:
            standing = Standing.UP
        elif connection.line is Line.GUARDED:
            standing = Standing.GUARDED
        else:
            standing = Standing.CONNECTING if not connection.fails else Standing.DOWN
        if standing is Standing.GUARDED:
            cause = ConnectionError(told) if (told := _guarded(connection)) else None
        elif standing is Standing.DOWN:
            cause = cause or node_set.causes[node]
        else:
            cause = connection.refusal if standing is Standing.UP else None
        state = node_set.states[node]
        node_set.note(node, standing, now, cause, connection.wake, now - connection.uptime)
        if node_set.states[node] != state:
            self.changes += 1
            self._note_state(connection, node_set.states[node], now)
        if standing is before:
            if state == "refusing" and node_set.states[node] == "up":
                for claim in list(self.live.values()):
                    if claim.relented(node, now):
                        self.act(claim, now)
            return
        if standing is Standing.UP:
            due = now if self.live or self.queries else now + self.settings.node_timeout
            if self.registers:
                self._registry.up(node, due)
            if self._briefs:
                self._refuse_briefs(now)
        self._tell_of(node, standing, before, now, standing is Standing.UP and self._forgetful(connection))

    def _note_state(self, connection: Connection[Command], state: str, now: float) -> None:
        """Tell observers and the log of a node's state, if it is new to them."""
        # While a node is down, the reason may change at each attempt to connect.
        news = "down" if state == "unfit" else state
        if news in ("connecting", self._told[connection.node]):
            return
        self._told[connection.node] = news
        at = self.record.at(now)
        label = connection.address.label
        fell = self._fell[connection.node]
        self._fell[connection.node] = inf if news in ("up", "guarded") else min(fell, now)
        down = max(0.0, now - fell)
        if news == "up":
            self.record.note(events.NodeEvent(at=at, node=label, state="up", down=down))
            if self._lasting:
                self._examine_soon(now)
        elif news == "guarded":
            why = _guarded(connection) or STARTED
            left = connection.wake - now
            self.record.note(events.NodeEvent(at=at, node=label, state="guarded", left=left, cause=why, down=down))
        else:
            cause = self.node_set.causes[connection.node] or ConnectionError("no connection")
            state = "refuses" if news == "refusing" else "down"
            self.record.note(events.NodeEvent(at=at, node=label, state=state, cause=cause))

    def _forgetful(self, connection: Connection[Command]) -> bool:
        """Return whether a node that is up again may lack leases that are still held.

        Its server is another run than before, and there is no guard, which would have outlasted
        them.
        """
        before = self._served.get(connection.node, connection.run_id)
        self._served[connection.node] = connection.run_id
        return before != connection.run_id and self.settings.guard is None

    def _tell_of(self, node: int, standing: Standing, before: Standing, now: float, restarted: bool) -> None:
        """Tell claims and queries how a node stands, and how it stood before."""
        for claim in list(self.live.values()):
            if standing is Standing.UP:
                news = claim.joined(node, now, restarted)
            elif before is Standing.UP:
                news = claim.broke(node, now)
            else:
                news = claim.state is WAITING and claim.tick(now)
            if news:
                self.act(claim, now)
        for query in list(self.queries):
            if query.joined(node, now) or query.tick(now):
                self._conduct(query, now)


def _connection_settings(settings: Settings, inbox: bytes, version: str) -> ConnectionSettings:
    return ConnectionSettings(
        inbox,
        name=f"holdfast:{settings.owner}:{inbox[:8].decode()}".encode(),
        version=version.encode(),
        guard=settings.guard,
        fresh=settings.fresh,
        patience=settings.node_timeout,
        timeout=settings.node_timeout,
        # A clock may be wrong by a quarter of the horizon more or less than it seems.
        prompt=max(settings.node_timeout, settings.horizon / 2000),
        prefix=settings.prefix,
        keep=settings.max_ttl,
        scripts=[it.source for it in scripts.BASIC],
        jitter=int(inbox[:4], 16) / 0xFFFF,
    )


def _off(seconds: float, known: bool) -> str:
    """Return by how much a clock is off. `known`: most nodes have told theirs."""
    word = "ahead of" if seconds > 0 else "behind"
    others = "what most nodes say" if known else "this machine's, and no other node tells which of them is wrong"
    return f"{abs(seconds):.0f} s {word} {others}"


def _guarded(connection: Connection[Command]) -> str:
    """Return why the guard of a node began. Empty: its server restarted."""
    return PROMOTED if connection.promoted else REPLACED if connection.replaced else ""


def _guarantee(connection: Connection[Command]) -> str:
    """What `NodeStatus.guarantee` says of the node of a connection."""
    if connection.stranger:
        return UNPROVEN
    return EFFICIENT if connection.unbounded else SAFE


def _unbounded(count: int, guard: float | None) -> str:
    """Return the warning of a node that has replicas, or was promoted, and no `failover`."""
    cost = (
        "no client waits for them to end"
        if guard is None
        else f"clients leave the promoted server alone for {guard:g} s"
    )
    failed = (
        f"it has replicas ({count}). If one is promoted in its place, the locks that it had not received are "
        f"forgotten, and {cost}."
        if count
        else "it was a replica, and was promoted."
    )
    return (
        f"{failed} As long as the old primary goes on, two clients can hold the same lock: this node is "
        f"{EFFICIENT}. Say in its address for how many seconds an old primary can go on, such as ?failover=15 "
        "(0: not at all), or use primaries without replicas."
    )


def _wants(claims: Iterable[Claim]) -> list[Want]:
    """Return the acquisitions that these claims are of, each once."""
    wants = [it.company if isinstance(it.company, JointRequest) else it for it in claims]
    return list(dict.fromkeys(wants))


def _failure(error: Exception) -> ConnectionError:
    """Return an error that says what failed, and where.

    It leaves out the error's own words, in which a password may be.
    """
    kind, at = type(error).__name__, error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if isinstance(error, MemoryError):
        return ConnectionError("this process has no memory left for what the node says")
    where = "" if at is None else f" in {at.tb_frame.f_code.co_qualname}, line {at.tb_lineno}"
    return ConnectionError(
        f"holdfast failed on this node's connection ({kind}{where}); the other nodes go on. Please report this"
    )


def _software(facts: dict[str, str]) -> str:
    """Return what a server says it is, like "valkey 9.1.2". Empty until it has said so."""
    if version := facts.get("valkey_version"):
        return f"valkey {version}"
    return f"redis {facts['redis_version']}" if "redis_version" in facts else ""
