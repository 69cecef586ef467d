"""The third driver: it obeys the same contract as those of threads and asyncio, and moves bytes and time that are not real.

Knows virtual time and connections. Must not know the protocol, or which faults there are.

A driver is a process: it can be stopped (bytes pile up unread; when it goes on, everything is read before time is looked at)
and killed. Its users are tasks, which stop and die with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from math import inf
from typing import Any, Protocol, TypeVar

from ..core.claim import HELD, LOST, Claim
from ..core.command import Recipe
from ..core.round import Answers, Round
from ..engine.crew import Crew, NodeStatus, Want, Watch
from ..engine.record import Stats
from ..engine.settings import Settings
from ..errors import CLOSED, Closed
from ..events import Event
from ..recipes import readwrite
from .network import WALL, Link, Node
from .world import Clock, Do, Future, Task, World

T = TypeVar("T")


class Lease(Protocol):
    """What a face gives to its user. The driver never keeps it."""

    claim: Any  # a Claim; or, of several names, a Goal

    def _fell(self) -> Sequence[tuple[Callable[[Any], object], Any]] | None:
        """Mark it as lost, and return what its users want called. Called with nothing half done."""


class Witness:
    """Who sees what drivers do. This one looks away."""

    def began(self, driver: Driver, claim: Claim) -> None:
        """A claim is about to begin."""

    def sends(self, driver: Driver, node: Node, data: bytes) -> None:
        """Bytes are about to leave."""

    def turned(self, driver: Driver) -> None:
        """Everything that was to be done is done."""


class Driver:
    """A client in its process. `clock`: its own; `haste`: how much its tickets may be ahead of their time, or behind it, at random."""

    def __init__(
        self, world: World, nodes: Sequence[Node], settings: Settings, clock: Clock, witness: Witness | None = None, haste: float = 0.0
    ) -> None:
        self.world, self.nodes, self.settings, self.clock = world, nodes, settings, clock
        # A client may name some nodes of a set, in an order of its own.
        self._lanes = {node: lane for lane, node in enumerate(nodes)}
        self.witness, self.haste = witness or Witness(), haste
        self.crew = Crew(settings, b"%032x" % world.dice.getrandbits(128), readwrite.undo, "0")
        self.crew.record.epoch = WALL - clock()
        self.told: list[Event] = []
        self.closed = self.gone = self.dead = False  # gone: it does nothing any more, but its process lives
        self.foreign = False  # (its process does not fork)
        self.links: list[Link | None] = [None] * len(nodes)
        self._leases: dict[Want, weakref.ref[Any]] = {}
        self._news: dict[Want, list[Future[None]]] = {}  # who waits for news of a claim
        self._asking: dict[Round, list[Future[None]]] = {}  # who waits for a round
        self._watchers: list[Future[None]] = []  # who waits for news of any node
        self.tasks: list[Task[Any]] = []
        self.stops = 0  # how often it was stopped
        self._stopped = 0.0
        self._unread: list[tuple[Do, tuple[Any, ...]]] = []
        self._delayed: list[tuple[Do, tuple[Any, ...]]] = []
        self._due = inf
        self._seen = 0
        self.work()

    def __repr__(self) -> str:
        return f"client {self.crew.mint.inbox[:4].decode()}"

    # ------------------------------------------------ the process

    def run(self, user: Coroutine[Any, Any, T]) -> Task[T]:
        """A task of this process."""
        task = self.world.spawn(user, self)
        self.tasks.append(task)
        return task

    @property
    def stopped(self) -> bool:
        """Is it stopped now?"""
        return self._stopped > 0.0

    def stop(self, seconds: float) -> None:
        """SIGSTOP, and some time later SIGCONT."""
        self.world.note(self, f"is stopped for {seconds:.3f} s")
        self.stops += 1
        self._stopped = max(self._stopped, self.world.now + seconds)
        self.world.at(self._stopped, self.go_on)

    def go_on(self, now: bool = False) -> None:
        """It runs again: it reads all that came, then its tasks run, then it looks at the time."""
        if self.dead or (self.world.now < self._stopped and not now):
            return
        self._stopped = 0.0
        unread, self._unread, delayed, self._delayed = self._unread, [], self._delayed, []
        for do, arguments in unread:
            do(*arguments)
            self._hang_up()  # not a byte more of a connection that is no good
        for do, arguments in delayed:
            do(*arguments)
        self.work()

    def kill(self) -> None:
        """SIGKILL: the kernel closes its connections, and that is all."""
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

    async def acquire(
        self,
        lease: Lease,
        recipes: Sequence[Recipe],
        *,
        ttl: float,
        wait: float | None = None,
        renew: bool = True,
        max_hold: float = inf,
        heed: int = 0,
    ) -> None:
        """Wait until the lease is held. `wait`: seconds; None for ever; 0 tries once. Raises what the claim says."""
        deadline = inf if not wait else self.clock() + wait
        terms: dict[str, Any] = {"deadline": deadline, "renew": renew, "max_hold": max_hold, "heed": heed}
        while True:
            self._check_open()
            claim = self.crew.want(recipes, ttl, self._about_now(), patient=wait != 0, **terms)
            lease.claim = claim
            # (mypy cannot tell the type of a default that binds the loop variable of this attempt)
            self._leases[claim] = weakref.ref(lease, lambda _, claim=claim: claim.abandon())  # type: ignore[misc]
            news = self.news(claim)
            self.begin(claim)
            try:
                await news
            except BaseException:  # cancelled: nothing is left behind, and nothing is waited for
                self._end(claim)
                raise
            self._check_open()
            if claim.refusal is not None:
                raise claim.refusal
            if claim.state is HELD and self.clock() < claim.until:
                return
            self._end(claim)  # held, and lost before anybody heard of it: once more

    def claim(self, recipe: Recipe, ttl: float, **options: Any) -> Claim:
        """A claim with a ticket of now. (A scene may take its ticket early, and begin late.)"""
        return self.crew.claim(recipe, ttl, self._about_now(), **options)

    def _about_now(self) -> float:
        return self.clock() + self.world.dice.uniform(-self.haste, self.haste)

    def begin(self, claim: Want) -> None:
        """Ask for it."""
        for it in claim.claims:
            self.witness.began(self, it)
        self.crew.begin(claim, self.clock())
        self.work()

    async def extend(self, claim: Want, ttl: float, fence: int = 0, share: bool = False) -> None:
        """Have the lease last at least `ttl` seconds from now, and the nodes' fences raised to this one; returns when that was confirmed,
        or was not in time. `share`: as a reader's."""
        if self.crew.extend(claim, ttl, self.clock(), fence, share):
            news = self.news(claim)
            self.work()
            await news
        else:
            self.work()

    async def release(self, claim: Want, confirm: bool = False) -> int:
        """Give it back; with `confirm`, returns when a majority has confirmed: on how many nodes."""
        news = self.news(claim) if confirm else None
        self._end(claim, confirm)
        if news is not None and not claim.done:
            await news
        return claim.freed

    def let_go(self, claim: Want) -> None:
        """End it, and wait for nothing: for whoever is interrupted."""
        self._end(claim)

    async def ask(
        self, asks: Mapping[int, bytes], enough: Callable[[Answers], bool] | None = None, share: Hashable = None
    ) -> Round:
        """Ask nodes something that is no lock; returns when it is over.

        That is after `node_timeout` at the latest, or after twice as long if it is shared: see `Crew.consult`.
        """
        self._check_open()
        round_ = self.crew.consult(asks, self.clock(), enough, share)
        future: Future[None] = Future()
        self._asking.setdefault(round_, []).append(future)
        self.work()
        await future
        return round_

    def listen(self) -> Watch:
        """A new watch, of this process."""
        self._check_open()
        return self.crew.listen(self.clock())

    async def sleep(self, seconds: float, watch: Watch | None = None) -> bool:
        """Let time pass, unless the client is closed; less if there is, or was, news for the watch."""
        until = self.clock() + seconds
        while (left := until - self.clock()) > 0 and not (watch is not None and watch.news):
            self._check_open()
            await self._changed(left)
        if watch is not None:
            watch.news = False
        return True

    def note(self, event: Event) -> None:
        """Something that no node has told, and that happens now: observers hear of it in its turn."""
        self.crew.record.note_at(self.clock(), event)
        self.work()

    def keeps(self, what: str) -> None:
        """Have it known that something is kept on the nodes that should outlive a restart. Said once."""
        if not self.crew.keeping:
            self.steer(lambda crew, now: crew.keeps(what, now))

    def steer(self, do: Callable[[Crew, float], object]) -> None:
        """Have the engine do something, and wait for nothing."""
        do(self.crew, self.clock())
        self.work()

    async def ready(self, wait: float) -> tuple[NodeStatus, ...]:
        """Connect to every node. Raises what is wrong after `wait` seconds, or at once if time will not mend it."""
        began = self.clock()
        while True:
            self._check_open()
            now = self.clock()
            status, wrong = self.status(), self.crew.verdict(now - began, now)
            if not any(it.state == "connecting" for it in status) and wrong is None:
                return status
            if wrong is not None and (isinstance(wrong, ValueError) or now >= began + wait):
                raise wrong
            if now >= began + wait:
                return status
            await self._changed(min(began + wait - now, 0.05))  # (that a node is down for another reason now is no change)

    def servers(self) -> frozenset[str]:
        """The runs of the servers that this client is connected to, by run_id."""
        return self.crew.servers()

    async def meet(self, within: float) -> None:
        """Wait until it is known which servers these nodes are. Raises what is wrong after `within` seconds."""
        began = self.clock()
        while True:
            self._check_open()
            now = self.clock()
            if self.crew.acquainted(min(within, self.settings.node_timeout) + began - now):
                return
            if now >= began + within and (wrong := self.crew.verdict(now - began, now)) is not None:
                raise wrong
            await self._changed(min(max(began + within - now, 0.001), 0.05))

    def stats(self) -> Stats:
        """What was done so far, in this process."""
        return self.crew.stats()

    def wall(self) -> float:
        """Seconds since 1970, on this process's wall clock."""
        return self.clock() + self.crew.record.epoch

    def status(self) -> tuple[NodeStatus, ...]:
        """How the nodes are, as far as is known."""
        return self.crew.status(self.clock())

    async def close(self) -> None:
        """Release everything and end. Waits for the nodes' answers, at most `node_timeout`."""
        if self.closed:
            return
        self.closed, end = True, self.clock() + self.settings.node_timeout
        self.crew.close(self.clock())
        self.work()
        while self.crew.owing and (left := end - self.clock()) > 0:
            await self._changed(left)
        self.gone = True
        for link in self.links:
            if link is not None:
                link.hang_up()

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(CLOSED)

    def _end(self, claim: Want, heard: bool = False) -> None:
        if not claim.done:
            for it in claim.claims:
                self.world.note(self, "gives up", it.token)
        self.crew.end(claim, self.clock(), heard)
        self.work()
        if claim.done:
            self._leases.pop(claim, None)
            self._news.pop(claim, None)

    def news(self, claim: Want) -> Future[None]:
        """The next news of a claim, to be awaited."""
        future: Future[None] = Future()
        self._news.setdefault(claim, []).append(future)
        return future

    async def _changed(self, within: float) -> None:
        future: Future[None] = Future()
        self._watchers.append(future)
        self.world.after(within, future.set, None)
        await future

    # ------------------------------------------------ what happens

    def connected(self, link: Link) -> None:
        """Bytes can flow."""
        self._reads(self._connected, link)

    def heard(self, link: Link, data: bytes) -> None:
        """A node sent this."""
        self._reads(self._heard, link, data)

    def lost(self, link: Link, cause: Exception) -> None:
        """A connection is gone."""
        self._reads(self._lost, link, cause)

    def _connected(self, link: Link) -> None:
        if self.links[lane := self._lanes[link.node]] is link:
            self.crew.connected(lane, self.clock())

    def _heard(self, link: Link, data: bytes) -> None:
        if self.links[lane := self._lanes[link.node]] is link:
            self.world.note(self, "hears from", link.node, data)
            self.crew.received(lane, data, self.clock())

    def _lost(self, link: Link, cause: Exception) -> None:
        if self.links[lane := self._lanes[link.node]] is link:
            self.links[lane] = None
            self.crew.lost(lane, self.clock(), cause)

    def _timer(self, due: float) -> None:
        if due == self._due and not self.gone:
            self._due = inf
            if not self.stopped:
                self.work()

    # ------------------------------------------------ what the crew wants done

    def work(self) -> None:
        """Everything that came has been read: look at the time, then do what the crew asks for, and wake whose claims have news."""
        if self.gone or self.stopped:
            return
        crew = self.crew
        if crew.next_wake() <= self.clock():
            crew.tick(self.clock())
        self._hang_up()
        dials, crew.dials = crew.dials, []
        for node in dials:
            self.links[node] = Link(self.world, self, self.nodes[node])
        for lane, link in zip(crew.lanes, self.links, strict=True):
            if lane.out and link is not None:
                try:
                    data = lane.take()
                except Exception as error:
                    crew.faulted(lane.node, self.clock(), error)
                    continue
                self.witness.sends(self, link.node, data)
                link.send(data)
        if crew.settled or crew.found or crew.record.events or crew.changes != self._seen or (self.closed and self._watchers):
            self._settle()
        self.witness.turned(self)
        if (wake := crew.next_wake()) < self._due:
            self._due = wake
            self.world.at(self.clock.when(wake) + 1e-6, self._timer, wake)

    def _hang_up(self) -> None:
        hangups, self.crew.hangups = self.crew.hangups, []
        for node in hangups:
            link, self.links[node] = self.links[node], None
            if link is not None:
                link.hang_up()

    def _settle(self) -> None:
        crew = self.crew
        settled, crew.settled = crew.settled, []
        for want in settled:
            for claim in want.claims:
                told = (claim.token, claim.state.name, claim.fence, claim.reason, claim.until, claim.recipe.label)
                self.world.note(self, "has news of", *told)
            self._tell(self._news.pop(want, []))
            if want.done and (found := self._leases.pop(want, None)) is not None and want.state is LOST:
                lease = found()
                if lease is not None:
                    for function, argument in lease._fell() or ():
                        function(argument)
        for round_ in crew.found:
            self._tell(self._asking.pop(round_, []))
        crew.found.clear()
        if crew.changes != self._seen or self.closed:
            self._seen = crew.changes
            self._tell(self._watchers)
        self.told += crew.record.events
        crew.record.events.clear()

    @staticmethod
    def _tell(futures: list[Future[None]]) -> None:
        for future in futures:
            future.set(None)
        futures.clear()
