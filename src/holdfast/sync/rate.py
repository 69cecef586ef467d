"""The description of a rate, and how a thread takes from it.

Knows how a thread carries out a plan. Decides nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ..drivers.threads import Driver
from ..face import rate
from ..face.rate import Allowance, Limits
from .asking import carry_out
from .decorating import Limited, P, R


class Rate(rate.Rate):
    __doc__ = rate.Rate.__doc__
    __slots__ = ("_drivers",)

    def __init__(self, limits: Limits, drivers: Sequence[Driver]) -> None:
        super().__init__(limits)
        self._drivers = drivers  # one for each set of nodes that counts

    def take(self, cost: int = 1) -> Allowance:
        return carry_out(rate.take(self._limits, cost), *self._drivers)

    def acquire(self, cost: int = 1, cancel: threading.Event | None = None) -> Allowance:
        return carry_out(rate.acquire(self._limits, cost), *self._drivers, cancel=cancel)

    def peek(self, cost: int = 1) -> Allowance:
        return carry_out(rate.peek(self._limits, cost), *self._drivers)

    def reset(self) -> None:
        carry_out(rate.reset(self._limits), *self._drivers)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function: each call waits until it is allowed, as long as `wait` says. RateLimited: it was not called."""
        return Limited(self._for)(function)
