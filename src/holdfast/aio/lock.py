"""The description of a lock, and how a task acquires it.

Knows the asyncio driver's `acquire`. Decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..drivers.aio import Driver, no_loop
from ..errors import LockBusy, NoQuorum
from ..face import lock
from ..face.inside import Inside
from ..face.lock import Leave
from ..face.moving import steps
from ..face.terms import Terms
from .asking import carry_out
from .decorating import Locked, P, W
from .lease import Lease


class Lock(lock.Lock[Lease]):
    __doc__ = lock.Lock.__doc__
    __slots__ = ("_driver", "_sources")
    _kind: type[Lease] = Lease
    _current = staticmethod(asyncio.current_task)  # who calls: the task that a lock belongs to

    def __init__(
        self,
        terms: Terms,
        inside: Inside[Lease],
        driver: Callable[[], Driver],
        sources: Sequence[tuple[Callable[[], Driver], Terms]] = (),
    ) -> None:
        super().__init__(terms, inside)
        self._driver = driver  # that of the running loop
        self._sources = sources  # of names that move: where they are taken before that, and which

    async def acquire(self) -> Lease:
        try:
            return await self._acquire(self._terms.wait, self._terms.reentrant)
        except LockBusy as busy:
            await self._say_whose(busy)
            raise

    async def try_acquire(self) -> Lease | None:
        try:
            return await self._acquire(0.0, self._terms.reentrant)
        except LockBusy:
            return None

    async def _say_whose(self, busy: LockBusy) -> None:
        # Loaded when it is needed first.
        from ..face.looking import tell_owner

        driver = self._driver()
        await carry_out(tell_owner(driver.settings, busy), driver)

    async def _acquire(self, wait: float | None, stays: bool) -> Lease:
        terms, driver, here = self._terms, self._driver(), self._current()
        lease = self._kind(terms, driver)
        outer = self._inside.found(here, terms, wait)
        if outer is not None:
            lease._join(outer)
            if terms.ttl > outer._terms.ttl:
                try:
                    await lease.extend(terms.ttl)
                except BaseException:
                    lease._leaves()
                    raise
            return lease
        if stays:
            self._inside.enters(here, lease)
        try:
            await (self._move(lease, wait) if self._sources else lease._obtain(wait))
        except NoQuorum as why:
            if not terms.fail_open:
                raise
            driver.note(lease._open(why))
        return lease

    async def _move(self, lease: Lease, wait: float | None) -> None:
        try:
            for step in steps(lease, [self._kind(terms, driver(), lease) for driver, terms in self._sources], wait):
                await step()
        except BaseException:
            lease._let_all_go()
            raise

    async def __aenter__(self) -> Lease:
        here = self._here()
        stay, before = self._stay(), self._entered.get(here)
        try:
            lease = await self._acquire(self._terms.wait, True)
        except LockBusy as busy:
            await self._say_whose(busy)
            raise
        if stay is not None:
            stay.lease = lease
        else:
            self._entered[here] = lease, before
        lease._enter()
        return lease

    if TYPE_CHECKING:  # what a type checker cannot see in a descriptor

        async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
    else:
        __aexit__ = Leave()

    def __call__(self, function: Callable[P, W]) -> Callable[P, W]:
        """Decorate a coroutine function or an async generator: each call holds the lock until it is over. `current()` gives its lease."""
        return Locked(self._for)(function)

    def _here(self) -> asyncio.Task[Any] | None:
        try:
            return self._current()
        except RuntimeError:
            raise no_loop() from None

    async def _leave(self, lease: Lease, error: BaseException | None) -> None:
        await lease._leave(error)
