"""The description of a fill, and how a task gets its value.

Knows how a task carries out a plan. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...drivers.aio.driver import Driver
from ...drivers.aio.run import run
from ...face.aio.lock import Lock
from . import plan as fill
from .plan import FillTerms, Found

T = TypeVar("T")
Compute = Callable[[], Awaitable[T] | T]


class Fill(fill.Fill[T]):
    __doc__ = fill.Fill.__doc__
    __slots__ = ("_driver", "_lock")

    def __init__(self, fills: FillTerms, lock: Lock, driver: Callable[[], Driver]) -> None:
        super().__init__(fills)
        # Returns the driver of the running loop.
        self._lock, self._driver = lock, driver

    async def get(self) -> Found[T]:
        driver = self._driver()
        with self._surrounded(driver.settings) as call:
            plan = fill.get(self._fills, lambda timing: self._lock._acquire(timing, None, True))
            found: Found[T] = await run(plan, driver)
            call.returns(fill.how(found), waited=found.waited)
            return found

    async def peek(self) -> Found[T] | None:
        return await run(fill.peek(self._fills), self._driver())

    async def invalidate(self) -> None:
        await run(fill.invalidate(self._fills, lambda timing: self._lock._acquire(timing, None, True)), self._driver())
