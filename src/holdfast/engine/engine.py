"""The claims of one client, and what routes them: what goes to which connection, and back.

Knows claims and queries, and when each has to act again. `upkeep` keeps the connections, `health`
knows how the nodes stand, and `notices` asks what no caller waits for. Must not know sockets, tasks
or clocks, or how threads wait. `Engine.ready` states what drivers have to do.

One thread makes all calls, but other threads look in while it works: by `stats` here, and by
methods of `health` and `notices`. Such a method must read each value once, and judge only what it
has read.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from math import inf
from operator import attrgetter
from weakref import WeakValueDictionary

from .. import events
from ..errors import message_of
from ..protocol.answer import Granted, is_below, read
from ..protocol.claim import Claim, State
from ..protocol.command import GRANTED, NEWS, READ, RELEASE, TRY, WAIT, Command, Recipe
from ..protocol.joint import JointRequest, Some
from ..protocol.nodes import NodeSet, Standing
from ..protocol.query import Answers, Query
from ..protocol.quorum import UNMARKED
from ..protocol.renewal import AHEAD
from ..protocol.ticket import FENCE, TOKEN, Tickets
from ..protocol.timing import Timing
from .health import Health
from .notices import Notices, Then
from .ready import Ready, Want
from .recorder import Recorder, Stats
from .registry import Registry
from .settings import Settings
from .timers import Timers
from .upkeep import UP, Upkeep, attempt

# Seconds that a client's end waits for other nodes once a majority has answered everything.
GRACE = 0.02

# The modes of commands that are no renewal and no release.
FIRST = (WAIT, TRY, READ)

# How many claims and queries one turn wakes at most: a few milliseconds of work.
TURN = 50

# (On the way of every acquire, an attribute of an enum costs as much as a call.)
WAITING, HELD, LOST, OVER = State

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
        self.settings = settings
        self.tickets = Tickets(inbox)
        self._undo = undo
        self.node_set = NodeSet(
            [it.label for it in settings.addresses],
            settings.node_timeout,
            settings.outage,
            settings.horizon,
            settings.quorum,
        )
        self.live: dict[bytes, Claim] = {}
        # By the query that is under way: what is called with it, and with the time, when it is over.
        self.queries: dict[Query, Then] = {}
        self.watches: WeakValueDictionary[bytes, Watch] = WeakValueDictionary()
        # Whether connections may have something new to send. The connections set it.
        self.spoke = False
        # What `ready` hands over next.
        self._settled: list[Want] = []
        self._found: list[Query] = []
        # The last `Ready` with nothing but a time, and the last with nothing but something to send.
        self._lulls = [Ready(), Ready(speaks=True, idle=False)]
        # The number of changes that drivers have heard of.
        self._shown = 0
        self.record = Recorder()
        # How often something has changed that belongs to no claim or query: a node's standing, a
        # watch, the end.
        self.changes = 0
        # By what the questions share that are under way: the query that comes next, if one does.
        self._shared: dict[Hashable, Query | None] = {}
        self._timers: Timers[Claim | Query] = Timers()
        # Until when the end waits for nodes' answers.
        self._ends = inf
        self.upkeep = Upkeep(settings, inbox, version, self, self.node_set)
        self.connections = self.upkeep.connections
        self.notices = Notices(settings, Registry(settings, inbox, version), self.upkeep, self.record, self._ask)
        self.health = Health(settings, self.upkeep, self.notices, self.record, self._moved, self._stands)
        self.upkeep.health = self.health
        self.notices.marks.permitted = self._permitted

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
        ticket = self.tickets.ticket(now + (self.record.epoch if self.health.ahead is None else self.health.ahead))
        if len(recipes) == 1:
            return Claim(recipes[0], timing, ticket, self.tickets, node_set, deadline)

        def claims(recipes: Sequence[Recipe], ticket: int) -> list[Claim]:
            return [Claim(it, timing, ticket, self.tickets, node_set, deadline) for it in recipes]

        if isinstance(recipes, Some):
            # The others get the ticket of the first claim, which may have changed by then.
            self.notices.wanted(recipes, now)
            joint = JointRequest(
                claims(recipes.first(ticket), ticket), lambda: claims(recipes.others(ticket), joint.claims[0].ticket)
            )
            return joint
        return JointRequest(claims(recipes, ticket))

    def listen(self, now: float) -> Watch:
        """Make a watch. What the nodes tell its token is for the caller to ask them."""
        # The ticket only makes the token unique: a watch has no place in a queue.
        watch = Watch(self.tickets.token(self.tickets.ticket(now + self.health.clock)))
        self.watches[watch.token] = watch
        return watch

    def begin(self, want: Want, now: float, told: bool = False) -> None:
        """Begin to acquire it.

        Args:
            want: What to acquire.
            now: The time.
            told: The nodes were told of a long ttl, as far as they can be. Otherwise that comes
                first (rule G14).
        """
        claims = want.claims
        ttl = claims[0].ttl
        if ttl > UNMARKED and not told and self.notices.marks.missing(now):
            clock = self.health.clock
            # The time of a try runs from here on (rule Q15).
            for claim in claims if not claims[0].patient else ():
                claim.deadline = min(claim.deadline, now + ttl / 3)

            def begin(now: float) -> None:
                # The nodes may have told their time meanwhile (rule F6).
                if seconds := self.health.clock - clock:
                    for claim in claims:
                        claim.takes(claim.ticket + int(seconds * 1e6))
                        claim.routed = claim.token
                self.begin(want, now, told=True)

            self.notices.marks.first(begin, now, claims[0].deadline)
            return
        if told and want.state is not WAITING:
            # Its caller has left meanwhile.
            return
        if now >= self.health.recheck:
            self.health.check_clocks(now)
        if not self.node_set.enough:
            self.upkeep.open_free(now)
        if self.node_set.dark < inf:
            self.upkeep.dial_soon(now)
        for claim in claims:
            self.live[claim.token] = claim
            if claim.ttl < self.upkeep.brief:
                self.upkeep.hasten(claim.ttl)
        wrong = self.notices.marks.refusal if ttl > UNMARKED else None
        if ttl < self.upkeep.brief:
            wrong = self.upkeep.too_brief(ttl)
        if wrong is None:
            want.begin(now)
        else:
            for claim in claims:
                claim.decline(wrong, now)
            self.upkeep.measure(now)
        self.record.happened(events.Attempt, want, now)
        for claim in claims:
            self.act(claim, now)
        if self.notices.eager:
            self.notices.along(now)

    def calm(self, timing: Timing, now: float) -> bool:
        """Return whether a request has to be cared for now, and nothing else."""
        return not (
            self.spoke
            or self.upkeep.broken
            or now >= self.health.recheck
            or (timing.ttl < self.upkeep.brief and self.upkeep.too_brief(timing.ttl) is not None)
            or self.notices.eager
            or (timing.ttl > UNMARKED and self.notices.marks.missing(now))
            or not self.node_set.enough
        )

    def adopt(self, claim: Claim, now: float) -> None:
        """Look after a claim that its caller has begun by itself, until it has ended."""
        if not claim.done and claim.token not in self.live:
            self.live[claim.token] = claim
            if claim.ttl < self.upkeep.brief:
                self.upkeep.hasten(claim.ttl)
        self.act(claim, now)
        self.upkeep.expect(now)

    def extend(self, want: Want, ttl: float, now: float, share: bool = False, hold: float | None = None) -> bool:
        """Make it last at least `ttl` seconds from now.

        There is news when a majority has confirmed, or cannot be had.

        Args:
            want: The acquisition.
            ttl: Seconds.
            now: The time.
            share: Turn a writer into a reader.
            hold: Move the end that `max_hold` sets to this many seconds from now.

        Returns:
            False if it is not held.
        """
        marks = self.notices.marks
        if ttl > UNMARKED and want.state is HELD and marks.missing(now):
            marks.first(lambda at: self._extend(want, ttl, at, share, hold), now)
            return True
        return self._extend(want, ttl, now, share, hold)

    def _extend(self, want: Want, ttl: float, now: float, share: bool, hold: float | None) -> bool:
        going = want.extend(ttl, now, share, hold)
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

    def stay(self, want: Want) -> None:
        """Have its keys stay on the nodes when it ends, however it ends (rule C20)."""
        want.stay()
        if self.upkeep.guardian is not None:
            for claim in want.claims:
                self.upkeep.guardian.stays(claim.token)

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
        if not self.node_set.enough:
            self.upkeep.open_free(now)
        if self.node_set.dark < inf:
            self.upkeep.dial_soon(now)
        if share in self._shared:
            waiting = self._shared[share] or Query(asks, self.node_set, deadline=inf, enough=enough)
            self._shared[share] = waiting
            return waiting
        if share is not None:
            self._shared[share] = None
        query = Query(asks, self.node_set, deadline=now + self.settings.node_timeout, enough=enough)
        self._ask(query, partial(self._answered, share), now)
        if self.notices.eager:
            self.notices.along(now)
        return query

    def _ask(self, query: Query, then: Then, now: float) -> None:
        """Send a query, and have something called when it is over."""
        self.queries[query] = then
        query.begin(now)
        self._conduct(query, now)

    def _answered(self, share: Hashable, query: Query, now: float) -> None:
        """Hand over a query, and ask what callers have wanted that was to be answered with it."""
        self._found.append(query)
        waiting = self._shared.pop(share, None)
        if waiting is not None:
            self._shared[share] = None
            waiting.put_off(now + self.settings.node_timeout)
            self._ask(waiting, partial(self._answered, share), now)

    def close(self, now: float) -> None:
        """End everything. The answers show that the nodes know: see `farewell`."""
        self._ends = min(self._ends, now + self.settings.node_timeout)
        self.notices.marks.flush(now)
        claims = list(self.live.values())
        before = [(want, want.state) for want in _wants(claims)]
        for claim in claims:
            claim.close(now)
            self.act(claim, now)
        for want, state in before:
            self.record.ended(want, state, now)
        self.notices.end()
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
        if self.node_set.quorum.met([i for i, it in enumerate(self.connections) if it.state is UP and not it.ledger]):
            self._ends = min(self._ends, now + GRACE)
        return self._ends

    @property
    def owing(self) -> bool:
        """Whether a node owes an answer whose connection works."""
        return any(connection.state is UP and connection.ledger for connection in self.connections)

    def stats(self, now: float, begun: Sequence[Want] = ()) -> Stats:
        """Return counts of what was done so far.

        Args:
            now: The time.
            begun: Acquisitions that callers have begun by themselves, and that are not known here.
        """
        wants = _wants(list(self.live.values()))
        return self.record.stats(dict.fromkeys([*wants, *begun]), now)

    # ------------------------------------------------ what the driver reports

    def takes(self, node: int, question: Command, now: float) -> bool:
        """Take in a usual answer, for drivers that may touch every claim: see `expected`."""
        claim = question.owner
        if not isinstance(claim, Claim):
            return False
        try:
            if claim.answered(node, question, claim.usual, now):
                self.act(claim, now)
        except Exception as error:
            self.upkeep.bug = error
            raise
        return True

    @property
    def still(self) -> bool:
        """Whether `ready` would have nothing to tell but when to wake, and whether to send."""
        return not (
            self.upkeep.broken
            or self._settled
            or self._found
            or self.upkeep.dials
            or self.upkeep.places
            or self.record.events
            or self.changes != self._shown
        )

    def tick(self, now: float) -> None:
        """Note that time has passed.

        Call it only when everything that could be read has been read: what lies unread is not late.
        """
        if not self.node_set.enough:
            self.upkeep.open_free(now)
        self._wake_timed(now)
        if self.notices.due <= now:
            self.notices.tick(now)
        if self.upkeep.pulse <= now:
            self.upkeep.look_after(now)

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

    def next_wake(self) -> float:
        """Return when to call `tick` at the latest."""
        return min(self._timers.due, self.upkeep.pulse, self.notices.due)

    def ready(self) -> Ready:
        """Take over what is to be done now.

        Call it in every turn, after everything else, and do all of it.

        A turn of a driver has these steps, in this order. Calls never overlap.

        1. Call `connected`, `placed`, `received` and `lost` of the `upkeep` for all that has
           happened, and pass on what callers want. `now` is monotonic, and runs on while the
           machine sleeps. Read it after the bytes were read: an answer that lay unread while this
           process was stopped must not count as prompt. If `broken` is set between two reads, call
           `cut`.
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
        upkeep = self.upkeep
        wake = min(self._timers.due, upkeep.pulse, self.notices.due)
        record = self.record
        changed = self.changes != self._shown
        spoke = self.spoke
        self.spoke = False
        hangups, dials, places = upkeep.take() if upkeep.broken or upkeep.dials or upkeep.places else ((), (), ())
        if not (changed or self._settled or self._found or record.events or hangups or dials or places):
            ready = self._lulls[spoke]
            if ready.wake != wake:
                ready = ready._replace(wake=wake)
                self._lulls[spoke] = ready
            return ready
        # Lists that are handed over are replaced, because the engine goes on to fill its own.
        queries: Sequence[Query] = ()
        settled: Sequence[Want] = ()
        told: Sequence[events.Event] = ()
        if self._found:
            queries = self._found
            self._found = []
        if self._settled:
            settled = self._settled
            self._settled = []
        if record.events:
            told = record.events
            record.events = []
        self._shown = self.changes
        return _made((hangups, dials, places, spoke, settled, queries, changed, told, wake, False))

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
                reply = attempt(connection, connection.forbids, None, question.data, now) or reply
            if type(reply) is list and question.data in self.upkeep.probes:
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
            self.upkeep.bug = error
            raise

    def told(self, node: int, message: bytes, now: float) -> None:
        """Take in what a node has said to this engine's inbox."""
        try:
            self._told_by(node, message, now)
        except Exception as error:
            self.upkeep.bug = error
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
            undo = self._undo(key, token, self.settings.horizon)
            self.upkeep.say((node,), Command(None, RELEASE, token, now, data=undo))

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
            self.upkeep.bug = error
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
            self.upkeep.say((node,), command)
        query.sends.clear()
        if not query.over:
            self._timers.arm(query)
            return
        self._timers.disarm(query)
        self.queries.pop(query)(query, now)

    def act(self, claim: Claim, now: float) -> None:
        """Do what a claim asks for."""
        recipe, company, upkeep = claim.recipe, claim.company, self.upkeep
        if claim.sends:
            connections = self.connections
            for nodes, command in claim.sends:
                if command.mode is RELEASE:
                    command.data = recipe.release(command.token, claim.fence > 0, command.ttl)
                else:
                    if upkeep.guardian is not None:
                        upkeep.entrust(upkeep.guardian, claim, command)
                    command.data = recipe.request(
                        command.token, command.ttl, command.mode, command.fence, command.clock
                    )
                if (
                    recipe.statement is not None
                    and claim.fence
                    and (command.mode is RELEASE) is not (claim.state is HELD)
                ):
                    # Before a release, on the same connections.
                    upkeep.say_along(recipe.statement(claim.token, claim.fence, command.ttl), nodes, now)
                if not recipe.basic:
                    upkeep.provide(command)
                # As `Upkeep.say` does, without a call on the way of every acquire.
                for node in nodes:
                    try:
                        connections[node].say(command)
                    except Exception as error:
                        upkeep.faulted(node, now, error)
            claim.sends.clear()
            upkeep.expect(now)
        # The claim has begun again, with another token.
        if claim.token is not claim.routed:
            self.live[claim.token] = self.live.pop(claim.routed)
            if upkeep.guardian is not None:
                upkeep.guardian.ends(claim.routed)
            claim.routed = claim.token
        if claim.notes:
            self.record.notes(claim, now)
        if claim.unfit or claim.absurd:
            self._warn_of(claim, now)
        if claim.news:
            claim.news = False
            self.record.news(claim, now)
            if recipe.statement is not None and claim.state is HELD and claim.since == now:
                upkeep.say_along(recipe.statement(claim.token, claim.fence, claim.until - now), self.node_set.up, now)
            if company is None:
                self._settled.append(claim)
            elif company.settled and company not in self._settled:
                self._settled.append(company)
        if claim.state is not WAITING and claim.state is not HELD and claim.done:
            if self.live.pop(claim.token, None) is not None and claim.ttl < upkeep.brief:
                upkeep.relax(claim.ttl)
            self._timers.disarm(claim)
            if upkeep.guardian is not None:
                upkeep.guardian.ends(claim.token)
        elif claim.wake < claim.armed:
            self._timers.arm(claim)
        if company is not None and company.stirred:
            self._act_on_others(company, now)

    def _act_on_others(self, joint: JointRequest, now: float) -> None:
        """Do what other claims of a joint request ask for because of what has happened to one."""
        stirred = joint.stirred
        joint.stirred = []
        for other in stirred:
            # It may be new.
            if other.routed not in self.live:
                self.live[other.routed] = other
                if other.ttl < self.upkeep.brief:
                    self.upkeep.hasten(other.ttl)
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
            self.health.check_clocks(now)

    def _refuse_briefs(self, now: float) -> None:
        """Refuse the waiting claims whose ttl has turned out to be too short for these nodes."""
        for claim in [it for it in self.live.values() if it.ttl < self.upkeep.brief]:
            if claim.state is WAITING and (wrong := self.upkeep.too_brief(claim.ttl)) is not None:
                claim.refuse(wrong, now)
                self.act(claim, now)
                self.upkeep.measure(now)

    def _moved(self, seconds: float, now: float) -> None:
        """Start the claims that wait over with other tickets: the clock of tickets was wrong."""
        self.tickets.forget()
        for claim in list(self.live.values()):
            if claim.moved(seconds, now):
                self.act(claim, now)

    def _permitted(self, now: float) -> None:
        """Renew the leases with a long ttl, because their grants count for all of it again."""
        for claim in list(self.live.values()):
            if claim.ttl > UNMARKED:
                claim.hurry(now)
                self.act(claim, now)

    def _stands(self, node: int, before: Standing, state: str, now: float, restarted: bool) -> None:
        """Tell claims and queries how a node stands now, and how it stood before."""
        self.changes += 1
        standing = self.node_set.standing[node]
        if standing is before:
            if state == "refusing":
                for claim in list(self.live.values()):
                    if claim.relented(node, now):
                        self.act(claim, now)
            return
        if standing is Standing.UP:
            self.notices.up(node, now if self.live or self.queries else now + self.settings.node_timeout)
            self._refuse_briefs(now)
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


def _wants(claims: Iterable[Claim]) -> list[Want]:
    """Return the acquisitions that these claims are of, each once."""
    wants = [it.company or it for it in claims]
    return list(dict.fromkeys(wants))
