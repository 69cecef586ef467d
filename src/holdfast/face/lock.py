"""The description of a lock, and how a `with` statement keeps its lease. For threads and asyncio.

Knows a lock's terms. Must not know threads or tasks.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..engine.plans import Plan
from ..errors import Misuse
from ..protocol.command import READER, WRITER
from ..protocol.semaphore import Slots
from ..protocol.timing import Timing
from .decorators import Function, LockOf, unfilled
from .lease import Lease
from .owner import Owners, here, running_task
from .terms import Bound, LockTerms
from .tracing import Around, ObservedCall

T = TypeVar("T", bound=Lease)
Place = Callable[[Timing], Plan[tuple[int, Timing]]]


class Lock(Bound, ABC, Generic[T]):
    """The description of a lock. It is immutable, and any number of threads or tasks may share it.

    Describing a lock sends nothing. `with` and `acquire()` acquire the lock and give you a Lease.
    """

    __slots__ = ("__weakref__", "_driver", "_entered", "_moves", "_owners", "_terms")

    def __init__(
        self, terms: LockTerms, owners: Owners[T], driver: Any, moves: tuple[Place, Sequence[Any]] | None = None
    ) -> None:
        # With asyncio, a driver is a function that returns the one of the running loop.
        self._terms, self._owners, self._driver = terms, owners, driver
        # For names that move from one shard to another: what finds the number of the driver by which
        # they are acquired, and all drivers.
        self._moves = moves
        # Stays that began by a plain call of `__enter__`, in this order.
        self._entered: dict[WithBlock[T], None] = {}

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
        return self._terms.timing.ttl

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
            Misuse: This thread or task is inside the lock already, and would wait for itself
                (`self_deadlock`), or with another `max_hold` or a shorter `at_least`.
            Cancelled: `cancel` was set.
            Misuse: The client was closed before or during the wait (`closed`).
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
            Misuse: This thread or task is inside the lock already, with another `max_hold` or a
                shorter `at_least`.
            Misuse: The client is closed (`closed`).
            ConfigError: The nodes refuse this client or this lock.
        """

    # A type checker would take it that every attribute exists.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = _OF_A_LEASE.get(name, "")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

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

    def _surrounded(self, around: Around) -> ObservedCall | None:
        """Call the user's `around` object for an acquire that begins, in its caller's context.

        Returns:
            What to tell of the end. None for the lock of a once or a fill, because the whole call
            of those is surrounded.
        """
        kind = self._terms.primitive
        return None if kind in ("once", "fill") else ObservedCall(around, kind, self._terms.names)

    @abstractmethod
    def _leave(self, lease: T, error: BaseException | None) -> Any:
        """Release the lease of a block that is left."""

    # Returns the task that runs here. (The simulator has tasks of its own.)
    _task = staticmethod(running_task)

    def _stay(self) -> WithBlock[T] | None:
        """Take the stay of the statement that begins here, if it is one in this lock."""
        found = _beginning.get(None)
        stay = None if found is None else found()
        if stay is None or stay.begun or stay.lock not in (self, None):
            return None
        stay.begun = True
        return stay

    def _take(self) -> WithBlock[T]:
        """Take the stay of the block that is left, if it was entered by a plain call."""
        owners = [owner for owner, _ in here(self._task()).inside()]
        mine = [it for it in self._entered if it._lease is not None and it._lease._owner in owners]
        # A fixture may enter it in one thread or task and leave it in another.
        if not mine and len(self._entered) == 1:
            mine = list(self._entered)
        if not mine:
            raise Misuse(
                f"{self.name!r} was not entered here, or by several callers at once: leave the block in the thread or "
                "task that entered it. An ExitStack, or `with` on the lease that `acquire()` returns, may be left "
                "anywhere",
                "not_held",
            )
        del self._entered[mine[-1]]
        return mine[-1]


# What the locks of other libraries can do. Here a lease does it, and not the description of the
# lock.
_OF_A_LEASE = {
    "release": ". Release the lease: `lease = lock.acquire()`, then `lease.release()`; or use `with lock as lease:`",
    "extend": ". Extend the lease: `lease = lock.acquire()`, then `lease.extend(ttl)`. Leases are renewed without it",
    "reacquire": ". Extend the lease: `lease = lock.acquire()`, then `lease.extend()`. Leases are renewed without it",
    "locked": ". Ask the client, `locks.is_locked(name)`, or the lease, `lease.held`",
    "owned": ". Ask the lease that `acquire()` returned: `lease.held`",
    "fence": ". The lease has it: `with lock as lease:`, then `lease.fence`",
}


class WithBlock(Generic[T]):
    """The stay of one block in a lock. It holds the lease, and lives as long as the block.

    A `with` statement, or an ExitStack, looks up `__exit__` before it enters, and keeps what it
    found until the block is left, in whatever way and by whichever thread or task. So each block
    gives back its own lease. An exception that a signal raises at the very start of leaving drops
    the stay, and a lease without a stay is not renewed.
    """

    __slots__ = ("__weakref__", "_lease", "begun", "lock")

    def __init__(self, lock: Lock[T] | None) -> None:
        # None for an ExitStack, which looks it up on the class and names the lock when it leaves.
        self.lock = lock
        self.begun = False
        self._lease: T | None = None

    def __call__(self, *arguments: Any) -> Any:
        lock: Lock[T] = self.lock or arguments[0]
        stay = lock._take() if self._lease is None else self
        assert stay._lease is not None
        return lock._leave(stay._lease, arguments[-2])


# The stay that was looked up last.
_beginning: ContextVar[weakref.ref[WithBlock[Any]]] = ContextVar("holdfast.stay")


class Leave:
    """`Lock.__exit__` and `__aexit__`: each access is a new stay."""

    def __get__(self, lock: Lock[Any] | None, kind: type[Lock[Any]]) -> Any:
        stay = WithBlock(lock)
        _beginning.set(weakref.ref(stay))
        return stay
