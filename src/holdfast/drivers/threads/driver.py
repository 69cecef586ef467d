"""What the sync face calls: the driver finds the keeper of this process, asks it, and waits.

Knows keepers, forks and the end of the process. Must not know sockets or the protocol.
"""

from __future__ import annotations

import atexit
import os
from _thread import LockType
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

from ...clock import SYSTEM, Sources
from ...core.claim import State
from ...core.command import Recipe
from ...core.demand import Demand
from ...core.round import Answers, Round
from ...engine.crew import Crew, Watch
from ...engine.record import Stats
from ...engine.settings import Settings
from ...engine.status import NodeStatus
from ...errors import CLOSED, Cancelled, Closed, HoldfastError
from ...events import Event
from ...living import Living
from ...log import logger
from ..access import Access
from ..aside import Listeners
from ..cancel import Cancel
from ..greenlets import allocate_lock, get_ident
from .errand import GIVEN, LEAVING, WANTED, Errand, Lease
from .keeper import HEED, Keeper, inherited

_drivers: Living[Driver] = Living()


def _unsaid(errand: Errand) -> None:
    """Log that a release has not left this process, because the keeper is blocked."""
    names = ", ".join(dict.fromkeys(it.label for it in errand.recipes))
    logger("lease").warning(
        "the release of %r has not been sent for %.1f s: holdfast's background thread does not run. "
        "The lock is released when it goes on, and ends with its ttl at the latest",
        names,
        errand.keeper.patience,
        extra={"holdfast": {"event": "unsent", "lock": names}},
    )


