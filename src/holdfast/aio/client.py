"""The client for asyncio.

Knows the asyncio driver, of which there is one for each event loop. Decides nothing.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self, TypeVar

from ..checks import Seconds, seconds
from ..drivers.aio import Driver
from ..engine.crew import NodeStatus
from ..engine.record import Stats
from ..errors import Closed
from ..face import client, looking
from ..face.agreements import Agreements
from ..face.inside import Inside
from ..face.looking import Plan
from ..face.rate import Limits
from ..face.terms import Terms
from ..recipes.looking import LockStatus
from ..version import VERSION
from .asking import carry_out
from .decorating import Locked, Skipping
from .lease import Lease
from .lock import Lock
from .rate import Rate

T = TypeVar("T")


class Holdfast(client.Client[Lock, Locked, Skipping, Rate]):
    __doc__ = client.Client.__doc__
    _locked, _skipping = Locked, Skipping

    def _prepare(self) -> None:
        self._inside: Inside[Lease] = Inside()
        self._agreements = Agreements(self.settings)
        self._drivers: dict[asyncio.AbstractEventLoop, Driver] = {}
        self._closed = False

    def _describe(self, terms: Terms) -> Lock:
        return Lock(terms, self._inside, self._agreements, self._driver)

    def _driver(self) -> Driver:
        """That of the running loop, and of this process; those of loops that were closed are forgotten."""
        loop = asyncio.get_running_loop()
        driver = self._drivers.get(loop)
        if driver is None or driver.gone:
            if self._closed:
                raise Closed("this client was closed")
            for at in list(self._drivers):  # (one C call each: loops in other threads come and go meanwhile)
                if at.is_closed():
                    self._drivers.pop(at, None)
            driver = self._drivers[loop] = Driver(self.settings, self._access, self._teller, self._teller.wants_all, VERSION)
        return driver

    def _limit(self, limits: Limits) -> Rate:
        return Rate(limits, self._driver)

    def nodes(self) -> tuple[NodeStatus, ...]:
        return self._driver().status()

    def stats(self) -> Stats:
        return self._driver().stats()

    async def inspect(self, name: str) -> LockStatus:
        return await self._look(looking.inspect(self.settings, name))

    async def locked_by(self, name: str) -> str | None:
        return await self._look(looking.locked_by(self.settings, name))

    async def is_locked(self, name: str) -> bool:
        return await self.locked_by(name) is not None

    async def names(self, pattern: str = "*") -> list[str]:
        return await self._look(looking.names(self.settings, pattern))

    async def force_release(self, name: str, reason: str, only: str | None = None) -> int:
        forced = await self._look(looking.force_release(self.settings, name, reason, only))
        self._driver().note(forced)
        return forced.nodes

    async def _look(self, plan: Plan[T]) -> T:
        return await carry_out(plan, self._driver())

    async def ready(self, wait: Seconds = 5.0) -> tuple[NodeStatus, ...]:
        return await self._driver().ready(seconds(wait, "wait"))

    async def close(self) -> None:
        self._closed = True
        driver = self._drivers.get(asyncio.get_running_loop())
        try:
            if driver is not None:
                await driver.close()
        finally:
            self._stop_servers()

    aclose = close

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
