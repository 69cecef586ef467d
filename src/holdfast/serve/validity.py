"""For how long a client may believe that it holds a lock, and the names of leases.

Knows arithmetic. Must not know clocks, leases or requests.

A client adds `valid_ms` to the moment before it sent its request. The gateway reads what is left
of the lease after that moment, so the client never believes longer than the lease lasts, however
long the answer travels.
"""

from __future__ import annotations

import re
from math import floor

# The clocks of two machines may run at rates that differ by this share.
DRIFT = 0.01
# Milliseconds that are left out, for what rounding adds.
MARGIN = 2
# A client extends its lease this many times within its ttl.
BEATS = 3

_ID = re.compile(r"(?:(g[a-z0-9]{7})\.)?([A-Za-z0-9_-]{16,64})")


def valid_ms(remaining: float) -> int:
    """Return the milliseconds for which a client may believe it.

    Args:
        remaining: Seconds that were left of the lease when this answer was made.
    """
    return max(0, floor(1000 * (remaining * (1 - DRIFT))) - MARGIN)


def keepalive_ms(ttl_ms: int) -> int:
    """Return how often a client should extend a lease of this length, in milliseconds."""
    return ttl_ms // BEATS


def parsed(text: str) -> tuple[str, str] | None:
    """Take the id of a lease apart.

    Args:
        text: Such as "gabcdefg.4f0c2a9e7d1b48e0", or the same without the gateway.

    Returns:
        The gateway's name, which may be empty, and the client's part. None: it is no id.
    """
    found = _ID.fullmatch(text)
    return None if found is None else (found[1] or "", found[2])
