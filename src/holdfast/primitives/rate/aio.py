"""The description of a rate, and how a task takes from it.

Knows how a task carries out a plan. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...drivers.aio.driver import Driver
from ...drivers.aio.run import run
from ...engine.plans import Plan
from ...face.aio.decorators import Limited, P, W
from . import plan as rate
from .plan import Allowance, RateTerms, answered

T = TypeVar("T")


class Rate(rate.Rate):
    __doc__ = rate.Rate.__doc__
    __slots__ = ("_drivers",)

    def __init__(self, limits: RateTerms, drivers: Sequence[Callable[[], Driver]]) -> None:
        super().__init__(limits)
        # For each shard that counts, a function that returns the driver of the running loop.
        self._drivers = drivers

    async def take(self, cost: int = 1) -> Allowance:
        with self._surrounded() as call:
            return answered(call, await self._carry_out(rate.take(self._limits, cost)))

    async def acquire(self, cost: int = 1) -> Allowance:
        with self._surrounded() as call:
            return answered(call, await self._carry_out(rate.acquire(self._limits, cost)))

    async def peek(self, cost: int = 1) -> Allowance:
        return await self._carry_out(rate.peek(self._limits, cost))

    async def reset(self) -> None:
        await self._carry_out(rate.reset(self._limits))

    async def _carry_out(self, plan: Plan[T]) -> T:
        return await run(plan, *[driver() for driver in self._drivers])

    def __call__(self, function: Callable[P, W]) -> Callable[P, W]:
        """Decorate a coroutine function, so that each call waits until the rate allows it.

        If its turn would come later than `wait` allows, the call raises RateLimited, and the
        function does not run.
        """
        return Limited(self._for)(function)
