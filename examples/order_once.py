"""An order that three processes get: the first one is killed with -9 while it charges the card.

The original stands in "Redis and Distributed Locks: A First Principles Approach" and elsewhere.

Unsafe in such code:

- a lock around the work. The process dies, the lock runs out, the second process charges the card
  and releases, and so does the third one: the card is charged twice;
- a mark that is set first (SET NX), then the work. The process dies before it has charged the card,
  and the mark says that the order is done: the order is lost. In the other order, first the work
  and then the mark, two processes that begin together both charge.

Instead: `locks.once(f"order:{number}", keep=86400).run(charge, number)`. One process runs it. The
others wait for its result and get it, and so does everybody who asks later, for a day. If the
process dies, another one takes its place within a `ttl`. (The first one may have charged the card
just before it died, which no lock can know. So pass the number of the order to the payment service,
which can refuse the second charge of the same order.)
"""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import uuid4

from demo.stage import Stage, orders, plain_client, play_a_part, say

from holdfast import Holdfast

PROCESSES = 3
TTL = 1.0  # seconds until the place of a dead process is free


def process_order(way: str, order: str, ledger: str) -> None:
    """One process of the shop, which was given the order."""

    def charge() -> str:
        say("charging")
        next(orders())  # The work takes its time: this process is killed here, or told to go on.
        with Path(ledger).open("a") as file:
            file.write(f"charged {order}\n")
        return f"receipt for {order}"

    with Holdfast() as locks, plain_client() as node:
        if way == "a lock":
            with locks.lock(order, ttl=TTL):
                say(charge())
        elif way == "a mark":
            say(charge() if node.set(f"{order}:mark", "done", nx=True, ex=60) else "done before")
        else:
            say(locks.once(order, keep=86400, ttl=TTL).run(charge))


def play(stage: Stage, way: str) -> tuple[int, int]:
    """Give a new order to all processes. How often was the card charged, and how many processes have the receipt?"""
    order, ledger = f"example:order:{uuid4()}", stage.folder / f"{way}.txt"
    ledger.touch()
    first = stage.start(process_order, way, order, ledger)
    first.says()  # it is charging
    others = [stage.start(process_order, way, order, ledger) for _ in range(PROCESSES - 1)]
    first.kill()
    for it in others:
        it.tell("go on")
    receipts = [lines[-1] for it in others if (lines := it.rest())]
    return len(ledger.read_text().splitlines()), receipts.count(f"receipt for {order}")


def main() -> bool:
    with Stage() as stage:
        print(f"an order is given to {PROCESSES} processes; the first one is killed with -9 while it charges the card:")
        locked, _ = play(stage, "a lock")
        print(f"  a lock:      {locked} charges" + ": ONE TOO MANY" * (locked > 1))
        marked, _ = play(stage, "a mark")
        print(f"  a mark:      {marked} charges" + ": THE ORDER IS LOST" * (marked == 0))
        once, receipts = play(stage, "holdfast")
        print(f"  holdfast:    {once} charge, and {receipts} of {PROCESSES - 1} processes that live have its receipt")
    return locked == 2 and marked == 0 and once == 1 and receipts == PROCESSES - 1


if __name__ == "__main__":
    play_a_part(process_order)
    sys.exit(not main())
