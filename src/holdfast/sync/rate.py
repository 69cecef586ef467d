"""The description of a rate, and how a thread takes from it.

Knows how a thread carries out a plan. Decides nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..drivers.threads import Driver
from ..face import rate
from ..face.rate import Allowance, Limits
from .asking import carry_out
from .decorating import Limited, P, R


class Rate(rate.Rate):
    __doc__ = rate.Rate.__doc__
    __slots__ = ("_driver",)

    def __init__(self, limits: Limits, driver: Driver) -> None:
        super().__init__(limits)
        self._driver = driver

    def take(self, cost: int = 1) -> Allowance:
        return carry_out(rate.take(self._limits, cost), self._driver)

    def acquire(self, cost: int = 1, cancel: threading.Event | None = None) -> Allowance:
        return carry_out(rate.acquire(self._limits, cost), self._driver, cancel=cancel)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function: each call waits until it is allowed, as long as `wait` says. RateLimited: it was not called."""
        return Limited(self._for)(function)
