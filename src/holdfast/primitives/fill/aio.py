"""The description of a fill, and how a task gets its value.

Knows how a task carries out a plan. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from ...drivers.aio.run import run
from ...face.aio.lock import Lock
from ...face.decorators import Decorator, Function, Kind, LockOf
from . import plan as fill
from .plan import Found

T = TypeVar("T")
Compute = Callable[[], Awaitable[T] | T]


def _filled(function: Function, fill_of: LockOf, skip: bool) -> Function:
    async def decorated(*args: Any, **kwargs: Any) -> Any:
        return (await fill_of(*args, **kwargs)(partial(function, *args, **kwargs)).get()).value

    return decorated


class Filled(Decorator):
    """A decorator of coroutine functions: each call gets the value that is kept for its key.

    If there is none, the function computes it.
    """

    _runs = {Kind.COROUTINE: _filled}  # noqa: RUF012 (nobody changes it)
    _otherwise = (
        "a fill for asyncio decorates coroutine functions; plain functions need `from holdfast import Holdfast`"
    )


class Fill(fill.Fill[T]):
    __slots__ = ()
    _lock: Lock
    _decorator = Filled

    async def get(self) -> Found[T]:
        with self._surrounded() as call:
            plan = fill.get(self._terms, lambda timing: self._lock._acquire(timing, None, True))
            found: Found[T] = await run(plan, *self._drivers)
            call.returns(fill.how(found), waited=found.waited)
            return found

    async def peek(self) -> Found[T] | None:
        return await run(fill.peek(self._terms), *self._drivers)

    async def invalidate(self) -> None:
        await run(fill.invalidate(self._terms, lambda timing: self._lock._acquire(timing, None, True)), *self._drivers)
