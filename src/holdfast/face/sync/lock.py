"""The description of a lock, and how a thread acquires it.

Knows the threads driver's `acquire`. Decides nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from ...drivers.threads.run import run
from ...errors import LockBusy, NoQuorum
from ...protocol.timing import Timing
from .. import lock
from ..lock import Leave, WithBlock
from ..owner import INSIDE, Here, here
from .decorators import Locked, P, R
from .lease import Lease

if TYPE_CHECKING:
    from ...drivers.cancel import Cancel
    from ...drivers.threads import Driver


class Lock(lock.Lock[Lease]):
    __slots__ = ()
    _driver: Driver
    _kind: type[Lease] = Lease

    def acquire(self, cancel: threading.Event | None = None) -> Lease:
        try:
            return self._acquire(self._terms.timing, None, self._terms.reentrant, cancel)
        except LockBusy as busy:
            self._say_whose(busy)
            raise

    def try_acquire(self) -> Lease | None:
        try:
            return self._acquire(self._terms.timing._replace(wait=0.0), None, self._terms.reentrant)
        except LockBusy:
            return None

    def _say_whose(self, busy: LockBusy) -> None:
        # Loaded at its first use.
        from ...operations.inspection.plan import tell_owner

        run(tell_owner(self._driver.settings, busy, self._terms.recipes), self._driver)

    def _acquire(
        self,
        timing: Timing,
        caller: Here | None,
        stays: bool,
        cancel: Cancel | None = None,
        stay: WithBlock[Lease] | None = None,
    ) -> Lease:
        terms = self._terms
        lease = self._kind(terms, self._driver)
        around = self._driver.settings.around
        call = None if around is None else self._surrounded(around)
        try:
            # If nobody is inside of any lock, and this caller will not be, it decides nothing who
            # calls.
            if caller is None and (stays or INSIDE.get() is not None):
                caller = here(self._task())
            outer = None if caller is None else self._owners.found(caller, terms, timing)
            if outer is not None and not lease._join(outer):
                # It is not held any more, so the lock is acquired as usual.
                lease, outer = self._kind(terms, self._driver), None
            if outer is not None:
                if timing.ttl > outer._terms.timing.ttl:
                    lease.extend(timing.ttl)
            else:
                if stays and caller is not None:
                    self._owners.enters(caller, lease)
                if stay is not None:
                    stay._lease = lease
                self._obtain(lease, timing, cancel, stay)
            if call is not None:
                call.end(*lease._acquisition())
            return lease
        except BaseException as error:
            # It may be an interrupt (Ctrl-C, a time limit) after the lock was acquired. The caller
            # does not get the lease, so give it back.
            lease._unwind()
            if call is not None:
                call.failed(error)
            raise

    def _obtain(self, lease: Lease, timing: Timing, cancel: Cancel | None, stay: WithBlock[Lease] | None) -> None:
        try:
            if self._moves is not None:
                place, drivers = self._moves
                at, timing = run(place(timing), *drivers, cancel=cancel)
                lease._hold_by(drivers[at])
            lease._driver.acquire(lease, lease._terms.recipes, timing, cancel, stay)
        except NoQuorum as why:
            if not self._terms.fail_open:
                raise
            self._driver.note(lease._open(why))

    def __enter__(self) -> Lease:
        found, caller = self._stay(), here(self._task())
        stay = found or WithBlock(self)
        try:
            lease = self._acquire(self._terms.timing, caller, True, self._terms.cancel, stay)
        except LockBusy as busy:
            self._say_whose(busy)
            raise
        try:
            # Nothing is called after the lease is stored, so no interrupt can come between that and
            # the block.
            stay._lease = lease
            if found is None:
                self._entered[stay] = None
            return lease
        except BaseException:
            lease._unwind()
            raise

    # A type checker does not see this in a descriptor.
    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...
    else:
        __exit__ = Leave()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function or a generator, so that each call holds the lock until it is over.

        `current()` returns its lease inside.
        """
        return Locked(self._for)(function)

    def _leave(self, lease: Lease, error: BaseException | None) -> None:
        lease._leave(error)
