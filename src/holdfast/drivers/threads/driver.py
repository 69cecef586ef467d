"""What the sync face calls: the driver finds the I/O thread of this process, asks it, and waits.

Knows I/O threads, forks and the end of the process. Must not know sockets or the protocol.
"""

from __future__ import annotations

import atexit
import os
from _thread import LockType
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any, TypeVar

from ... import checks
from ...clock import SYSTEM, Sources
from ...engine.engine import Engine, Watch
from ...engine.health import Health
from ...engine.recorder import Stats
from ...engine.settings import Settings
from ...engine.status import NodeStatus
from ...errors import Cancelled, HoldfastError, closed
from ...events import Event
from ...log import logger
from ...protocol.claim import State
from ...protocol.command import Recipe
from ...protocol.query import Answers, Query
from ...protocol.timing import Timing
from ...weakset import SafeWeakSet
from ..access import Access
from ..base import BaseDriver
from ..callbacks import Listeners
from ..cancel import Cancel
from ..greenlets import allocate_lock, get_ident, shut_gate
from .call import GIVEN, LEAVING, WANTED, LeaseOwner, PendingCall
from .io_thread import HEED, IOThread, inherited

T = TypeVar("T")
_drivers: SafeWeakSet[Driver] = SafeWeakSet()


def _unsaid(pending: PendingCall) -> None:
    """Log that a release has not left this process, because the I/O thread is blocked."""
    names = ", ".join(dict.fromkeys(it.label for it in pending.recipes))
    logger("lease").warning(
        "the release of %r has not been sent for %.1f s: holdfast's background thread does not run. "
        "The lock is released when it goes on, and ends with its ttl at the latest",
        names,
        pending.io_thread.patience,
        extra={"holdfast": {"event": "unsent", "lock": names}},
    )


