"""The client for asyncio.

Knows the asyncio driver, of which there is one for each event loop. Decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from ..checks import Seconds, flag, seconds
from ..drivers.aio.driver import Driver, no_loop
from ..drivers.aio.run import run
from ..engine.plans import Plan
from ..engine.status import NodeStatus
from ..errors import closed
from ..face.aio.decorators import Locked, Skipping
from ..face.aio.lease import Lease
from ..face.aio.lock import Lock
from ..face.decorators import Kind
from ..version import VERSION
from . import shared as client

if TYPE_CHECKING:
    from ..face.aio.semaphore import Semaphore
    from ..operations.inspection.commands import LockStatus
    from ..operations.repair.plan import Repaired
    from ..operations.survey.aio import Survey
    from ..primitives.election.aio import Election
    from ..primitives.fill.aio import Compute, Fill
    from ..primitives.fill.plan import FillOptions
    from ..primitives.latch.aio import Barrier, Latch
    from ..primitives.once.aio import Once
    from ..primitives.rate.aio import Rate

    _Client = client.Client[Lock, Locked, Skipping, Rate, Election, Once, Latch, Barrier, Semaphore]
else:
    # What has no name yet would be compiled as text, which takes longer than to load this module.
    _Client = client.Client

T = TypeVar("T")


class Holdfast(_Client):
    _face = "holdfast.aio"
    _lock = Lock
    _locked = Locked
    _skipping = Skipping
    _computes = (Kind.FUNCTION, Kind.COROUTINE)

    def _prepare(self) -> None:
        self._loops: tuple[dict[asyncio.AbstractEventLoop, Driver], ...] = tuple({} for _ in self._shards.every)
        self._ways = tuple(partial(self._driver, at) for at in range(len(self._shards.every)))
        self._closed = False

    # So that type checkers tell a coroutine function from a plain one.
    @overload
    def fill(
        self, key: str, ttl: Seconds, compute: Callable[[], Awaitable[T]], **options: Unpack[FillOptions]
    ) -> Fill[T]: ...
    @overload
    def fill(self, key: str, ttl: Seconds, compute: Callable[[], T], **options: Unpack[FillOptions]) -> Fill[T]: ...
    def fill(self, key: str, ttl: Seconds, compute: Compute[T], **options: Unpack[FillOptions]) -> Fill[T]:
        made: Fill[T] = self._fill(key, ttl, compute, **options)
        return made

    def _driver(self, at: int = 0) -> Driver:
        """Return the driver of the running loop, in this process, for one shard.

        Drivers of loops that were closed are forgotten.
        """
        loop = asyncio._get_running_loop()
        if loop is None:
            raise no_loop()
        drivers = self._loops[at]
        driver = drivers.get(loop)
        if driver is None or driver.gone or (driver.closed and not self._closed):
            if self._closed:
                raise closed()
            # Copied by one C call, because loops in other threads come and go meanwhile.
            for other in list(drivers):
                if other.is_closed():
                    drivers.pop(other, None)
            shard, tell = self._shards.every[at], self._teller
            if not shard.settings.addresses:
                raise shard.settings.nodeless
            driver = drivers[loop] = Driver(shard.settings, shard.access, tell, tell.wants_all, VERSION)
        return driver

    def _at(self, way: Any) -> Driver:
        driver: Driver = way()
        return driver

    async def inspect(self, name: str) -> LockStatus:
        return await self._look(self._shards.inspect(name))

    async def locked_by(self, name: str) -> str | None:
        return await self._look(self._shards.locked_by(name))

    async def is_locked(self, name: str) -> bool:
        return await self.locked_by(name) is not None

    async def names(self, pattern: str = "*") -> list[str]:
        return await self._look(self._shards.names(pattern))

    def survey(self, pattern: str = "*", *, pause: float = 0.0) -> Survey:
        from ..operations.survey.aio import Survey

        return Survey(self._shards.survey(pattern, pause), self._ways)

    async def force_release(self, name: str, reason: str, only: str | None = None) -> int:
        return await self._look(self._shards.force_release(name, reason, only))

    async def adopt(
        self,
        ticket: str,
        *,
        ttl: Seconds | None = None,
        max_hold: Seconds | None = None,
        on_lost: Callable[[Any], object] | None = None,
    ) -> Lease:
        lease: Lease = await self._look(self._adopting(ticket, ttl=ttl, max_hold=max_hold, on_lost=on_lost))
        return lease

    async def repair(self, pause: Seconds = 0.01) -> Repaired:
        return await self._look(self._shards.repair(pause))

    async def _look(self, plan: Plan[T]) -> T:
        return await run(plan, *self._ways)

    async def ready(self, wait: Seconds = 5.0) -> tuple[NodeStatus, ...]:
        clock = self._driver().clock
        deadline = clock() + seconds(wait, "wait", waits=True)
        # All shards connect now, so that the time that a node of the first one takes counts for the
        # others, too.
        for way in self._disjoint[1:]:
            way().steer(lambda engine, now: None)
        found: list[NodeStatus] = []
        for at, driver in enumerate(self._disjoint):
            nodes = await driver().ready(max(0.0, deadline - clock()))
            await self._look(self._shards.probe(at, nodes=nodes))
            # The nodes may stand differently by that.
            nodes = await driver().ready(max(0.0, deadline - clock()))
            found += await self._look(self._shards.checked(at, nodes))
        return tuple(found)

    async def close(self, leave: bool = False) -> None:
        flag(leave, "leave")
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise no_loop() from None
        self._closed = True
        mine = [drivers[loop] for drivers in self._loops if loop in drivers]
        for driver in mine if leave else ():
            driver.stay()
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
