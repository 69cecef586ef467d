"""The descriptions of latches and barriers, and how a task arrives and waits at one.

Knows how a task carries out a plan. Decides nothing.
"""

from __future__ import annotations

from ...drivers.aio.run import run
from . import plan as latch


class Latch(latch.Latch):
    __slots__ = ()

    async def arrive(self, id: str | None = None) -> int:
        return await run(latch.arrive(self._terms, id), *self._drivers)

    async def wait(self) -> None:
        with self._surrounded():
            await run(latch.wait(self._terms), *self._drivers)

    async def arrived(self) -> int:
        return await run(latch.arrived(self._terms), *self._drivers)

    async def is_open(self) -> bool:
        return await run(latch.is_open(self._terms), *self._drivers)


class Barrier(latch.Barrier):
    __slots__ = ()

    async def wait(self, id: str) -> int:
        with self._surrounded():
            return await run(latch.meet(self._terms, self._progress, id), *self._drivers)
