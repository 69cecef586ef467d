"""The description of a fill, and how a thread gets its value.

Knows how a thread carries out a plan. Decides nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from ...drivers.threads import Driver
from ...drivers.threads.run import run
from ...face.sync.lock import Lock
from . import plan as fill
from .plan import FillTerms, Found

T = TypeVar("T")
Compute = Callable[[], T]


class Fill(fill.Fill[T]):
    __doc__ = fill.Fill.__doc__
    __slots__ = ("_driver", "_lock")

    def __init__(self, fills: FillTerms, lock: Lock, driver: Driver) -> None:
        super().__init__(fills)
        self._lock, self._driver = lock, driver

    def get(self, cancel: threading.Event | None = None) -> Found[T]:
        with self._surrounded(self._driver.settings) as call:
            plan = fill.get(self._fills, lambda timing: self._lock._acquire(timing, None, True, cancel))
            found: Found[T] = run(plan, self._driver)
            call.returns(fill.how(found), waited=found.waited)
            return found

    def peek(self) -> Found[T] | None:
        return run(fill.peek(self._fills), self._driver)

    def invalidate(self, cancel: threading.Event | None = None) -> None:
        run(fill.invalidate(self._fills, lambda timing: self._lock._acquire(timing, None, True, cancel)), self._driver)
