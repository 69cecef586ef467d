"""Semaphores: so many leases at the same time and no more, each with a slot of its own; in order, and handed on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face

from holdfast.errors import ConfigError, LockBusy, LockLost, Misuse, NoQuorum
from holdfast.face.lease import LOST, OPEN, RELEASED


def slots(name: str, permits: int) -> list[str]:
    return [f"{name}[slot {it}]" for it in range(permits)]


async def test_as_many_leases_as_permits(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    pool = client.semaphore(name, 3)
    assert (pool.name, pool.names, repr(pool)) == (name, (name,), f"<Semaphore {name!r} ttl=10>")
    leases = [await face.acquire(pool) for _ in range(3)]
    assert sorted(it.slots for it in leases) == [(0,), (1,), (2,)]
    for lease in leases:
        [slot] = lease.slots
        assert (lease.name, lease.names, lease.fences) == (name, (name,), {f"{name}[slot {slot}]": lease.fence})
        assert five.holders(f"{name}[slot {slot}]").count(lease.token) >= 3
    assert await face.try_acquire(pool) is None
    with pytest.raises(LockBusy) as caught:
        await face.acquire(client.semaphore(name, 3, wait=0.1))
    assert caught.value.name == name and caught.value.holder in {it.token for it in leases}
    await face.release(leases[1], confirm=True)
    again = await face.acquire(pool)
    assert again.slots == leases[1].slots and again.fence > leases[1].fence, "each slot has fences of its own"
    for lease in (leases[0], leases[2], again):
        await face.release(lease)
        assert lease.state is RELEASED
    await face.until(lambda: all(five.holders(it) == [None] * 5 for it in slots(name, 3)))


async def test_a_permit_that_is_free_costs_one_request(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    pool = client.semaphore(name, 50)
    await face.release(await face.acquire(pool), confirm=True)
    await face.until(lambda: all(five.holders(it) == [None] * 5 for it in slots(name, 50)))
    before = five.calls()
    lease = await face.acquire(pool)
    await face.until(lambda: lease.votes == 5)
    assert [now - then for now, then in zip(five.calls(), before, strict=True)] == [1] * 5
    await face.release(lease)


async def test_whoever_waits_is_handed_what_is_given_back(face: Face, five: Cluster, name: str) -> None:
    client, other = await face.connected(five), await face.connected(five)
    held = [await face.acquire(client.semaphore(name, 2)) for _ in range(2)]
    waiting = asyncio.ensure_future(face.acquire(other.semaphore(name, 2, wait=30)))
    await face.until(lambda: all(five.waiters(it) == [1] * 5 for it in slots(name, 2)))
    before = five.calls()
    await face.sleep(0.2)
    assert five.calls() == before, "nobody polls"
    await face.release(held[0])
    lease = await waiting
    assert lease.slots == held[0].slots and lease.contended
    await face.until(lambda: five.waiters(slots(name, 2)[held[1].slots[0]]) == [0] * 5)
    await face.release(lease)
    await face.release(held[1])


async def test_several_permits_at_once(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    two = client.semaphore(name, 3, count=2)
    lease = await face.acquire(two)
    assert len(lease.slots) == len(lease.fences) == len(lease.tokens) == 2
    with pytest.raises(Misuse, match="several names or slots"):
        _ = lease.fence
    assert await face.try_acquire(two) is None, "one is left"
    one = await face.acquire(client.semaphore(name, 3))
    assert {*one.slots, *lease.slots} == {0, 1, 2}
    waiting = asyncio.ensure_future(face.acquire(two))
    await face.release(one)
    await face.sleep(0.1)
    assert not waiting.done()
    await face.release(lease)
    last = await waiting
    await face.release(last)
    await face.until(lambda: all(five.holders(it) == [None] * 5 for it in slots(name, 3)))
    assert [five.waiters(it) for it in slots(name, 3)] == [[0] * 5] * 3


async def test_never_more_than_there_are(face: Face, five: Cluster, name: str) -> None:
    dice, inside, most = random.Random(name), set[int](), 0
    clients = [await face.connected(five) for _ in range(3)]

    async def body(lease: Any) -> None:
        nonlocal most
        assert not inside & {*lease.slots}, "two hold one slot"
        inside.update(lease.slots)
        most = max(most, len(inside))
        await face.sleep(dice.uniform(0, 0.004))
        inside.difference_update(lease.slots)

    async def user(client: Any) -> None:
        for _ in range(5):
            await face.within(client.semaphore(name, 4, count=dice.randint(1, 3), wait=60), body)

    await asyncio.gather(*[user(client) for client in clients for _ in range(4)])
    assert 2 <= most <= 4
    await face.until(lambda: all(five.holders(it) == [None] * 5 for it in slots(name, 4)))


async def test_a_different_number_of_permits_is_an_error(face: Face, five: Cluster, name: str) -> None:
    one, other = await face.connected(five), await face.connected(five)
    lease = await face.acquire(one.semaphore(name, 3))
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"has 3 permits for others, and 4 here") as caught:
            await face.acquire(other.semaphore(name, 4))
        assert name in str(caught.value)
    await face.release(lease)
    await face.release(await face.acquire(other.semaphore(name, 3)))


async def test_another_number_when_nobody_has_said_the_old_one_for_a_while(face: Face, three: Cluster, name: str) -> None:
    one, other = [await face.connected(three, ttl=0.5, max_ttl=0.5) for _ in range(2)]
    await face.release(await face.acquire(one.semaphore(name, 3)))
    await face.until(lambda: three.everywhere("EXISTS", f"{{{name}}}:permits") == [0] * 3)
    await face.release(await face.acquire(other.semaphore(name, 4)))
    with pytest.raises(ConfigError, match="has 4 permits for others"):
        await face.acquire(one.semaphore(name, 3))


async def test_a_permit_is_lost_like_a_lock(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    lease = await face.acquire(client.semaphore(name, 2, count=2))
    [slot, _] = lease.fences
    assert slot in await face.call(client.names, f"{glob(name)}*")
    assert (await face.call(client.inspect, slot)).holder == lease.tokens[slot]
    assert await face.call(client.force_release, slot, "a test") == 5
    await face.until_lost(lease)
    assert lease.state is LOST
    with pytest.raises(LockLost, match="forced") as caught:
        lease.check()
    assert (caught.value.name, caught.value.fence) == (name, None)
    await face.until(lambda: all(five.holders(it) == [None] * 5 for it in slots(name, 2)))


def glob(name: str) -> str:
    return "".join(f"[{it}]" if it in "*?" else it for it in name)


async def test_one_user_may_hold_several(face: Face, five: Cluster, name: str) -> None:
    client = face.client(five)
    pool = client.semaphore(name, 3)

    def script() -> Iterator[Any]:
        one = yield pool.acquire
        other = yield pool.acquire
        assert one.slots != other.slots
        yield one.release
        yield other.release

    await face.user(client, script())  # type: ignore[arg-type]  # (a semaphore is acquired like a lock)


async def test_no_quorum_for_a_permit(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three, ttl=0.5, max_ttl=1, outage=0.2)
    await three.kill(0, 1)
    with pytest.raises(NoQuorum) as caught:
        await face.acquire(client.semaphore(name, 2, wait=5))
    assert caught.value.name == name
    with pytest.raises(NoQuorum):
        await face.try_acquire(client.semaphore(name, 2))
    lease = await face.acquire(client.semaphore(name, 2, fail_open=True))
    assert (lease.state, lease.fence, lease.fences, lease.slots) == (OPEN, None, {}, ())
    await face.release(lease)


def test_semaphores_that_cannot_be(face: Face, five: Cluster) -> None:
    client = face.client(five)
    for wrong in (0, 1.0, None, "3", True, 10**9):
        with pytest.raises(ConfigError, match="permits is a whole number"):
            client.semaphore("pool", wrong)
        with pytest.raises(ConfigError, match="count is a whole number"):
            client.semaphore("pool", 3, count=wrong)
    with pytest.raises(ConfigError, match="can never be had"):
        client.semaphore("pool", 3, count=4)
    with pytest.raises(ConfigError, match="text"):
        client.semaphore(5, 3)
    with pytest.raises(ConfigError, match="looks like a slot"):
        client.lock("pool[slot 1]")
    with pytest.raises(ConfigError, match="ttl"):
        client.semaphore("pool", 3, ttl=0)
