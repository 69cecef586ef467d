"""Looking at locks, and taking them away: `inspect`, `names`, `is_locked`, `force_release`, `stats`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face

from holdfast.errors import LockLost
from holdfast.protocol.exclusive import keys_of


async def test_a_held_lock_and_its_queue_in_order(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five, owner="holder", ttl=20)
    waiting = [await face.connected(five, owner=f"waiter{it}") for it in range(2)]
    lease = await face.acquire(client.lock(name))
    await face.until(lambda: lease.votes == 5)
    waiters = []
    for number, each in enumerate(waiting, 1):
        waiters.append(asyncio.create_task(face.acquire(each.lock(name))))
        await face.until(lambda: five.waiters(name) == [number] * 5)  # noqa: B023 (called within this turn of the loop)
        await face.sleep(0.05)
    status = await face.call(client.inspect, name)
    assert (status.state, status.holder, status.owner, status.fence) == ("held", lease.token, "holder", lease.fence)
    assert 15 < status.ttl_left <= 20
    assert [(it.owner, it.nodes) for it in status.queue] == [("waiter0", 5), ("waiter1", 5)]
    assert all(5 < it.left <= 10 for it in status.queue)
    assert {(it.holder, it.fence, it.waiting) for it in status.nodes} == {(lease.token, lease.fence, 2)}
    for told in ("holder", "waiter0", "waiter1", lease.token, str(lease.fence), "on all 5 nodes"):
        assert told in str(status)
    assert await face.call(client.locked_by, name) == lease.token
    await face.release(lease)
    for waiter in waiters:
        await face.release(await waiter)


async def test_looking_changes_nothing(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    for look in (client.inspect, client.is_locked, client.locked_by):
        await face.call(look, name)
    await face.call(client.names, f"{name}*")
    assert [five.everywhere("EXISTS", it.decode()) for it in keys_of(name.encode())] == [[0] * 5] * 4


async def test_names(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    odd = await face.connected(five, prefix="*[")  # a prefix is no pattern
    leases = [await face.acquire(client.lock(f"{name}/{it}")) for it in ("a", "b", "ä", "c{tag}")]
    leases.append(await face.acquire(odd.lock(f"{name}/a")))
    five.ask(0, "SET", f"{name}/foreign", "alien", "PX", 60000)
    five.ask(0, "HSET", f"{name}/hash", "x", "y")
    assert await face.call(client.names, f"{name}/*") == [f"{name}/{it}" for it in ("a", "b", "c{tag}", "ä")]
    assert await face.call(client.names, f"{name}/[ab]") == [f"{name}/a", f"{name}/b"]
    assert f"{name}/a" in await face.call(client.names)
    assert await face.call(odd.names) == [f"{name}/a"]
    for lease in leases:
        await face.release(lease)
    await face.until(lambda: five.holders(f"{name}/a") == [None] * 5)
    assert await face.call(client.names, f"{name}/*") == []


async def test_many_names_are_found_in_steps(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three)
    token = f"{10**15:016d}:{'a' * 32}:{1:08x}"
    for start in range(0, 2500, 500):
        for number in range(start, start + 500):
            three.ask(number % 3, "SET", f"{name}/{number:04d}", token, "PX", 60000)
    assert await face.call(client.names, f"{name}/*") == [f"{name}/{it:04d}" for it in range(2500)]


async def test_s20_taken_away_by_force(face: Face, five: Cluster, name: str) -> None:
    heard: list[Any] = []
    client, operator = await face.connected(five, ttl=20), await face.connected(five, owner="operator")
    lease = await face.acquire(client.lock(name, on_lost=heard.append))
    await face.until(lambda: lease.votes == 5)
    waiter = asyncio.create_task(face.acquire(operator.lock(name, wait=20)))
    await face.until(lambda: five.waiters(name) == [1] * 5)
    began = face.now()
    assert await face.call(operator.force_release, name, "stuck since Monday") >= 3  # (the holder, told, may be faster at some)
    await face.until(lambda: heard == [lease])
    assert face.now() - began < 5, "told at once, not when the lease has run out"
    assert not lease.held
    with pytest.raises(LockLost, match="an operator took it away") as caught:
        lease.check()
    assert caught.value.reason == "forced"
    following = await waiter
    assert following.fence > lease.fence, "it was handed on"
    await face.until(lambda: following.votes == 5)
    with pytest.raises(LockLost):
        await face.release(lease, True)
    assert await face.release(lease, True) == 0
    assert five.holders(name) == [following.token] * 5, "whose release leaves the next one's keys alone"
    assert following.held
    await face.release(following)
    assert await face.call(operator.force_release, name, "nothing there") == 0


async def test_settings_are_noted(face: Face, three: Cluster) -> None:
    """What each client takes for granted stands on the nodes (rule G7)."""
    client = await face.connected(three, prefix="app:")
    runs = ",".join(sorted({it.run_id[:8] for it in client.nodes()}))
    note = f"v2 {client.settings.max_ttl * 1000:.0f} 3 {runs}  0 "
    await face.until(
        lambda: all(any(it.startswith(note) for it in notes) for notes in three.everywhere("ZRANGE", "{holdfast}:clients:app::", 0, -1))
    )
