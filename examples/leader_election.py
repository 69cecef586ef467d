"""Leader election: the leader is killed with -9, and the next one is stopped and wakes up late.

The original stands in "Redis and Distributed Locks: A First Principles Approach".

Unsafe in the original, a key with an expiry that its owner prolongs: it looks, and then acts. A:
GET says A; A is stopped for a moment (a virtual machine that moves, a garbage collector); the key
runs out; B: SET NX, leads; A goes on: PEXPIRE prolongs B's key, and A acts as the leader, too. A
has no way to find out, and the storage has no way to tell A's writes from B's.

Instead: `with locks.election(name, value) as leadership`. The standbys wait in line, without
polling, and the first of them leads within a `ttl` of the leader's death. A leader whose time is
over knows it without asking (`is_leader`), before anybody else can lead. And every term is greater
than all earlier ones, so storage that is given the term refuses a leader that was asleep
(`holdfast.fencing`).
"""

from __future__ import annotations

import sys
import time
from uuid import uuid4

from demo.stage import Part, Stage, orders, play_a_part, say
from redis import Redis

from holdfast import Holdfast, Leader, StaleFence
from holdfast.fencing import Seen

TTL = 1.0
NAME = f"example:election:{uuid4()}"  # (each run of this example is another election)


def instance(name: str, value: str) -> None:
    """One process. It stands for election; once it leads, it answers each line with whether it still does."""
    with Holdfast() as locks:
        leadership = locks.election(name, value, ttl=TTL).campaign()
        say(leadership.term)
        for _ in orders():
            say(leadership.is_leader)


def original(node: Redis) -> bool:
    """Do two lead at once?"""
    key = "example:leader"
    node.delete(key)
    node.set(key, "A", nx=True, px=int(TTL * 1000))
    a = node.get(key) == b"A"
    time.sleep(TTL + 0.1)  # A is stopped
    b = bool(node.set(key, "B", nx=True, px=int(TTL * 1000)))
    node.pexpire(key, int(TTL * 1000))  # A goes on: it has just seen that it leads
    print(f"a key:     A looks, is stopped, goes on: {'A AND B lead' if a and b else 'one leads'}")
    return a and b


def next_leader(locks: Holdfast, others: dict[str, Part]) -> Leader | None:
    """Watch until one of these processes leads."""
    return next((it for it in locks.election(NAME).observe(wait=10) if it and it.value in others), None)


def holdfast(stage: Stage) -> bool:
    """Three processes, of which one after the other leads. Does everybody know who leads, and is a late one refused?"""
    parts = {value: stage.start(instance, NAME, value) for value in "ABC"}
    first = next_leader(stage.locks, parts)
    if first is None or first.value is None:
        return False
    print(f"holdfast:  {first.value} leads, with term {first.term}; it is killed with -9")
    parts.pop(first.value).kill()
    killed = time.monotonic()
    second = next_leader(stage.locks, parts)
    if second is None or second.value is None:
        return False
    took = time.monotonic() - killed
    later = f"{took:.1f} s later (ttl: {TTL:.0f} s)"
    print(f"           {second.value} leads {later}, with term {second.term}; it is stopped")
    late = parts.pop(second.value)
    late.says()  # its term: it knows that it leads
    late.stop()
    third = next_leader(stage.locks, parts)
    if third is None or third.value is None:
        return False
    print(f"           {third.value} leads, with term {third.term}, and writes")
    storage = Seen()
    with storage.guard({NAME: third.term}):
        pass  # the third one writes
    late.go_on()
    knows = late.ask("do you lead?") == "False"
    try:
        with storage.guard({NAME: second.term}):
            refused = False  # the late one writes
    except StaleFence:
        refused = True
    told = "knows that it leads no more" if knows else "LEADS, TOO"
    print(f"           {second.value} goes on, and {told}; what it writes is {'refused' if refused else 'TAKEN'}")
    return knows and refused and first.term < second.term < third.term


def main() -> bool:
    with Stage() as stage:
        return original(stage.node) and holdfast(stage)


if __name__ == "__main__":
    play_a_part(instance)
    sys.exit(not main())
