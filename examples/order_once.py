"""An order that is processed once: the queue delivers it three times, and whoever has it first dies on the way.

Unsafe in the originals:

- a lock around the work. The message comes again when the lock is free again: the card is charged twice;
- a mark that is set first (SET NX), then the work. Whoever dies in between has done nothing, and the mark says that it was done: the order
  is lost. The other way round, first the work and then the mark, two deliveries at the same time are both done.

Instead: `locks.once(f"order:{number}", keep=86400).run(charge, number)`. One runs, the others wait for its result, and get it, as do later
ones, for a day; a run that raises is no run, and one whose process dies is replaced within a ttl. (It may have charged before it died: no
lock can know. So the key of an order is handed on to whoever charges, as every payment service wants it.)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from uuid import uuid4

from redis import Redis

from holdfast import Holdfast

DELIVERIES = 3


class Crash(Exception):
    """The process dies."""


class Shop:
    """Charges cards. The first to try dies before it has done it."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.dies = True

    def charge(self, order: str) -> str:
        if self.dies:
            self.dies = False
            raise Crash
        self.charged.append(order)
        return f"receipt {len(self.charged)} of {order}"


def deliver(process: Callable[[], object]) -> list[object]:
    """Deliver a message three times: what came of it."""
    outcomes: list[object] = []
    for _ in range(DELIVERIES):
        try:
            outcomes.append(process())
        except Crash:
            outcomes.append(None)
    return outcomes


def main() -> bool:
    order = f"example:order:{uuid4()}"  # (each run of this example is about another one)
    with Holdfast() if "HOLDFAST_NODES" in os.environ else Holdfast.local() as locks, Redis.from_url(locks.urls[0]) as node:
        locked, marked, once = Shop(), Shop(), Shop()

        def under_a_lock() -> str:
            with locks.lock(order):
                return locked.charge(order)

        def mark_first() -> str | None:
            return marked.charge(order) if node.set(f"{order}:mark", "done", nx=True, ex=60) else None

        charge_once = locks.once(order, keep=86400)
        deliver(under_a_lock)
        deliver(mark_first)
        receipts = deliver(lambda: charge_once.run(once.charge, order))
    print(f"delivered {DELIVERIES} times, and the first to have it dies:")
    print(f"  a lock:      {len(locked.charged)} charges" + ": ONE TOO MANY" * (len(locked.charged) > 1))
    print(f"  a mark:      {len(marked.charged)} charges" + ": THE ORDER IS LOST" * (not marked.charged))
    print(f"  holdfast:    {len(once.charged)} charge, and {receipts.count(receipts[-1])} deliveries have its receipt")
    return len(locked.charged) == 2 and not marked.charged and len(once.charged) == 1 and receipts == [None, receipts[1], receipts[1]]


if __name__ == "__main__":
    sys.exit(not main())
