"""The descriptions of latches and barriers, and how a thread arrives and waits at one.

Knows how a thread carries out a plan. Decides nothing.
"""

from __future__ import annotations

import threading

from ...drivers.threads.run import run
from . import plan as latch


class Latch(latch.Latch):
    __slots__ = ()

    def arrive(self, id: str | None = None) -> int:
        return run(latch.arrive(self._terms, id), *self._drivers)

    def wait(self, cancel: threading.Event | None = None) -> None:
        with self._surrounded():
            run(latch.wait(self._terms), *self._drivers, cancel=cancel)

    def arrived(self) -> int:
        return run(latch.arrived(self._terms), *self._drivers)

    def is_open(self) -> bool:
        return run(latch.is_open(self._terms), *self._drivers)


class Barrier(latch.Barrier):
    __slots__ = ()

    def wait(self, id: str, cancel: threading.Event | None = None) -> int:
        with self._surrounded():
            return run(latch.meet(self._terms, self._progress, id), *self._drivers, cancel=cancel)
