"""A held lock in the hands of a thread.

Knows the threads driver's `extend` and `release`. Decides nothing.
"""

from __future__ import annotations

import _thread
import threading
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ...checks import Seconds
from ...drivers.threads import GIVEN, LEAVING, WANTED, PendingCall
from ...engine.ready import Want
from ...errors import HoldfastError
from .. import lease
from ..terms import LockTerms, holding

if TYPE_CHECKING:
    from ...drivers.threads import Driver


class Lease(lease.Lease):
    __slots__ = ("_driver", "_gate", "_pending")
    _driver: Driver
    _pending: PendingCall

    if TYPE_CHECKING:

        @property
        def lost(self) -> threading.Event: ...

    def __init__(self, terms: LockTerms, driver: Driver) -> None:
        super().__init__(terms, driver.settings, driver.clock)
        self._driver = driver
        # Only one thread at a time joins or leaves those who share the claim. A signal handler may
        # come in between, and must not wait for the thread that it has interrupted. All that share
        # a claim use the lock of its root, so no other lease waits for it. A forked child never
        # does: it may neither enter nor release this lease.
        self._gate = _thread.RLock()

    @property
    def _begun(self) -> Want | None:
        pending = getattr(self, "_pending", None)
        return None if pending is None else pending.claim

    @property
    def _claim(self) -> Want:
        claim = self._pending.claim
        assert claim is not None
        return claim

    @property
    def _going(self) -> bool:
        pending = getattr(self, "_pending", None)
        if pending is None or pending.claim is None or pending.phase is WANTED or pending.io_thread.foreign:
            return False
        # Its block was left, and an exception kept it from being released.
        if pending() is None:
            return False
        return pending.phase is not LEAVING and self._in_time

    def _adopt(self, outer: Lease) -> None:
        self._pending, self._kept = outer._pending, outer._pending()

    def _check_owner(self) -> bool:
        io_thread = self._pending.io_thread
        if io_thread.foreign:
            raise self._elsewhere()
        if io_thread.failure is not None and not self._lost:
            self._lost = "closed"
        return self._pending.phase is LEAVING

    def _new_event(self) -> threading.Event:
        return threading.Event()

    def extend(self, ttl: Seconds | None = None, *, max_hold: Seconds | None = None) -> float:
        length = self._extension(ttl)
        hold = None if max_hold is None else holding(max_hold)
        if not length:
            return 0.0
        self._driver.extend(self._pending, length, hold=hold)
        return self._extended()

    def downgrade(self) -> None:
        if self._sharing():
            self._driver.extend(self._pending, self._terms.timing.ttl, share=True)
            self._extended()

    def hand_over(self, ttl: Seconds | None = None) -> str:
        given = self._to_hand_over()
        self.extend(ttl)
        self._stay_held()
        # Confirmed: the I/O thread has heard that nothing more is asked for it.
        self.release(confirm=True)
        self._handed = True
        return given.text()

    def release(self, confirm: bool = False) -> int:
        try:
            if not self._interrupted and not self._begin_release():
                return 0
            certain = self._driver.release(self._pending, confirm)
            self._end_release()
            return certain
        except HoldfastError:
            raise
        except BaseException:
            # A signal handler raised (Ctrl-C, a time limit). Release the lock all the same.
            self._unwind()
            raise

    @property
    def _interrupted(self) -> bool:
        """Whether a release has begun, here or in another thread, whose caller has no outcome yet.

        Then this release is sent again.
        """
        return self._opened is None and not self._released and not self._lost and self._check_owner()

    def __enter__(self) -> Self:
        self.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)

    def _leave(self, error: BaseException | None) -> None:
        try:
            self.release()
        except HoldfastError as trouble:
            # It was lost. Or this is the child of a fork inside the block, which ends with its own
            # exception.
            if error is None:
                raise
            error.add_note(f"and {trouble}")

    def _stay(self) -> None:
        io_thread, claim = self._pending.io_thread, self._claim
        io_thread.ask(lambda now: io_thread.engine.stay(claim))

    @property
    def _lease(self) -> Self:
        return self

    def _let_go(self) -> None:
        pending = getattr(self, "_pending", None)
        if pending is not None and pending.phase is not LEAVING:
            pending.phase = LEAVING
            pending.io_thread.ask(pending)

    def __del__(self) -> None:
        pending = getattr(self, "_pending", None)
        if pending is None or pending.phase is not GIVEN or pending.io_thread.gone or self._joined or self._ended:
            return
        if self._in_time:
            told = self._dropped()
            # Before the warning: a program that records warnings gets a reference to the lease
            # again.
            pending.io_thread.discard(pending, told)
            warnings.warn(str(told), ResourceWarning, 2, self)
