"""When who wants to be woken: one heap for a crew.

Knows moments. Must not know who they are for.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from math import inf
from typing import Generic, Protocol, TypeVar


class Timed(Protocol):
    """Somebody with a timer. `wake`: when it wants to be woken, inf: not at all; `armed`: when it will be, kept here."""

    wake: float
    armed: float


T = TypeVar("T", bound=Timed)


class Timers(Generic[T]):
    """Timers are dear to take out of a heap: one that nobody needs stays in it, until half of them are such. `due`: when the first is."""

    __slots__ = ("_heap", "_order", "_stale", "due")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._order, self._stale, self.due = count(), 0, inf

    def __len__(self) -> int:
        return len(self._heap)

    def arm(self, timed: T) -> None:
        """Wake it when it wants, if that is sooner than it will be."""
        if timed.wake < timed.armed:
            self.disarm(timed)
            heapq.heappush(self._heap, (timed.wake, next(self._order), timed))
            timed.armed = timed.wake
            self._look()

    def disarm(self, timed: T) -> None:
        """Do not wake it."""
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
        """Those whose time has come; they may arm themselves again meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            due, _, timed = heapq.heappop(self._heap)
            self._look()
            if due != timed.armed:  # another has taken its place
                self._stale -= 1
                continue
            timed.armed = inf
            yield timed

    def _look(self) -> None:
        self.due = self._heap[0][0] if self._heap else inf
