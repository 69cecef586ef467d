"""The description of a lock, and how a `with` statement keeps its lease: shared by both faces.

Knows a lock's terms. Must not know threads or tasks.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..core.command import READER, WRITER
from ..errors import NotHeld
from ..recipes.semaphore import Slots
from .decorating import Function, LockOf, unfilled
from .inside import Inside
from .lease import Lease
from .terms import Terms

T = TypeVar("T", bound=Lease)


class Lock(ABC, Generic[T]):
    """The description of a lock: immutable, shared by as many users as you like. `with` and `acquire` give a Lease."""

    __slots__ = ("__weakref__", "_entered", "_inside", "_stays", "_terms")

    def __init__(self, terms: Terms, inside: Inside[T]) -> None:
        self._terms, self._inside = terms, inside
        self._stays: dict[Hashable, weakref.ref[Stay[T]]] = {}  # by thread or task: the stay that is just beginning there
        self._entered: dict[Hashable, tuple[T, Any]] = {}  # the same: leases that were entered without a stay, latest first

    @property
    def name(self) -> str:
        """The lock's name; of several names "a,b"."""
        return self._terms.name

    @property
    def names(self) -> tuple[str, ...]:
        """The lock's names."""
        return self._terms.names

    @property
    def ttl(self) -> float:
        """The length of its leases, in seconds: how soon others take over after a crash."""
        return self._terms.ttl

    @abstractmethod
    def acquire(self) -> T | Awaitable[T]:
        """Wait until the lock is held, as long as its `wait` says; the lease is the caller's, to be released by the caller.

        Raises LockBusy when `wait` has run out and somebody else has it, NoQuorum when too few nodes answer to know, Closed
        when the client is closed meanwhile, SelfDeadlock when this very thread or task is inside it. Whatever is raised, nothing is
        left behind that lasts. Threads may hand over `cancel`, a `threading.Event`: soon (50 ms) after another thread has set it, the
        wait ends with Cancelled. (A task has its own `cancel()`.)
        """

    @abstractmethod
    def try_acquire(self) -> T | Awaitable[T | None] | None:
        """Try exactly once: a lease, or None if somebody else has the lock or waits for it. Raises NoQuorum like `acquire`."""

    if not TYPE_CHECKING:  # (a type checker would take it that every attribute exists)

        def __getattr__(self, name: str) -> Any:
            hint = _OF_A_LEASE.get(name, "")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def __reduce__(self) -> Any:
        where = f"make it by locks.lock({self.name!r}) where it is needed"
        raise TypeError(f"the lock {self.name!r} belongs to its client and cannot be pickled: {where}")

    def __repr__(self) -> str:
        kind = "Semaphore" if isinstance(self._terms.recipes, Slots) else "Lock"
        return f"<{kind} {self.name!r} ttl={self.ttl:g}>"

    def _for(self, function: Function) -> LockOf:
        """The lock for each call of a decorated function: this one, whatever the arguments are."""
        unfilled(function, self.names, self._spelled)
        return lambda *args, **kwargs: self

    @property
    def _spelled(self) -> Callable[[str], str] | None:
        """Writes the decorator that fills a template for a lock like this one. None for several names: no decorator takes these."""
        recipes = self._terms.recipes
        if isinstance(recipes, Slots):
            return lambda name: f"permitted({name!r}, {recipes.permits})"
        if len(recipes) > 1:
            return None
        decorator = {READER: "read_locked", WRITER: "write_locked"}.get(self._terms.kind, "locked")
        return lambda name: f"{decorator}({name!r})"

    @abstractmethod
    def _here(self) -> Hashable:
        """Which thread or task this is."""

    @abstractmethod
    def _leave(self, lease: T, error: BaseException | None) -> Any:
        """The block is left."""

    def _stay(self) -> Stay[T] | None:
        """The stay that begins here, if somebody still holds what was looked up."""
        found = self._stays.pop(self._here(), None)
        return None if found is None else found()

    def _take(self) -> T:
        """The lease of the block that is left, if it was entered without a stay."""
        here = self._here()
        self._stays.pop(here, None)
        if here not in self._entered and len(self._entered) == 1:  # (as fixtures do: entered in one task, left in another)
            (here,) = self._entered
        if here not in self._entered:
            raise NotHeld(f"nobody here has entered {self.name!r}, or more than one elsewhere have: leave it where it was entered")
        lease, before = self._entered.pop(here)
        if before is not None:
            self._entered[here] = before
        return lease


# What other libraries' locks can do and a description of a lock cannot: a lease does it.
_OF_A_LEASE = {
    "release": ". Release the lease: `lease = lock.acquire()`, then `lease.release()`; or use `with lock as lease:`",
    "extend": ". Extend the lease: `lease = lock.acquire()`, then `lease.extend(ttl)`. Leases are renewed without it",
    "reacquire": ". Extend the lease: `lease = lock.acquire()`, then `lease.extend()`. Leases are renewed without it",
    "locked": ". Ask the client, `locks.is_locked(name)`, or the lease, `lease.held`",
    "owned": ". Ask the lease that `acquire()` returned: `lease.held`",
    "fence": ". The lease has it: `with lock as lease:`, then `lease.fence`",
}


class Stay(Generic[T]):
    """One `with` statement's stay in a lock: holds the lease, and lives exactly as long as the statement does.

    The interpreter keeps what it looked up as `__exit__` until the block is left, however it is left. So an exception that a
    signal raises at the very start of leaving drops this, and with it the lease: nobody renews a lease that has no owner.
    """

    __slots__ = ("__weakref__", "lease", "lock")

    def __init__(self, lock: Lock[T]) -> None:
        self.lock = lock
        self.lease: T | None = None

    def __call__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> Any:
        return self.lock._leave(self.lease or self.lock._take(), error)


class Leave:
    """`Lock.__exit__` and `__aexit__`: looked up on a lock, it is a new stay; on the class (as ExitStack does), a function."""

    def __get__(self, lock: Lock[Any] | None, kind: type[Lock[Any]]) -> Any:
        if lock is None:
            return _leave
        stay = Stay(lock)
        lock._stays[lock._here()] = weakref.ref(stay)
        return stay


def _leave(lock: Lock[Any], kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> Any:
    return lock._leave(lock._take(), error)
