"""How late the event loop is, which is how busy the gateway is.

Knows asyncio. Must not know what makes it busy.
"""

from __future__ import annotations

import asyncio

EVERY = 0.1  # seconds


class Lag:
    """Measures by how much a timer of the loop is late."""

    __slots__ = ("_due", "_handle", "_last")

    def __init__(self) -> None:
        self._last = 0.0
        self._due = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure, in the running loop. Has no effect the second time."""
        if self._handle is None:
            self._again(asyncio.get_running_loop())

    def stop(self) -> None:
        """Stop measuring."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    @property
    def late(self) -> float:
        """By how many seconds the loop is late. 0.0 before it is measured."""
        if self._handle is None:
            return 0.0
        return max(self._last, asyncio.get_running_loop().time() - self._due)

    def _again(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = loop.time() + EVERY
        self._handle = loop.call_later(EVERY, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._last = max(0.0, loop.time() - self._due)
        self._again(loop)
