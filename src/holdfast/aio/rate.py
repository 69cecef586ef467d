"""The description of a rate, and how a task takes from it.

Knows how a task carries out a plan. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from ..drivers.aio import Driver
from ..face import rate
from ..face.rate import Allowance, Limits
from .asking import carry_out
from .decorating import Limited, P, W


class Rate(rate.Rate):
    __doc__ = rate.Rate.__doc__
    __slots__ = ("_driver",)

    def __init__(self, limits: Limits, driver: Callable[[], Driver]) -> None:
        super().__init__(limits)
        self._driver = driver  # that of the running loop

    async def take(self, cost: int = 1) -> Allowance:
        return await carry_out(rate.take(self._limits, cost), self._driver())

    async def acquire(self, cost: int = 1) -> Allowance:
        return await carry_out(rate.acquire(self._limits, cost), self._driver())

    def __call__(self, function: Callable[P, W]) -> Callable[P, W]:
        """Decorate a coroutine function: each call waits until it is allowed, as long as `wait` says. RateLimited: it was not called."""
        return Limited(self._for)(function)
