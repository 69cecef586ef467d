"""The third driver. It obeys the same contract as those of threads and asyncio, and moves simulated
bytes and time.

Knows virtual time and connections. Must not know the protocol, or which faults there are.

A driver is a process that can be stopped and killed. While it is stopped, bytes pile up unread.
When it goes on, it reads everything before it looks at the time. Its users are tasks, which stop
and die with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from math import inf
from typing import Any, Protocol, TypeVar

from ..drivers.base import BaseDriver, told_lost
from ..engine.engine import Engine, Watch
from ..engine.ready import Ready, Want
from ..engine.recorder import Stats
from ..engine.settings import Settings
from ..engine.status import NodeStatus
from ..engine.waiting import Waiting, fallen
from ..errors import closed
from ..events import Event
from ..protocol import readwrite
from ..protocol.claim import Claim, State
from ..protocol.command import Recipe
from ..protocol.query import Answers, Query
from ..protocol.quorum import bound
from ..protocol.timing import Timing
from ..wire.address import Address
from ..wire.connection import ConnectionState
from .network import WALL, Node, SimulatedConnection
from .server import Server
from .world import Do, DriftingClock, Future, Task, World

T = TypeVar("T")
UNKNOWN = "nobody can tell where it is"


class LeaseOwner(Protocol):
    """The lease that a face gives to its user. The driver never keeps it."""

    _want: Want

    def _told_lost(self) -> Sequence[tuple[Callable[[Any], object], Any]] | None:
        """Mark the lease as lost, and return the callbacks of its users.

        The driver calls it with nothing half done.
        """


class Witness:
    """Observes what drivers do. This one ignores it."""

    def began(self, driver: Driver, claim: Claim) -> None:
        """A claim is about to begin."""

    def sends(self, driver: Driver, node: Node, data: bytes) -> None:
        """Bytes are about to leave."""

    def extended(self, driver: Driver, claim: Claim, until: float) -> None:
        """A majority has confirmed that the claim lasts until then, by the driver's clock."""

    def turned(self, driver: Driver) -> None:
        """The driver has done everything that was due."""


