"""The class `RedisLock`: one object for a resource, with a value that it draws when it is made.

The original stands in "Redis and Distributed Locks: A First Principles Approach".

Unsafe in the original: the value belongs to the object, not to the holder. Two threads of a process
share the object, as one does with a lock. A takes it, and is slow; the key runs out; B takes it,
with the same value; A releases: the script compares, finds the value that it knows, and deletes B's
key; C, in another process, comes in, and B is still inside. (And, as with every lock on one
instance: nobody renews it, and the instance may forget it.)

Instead: what threads share is a *description*, `locks.lock(name)`, which holds nothing. Each
acquisition gives a lease of its own, with a token of its own: A's release of a lease that is over
releases nothing, and raises LockLost. (`renew=False` here, so that A loses its lease at all.)
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable

from demo.stage import Stage, orders, plain_client, play_a_part, say
from redis import Redis

from holdfast import Holdfast, Lease, LockLost

EXPIRATION = 300  # milliseconds
UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class RedisLock:
    """The original."""

    def __init__(self, redis_client: Redis, resource_name: str, expiration: int) -> None:
        self.redis, self.expiration = redis_client, expiration
        self.lock_key, self.lock_value = f"example:{resource_name}", str(uuid.uuid4())

    def acquire(self) -> bool:
        return bool(self.redis.set(self.lock_key, self.lock_value, nx=True, px=self.expiration))

    def release(self) -> bool:
        return bool(self.redis.eval(UNLOCK, 1, self.lock_key, self.lock_value))


def original(name: str) -> None:
    """A process whose threads share one `RedisLock`. (One thread plays A and B here, one after the other.)"""
    with plain_client() as node:
        shared = RedisLock(node, name, EXPIRATION)
        for order in orders():
            if order.endswith("takes it"):
                say("inside" if shared.acquire() else "refused")
            else:
                say("B's lock is gone" if shared.release() else "nobody's lock is gone")


def with_holdfast(name: str) -> None:
    """A process whose threads share one description, and have a lease each."""
    with Holdfast() as locks:
        shared = locks.lock(f"example:{name}", ttl=EXPIRATION / 1000, renew=False)
        lasting = locks.lock(f"example:{name}")  # B is not slow
        leases: dict[str, Lease | None] = {}
        for order in orders():
            thread = order[0]
            if order.endswith("takes it"):
                leases[thread] = (lasting if thread == "B" else shared).try_acquire()
                say("inside" if leases[thread] else "refused")
            elif lease := leases[thread]:
                try:
                    lease.release()
                    say("B's lock is gone")
                except LockLost:
                    say("nobody's lock is gone")


def play(stage: Stage, role: Callable[[str], None]) -> bool:
    """A and B are threads of one process, C is in another one. Does C come in while B is inside?"""
    name = f"shared:{uuid.uuid4()}"
    ours, theirs = stage.start(role, name), stage.start(role, name)
    a = ours.ask("A takes it")
    time.sleep(EXPIRATION / 1000 + 0.1)
    b = ours.ask("B takes it")
    released = ours.ask("A releases it")
    c = theirs.ask("C takes it")
    way = "RedisLock:" if role is original else "holdfast:"
    told = "INSIDE, TOO" if c == "inside" else c
    print(f"{way:12}A is too late, B is {b}; A releases: {released}; C asks: {told}")
    return a == b == c == "inside"


def main() -> bool:
    with Stage() as stage:
        return play(stage, original) and not play(stage, with_holdfast)


if __name__ == "__main__":
    play_a_part(original, with_holdfast)
    sys.exit(not main())
