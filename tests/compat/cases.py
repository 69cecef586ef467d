"""The cases in which holdfast waits for a client of another library, or the other way round: each prints what it measured.

It runs in the environment that has the libraries: see foreign.py. Live: real servers and real time.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import redis_lock

from holdfast import Holdfast, LockBusy, events
from holdfast.embedded import Nodes

TRIES = 20
TICK = 0.02  # seconds beside a round trip
LATE = 0.5  # seconds by which a busy machine may be late
TTL = 3.0
NAME = "report"


@contextmanager
def one(**options: Any) -> Iterator[tuple[Holdfast, Any, Nodes]]:
    """A node, a client of holdfast and one of redis-py."""
    with Nodes(1, tcp=True) as nodes, redis.Redis.from_url(nodes.urls[0]) as client:
        with Holdfast(*nodes.urls, ttl=TTL, **options) as locks:
            locks.ready()
            yield locks, client, nodes


def behind(locks: Holdfast, client: Any) -> float:
    """For how long holdfast waits after redis-py has released the lock."""
    theirs = client.lock(NAME, timeout=60)
    assert theirs.acquire()
    got: list[float] = []

    def wait() -> None:
        with locks.lock(NAME, wait=10):
            got.append(time.monotonic())

    waiter = threading.Thread(target=wait)
    waiter.start()
    # Until it stands in the queue, and has asked to be told.
    end = time.monotonic() + 5
    while not locks.inspect(NAME).queue and time.monotonic() < end:
        time.sleep(0.002)
    time.sleep(0.05)
    theirs.release()
    released = time.monotonic()
    waiter.join(20)
    return got[0] - released


def a_foreign_release() -> str:
    """holdfast has the lock a round trip after a foreign client has released it, if it may track keys."""
    with one() as (locks, client, _):
        waits = [behind(locks, client) for _ in range(TRIES)]
        assert statistics.median(waits) < TICK, waits
        client.execute_command("ACL", "SETUSER", "plain", "on", ">secret", "~*", "&*", "+@all", "-client|tracking")
        address = f"redis://plain:secret@{locks.nodes()[0].node.partition('://')[2]}"
        with Holdfast(address, ttl=TTL) as others:
            slow = [behind(others, client) for _ in range(3)]
        assert max(slow) < TTL / 3 + LATE, slow
    return f"{statistics.median(waits) * 1000:.1f} ms after, at most {max(waits) * 1000:.1f}; without tracking at most {max(slow):.2f} s"


def an_immortal_holder() -> str:
    """A value without expiry is held, and told once, and an operator takes it away."""
    told: list[events.Event] = []
    with one(observer=told.append) as (locks, client, _):
        theirs = client.lock(NAME)
        assert theirs.acquire()
        began = time.monotonic()
        for _ in range(2):
            with pytest.raises(LockBusy) as caught:
                locks.lock(NAME, wait=0.5).acquire()
            assert caught.value.ttl_left is None
            assert caught.value.holder == theirs.local.token.decode()
        waited = time.monotonic() - began
        assert 1.0 <= waited < 1.0 + 2 * LATE
        assert locks.force_release(NAME, "its process is dead", only=theirs.local.token.decode()) == 1
        locks.lock(NAME, wait=1).acquire().release()
        end = time.monotonic() + 2
        while not any(isinstance(it, events.NodeEvent) and it.state == "warned" for it in told) and time.monotonic() < end:
            time.sleep(0.01)
        assert len([it for it in told if isinstance(it, events.NodeEvent) and it.state == "warned"]) == 1
    return f"busy after {waited / 2:.2f} s, one warning, and free after force_release"


DIES = "import sys, redis; redis.Redis.from_url(sys.argv[1]).lock('report', timeout=2).acquire(); print(flush=True); sys.stdin.read()"


def a_client_that_dies() -> str:
    """Its lock is free when it expires, and not earlier."""
    with one() as (locks, _, nodes):
        words = [sys.executable, "-c", DIES, nodes.urls[0]]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            began = time.monotonic()
            process.kill()
        with locks.lock(NAME, wait=10):
            waited = time.monotonic() - began
    assert 2.0 - LATE < waited < 2.0 + LATE, waited
    return f"its lock of 2 s was free after {waited:.2f} s"


def the_bridge() -> str:
    """A waiter of python-redis-lock is woken, if the holder writes the message that it waits for."""
    with Nodes(1, tcp=True) as nodes, redis.Redis.from_url(nodes.urls[0]) as client:

        def signal(event: object) -> None:
            if isinstance(event, events.Ended) and event.how == "released":
                client.lpush(f"lock-signal:{event.name}", 1)
                client.pexpire(f"lock-signal:{event.name}", 1000)

        with Holdfast(*nodes.urls, prefix="lock:", observer=signal) as locks:
            lease = locks.lock(NAME).acquire()
            theirs, got = redis_lock.Lock(client, NAME, expire=20), list[float]()

            def wait() -> None:
                assert theirs.acquire()
                got.append(time.monotonic())

            waiter = threading.Thread(target=wait)
            waiter.start()
            time.sleep(0.3)
            lease.release()
            released = time.monotonic()
            waiter.join(30)
            theirs.release()
    waited = got[0] - released
    assert 0 < waited < 0.5, waited
    return f"woken after {waited * 1000:.0f} ms"


CASES = (a_foreign_release, an_immortal_holder, a_client_that_dies, the_bridge)

if __name__ == "__main__":
    for case in CASES:
        print(f"{case.__name__.replace('_', ' ')}: {case()}", flush=True)
