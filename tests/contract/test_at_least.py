"""A name that stays taken for some time from its acquisition, however soon it is released."""

from __future__ import annotations

import asyncio
from typing import Any

from contract.cluster import Cluster
from contract.faces import Face

from holdfast import LeaseState

TICK = 0.3  # seconds by which a busy machine may be late
LONG = 20.0  # seconds: of a lease that no test outlives


async def test_a_name_stays_taken_as_long_as_it_was_to_be_and_no_longer(face: Face, five: Cluster, name: str) -> None:
    """Rule RT1: neither the ttl, nor the client that ends, nor a waiter changes that."""
    here, there = await face.connected(five), await face.connected(five)
    began = face.now()
    lease = await face.acquire(here.lock(name, ttl=LONG, at_least=1.5))
    waiter = asyncio.create_task(face.acquire(there.lock(name, ttl=1.5)))
    await face.until(lambda: min(five.waiters(name)) == 1)
    await face.release(lease, confirm=True)
    assert (lease.state, lease.held) == (LeaseState.RELEASED, False)
    await face.close(here)
    after = await waiter
    assert 1.5 <= face.now() - began <= 1.5 + 0.5 + TICK, "a waiter looks again every ttl/3 at least"
    assert after.fence > lease.fence and after.contended
    await face.release(after)


async def test_it_may_stay_taken_for_longer_than_any_lease_lasts(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five, ttl=0.5, max_ttl=0.5)
    began = face.now()
    await face.within(locks.lock(f"{name}.a", f"{name}.b", at_least=1.5), _nothing)
    await face.sleep(began + 1.3 - face.now())
    assert await face.try_acquire(locks.lock(f"{name}.b")) is None
    lease = await face.acquire(locks.lock(f"{name}.a", f"{name}.b"))
    assert face.now() - began >= 1.5
    await face.release(lease)


async def test_what_took_longer_is_free_at_once(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five)

    async def body(lease: Any) -> None:
        await face.sleep(0.3)

    await face.within(locks.lock(name, ttl=LONG, at_least=0.2), body)
    began = face.now()
    await face.release(await face.acquire(locks.lock(name)))
    assert face.now() - began < LONG / 4


async def test_an_operator_can_free_it(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five)
    await face.within(locks.lock(name, at_least=3600), _nothing)
    assert await face.call(locks.is_locked, name)
    await face.call(locks.force_release, name, "a test")
    await face.release(await face.acquire(locks.lock(name, wait=5)))


async def _nothing(lease: Any) -> None:
    """The work is done at once."""
