"""The description of a semaphore in the hands of tasks.

Knows how a task carries out a plan. Decides nothing.
"""

from __future__ import annotations

from ..base import semaphore
from ..recipes.inspection import PermitHolder
from .lease import Lease
from .lock import Lock
from .waiting import run


class Semaphore(Lock, semaphore.Semaphore[Lease]):
    __doc__ = semaphore.Semaphore.__doc__
    __slots__ = ()

    async def available(self) -> int:
        driver = self._driver()
        return await run(semaphore.available(driver.settings, self._slots), driver)

    async def holders(self) -> tuple[PermitHolder, ...]:
        driver = self._driver()
        return await run(semaphore.holders(driver.settings, self._slots), driver)
