"""The spinlock on a set: SADD the lock's name, work, SREM; and try again after a pause, as often as it takes.

The original stands in "Redis as a mutex service".

Unsafe in the original:

- a member of a set has no expiry. Whoever dies inside stays in the set, and everybody else spins for ever;
- SREM asks nobody whose lock it is: whoever sweeps up after the dead frees the lock of the living, too;
- everybody who waits asks again all the time, in no order: the newest may always be the luckiest;
- the count of spins is to tell "somebody was here before me, look into the cache": but who is lucky at the first try may have come just
  after.

Instead: `locks.lock(name)`. A lease ends within its ttl when its holder dies; who waits stands in line on the nodes and asks nothing; and
`lease.contended` says what the count of spins was for. (For the cache itself there is `locks.fill`.)
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from redis import Redis

from holdfast import Holdfast

SPINS = 20  # after which this example stops waiting: the original would go on
TTL = 1.0

# Takes both, says so, and works until it is killed.
DIES = """
import os, sys, time
from holdfast import Holdfast
from redis import Redis

Redis.from_url(os.environ["HOLDFAST_NODES"].split()[0]).sadd("example:locks", "report")
lease = Holdfast().lock("example:report", ttl=float(sys.argv[1])).acquire()
print("inside", flush=True)
time.sleep(60)
"""


def spins(node: Redis) -> int | None:
    """How often it had to try again before it had the lock; None if it has given up."""
    for count in range(SPINS):
        if node.sadd("example:locks", "report") == 1:
            return count
        time.sleep(0.1)
    return None


def main() -> bool:
    with Holdfast() if "HOLDFAST_NODES" in os.environ else Holdfast.local() as locks:
        with Redis.from_url(locks.urls[0]) as node:
            nodes = {"HOLDFAST_NODES": " ".join(locks.urls)}
            command = [sys.executable, "-c", DIES, str(TTL)]
            with subprocess.Popen(command, env={**os.environ, **nodes}, stdout=subprocess.PIPE, text=True) as holder:
                assert holder.stdout is not None and holder.stdout.readline() == "inside\n"
                holder.kill()
            killed = time.monotonic()
            with locks.lock("example:report", wait=30) as lease:
                took = time.monotonic() - killed
                print(f"holdfast:  the holder is killed; the next one has the lock after {took:.1f} s; contended: {lease.contended}")
                known = lease.contended
            count = spins(node)
            told = f"has the lock after {count} spins" if count is not None else f"STILL SPINS, after {SPINS} times"
            print(f"SADD:      the holder is killed; the next one {told}")
            node.srem("example:locks", "report")
            return known and count is None


if __name__ == "__main__":
    sys.exit(not main())
