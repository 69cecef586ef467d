"""The client for asyncio.

Knows the asyncio driver, of which there is one for each event loop. Decides nothing.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from ..checks import Seconds, seconds
from ..drivers.aio import Driver
from ..engine.crew import NodeStatus
from ..errors import Closed
from ..face import client
from ..face.terms import Terms
from ..version import VERSION
from .lock import Lock


class Holdfast(client.Client[Lock]):
    __doc__ = client.Client.__doc__

    def _prepare(self) -> None:
        self._drivers: dict[asyncio.AbstractEventLoop, Driver] = {}
        self._closed = False

    def _describe(self, terms: Terms) -> Lock:
        return Lock(terms, self._driver)

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

    def nodes(self) -> tuple[NodeStatus, ...]:
        return self._driver().status()

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
