"""A held lock in the hands of a thread.

Knows the threads driver's `extend` and `release`. Decides nothing.
"""

from __future__ import annotations

import threading
import warnings
from _thread import allocate_lock
from typing import TYPE_CHECKING

from ..checks import Seconds
from ..drivers.threads import GIVEN, LEAVING, WANTED, Cancel, Driver, Errand
from ..engine.crew import Want
from ..errors import HoldfastError, WrongProcess
from ..face import lease
from ..face.lease import LostEvent
from ..face.moving import Whole
from ..face.terms import Terms

_first = allocate_lock()  # two threads that ask for a lease's event at the same moment get the same one


class Lease(lease.Lease):
    __doc__ = lease.Lease.__doc__
    __slots__ = ("_driver", "errand")
    errand: Errand

    if TYPE_CHECKING:

        @property
        def lost(self) -> threading.Event: ...

    def __init__(self, terms: Terms, driver: Driver, above: Lease | None = None) -> None:
        super().__init__(terms, driver.settings, driver.clock, above)
        self._driver = driver

    @property
    def _own(self) -> Want:
        claim = self.errand.claim
        assert claim is not None
        return claim

    @property
    def _claim(self) -> Want | Whole:
        if self._move is not None and self._move.whole is not None:
            return self._move.whole
        claim = self.errand.claim
        assert claim is not None
        return claim

    @property
    def _going(self) -> bool:
        errand = getattr(self, "errand", None)
        if errand is None or errand.claim is None or errand.phase is WANTED or errand.keeper.foreign:
            return False
        return not self._leaving and self._in_time

    @property
    def _leaving(self) -> bool:
        """Has a caller begun to give it back, or any part of it?"""
        return any(part.errand.phase is LEAVING for part in self._parts)

    def _join(self, outer: Lease) -> None:
        super()._join(outer)
        self.errand = outer.errand

    def _mine(self) -> bool:
        keeper = self.errand.keeper
        if keeper.foreign:
            raise WrongProcess(f"the lease of {self.name!r} belongs to the process that this one was forked from: acquire the lock here")
        if keeper.failure is not None and not self._lost:
            self._lost = "closed"
        return self.errand.phase is LEAVING if self._move is None else self._leaving

    def _new_event(self) -> LostEvent:
        with _first:
            if self._event is None:
                self._event = threading.Event()
            event: LostEvent = self._event
            return event

    def extend(self, ttl: Seconds | None = None) -> float:
        length = self._extension(ttl)
        if not length:
            return 0.0
        for part in self._parts:
            part._driver.extend(part.errand, length)
        return self._extended()

    def downgrade(self) -> None:
        if self._sharing():
            self._driver.extend(self.errand, self._terms.ttl, share=True)
            self._extended()

    def release(self, confirm: bool = False) -> int:
        try:
            if not self._interrupted and not self._ends():
                return 0
            certain = self._driver.release(self.errand, confirm) if self._move is None else self._release_all(confirm)
            self._ended()
            return certain
        except HoldfastError:
            raise
        except BaseException:
            # A signal's handler raised (Ctrl-C, a time limit). The lock is given back all the same.
            self._unwind()
            raise

    @property
    def _interrupted(self) -> bool:
        """Has a release begun, here or in another thread, that has not told its caller the outcome? Then say it again."""
        return self._opened is None and not self._released and not self._lost and self._mine()

    def _release_all(self, confirm: bool) -> int:
        try:
            return min([part._driver.release(part.errand, confirm) for part in self._parts])
        except BaseException:
            self._let_all_go()
            raise

    def _obtain(self, wait: float | None, cancel: Cancel | None = None) -> None:
        terms = self._terms
        hold, heed = terms.max_hold, terms.heed
        self._driver.acquire(self, terms.recipes, ttl=terms.ttl, wait=wait, renew=terms.renew, max_hold=hold, heed=heed, cancel=cancel)

    def _servers(self) -> frozenset[str]:
        return self._driver.servers()

    def _meet(self, wait: float | None, cancel: Cancel | None = None) -> None:
        self._driver.meet(self._acquaintance(wait), cancel)

    def _raise(self, fence: int) -> None:
        self._driver.extend(self.errand, self._terms.ttl, fence)

    def _let_go(self) -> None:
        errand = getattr(self, "errand", None)
        if errand is not None and errand.phase is not LEAVING:
            errand.phase = LEAVING
            errand.keeper.ask(errand)

    def __del__(self) -> None:
        errand = getattr(self, "errand", None)
        if errand is None or errand.phase is not GIVEN or errand.keeper.gone or self._joined:
            return
        if self._in_time:
            told = self._dropped()
            # Before the warning, which may be recorded: that gets hold of the lease again.
            errand.keeper.discard(errand, told)
            if told is not None:
                warnings.warn(str(told), ResourceWarning, 2, self)
