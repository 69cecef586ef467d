"""Both faces as one: what a test of the contract does with a client, whichever driver is under it.

A test is a coroutine, and says `await face.acquire(lock)`. With asyncio that is the lock's own coroutine; with threads it is
a blocking call, in a thread of its own for each.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from functools import partial, wraps
from typing import Any, TypeVar

from contract.cluster import Cluster

import holdfast
import holdfast.aio
from holdfast.clock import clock
from holdfast.embedded import Nodes

T = TypeVar("T")
Script = Generator[Callable[[], Any], Any, T]  # what one user does: it yields what is to be called, and is sent what that returns


async def in_a_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Call it in a new thread. (`asyncio.to_thread` has but a few, and users who wait would use them up.)"""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(set_outcome: Callable[[Any], None], what: object) -> None:
        if not outcome.done():
            set_outcome(what)

    def run() -> None:
        try:
            news: tuple[Callable[[Any], None], object] = outcome.set_result, work(*arguments)
        except BaseException as error:
            news = outcome.set_exception, error
        try:
            loop.call_soon_threadsafe(settle, *news)
        except RuntimeError:  # the test is over, and has failed: its loop is closed
            pass

    threading.Thread(target=run, daemon=True).start()
    return await outcome


class Block:
    """A `with` statement, as steps of a script: what the interpreter looks up, and when."""

    def __init__(self, lock: Any, kind: str = "") -> None:
        self._lock, self._kind = lock, kind
        self._exit: Any = None

    def enter(self) -> Any:
        self._exit = getattr(self._lock, f"__{self._kind}exit__")
        return getattr(self._lock, f"__{self._kind}enter__")()

    def leave(self, error: BaseException | None = None) -> Any:
        return self._exit(type(error) if error else None, error, None)


