"""The descriptions of latches and barriers, and how a thread arrives and waits at one.

Knows how a thread carries out a plan. Decides nothing.
"""

from __future__ import annotations

import threading

from ...drivers.threads import Driver
from ...drivers.threads.run import run
from . import plan as latch
from .plan import LatchTerms


class Latch(latch.Latch):
    __doc__ = latch.Latch.__doc__
    __slots__ = ("_driver",)

    def __init__(self, terms: LatchTerms, driver: Driver) -> None:
        super().__init__(terms)
        self._driver = driver

    def arrive(self, id: str | None = None) -> int:
        return run(latch.arrive(self._terms, id), self._driver)

    def wait(self, cancel: threading.Event | None = None) -> None:
        with self._surrounded():
            run(latch.wait(self._terms), self._driver, cancel=cancel)

    def arrived(self) -> int:
        return run(latch.arrived(self._terms), self._driver)

    def is_open(self) -> bool:
        return run(latch.is_open(self._terms), self._driver)


class Barrier(latch.Barrier):
    __doc__ = latch.Barrier.__doc__
    __slots__ = ("_driver",)

    def __init__(self, terms: LatchTerms, driver: Driver) -> None:
        super().__init__(terms)
        self._driver = driver

    def wait(self, id: str, cancel: threading.Event | None = None) -> int:
        with self._surrounded():
            return run(latch.meet(self._terms, self._progress, id), self._driver, cancel=cancel)
