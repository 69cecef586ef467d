"""The description of a lock, and how a thread acquires it.

Knows the threads driver's `acquire`. Decides nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from ..drivers.greenlets import Identity, itself
from ..drivers.threads import Cancel, Driver
from ..errors import HoldfastError, LockBusy, NoQuorum
from ..face import lock
from ..face.inside import Inside
from ..face.lock import Leave
from ..face.moving import steps
from ..face.terms import Terms
from .asking import carry_out
from .decorating import Locked, P, R
from .lease import Lease


class Lock(lock.Lock[Lease]):
    __doc__ = lock.Lock.__doc__
    __slots__ = ("_driver", "_sources")
    _kind: type[Lease] = Lease

    def __init__(
        self,
        terms: Terms,
        inside: Inside[Lease],
        driver: Driver,
        sources: Sequence[tuple[Driver, Terms]] = (),
    ) -> None:
        super().__init__(terms, inside)
        self._driver = driver
        self._sources = sources  # of names that move: where they are taken before that, and which

    def acquire(self, cancel: threading.Event | None = None) -> Lease:
        try:
            return self._acquire(self._terms.wait, self._terms.reentrant, cancel)
        except LockBusy as busy:
            self._say_whose(busy)
            raise

    def try_acquire(self) -> Lease | None:
        try:
            return self._acquire(0.0, self._terms.reentrant)
        except LockBusy:
            return None

    def _say_whose(self, busy: LockBusy) -> None:
        # Loaded when it is needed first.
        from ..face.looking import tell_owner

        carry_out(tell_owner(self._driver.settings, busy), self._driver)

    def _acquire(self, wait: float | None, stays: bool, cancel: Cancel | None = None) -> Lease:
        terms, here = self._terms, itself()
        lease = self._kind(terms, self._driver)
        try:
            outer = self._inside.found(here, terms, wait)
            if outer is not None:
                lease._join(outer)
                if terms.ttl > outer._terms.ttl:
                    lease.extend(terms.ttl)
                return lease
            if stays:
                self._inside.enters(here, lease)
            self._obtain(lease, wait, cancel)
            return lease
        except BaseException:
            # Perhaps an interrupt (Ctrl-C, a time limit), when the lock was held already: nobody will get this lease.
            lease._unwind()
            raise

    def _obtain(self, lease: Lease, wait: float | None, cancel: Cancel | None) -> None:
        try:
            if self._sources:
                self._move(lease, wait, cancel)
            else:
                lease._obtain(wait, cancel)
        except NoQuorum as why:
            if not self._terms.fail_open:
                raise
            self._driver.note(lease._open(why))

    def _move(self, lease: Lease, wait: float | None, cancel: Cancel | None) -> None:
        try:
            for step in steps(lease, [self._kind(terms, driver, lease) for driver, terms in self._sources], wait, cancel=cancel):
                step()
        except BaseException:
            lease._let_all_go()
            raise

    def __enter__(self) -> Lease:
        here = self._here()
        stay, before = self._stay(), self._entered.get(here)
        try:
            lease = self._acquire(self._terms.wait, True, self._terms.cancel)
        except LockBusy as busy:
            self._say_whose(busy)
            raise
        try:
            if stay is not None:  # whoever stores the lease, no call follows: nothing can come between that and the block
                stay.lease = lease
            else:
                self._entered[here] = lease, before
            return lease
        except BaseException:
            lease._unwind()
            raise

    if TYPE_CHECKING:  # what a type checker cannot see in a descriptor

        def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
    else:
        __exit__ = Leave()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function or a generator: each call holds the lock until it is over. `current()` gives its lease."""
        return Locked(self._for)(function)

    def _here(self) -> Identity:
        return itself()

    def _leave(self, lease: Lease, error: BaseException | None) -> None:
        try:
            lease.release()
        except HoldfastError as trouble:  # lost; or this is the child of a fork within the block, and what it raises is its end
            if error is None:
                raise
            error.add_note(f"and {trouble}")
