"""The client for threads.

Knows the threads driver. Decides nothing.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self, TypeVar

from ..checks import Seconds, seconds
from ..drivers.threads import Driver
from ..engine.crew import NodeStatus
from ..engine.record import Stats
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
        self._driver = Driver(self.settings, self._access, self._teller, self._teller.wants_all, VERSION)

    def _describe(self, terms: Terms) -> Lock:
        return Lock(terms, self._inside, self._agreements, self._driver)

    def _limit(self, limits: Limits) -> Rate:
        return Rate(limits, self._driver)

    def nodes(self) -> tuple[NodeStatus, ...]:
        return self._driver.status()

    def stats(self) -> Stats:
        return self._driver.stats()

    def inspect(self, name: str) -> LockStatus:
        return self._look(looking.inspect(self.settings, name))

    def locked_by(self, name: str) -> str | None:
        return self._look(looking.locked_by(self.settings, name))

    def is_locked(self, name: str) -> bool:
        return self.locked_by(name) is not None

    def names(self, pattern: str = "*") -> list[str]:
        return self._look(looking.names(self.settings, pattern))

    def force_release(self, name: str, reason: str, only: str | None = None) -> int:
        forced = self._look(looking.force_release(self.settings, name, reason, only))
        self._driver.note(forced)
        return forced.nodes

    def _look(self, plan: Plan[T]) -> T:
        return carry_out(plan, self._driver)

    def ready(self, wait: Seconds = 5.0) -> tuple[NodeStatus, ...]:
        return self._driver.ready(seconds(wait, "wait"))

    def close(self) -> None:
        self._driver.close()
        self._stop_servers()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
