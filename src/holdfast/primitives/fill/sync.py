"""The description of a fill, and how a thread gets its value.

Knows how a thread carries out a plan. Decides nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from ...drivers.threads.run import run
from ...face.decorators import Decorator, Function, Kind, LockOf
from ...face.sync.lock import Lock
from . import plan as fill
from .plan import Found

T = TypeVar("T")
Compute = Callable[[], T]


def _filled(function: Function, fill_of: LockOf, skip: bool) -> Function:
    def decorated(*args: Any, **kwargs: Any) -> Any:
        return fill_of(*args, **kwargs)(partial(function, *args, **kwargs)).get().value

    return decorated


class Filled(Decorator):
    """A decorator of functions: each call gets the value that is kept for its key.

    If there is none, the function computes it.
    """

    _runs = {Kind.FUNCTION: _filled}  # noqa: RUF012 (nobody changes it)
    _otherwise = "a fill for threads decorates plain functions; coroutines need `from holdfast.aio import Holdfast`"


class Fill(fill.Fill[T]):
    __slots__ = ()
    _lock: Lock
    _decorator = Filled

    def get(self, cancel: threading.Event | None = None) -> Found[T]:
        with self._surrounded() as call:
            plan = fill.get(self._terms, lambda timing: self._lock._acquire(timing, None, True, cancel))
            found: Found[T] = run(plan, *self._drivers)
            call.returns(fill.how(found), waited=found.waited)
            return found

    def peek(self) -> Found[T] | None:
        return run(fill.peek(self._terms), *self._drivers)

    def invalidate(self, cancel: threading.Event | None = None) -> None:
        plan = fill.invalidate(self._terms, lambda timing: self._lock._acquire(timing, None, True, cancel))
        run(plan, *self._drivers)