class Driver(BaseDriver):
    """What the sync face speaks to.

    Owns the current I/O thread, and finds its heir after a fork or a failure.
    """

    def __init__(
        self,
        settings: Settings,
        access: Sequence[Access],
        tell: Listeners,
        telling: bool = False,
        version: str = "0",
        sources: Sources = SYSTEM,
    ) -> None:
        self.settings, self.clock, self.wall = settings, sources.clock, sources.wall
        self.closed = False
        self._new = partial(IOThread, settings, access, tell, telling, version, sources)
        self._io_thread = self._new()
        # What each thread waits for, by its number.
        self._wanted: dict[int, PendingCall] = {}
        _drivers.add(self)

    @property
    def io_thread(self) -> IOThread:
        """The I/O thread of this process.

        (Two threads that find it gone agree on one heir: setdefault is one C call.)
        """
        while ((io_thread := self._io_thread).gone or io_thread.outdated) and not self.closed:
            if io_thread.foreign:
                inherited()
            self._io_thread = vars(io_thread).setdefault("heir", self._new())
        return io_thread

    @property
    def engine(self) -> Engine:  # type: ignore[override]  # (each I/O thread has its own)
        """The engine of the I/O thread of this process."""
        return self.io_thread.engine

    def _check_open(self) -> None:
        if self.closed:
            raise closed()
        if not self.settings.addresses:
            raise self.settings.nodeless

    def acquire(
        self,
        lease: LeaseOwner,
        recipes: Sequence[Recipe],
        timing: Timing,
        cancel: Cancel | None = None,
        owner: object = None,
    ) -> None:
        """Wait until the lease is held, as long as the timing says. Raises what the claim says.

        Args:
            lease: The lease.
            recipes: The names to acquire.
            timing: For how long to wait, and to hold.
            cancel: Ends the wait when it is set.
            owner: What holds the lease. When it dies, the lease is not renewed any more (default:
                the lease itself).
        """
        checks.cancel(cancel)
        began, thread, wait = self.clock(), get_ident(), timing.wait
        interrupted = self._wanted.get(thread)
        # A signal handler runs this within another call, which cannot return before this one does:
        # that one gives way, and asks once more when it goes on.
        if interrupted is not None and interrupted.phase is WANTED and interrupted.handed.acquire(False):
            interrupted.phase = LEAVING
            interrupted.io_thread.direct.give_way(interrupted)
            interrupted.io_thread.ask(interrupted)
        try:
            while True:
                self._check_open()
                io_thread, gate = self.io_thread, shut_gate()
                pending = PendingCall(owner or lease, io_thread.asked.append)
                pending.start(io_thread, recipes, timing, began + wait if wait else inf, gate, allocate_lock())
                lease._pending = self._wanted[thread] = pending
                try:
                    if self._granted(pending, io_thread, gate, began, cancel):
                        return
                    # It gave way to a call within this one, or was held, and lost before its caller
                    # heard of it or came for it: once more.
                    pending.phase = LEAVING
                    io_thread.ask(pending)
                except BaseException:
                    pending.phase = LEAVING
                    io_thread.ask(pending)
                    raise
        finally:
            if interrupted is None:
                self._wanted.pop(thread, None)
            else:
                self._wanted[thread] = interrupted

    def _granted(
        self, pending: PendingCall, io_thread: IOThread, gate: LockType, began: float, cancel: Cancel | None
    ) -> bool:
        """Have the I/O thread begin, and wait. Return whether the caller has the lease then.

        Raises what is wrong.
        """
        wait = pending.timing.wait
        settled = io_thread.direct.acquire(pending, len(self._wanted))
        if settled is None:
            io_thread.ask(pending)
        # `close` says nothing to an idle I/O thread, which this caller may just have started. (A
        # client that was opened again has another I/O thread.)
        if self.closed or (io_thread is not self._io_thread and not io_thread.gone):
            raise closed()
        # The claim itself ends the wait in time; a single try takes a third of its ttl at most.
        patience = inf if wait is None else (wait or pending.timing.ttl) + io_thread.patience
        alive = bool(settled) or io_thread.wait(gate, cancel=cancel, patience=patience)
        self._check_open()
        if pending.error is not None:
            raise pending.error
        if not alive and cancel is not None and cancel.is_set() and not io_thread.gone:
            raise Cancelled(", ".join(dict.fromkeys(it.label for it in pending.recipes)), self.clock() - began)
        if alive and pending.phase is LEAVING:
            return False
        claim = pending.claim
        if not alive or claim is None:
            raise io_thread.silence("while a lock was waited for") from io_thread.failure
        if claim.refusal is not None:
            raise claim.refusal
        # From here on a signal handler knows that its own thread has the lock.
        pending.phase = GIVEN
        return claim.state is State.HELD and self.clock() < claim.until and pending.handed.acquire(False)

    def extend(self, pending: PendingCall, ttl: float, share: bool = False, hold: float | None = None) -> None:
        """Have the lease last at least `ttl` seconds from now.

        Returns when that was confirmed, or was not in time. `share`: as a reader's. `hold`: moves
        the end that `max_hold` sets to this many seconds from now.
        """
        io_thread, claim, gate = pending.io_thread, pending.claim, shut_gate()
        assert claim is not None

        def extend(now: float) -> None:
            if io_thread.engine.extend(claim, ttl, now, share, hold):
                io_thread.waiting.for_claim(claim, gate)
            else:
                gate.release()

        io_thread.ask(extend)
        if not io_thread.wait(gate, patience=io_thread.patience) and not io_thread.gone:
            raise io_thread.silence("while a lease was extended")

    def release(self, pending: PendingCall, confirm: bool) -> int:
        """Give it back. Several threads may do so at the same moment.

        Returns when the bytes have left, so that a holder that computes on does not keep them from
        leaving. If the I/O thread is blocked, returns after `io_thread.patience` seconds and logs a
        warning.

        Args:
            confirm: Return when a majority has confirmed, or cannot any longer.

        Returns:
            How many nodes have confirmed so far.
        """
        io_thread, gate = pending.io_thread, shut_gate()
        try:
            # The phase first: once the I/O thread may have heard of it, nobody may join this lease
            # any more.
            pending.phase = LEAVING
            if (
                not confirm
                and not io_thread.direct.crowded(len(self._wanted))
                and io_thread.direct.release(pending, gate)
            ):
                return 0
            pending.leavers.append((gate, confirm))
            io_thread.ask(pending)
            if (
                get_ident() != io_thread.ident
                and not io_thread.wait(gate, patience=io_thread.patience)
                and not io_thread.gone
            ):
                _unsaid(pending)
        except BaseException:
            # Interrupted: it is given back all the same.
            pending.phase = LEAVING
            io_thread.ask(pending)
            raise
        return pending.claim.freed if pending.claim is not None else 0

    def ask(
        self, asks: Mapping[int, bytes], enough: Callable[[Answers], bool] | None = None, share: Hashable = None
    ) -> Query:
        """Ask nodes something that is no lock; returns when it is over.

        That is after `node_timeout` at the latest, or after twice as long if it is shared: see
        `Engine.consult`.
        """
        query: Query = self._made(lambda it: partial(it.consult, asks, enough, share), "while nodes were asked")
        return query

    def listen(self) -> Watch:
        """A new watch, of this process."""
        return self._made(lambda it: it.listen, "just now")

    def _made(self, way: Callable[[IOThread], Callable[[list[T], LockType, float], None]], doing: str) -> T:
        """Return what the I/O thread puts into a list, after which it opens a gate."""
        self._check_open()
        io_thread, made, gate = self.io_thread, list[T](), shut_gate()
        io_thread.ask(partial(way(io_thread), made, gate))
        alive = io_thread.wait(gate, patience=io_thread.patience)
        self._check_open()
        if not alive or not made:
            raise io_thread.silence(doing) from io_thread.failure
        return made[0]

    def sleep(self, seconds: float, cancel: Cancel | None = None, watch: Watch | None = None) -> bool:
        """Let time pass, unless the client is closed; less if there is, or was, news for the watch.

        False: `cancel` was set meanwhile.
        """
        gate, until = shut_gate(), self.clock() + seconds
        while (left := until - self.clock()) > 0 and not (watch is not None and watch.news):
            self._check_open()
            if cancel is not None and cancel.is_set():
                return False
            if watch is None:
                gate.acquire(True, min(left, HEED))
            else:
                self._attend(watch, until, cancel)
        if watch is not None:
            watch.news = False
        return True

    def _attend(self, watch: Watch, until: float, cancel: Cancel | None) -> None:
        """Wait until there may be news for the watch, or for the client's end."""
        io_thread = self.io_thread
        if watch.token not in io_thread.engine.watches:
            raise HoldfastError(
                "this process was forked, the client was closed, or holdfast failed, while something was watched: "
                "begin again"
            ) from io_thread.failure
        with _watching(io_thread, watch) as gate:
            io_thread.wait(gate, until, cancel)

    def ready(self, wait: float) -> tuple[NodeStatus, ...]:
        """Connect to every node.

        Raises what is wrong after `wait` seconds, or at once if time will not mend it.
        """
        status = self._found(lambda health, waited, now: health.readiness(waited, wait, now), wait)
        assert status is not None
        return status

    def meet(self, within: float, cancel: Cancel | None = None) -> None:
        """Wait until it is known which servers these nodes are.

        Raises what is wrong after `within` seconds.
        """
        self._found(lambda health, waited, now: health.met(waited, within, now) or None, within, cancel)

    def _found(
        self, look: Callable[[Health, float, float], T | None], within: float, cancel: Cancel | None = None
    ) -> T | None:
        """Look at the nodes' health again and again, until there is what is looked for.

        `look` is also given the seconds waited so far, and the time. It raises what is wrong after
        `within` seconds. None: `cancel` is set.
        """
        began = self.clock()
        while not (cancel is not None and cancel.is_set()):
            self._check_open()
            io_thread = self.io_thread
            with _watching(io_thread) as gate:
                now = self.clock()
                if (found := look(io_thread.engine.health, now - began, now)) is not None:
                    return found
                io_thread.wait(gate, min(max(began + within, now + 0.001), now + HEED))
        return None

    def note(self, event: Event) -> None:
        """Record an event that happens now and that no node has reported."""
        record = self.io_thread.engine.record
        self.io_thread.ask(lambda now: record.note_at(now, event))

    def steer(self, do: Callable[[Engine, float], object]) -> None:
        """Have the engine do something, and wait for nothing."""
        io_thread = self.io_thread

        def steer(now: float) -> None:
            do(io_thread.engine, now)

        io_thread.ask(steer)

    def stats(self) -> Stats:
        """What was done so far, in this process."""
        io_thread = self.io_thread
        begun = [it.claim for it in list(io_thread.direct.done) if it.claim is not None]
        return io_thread.engine.stats(self.clock(), begun)

    def leases(self) -> list[Any]:
        """The leases that callers in this process have."""
        return [lease for it in self.io_thread.given() if (lease := it.lease) is not None]

    def stay(self) -> None:
        """Have the keys of all leases stay on the nodes when they end."""
        io_thread = self._io_thread
        if not io_thread.gone and io_thread.given():
            io_thread.ask(io_thread.stay)

    def reopen(self) -> None:
        """Take up work again after `close`, with connections of its own.

        Leases of the time before stay over. Threads that do so at the same moment agree on one
        I/O thread, as heirs are agreed on.
        """
        # The I/O thread first: a thread that finds the client closed then knows which one was
        # closed.
        io_thread = self._io_thread
        if self.closed:
            self._io_thread = vars(io_thread).setdefault("heir", self._new())
            self.closed = False

    def close(self) -> None:
        """Release everything and end.

        Waits for a majority's answers, then for callbacks: at most `node_timeout` each.
        """
        self.closing()()

    def closing(self) -> Callable[[], object]:
        """Release everything and end.

        Returns:
            A function that waits for a majority's answers, then for `on_lost`, the observer and the
            log: at most `node_timeout` each.
        """
        io_thread, self.closed = self._io_thread, True
        gate = allocate_lock()
        if not io_thread.gone and not io_thread.unused:
            gate.acquire()
            # Said first: the I/O thread may end at another thread's request, and never read this
            # one.
            io_thread.closers.append(gate)
            io_thread.ask(io_thread.close)
        return partial(self._await_end, io_thread, gate)

    def _await_end(self, io_thread: IOThread, gate: LockType) -> None:
        if io_thread.foreign or get_ident() == io_thread.ident:
            return
        # One that is over may have opened its gates before this one was among them.
        if not io_thread.over:
            gate.acquire(True, self.settings.node_timeout + 1.0)
        until = self.clock() + self.settings.node_timeout
        for calls in io_thread.aside.all:
            calls.wait(until - self.clock())
            calls.end()
        if (guardian := io_thread.engine.upkeep.guardian) is not None:
            guardian.close()


@contextmanager
def _watching(io_thread: IOThread, watch: Watch | None = None) -> Iterator[LockType]:
    """Have a gate that opens when the nodes' health has changed, or there is news for the watch."""
    gate = shut_gate()
    io_thread.ask(partial(io_thread.watch, gate, watch))
    try:
        yield gate
    finally:
        io_thread.ask(partial(io_thread.unwatch, gate))


def _closed_at_exit() -> None:
    for driver in _drivers:
        driver.close()


os.register_at_fork(after_in_child=inherited)
atexit.register(_closed_at_exit)
