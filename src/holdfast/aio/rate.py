"""The description of a rate, and how a task takes from it.

Knows how a task carries out a plan. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ..drivers.aio import Driver
from ..face import rate
from ..face.plans import Plan
from ..face.rate import Allowance, Limits
from .asking import carry_out
from .decorating import Limited, P, W

T = TypeVar("T")


class Rate(rate.Rate):
    __doc__ = rate.Rate.__doc__
    __slots__ = ("_drivers",)

    def __init__(self, limits: Limits, drivers: Sequence[Callable[[], Driver]]) -> None:
        super().__init__(limits)
        self._drivers = drivers  # for each set of nodes that counts, the one of the running loop

    async def take(self, cost: int = 1) -> Allowance:
        return await self._carry_out(rate.take(self._limits, cost))

    async def acquire(self, cost: int = 1) -> Allowance:
        return await self._carry_out(rate.acquire(self._limits, cost))

    async def peek(self, cost: int = 1) -> Allowance:
        return await self._carry_out(rate.peek(self._limits, cost))

    async def reset(self) -> None:
        await self._carry_out(rate.reset(self._limits))

    async def _carry_out(self, plan: Plan[T]) -> T:
        return await carry_out(plan, *[driver() for driver in self._drivers])

    def __call__(self, function: Callable[P, W]) -> Callable[P, W]:
        """Decorate a coroutine function: each call waits until it is allowed, as long as `wait` says. RateLimited: it was not called."""
        return Limited(self._for)(function)
