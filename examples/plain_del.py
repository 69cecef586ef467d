"""Release by plain DEL: A is late and deletes B's lock, and C comes in while B is inside.

The original stands in "A proposal for more reliable locks using Redis".

Unsafe in the original, SET NX with an expiry, and DEL. A takes the lock, and is slow. The key runs
out. B takes the lock. A has finished and releases: DEL deletes the key, which is B's by now. C
takes the lock, and B is still inside.

Instead: `with locks.lock(name)`. A node deletes the key only if it holds the token of the lease
that is released. A's release deletes nothing and raises LockLost, so A learns that it was late. (A
lease is renewed while it is held. Here `renew=False`, so that A is late at all.)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from uuid import uuid4

from demo.stage import Stage, orders, plain_client, play_a_part, say

from holdfast import Holdfast, Lease, LockLost

SHORT, LONG = 0.3, 10.0  # seconds: A's lock, and B's and C's


def by_hand(key: str, ttl: str) -> None:
    """A process that takes the lock with SET NX and releases it with DEL, when it is told to."""
    with plain_client() as node:
        for order in orders():
            if order == "take":
                say("inside" if node.set(key, "taken", nx=True, px=round(float(ttl) * 1000)) else "refused")
            else:
                say("a lock is gone" if node.delete(key) else "nothing happens")


def with_holdfast(name: str, ttl: str) -> None:
    """The same with holdfast."""
    with Holdfast() as locks:
        lock = locks.lock(name, ttl=float(ttl), renew=False)
        lease: Lease | None = None
        for order in orders():
            if order == "take":
                lease = lock.try_acquire()
                say("inside" if lease else "refused")
            elif lease:
                try:
                    lease.release()
                    say("a lock is gone")
                except LockLost:
                    say("nothing happens, and A learns that it was late")


def play(stage: Stage, role: Callable[[str, str], None]) -> str:
    """A, B and C, each in a process. What comes of it when C asks?"""
    name = f"example:plain-del:{uuid4()}"
    a, b, c = (stage.start(role, name, ttl) for ttl in (SHORT, LONG, LONG))
    assert a.ask("take") == "inside"
    time.sleep(SHORT + 0.1)
    if b.ask("take") != "inside":
        return "B never came in"
    released = a.ask("release")
    third = c.ask("take")
    told = "INSIDE, AND B IS, TOO" if third == "inside" else third
    way = "DEL:" if role is by_hand else "holdfast:"
    print(f"{way:11}A is late, B is inside; A releases: {released}; C asks: {told}")
    return third


def main() -> bool:
    with Stage() as stage:
        return play(stage, by_hand) == "inside" and play(stage, with_holdfast) == "refused"


if __name__ == "__main__":
    play_a_part(by_hand, with_holdfast)
    sys.exit(not main())
