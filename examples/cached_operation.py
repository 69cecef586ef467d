"""An expensive operation whose result is cached: look, take the spinlock, look again if it had to spin, compute, store.

The original stands in "Redis as a mutex service".

Unsafe in the original: the count of spins is not what it is taken for. A: looks, nothing there; B: looks, locks, computes, stores,
unlocks; A: locks at the first try, no spins, so does not look again, and computes, too. And whoever dies while it computes keeps the lock
in the set for ever; all others spin, and so do those who could have been shown a value that is a minute old.

Instead: `locks.fill(key, ttl, compute).get()`. Whoever finds a fresh value is not in anybody's way; without one, one computes, who looks
again in any case, and the others wait in line for its value. With `stale=` nobody waits for a newer one. What it gives says whether it was
computed here, and how long it waited.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

from redis import Redis

from holdfast import Holdfast

USERS = 10


class Expensive:
    """The operation, which counts how often it is done."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        time.sleep(0.1)
        return "a page"


def lookup(node: Redis, cache: dict[str, str], compute: Callable[[], str], meanwhile: Callable[[], object] = bool) -> str:
    """The original. `meanwhile`: happens between its first look and its try for the lock."""
    if "page" in cache:
        return cache["page"]
    meanwhile()
    spins = 0
    while not node.sadd("example:cache locks", "page"):
        time.sleep(0.02)
        spins += 1
    try:
        if not spins or "page" not in cache:
            cache["page"] = compute()
        return cache["page"]
    finally:
        node.srem("example:cache locks", "page")


def main() -> bool:
    with Holdfast() if "HOLDFAST_NODES" in os.environ else Holdfast.local() as here, Holdfast(*here.urls) as there:
        theirs, ours, cache = Expensive(), Expensive(), dict[str, str]()
        with Redis.from_url(here.urls[0]) as node:
            lookup(node, cache, theirs, meanwhile=lambda: lookup(node, cache, theirs))
        print(f"a spinlock:  two ask, the second one in the middle of the first: computed {theirs.count} times")

        key = f"example:page:{uuid4()}"  # (each run of this example fills another one)
        fills = [locks.fill(key, 60, ours) for locks in (here, there)]
        with ThreadPoolExecutor(USERS) as crowd:
            found = list(crowd.map(lambda number: fills[number % 2].get(), range(USERS)))
        later = there.fill(key, 60, ours).get()
        print(f"holdfast:    {USERS} ask at once, and one comes later: computed {ours.count} time{'s' * (ours.count != 1)}")
        return theirs.count == 2 and ours.count == 1 and {it.value for it in [*found, later]} == {"a page"}


if __name__ == "__main__":
    sys.exit(not main())
