"""The description of a semaphore in the hands of tasks.

Knows how a task carries out a plan. Decides nothing.
"""

from __future__ import annotations

from ..face import semaphore
from ..recipes.looking import PermitHolder
from .asking import carry_out
from .lease import Lease
from .lock import Lock


class Semaphore(Lock, semaphore.Semaphore[Lease]):
    __doc__ = semaphore.Semaphore.__doc__
    __slots__ = ()

    async def available(self) -> int:
        driver = self._driver()
        return await carry_out(semaphore.available(driver.settings, self._slots), driver)

    async def holders(self) -> tuple[PermitHolder, ...]:
        driver = self._driver()
        return await carry_out(semaphore.holders(driver.settings, self._slots), driver)
