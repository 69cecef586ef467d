"""Elections in the hands of threads: who campaigns, who leads, who looks on.

Knows how a thread carries out a plan. Decides nothing.
"""

from __future__ import annotations

import threading
from typing import Self, cast

from ...checks import Seconds
from ...drivers.threads import Cancel, Driver
from ...drivers.threads.run import run
from ...face.sync.lease import Lease
from ...face.sync.lock import Lock
from ...face.terms import LockTerms
from . import plan as election
from .plan import Leader, View, spoken


class Leadership(election.Leadership, Lease):
    __slots__ = ("_speech",)

    def __init__(self, terms: LockTerms, driver: Driver) -> None:
        said, self._speech = spoken(terms)
        super().__init__(said, driver)

    def publish(self, value: str) -> None:
        run(election.publish(self._settings, self._speech, self, value), self._driver)

    def resign(self, confirm: bool = False) -> int:
        return self.release(confirm)


class Observation:
    """What `observe` returns: an iterable of Leaders.

    Each step of the loop waits for the next change.
    """

    __slots__ = ("_cancel", "_driver", "_view")

    def __init__(self, view: View, driver: Driver, cancel: Cancel | None) -> None:
        self._view, self._driver, self._cancel = view, driver, cancel

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Leader:
        leader = run(self._view.next(), self._driver, cancel=self._cancel)
        if leader is None:
            raise StopIteration
        return leader


class Election(Lock, election.Election[Lease]):
    __slots__ = ()
    _kind = Leadership

    def campaign(self, cancel: threading.Event | None = None) -> Leadership:
        return cast(Leadership, self.acquire(cancel))

    def __enter__(self) -> Leadership:
        return cast(Leadership, super().__enter__())

    def leader(self) -> Leader:
        return run(election.look(self._driver.settings, self._office), self._driver)

    def observe(self, wait: Seconds | None = None, cancel: threading.Event | None = None) -> Observation:
        return Observation(View(self._driver.settings, self._office, self.ttl, wait), self._driver, cancel)
