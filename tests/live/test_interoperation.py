"""Other people's Redlock on the same nodes: plain `SET NX PX` and a release that compares, as every client of it does."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import redis
from contract.cluster import Cluster
from contract.faces import Face, in_a_thread

from holdfast.errors import LockBusy

RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
TICK = 0.3  # seconds by which a busy machine may be late


class Redlock:
    """The algorithm of the Redis documentation, in its simplest form."""

    def __init__(self, urls: tuple[str, ...]) -> None:
        self.nodes = [redis.Redis.from_url(url, decode_responses=True) for url in urls]
        self.value = uuid.uuid4().hex

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def take(self, name: str, ttl: float) -> list[bool]:
        """`SET NX PX` on every node: where it succeeded."""
        return [node.set(name, self.value, nx=True, px=round(ttl * 1000)) is True for node in self.nodes]

    def give(self, name: str) -> list[int]:
        """Compare and delete on every node: where it deleted."""
        return [int(node.eval(RELEASE, 1, name, self.value)) for node in self.nodes]

    def lock(self, name: str, ttl: float) -> bool:
        """One try: a majority, or nothing."""
        if sum(self.take(name, ttl)) > len(self.nodes) // 2:
            return True
        self.give(name)
        return False


class Turns:
    """Clients of two kinds at one lock: never two inside, and how often each kind was."""

    def __init__(self, face: Face, *may: type[Exception]) -> None:
        self.face, self.may, self.over = face, may, threading.Event()
        self.inside, self.ours, self.others = 0, 0, 0

    def enter(self) -> None:
        self.inside += 1
        assert self.inside == 1

    def other(self) -> None:
        """Be inside for a moment, as a client of the other kind."""
        self.enter()
        self.others += 1
        time.sleep(0.001)
        self.inside -= 1

    async def body(self, lease: Any) -> None:
        """Be inside for a moment, with a lease."""
        self.enter()
        self.ours += 1
        await self.face.sleep(0.001)
        self.inside -= 1

    async def user(self, lock: Any) -> None:
        """One of ours. `may`: what may keep it outside."""
        while not self.over.is_set():
            with contextlib.suppress(*self.may):
                await self.face.within(lock, self.body)
            await self.face.sleep(0.005)

    async def play(self, lock: Callable[[], Any], compete: Callable[[], None], least: int) -> None:
        """Two of each kind, until both have had so many turns."""
        others = [asyncio.create_task(in_a_thread(compete)) for _ in range(2)]
        ours = [asyncio.create_task(self.user(lock())) for _ in range(2)]
        await self.face.until(lambda: min(self.ours, self.others) >= least)
        self.over.set()
        await asyncio.gather(*others, *ours)


async def test_both_kinds_among_each_other(face: Face, five: Cluster, name: str) -> None:
    client, turns = await face.connected(five, ttl=5), Turns(face, LockBusy)

    def compete() -> None:
        other = Redlock(five.urls)
        try:
            while not turns.over.is_set():
                if other.lock(name, 5):
                    turns.other()
                    other.give(name)
                time.sleep(0.005)
        finally:
            other.close()

    await turns.play(lambda: client.lock(name, ttl=0.3, wait=0.2), compete, 4)


async def test_s11_a_mixed_fleet_without_timeouts(face: Face, name: str) -> None:
    """Programs of both kinds on one node, each with its own defaults: one at a time, and everybody has turns."""
    async with face.nodes(1) as one:
        client, turns = await face.connected(one), Turns(face)

        def compete() -> None:
            with redis.Redis.from_url(one.urls[0]) as node:
                lock = node.lock(name, sleep=0.002)
                while not turns.over.is_set():
                    if lock.acquire(blocking_timeout=0.1):
                        turns.other()
                        lock.release()
                    time.sleep(0.005)

        await turns.play(lambda: client.lock(name), compete, 20)
