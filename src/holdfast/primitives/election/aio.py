"""Elections in the hands of tasks: who campaigns, who leads, who looks on.

Knows how a task carries out a plan. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, cast

from ...checks import Seconds
from ...drivers.aio.driver import Driver
from ...drivers.aio.run import run
from ...face.aio.lease import Lease
from ...face.aio.lock import Lock
from ...face.terms import LockTerms
from . import plan as election
from .plan import Leader, View, spoken


class Leadership(election.Leadership, Lease):
    __slots__ = ("_speech",)

    def __init__(self, terms: LockTerms, driver: Driver) -> None:
        said, self._speech = spoken(terms)
        super().__init__(said, driver)

    async def publish(self, value: str) -> None:
        await run(election.publish(self._settings, self._speech, self, value), lambda: self._driver)

    async def resign(self, confirm: bool = False) -> int:
        return await self.release(confirm)


class Observation:
    """What `observe` returns: an iterable of Leaders.

    Each step of the loop waits for the next change.
    """

    __slots__ = ("_driver", "_view")

    def __init__(self, view: View, driver: Callable[[], Driver]) -> None:
        self._view, self._driver = view, driver

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Leader:
        leader = await run(self._view.next(), self._driver)
        if leader is None:
            raise StopAsyncIteration
        return leader


class Election(Lock, election.Election[Lease]):
    __slots__ = ()
    _kind = Leadership

    async def campaign(self) -> Leadership:
        return cast(Leadership, await self.acquire())

    async def __aenter__(self) -> Leadership:
        return cast(Leadership, await super().__aenter__())

    async def leader(self) -> Leader:
        return await run(election.look(self._driver().settings, self._office), self._driver)

    def observe(self, wait: Seconds | None = None) -> Observation:
        driver = self._driver()
        return Observation(View(driver.settings, self._office, self.ttl, wait), lambda: driver)
