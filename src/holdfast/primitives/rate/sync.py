"""The description of a rate, and how a thread takes from it.

Knows how a thread carries out a plan. Decides nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...drivers.threads.run import run
from ...face.sync.decorators import P, R, Through
from . import plan as rate
from .plan import Allowance, answered


class Rate(rate.Rate):
    __slots__ = ()
    _decorator = Through

    def take(self, cost: int = 1) -> Allowance:
        with self._surrounded() as call:
            return answered(call, run(rate.take(self._terms, cost), *self._drivers))

    def acquire(self, cost: int = 1, cancel: threading.Event | None = None) -> Allowance:
        with self._surrounded() as call:
            return answered(call, run(rate.acquire(self._terms, cost), *self._drivers, cancel=cancel))

    def peek(self, cost: int = 1) -> Allowance:
        return run(rate.peek(self._terms, cost), *self._drivers)

    def reset(self) -> None:
        run(rate.reset(self._terms), *self._drivers)

    def _call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function when the rate allows it."""
        self.acquire()
        return function(*args, **kwargs)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function, so that each call waits until the rate allows it.

        If its turn would come later than `wait` allows, the call raises RateLimited, and the
        function does not run.
        """
        return Through(self._for, "rate")(function)
