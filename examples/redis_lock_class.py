"""The class `RedisLock`: one object for a resource, with a value that it draws when it is made.

Unsafe in the original: the value belongs to the object, not to the holder. Two threads share the object, as one does with a lock. A takes
it, and is slow; the key runs out; B takes it, with the same value; A releases: the script compares, finds the value that it knows, and
deletes B's key; C comes in, and B is still inside. (And, as with every lock on one instance: nobody renews it, and the instance may forget
it.)

Instead: what threads share is a *description*, `locks.lock(name)`, which holds nothing. Each acquisition gives a lease of its own, with a
token of its own: A's release of a lease that is over releases nothing, and raises LockLost. (`renew=False` here, so that A loses its lease
at all.)
"""

from __future__ import annotations

import os
import sys
import time
import uuid

from redis import Redis

from holdfast import Holdfast, LockLost

EXPIRATION = 0.3  # seconds
UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class RedisLock:
    """The original."""

    def __init__(self, node: Redis, resource: str, expiration: float) -> None:
        self._node, self._key, self._expiration = node, f"example:{resource}", expiration
        self._value = str(uuid.uuid4())

    def acquire(self) -> bool:
        return bool(self._node.set(self._key, self._value, nx=True, px=int(self._expiration * 1000)))

    def release(self) -> bool:
        return bool(self._node.eval(UNLOCK, 1, self._key, self._value))


def original(node: Redis) -> bool:
    """Does C come in while B is inside?"""
    shared, others = RedisLock(node, "shared", EXPIRATION), RedisLock(node, "shared", 10)
    a = shared.acquire()
    time.sleep(EXPIRATION + 0.1)
    b = shared.acquire()
    released = shared.release()  # A's, who thinks that it is inside
    c = others.acquire()
    others.release()
    print(f"RedisLock:  A is too late, B is inside; A releases: {'B' if b and released else 'nobody'}'s lock is gone; C asks: {told(c)}")
    return a and c


def holdfast(locks: Holdfast) -> bool:
    """The same with one description, and a lease for each."""
    shared = locks.lock("example:description", ttl=EXPIRATION, renew=False)
    a = shared.acquire()
    time.sleep(EXPIRATION + 0.1)
    b = locks.lock("example:description").acquire()
    try:
        a.release()
        released = "B"
    except LockLost:
        released = "nobody"
    c = shared.try_acquire()
    print(f"holdfast:   A is too late, B is inside; A releases: {released}'s lock is gone; C asks: {told(c is not None)}")
    b.release()
    return c is not None


def told(inside: bool) -> str:
    return "INSIDE, TOO" if inside else "refused"


def main() -> bool:
    with Holdfast() if "HOLDFAST_NODES" in os.environ else Holdfast.local() as locks, Redis.from_url(locks.urls[0]) as node:
        return original(node) and not holdfast(locks)


if __name__ == "__main__":
    sys.exit(not main())
