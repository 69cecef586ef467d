"""The description of a fill, and how a task gets its value.

Knows how a task carries out a plan. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..drivers.aio import Driver
from ..face import fill
from ..face.fill import Fills, Found
from .asking import carry_out
from .lock import Lock

T = TypeVar("T")
Compute = Callable[[], Awaitable[T] | T]


class Fill(fill.Fill[T]):
    __doc__ = fill.Fill.__doc__
    __slots__ = ("_driver", "_lock")

    def __init__(self, fills: Fills, lock: Lock, driver: Callable[[], Driver]) -> None:
        super().__init__(fills)
        self._lock, self._driver = lock, driver  # that of the running loop

    async def get(self) -> Found[T]:
        return await carry_out(fill.get(self._fills, lambda wait: self._lock._acquire(wait, True)), self._driver())

    async def peek(self) -> Found[T] | None:
        return await carry_out(fill.peek(self._fills), self._driver())

    async def invalidate(self) -> None:
        await carry_out(fill.invalidate(self._fills, lambda wait: self._lock._acquire(wait, True)), self._driver())
