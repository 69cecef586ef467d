"""A held lock in the hands of a task.

Knows the asyncio driver's `extend` and `release`, and how a body is stopped. Decides nothing.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from contextlib import nullcontext
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from ...checks import Seconds
from ...drivers.aio.driver import Driver
from ...engine.ready import Want
from ...errors import LockLost, Misuse
from .. import lease
from ..owner import block_of, is_generator, waits_in
from ..terms import LockTerms, holding


class Lease(lease.Lease):
    __slots__ = ("_body", "_cancelled", "_cancelling", "_driver", "_generator", "_want")
    _driver: Driver
    _want: Want
    # One thread uses it, so nothing has to be kept out.
    _gate = nullcontext()

    if TYPE_CHECKING:

        @property
        def lost(self) -> asyncio.Event: ...

    def __init__(self, terms: LockTerms, driver: Driver) -> None:
        super().__init__(terms, driver.settings, driver.clock)
        self._driver = driver
        # The task to cancel when the lease is lost.
        self._body: asyncio.Task[Any] | None = None
        # If the block is that of an async generator, the id of its frame: the task is cancelled
        # while it waits there.
        self._generator = 0
        # How many cancellations it had when it entered, and whether this lease has cancelled it.
        self._cancelling = 0
        self._cancelled = False

    @property
    def _begun(self) -> Want | None:
        return getattr(self, "_want", None)

    @property
    def _claim(self) -> Want:
        return self._want

    @property
    def _going(self) -> bool:
        return getattr(self, "_want", None) is not None and not self._driver.foreign and self._in_time

    def _adopt(self, outer: Lease) -> None:
        self._want = outer._want

    def _check_owner(self) -> bool:
        driver = self._driver
        if driver.foreign:
            raise self._elsewhere()
        if asyncio._get_running_loop() is not driver.loop:
            raise Misuse(f"the lease of {self.name!r} belongs to another event loop: use it there", "wrong_loop")
        # A release ends the claim before anything else can run in this loop.
        return False

    def _new_event(self) -> asyncio.Event:
        return asyncio.Event()

    async def extend(self, ttl: Seconds | None = None, *, max_hold: Seconds | None = None) -> float:
        length = self._extension(ttl)
        hold = None if max_hold is None else holding(max_hold)
        if not length:
            return 0.0
        await self._driver.extend(self._want, length, hold=hold)
        return self._extended()

    async def downgrade(self) -> None:
        if self._sharing():
            await self._driver.extend(self._want, self._terms.timing.ttl, share=True)
            self._extended()

    async def hand_over(self, ttl: Seconds | None = None) -> str:
        given = self._to_hand_over()
        await self.extend(ttl)
        # It waits for nothing: a caller that is cancelled has the lock, or the ticket.
        self.leave()
        self._handed = True
        return given.text()

    async def release(self, confirm: bool = False) -> int:
        if not self._begin_release():
            return 0
        certain = await self._driver.release(self._want, confirm)
        self._end_release()
        return certain

    def _stay(self) -> None:
        self._driver.engine.stay(self._want)

    def _let_go(self) -> None:
        claim = getattr(self, "_want", None)
        if claim is not None and not claim.done:
            self._driver.let_go(claim)

    # ------------------------------------------------ the body of an `async with`

    async def __aenter__(self) -> Self:
        self.check()
        self._enter(sys._getframe(1))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(error)

    def _enter(self, frame: FrameType | None) -> None:
        """Cancel the current task if the lease is lost from here on, as `asyncio.timeout` does.

        No task is cancelled if the block may be somebody else's.

        Args:
            frame: The frame that enters. None: the task stays in the block until `_pause`.
        """
        block = None if frame is None else block_of(frame)
        if (block is None) != (frame is None):
            return
        self._body = asyncio.current_task()
        self._cancelling = self._body.cancelling() if self._body is not None else 0
        self._generator = id(block) if block is not None and is_generator(block) else 0

    def _pause(self) -> bool:
        """Cancel no task until one enters again.

        Returns:
            False if it is too late: the lease is lost, and the task is being cancelled.
        """
        if not self._cancelled:
            self._body = None
        return not self._cancelled

    async def _leave(self, error: BaseException | None) -> None:
        body, self._body = self._body, None
        if self._cancelled and body is not None:
            cancelled = error if isinstance(error, asyncio.CancelledError) else None
            try:
                # The body may have ended before the cancellation reached it. Receive the
                # cancellation here.
                await asyncio.sleep(0)
            except asyncio.CancelledError as late:
                cancelled = late
            if body.uncancel() > self._cancelling and cancelled is not None:
                # Other code cancels this task, too.
                raise cancelled
            if cancelled is not None and (error is None or isinstance(error, asyncio.CancelledError)):
                self._released = True
                raise self._loss() from cancelled
        elif isinstance(error, GeneratorExit):
            # The coroutine is thrown away, so nothing can be awaited.
            self._released = True
            if self._drop_share():
                self._let_go()
            return
        try:
            await self.release()
        except (LockLost, Misuse) as wrong:
            # A forked child that ends inside the block ends with its own exception.
            if error is None or (isinstance(wrong, Misuse) and wrong.reason != "wrong_process"):
                raise
            error.add_note(f"and {wrong}")

    def _mark_lost(self) -> None:
        if self._body is not None and (not self._generator or waits_in(self._body, self._generator)):
            self._cancelled = True
            self._body.cancel(f"{self.name!r} is lost")
        super()._mark_lost()

    def __del__(self) -> None:
        claim = getattr(self, "_want", None)
        # It was never held. If a signal handler raised, or memory ran out, its constructor may not
        # have ended.
        if claim is None:
            return
        driver = self._driver
        if self._joined or self._ended or driver.closed or driver.gone:
            return
        if self._in_time:
            # Before the warning: a program that records warnings gets a reference to the lease
            # again.
            claim.abandon()
            told = self._dropped()
            driver.discarded(told)
            warnings.warn(str(told), ResourceWarning, 2, self)
