"""The lock on a counter, INCR and DECR: its last step never happens, and nobody may ever get in.

The original stands in "Redis as a mutex service".

The document's steps: INCR; if it returns 1, do the work; whatever it returned, DECR; "if the return
value of INCR was 0, try again". INCR never returns 0 while each process decrements only what it has
incremented, because it adds 1 to a count that is 0 or more. So the step that sends a process back
to try again is never reached, and a process that reads 2 is never told to try again.

Unsafe in the original, if the step is read as "unless it was 1, try again":

- the lock is free, and nobody gets it. B: INCR, 2, while A is inside; A leaves: DECR, 1; C: INCR,
  2; B: DECR, 1; B: INCR, 2; C: DECR, 1; and so on: two processes that try in turn keep the count
  from 0 for ever, by trying;
- a server that restarts begins at 0. A is inside; B: INCR, 1, inside; A leaves: DECR, 0; C: INCR,
  1, inside, and B is, too;
- if A leaves right after such a restart, DECR gives -1. Only now INCR returns 0, to everybody: each
  tries again, for ever;
- the count has no owner and no expiry. A process that dies inside, or between INCR and DECR, leaves
  it at 1 or more: closed for ever.

Instead: `locks.lock(name)`. A process that waits has a place in line, and a release hands the lock
on to the first: no try disturbs another one.
"""

from __future__ import annotations

import sys
import time

from demo.stage import Stage, orders, plain_client, play_a_part, say
from redis import Redis

from holdfast import Holdfast

KEY = "example:counter"
TRIES = 100


def contender(number: str) -> None:
    """A process that tries again and again: what does INCR return, at least and at most?"""
    with plain_client() as node:
        say("ready")
        next(orders())
        found = []
        for _ in range(10 * TRIES):
            found.append(node.incr(KEY))
            node.decr(KEY)
        say(f"{min(found)} {max(found)}")


def user(number: str) -> None:
    """A process that enters holdfast's lock again and again: how often, and how many are inside then, at most?"""
    crowds = []
    with Holdfast() as locks, plain_client() as node:
        locks.ready(wait=30)
        say("ready")
        next(orders())
        for _ in range(TRIES // 2):
            with locks.lock("example:queue", wait=30):
                crowds.append(node.incr(f"{KEY}:inside"))
                time.sleep(0.001)
                node.decr(f"{KEY}:inside")
    say(f"{len(crowds)} {max(crowds)}")


def never_zero(stage: Stage) -> bool:
    """Two processes increment and decrement at the same time. Does INCR ever return 0?"""
    parts = [stage.start(contender, number) for number in range(2)]
    for it in parts:
        it.says()
    for it in parts:
        it.tell("go")
    counts = [int(count) for it in parts for count in it.says().split()]
    told = "so the step for 0 never comes" if min(counts) > 0 else "SO THE STEP FOR 0 COMES"
    print(f"INCR:      two processes try {20 * TRIES} times: INCR returns {min(counts)} to {max(counts)}, {told}")
    return min(counts) >= 1


def starved(node: Redis) -> bool:
    """A has left. Do B and C, who try in turn, both stay outside?"""
    node.delete(KEY)
    node.incr(KEY)  # A is inside
    inside = [node.incr(KEY) == 1]  # B
    node.decr(KEY)  # A leaves
    for _ in range(TRIES):  # one of them is always between its INCR and its DECR when the other one asks
        inside.append(node.incr(KEY) == 1)
        node.decr(KEY)
    told = "somebody gets in" if any(inside) else "NOBODY gets in"
    print(f"           A has left; B and C try in turn, {TRIES} times: {told}")
    return not any(inside)


def doubled(node: Redis) -> bool:
    """The server forgets, as in a restart. Are two inside in the end?"""
    node.set(KEY, 1)  # A is inside
    node.delete(KEY)  # the restart
    b = node.incr(KEY) == 1
    node.decr(KEY)  # A leaves
    c = node.incr(KEY) == 1
    told = "TWO are inside" if b and c else "one is inside"
    print(f"           A is inside; the server restarts; B enters, A leaves, C enters: {told}")
    return b and c


def closed(node: Redis) -> bool:
    """The server forgets, and A leaves. Does INCR return 0 from then on, to everybody?"""
    node.delete(KEY)  # the restart, while A is inside
    node.decr(KEY)  # A leaves
    found = set()
    for _ in range(TRIES):
        found.add(node.incr(KEY))
        node.decr(KEY)
    told = "0 each time, and NOBODY gets in" if found == {0} else "1, and somebody gets in"
    print(f"           the server restarts, A leaves; B tries {TRIES} times, alone: INCR returns {told}")
    node.delete(KEY)
    return found == {0}


def served(stage: Stage) -> bool:
    """A leaves. Do two processes that come again and again get in every time, and one at a time?"""
    stage.node.delete(f"{KEY}:inside")
    parts = [stage.start(user, number) for number in range(2)]
    for it in parts:
        it.says()
    with stage.locks.lock("example:queue", wait=30):
        for it in parts:
            it.tell("go")
    times, crowds = zip(*[map(int, it.says().split()) for it in parts], strict=True)
    print(f"holdfast:  A has left; B and C come {TRIES} times: {sum(times)} times they get in, {max(crowds)} at a time")
    return bool(sum(times) == TRIES and max(crowds) == 1)


def main() -> bool:
    with Stage() as stage:
        stage.node.delete(KEY)
        unsafe = [never_zero(stage), starved(stage.node), doubled(stage.node), closed(stage.node)]
        return all(unsafe) and served(stage)


if __name__ == "__main__":
    play_a_part(contender, user)
    sys.exit(not main())
