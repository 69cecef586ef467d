"""Version 0, the naive lock: look with GET, take with SET, open with DEL. Five requests at once may create three items, and create five.

Unsafe in the original:

- it looks in one step and takes in another. A: GET, nothing; B: GET, nothing; A: SET, inside; B: SET, inside;
- the key has no owner. When A leaves, its DEL opens the door behind which B still is, and C comes in. Whoever is interrupted while it
  still waits deletes the key, too, and never had it;
- the key has no expiry: whoever dies inside keeps everybody out for ever.

Instead: `with locks.lock("create_item")`. A node takes a name in one step, for one token, with an expiry, and only that token gives it
back.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from threading import Barrier

from redis import Redis

from holdfast import Holdfast

REQUESTS, MOST = 5, 3
Enter = Callable[[], AbstractContextManager[object]]


class Service:
    """May have three items. `create` is the code of a thousand services: it looks, works for a while, and writes."""

    def __init__(self) -> None:
        self.items: list[int] = []

    def create(self, item: int) -> None:
        if len(self.items) < MOST:
            time.sleep(0.05)
            self.items.append(item)


@contextmanager
def naive(node: Redis, all_have_looked: Barrier) -> Iterator[None]:
    """The original, at its unluckiest: each caller is held up for a moment after it has looked, as any scheduler may do."""
    try:
        while node.get("example:naive"):
            time.sleep(0.05)
        all_have_looked.wait()
        node.set("example:naive", "taken")
        yield
    finally:
        node.delete("example:naive")


def created(enter: Enter) -> int:
    """How many items there are after five requests at once."""
    service = Service()

    def request(item: int) -> None:
        with enter():
            service.create(item)

    with ThreadPoolExecutor(REQUESTS) as crowd:
        list(crowd.map(request, range(REQUESTS)))
    return len(service.items)


def main() -> bool:
    with Holdfast() if "HOLDFAST_NODES" in os.environ else Holdfast.local() as locks, Redis.from_url(locks.urls[0]) as node:
        all_have_looked = Barrier(REQUESTS)
        wrong = created(lambda: naive(node, all_have_looked))
        print(f"GET, then SET:    {wrong} items of {MOST} that are allowed")
        right = created(lambda: locks.lock("example:naive", wait=30))
        print(f"holdfast:         {right} items of {MOST} that are allowed")
        return wrong > MOST and right == MOST


if __name__ == "__main__":
    sys.exit(not main())
