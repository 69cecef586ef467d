"""What users do all day, with either face: walk through fresh names, crowd around a few, try, wait, give up, enter again, hold for long.

Knows the public API. Must not know nodes, faults or processes: whatever goes wrong is counted, and what must not happen is told.

Users are coroutines. With threads each runs in one, and nothing that it awaits ever waits: a call that blocks is made on the spot.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import holdfast
import holdfast.aio
from holdfast import HoldfastError, LockBusy, LockLost, NoQuorum
from holdfast.clock import clock
from holdfast.errors import Cancelled

from .ledger import Ledger

HOT = 32  # the first names: those that all want
EXPECTED = (Cancelled, LockBusy, LockLost, NoQuorum)  # what a user has to live with


def name_of(number: int) -> str:
    """A name, from its number in the ledger."""
    return f"soak:{number}"


def number_of(name: str) -> int:
    """The other way round."""
    return int(name.rpartition(":")[2])


# ------------------------------------------------ both faces as one


class Face(ABC):
    """A client, and how its users call it."""

    kind: Callable[..., Any]

    def __init__(self, urls: Sequence[str], options: dict[str, Any]) -> None:
        self.new: Callable[[], Any] = partial(self.kind, *urls, **options, observer=_listen)
        self.locks = self.new()

    @abstractmethod
    def begin(self, users: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Have them all at work; returns at once."""

    @abstractmethod
    def finish(self) -> None:
        """Return when all have ended."""

    @abstractmethod
    def close(self) -> None:
        """Close the client."""

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
        """Wait for a lock, at most so many seconds, in the way of whoever ends another's wait. The lease or None."""


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

    def close(self) -> None:
        self.locks.close()

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

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.locks.close(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

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


def _listen(event: object) -> None:
    """An observer: with one, every event is made."""


def _to_its_end(user: Coroutine[Any, Any, None]) -> None:
    try:
        user.send(None)
    except StopIteration:
        return
    raise AssertionError("what a thread's user awaits must not wait")


# ------------------------------------------------ users


class Walk:
    """The fresh names of one process: every so-manieth, beyond the hot ones, again and again. `fresh`: how many it has taken."""

    def __init__(self, names: int, slot: int, slots: int, first: int) -> None:
        self._names, self._slot, self._slots = max(1, (names - HOT) // slots), slot, slots
        self._next = itertools.count(first)
        self.fresh = first

    def __next__(self) -> int:
        self.fresh = step = next(self._next)
        return HOT + self._slot + step % self._names * self._slots


class User:
    """One of them. `cycles`: things done; `holds`: leases; `trouble`: what they had to live with; `wrong`: what must not happen."""

    def __init__(self, face: Face, walk: Walk, ledger: Ledger, ttl: float, dice: random.Random) -> None:
        self._face, self._walk, self._ledger, self._ttl, self._dice = face, walk, ledger, ttl, dice
        self.cycles = self.holds = 0
        self.trouble: Counter[str] = Counter()
        self.wrong: list[str] = []

    async def work(self, over: threading.Event) -> None:
        """One thing after the other."""
        acts, weights = [getattr(self, it) for it in ACTS], list(ACTS.values())
        while not over.is_set():
            (act,) = self._dice.choices(acts, weights)
            try:
                await act()
            except EXPECTED as error:
                self.trouble[type(error).__name__] += 1
            except (Exception, asyncio.CancelledError) as error:
                self.wrong.append(f"{act.__name__}: {error!r}")
                if isinstance(error, HoldfastError):
                    await self._face.sleep(0.1)
            self.cycles += 1

    # what one does

    async def walk(self) -> None:
        """Lock a fresh name, and leave it."""
        async with self._block(next(self._walk)):
            pass

    async def crowd(self) -> None:
        """Wait for a name that others want."""
        async with self._block(self._hot(), wait=self._dice.uniform(0.0, 2.0)):
            await self._face.sleep(self._dice.uniform(0.0, 0.01))

    async def several(self) -> None:
        """Lock some fresh names and one that others want."""
        async with self._block(next(self._walk), next(self._walk), self._hot(), wait=1.0):
            pass

    async def glance(self) -> None:
        """Try once."""
        lock = self._lock(self._hot())
        if (lease := await self._face.call(lock.try_acquire())) is not None:
            await self._hold(lease)

    async def again(self) -> None:
        """Enter a lock again."""
        number = self._hot()
        async with self._block(number, wait=1.0, reentrant=True):
            async with self._face.block(self._lock(number, wait=1.0, reentrant=True)):
                pass

    async def stay(self) -> None:
        """Hold a lock for longer than a lease."""
        async with self._block(next(self._walk), seconds=self._ttl * 1.3):
            pass

    async def overstay(self) -> None:
        """Hold a lock for longer than it may be held."""
        async with self._block(next(self._walk), seconds=self._ttl * 0.4, max_hold=self._ttl * 0.2):
            pass

    async def extend(self) -> None:
        """Extend a lease; and give it back for certain."""
        lease = await self._face.call(self._lock(next(self._walk)).acquire())
        try:
            self._enter(lease)
            await self._face.call(lease.extend())
        finally:
            self._leave(lease)
            await self._face.call(lease.release(confirm=True))

    async def give_up(self) -> None:
        """Wait for a lock, and be cancelled."""
        lease = await self._face.given_up(self._lock(self._hot()), self._dice.uniform(0.0, 0.02))
        if lease is not None:
            await self._hold(lease)

    async def drop(self) -> None:
        """Forget a lease."""
        lease = await self._face.call(self._lock(next(self._walk)).acquire())
        self._enter(lease)

    async def look(self) -> None:
        """Look at locks."""
        name = name_of(self._hot())
        await self._face.call(self._face.locks.is_locked(name))
        await self._face.call(self._face.locks.inspect(name))

    async def come_and_go(self) -> None:
        """Make a client, use it, and close it."""
        async with self._face.block(self._face.new()) as locks, self._face.block(locks.lock(name_of(next(self._walk)), wait=5.0)):
            pass
        if isinstance(self._face, Asyncio):
            await self._face.elsewhere(name_of(next(self._walk)))

    # how

    def _hot(self) -> int:
        return self._dice.randrange(HOT)

    def _lock(self, *numbers: int, **options: Any) -> Any:
        return self._face.locks.lock(*map(name_of, numbers), ttl=self._ttl, on_lost=self._leave, **options)

    @asynccontextmanager
    async def _block(self, *numbers: int, seconds: float = 0.0, **options: Any) -> AsyncIterator[Any]:
        async with self._face.block(self._lock(*numbers, **options)) as lease:
            self._enter(lease)
            try:
                over = clock() + seconds
                while clock() < over:
                    await self._face.sleep(self._ttl / 10)
                    lease.check()
                    for name, fence in lease.fences.items():
                        self._ledger.renew(number_of(name), fence, lease)
                yield lease
            finally:
                self._leave(lease)

    async def _hold(self, lease: Any) -> None:
        self._enter(lease)
        self._leave(lease)
        await self._face.call(lease.release())

    def _enter(self, lease: Any) -> None:
        self.holds += 1
        for name, fence in lease.fences.items():
            self._ledger.enter(number_of(name), fence, lease)

    def _leave(self, lease: Any) -> None:
        for name, fence in lease.fences.items():
            self._ledger.leave(number_of(name), fence)


ACTS = {  # how often, of 1,000
    "walk": 760, "crowd": 100, "several": 30, "glance": 40, "again": 20, "stay": 3, "overstay": 2, "extend": 15, "give_up": 20, "drop": 2,
    "look": 6, "come_and_go": 2,
}  # fmt: skip
