"""How busy the gateway is, and how many requests each client may make.

Knows asyncio. Must not know requests, or what makes it busy.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from math import inf

EVERY = 0.1  # seconds

# Clients whose requests are remembered. The one that was quiet for longest is forgotten first.
MOST = 10_000
# What sums of fractions may lack of a whole request.
ROUNDING = 1e-6


def less(counts: Counter[str], name: str) -> None:
    """Count one less, and forget a name that has none any more."""
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


class Limits:
    """A bucket of tokens for each client: each request takes one, and time brings them back."""

    def __init__(self, rate: int) -> None:
        """Begin with full buckets.

        Args:
            rate: Requests a second. As many may come at once.
        """
        self._rate = rate
        # What is left for each client, and when that was so.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, now: float, cost: int = 1) -> float:
        """Count a request.

        Args:
            client: Whose it is.
            now: Seconds, on a monotonic clock.
            cost: For how many it counts. More than all count for all.

        Returns:
            0.0 if it is allowed, otherwise the seconds until the next one is.
        """
        left, before = self._left.pop(client, (float(self._rate), now))
        left = min(float(self._rate), left + max(0.0, now - before) * self._rate)
        cost = min(cost, self._rate)
        allowed = left >= cost - ROUNDING
        self._left[client] = (max(0.0, left - cost) if allowed else left), now
        if len(self._left) > MOST:
            self._left.popitem(last=False)
        return 0.0 if allowed else (cost - left) / self._rate


class Lag:
    """Measures by how much the event loop is late."""

    def __init__(self) -> None:
        self._last, self._due = 0.0, inf

    @property
    def late(self) -> float:
        """By how many seconds the loop is late. 0.0 while it is not measured."""
        return max(self._last, time.monotonic() - self._due)

    async def measure(self) -> None:
        """Measure it, until this is cancelled."""
        try:
            while True:
                self._due = time.monotonic() + EVERY
                await asyncio.sleep(EVERY)
                self._last = max(0.0, time.monotonic() - self._due)
        finally:
            self._last, self._due = 0.0, inf
