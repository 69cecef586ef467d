"""Giving a lock back: at once, for certain, to nodes that do not listen, or no sooner than it was to be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face

from holdfast import LeaseState
from holdfast.errors import Misuse, NoQuorum

TICK = 0.3  # seconds by which a busy machine may be late
LONG = 20.0  # seconds: of a lease that no test outlives


async def test_releasing_twice_is_nothing(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    lease = await face.acquire(client.lock(name))
    assert await face.release(lease) == 0
    next_one = await face.acquire(client.lock(name))
    assert await face.release(lease) == 0
    assert await face.release(lease, confirm=True) == 0
    assert next_one.held
    await face.until(lambda: five.holders(name) == [next_one.token] * 5)
    assert await face.within(next_one, _itself) is next_one
    with pytest.raises(Misuse, match="released or left before"):
        await face.within(next_one, _itself)


async def test_s25_a_confirmed_release_says_on_how_many_nodes_it_is_certain(face: Face, name: str) -> None:
    async with face.nodes(5) as nodes:
        client = await face.connected(nodes, node_timeout=0.4)
        lease = await face.acquire(client.lock(name))
        assert 3 <= await face.release(lease, confirm=True) <= 5
        assert await face.release(lease, confirm=True) == 0, "nothing is sent again"
        assert nodes.holders(name).count(None) >= 3
        await nodes.kill(0)
        await nodes.freeze(1)
        lease = await face.acquire(client.lock(name))
        began = face.now()
        assert await face.release(lease, confirm=True) == 3
        assert face.now() - began < TICK, "nobody waits for the hung one"
        lease = await face.acquire(client.lock(name))
        await nodes.freeze(2, 3)
        began = face.now()
        assert await face.release(lease, confirm=True) == 1
        assert face.now() - began < 0.4 + 2 * TICK


@pytest.mark.parametrize("harm", ["freeze", "kill"])
async def test_s25_a_release_with_a_majority_away_returns_at_once(face: Face, three: Cluster, name: str, harm: str) -> None:
    client = await face.connected(three)
    lease = await face.acquire(client.lock(name))
    await getattr(three, harm)(0, 1)
    began = face.now()
    assert await face.release(lease) == 0
    assert face.now() - began < TICK
    assert lease.state is LeaseState.RELEASED
    if harm == "freeze":
        await three.thaw(0, 1)


async def test_whoever_waits_for_an_extension_is_not_forgotten_by_a_release(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three, node_timeout=0.4)
    for confirm in (False, True):
        lease = await face.acquire(client.lock(name, wait=15))
        await three.freeze(0, 1)
        extension = asyncio.create_task(face.extend(lease))
        await face.sleep(0.1)
        await face.release(lease, confirm)
        with pytest.raises((Misuse, NoQuorum)):
            await asyncio.wait_for(extension, 10)
        await three.thaw(0, 1)


async def test_a_release_by_another_user(face: Face, five: Cluster, name: str) -> None:
    """A lease is good for every thread, or task, that has it: B-06."""
    client = await face.connected(five)
    lease = await face.acquire(client.lock(name))

    async def helper() -> None:
        assert lease.held
        assert await face.extend(lease) > 0
        await face.release(lease)

    await asyncio.create_task(helper())
    assert lease.state is LeaseState.RELEASED
    await face.until(lambda: five.holders(name) == [None] * 5)


# ------------------------------------------------ a name that stays taken for some time


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
    await face.within(locks.lock(name, at_least=3600), _itself)
    assert await face.call(locks.is_locked, name)
    await face.call(locks.force_release, name, "a test")
    await face.release(await face.acquire(locks.lock(name, wait=5)))


async def _itself(lease: Any) -> Any:
    return lease
