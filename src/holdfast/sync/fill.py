"""The description of a fill, and how a thread gets its value.

Knows how a thread carries out a plan. Decides nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from ..drivers.threads import Driver
from ..face import fill
from ..face.fill import Fills, Found
from .asking import carry_out
from .lock import Lock

T = TypeVar("T")
Compute = Callable[[], T]


class Fill(fill.Fill[T]):
    __doc__ = fill.Fill.__doc__
    __slots__ = ("_driver", "_lock")

    def __init__(self, fills: Fills, lock: Lock, driver: Driver) -> None:
        super().__init__(fills)
        self._lock, self._driver = lock, driver

    def get(self, cancel: threading.Event | None = None) -> Found[T]:
        return carry_out(fill.get(self._fills, lambda wait: self._lock._acquire(wait, True, cancel)), self._driver)

    def peek(self) -> Found[T] | None:
        return carry_out(fill.peek(self._fills), self._driver)

    def invalidate(self, cancel: threading.Event | None = None) -> None:
        carry_out(fill.invalidate(self._fills, lambda wait: self._lock._acquire(wait, True, cancel)), self._driver)
