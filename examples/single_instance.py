"""Version 1, one instance: SET NX with an expiry and a value of one's own; released by a script that compares.

The original stands in "Redlock: Distributed Lock Manager with Redis".

Right as long as the work is quick and the server remembers. Unsafe in the original:

- nobody renews. A: SET, for 1 s; A works for longer; the key runs out; B: SET, inside; and A is still at it. The script keeps A from
  deleting B's key afterwards, but nothing tells A, and nothing tells the storage that A's writes come too late;
- the server is one. A: SET; the server dies, and comes back empty; B: SET, inside. (A replica is no help: see examples/failover.)

Instead: `locks.lock(name)` renews its lease while the work lasts, and takes the lock from a majority of independent nodes. A node that
comes back empty is left alone until no lease can be left that it has forgotten. Every holder has a fence above all earlier ones.
"""

from __future__ import annotations

import secrets
import sys
import time

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast import Holdfast, NotAcquired
from holdfast.embedded import Nodes

TIMEOUT = 1.0  # seconds that a key lasts
WORK = 1.5  # seconds that A works
UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class Single:
    """The original: one caller's lock on one server."""

    def __init__(self, node: Redis, name: str, timeout: float = TIMEOUT) -> None:
        self._node, self._name, self._timeout, self._value = node, name, timeout, secrets.token_hex(10)

    def take(self) -> bool:
        return bool(self._node.set(self._name, self._value, nx=True, px=int(self._timeout * 1000)))

    def leave(self) -> None:
        self._node.eval(UNLOCK, 1, self._name, self._value)


def asks(locks: Holdfast, name: str) -> bool:
    """Does somebody else get the lock now? (Refused, or nobody can know: either way it stays outside.)"""
    try:
        lease = locks.lock(name).try_acquire()
    except NotAcquired:
        return False
    if lease is not None:
        lease.release()
    return lease is not None


def long_work(node: Redis, here: Holdfast, there: Holdfast) -> tuple[bool, bool]:
    """A works for longer than its lock lasts. Does B come in meanwhile: with one instance; with holdfast?"""
    Single(node, "example:report").take()
    time.sleep(WORK)
    single = Single(node, "example:report").take()
    with here.lock("example:summary", ttl=TIMEOUT):
        time.sleep(WORK)
        ours = asks(there, "example:summary")
    return single, ours


def restart(nodes: Nodes, node: Redis, here: Holdfast, there: Holdfast) -> tuple[bool, bool]:
    """A holds the lock; a server is killed, and comes back empty. Does B come in?"""
    Single(node, "example:invoice", timeout=30).take()
    with here.lock("example:order", ttl=10) as lease:
        nodes.kill(0)
        nodes.restart(0)
        single = Single(node, "example:invoice", timeout=30).take()
        ours = asks(there, "example:order")
        lease.check()
    return single, ours


def main() -> bool:
    print("Does B come in while A is inside?            one instance    holdfast")
    with Nodes(5) as nodes, Redis.from_url(nodes.urls[0], retry=Retry(NoBackoff(), 1)) as node:
        with Holdfast(*nodes.urls) as here, Holdfast(*nodes.urls) as there:
            here.ready()
            there.ready()
            found = {
                "A works longer than its lock lasts": long_work(node, here, there),
                "a server is killed, and restarts": restart(nodes, node, here, there),
            }
    for what, (single, ours) in found.items():
        print(f"  {what:<42} {'YES' if single else 'no':<15} {'YES' if ours else 'no'}")
    return all(single and not ours for single, ours in found.values())


if __name__ == "__main__":
    sys.exit(not main())
