"""What users do all day, with either face: walk through fresh names, crowd around a few, try, wait, give up, enter again, hold for long.

Knows the public API. Must not know nodes, faults or processes: whatever goes wrong is counted, and what must not happen is told.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from nemesis.faces import EXPECTED, Asyncio, Face

from holdfast import HoldfastError
from holdfast.clock import clock

from .ledger import Ledger

HOT = 32  # the first names: those that all want


def name_of(number: int) -> str:
    """A name, from its number in the ledger."""
    return f"soak:{number}"


def number_of(name: str) -> int:
    """The other way round."""
    return int(name.rpartition(":")[2])


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
