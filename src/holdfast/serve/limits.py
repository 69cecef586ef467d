"""How many requests each client may make.

Knows arithmetic. Must not know clocks or requests.
"""

from __future__ import annotations

from collections import OrderedDict

# Clients whose requests are remembered. The one that was quiet for longest is forgotten first.
MOST = 10_000
# What sums of fractions may lack of a whole request.
ROUNDING = 1e-6


class Limits:
    """A bucket of tokens for each client: each request takes one, and time brings them back."""

    __slots__ = ("_left", "_rate")

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
