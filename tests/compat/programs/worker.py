"""Enters a lock again and again, with one library, and writes when it was inside.

    python worker.py LIBRARY URLS KEY FILE SECONDS

It says when it is ready, and begins when it is sent a line.

The times are CLOCK_MONOTONIC in nanoseconds, which is one clock for all processes of a machine. The sleeps are the work.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

BETWEEN, TTL, WAIT = 0.004, 10, 1.0  # seconds; the rests between sections differ
POLL = float(os.environ.get("PEER_POLL", "0.001"))
INSIDE = float(os.environ.get("PEER_INSIDE", "0.0005"))

library, urls, key, file, seconds = sys.argv[1], sys.argv[2].split(","), sys.argv[3], sys.argv[4], float(sys.argv[5])
Try = Callable[[], Callable[[], object] | None]


def start() -> float:
    """Wait until all processes are ready. Returns when to stop."""
    print("ready", flush=True)
    sys.stdin.readline()
    return time.monotonic() + seconds


def ours() -> Try:
    from holdfast import Holdfast, LockBusy

    lock = Holdfast(*urls).lock(key, ttl=TTL, wait=WAIT)

    def enter() -> Callable[[], object] | None:
        try:
            return lock.acquire().release
        except LockBusy:
            return None

    return enter


def redis_py() -> Try:
    import redis

    lock = redis.Redis.from_url(urls[0]).lock(key, timeout=TTL, sleep=POLL, blocking_timeout=WAIT)
    return lambda: lock.release if lock.acquire() else None


def compat() -> Try:
    import redis

    from holdfast.compat.redis import Lock

    lock = redis.Redis.from_url(urls[0]).lock(key, timeout=TTL, blocking_timeout=WAIT, lock_class=Lock)
    return lambda: lock.release if lock.acquire() else None


def pottery() -> Try:
    import redis
    from pottery import Redlock

    Redlock._RETRY_DELAY = POLL * 2
    lock = Redlock(key=key.removeprefix("redlock:"), masters={redis.Redis.from_url(it) for it in urls}, auto_release_time=TTL)
    return lambda: lock.release if lock.acquire(timeout=WAIT) else None


def redlock_py() -> Try:
    from redlock import Redlock

    manager = Redlock(urls, retry_count=int(WAIT / POLL / 4), retry_delay=POLL)

    def enter() -> Callable[[], object] | None:
        lock = manager.lock(key, TTL * 1000)
        return (lambda: manager.unlock(lock)) if lock else None

    return enter


def python_redis_lock() -> Try:
    import redis
    import redis_lock

    lock = redis_lock.Lock(redis.Redis.from_url(urls[0]), key.removeprefix("lock:"), expire=TTL)
    # It waits for a message that only its own kind writes, so it polls.

    def enter() -> Callable[[], object] | None:
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            if lock.acquire(blocking=False):
                return lock.release
            time.sleep(POLL)
        return None

    return enter


def threads(enter: Try) -> None:
    # Those who wait in the queue would leave little to those who poll.
    rest = BETWEEN * (float(os.environ["PEER_REST"]) if library == "ours" else 1)
    with open(file, "w") as said:
        over = start()
        while time.monotonic() < over:
            leave = enter()
            if leave is not None:
                begin = time.monotonic_ns()
                time.sleep(INSIDE)
                said.write(f"{begin} {time.monotonic_ns()}\n")
                leave()
            time.sleep(random.uniform(0, 2 * rest))


async def tasks(enter: Callable[[], Awaitable[bool]], leave: Callable[[], Awaitable[Any]]) -> None:
    with open(file, "w") as said:
        over = start()
        while time.monotonic() < over:
            if await enter():
                begin = time.monotonic_ns()
                await asyncio.sleep(INSIDE)
                said.write(f"{begin} {time.monotonic_ns()}\n")
                await leave()
            await asyncio.sleep(random.uniform(0, 2 * BETWEEN))


async def redis_asyncio() -> None:
    import redis.asyncio

    async with redis.asyncio.Redis.from_url(urls[0]) as client:
        lock = client.lock(key, timeout=TTL, sleep=POLL, blocking_timeout=WAIT)
        await tasks(lock.acquire, lock.release)


if library == "redis-asyncio":
    asyncio.run(redis_asyncio())
else:
    threads(globals()[library.replace("-", "_")]())
