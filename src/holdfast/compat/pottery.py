"""pottery's Redlock, AIORedlock and synchronize on holdfast.

Import them from here: `from holdfast.compat.pottery import Redlock`. The errors are
pottery's, with those of holdfast as their causes. `configure` sets options of holdfast.

Knows pottery's errors. Must not know threads or tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, TypeVar, cast

from pottery import exceptions

from ..errors import ConfigError, HoldfastError, LockBusy, NoQuorum
from .clients import client_of, configure
from .held import SHORTEST, Held, Steps, Tasks, Threads, confirmed, holding, longer, waits

__all__ = ["AIORedlock", "Redlock", "configure", "synchronize"]

F = TypeVar("F", bound=Callable[..., Any])


class _Described:
    """A lock with the arguments and methods of pottery's. Its errors are pottery's, too."""

    _NUM_EXTENSIONS = 3
    _kind: Any
    __slots__ = (
        "__weakref__", "_extensions", "_found", "_held", "auto_release_time", "context_manager_blocking",
        "context_manager_timeout", "key", "masters", "num_extensions", "raise_on_redis_errors",
    )  # fmt: skip

    def __init__(
        self, *, key: str, masters: Iterable[Any], raise_on_redis_errors: bool = False, auto_release_time: float = 10,
        num_extensions: int = _NUM_EXTENSIONS, context_manager_blocking: bool = True,
        context_manager_timeout: float = -1,
    ) -> None:  # fmt: skip
        """Describe a lock. Sends nothing.

        Args:
            key: The key, without "redlock:".
            masters: Clients of redis-py, one for each server. Their settings are used, not their
                connections.
            raise_on_redis_errors: Raise QuorumIsImpossible if too few servers answer.
            auto_release_time: Seconds after which the lock ends, whether its work is over or not.
                holdfast renews the lock until then.
            num_extensions: How many times it may be extended.
            context_manager_blocking: Whether `with` waits.
            context_manager_timeout: How many seconds `with` waits. -1: for ever.

        Raises:
            ValueError: There is a time limit for a `with` that does not wait.
        """
        if not context_manager_blocking and context_manager_timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        self.key, self.masters, self.raise_on_redis_errors = f"redlock:{key}", frozenset(masters), raise_on_redis_errors
        if not self.masters:
            raise ConfigError("masters= names no client: pass a client of redis-py for each server")
        self.auto_release_time, self.num_extensions = auto_release_time, num_extensions
        self.context_manager_blocking, self.context_manager_timeout = context_manager_blocking, context_manager_timeout
        self._held: Held | None = None
        self._extensions, self._found = 0, cast(Any, None)

    def __repr__(self) -> str:
        return f"<{type(self).__qualname__} key={self.key}>"

    @property
    def _locks(self) -> Any:
        self._found = self._found or client_of(self._kind, self.masters)
        return self._found

    @waits
    def acquire(
        self, *, blocking: bool = True, timeout: float = -1, raise_on_redis_errors: bool | None = None
    ) -> Steps:
        """Acquire the lock.

        Args:
            blocking: Whether to wait.
            timeout: How many seconds to wait. -1: for ever.
            raise_on_redis_errors: Raise an error if too few servers answer (default: the lock's).

        Returns:
            Whether the lock is held now.

        Raises:
            QuorumIsImpossible: Too few servers answer.
            ValueError: There is a time limit for a call that does not wait.
        """
        if not blocking and timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        # It would end before it began.
        if self.auto_release_time < SHORTEST:
            return False
        wait = 0.0 if not blocking else None if timeout == -1 else timeout
        try:
            self._held = yield from holding(self._locks, self.key, self.auto_release_time, wait)
        except (LockBusy, NoQuorum) as error:
            self._impossible(error, raise_on_redis_errors)
            return False
        self._extensions = 0
        return True

    @waits
    def locked(self, *, raise_on_redis_errors: bool | None = None) -> Steps:
        """Return for how many seconds this object still holds the lock. 0 if it does not.

        Args:
            raise_on_redis_errors: Raise an error if too few servers answer (default: the lock's).

        Returns:
            Seconds.

        Raises:
            QuorumIsImpossible: Too few servers answer.
        """
        held = self._held
        if held is None or not held.lease.held:
            return 0
        try:
            return held.left if (yield self._locks.locked_by(self.key)) == held.lease.token else 0
        except NoQuorum as error:
            self._impossible(error, raise_on_redis_errors)
            return 0

    @waits
    def extend(self, *, raise_on_redis_errors: bool | None = None) -> Steps:
        """Let the lock last for `auto_release_time` again, from now.

        Args:
            raise_on_redis_errors: Raise an error if too few servers answer (default: the lock's).

        Raises:
            ExtendUnlockedLock: This object does not hold the lock.
            QuorumIsImpossible: Too few servers answer.
            TooManyExtensions: The lock was extended `num_extensions` times.
        """
        if self._extensions >= self.num_extensions:
            raise self._error(exceptions.TooManyExtensions)
        if self._held is None:
            raise self._error(exceptions.ExtendUnlockedLock)
        try:
            self._held = yield from longer(self._locks, self._held, self.auto_release_time)
        except HoldfastError as error:
            self._impossible(error, raise_on_redis_errors)
            raise self._error(exceptions.ExtendUnlockedLock) from error
        self._extensions += 1

    @waits
    def release(self, *, raise_on_redis_errors: bool | None = None) -> Steps:
        """Release the lock, and wait for the servers to confirm it.

        Args:
            raise_on_redis_errors: Raise an error if too few servers do so (default: the lock's).

        Raises:
            QuorumIsImpossible: Too few servers answer.
            ReleaseUnlockedLock: This object does not hold the lock.
        """
        held, self._held = self._held, None
        if held is None:
            raise self._error(exceptions.ReleaseUnlockedLock)
        try:
            certain = yield held.lease.release(confirm=True)
        except HoldfastError as error:
            raise self._error(exceptions.ReleaseUnlockedLock) from error
        if not confirmed(self._locks, certain):
            # holdfast goes on sending it.
            self._impossible(None, raise_on_redis_errors)
            raise self._error(exceptions.ReleaseUnlockedLock)

    def _impossible(self, error: HoldfastError | None, asked: bool | None) -> None:
        """Raise QuorumIsImpossible if the caller wants that, and too few servers have answered."""
        raises = self.raise_on_redis_errors if asked is None else asked
        if raises and (error is None or isinstance(error, NoQuorum)):
            raise self._error(exceptions.QuorumIsImpossible) from error

    def _error(self, kind: type[Any]) -> Any:
        return kind(self.key, self.masters, redis_errors=[])

    def _enter(self) -> Steps:
        if not (yield self.acquire(blocking=self.context_manager_blocking, timeout=self.context_manager_timeout)):
            raise self._error(exceptions.QuorumNotAchieved)
        return self

    def _leave(self, error: BaseException | None) -> Steps:
        try:
            yield self.release()
        except Exception as trouble:
            if error is None:
                raise
            error.add_note(f"and {trouble!r}")


class Redlock(Threads, _Described):
    """A lock with the arguments and methods of `pottery.Redlock`, for threads."""

    __slots__ = ()


class AIORedlock(Tasks, _Described):
    """A lock with the arguments and methods of `pottery.AIORedlock`, for asyncio."""

    __slots__ = ()


def synchronize(
    *, key: str, masters: Iterable[Any], blocking: bool = True, timeout: float = -1, **options: Any
) -> Callable[[F], F]:
    """Decorate a function, so that one thread of all processes runs it at a time.

    Args:
        key: The key, without "redlock:".
        masters: Clients of redis-py, one for each server.
        blocking: Whether calls wait.
        timeout: How many seconds they wait. -1: for ever.
        options: `auto_release_time` and `raise_on_redis_errors`, as for `Redlock`.

    Returns:
        The decorator. It raises ConfigError for a coroutine function or a generator function, whose
        body would run without the lock.

    Raises:
        ValueError: There is a time limit for calls that do not wait.
    """
    options |= {"context_manager_blocking": blocking, "context_manager_timeout": timeout}
    make = partial(Redlock, key=key, masters=frozenset(masters), **options)
    # Wrong arguments are refused here, and not by the first call.
    make()

    def decorate(function: F) -> F:
        if any(later(function) for later in (isasyncgenfunction, iscoroutinefunction, isgeneratorfunction)):
            instead = "use `with Redlock(...)` or `async with AIORedlock(...)` in it"
            raise ConfigError(f"{function!r} is no plain function: its body would run without the lock: {instead}")

        @wraps(function)
        def locked(*args: Any, **kwargs: Any) -> Any:
            with make():
                return function(*args, **kwargs)

        return cast(F, locked)

    return decorate
