"""The descriptions of latches and barriers, and how a task arrives and waits at one.

Knows how a task carries out a plan. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from ..drivers.aio import Driver
from ..face import gathering
from ..face.gathering import Terms
from .asking import carry_out


class Latch(gathering.Latch):
    __doc__ = gathering.Latch.__doc__
    __slots__ = ("_driver",)

    def __init__(self, terms: Terms, driver: Callable[[], Driver]) -> None:
        super().__init__(terms)
        self._driver = driver  # that of the running loop

    async def arrive(self, id: str | None = None) -> int:
        return await carry_out(gathering.arrive(self._terms, id), self._driver())

    async def wait(self) -> None:
        await carry_out(gathering.wait(self._terms), self._driver())

    async def arrived(self) -> int:
        return await carry_out(gathering.arrived(self._terms), self._driver())

    async def is_open(self) -> bool:
        return await carry_out(gathering.is_open(self._terms), self._driver())


class Barrier(gathering.Barrier):
    __doc__ = gathering.Barrier.__doc__
    __slots__ = ("_driver",)

    def __init__(self, terms: Terms, driver: Callable[[], Driver]) -> None:
        super().__init__(terms)
        self._driver = driver

    async def wait(self, id: str) -> int:
        return await carry_out(gathering.meet(self._terms, self._progress, id), self._driver())
