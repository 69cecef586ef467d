"""Timers of an engine: those whose time has come, and the others.

Knows moments. Must not know who they are for.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from math import inf
from typing import Generic, Protocol, TypeVar


class Timed(Protocol):
    """An object with a timer.

    Attributes:
        wake: When it wants to be woken. inf means never.
        armed: When it will be woken. `Timers` sets it.
    """

    wake: float
    armed: float


T = TypeVar("T", bound=Timed)


class Timers(Generic[T]):
    """A heap of timers, and another one of those whose time was seen to have come.

    Removing a timer from a heap is expensive. An unneeded timer stays until half of all timers are
    unneeded.

    Attributes:
        due: When the first timer is due. A timer that was due before the last look is due at it.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        # What `overdue` has taken out of the heap, and `passed` has not yielded yet.
        self._come: list[tuple[float, int, T]] = []
        self._order = count()
        self._stale = 0
        # When somebody has looked last.
        self._looked = -inf
        self.due = inf

    def __len__(self) -> int:
        return len(self._heap) + len(self._come)

    def arm(self, timed: T) -> None:
        """Arm the timer of an object, if it wants to be woken sooner than it is armed for."""
        if timed.wake < timed.armed:
            if timed.armed < inf:
                self._stale += 1
            heapq.heappush(self._heap, (timed.wake, next(self._order), timed))
            timed.armed = timed.wake
            if timed.wake < self.due:
                self._look()

    def disarm(self, timed: T) -> None:
        """Disarm the timer of an object."""
        if timed.armed == inf:
            return
        timed.armed = inf
        self._stale += 1
        if self._stale > 100 and self._stale * 2 > len(self):
            for heap in (self._heap, self._come):
                heap[:] = [it for it in heap if it[0] == it[2].armed]
                heapq.heapify(heap)
            self._stale = 0
            self._look()

    def passed(self, now: float) -> Iterator[T]:
        """Yield the objects whose time has come. They may arm themselves again meanwhile."""
        while (heap := self._come or self._heap) and heap[0][0] <= now:
            due, _, timed = heapq.heappop(heap)
            self._look()
            # Another has taken its place.
            if due != timed.armed:
                self._stale -= 1
                continue
            timed.armed = inf
            yield timed

    def overdue(self, now: float) -> list[T]:
        """Return the objects whose time has come, in no order, and leave them armed.

        The others are not looked at, however many they are, and nobody is searched for twice.
        Otherwise a client that is behind would fall behind further with each turn.
        """
        heap, come = self._heap, self._come
        while heap and heap[0][0] <= now:
            heapq.heappush(come, heapq.heappop(heap))
        return [timed for due, _, timed in come if due == timed.armed]

    def looked(self, now: float) -> None:
        """Note that somebody has looked now, and may have left timers that are due for later.

        Their lateness is no sign of a busy machine.
        """
        self._looked = now
        self._look()

    def _look(self) -> None:
        heap = self._come or self._heap
        self.due = max(heap[0][0], self._looked) if heap else inf
