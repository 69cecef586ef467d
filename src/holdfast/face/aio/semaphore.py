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
    __slots__ = ()

    async def available(self) -> int:
        return await run(semaphore.available(self._driver().settings, self._slots), self._driver)

    async def holders(self) -> tuple[PermitHolder, ...]:
        return await run(semaphore.holders(self._driver().settings, self._slots), self._driver)
