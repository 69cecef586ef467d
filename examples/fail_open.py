"""Version 2.1, bounded retries: after five tries in vain, the work is done without the lock.

The original stands in "Redlock: Distributed Lock Manager with Redis".

Unsafe in the original: it cannot tell "somebody has it" from "nobody can know". A is inside for longer than B's five tries take, every
instance is well, and B goes in, too: the lock holds only as long as nobody works for long. Nothing tells B's work, or the storage, that
there is no lock. (Its allowance for drift is five milliseconds, whatever the timeout: clocks that differ by one in a thousand use that up
in five seconds.)

Instead: `wait=` says how long, and LockBusy is not NoQuorum. With `fail_open=True` the work is done without the lock when a majority of
nodes is away, and only then; its lease says so: `held` is False, `fence` None, and the log has a warning.
"""

from __future__ import annotations

import random
import secrets
import sys
import time
from collections.abc import Callable
from functools import partial

from redis import Redis
from redis.exceptions import RedisError

from holdfast import Holdfast, LockBusy
from holdfast.embedded import Nodes

NAME = "example:thumbnails"
RETRIES = 5
UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


def original(instances: list[Redis], timeout: int = 30) -> bool:
    """Take the lock, or give up trying, and go in all the same. Has it the lock?"""
    value = secrets.token_hex(10)
    for _ in range(RETRIES):
        yes = sum(said(partial(it.set, NAME, value, nx=True, ex=timeout)) for it in instances)
        if yes > len(instances) // 2:
            return True
        for it in instances:
            said(partial(it.eval, UNLOCK, 1, NAME, value))
        time.sleep(random.uniform(0.1, 0.2))
    return False


def said(ask: Callable[[], object]) -> bool:
    """What an instance says; no, while it is away."""
    try:
        return bool(ask())
    except RedisError:
        return False


def client(nodes: Nodes) -> Holdfast:
    """A client, for which an outage begins when a majority has been away for half a second."""
    return Holdfast(*nodes.urls, outage=0.5)


def main() -> bool:
    with Nodes(3) as nodes, client(nodes) as here, client(nodes) as there:
        instances = [Redis.from_url(it) for it in nodes.urls]
        original(instances)
        without = not original(instances)
        print(f"five tries:  A is inside, all nodes are well; B goes in {'WITHOUT THE LOCK' if without else 'with the lock'}")
        for it in instances:
            it.close()

        patient = there.lock("example:previews", wait=1, fail_open=True)
        with here.lock("example:previews"):
            busy = False
            try:
                patient.acquire().release()
            except LockBusy as why:
                busy = True
                print(f"fail_open:   A is inside, all nodes are well; B gets LockBusy, after {why.waited:.1f} s")
        nodes.kill(0)
        nodes.kill(1)
        with patient as lease:
            known = not lease.held and lease.fence is None
            print(f"fail_open:   two of three nodes are dead; B goes in without the lock: held is {lease.held}, fence {lease.fence}")
        return without and busy and known


if __name__ == "__main__":
    sys.exit(not main())
