"""The description of a lock, and how a `with` statement keeps its lease. For threads and asyncio.

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
from .lease import Lease
from .reentrancy import Reentrancy
from .surrounding import Around, Surrounded
from .terms import LockTerms

T = TypeVar("T", bound=Lease)


class Lock(ABC, Generic[T]):
    """The description of a lock. It is immutable, and any number of threads or tasks may share it.

    Describing a lock sends nothing. `with` and `acquire()` acquire the lock and give you a Lease.
    """

    __slots__ = ("__weakref__", "_entered", "_reentrancy", "_stays", "_terms")

    def __init__(self, terms: LockTerms, reentrancy: Reentrancy[T]) -> None:
        self._terms, self._reentrancy = terms, reentrancy
        # The stay that is just beginning, by thread or task.
        self._stays: dict[Hashable, weakref.ref[Stay[T]]] = {}
        # Leases that were entered without a stay, by thread or task: the latest one, and those before it.
        self._entered: dict[Hashable, tuple[T, Any]] = {}

    @property
    def name(self) -> str:
        """The lock's name. Several names are joined by commas."""
        return self._terms.name

    @property
    def names(self) -> tuple[str, ...]:
        """The lock's names."""
        return self._terms.names

    @property
    def ttl(self) -> float:
        """The length of its leases in seconds: how soon another client takes over after a crash."""
        return self._terms.demand.ttl

    @abstractmethod
    def acquire(self) -> T | Awaitable[T]:
        """Acquire the lock, waiting up to the lock's `wait` seconds.

        Keep the lease and release it, or use `with`, which does both: holdfast renews a lease only
        while your code keeps it. If the call raises, the lock is not held, and nothing lasting
        stays on the nodes.

        Args:
            cancel: Threads only: a `threading.Event`. At most 50 ms after another thread has set
                it, the wait ends with Cancelled. With asyncio, cancel the task.

        Returns:
            The lease. Its `state` is OPEN if no majority answered and the lock has
            `fail_open=True`.

        Raises:
            LockBusy: `wait` ran out, and another client holds the lock. The error says who.
            NoQuorum: Too few nodes answered to know whether the lock is free.
            SelfDeadlock: This thread or task is inside the lock already, and would wait for itself.
            Misuse: This thread or task is inside the lock already, with another `max_hold`.
            Cancelled: `cancel` was set.
            Closed: The client was closed before or during the wait.
            ConfigError: The nodes refuse this client or this lock, and waiting does not help.
        """

    @abstractmethod
    def try_acquire(self) -> T | Awaitable[T | None] | None:
        """Try once to acquire the lock, and wait for no other client.

        A try never overtakes a client that waits.

        Returns:
            The lease. None if another client, thread or task holds the lock, or waits for it.

        Raises:
            NoQuorum: Too few nodes answered to know whether the lock is free.
            Misuse: This thread or task is inside the lock already, with another `max_hold`.
            Closed: The client is closed.
            ConfigError: The nodes refuse this client or this lock.
        """

    # A type checker would take it that every attribute exists.
    if not TYPE_CHECKING:

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
        """Return the lock for each call of a decorated function: this one, for all arguments."""
        unfilled(function, self.names, self._spelled)
        return lambda *args, **kwargs: self

    @property
    def _spelled(self) -> Callable[[str], str] | None:
        """Return the decorator to write in place of this lock, for a name. For errors.

        None for several names: no decorator takes these.
        """
        recipes = self._terms.recipes
        if isinstance(recipes, Slots):
            return lambda name: f"permitted({name!r}, {recipes.permits})"
        if len(recipes) > 1:
            return None
        decorator = {READER: "read_locked", WRITER: "write_locked"}.get(self._terms.kind, "locked")
        return lambda name: f"{decorator}({name!r})"

    def _surrounded(self, around: Around) -> Surrounded | None:
        """Call the user's `around` object for an acquire that begins, in its caller's context.

        Returns:
            What to tell of the end. None for the lock of a once or a fill, because the whole call
            of those is surrounded.
        """
        kind = self._terms.primitive
        return None if kind in ("once", "fill") else Surrounded(around, kind, self._terms.names)

    @abstractmethod
    def _here(self) -> Hashable:
        """Return the thread or task that calls."""

    @abstractmethod
    def _leave(self, lease: T, error: BaseException | None) -> Any:
        """Release the lease of a block that is left."""

    def _stay(self) -> Stay[T] | None:
        """Take the stay that begins in this thread or task, if the statement still exists."""
        found = self._stays.pop(self._here(), None)
        return None if found is None else found()

    def _take(self) -> T:
        """Take the lease of the block that is left, if it was entered without a stay."""
        here = self._here()
        self._stays.pop(here, None)
        # A fixture may enter it in one task and leave it in another.
        if here not in self._entered and len(self._entered) == 1:
            (here,) = self._entered
        if here not in self._entered:
            raise NotHeld(
                f"this thread or task has not entered {self.name!r}: "
                "leave the block in the thread or task that entered it"
            )
        lease, before = self._entered.pop(here)
        if before is not None:
            self._entered[here] = before
        return lease


# What the locks of other libraries can do. Here a lease does it, and not the description of the lock.
_OF_A_LEASE = {
    "release": ". Release the lease: `lease = lock.acquire()`, then `lease.release()`; or use `with lock as lease:`",
    "extend": ". Extend the lease: `lease = lock.acquire()`, then `lease.extend(ttl)`. Leases are renewed without it",
    "reacquire": ". Extend the lease: `lease = lock.acquire()`, then `lease.extend()`. Leases are renewed without it",
    "locked": ". Ask the client, `locks.is_locked(name)`, or the lease, `lease.held`",
    "owned": ". Ask the lease that `acquire()` returned: `lease.held`",
    "fence": ". The lease has it: `with lock as lease:`, then `lease.fence`",
}


class Stay(Generic[T]):
    """One `with` statement's stay in a lock. It holds the lease, and lives as long as the block.

    The interpreter keeps what it found as `__exit__` until the block is left, in whatever way. So
    an exception that a signal raises at the very start of leaving drops the stay, and the lease
    with it. A lease without an owner is not renewed.
    """

    __slots__ = ("__weakref__", "lease", "lock")

    def __init__(self, lock: Lock[T]) -> None:
        self.lock = lock
        self.lease: T | None = None

    def __call__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        return self.lock._leave(self.lease or self.lock._take(), error)


class Leave:
    """`Lock.__exit__` and `__aexit__`. On a lock it is a new stay, on the class a function.

    ExitStack looks it up on the class.
    """

    def __get__(self, lock: Lock[Any] | None, kind: type[Lock[Any]]) -> Any:
        if lock is None:
            return _leave
        stay = Stay(lock)
        lock._stays[lock._here()] = weakref.ref(stay)
        return stay


def _leave(
    lock: Lock[Any], kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> Any:
    return lock._leave(lock._take(), error)
