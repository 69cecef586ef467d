"""The description of a rate, and how a task takes from it.

Knows how a task carries out a plan. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...drivers.aio.run import run
from ...face.aio.decorators import P, Through, W
from . import plan as rate
from .plan import Allowance, answered


class Rate(rate.Rate):
    __slots__ = ()
    _decorator = Through

    async def take(self, cost: int = 1) -> Allowance:
        with self._surrounded() as call:
            return answered(call, await run(rate.take(self._terms, cost), *self._drivers))

    async def acquire(self, cost: int = 1) -> Allowance:
        with self._surrounded() as call:
            return answered(call, await run(rate.acquire(self._terms, cost), *self._drivers))

    async def peek(self, cost: int = 1) -> Allowance:
        return await run(rate.peek(self._terms, cost), *self._drivers)

    async def reset(self) -> None:
        await run(rate.reset(self._terms), *self._drivers)

    async def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function when the rate allows it."""
        await self.acquire()
        return await function(*args, **kwargs)

    def __call__(self, function: Callable[P, W]) -> Callable[P, W]:
        """Decorate a coroutine function, so that each call waits until the rate allows it.

        If its turn would come later than `wait` allows, the call raises RateLimited, and the
        function does not run.
        """
        return Through(self._for, "rate")(function)
