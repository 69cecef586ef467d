"""The description of a semaphore in the hands of tasks.

Knows how a task carries out a plan. Decides nothing.
"""

from __future__ import annotations

from ...drivers.aio.run import run
from ...operations.inspection.commands import PermitHolder
from .. import semaphore
from .lease import Lease
from .lock import Lock


class Semaphore(Lock, semaphore.Semaphore[Lease]):
    __doc__ = semaphore.Semaphore.__doc__
    __slots__ = ()

    async def available(self) -> int:
        driver = self._driver()
        return await run(semaphore.available(driver.settings, self._slots), driver)

    async def holders(self) -> tuple[PermitHolder, ...]:
        driver = self._driver()
        return await run(semaphore.holders(driver.settings, self._slots), driver)
