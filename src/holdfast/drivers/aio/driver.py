"""The driver for asyncio: one protocol object a node and event loop, one future a claim, one timer
a loop.

Knows event loops, transports and the clock. Must not know the protocol: it moves bytes and time
between an engine and the world.

What one task says leaves at once. If several speak in one turn of the loop, what they say leaves
together at its end, in one write a node.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import types
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Hashable, Iterable, Mapping, Sequence
from contextvars import Context
from functools import partial
from math import inf
from os import getpid
from typing import Any, Protocol, TypeVar

from ...clock import sources_of
from ...engine.engine import GRACE, Engine, Watch
from ...engine.ready import Want
from ...engine.recorder import Stats
from ...engine.settings import Settings
from ...engine.status import NodeStatus
from ...engine.waiting import Waiting, fallen
from ...errors import HoldfastError, Misuse, closed
from ...events import Event
from ...protocol import readwrite
from ...protocol.claim import State
from ...protocol.command import Recipe
from ...protocol.query import Answers, Query
from ...protocol.timing import Timing
from ...weakset import SafeWeakSet
from ..access import Access
from ..base import BaseDriver, told_lost
from ..callbacks import Call, Callbacks, Listeners
from ..forks import FORKS
from .callbacks import LoopCalls
from .sockets import Link, Sockets
from .timer import Timer

# Bytes: usual answers are shorter.
SHORT = 4096
# For how many turns of the loop more than one task is expected to speak, after several have.
CROWD = 2

# (On the way of every acquire, an attribute of an enum costs as much as a call.)
HELD = State.HELD

T = TypeVar("T")

_drivers: SafeWeakSet[Driver] = SafeWeakSet()


class LeaseOwner(Protocol):
    """What a face gives to its user.

    The driver never keeps it, or its death would never be noticed.
    """

    _want: Want

    def _told_lost(self) -> Sequence[Call] | None:
        """Mark it as lost, and return what its users want called. Called with nothing half done."""


class Driver(BaseDriver):
    """All there is of a client in one event loop.

    Made in that loop, and gone with it; after a bug in the engine, gone at once.
    """

    def __init__(
        self,
        settings: Settings,
        access: Sequence[Access],
        tell: Listeners,
        telling: bool = False,
        version: str = "0",
    ) -> None:
        # Of a fork that Python was not told of, nobody has heard yet.
        _inherited()
        self.settings = settings
        self._born, self._process = len(FORKS), getpid()
        self.loop = asyncio.get_running_loop()
        self.clock, self.wall, entropy = sources_of(self.loop)
        self.engine = Engine(settings, entropy(16).hex().encode(), readwrite.undo, version)
        # Of its tasks and timers, and so of its connections: a caller's own would live as long as
        # they do. (A simulation finds there whose they are.)
        begins: Callable[[Driver], Context] | None = getattr(self.loop, "holdfast_context", None)
        self._context = Context() if begins is None else begins(self)
        self.engine.record.telling = telling
        if settings.guardian:
            from ..guardian.keeper import GuardedEngine

            self.engine.upkeep.guardian = GuardedEngine(settings.max_ttl, access)
        self.engine.record.epoch = self.wall() - self.clock()
        self.closed = False
        # The bug.
        self.failure: BaseException | None = None
        # Running coroutines of `on_lost` and of the observer. (A loop keeps only weak references to
        # its tasks.)
        self.strangers: set[asyncio.Task[Any]] = set()
        calls = partial(LoopCalls, loop=self.loop, tasks=self.strangers, clock=self.clock)
        self.aside = Callbacks(tell, self.engine.record, calls)
        self._last: asyncio.TimerHandle | None = None
        # When the end no longer waits for anybody.
        self._closed_by = inf
        # Whether this driver has ended.
        self._over = False
        # Of all claims that somebody has.
        self._leases: dict[Want, weakref.ref[Any]] = {}
        self.waiting: Waiting[asyncio.Future[None]] = Waiting()
        self.sockets = Sockets(self, access)
        self._timer = Timer(self)
        # The id of the task that has spoken since a node answered last, if it is the only one.
        self._speaker = 0
        # Several tasks speak: for how many turns of the loop what they say waits for the end of it.
        self._crowd = 0
        # How often something was said in this turn that leaves at its end.
        self._unsent = 0
        # asyncio.run ends a loop's async generators before it closes it: that is when this driver
        # ends, if nobody closes it before.
        self._life: Any = self._live()
        _step(self._life.__anext__())
        _drivers.add(self)

    async def _live(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if not self._over:
                await self.close()
                await self._part()

    async def _part(self) -> None:
        """The loop ends: what the end of leases has set off has as much time as the nodes have."""
        await asyncio.sleep(0)
        if self.strangers:
            _, running = await asyncio.wait(self.strangers, timeout=self.settings.node_timeout)
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running, timeout=self.settings.node_timeout)

    @property
    def foreign(self) -> bool:
        """Is this a forked child, and the driver its parent's?"""
        return len(FORKS) != self._born or getpid() != self._process

    @property
    def gone(self) -> bool:
        """Is it of no use any more in this process, so that an heir has to be made?"""
        # (every call of a lock asks this)
        return self.failure is not None or len(FORKS) != self._born or getpid() != self._process

    # ------------------------------------------------ for the face

    async def acquire(self, lease: LeaseOwner, recipes: Sequence[Recipe], timing: Timing) -> None:
        """Wait until the lease is held, as long as the timing says. Raises what the claim says."""
        deadline = self.clock() + timing.wait if timing.wait else inf
        while True:
            self._check_open()
            now = self.clock()
            claim = self.engine.want(recipes, timing, now, deadline)
            waiter = self.loop.create_future()
            self.waiting.for_claim(claim, waiter)
            lease._want = claim
            self.do(self.engine.begin, claim, now)
            try:
                await waiter
            except BaseException:
                # Cancelled: leave nothing behind, and wait for nothing.
                self.let_go(claim)
                raise
            self._check_open()
            if claim.refusal is not None:
                raise claim.refusal
            if claim.state is HELD and self.clock() < claim.until:
                self._leases[claim] = weakref.ref(lease, claim.abandon)
                return
            # Held, and lost before anybody heard of it: once more.
            self.let_go(claim)

    async def extend(self, claim: Want, ttl: float, share: bool = False, hold: float | None = None) -> None:
        """Have the lease last at least `ttl` seconds from now.

        Returns when that was confirmed, or was not in time. `share`: as a reader's. `hold`: moves
        the end that `max_hold` sets to this many seconds from now.
        """
        if self.do(self.engine.extend, claim, ttl, self.clock(), share, hold):
            waiter = self.loop.create_future()
            self.waiting.for_claim(claim, waiter)
            await waiter

    async def release(self, claim: Want, confirm: bool) -> int:
        """Give it back.

        Returns when the bytes have left; with `confirm`, when a majority has confirmed: on how many
        nodes.
        """
        if not confirm:
            self.let_go(claim)
            if self._unsent and not self._over:
                # The loop calls in order: its bytes leave before this goes on.
                await _turn()
            return 0
        waiter = self.loop.create_future()
        # A caller that waits for an extension waits no longer.
        if extending := self.waiting.replace(claim, waiter):
            _wake(extending)
        self.do(self.engine.end, claim, self.clock(), True)
        # One that was lost, or that no node needs to hear of, makes no news.
        if claim.done:
            _wake(self.waiting.drop(claim))
        if not self._over:
            await waiter
        return claim.freed

    async def ask(
        self, asks: Mapping[int, bytes], enough: Callable[[Answers], bool] | None = None, share: Hashable = None
    ) -> Query:
        """Ask nodes something that is no lock; returns when it is over.

        That is after `node_timeout` at the latest, or after twice as long if it is shared: see
        `Engine.consult`.
        """
        self._check_open()
        query = self.do(self.engine.consult, asks, self.clock(), enough, share)
        if query is not None and not query.over:
            waiter = self.loop.create_future()
            self.waiting.for_query(query, waiter)
            await waiter
        self._check_open()
        assert query is not None
        return query

    def listen(self) -> Watch:
        """A new watch, of this loop."""
        self._check_open()
        return self.engine.listen(self.clock())

    async def sleep(self, seconds: float, watch: Watch | None = None) -> bool:
        """Let time pass, less if there is news for the watch. Raise Misuse after `close`."""
        until = self.clock() + seconds
        while (left := until - self.clock()) > 0 and not (watch is not None and watch.news):
            self._check_open()
            # A forked child: nobody here has news.
            if self._over:
                await asyncio.sleep(left)
            else:
                await self._news(left)
        if watch is not None:
            watch.news = False
        return True

    async def ready(self, wait: float) -> tuple[NodeStatus, ...]:
        """Connect to every node.

        Raises what is wrong after `wait` seconds, or at once if time will not mend it.
        """
        began = self.clock()
        while True:
            self._check_open()
            now = self.clock()
            if (status := self.engine.health.readiness(now - began, wait, now)) is not None:
                return status
            # Nobody may have used these nodes before.
            self.do(self.engine.health.status, now)
            await self._news(began + wait - now)

    async def meet(self, within: float) -> None:
        """Wait until it is known which servers these nodes are.

        Raises what is wrong after `within` seconds.
        """
        began = self.clock()
        while True:
            self._check_open()
            now = self.clock()
            if self.engine.health.met(now - began, within, now):
                return
            # Nobody may have used these nodes before.
            self.do(self.engine.health.status, now)
            await self._news(min(max(began + within - now, 0.001), 0.05))

    def note(self, event: Event) -> None:
        """Record an event that happens now and that no node has reported."""
        self.do(self._noted, event)

    def _noted(self, event: Event) -> None:
        now = self.clock()
        self.engine.record.epoch = self.wall() - now
        self.engine.record.note_at(now, event)

    def steer(self, do: Callable[[Engine, float], object]) -> None:
        """Have the engine do something, and wait for nothing."""
        self.do(do, self.engine, self.clock())

    def discarded(self, event: Event) -> None:
        """An owner let its lease die: observers and the log hear of it in the loop's next turn.

        A finalizer calls this, on any thread and perhaps in the middle of anything. So the loop
        does the work.
        """
        try:
            self.loop.call_soon_threadsafe(self.note, event)
        except RuntimeError:
            # The loop is closed.
            pass

    def leases(self) -> list[Any]:
        """The leases that callers in this loop have."""
        return [lease for it in list(self._leases.values()) if (lease := it()) is not None]

    def stay(self) -> None:
        """Have the keys of all leases stay on the nodes when they end."""
        for claim in self._leases:
            self.engine.stay(claim)

    def stats(self) -> Stats:
        """What was done so far, in this loop."""
        return self.engine.stats(self.clock())

    async def _news(self, wait: float | None = None) -> None:
        """Wait until something was heard of a node, or this is over."""
        if not self._over:
            watcher = self.loop.create_future()
            self.waiting.for_news(watcher)
            try:
                await asyncio.wait([watcher], timeout=wait)
            finally:
                self.waiting.cancel(watcher)

    async def close(self) -> None:
        """Release everything and end.

        Waits for a majority's answers, then for callbacks: at most `node_timeout` each.

        A caller that is cancelled stops waiting; everything is released all the same.
        """
        if self.gone:
            return
        if not self.closed:
            self.closed = True
            self._closed_by = self.clock() + self.settings.node_timeout
            self._last = self.apart(self.loop.call_later, self.settings.node_timeout, self._shut)
            self.do(self.engine.close, self.clock())
        while not self._over:
            await self._news()
        if ending := self.sockets.tasks:
            await asyncio.wait(ending)
        await self._told()

    async def _told(self) -> None:
        """Wait until callbacks have been called, at most `node_timeout`.

        A callback does not wait for itself.
        """
        itself = asyncio.current_task() in [it.busy for it in self.aside.events]
        until = -inf if itself else self.clock() + self.settings.node_timeout
        while any(not it.idle for it in self.aside.all) and (left := until - self.clock()) > 0:
            if running := [it.busy for it in self.aside.events if it.busy is not None]:
                await asyncio.wait(running, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)
        self.engine.record.dropped += sum([it.end() for it in self.aside.events])

    def _shut(self) -> None:
        """The end: closes everything, and nobody waits any longer."""
        if self._over:
            return
        self._over = True
        self._timer.cancel()
        if self._last is not None:
            self._last.cancel()
        self.sockets.end()
        if self.engine.upkeep.guardian is not None:
            self.engine.upkeep.guardian.close()
        _wake(self.waiting.everyone())
        # Nor has the loop to care for it.
        if not self._life.ag_running:
            _step(self._life.aclose())

    def forget_inherited(self) -> None:
        """In a forked child: the connections are the parent's.

        Nothing is said on them, and the nodes see it when the parent ends.
        """
        self._over = True
        self.sockets.forget()

    def die(self, error: BaseException) -> None:
        """End this driver after an error in it: its leases are lost, and nobody waits any longer.

        A new driver takes its place.
        """
        if self.failure is not None:
            return
        self.failure = error
        self._shut()
        leases, self._leases = self._leases, {}
        self.aside.losses.put(told_lost(found() for claim, found in leases.items() if claim.state is not State.OVER))
        if _raised_by_a_handler(error):
            self.aside.interrupted(error)
        elif isinstance(error, Exception):
            self.aside.failed(error)

    def _check_open(self) -> None:
        if (failure := self.failure) is not None:
            if isinstance(failure, Exception) and not _raised_by_a_handler(failure):
                raise HoldfastError(
                    "holdfast failed: its log says more, please report it. Leases are lost; try again"
                ) from failure
            raise HoldfastError(
                f"{type(failure).__name__} interrupted holdfast while it was at work in this event loop: "
                "its leases are lost; try again"
            ) from failure
        if self.closed:
            raise closed()

    def let_go(self, claim: Want) -> None:
        """Give it back, or stop waiting for it.

        Waits for nothing: its bytes leave at the end of this turn at the latest.
        """
        # A child of a fork that Python was not told of closes its parent's coroutines, but the lock
        # is the parent's.
        if getpid() != self._process:
            return
        self.do(self.engine.end, claim, self.clock())
        if claim.done:
            self._leases.pop(claim, None)
            if waiters := self.waiting.drop(claim):
                _wake(waiters)

    # ------------------------------------------------ what happens

    def received(self, link: Link, data: memoryview | bytes) -> None:
        """A node sent this."""
        if self.sockets.links[link.node] is not link or self._over:
            return
        engine = self.engine
        if len(data) > SHORT or self.closed:
            self.do(engine.upkeep.received, link.node, data, self.clock())
            return
        try:
            self._speaker = 0
            now = self.clock()
            rest = engine.upkeep.expected(link.node, bytes(data), now, engine.takes)
            if rest:
                engine.upkeep.received(link.node, rest, now)
            if rest or engine.spoke or not engine.still:
                self._work()
        except BaseException as error:
            if self._failed(error):
                raise

    def lost(self, link: Link, cause: Exception) -> None:
        """A connection is gone."""
        if self.sockets.links[link.node] is link:
            self.sockets.links[link.node] = None
            self.do(self.engine.upkeep.lost, link.node, self.clock(), cause)

    def failed(self, link: Link, cause: Exception) -> None:
        """A connection is of no use any more."""
        if self.sockets.links[link.node] is link:
            self.do(self.engine.upkeep.lost, link.node, self.clock(), cause)

    # ------------------------------------------------ what the engine wants done

    def do(self, what: Callable[..., T], *arguments: Any) -> T | None:
        """Have the engine do this, and then do what it asks for.

        None, too, when this driver is at its end.
        """
        if self._over or self.loop.is_closed():
            return None
        try:
            outcome = what(*arguments)
            if self._unsent and self.engine.still and not self.closed:
                # The end of this turn sees to it.
                self._unsent += 1
            else:
                self._work()
        except BaseException as error:
            if self._failed(error):
                raise
            return None
        return outcome

    def _failed(self, error: BaseException) -> bool:
        """End this driver: the engine may have been interrupted anywhere.

        Returns:
            Whether it is no bug, but a signal handler's exception, such as Ctrl-C, which goes on.
        """
        self.die(error)
        return not isinstance(error, Exception) or _raised_by_a_handler(error)

    def _work(self) -> None:
        """Do what the engine asks for: `Engine.ready` states the order.

        What one task says is sent at once, and what several say in a turn of the loop at its end.
        """
        engine = self.engine
        ready = engine.ready()
        if not ready.idle:
            if ready.hangups or ready.dials or ready.places:
                self.sockets.connect(ready)
            if ready.speaks:
                speaker = id(asyncio.current_task(self.loop))
                if not self._crowd and (not self._speaker or speaker == self._speaker):
                    self._speaker = speaker
                    self._flush()
                else:
                    if not self._unsent:
                        self.loop.call_soon(self._turned)
                    self._unsent += 1
            if ready.settled or ready.queries or ready.changed:
                # (As `_wake` does it, without another call on the way of every acquire.)
                for waiter in self.waiting.settle(ready):
                    if not waiter.done():
                        waiter.set_result(None)
                if ready.settled and self._leases and (lost := fallen(self._leases, ready.settled)):
                    self.aside.losses.put(told_lost(it() for it in lost))
            if ready.events:
                self.aside.tell(ready.events)
        if not self.closed and ready.wake < self._timer.due:
            self._timer.set(ready.wake)
        if engine.upkeep.broken:
            self._work()
        elif self.closed:
            self._end_soon()

    def _end_soon(self) -> None:
        """End now, or as soon as no node need be waited for any longer."""
        if self._over:
            return
        now = self.clock()
        # No transport tells when the kernel has taken its bytes: look again soon.
        ends = min(now + GRACE, self._closed_by) if self.sockets.sending else self.engine.farewell(now)
        if now >= ends:
            self._shut()
            return
        if self._last is not None:
            self._last.cancel()
        self._last = self.apart(self.loop.call_later, ends - now, self._end_soon)

    def _turned(self) -> None:
        """Send what was said in a turn of the loop that is over."""
        try:
            if self._over:
                return
            # (A caller waits for this, or for an answer, before it says more.)
            self._crowd = CROWD if self._unsent > 1 or not self._crowd else self._crowd - 1
            self._work()
            self._flush()
            self._speaker = 0
            if self.engine.upkeep.broken:
                self._work()
        except BaseException as error:
            # As in `timer._whole`, without another call in every turn that sends something.
            if self._failed(error):
                raise

    def _flush(self) -> None:
        """Send what connections have to say, in one write a node."""
        engine = self.engine
        self._unsent = 0
        for connection, link in zip(engine.connections, self.sockets.links, strict=True):
            if connection.out and link is not None and link.transport is not None:
                try:
                    if link.tunnel is None:
                        link.transport.write(connection.take())
                    else:
                        link.write(connection.take())
                except Exception as error:
                    engine.upkeep.faulted(connection.node, self.clock(), error)

    def apart(self, begin: Callable[..., T], *arguments: Any) -> T:
        """Have the loop begin or plan something in a context of this driver's own."""
        return self._context.copy().run(begin, *arguments)


