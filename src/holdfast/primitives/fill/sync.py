"""The description of a fill, and how a thread gets its value.

Knows how a thread carries out a plan. Decides nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from ...drivers.threads.run import run
from ...face.sync.decorators import Through
from ...face.sync.lock import Lock
from . import plan as fill
from .plan import Found

T = TypeVar("T")
Compute = Callable[[], T]


class Fill(fill.Fill[T]):
    __slots__ = ()
    _lock: Lock
    _decorator = Through

    def get(self, cancel: threading.Event | None = None) -> Found[T]:
        with self._surrounded() as call:
            plan = fill.get(self._terms, lambda timing: self._lock._acquire(timing, None, True, cancel))
            found: Found[T] = run(plan, *self._drivers)
            call.returns(fill.how(found), waited=found.waited)
            return found

    def _value(self) -> T:
        return self.get().value

    def peek(self) -> Found[T] | None:
        return run(fill.peek(self._terms), *self._drivers)

    def invalidate(self, cancel: threading.Event | None = None) -> None:
        plan = fill.invalidate(self._terms, lambda timing: self._lock._acquire(timing, None, True, cancel))
        run(plan, *self._drivers)