class Driver:
    """What the sync face speaks to.

    Owns the current keeper, and finds its heir after a fork or a failure.
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
        self._new = partial(Keeper, settings, access, tell, telling, version, sources)
        self._keeper = self._new()
        # What each thread waits for, by its number.
        self._wanted: dict[int, Errand] = {}
        _drivers.add(self)

    @property
    def keeper(self) -> Keeper:
        """The keeper of this process.

        (Two threads that find it gone agree on one heir: setdefault is one C call.)
        """
        while ((keeper := self._keeper).gone or keeper.outdated) and not self.closed:
            if keeper.foreign:
                inherited()
            self._keeper = vars(keeper).setdefault("heir", self._new())
        return keeper

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(CLOSED)
        if not self.settings.addresses:
            raise self.settings.nodeless

    def acquire(
        self,
        lease: Lease,
        recipes: Sequence[Recipe],
        demand: Demand,
        cancel: Cancel | None = None,
        owner: object = None,
    ) -> None:
        """Wait until the lease is held, as long as the demand says. Raises what the claim says.

        Args:
            lease: The lease.
            recipes: The names to acquire.
            demand: For how long to wait, and to hold.
            cancel: Ends the wait when it is set.
            owner: What holds the lease. When it dies, the lease is not renewed any more (default:
                the lease itself).
        """
        began, thread, wait = self.clock(), get_ident(), demand.wait
        interrupted = self._wanted.get(thread)
        # A signal handler runs this within another call, which cannot return before this one does: that one gives way,
        # and asks once more when it goes on.
        if interrupted is not None and interrupted.phase is WANTED and interrupted.handed.acquire(False):
            interrupted.phase = LEAVING
            interrupted.keeper.direct.give_way(interrupted)
            interrupted.keeper.ask(interrupted)
        try:
            while True:
                self._check_open()
                keeper, gate = self.keeper, allocate_lock()
                gate.acquire()
                errand = Errand(owner or lease, keeper.asked.append)
                errand.start(keeper, recipes, demand, began + wait if wait else inf, gate, allocate_lock())
                lease._errand = self._wanted[thread] = errand
                try:
                    if self._granted(errand, keeper, gate, began, cancel):
                        return
                    # It gave way to a call within this one, or was held, and lost before its caller heard of it or
                    # came for it: once more.
                    errand.phase = LEAVING
                    keeper.ask(errand)
                except BaseException:
                    errand.phase = LEAVING
                    keeper.ask(errand)
                    raise
        finally:
            if interrupted is None:
                self._wanted.pop(thread, None)
            else:
                self._wanted[thread] = interrupted

    def _granted(self, errand: Errand, keeper: Keeper, gate: LockType, began: float, cancel: Cancel | None) -> bool:
        """Have the keeper begin, and wait. Return whether the caller has the lease then.

        Raises what is wrong.
        """
        wait = errand.demand.wait
        settled = keeper.direct.acquire(errand, len(self._wanted))
        if settled is None:
            keeper.ask(errand)
        # `close` says nothing to an idle keeper, which this caller may just have started. (A client that was opened
        # again has another keeper.)
        if self.closed or (keeper is not self._keeper and not keeper.gone):
            raise Closed(CLOSED)
        # The claim itself ends the wait in time; a single try takes a third of its ttl at most.
        patience = inf if wait is None else (wait or errand.demand.ttl) + keeper.patience
        alive = bool(settled) or keeper.wait(gate, cancel=cancel, patience=patience)
        self._check_open()
        if errand.error is not None:
            raise errand.error
        if not alive and cancel is not None and cancel.is_set() and not keeper.gone:
            raise Cancelled(", ".join(dict.fromkeys(it.label for it in errand.recipes)), self.clock() - began)
        if alive and errand.phase is LEAVING:
            return False
        claim = errand.claim
        if not alive or claim is None:
            raise keeper.silence("while a lock was waited for") from keeper.failure
        if claim.refusal is not None:
            raise claim.refusal
        # From here on a signal handler knows that its own thread has the lock.
        errand.phase = GIVEN
        return claim.state is State.HELD and self.clock() < claim.until and errand.handed.acquire(False)

    def extend(
        self, errand: Errand, ttl: float, fence: int = 0, share: bool = False, hold: float | None = None
    ) -> None:
        """Have the lease last at least `ttl` seconds from now, and the nodes' fences raised to this
        one; returns when that was confirmed, or was not in time. `share`: as a reader's. `hold`:
        moves the end that `max_hold` sets to this many seconds from now.
        """
        keeper, claim, gate = errand.keeper, errand.claim, allocate_lock()
        assert claim is not None
        gate.acquire()

        def extend(now: float) -> None:
            if keeper.crew.extend(claim, ttl, now, fence, share, hold):
                keeper.waiting.for_claim(claim, gate)
            else:
                gate.release()

        keeper.ask(extend)
        if not keeper.wait(gate, patience=keeper.patience) and not keeper.gone:
            raise keeper.silence("while a lease was extended")

    def release(self, errand: Errand, confirm: bool) -> int:
        """Give it back. Several threads may do so at the same moment.

        Returns when the bytes have left, so that a holder that computes on does not keep them from
        leaving. If the keeper is blocked, returns after `keeper.patience` seconds and logs a
        warning.

        Args:
            confirm: Return when a majority has confirmed, or cannot any longer.

        Returns:
            How many nodes have confirmed so far.
        """
        keeper, gate = errand.keeper, allocate_lock()
        gate.acquire()
        try:
            # The phase first: once the keeper may have heard of it, nobody may join this lease any
            # more.
            errand.phase = LEAVING
            if not confirm and not keeper.direct.crowded(len(self._wanted)) and keeper.direct.release(errand, gate):
                return 0
            errand.leavers.append((gate, confirm))
            keeper.ask(errand)
            if get_ident() != keeper.ident and not keeper.wait(gate, patience=keeper.patience) and not keeper.gone:
                _unsaid(errand)
        except BaseException:
            # Interrupted: it is given back all the same.
            errand.phase = LEAVING
            keeper.ask(errand)
            raise
        return errand.claim.freed if errand.claim is not None else 0

    def ask(
        self, asks: Mapping[int, bytes], enough: Callable[[Answers], bool] | None = None, share: Hashable = None
    ) -> Round:
        """Ask nodes something that is no lock; returns when it is over.

        That is after `node_timeout` at the latest, or after twice as long if it is shared: see
        `Crew.consult`.
        """
        self._check_open()
        keeper, gate, told = self.keeper, allocate_lock(), list[Round]()
        gate.acquire()
        keeper.ask(partial(keeper.consult, asks, enough, share, told, gate))
        alive = keeper.wait(gate, patience=keeper.patience)
        self._check_open()
        if not alive or not told:
            raise keeper.silence("while nodes were asked") from keeper.failure
        return told[0]

    def listen(self) -> Watch:
        """A new watch, of this process."""
        self._check_open()
        keeper, gate, made = self.keeper, allocate_lock(), list[Watch]()
        gate.acquire()

        def listen(now: float) -> None:
            made.append(keeper.crew.listen(now))
            gate.release()

        keeper.ask(listen)
        if not keeper.wait(gate, patience=keeper.patience) or not made:
            self._check_open()
            raise keeper.silence("just now") from keeper.failure
        return made[0]

    def sleep(self, seconds: float, cancel: Cancel | None = None, watch: Watch | None = None) -> bool:
        """Let time pass, unless the client is closed; less if there is, or was, news for the watch.

        False: `cancel` was set meanwhile.
        """
        gate, until = allocate_lock(), self.clock() + seconds
        gate.acquire()
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
        keeper, gate = self.keeper, allocate_lock()
        if watch.token not in keeper.crew.watches:
            raise HoldfastError(
                "this process was forked, the client was closed, or holdfast failed, while something was watched: "
                "begin again"
            ) from keeper.failure
        gate.acquire()
        keeper.ask(partial(keeper.watch, gate, watch))
        try:
            keeper.wait(gate, until, cancel)
        finally:
            keeper.ask(partial(keeper.unwatch, gate))

    def ready(self, wait: float) -> tuple[NodeStatus, ...]:
        """Connect to every node.

        Raises what is wrong after `wait` seconds, or at once if time will not mend it.
        """
        began = self.clock()
        while True:
            self._check_open()
            keeper, gate = self.keeper, allocate_lock()
            gate.acquire()
            keeper.ask(partial(keeper.watch, gate, None))
            try:
                now = self.clock()
                if (status := keeper.crew.readiness(now - began, wait, now)) is not None:
                    return status
                keeper.wait(gate, min(began + wait, now + HEED))
            finally:
                keeper.ask(partial(keeper.unwatch, gate))

    def servers(self) -> frozenset[str]:
        """The runs of the servers that this client is connected to, by run_id."""
        return self.keeper.crew.servers()

    def meet(self, within: float, cancel: Cancel | None = None) -> None:
        """Wait until it is known which servers these nodes are.

        Raises what is wrong after `within` seconds.
        """
        began = self.clock()
        while not (cancel is not None and cancel.is_set()):
            self._check_open()
            keeper, gate = self.keeper, allocate_lock()
            gate.acquire()
            keeper.ask(partial(keeper.watch, gate, None))
            try:
                now = self.clock()
                if keeper.crew.met(now - began, within, now):
                    return
                keeper.wait(gate, min(max(began + within, now + 0.001), now + HEED))
            finally:
                keeper.ask(partial(keeper.unwatch, gate))

    def note(self, event: Event) -> None:
        """Record an event that happens now and that no node has reported."""
        record = self.keeper.crew.record
        self.keeper.ask(lambda now: record.note_at(now, event))

    def offer(self, make: Callable[[float], Event]) -> None:
        """Have observers hear of something that happens now, if anybody listens.

        Args:
            make: Makes the event, given the time on this driver's clock.
        """
        if self.keeper.crew.record.telling:
            self.note(make(self.clock()))

    def keeps(self, what: str) -> None:
        """Have it known that something is kept on the nodes that should outlive a restart.

        Said once.
        """
        if not self.keeper.crew.keeping:
            self.steer(lambda crew, now: crew.keeps(what, now))

    def steer(self, do: Callable[[Crew, float], object]) -> None:
        """Have the engine do something, and wait for nothing."""
        keeper = self.keeper

        def steer(now: float) -> None:
            do(keeper.crew, now)

        keeper.ask(steer)

    def stats(self) -> Stats:
        """What was done so far, in this process."""
        keeper = self.keeper
        begun = [it.claim for it in list(keeper.direct.done) if it.claim is not None]
        return keeper.crew.stats(self.clock(), begun)

    def status(self) -> tuple[NodeStatus, ...]:
        """How the nodes are, as far as is known."""
        return self.keeper.crew.status(self.clock())

    def leases(self) -> list[Any]:
        """The leases that callers in this process have."""
        return [lease for it in self.keeper.given() if (lease := it.lease) is not None]

    def stay(self) -> None:
        """Have the keys of all leases stay on the nodes when they end."""
        keeper = self._keeper
        if not keeper.gone and (given := keeper.given()):
            # Whose they are is settled here: once another part of the same lease has ended, its
            # owner gives up all of them.
            keeper.ask(partial(keeper.stay, given))

    def reopen(self) -> None:
        """Take up work again after `close`, with connections of its own.

        Leases of the time before stay over. Threads that do so at the same moment agree on one
        keeper, as heirs are agreed on.
        """
        # The keeper first: a thread that finds the client closed then knows which one was closed.
        keeper = self._keeper
        if self.closed:
            self._keeper = vars(keeper).setdefault("heir", self._new())
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
        keeper, self.closed = self._keeper, True
        gate = allocate_lock()
        if not keeper.gone and not keeper.unused:
            gate.acquire()
            # Said first: the keeper may end at another thread's request, and never read this one.
            keeper.closers.append(gate)
            keeper.ask(keeper.close)
        return partial(self._await_end, keeper, gate)

    def _await_end(self, keeper: Keeper, gate: LockType) -> None:
        if keeper.foreign or get_ident() == keeper.ident:
            return
        # One that is over may have opened its gates before this one was among them.
        if not keeper.over:
            gate.acquire(True, self.settings.node_timeout + 1.0)
        until = self.clock() + self.settings.node_timeout
        for calls in keeper.aside.all:
            calls.wait(until - self.clock())
            calls.end()


def _closed_at_exit() -> None:
    for driver in _drivers:
        driver.close()


os.register_at_fork(after_in_child=inherited)
atexit.register(_closed_at_exit)
