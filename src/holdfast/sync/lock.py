"""The description of a lock, and how a thread acquires it.

Knows the threads driver's `acquire`. Decides nothing.
"""

from __future__ import annotations

from _thread import get_ident
from types import TracebackType
from typing import Any, overload

from ..drivers.threads import Driver
from ..errors import LockBusy, LockLost
from ..face import lock
from ..face.terms import Terms
from .lease import Lease


class _Stay:
    """One `with` statement's stay in a lock: holds the lease, and lives exactly as long as the statement does.

    The interpreter keeps what `__exit__` looks up until the block is left, however it is left. So a signal's exception that
    strikes at the very start of leaving drops this, and with it the lease: nobody renews a lease that has no owner.
    """

    __slots__ = ("lease", "lock")

    def __init__(self, lock: Lock) -> None:
        self.lock = lock
        self.lease: Lease | None = None

    def __call__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.lock._leave(self.lease, error)


class _Exit:
    """`Lock.__exit__`: found on a lock, it is a new stay; found on the class (as ExitStack does), a plain function."""

    @overload
    def __get__(self, lock: None, kind: type[Lock]) -> Any: ...
    @overload
    def __get__(self, lock: Lock, kind: type[Lock]) -> _Stay: ...
    def __get__(self, lock: Lock | None, kind: type[Lock]) -> Any:
        if lock is None:
            return _leave_any
        stay = lock._stays[get_ident()] = _Stay(lock)
        return stay


def _leave_any(lock: Lock, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
    lock._leave(None, error)


class Lock(lock.Lock):
    """The description of a lock: immutable, shared by as many threads as you like. `with` and `acquire` give a Lease."""

    __slots__ = ("_driver", "_entered", "_stays")

    def __init__(self, terms: Terms, driver: Driver) -> None:
        super().__init__(terms)
        self._driver = driver
        self._stays: dict[int, _Stay] = {}  # by thread: the stay that is just beginning
        self._entered: dict[tuple[int, int], Lease] = {}  # by thread and depth: leases of blocks entered without a stay

    def acquire(self) -> Lease:
        return self._acquire(self._terms.wait)

    def try_acquire(self) -> Lease | None:
        try:
            return self._acquire(0.0)
        except LockBusy:
            return None

    def _acquire(self, wait: float | None) -> Lease:
        terms = self._terms
        lease = Lease(terms, self._driver)
        self._driver.acquire(lease, terms.recipe, ttl=terms.ttl, wait=wait, renew=terms.renew, max_hold=terms.max_hold)
        return lease

    def __enter__(self) -> Lease:
        thread = get_ident()
        stay = self._stays.pop(thread, None)
        lease = self.acquire()
        # Whichever of these stores the lease, nothing can come between that and the block: no call follows.
        if stay is not None:
            stay.lease = lease
            return lease
        depth = sum(it[0] == thread for it in self._entered)
        self._entered[thread, depth] = lease
        return lease

    __exit__ = _Exit()

    def _leave(self, lease: Lease | None, error: BaseException | None) -> None:
        if lease is None:
            thread = get_ident()
            self._stays.pop(thread, None)
            lease = self._entered.pop((thread, sum(it[0] == thread for it in self._entered) - 1))
        try:
            lease.release()
        except LockLost as lost:
            if error is None:
                raise
            error.add_note(f"and {lost}")
