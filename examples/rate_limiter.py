"""The rate limiter: INCR, and EXPIRE after each INCR. A steady caller, well below the limit, is shut out for ever.

Unsafe in the original: every call moves the expiry, a refused one, too. The limit is ten in a second; somebody calls eight times a second;
the key never runs out, the count never falls, and from the eleventh call on he is refused, for as long as he goes on. It is on one
instance, which may be away, or forget; and the refused are not told when to come again.

Instead: `locks.rate(name, limit, period, key=user)`. A call is allowed if every node that answers says so, by its own clock; a refusal
costs nothing, and says after how many seconds it would be allowed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from redis import Redis

from holdfast import Holdfast

LIMIT, WINDOW = 10, 1  # calls, seconds
CALLS, PAUSE = 25, 0.125  # eight a second


class RateLimiter:
    """The original."""

    def __init__(self, node: Redis, resource: str) -> None:
        self._node, self._resource = node, resource

    def is_allowed(self, user: str) -> bool:
        with self._node.pipeline(transaction=True) as both:
            both.incr(f"example:{self._resource}:{user}")
            both.expire(f"example:{self._resource}:{user}", WINDOW)
            return int(both.execute()[0]) <= LIMIT


def allowed(call: Callable[[], object]) -> int:
    """How many of the calls of a steady caller are allowed."""
    count = 0
    for _ in range(CALLS):
        count += bool(call())
        time.sleep(PAUSE)
    return count


def main() -> bool:
    with Holdfast() if "HOLDFAST_NODES" in os.environ else Holdfast.local() as locks, Redis.from_url(locks.urls[0]) as node:
        print(f"{LIMIT} calls a second are allowed; somebody calls {1 / PAUSE:.0f} times a second, {CALLS} times")
        limiter = RateLimiter(node, "api")
        theirs = allowed(lambda: limiter.is_allowed("steady"))
        print(f"INCR, EXPIRE:  {theirs} of {CALLS} are allowed, and none would be from then on")
        rate = locks.rate("example:ours", LIMIT, WINDOW, key="steady")
        ours = allowed(rate.take)
        print(f"holdfast:      {ours} of {CALLS} are allowed")

        began = time.monotonic()
        burst = [rate.take() for _ in range(3 * LIMIT)]
        most = LIMIT * (1 + (time.monotonic() - began) / WINDOW)  # what has come back meanwhile is allowed, too
        taken = sum(map(bool, burst))
        print(f"               and of {len(burst)} at once {taken}; the last one is to come again after {burst[-1].retry_after:.2f} s")
        return theirs < CALLS and ours == CALLS and taken <= most + 1


if __name__ == "__main__":
    sys.exit(not main())
