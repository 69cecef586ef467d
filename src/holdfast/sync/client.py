"""The client for threads.

Knows the threads driver. Decides nothing.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from ..checks import Seconds, seconds
from ..drivers.threads import Driver
from ..engine.crew import NodeStatus
from ..face import client
from ..face.terms import Terms
from ..version import VERSION
from .lock import Lock


class Holdfast(client.Client[Lock]):
    __doc__ = client.Client.__doc__

    def _prepare(self) -> None:
        self._driver = Driver(self.settings, self._access, self._teller, self._teller.wants_all, VERSION)

    def _describe(self, terms: Terms) -> Lock:
        return Lock(terms, self._driver)

    def nodes(self) -> tuple[NodeStatus, ...]:
        return self._driver.status()

    def ready(self, wait: Seconds = 5.0) -> tuple[NodeStatus, ...]:
        return self._driver.ready(seconds(wait, "wait"))

    def close(self) -> None:
        self._driver.close()
        self._stop_servers()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
