"""Leader election: one of several instances does what only one may do, and another one takes over when it dies, or sleeps.

Unsafe in the original, a key with an expiry that its owner prolongs: it looks, and then acts. A: GET says A; A is stopped for a moment (a
virtual machine that moves, a collector of garbage); the key runs out; B: SET NX, leads; A goes on: PEXPIRE prolongs B's key, and A acts as
the leader, too. It has no way to find out, and the storage has none to tell A's writes from B's.

Instead: `with locks.election(name, value) as leadership`. A leader whose time is over knows it without asking (`is_leader`), before
anybody else can lead; and every term is above all earlier ones, so that storage which is given the term refuses a leader that was asleep
(`holdfast.fencing`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from redis import Redis

from holdfast import Holdfast, StaleFence
from holdfast.fencing import Seen

TTL = 1.0

# Leads; for each line that it is given it says whether it does so still.
CANDIDATE = """
import sys
from holdfast import Holdfast

leadership = Holdfast().election(sys.argv[1], "A", ttl=float(sys.argv[2])).campaign()
print(leadership.term, flush=True)
for line in sys.stdin:
    print(leadership.is_leader, flush=True)
"""


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


def holdfast(locks: Holdfast) -> bool:
    """A process leads, is stopped, and goes on. Does it know? Is its term refused?"""
    name = "example:election"
    environment = {**os.environ, "HOLDFAST_NODES": " ".join(locks.urls), "HOLDFAST_FRESH": " ".join(locks.fresh)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", CANDIDATE, name, str(TTL)], env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as a:
        assert a.stdin is not None and a.stdout is not None
        term = int(a.stdout.readline())
        print(f"holdfast:  {locks.election(name).leader().value} leads, with term {term}")
        a.send_signal(signal.SIGSTOP)
        with locks.election(name, "B", wait=30) as leadership:
            print(f"           A is stopped: {locks.election(name).leader().value} leads, with term {leadership.term}")
            storage = Seen()
            with storage.guard({name: leadership.term}):
                pass  # B writes
            a.send_signal(signal.SIGCONT)
            print("are you?", file=a.stdin, flush=True)
            knows = a.stdout.readline() == "False\n"
            try:
                with storage.guard({name: term}):
                    refused = False  # A writes
            except StaleFence:
                refused = True
            told = "knows that it leads no more" if knows else "LEADS, TOO"
            print(f"           A goes on, and {told}; what it writes is {'refused' if refused else 'TAKEN'}")
        a.stdin.close()
    return knows and refused and leadership.term > term


def main() -> bool:
    with Holdfast() if "HOLDFAST_NODES" in os.environ else Holdfast.local() as locks, Redis.from_url(locks.urls[0]) as node:
        return original(node) and holdfast(locks)


if __name__ == "__main__":
    sys.exit(not main())
