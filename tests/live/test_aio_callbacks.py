"""What users register with asyncio is called aside from the engine: whatever it raises, or awaits, no renewal waits for it."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from live.test_aio_kit import SOON, calm, client, connected, eye, some, true, turns
from proof.books import word

from holdfast import events
from holdfast.aio import Holdfast, Lease
from holdfast.clock import clock
from holdfast.embedded import Nodes

__all__ = ["eye"]


TTL = 0.6
SHORT: dict[str, Any] = {"ttl": 0.2, "renew": False}  # a lease that is lost soon


async def keep(locks: Holdfast, seconds: float = 2.5 * TTL) -> None:
    """Hold a lock for longer than one lease lasts."""
    async with locks.lock(some("kept"), wait=SOON) as lease:
        await asyncio.sleep(seconds)
        lease.check()


# ------------------------------------------------ nothing that a user registers stops a renewal


@calm
async def test_an_observer_that_takes_its_time_loses_no_lease(nodes: Nodes) -> None:
    """A coroutine function is an observer, too: its events come one after another, and nothing else waits for it."""
    heard: list[events.Event] = []
    lost: list[Lease] = []
    go_on = asyncio.Event()

    async def observer(event: events.Event) -> None:
        await go_on.wait()
        heard.append(event)
        await asyncio.sleep(0)

    async with await connected(nodes, ttl=TTL, observer=observer) as locks:
        gone = await locks.lock(some("lost"), **SHORT, on_lost=lost.append).acquire()
        await keep(locks)
        assert (lost, heard) == ([gone], [])
        go_on.set()
        await true(lambda: heard and word(heard[-1]) == "released")
        assert [it for it in heard if word(it) == "lost"] != []
        assert all(a.at <= b.at for a, b in pairwise(it for it in heard if isinstance(it, events.LockEvent)))


# ------------------------------------------------ the end


@calm
async def test_an_observer_may_close_its_client(nodes: Nodes) -> None:
    closed: list[float] = []

    async def observer(event: events.Event) -> None:
        if isinstance(event, events.Acquired):
            began = clock()
            await locks.close()
            closed.append(clock() - began)

    locks = client(nodes, observer=observer, node_timeout=3, ttl=10)
    lease = await locks.lock(some("closing")).acquire()
    await true(lambda: closed)
    assert closed[0] < 3, "it does not wait for itself"
    assert not lease.held
    await turns(3)
