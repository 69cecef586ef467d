"""The lock on a counter: INCR; whoever reads 1 is inside; and in any case DECR.

Unsafe in the original:

- the lock is free, and nobody gets it. B: INCR, 2, while A is inside; A leaves: DECR, 1; C: INCR, 2; B: DECR, 1; B: INCR, 2; C: DECR, 1;
  and so on: two who try in turn keep the count from 0 for ever, by trying;
- the count has no owner and no expiry. Whoever dies inside, or between INCR and DECR, or repeats an INCR whose answer was lost, leaves it
  at 1 or more: closed for ever;
- a server that restarts begins at 0. A is inside; B: INCR, 1, inside; A leaves: DECR, 0; C: INCR, 1, inside, and B is, too.

Instead: `locks.lock(name)`. Whoever waits has a place in line, and a release hands the lock on to the first: no try disturbs another one.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from redis import Redis

from holdfast import Holdfast

KEY = "example:counter"
TRIES = 100


def enters(node: Redis) -> bool:
    return node.incr(KEY) == 1


def leaves(node: Redis) -> None:
    node.decr(KEY)


def starved(node: Redis) -> bool:
    """A has left. Do B and C, who try in turn, both stay outside?"""
    node.delete(KEY)
    assert enters(node)  # A
    inside = [enters(node)]  # B
    leaves(node)  # A
    for _ in range(TRIES):  # one of them is always between its INCR and its DECR when the other one asks
        inside.append(enters(node))
        leaves(node)
    print(f"INCR:      A has left; B and C try in turn, {TRIES} times: {'somebody' if any(inside) else 'NOBODY'} gets in")
    node.delete(KEY)
    return not any(inside)


def doubled(node: Redis) -> bool:
    """The server forgets, as in a restart. Are two inside in the end?"""
    assert enters(node)  # A
    node.delete(KEY)  # (the restart)
    b = enters(node)
    leaves(node)  # A
    c = enters(node)
    print(f"           A is inside; the server restarts; B enters, A leaves, C enters: {'TWO' if b and c else 'not two'} are inside")
    node.delete(KEY)
    return b and c


def served(locks: Holdfast) -> bool:
    """A leaves. Do two who come again and again get in every time, and one at a time?"""
    inside, crowds = list[str](), list[int]()

    def user(who: str) -> None:
        for _ in range(TRIES // 2):
            with locks.lock("example:queue", wait=30):
                inside.append(who)
                crowds.append(len(inside))
                time.sleep(0.001)
                inside.remove(who)

    with ThreadPoolExecutor(2) as both:
        with locks.lock("example:queue"):
            waiting = [both.submit(user, who) for who in "BC"]
        for it in waiting:
            it.result()
    print(f"holdfast:  A has left; B and C come {TRIES} times: {len(crowds)} times they get in, {max(crowds)} at a time")
    return len(crowds) == TRIES and max(crowds) == 1


def main() -> bool:
    with Holdfast() if "HOLDFAST_NODES" in os.environ else Holdfast.local() as locks, Redis.from_url(locks.urls[0]) as node:
        return starved(node) and doubled(node) and served(locks)


if __name__ == "__main__":
    sys.exit(not main())