class Driver(BaseDriver):
    """A client in its process.

    `clock` is its own. `haste` is by how many seconds its tickets may be ahead of their time, or
    behind it, at random.
    """

    def __init__(
        self,
        world: World,
        nodes: Sequence[Node],
        settings: Settings,
        clock: DriftingClock,
        witness: Witness | None = None,
        haste: float = 0.0,
    ) -> None:
        self.world, self.nodes, self.settings, self.clock = world, nodes, settings, clock
        # A client may name some nodes of a shard, in an order of its own.
        self._connections = {node: connection for connection, node in enumerate(nodes)}
        self.witness, self.haste = witness or Witness(), haste
        self.engine = Engine(settings, b"%032x" % world.dice.getrandbits(128), readwrite.undo, "0")
        self.engine.record.epoch = WALL - clock()
        self.told: list[Event] = []
        # Gone: it does nothing any more, although its process lives.
        self.closed = self.gone = self.dead = False
        # Its process does not fork.
        self.foreign = False
        self.links: list[SimulatedConnection | None] = [None] * len(nodes)
        self._leases: dict[Want, weakref.ref[Any]] = {}
        self.waiting: Waiting[Future[None]] = Waiting()
        self.tasks: list[Task[Any]] = []
        # How often it was stopped.
        self.stops = 0
        self._stopped = 0.0
        self._unread: list[tuple[Do, tuple[Any, ...]]] = []
        self._delayed: list[tuple[Do, tuple[Any, ...]]] = []
        self._due = inf
        self.work()

    def __repr__(self) -> str:
        return f"client {self.engine.tickets.inbox[:4].decode()}"

    # ------------------------------------------------ the process

    def run(self, user: Coroutine[Any, Any, T]) -> Task[T]:
        """Start a task of this process."""
        task = self.world.spawn(user, self)
        self.tasks.append(task)
        return task

    @property
    def stopped(self) -> bool:
        """Whether it is stopped now."""
        return self._stopped > 0.0

    def stop(self, seconds: float) -> None:
        """Stop the process as SIGSTOP does, for some seconds."""
        self.world.note(self, f"is stopped for {seconds:.3f} s")
        self.stops += 1
        self._stopped = max(self._stopped, self.world.now + seconds)
        self.world.at(self._stopped, self.go_on)

    def go_on(self, now: bool = False) -> None:
        """Let it run again: it reads all that came, runs its tasks, then looks at the time."""
        if self.dead or (self.world.now < self._stopped and not now):
            return
        self._stopped = 0.0
        unread, self._unread, delayed, self._delayed = self._unread, [], self._delayed, []
        for do, arguments in unread:
            do(*arguments)
            # Read no more bytes of a connection that cannot be used.
            self._hang_up(self.engine.upkeep.cut())
        for do, arguments in delayed:
            do(*arguments)
        self.work()

    def kill(self) -> None:
        """Kill the process as SIGKILL does: the kernel closes its connections."""
        self.world.note(self, "is killed")
        self.dead = self.gone = True
        for link in self.links:
            if link is not None:
                link.hang_up()
        for task in self.tasks:
            task.drop()

    def wakes(self, do: Do, *arguments: object) -> None:
        """Do this as soon as the process runs."""
        if self.dead:
            return
        if self.stopped:
            self._delayed.append((do, arguments))
        else:
            do(*arguments)

    def _reads(self, do: Do, *arguments: object) -> None:
        if self.gone:
            return
        if self.stopped:
            self._unread.append((do, arguments))
        else:
            do(*arguments)
            self.work()

    # ------------------------------------------------ for faces, and for users who need none

    async def acquire(self, lease: LeaseOwner, recipes: Sequence[Recipe], timing: Timing) -> None:
        """Wait until the lease is held, for at most `timing.wait`. Raise the claim's error."""
        deadline = self.clock() + timing.wait if timing.wait else inf
        while True:
            self._check_open()
            claim = self.engine.want(recipes, timing, self._about_now(), deadline)
            lease._want = claim
            # (mypy cannot tell the type of a default that binds the loop variable of this attempt)
            self._leases[claim] = weakref.ref(lease, claim.abandon)
            news = self.news(claim)
            self.begin(claim)
            try:
                await news
            except BaseException:
                # Cancelled: leave nothing behind, and wait for nothing.
                self._end(claim)
                raise
            self._check_open()
            if claim.refusal is not None:
                raise claim.refusal
            if claim.state is State.HELD and self.clock() < claim.until:
                return
            # Held, and lost before anybody heard of it: once more.
            self._end(claim)

    def claim(self, recipe: Recipe, timing: Timing) -> Claim:
        """Make a claim with a ticket of now. A scene may begin it later."""
        return self.engine.claim(recipe, timing, self._about_now())

    def _about_now(self) -> float:
        return self.clock() + self.world.dice.uniform(-self.haste, self.haste)

    def begin(self, claim: Want) -> None:
        """Send the claim's requests."""
        for it in claim.claims:
            self.witness.began(self, it)
        self.engine.begin(claim, self.clock())
        self.work()

    async def extend(
        self, claim: Want, ttl: float, fence: int = 0, share: bool = False, hold: float | None = None
    ) -> None:
        """Make the lease last at least `ttl` more seconds, and raise the nodes' fences to `fence`.

        Returns when a majority has confirmed it, or has not in time. `share` makes it a reader's.
        `hold` moves the end that `max_hold` sets to this many seconds from now.
        """
        until = bound(self.clock(), ttl)
        if self.engine.extend(claim, ttl, self.clock(), fence, share, hold):
            news = self.news(claim)
            self.work()
            await news
            if claim.setback is None:
                for it in claim.claims:
                    self.witness.extended(self, it, until)
        else:
            self.work()

    async def release(self, claim: Want, confirm: bool = False) -> int:
        """Give the claim back. Return how many nodes have confirmed it.

        With `confirm`, wait until a majority has.
        """
        news = self.news(claim) if confirm else None
        self._end(claim, confirm)
        if news is not None and not claim.done:
            await news
        return claim.freed

    def let_go(self, claim: Want) -> None:
        """End the claim of an interrupted caller, and wait for nothing."""
        self._end(claim)

    async def ask(
        self, asks: Mapping[int, bytes], enough: Callable[[Answers], bool] | None = None, share: Hashable = None
    ) -> Query:
        """Ask nodes something that is no lock, and return when the query is over.

        It is over after `node_timeout` at the latest, or after twice as long if it is shared: see
        `Engine.consult`.
        """
        self._check_open()
        query = self.engine.consult(asks, self.clock(), enough, share)
        future: Future[None] = Future()
        self.waiting.for_query(query, future)
        self.work()
        await future
        return query

    def listen(self) -> Watch:
        """Return a new watch of this process."""
        self._check_open()
        return self.engine.listen(self.clock())

    async def sleep(self, seconds: float, watch: Watch | None = None) -> bool:
        """Let time pass, less if there is news for the watch. Raise Misuse after `close`."""
        until = self.clock() + seconds
        while (left := until - self.clock()) > 0 and not (watch is not None and watch.news):
            self._check_open()
            await self._changed(left)
        if watch is not None:
            watch.news = False
        return True

    def note(self, event: Event) -> None:
        """Record an event that happens now and that no node has reported."""
        self.engine.record.note_at(self.clock(), event)
        self.work()

    def steer(self, do: Callable[[Engine, float], object]) -> None:
        """Have the engine do something, and wait for nothing."""
        do(self.engine, self.clock())
        self.work()

    async def ready(self, wait: float) -> tuple[NodeStatus, ...]:
        """Connect to every node.

        Raise the error after `wait` seconds, or at once if waiting cannot help.
        """
        began = self.clock()
        while True:
            self._check_open()
            now = self.clock()
            if (status := self.engine.health.readiness(now - began, wait, now)) is not None:
                return status
            # That a node is down for another reason now is no change.
            await self._changed(min(began + wait - now, 0.05))

    async def meet(self, within: float) -> None:
        """Wait until it is known which servers these nodes are.

        Raise the error after `within` seconds.
        """
        began = self.clock()
        while True:
            self._check_open()
            now = self.clock()
            if self.engine.health.met(now - began, within, now):
                return
            await self._changed(min(max(began + within - now, 0.001), 0.05))

    def leases(self) -> list[Any]:
        """The leases that tasks of this process have, or wait for."""
        return [lease for it in self._leases.values() if (lease := it()) is not None]

    def stay(self) -> None:
        """Have the keys of all leases stay on the nodes when they end."""
        for claim in self._leases:
            claim.stay()

    def stats(self) -> Stats:
        """What was done so far, in this process."""
        return self.engine.stats(self.clock())

    def wall(self) -> float:
        """Seconds since 1970, on this process's wall clock."""
        return self.clock() + self.engine.record.epoch

    async def close(self) -> None:
        """Release everything and end. Waits for a majority's answers, at most `node_timeout`."""
        if self.closed:
            return
        self.closed = True
        self.engine.close(self.clock())
        self.work()
        while (left := self.engine.farewell(now := self.clock()) - now) > 0:
            await self._changed(left)
        self.gone = True
        for link in self.links:
            if link is not None:
                link.hang_up()

    def _check_open(self) -> None:
        if self.closed:
            raise closed()

    def _end(self, claim: Want, heard: bool = False) -> None:
        if not claim.done:
            for it in claim.claims:
                self.world.note(self, "gives up", it.token)
        self.engine.end(claim, self.clock(), heard)
        self.work()
        if claim.done:
            self._leases.pop(claim, None)
            self.waiting.drop(claim)

    def news(self, claim: Want) -> Future[None]:
        """The next news of a claim, to be awaited."""
        future: Future[None] = Future()
        self.waiting.for_claim(claim, future)
        return future

    async def _changed(self, within: float) -> None:
        future: Future[None] = Future()
        self.waiting.for_news(future)
        self.world.after(within, future.set, None)
        await future

    # ------------------------------------------------ what happens

    def connected(self, link: SimulatedConnection) -> None:
        """Bytes can flow."""
        self._reads(self._connected, link)

    def heard(self, link: SimulatedConnection, data: bytes) -> None:
        """A node sent this."""
        self._reads(self._heard, link, data)

    def lost(self, link: SimulatedConnection, cause: Exception) -> None:
        """A connection is gone."""
        self._reads(self._lost, link, cause)

    def _connected(self, link: SimulatedConnection) -> None:
        if self.links[connection := self._connections[link.node]] is link:
            if link.found is None:
                self.engine.upkeep.connected(connection, self.clock())
            else:
                server, asked = link.found
                self.engine.upkeep.connected(connection, self.clock(), self._at(connection, server), asked)

    def _at(self, node: int, server: Server) -> Address:
        return self.settings.addresses[node].but(host=server.run_id)

    def _asks_for_place(self, node: int, then: Do) -> None:
        """Ask where a node is: a question and an answer, each of which takes its time."""

        def is_asked(asked: float) -> None:
            self.world.after(self.world.delay(), self._reads, then, node, asked, self.nodes[node].where())

        self.world.after(self.world.delay(), is_asked, self.clock())

    def _found(self, node: int, asked: float, server: Server | None) -> None:
        if self.links[node] is not None or self.engine.connections[node].state is not ConnectionState.DIALLING:
            return
        if server is None:
            self.engine.upkeep.lost(node, self.clock(), ConnectionError(UNKNOWN))
        else:
            self.links[node] = SimulatedConnection(self.world, self, self.nodes[node], (server, asked))

    def _placed(self, node: int, asked: float, server: Server | None) -> None:
        answer = ConnectionError(UNKNOWN) if server is None else self._at(node, server)
        self.engine.upkeep.placed(node, self.clock(), answer, asked)

    def _heard(self, link: SimulatedConnection, data: bytes) -> None:
        if self.links[connection := self._connections[link.node]] is link:
            self.world.note(self, "hears from", link.node, data)
            self.engine.upkeep.received(connection, data, self.clock())

    def _lost(self, link: SimulatedConnection, cause: Exception) -> None:
        if self.links[connection := self._connections[link.node]] is link:
            self.links[connection] = None
            self.engine.upkeep.lost(connection, self.clock(), cause)

    def _timer(self, due: float) -> None:
        if due == self._due and not self.gone:
            self._due = inf
            if not self.stopped:
                self.work()

    # ------------------------------------------------ what the engine wants done

    def work(self) -> None:
        """Everything that came has been read: look at the time, then do what the engine asks for,
        and wake whose claims have news.
        """
        if self.gone or self.stopped:
            return
        engine = self.engine
        if engine.next_wake() <= self.clock():
            engine.tick(self.clock())
        while True:
            ready = engine.ready()
            self._carry_out(ready)
            self._tell(ready)
            if not engine.upkeep.broken:
                break
        self.witness.turned(self)
        if ready.wake < self._due:
            self._due = ready.wake
            self.world.at(self.clock.when(ready.wake) + 1e-6, self._timer, ready.wake)

    def _carry_out(self, ready: Ready) -> None:
        engine = self.engine
        self._hang_up(ready.hangups)
        for node in ready.dials:
            if self.settings.addresses[node].moves:
                self._asks_for_place(node, self._found)
            else:
                self.links[node] = SimulatedConnection(self.world, self, self.nodes[node])
        for node in ready.places:
            self._asks_for_place(node, self._placed)
        for connection, link in zip(engine.connections, self.links, strict=True):
            if connection.out and link is not None:
                try:
                    data = connection.take()
                except Exception as error:
                    engine.upkeep.faulted(connection.node, self.clock(), error)
                    continue
                self.witness.sends(self, link.node, data)
                link.send(data)

    def _hang_up(self, nodes: Sequence[int]) -> None:
        for node in nodes:
            link = self.links[node]
            self.links[node] = None
            if link is not None:
                link.hang_up()

    def _tell(self, ready: Ready) -> None:
        for want in ready.settled:
            for claim in want.claims:
                told = (claim.token, claim.state.name, claim.fence, claim.reason, claim.until, claim.recipe.label)
                self.world.note(self, "has news of", *told)
        woken = self.waiting.settle(ready)
        if self.closed:
            woken += self.waiting.take_news()
        for future in woken:
            future.set(None)
        for function, argument in told_lost(found() for found in fallen(self._leases, ready.settled)):
            function(argument)
        self.told += ready.events
