"""The client for asyncio.

Knows the asyncio driver, of which there is one for each event loop. Decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack, overload

from ..checks import Seconds, seconds
from ..drivers.aio import Driver, no_loop
from ..engine.crew import NodeStatus
from ..engine.record import Stats, total
from ..errors import CLOSED, Closed
from ..face import client
from ..face.decorating import Kind
from ..face.inside import Inside
from ..face.plans import Plan
from ..face.terms import Terms
from ..version import VERSION
from .asking import carry_out
from .decorating import Filled, Limited, Locked, Skipping
from .lease import Lease
from .lock import Lock

if TYPE_CHECKING:
    from ..face.fill import FillOptions
    from ..face.gathering import Terms as GatheringTerms
    from ..face.once import Deed
    from ..face.rate import Limits
    from ..face.repair import Repaired
    from ..recipes.looking import LockStatus
    from .election import Election
    from .fill import Compute, Fill
    from .gathering import Barrier, Latch
    from .once import Once
    from .rate import Rate
    from .semaphore import Semaphore

T = TypeVar("T")


class Holdfast(client.Client[Lock, Locked, Skipping, "Rate", "Election", "Once", "Latch", "Barrier", "Semaphore"]):
    __doc__ = client.Client.__doc__
    _locked = Locked
    _skipping = Skipping
    _filled = Filled
    _limited = Limited
    _computes = (Kind.FUNCTION, Kind.COROUTINE)

    def _prepare(self) -> None:
        self._inside: Inside[Lease] = Inside()
        self._loops: tuple[dict[asyncio.AbstractEventLoop, Driver], ...] = tuple({} for _ in self._sites.all)
        self._ways = tuple(partial(self._driver, at) for at in range(len(self._sites.all)))
        self._closed = False

    def _describe(self, terms: Terms) -> Lock:
        at, sources = self._sites.placed(terms) if len(self._ways) > 1 else (0, ())
        former = [(self._ways[it], parts) for it, parts in sources] if sources else ()
        return Lock(terms, self._inside, self._ways[at], former)

    def _permit(self, terms: Terms) -> Semaphore:
        from .semaphore import Semaphore

        return Semaphore(terms, self._inside, self._ways[self._sites.placed(terms)[0]])

    def _limit(self, limits: Limits, at: Sequence[int]) -> Rate:
        from .rate import Rate

        return Rate(limits, [self._ways[it] for it in at])

    def _elect(self, terms: Terms, at: int) -> Election:
        from .election import Election

        return Election(terms, self._inside, self._ways[at])

    def _once(self, options: Deed) -> Once:
        from .once import Once

        return Once(options, self._describe, self._look)

    @overload  # (so that type checkers tell a coroutine function from a plain one)
    def fill(self, key: str, ttl: Seconds, compute: Callable[[], Awaitable[T]], **options: Unpack[FillOptions]) -> Fill[T]: ...
    @overload
    def fill(self, key: str, ttl: Seconds, compute: Callable[[], T], **options: Unpack[FillOptions]) -> Fill[T]: ...
    def fill(self, key: str, ttl: Seconds, compute: Compute[T], **options: Unpack[FillOptions]) -> Fill[T]:
        from .fill import Fill

        asked, at = self._fills(key, ttl, compute, **options)
        return Fill(asked, Lock(asked.terms, self._inside, self._ways[at]), self._ways[at])

    def _latch(self, terms: GatheringTerms, at: int) -> Latch:
        from .gathering import Latch

        return Latch(terms, self._ways[at])

    def _barrier(self, terms: GatheringTerms, at: int) -> Barrier:
        from .gathering import Barrier

        return Barrier(terms, self._ways[at])

    def _driver(self, at: int = 0) -> Driver:
        """That of the running loop, and of this process, for one set of nodes; those of loops that were closed are forgotten."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise no_loop() from None
        drivers = self._loops[at]
        driver = drivers.get(loop)
        if driver is None or driver.gone or (driver.closed and not self._closed):
            if self._closed:
                raise Closed(CLOSED)
            for other in list(drivers):  # (one C call each: loops in other threads come and go meanwhile)
                if other.is_closed():
                    drivers.pop(other, None)
            site, tell = self._sites.all[at], self._teller
            if not site.settings.addresses:
                raise site.settings.nodeless
            driver = drivers[loop] = Driver(site.settings, site.access, tell, tell.wants_all, VERSION)
        return driver

    def nodes(self) -> tuple[NodeStatus, ...]:
        return tuple(node for driver in self._ways for node in driver().status())

    def stats(self) -> Stats:
        return total(driver().stats() for driver in self._ways)

    async def inspect(self, name: str) -> LockStatus:
        return await self._look(self._sites.inspect(name))

    async def locked_by(self, name: str) -> str | None:
        return await self._look(self._sites.locked_by(name))

    async def is_locked(self, name: str) -> bool:
        return await self.locked_by(name) is not None

    async def names(self, pattern: str = "*") -> list[str]:
        return await self._look(self._sites.names(pattern))

    async def force_release(self, name: str, reason: str, only: str | None = None) -> int:
        forced = await self._look(self._sites.force_release(name, reason, only))
        for at, event in forced:
            self._driver(at).note(event)
        return sum(event.nodes for _, event in forced)

    async def repair(self, pause: Seconds = 0.01) -> Repaired:
        return await self._look(self._sites.repair(pause))

    async def _look(self, plan: Plan[T]) -> T:
        return await carry_out(plan, *[driver() for driver in self._ways])

    async def ready(self, wait: Seconds = 5.0) -> tuple[NodeStatus, ...]:
        clock = self._driver().clock
        deadline = clock() + seconds(wait, "wait")
        found: list[NodeStatus] = []
        for at, driver in enumerate(self._ways):
            nodes = await driver().ready(max(0.0, deadline - clock()))
            found += await self._look(self._sites.checked(at, nodes))
        return tuple(found)

    async def close(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise no_loop() from None
        self._closed = True
        mine = [drivers[loop] for drivers in self._loops if loop in drivers]
        try:
            await (mine[0].close() if len(mine) == 1 else asyncio.gather(*[it.close() for it in mine]))
        finally:
            self._stop_servers()

    aclose = close

    async def __aenter__(self) -> Self:
        if self._closed:
            self._check_servers()
            self._closed = False
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