def _inherited() -> None:
    for driver in _drivers:
        if driver.foreign:
            driver.forget_inherited()


def _released_at_exit() -> None:
    """Release what is held in loops that nobody has ended, as Daphne leaves its loop."""
    for driver in _drivers:
        if not (driver.closed or driver.gone or driver.loop.is_running() or driver.loop.is_closed()):
            driver.closed = True
            driver.do(driver.engine.close, driver.clock())
            # No turn of the loop does it any more.
            driver.do(driver._flush)


os.register_at_fork(after_in_child=_inherited)
atexit.register(_released_at_exit)


def no_loop() -> Misuse:
    """The error for a call where no event loop of asyncio runs."""
    # Older versions of trio do not tell.
    if getattr(sys.modules.get("trio.lowlevel"), "in_trio_run", bool)():
        return Misuse(
            "holdfast.aio runs on asyncio and uvloop, and trio is running here: "
            "use the client for threads, holdfast.Holdfast, in trio.to_thread.run_sync(), "
            "or run this program on asyncio"
        )
    return Misuse(
        "no running event loop: call this in a coroutine that asyncio runs, such as with asyncio.run(), "
        "or use holdfast.Holdfast, the client for threads"
    )


def _raised_by_a_handler(error: BaseException) -> bool:
    """Did a function raise this that Python called for a signal, in the middle of ours?

    Python gives such a function the frame that it has interrupted, which no other call does.
    """
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        interrupted, at = at.tb_frame, at.tb_next
        for value in at.tb_frame.f_locals.values():
            if value is interrupted or (isinstance(value, tuple) and any(it is interrupted for it in value)):
                return True
    return False


def _wake(waiters: Iterable[asyncio.Future[None]]) -> None:
    """Have the tasks go on that wait for these futures, unless they were cancelled meanwhile."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


@types.coroutine
def _turn() -> Generator[None, None, None]:
    """Let the loop turn once."""
    yield


def _step(generator: Coroutine[Any, Any, None]) -> None:
    """One step of an async generator that does not wait there."""
    try:
        generator.send(None)
    except StopIteration:
        pass
