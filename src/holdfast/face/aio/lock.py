"""The description of a lock, and how a task acquires it.

Knows the asyncio driver's `acquire`. Decides nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from ...drivers.aio.driver import Driver
from ...drivers.aio.run import run
from ...errors import LockBusy, NoQuorum
from ...protocol.timing import Timing
from .. import lock
from ..lock import Leave, WithBlock
from ..owner import INSIDE, Here, here
from .decorators import Locked, P, W
from .lease import Lease


class Lock(lock.Lock[Lease]):
    __slots__ = ()
    _driver: Callable[[], Driver]
    _kind: type[Lease] = Lease

    async def acquire(self) -> Lease:
        try:
            return await self._acquire(self._terms.timing, None, self._terms.reentrant)
        except LockBusy as busy:
            await self._say_whose(busy)
            raise

    async def try_acquire(self) -> Lease | None:
        try:
            return await self._acquire(self._terms.timing._replace(wait=0.0), None, self._terms.reentrant)
        except LockBusy:
            return None

    async def _say_whose(self, busy: LockBusy) -> None:
        # Loaded at its first use.
        from ...operations.inspection.plan import tell_owner

        await run(tell_owner(self._driver().settings, busy, self._terms.recipes), self._driver)

    async def _acquire(self, timing: Timing, caller: Here | None, stays: bool) -> Lease:
        terms, driver = self._terms, self._driver()
        lease = self._kind(terms, driver)
        around = driver.settings.around
        call = None if around is None else self._surrounded(around)
        try:
            # If nobody is inside of any lock, and this caller will not be, it decides nothing who
            # calls.
            if caller is None and (stays or INSIDE.get() is not None):
                caller = here(self._task())
            outer = None if caller is None else self._owners.found(caller, terms, timing)
            if outer is not None and not lease._join(outer):
                # It is not held any more, so the lock is acquired as usual.
                lease, outer = self._kind(terms, driver), None
            if outer is not None:
                await self._lengthen(lease, outer, timing)
            else:
                if stays and caller is not None:
                    self._owners.enters(caller, lease)
                try:
                    if self._moves is not None:
                        place, ways = self._moves
                        at, timing = await run(place(timing), *ways)
                        lease._hold_by(ways[at]())
                    await lease._driver.acquire(lease, lease._terms.recipes, timing)
                except NoQuorum as why:
                    if not terms.fail_open:
                        raise
                    driver.note(lease._open(why))
        except BaseException as error:
            if call is not None:
                call.failed(error)
            raise
        if call is not None:
            call.end(*lease._acquisition())
        return lease

    async def _lengthen(self, lease: Lease, outer: Lease, timing: Timing) -> None:
        if timing.ttl > outer._terms.timing.ttl:
            try:
                await lease.extend(timing.ttl)
            except BaseException:
                # The outer lease may have been released meanwhile, and this one be the last that
                # shares the claim.
                lease._unwind()
                raise

    async def __aenter__(self) -> Lease:
        found, caller = self._stay(), here(self._task())
        stay = found or WithBlock(self)
        try:
            lease = stay._lease = await self._acquire(self._terms.timing, caller, True)
        except LockBusy as busy:
            await self._say_whose(busy)
            raise
        if found is None:
            self._entered[stay] = None
        else:
            lease._enter(sys._getframe(1))
        return lease

    # A type checker does not see this in a descriptor.
    if TYPE_CHECKING:

        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...
    else:
        __aexit__ = Leave()

    def __call__(self, function: Callable[P, W]) -> Callable[P, W]:
        """Decorate a coroutine function or an async generator, so that each call holds the lock.

        `current()` returns its lease inside.
        """
        return Locked(self._for)(function)

    async def _leave(self, lease: Lease, error: BaseException | None) -> None:
        await lease._leave(error)