class Face(ABC):
    """A driver and its face, as tests use them."""

    kind: Callable[..., Any]  # the client

    def __init__(self) -> None:
        self._clients: list[Any] = []

    # ------------------------------------------------ the world

    def now(self) -> float:
        """The clock that leases are measured on."""
        return clock()

    def wall(self) -> float:
        """The wall clock that clients begin with."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def until(self, condition: Callable[[], object], within: float = 15.0) -> None:
        """Wait until the condition holds; the test fails if it does not in time."""
        deadline = self.now() + within
        while not condition():
            assert self.now() < deadline, f"in {within:g} s this did not come true: {condition}"
            await self.sleep(0.005)

    async def until_lost(self, lease: Any, within: float = 15.0) -> None:
        """Wait for the lease's own event."""
        await self.until(lease.lost.is_set, within)

    @asynccontextmanager
    async def nodes(self, count: int, *arguments: str, tcp: bool = False) -> AsyncIterator[Cluster]:
        """Nodes of the test's own."""
        with Cluster(Nodes(count, arguments=arguments, tcp=tcp)) as cluster:
            try:
                yield cluster
            finally:
                await self.finish()  # while there is somebody to say goodbye to

    # ------------------------------------------------ clients

    def client(self, nodes: Cluster, **options: Any) -> Any:
        """A client of all these nodes, closed when the test ends."""
        return self.keep(self.kind(*nodes.urls, **options))

    def spread(self, shards: dict[str, Cluster], previous: dict[str, Cluster] | None = None, **options: Any) -> Any:
        """A client of several sets of nodes, by what they are called."""
        sets, former = ({name: it.urls for name, it in them.items()} for them in (shards, previous or {}))
        return self.keep(self.kind(shards=sets, previous=former, **options))

    async def connected(self, nodes: Cluster, **options: Any) -> Any:
        """The same, once it speaks with every node. (A lock that is acquired sooner is first asked of a bare majority.)"""
        client = self.client(nodes, **options)
        await self.ready(client)
        return client

    def drivers(self, client: Any) -> list[Any]:
        """All that read a clock for this client."""
        return [it for driver in client._drivers for it in (driver, driver.io_thread)]

    def set_wall(self, client: Any, seconds: float) -> None:
        """Set the wall clock of this client, forward or back."""
        for it in self.drivers(client):
            it.wall = partial(_later, it.wall, seconds)

    def keep(self, client: Any) -> Any:
        """Close this client when the test ends."""
        self._clients.append(client)
        return client

    async def finish(self) -> None:
        """The test is over."""
        while self._clients:
            await self.close(self._clients.pop())

    # ------------------------------------------------ what waits

    @abstractmethod
    async def call(self, waits: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a method that waits, as one user of its own."""

    @abstractmethod
    async def within(self, lock: Any, body: Callable[[Any], Awaitable[T]]) -> T:
        """`with lock as lease:` the body, as one user of its own."""

    @abstractmethod
    async def user(self, client: Any, script: Script[T]) -> T:
        """Play a script, as one user of this client: all of it in one thread or task."""

    @abstractmethod
    def function(self, does: Callable[..., Any]) -> Any:
        """A function of this face's kind that does the same. One that yields is a script, which the function plays."""

    @abstractmethod
    def block(self, lock: Any) -> Block:
        """A `with` statement for a script."""

    async def acquire(self, lock: Any) -> Any:
        """`lock.acquire()`"""
        return await self.call(lock.acquire)

    async def try_acquire(self, lock: Any) -> Any:
        """`lock.try_acquire()`"""
        return await self.call(lock.try_acquire)

    async def release(self, lease: Any, confirm: bool = False) -> int:
        """`lease.release()`"""
        count: int = await self.call(lease.release, confirm)
        return count

    async def extend(self, lease: Any, *ttl: Any, **max_hold: Any) -> float:
        """`lease.extend()`"""
        remaining: float = await self.call(lease.extend, *ttl, **max_hold)
        return remaining

    async def ready(self, client: Any, *wait: Any) -> Any:
        """`client.ready()`"""
        return await self.call(client.ready, *wait)

    async def close(self, client: Any) -> None:
        """`client.close()`"""
        await self.call(client.close)


def _later(wall: Callable[[], float], seconds: float) -> float:
    return wall() + seconds


class Threads(Face):
    """`holdfast.Holdfast`: each user is a thread."""

    kind = holdfast.Holdfast

    async def call(self, waits: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return await in_a_thread(partial(waits, **options), *arguments)

    async def within(self, lock: Any, body: Callable[[Any], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()

        def use() -> T:
            with lock as lease:  # the thread stays in the block while the body runs in the test's loop
                return asyncio.run_coroutine_threadsafe(body(lease), loop).result()  # type: ignore[arg-type]  # (a coroutine in this face)

        return await in_a_thread(use)

    async def user(self, client: Any, script: Script[T]) -> T:
        return await in_a_thread(play, script)

    def function(self, does: Callable[..., Any]) -> Any:
        if not inspect.isgeneratorfunction(does):
            return does
        return wraps(does)(lambda *args, **kwargs: play(does(*args, **kwargs)))

    def block(self, lock: Any) -> Block:
        return Block(lock)


def play(script: Script[T]) -> T:
    """What a script returns."""
    try:
        step = next(script)
        while True:
            try:
                value = step()
            except BaseException as error:
                step = script.throw(error)
            else:
                step = script.send(value)
    except StopIteration as end:
        outcome: T = end.value
        return outcome


async def played(script: Script[T]) -> T:
    """A script whose steps have to be awaited, unless they are no coroutines."""
    try:
        step = next(script)
        while True:
            try:
                value = step()
                if inspect.isawaitable(value):
                    value = await value
            except BaseException as error:
                step = script.throw(error)
            else:
                step = script.send(value)
    except StopIteration as end:
        outcome: T = end.value
        return outcome


class Asyncio(Face):
    """`holdfast.aio.Holdfast`: each user is a task."""

    kind = holdfast.aio.Holdfast

    def drivers(self, client: Any) -> list[Any]:
        return [driver() for driver in client._ways]

    async def call(self, waits: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return await waits(*arguments, **options)

    async def within(self, lock: Any, body: Callable[[Any], Awaitable[T]]) -> T:
        async with lock as lease:
            return await body(lease)

    async def user(self, client: Any, script: Script[T]) -> T:
        return await asyncio.create_task(played(script))

    def function(self, does: Callable[..., Any]) -> Any:
        @wraps(does)
        async def done(*args: Any, **kwargs: Any) -> Any:
            found = does(*args, **kwargs)
            return await played(found) if inspect.isgenerator(found) else found

        return done

    def block(self, lock: Any) -> Block:
        return Block(lock, "a")


FACES: dict[str, type[Face]] = {"threads": Threads, "asyncio": Asyncio}
