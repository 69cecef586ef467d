"""Timers of a crew, in one heap.

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
    """A heap of timers.

    Removing a timer from a heap is expensive. An unneeded timer stays until half of all timers are
    unneeded.

    Attributes:
        due: When the first timer is due. A timer that was due before the last look is due at it.
    """

    __slots__ = ("_heap", "_looked", "_order", "_stale", "due")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._order = count()
        self._stale = 0
        # When somebody has looked last.
        self._looked = -inf
        self.due = inf

    def __len__(self) -> int:
        return len(self._heap)

    def arm(self, timed: T) -> None:
        """Arm the timer of an object, if it wants to be woken sooner than it is armed for."""
        if timed.wake < timed.armed:
            if timed.armed < inf:
                self.disarm(timed)
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
        if self._stale > 100 and self._stale * 2 > len(self._heap):
            self._heap[:] = [it for it in self._heap if it[0] == it[2].armed]
            heapq.heapify(self._heap)
            self._stale = 0
            self._look()

    def passed(self, now: float) -> Iterator[T]:
        """Yield the objects whose time has come. They may arm themselves again meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            due, _, timed = heapq.heappop(self._heap)
            self._look()
            # Another has taken its place.
            if due != timed.armed:
                self._stale -= 1
                continue
            timed.armed = inf
            yield timed

    def overdue(self, now: float) -> list[T]:
        """Return the objects whose time has come, the earliest first, and leave them armed.

        The others are not looked at, however many they are.
        """
        found = []
        heap = self._heap
        at = [0]
        while at:
            place = at.pop()
            if place < len(heap) and heap[place][0] <= now:
                due, _, timed = heap[place]
                if due == timed.armed:
                    found.append(heap[place])
                # Below it in the heap, nothing is due sooner.
                at += (2 * place + 1, 2 * place + 2)
        return [timed for _, _, timed in sorted(found)]

    def looked(self, now: float) -> None:
        """Note that somebody has looked now, and may have left timers that are due for later.

        Their lateness is no sign of a busy machine.
        """
        self._looked = now
        self._look()

    def _look(self) -> None:
        self.due = max(self._heap[0][0], self._looked) if self._heap else inf
