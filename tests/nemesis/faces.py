"""Both faces as one, for the users of a process: coroutines, whichever client they use.

Knows the public API. Must not know what users do. With threads each user runs in one, and nothing that it awaits ever waits: a call
that blocks is made on the spot.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import holdfast
import holdfast.aio
from holdfast import LockBusy, LockLost, NoQuorum
from holdfast.errors import Cancelled

EXPECTED = (Cancelled, LockBusy, LockLost, NoQuorum)  # what a user has to live with


class Face(ABC):
    """A client, and how its users call it."""

    kind: Callable[..., Any]

    def __init__(self, urls: Sequence[str], options: dict[str, Any]) -> None:
        self.new: Callable[[], Any] = partial(self.kind, *urls, **options)
        self.locks = self.new()

    @abstractmethod
    def begin(self, users: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Have them all at work; returns at once."""

    @abstractmethod
    def finish(self) -> None:
        """Return when all have ended."""

    @abstractmethod
    def close(self, then: Callable[[holdfast.Stats], None] = lambda stats: None) -> None:
        """Close the client, and see what it counted."""

    @abstractmethod
    async def call(self, outcome: Any) -> Any:
        """What a method of the client has returned, once it is there."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None: ...

    @abstractmethod
    def block(self, of: Any) -> AbstractAsyncContextManager[Any]:
        """The `with` block of a client or a lock."""

    @abstractmethod
    async def given_up(self, lock: Any, after: float) -> Any:
        """Wait for a lock, at most so many seconds, in the way in which a third party ends a wait. Return the lease or None."""


class Threads(Face):
    """`holdfast.Holdfast`, and a thread for each user."""

    kind = holdfast.Holdfast

    def __init__(self, urls: Sequence[str], options: dict[str, Any]) -> None:
        super().__init__(urls, options)
        self._crowd: list[threading.Thread] = []

    def begin(self, users: Iterable[Coroutine[Any, Any, None]]) -> None:
        self._crowd = [threading.Thread(target=_to_its_end, args=(it,), daemon=True) for it in users]
        for thread in self._crowd:
            thread.start()

    def finish(self) -> None:
        for thread in self._crowd:
            thread.join()
        self._crowd.clear()

    def close(self, then: Callable[[holdfast.Stats], None] = lambda stats: None) -> None:
        self.locks.close()
        then(self.locks.stats())

    async def call(self, outcome: Any) -> Any:
        return outcome

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    @asynccontextmanager
    async def block(self, of: Any) -> AsyncIterator[Any]:
        with of as it:
            yield it

    async def given_up(self, lock: Any, after: float) -> Any:
        enough = threading.Event()
        timer = threading.Timer(after, enough.set)
        timer.start()
        try:
            return lock.acquire(cancel=enough)
        except Cancelled:
            return None
        finally:
            timer.cancel()
            timer.join()


class Asyncio(Face):
    """`holdfast.aio.Holdfast`, in a loop of its own, and a task for each user."""

    kind = holdfast.aio.Holdfast

    def __init__(self, urls: Sequence[str], options: dict[str, Any]) -> None:
        super().__init__(urls, options)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self._crowd: list[Any] = []

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def begin(self, users: Iterable[Coroutine[Any, Any, None]]) -> None:
        self._crowd = [asyncio.run_coroutine_threadsafe(it, self.loop) for it in users]

    def finish(self) -> None:
        for user in self._crowd:
            user.result()
        self._crowd.clear()

    def close(self, then: Callable[[holdfast.Stats], None] = lambda stats: None) -> None:
        asyncio.run_coroutine_threadsafe(self.locks.close(), self.loop).result()
        then(asyncio.run_coroutine_threadsafe(self._stats(), self.loop).result())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    async def _stats(self) -> holdfast.Stats:
        stats: holdfast.Stats = self.locks.stats()
        return stats

    async def call(self, outcome: Any) -> Any:
        return await outcome

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def block(self, of: Any) -> AbstractAsyncContextManager[Any]:
        it: AbstractAsyncContextManager[Any] = of
        return it

    async def given_up(self, lock: Any, after: float) -> Any:
        try:
            async with asyncio.timeout(after):
                return await lock.acquire()
        except TimeoutError:
            return None

    async def elsewhere(self, name: str) -> None:
        """The same client in another loop, which comes and goes."""
        thread = threading.Thread(target=asyncio.run, args=(self._visit(name),))
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.02)

    async def _visit(self, name: str) -> None:
        try:
            async with self.locks.lock(name):
                pass
        except EXPECTED:
            pass


FACES: dict[str, type[Threads] | type[Asyncio]] = {"threads": Threads, "asyncio": Asyncio}


def _to_its_end(user: Coroutine[Any, Any, None]) -> None:
    try:
        user.send(None)
    except StopIteration:
        return
    raise AssertionError("what a thread's user awaits must not wait")
