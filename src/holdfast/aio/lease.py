"""A held lock in the hands of a task.

Knows the asyncio driver's `extend` and `release`, and how a body is stopped. Decides nothing.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from ..checks import Seconds
from ..core import claim as core
from ..drivers.aio import Driver
from ..engine.crew import Want
from ..errors import LockLost, WrongLoop, WrongProcess
from ..face import lease
from ..face.lease import LostEvent
from ..face.moving import Whole
from ..face.terms import Terms


class Lease(lease.Lease):
    __doc__ = lease.Lease.__doc__
    __slots__ = ("_body", "_cancelled", "_cancelling", "_driver", "claim")
    claim: Want

    if TYPE_CHECKING:

        @property
        def lost(self) -> asyncio.Event: ...

    def __init__(self, terms: Terms, driver: Driver, above: Lease | None = None) -> None:
        super().__init__(terms, driver.settings, driver.clock, above)
        self._driver = driver
        self._body: asyncio.Task[Any] | None = None  # to be cancelled when the lease is lost
        self._cancelling, self._cancelled = 0, False

    @property
    def _own(self) -> Want:
        return self.claim

    @property
    def _claim(self) -> Want | Whole:
        return self.claim if self._move is None or self._move.whole is None else self._move.whole

    @property
    def _going(self) -> bool:
        return getattr(self, "claim", None) is not None and not self._driver.foreign and self._in_time

    def _join(self, outer: Lease) -> None:
        super()._join(outer)
        self.claim = outer.claim

    def _mine(self) -> bool:
        if self._driver.foreign:
            raise WrongProcess(f"the lease of {self.name!r} belongs to the process that this one was forked from: acquire the lock here")
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is not self._driver.loop:
            raise WrongLoop(f"the lease of {self.name!r} belongs to another event loop: use it there")
        return False  # a release ends the claim before anything else can run in this loop

    def _new_event(self) -> LostEvent:
        return asyncio.Event()

    async def extend(self, ttl: Seconds | None = None) -> float:
        length = self._extension(ttl)
        if not length:
            return 0.0
        for part in self._parts:
            await part._driver.extend(part.claim, length)
        return self._extended()

    async def downgrade(self) -> None:
        if self._sharing():
            await self._driver.extend(self.claim, self._terms.ttl, share=True)
            self._extended()

    async def release(self, confirm: bool = False) -> int:
        if not self._ends():
            return 0
        certain = await (self._driver.release(self.claim, confirm) if self._move is None else self._release_all(confirm))
        self._ended()
        return certain

    async def _release_all(self, confirm: bool) -> int:
        try:
            return min([await part._driver.release(part.claim, confirm) for part in self._parts])
        except BaseException:
            self._let_all_go()
            raise

    def _obtain(self, wait: float | None) -> Awaitable[None]:
        terms = self._terms
        hold, heed = terms.max_hold, terms.heed
        return self._driver.acquire(self, terms.recipes, ttl=terms.ttl, wait=wait, renew=terms.renew, max_hold=hold, heed=heed)

    def _servers(self) -> frozenset[str]:
        return self._driver.servers()

    async def _meet(self, wait: float | None) -> None:
        await self._driver.meet(self._acquaintance(wait))

    async def _raise(self, fence: int) -> None:
        await self._driver.extend(self.claim, self._terms.ttl, fence)

    def _let_go(self) -> None:
        claim = getattr(self, "claim", None)
        if claim is not None and not claim.done:
            self._driver.let_go(claim)

    # ------------------------------------------------ the body of an `async with`

    def _enter(self) -> None:
        """From here on the current task is cancelled when the lease is lost, as `asyncio.timeout` does it."""
        self._body = asyncio.current_task()
        self._cancelling = self._body.cancelling() if self._body is not None else 0

    def _pause(self) -> bool:
        """Until it enters again, nobody is cancelled. False: too late, it is lost, and who entered is being cancelled."""
        if not self._cancelled:
            self._body = None
        return not self._cancelled

    async def _leave(self, error: BaseException | None) -> None:
        body, self._body = self._body, None
        if self._cancelled and body is not None:
            cancelled = error if isinstance(error, asyncio.CancelledError) else None
            try:
                await asyncio.sleep(0)  # the body may have ended before it could be cancelled: take that back
            except asyncio.CancelledError as late:
                cancelled = late
            if body.uncancel() > self._cancelling and cancelled is not None:
                raise cancelled  # somebody else cancels, too
            if cancelled is not None and (error is None or isinstance(error, asyncio.CancelledError)):
                self._released = True
                raise self._loss() from cancelled
        elif isinstance(error, GeneratorExit):  # perhaps of a coroutine that is thrown away: nothing can be awaited
            self._released = True
            if self._leaves():
                self._let_all_go()
            return
        try:
            await self.release()
        except (LockLost, WrongProcess) as wrong:  # (a forked child that ends in the block ends as it wants to)
            if error is None:
                raise
            error.add_note(f"and {wrong}")

    def _falls(self) -> None:
        if self._body is not None:
            self._cancelled = True
            self._body.cancel(f"{self.name!r} is lost")
        super()._falls()

    def __del__(self) -> None:
        claim = getattr(self, "claim", None)
        if claim is None:  # it was never held; perhaps it was never even made, if a signal handler or a lack of memory struck meanwhile
            return
        driver = self._driver
        if self._joined or driver.closed or driver.gone:
            return
        if claim.state is core.HELD and self._clock() < claim.until:
            # Before the warning, which may be recorded: that gets hold of the lease again.
            claim.abandon()
            told = self._dropped()
            if told is not None:
                driver.discarded(told)
                warnings.warn(str(told), ResourceWarning, 2, self)
