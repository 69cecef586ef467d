"""What the locks of all libraries have in common: leases with a limit, and how calls are made.

Knows leases, and both clients of holdfast. Must not know the other library.

A method that asks servers is a generator. It yields what holdfast returned: for threads a result,
for asyncio an awaitable of one. So each method is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import wraps
from typing import Any, NamedTuple

from .. import Holdfast, aio
from ..clock import clock

# Seconds. A lease cannot be shorter.
SHORTEST = 0.05
Steps = Generator[Any, Any, Any]


class Threads:
    """A lock for threads."""

    __slots__ = ()
    _kind = Holdfast

    def _run(self, steps: Steps) -> Any:
        result = None
        while True:
            try:
                result = steps.send(result)
            except StopIteration as end:
                return end.value

    def __enter__(self: Any) -> Any:
        return self._run(self._enter())

    def __exit__(self: Any, kind: object, error: BaseException | None, trace: object) -> None:
        self._run(self._leave(error))


class Tasks:
    """A lock for asyncio."""

    __slots__ = ()
    _kind = aio.Holdfast

    async def _run(self, steps: Steps) -> Any:
        result, failure = None, None
        while True:
            try:
                asked = steps.send(result) if failure is None else steps.throw(failure)
            except StopIteration as end:
                return end.value
            try:
                result, failure = await asked, None
            except BaseException as error:
                failure = error

    async def __aenter__(self: Any) -> Any:
        return await self._run(self._enter())

    async def __aexit__(self: Any, kind: object, error: BaseException | None, trace: object) -> None:
        await self._run(self._leave(error))


def waits(steps: Callable[..., Steps]) -> Callable[..., Any]:
    """Make a method of a generator: for asyncio, one that has to be awaited."""

    @wraps(steps)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._run(steps(self, *args, **kwargs))

    return method


class Held(NamedTuple):
    """A lease, and when the other library's time limit ends it, by `holdfast.clock.clock`."""

    lease: Any
    ends: float | None
    # Whether it is renewed.
    renew: bool = True

    @property
    def left(self) -> float:
        """Seconds until the limit. 0 if the lease is not held."""
        return max(0.0, (self.ends or 0.0) - clock()) if self.lease.held else 0.0


def holding(locks: Any, name: str, limit: float | None, wait: float | None, renew: bool = True) -> Steps:
    """Acquire a lock for at most `limit` seconds. A lease is as long as that, if it may be.

    Returns:
        The Held.

    Raises:
        LockBusy: Another client holds the lock.
        NoQuorum: Too few servers answer.
        ConfigError: The limit or the wait cannot work.
    """
    ttl = limit if limit is not None and (limit <= locks.settings.max_ttl or not renew) else None
    # As in the other libraries, a negative time is none, and 5000 are seconds.
    began, limit, wait = clock(), limit and float(limit), wait if wait is None else max(0.0, float(wait))
    lease = yield locks.lock(name, ttl=ttl, wait=wait, renew=renew, max_hold=limit if renew else None).acquire()
    # The key expires by the servers' time. A lock that was free was set after it was asked for.
    since = began + lease.waited if lease.contended else began
    return Held(lease, None if limit is None else since + limit, renew)


def longer(locks: Any, held: Held, seconds: float) -> Steps:
    """Move the end of a lease to that many seconds from now.

    Returns:
        The Held with its new end.

    Raises:
        LockLost: The lease is lost.
        NoQuorum: Too few servers answer.
        ConfigError: The lease is not renewed, and its key cannot last so long.
    """
    ends = clock() + seconds
    length = min(seconds, locks.settings.max_ttl) if held.renew else seconds
    yield held.lease.extend(length, max_hold=seconds)
    return held._replace(ends=ends)


def holder(locks: Any, name: str) -> Steps:
    """Ask who holds a lock. Returns a token or a foreign value; None if it is free."""
    return (yield locks.locked_by(name))


def confirmed(locks: Any, certain: int) -> bool:
    """Return whether that many nodes are a majority."""
    return certain > len(locks.nodes()) // 2
