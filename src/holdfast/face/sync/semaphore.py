"""The description of a semaphore in the hands of threads.

Knows how a thread carries out a plan. Decides nothing.
"""

from __future__ import annotations

from ...drivers.threads.run import run
from ...operations.inspection.commands import PermitHolder
from .. import semaphore
from .lease import Lease
from .lock import Lock


class Semaphore(Lock, semaphore.Semaphore[Lease]):
    __slots__ = ()

    def available(self) -> int:
        return run(semaphore.available(self._driver.settings, self._slots), self._driver)

    def holders(self) -> tuple[PermitHolder, ...]:
        return run(semaphore.holders(self._driver.settings, self._slots), self._driver)
