"""A rate limiter of INCR and EXPIRE, used by two clients: it shuts out a user below the limit.

The original stands in "Redis and Distributed Locks: A First Principles Approach".

Unsafe in the original: every call moves the expiry, a refused one, too. The limit is ten in a
second. A user calls eight times a second, by way of two servers with a client each. The key never
runs out and the count never falls, so from the eleventh call on the user is refused, for as long as
the calls go on. The count is on one instance, which may be down, or restart empty. And a caller
that is refused is not told when to come again.

Instead: `locks.rate(name, limit, period, key=user)`. A call is allowed if every node that answers
says so, by its own clock. A refusal costs nothing, and says after how many seconds the call would
be allowed. All clients together get no more than the limit.
"""

from __future__ import annotations

import sys
import time

from demo.stage import Part, Stage, orders, plain_client, play_a_part, say
from redis import Redis

from holdfast import Holdfast

LIMIT, WINDOW = 10, 1  # calls, seconds
CLIENTS, USER = 2, "user123"
CALLS, PAUSE = 13, 0.25  # of each client: eight calls a second together


class RedisRateLimiter:
    """The original."""

    def __init__(self, redis_client: Redis, resource_name: str, max_requests: int, window_seconds: int) -> None:
        self.redis, self.counter_key = redis_client, f"example:{resource_name}"
        self.max_requests, self.window_seconds = max_requests, window_seconds

    def is_allowed(self, user_id: str) -> bool:
        key = f"{self.counter_key}:{user_id}"
        with self.redis.pipeline(transaction=True) as pipe:
            pipe.incr(key)
            pipe.expire(key, self.window_seconds)
            return int(pipe.execute()[0]) <= self.max_requests


def client(number: str) -> None:
    """One server of the API, with a client of its own. Asks both limiters about each call of the user."""
    with Holdfast() as locks, plain_client() as node:
        locks.ready(wait=30)
        limiter = RedisRateLimiter(node, "api", LIMIT, WINDOW)
        rate = locks.rate("example:api", LIMIT, WINDOW, key=USER)
        say("ready")
        next(orders())
        time.sleep(int(number) * PAUSE / CLIENTS)
        theirs = ours = 0
        for _ in range(CALLS):
            theirs += limiter.is_allowed(USER)
            ours += bool(rate.take())
            time.sleep(PAUSE)
        say(f"{theirs} {ours}")
        next(orders())
        burst = locks.rate("example:burst", LIMIT, WINDOW, key=USER)
        say(sum(bool(burst.take()) for _ in range(2 * LIMIT)))


def together(parts: list[Part], order: str) -> list[str]:
    """Send all clients on at the same time, and wait for what each of them says."""
    for it in parts:
        it.tell(order)
    return [it.says() for it in parts]


def main() -> bool:
    with Stage() as stage:
        stage.node.delete(f"example:api:{USER}")
        parts = [stage.start(client, number) for number in range(CLIENTS)]
        for it in parts:
            it.says()
        calls = CLIENTS * CALLS
        speed = CLIENTS / PAUSE
        print(f"{LIMIT} calls a second are allowed; a user makes {speed:.0f} a second, by way of {CLIENTS} clients")
        counts = [it.split() for it in together(parts, "call")]
        theirs, ours = (sum(map(int, column)) for column in zip(*counts, strict=True))
        print(f"INCR, EXPIRE:  {theirs} of {calls} calls are allowed, and none would be from then on")
        print(f"holdfast:      {ours} of {calls} calls are allowed")
        began = time.monotonic()
        taken = sum(map(int, together(parts, "burst")))
        # Calls that have become available again meanwhile are allowed, too.
        most = LIMIT * (1 + (time.monotonic() - began) / WINDOW) + 1
        told = "" if taken <= most else ": TOO MANY"
        later = stage.locks.rate("example:burst", LIMIT, WINDOW, key=USER).peek().retry_after
        print(f"               and of {CLIENTS * 2 * LIMIT} at once {taken}{told}; the next one {later:.2f} s later")
    return theirs < calls and ours == calls and 0 < taken <= most


if __name__ == "__main__":
    play_a_part(client)
    sys.exit(not main())
