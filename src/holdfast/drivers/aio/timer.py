"""The timer of the driver for asyncio: when the engine is called, and what a late loop does first.

Knows the loop and the sockets. Must not know what callers want.

A loop that was busy comes to its timer late. Nodes have no part in that: so what lies unread is
read before anybody is judged, by the time at which the timer came. But leases may have run out
meanwhile, and no answer that lies unread can save them. Their owners are told at once.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Concatenate, ParamSpec, cast

if TYPE_CHECKING:
    from .driver import Driver

# Seconds after which a loop that comes to its timer was busy with something else.
LATE = 0.005

P = ParamSpec("P")


def _whole(turn: Callable[Concatenate[Timer, P], None]) -> Callable[Concatenate[Timer, P], None]:
    """What the loop calls is done whole, or the driver is over: a signal handler's exception must
    not leave a timer unset for ever.
    """

    @functools.wraps(turn)
    def called(self: Timer, *arguments: P.args, **options: P.kwargs) -> None:
        try:
            turn(self, *arguments, **options)
        except BaseException as error:
            self._driver.die(error)
            raise

    return cast("Callable[Concatenate[Timer, P], None]", called)


class Timer:
    """Calls the engine's `tick` in time.

    Attributes:
        due: When it comes next.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver, self._engine = driver, driver.engine
        self._handle: asyncio.TimerHandle | None = None
        self.due = inf

    def set(self, wake: float) -> None:
        """Have it come at this time, and not when it was due before."""
        driver = self._driver
        self.cancel()
        self.due = wake
        self._handle = driver.apart(driver.loop.call_later, max(0.0, wake - driver.clock()), self._tick)

    def cancel(self) -> None:
        """Have it come no more."""
        if self._handle is not None:
            self._handle.cancel()

    @_whole
    def _tick(self) -> None:
        """Time has passed.

        What lies unread is not late: the loop reads once more before anybody is judged by this
        `now`.

        A turn looks what can be read before it calls what was asked for in the turn before: hence
        two turns.
        """
        driver = self._driver
        now = driver.clock()
        # Until it has judged, nobody needs another timer.
        due, self._handle, self.due = self.due, None, -inf
        self._excuse(now, due)
        self._look(now, due)
        for link in driver.sockets.links:
            if link is not None:
                link.left = None
        driver.loop.call_soon(driver.loop.call_soon, self._judge, now)

    @_whole
    def _judge(self, now: float) -> None:
        driver = self._driver
        self._look(driver.clock(), now)
        unread = [it for it in driver.sockets.links if it is not None and it.unread()]
        # Read on, until a read does not fill the buffer, or all has been read that lay there now.
        if unread:
            for link in unread:
                link.full = False
            driver.loop.call_soon(driver.loop.call_soon, self._judge, now)
            return
        self.due = inf
        self._excuse(driver.clock(), now)
        # At the end nobody is judged: a reset would undo what was said last.
        if not driver.closed:
            driver.do(self._judged, now)

    def _judged(self, now: float) -> None:
        self._engine.record.epoch = self._driver.wall() - self._driver.clock()
        self._engine.tick(now)

    def _excuse(self, now: float, due: float) -> None:
        """Was the loop busy since `due` for long?

        Then what was said last may have left only now, and connections that are being made have
        waited for this loop.
        """
        if now > due + self._engine.upkeep.patience / 8:
            self._engine.upkeep.excuse(now, now - due)

    def _look(self, now: float, due: float) -> None:
        """Was the loop busy since `due`?

        Then leases may have run out, and no answer that lies unread can save them: tell at once.
        """
        if now > due + LATE:
            self._driver.do(self._engine.lapse, now)
