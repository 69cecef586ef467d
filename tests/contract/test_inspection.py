"""Looking at locks, and taking them away: `inspect`, `names`, `is_locked`, `force_release`, `stats`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face

from holdfast.errors import LockBusy, LockLost, NoQuorum
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


async def test_a_busy_lock_tells_whose_it_is(face: Face, five: Cluster, name: str) -> None:
    holder, client = await face.connected(five, owner="web-3:118"), await face.connected(five)
    lease = await face.acquire(holder.lock(name))
    await face.until(lambda: lease.votes == 5)
    for wait in (0, 0.1):
        with pytest.raises(LockBusy, match=rf"'{name}' is held by web-3:118 for up to [0-9.]+ s more unless renewed") as caught:
            await face.acquire(client.lock(name, wait=wait))
        assert (caught.value.owner, caught.value.holder) == ("web-3:118", lease.token)
    with pytest.raises(LockBusy, match="is held by this client itself") as caught:
        await face.acquire(holder.lock(name, wait=0))
    assert caught.value.owner == "web-3:118"
    await face.release(lease)
    five.everywhere("SET", name, "alien", "PX", 60000)
    with pytest.raises(LockBusy, match="'alien'") as caught:
        await face.acquire(client.lock(name, wait=0))
    assert caught.value.owner is None


async def test_looking_changes_nothing(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    for look in (client.inspect, client.is_locked, client.locked_by):
        await face.call(look, name)
    await face.call(client.names, f"{name}*")
    assert [five.everywhere("EXISTS", it.decode()) for it in keys_of(name.encode())] == [[0] * 5] * 4


async def test_b50_held_by_anybody_is_on_a_majority_and_held_by_me_is_the_lease(face: Face, five: Cluster, name: str) -> None:
    client, other = await face.connected(five), await face.connected(five)
    for node in range(5):
        five.ask(node, "SET", name, "alien", "PX", 60000)
        locked = node >= 2
        assert await face.call(client.is_locked, name) is locked, f"{node + 1} of 5 nodes have the key"
        assert await face.call(client.locked_by, name) == ("alien" if locked else None)
    five.everywhere("DEL", name)
    lease = await face.acquire(client.lock(name))
    await face.until(lambda: lease.votes == 5)
    assert lease.held
    for each in (client, other):
        assert await face.call(each.is_locked, name)
    await face.call(other.force_release, name, "a test")
    following = await face.acquire(other.lock(name))
    assert await face.call(client.is_locked, name), "by somebody"
    assert not lease.held
    await face.release(following)


async def test_a_key_that_is_no_lock(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three)
    three.ask(0, "HSET", name, "x", "y")
    status = await face.call(client.inspect, name)
    assert status.state == "free"
    assert "WRONGTYPE" in str(status.nodes[0].error)


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


async def test_a_fence_that_no_clock_allows_costs_one_vote_and_is_repaired_by_force(face: Face, five: Cluster, name: str) -> None:
    """A record was damaged on one node, and then on most."""
    client = await face.connected(five)
    fence = keys_of(name.encode())[1].decode()

    async def damage(*numbers: int) -> None:
        for number in numbers:
            five.ask(number, "SET", fence, str(2**53 - 3), "PX", "100000")

    await damage(0)
    for _ in range(3):
        lease = await face.acquire(client.lock(name))
        assert lease.fence < 2**52
        await face.until(lambda: lease.votes == 4)  # noqa: B023 (called within this turn of the loop)
        await face.release(lease, True)
    assert five.ask(1, "GET", fence) == str(lease.fence), "it is written back to nobody"
    await damage(1, 2)
    with pytest.raises(NoQuorum, match=r"no clock|ahead of the clocks, and is not used") as caught:
        await face.acquire(client.lock(name, wait=0.5))
    assert sum("force_release() repairs the fence" in str(it) for it in caught.value.causes.values()) == 3
    await face.call(client.force_release, name, "its fence was damaged")
    last = await face.acquire(client.lock(name, wait=10))
    assert lease.fence < last.fence < 2**52
    await face.until(lambda: last.votes == 5)
    await face.release(last)


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


async def test_only_from_whom_it_was_meant(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    lease = await face.acquire(client.lock(name))
    await face.until(lambda: lease.votes == 5)
    assert await face.call(client.force_release, name, "too late", f"{10**15}:{'a' * 32}:{1:08x}") == 0
    assert lease.held
    assert await face.call(client.force_release, name, "in time", lease.token) >= 3
    await face.until(lambda: not lease.held)


async def test_what_was_done_is_counted(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three, ttl=2)
    assert client.stats().attempts == 0
    one = await face.acquire(client.lock(name))
    assert await face.try_acquire(client.lock(name)) is None
    two = await face.acquire(client.lock(f"{name}/2"))
    waiter = asyncio.create_task(face.acquire(client.lock(name)))
    await face.until(lambda: three.waiters(name) == [1] * 3)
    stats = client.stats()
    assert (stats.held, stats.waiting, stats.attempts, stats.acquired, stats.refused) == (2, 1, 4, 2, 1)
    await face.release(one)
    await face.release(await waiter)
    await face.call(client.force_release, two.name, "a test")
    await face.until(lambda: not two.held)
    stats = client.stats()
    assert (stats.held, stats.waiting, stats.acquired, stats.released, stats.lost, stats.down) == (0, 0, 3, 2, 1, 0)


async def test_settings_are_noted(face: Face, three: Cluster) -> None:
    """What each client takes for granted stands on the nodes (rule G7)."""
    client = await face.connected(three, prefix="app:")
    runs = ",".join(sorted({it.run_id[:8] for it in client.nodes()}))
    note = f"v2 {client.settings.max_ttl * 1000:.0f} 3 {runs}  0 "
    await face.until(
        lambda: all(any(it.startswith(note) for it in notes) for notes in three.everywhere("ZRANGE", "{holdfast}:clients:app::", 0, -1))
    )
