"""Version 2, Redlock: the same key on three instances, one after the other; whoever has a majority in time is inside.

The original stands in "Redlock: Distributed Lock Manager with Redis".

Unsafe in the original:

- an instance that restarts empty votes at once. 3 is away; A has 1 and 2; 2 dies and comes back empty, and so does 3; B asks: 1 says no, 2
  and 3 say yes, and A is still inside;
- the time that taking took is compared with the whole timeout: a lock that was taken in 2.9 of 3 s is "held", for 0.1 s; nobody renews it,
  and nobody tells its holder when it is over;
- instances are asked in turn, without a time-out: one that hangs holds up everybody, for as long as it hangs;
- who did not get it tries again after a pause, at random: no order, and votes are split over and over.

Instead: `locks.lock(name)`. All nodes are asked at once, and a majority of answers is enough; a node that has restarted has no vote until
no lease can be left that it has forgotten (`max_ttl` + 2 s); a lease counts from before the first byte left, is renewed, and says when it
is lost. Others wait in a line on the nodes.
"""

from __future__ import annotations

import secrets
import sys
import time

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from holdfast import Holdfast, NotAcquired
from holdfast.embedded import Nodes

NAME = "example:redlock"
UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class Redlock:
    """The original, of one caller."""

    def __init__(self, nodes: list[Redis], timeout: int = 30) -> None:
        self._nodes, self._timeout, self._value = nodes, timeout, secrets.token_hex(10)

    def take(self) -> bool:
        began, yes = time.time(), 0
        for node in self._nodes:
            try:
                yes += bool(node.set(NAME, self._value, nx=True, ex=self._timeout))
            except RedisError:
                pass
        if yes > len(self._nodes) // 2 and time.time() - began < self._timeout:
            return True
        self.leave()
        return False

    def leave(self) -> None:
        for node in self._nodes:
            try:
                node.eval(UNLOCK, 1, NAME, self._value)
            except RedisError:
                pass


def original() -> bool:
    """Are A and B both inside?"""
    with Nodes(3) as nodes:
        nodes.kill(2)
        instances = [Redis.from_url(it, retry=Retry(NoBackoff(), 1)) for it in nodes.urls]
        a, b = Redlock(instances), Redlock(instances)
        print(f"Redlock in turn:  3 is away; A asks: {'inside' if a.take() else 'refused'}")
        nodes.restart(1)
        nodes.restart(2)
        twice = b.take()
        print(f"                  2 and 3 come back empty; B asks: {'INSIDE, TOO' if twice else 'refused'}")
        for it in instances:
            it.close()
        return twice


def holdfast() -> bool:
    """The same, with holdfast: are both inside?"""
    with Nodes(3) as nodes:
        nodes.kill(2)
        with Holdfast(*nodes.urls) as here, Holdfast(*nodes.urls) as there:
            lease = here.lock(NAME).acquire()
            print(f"holdfast:         3 is away; A asks: inside, with fence {lease.fence}")
            nodes.restart(1)
            nodes.restart(2)
            try:
                there.lock(NAME, wait=1).acquire().release()
                told = "INSIDE, TOO"
            except NotAcquired as why:
                told = type(why).__name__
            print(f"                  2 and 3 come back empty; B asks: {told}")
            lease.check()  # A is inside all the time
            lease.release()
            return told == "INSIDE, TOO"


if __name__ == "__main__":
    sys.exit(not (original() and not holdfast()))
