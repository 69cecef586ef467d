"""How late the event loop is, which is how busy the gateway is.

Knows asyncio. Must not know what makes it busy.
"""

from __future__ import annotations

import asyncio
import time
from math import inf

EVERY = 0.1  # seconds


class Lag:
    """Measures by how much a task of the loop is woken late."""

    def __init__(self) -> None:
        self._last = 0.0
        self._due = inf
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to measure, in the running loop. Has no effect the second time."""
        self._task = self._task or asyncio.get_running_loop().create_task(self._measure())

    def stop(self) -> None:
        """Stop measuring."""
        if self._task is not None:
            self._task.cancel()
        self._last, self._due = 0.0, inf

    @property
    def late(self) -> float:
        """By how many seconds the loop is late. 0.0 while it is not measured."""
        return max(self._last, time.monotonic() - self._due)

    async def _measure(self) -> None:
        while True:
            self._due = time.monotonic() + EVERY
            await asyncio.sleep(EVERY)
            self._last = max(0.0, time.monotonic() - self._due)
