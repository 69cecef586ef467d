"""Semaphores: so many leases at the same time and no more, each with a slot of its own; in order, and handed on."""

from __future__ import annotations

import asyncio

import pytest
from contract.cluster import Cluster
from contract.faces import Face

from holdfast.errors import LockBusy, LockLost, Misuse
from holdfast.face.lease import LeaseState


def slots(name: str, permits: int) -> list[str]:
    return [f"{name}[slot {it}]" for it in range(permits)]


async def test_as_many_leases_as_permits(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    pool = client.semaphore(name, 3)
    assert (pool.name, pool.names) == (name, (name,))
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
        assert lease.state is LeaseState.RELEASED
    await face.until(lambda: all(five.holders(it) == [None] * 5 for it in slots(name, 3)))


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


async def test_clients_with_different_numbers_hold_no_more_than_the_largest(face: Face, five: Cluster, name: str) -> None:
    # Rule P8.
    few, many = [(await face.connected(five)).semaphore(name, permits) for permits in (3, 5)]
    held = [await face.acquire(many) for _ in range(2)] + [await face.acquire(few)]
    while (lease := await face.try_acquire(many)) is not None:
        held.append(lease)
    assert sorted(it for lease in held for it in lease.slots) == [0, 1, 2, 3, 4], "together they have five, and not eight"
    assert await face.try_acquire(few) is None
    inside = next(it for it in held if it.slots[0] < 3)
    waiting = asyncio.ensure_future(face.acquire(few))
    await face.release(next(it for it in held if it.slots[0] >= 3))
    await face.sleep(0.1)
    assert not waiting.done(), "what the larger number allows beyond is nothing for this one"
    await face.release(inside)
    lease = await waiting
    assert lease.slots == inside.slots
    for it in (*held, lease):
        if it.held:
            await face.release(it)


async def test_who_holds_which_permit(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five, owner="web-1:118")
    pool = client.semaphore(name, 4, count=2)
    assert (pool.permits, pool.count) == (4, 2)
    assert (await face.call(pool.available), await face.call(pool.holders)) == (4, ())
    lease = await face.acquire(pool)
    await face.until(lambda: lease.votes == 5)
    other = await face.connected(five, owner="batch-2:7")
    single = await face.acquire(other.semaphore(name, 4))
    await face.until(lambda: single.votes == 5)
    before = five.calls()
    assert await face.call(pool.available) == 1
    assert [now - then for now, then in zip(five.calls(), before, strict=True)] == [1] * 5, "one command a node"
    found = await face.call(pool.holders)
    held = {slot: token for it in (lease, single) for slot, token in zip(it.slots, it.tokens.values(), strict=True)}
    assert [(it.slot, it.name, it.token) for it in found] == [(it, f"{name}[slot {it}]", held[it]) for it in sorted(held)]
    assert all(0 < it.left <= 10 for it in found)
    assert {it.slot: it.owner for it in found} == {**dict.fromkeys(lease.slots, "web-1:118"), single.slots[0]: "batch-2:7"}
    assert await face.call(other.semaphore(name, 1).available) == (0 not in held), "of as many as this one names"
    await face.release(lease, confirm=True)
    await face.release(single, confirm=True)
    assert (await face.call(pool.available), await face.call(pool.holders)) == (4, ())


async def test_a_permit_is_lost_like_a_lock(face: Face, five: Cluster, name: str) -> None:
    # Rule P5.
    client = await face.connected(five)
    lease = await face.acquire(client.semaphore(name, 2, count=2))
    [slot, _] = lease.fences
    assert slot in await face.call(client.names, f"{glob(name)}*")
    assert (await face.call(client.inspect, slot)).holder == lease.tokens[slot]
    assert await face.call(client.force_release, slot, "a test") == 5
    await face.until_lost(lease)
    assert lease.state is LeaseState.LOST
    with pytest.raises(LockLost, match="forced") as caught:
        lease.check()
    assert (caught.value.name, caught.value.fence) == (name, None)
    await face.until(lambda: all(five.holders(it) == [None] * 5 for it in slots(name, 2)))


def glob(name: str) -> str:
    return "".join(f"[{it}]" if it in "*?" else it for it in name)
