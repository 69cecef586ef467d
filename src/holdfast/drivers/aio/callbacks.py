"""Calls what users register from the event loop, aside from the engine: in turns of the loop of its
own.

Knows event loops, and queues of calls. Must not know locks, nodes, or what an event says.

A plain function runs on the loop, because it may touch what belongs to the loop: an
`asyncio.Event`, a queue, a task. One that blocks therefore blocks the loop, like any other code
there. A coroutine function runs in a task, and may take its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from inspect import iscoroutine
from typing import Any

from ..callbacks import Calls, Complain

# Seconds after which a queue lets the loop turn, so that a long one does not keep renewals waiting.
SLICE = 0.005


class LoopCalls(Calls):
    """Calls that are made on the event loop.

    Args:
        most: How many may wait. Calls above that are dropped, the newest first.
        complain: Told which function raised what.
        in_turn: Wait for the coroutine of one call before the next call is made.
        loop: The event loop.
        tasks: Where the tasks of coroutines are kept while they run.
        clock: Returns seconds, on the driver's clock.
    """

    __slots__ = ("_clock", "_due", "_ending", "_in_turn", "_loop", "_tasks", "busy")

    # These end a program. The loop raises them from `run`.
    PASSED = (KeyboardInterrupt, SystemExit)

    def __init__(
        self,
        most: int,
        complain: Complain,
        in_turn: bool,
        *,
        loop: asyncio.AbstractEventLoop,
        tasks: set[asyncio.Task[Any]],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(most, complain)
        self._in_turn, self._loop, self._tasks = in_turn, loop, tasks
        self._clock = clock
        self._due = self._ending = False
        # The next call waits for it.
        self.busy: asyncio.Task[Any] | None = None

    @property
    def idle(self) -> bool:
        """Whether all calls have been made."""
        return not self.waiting and self.busy is None

    def end(self) -> int:
        """The client is closed: cancel the coroutine that the next call waits for, and drop the
        calls behind it.

        Otherwise they would begin tasks while the loop ends, when nobody is left to wait for a
        task.

        Returns:
            How many calls were dropped.
        """
        self._ending = True
        if self.busy is None or self.busy is asyncio.current_task():
            return 0
        self.busy.cancel()
        return self._give_up()

    def _give_up(self) -> int:
        count = len(self.waiting)
        self.waiting.clear()
        return count

    def _wake(self) -> None:
        if not self._due and self.busy is None and not self._loop.is_closed():
            self._due = True
            self._loop.call_soon(self._work)

    def _work(self) -> None:
        self._due = False
        end = self._clock() + SLICE
        try:
            while self.waiting and self.busy is None:
                function, argument = self.waiting.popleft()
                outcome = self._make(function, argument)
                if iscoroutine(outcome):
                    self._begin(function, outcome)
                if self._clock() >= end:
                    break
        finally:
            if self.waiting:
                self._wake()

    def _begin(self, function: Callable[[Any], object], outcome: Coroutine[Any, Any, object]) -> None:
        task = self._loop.create_task(outcome)
        self._tasks.add(task)
        if self._in_turn:
            self.busy = task
        task.add_done_callback(partial(self._ended, function))

    def _ended(self, function: Callable[[Any], object], task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if self.busy is task:
            self.busy = None
        if self._ending and task.cancelled():
            self._give_up()
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, self.PASSED):
            self._complain(function, error)
        if self.waiting:
            self._wake()
