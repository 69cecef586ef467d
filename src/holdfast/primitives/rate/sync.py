"""The description of a rate, and how a thread takes from it.

Knows how a thread carries out a plan. Decides nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ...drivers.threads.run import run
from ...face.decorators import Decorator, Function, Kind, LockOf
from ...face.sync.decorators import P, R
from . import plan as rate
from .plan import Allowance, answered


def _limited(function: Function, rate_of: LockOf, skip: bool) -> Function:
    def decorated(*args: Any, **kwargs: Any) -> Any:
        rate_of(*args, **kwargs).acquire()
        return function(*args, **kwargs)

    return decorated


class Limited(Decorator):
    """A decorator of functions: each call waits until its rate allows it."""

    _runs = {Kind.FUNCTION: _limited}  # noqa: RUF012 (nobody changes it)
    _otherwise = "a rate for threads decorates plain functions; coroutines need `from holdfast.aio import Holdfast`"


class Rate(rate.Rate):
    __slots__ = ()
    _decorator = Limited

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

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function, so that each call waits until the rate allows it.

        If its turn would come later than `wait` allows, the call raises RateLimited, and the
        function does not run.
        """
        return Limited(self._for)(function)
