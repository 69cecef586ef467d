"""The descriptions of latches and barriers, and how a thread arrives and waits at one.

Knows how a thread carries out a plan. Decides nothing.
"""

from __future__ import annotations

import threading

from ..drivers.threads import Driver
from ..face import gathering
from ..face.gathering import Terms
from .asking import carry_out


class Latch(gathering.Latch):
    __doc__ = gathering.Latch.__doc__
    __slots__ = ("_driver",)

    def __init__(self, terms: Terms, driver: Driver) -> None:
        super().__init__(terms)
        self._driver = driver

    def arrive(self, id: str | None = None) -> int:
        return carry_out(gathering.arrive(self._terms, id), self._driver)

    def wait(self, cancel: threading.Event | None = None) -> None:
        carry_out(gathering.wait(self._terms), self._driver, cancel=cancel)

    def arrived(self) -> int:
        return carry_out(gathering.arrived(self._terms), self._driver)

    def is_open(self) -> bool:
        return carry_out(gathering.is_open(self._terms), self._driver)


class Barrier(gathering.Barrier):
    __doc__ = gathering.Barrier.__doc__
    __slots__ = ("_driver",)

    def __init__(self, terms: Terms, driver: Driver) -> None:
        super().__init__(terms)
        self._driver = driver

    def wait(self, id: str, cancel: threading.Event | None = None) -> int:
        return carry_out(gathering.meet(self._terms, self._progress, id), self._driver, cancel=cancel)
