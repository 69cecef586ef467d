"""The description of a fill, and how a task gets its value.

Knows how a task carries out a plan. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...drivers.aio.run import run
from ...face.aio.decorators import Through
from ...face.aio.lock import Lock
from . import plan as fill
from .plan import Found

T = TypeVar("T")
Compute = Callable[[], Awaitable[T] | T]


class Fill(fill.Fill[T]):
    __slots__ = ()
    _lock: Lock
    _decorator = Through

    async def get(self) -> Found[T]:
        with self._surrounded() as call:
            plan = fill.get(self._terms, lambda timing: self._lock._acquire(timing, None, True))
            found: Found[T] = await run(plan, *self._drivers)
            call.returns(fill.how(found), waited=found.waited)
            return found

    async def _value(self) -> T:
        return (await self.get()).value

    async def peek(self) -> Found[T] | None:
        return await run(fill.peek(self._terms), *self._drivers)

    async def invalidate(self) -> None:
        await run(fill.invalidate(self._terms, lambda timing: self._lock._acquire(timing, None, True)), *self._drivers)
