"""The class `RedLock`, with `extend_lock`: five instances, of which one is dead.

The original stands in "Redis and Distributed Locks: A First Principles Approach".

Unsafe in the original:

- `acquire` lets the dead one's error through. Its caller has no lock, and the keys that it took on those before the dead one stay until
  they run out: a majority is well, and nobody gets in;
- `extend_lock` says no as soon as one says no. Those before it are extended, those after it are not, and the caller, who may have a
  majority, is told that it has lost the lock. It also never says until when the lock is held now;
- whoever works for longer than the lock lasts must think of `extend_lock` in time, between two steps of the work;
- `release` is silent about everything, a misspelt name included.

Instead: a lease is renewed by itself, every ttl/3. `lease.extend(seconds)` is for whoever knows that it will take longer: it asks all
nodes at once, a majority is enough, and it returns how many seconds are left. A dead node costs nothing.
"""

from __future__ import annotations

import sys
import time
import uuid

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from holdfast import Holdfast
from holdfast.embedded import Nodes

DEAD = 2  # of the nodes 0 to 4
EXTEND = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0"


class RedLock:
    """The original, without its release."""

    def __init__(self, nodes: list[Redis], resource: str, expiration: int = 10_000) -> None:
        self._nodes, self._key, self._expiration, self._value = nodes, f"example:{resource}", expiration, str(uuid.uuid4())

    def acquire(self) -> int:
        """How many milliseconds are left; 0: it has not got it."""
        began, yes = time.time(), 0
        for node in self._nodes:
            yes += bool(node.set(self._key, self._value, nx=True, px=self._expiration))
        left = self._expiration - int((time.time() - began) * 1000)
        return left if yes > len(self._nodes) // 2 and left > 0 else 0

    def extend_lock(self, milliseconds: int) -> bool:
        for node in self._nodes:
            try:
                if not node.eval(EXTEND, 1, self._key, self._value, milliseconds):
                    return False
            except RedisError:
                return False
        return True


def original(nodes: Nodes, instances: list[Redis]) -> bool:
    """Does it fail although four of five are well?"""
    lock = RedLock(instances, "held")
    lock.acquire()
    nodes.kill(DEAD)
    extended = lock.extend_lock(20_000)
    longer = sum(said(it, "example:held") > 10_000 for it in instances)
    print(f"RedLock:   one of five dies; extend_lock: {'done' if extended else 'FAILED'}, and {longer} nodes have the longer lease")
    try:
        acquired = RedLock(instances, "next").acquire() > 0
    except RedisError as error:
        acquired = False
        left = sum(said(it, "example:next") > 0 for it in instances)
        print(f"           acquire: {type(error).__name__.upper()}, and its keys are left on {left} nodes")
    return not extended and not acquired


def said(node: Redis, key: str) -> int:
    """For how many milliseconds an instance keeps a key; 0: it has none, or is dead."""
    try:
        return max(0, int(node.pttl(key)))
    except RedisError:
        return 0


def holdfast(nodes: Nodes) -> bool:
    """The same with holdfast: does it work?"""
    with Holdfast(*nodes.urls) as locks:
        with locks.lock("example:ours", ttl=10) as lease:
            left = lease.extend(20)
            print(f"holdfast:  acquired, with fence {lease.fence}, and extended: {left:.0f} s are left")
            return left > 19


def main() -> bool:
    with Nodes(5) as nodes:
        instances = [Redis.from_url(it, retry=Retry(NoBackoff(), 0)) for it in nodes.urls]
        try:
            return original(nodes, instances) and holdfast(nodes)
        finally:
            for it in instances:
                it.close()


if __name__ == "__main__":
    sys.exit(not main())
