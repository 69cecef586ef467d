"""Read-write locks: many readers or one writer, first come first served; and from writer to reader without a gap."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face, Script
from proof.misuse import misuse

from holdfast.errors import LockBusy, LockLost, Misuse
from holdfast.face.lease import LeaseState
from holdfast.protocol.readwrite import rw_keys_of


def waiting(nodes: Cluster, name: str) -> list[int]:
    """How many wait, on each node."""
    counts: list[int] = nodes.everywhere("ZCARD", rw_keys_of(name.encode())[2].decode())
    return counts


async def test_readers_read_together(face: Face, five: Cluster, name: str) -> None:
    here, there = await face.connected(five), await face.connected(five)
    one, two = await face.acquire(here.rwlock(name).read()), await face.acquire(there.rwlock(name).read(wait=0))
    assert one.held and two.held and one.shared and two.shared
    assert one.token.endswith(":r") and one.token != two.token
    await face.until(lambda: one.votes == two.votes == 5)
    assert five.holders(name) == ["shared"] * 5
    await face.release(one)
    await face.release(two, confirm=True)
    await face.until(lambda: five.holders(name) == [None] * 5)
    assert (one.state, two.state) == (LeaseState.RELEASED, LeaseState.RELEASED)


async def test_a_writer_is_alone(face: Face, five: Cluster, name: str) -> None:
    here, there = await face.connected(five), await face.connected(five)
    rw = there.rwlock(name)
    writer = await face.acquire(here.rwlock(name).write())
    assert not writer.shared and writer.token.endswith(":w")
    assert await face.try_acquire(rw.read()) is None
    assert await face.try_acquire(rw.write()) is None
    with pytest.raises(LockBusy) as busy:
        await face.acquire(rw.read(wait=0.05))
    assert busy.value.holder == writer.token
    await face.release(writer)
    reader = await face.acquire(rw.read())
    with pytest.raises(LockBusy) as busy:
        await face.acquire(here.rwlock(name).write(wait=0.05))
    assert busy.value.holder == reader.token, "of readers, the one that stays longest"
    await face.release(reader)


async def test_who_comes_later_to_read_waits_behind_a_writer(face: Face, five: Cluster, name: str) -> None:
    clients = [await face.connected(five) for _ in range(3)]
    order: list[str] = []

    async def use(client: Any, what: str) -> None:
        rw = client.rwlock(name)
        lease = await face.acquire(rw.write() if what == "writes" else rw.read())
        order.append(what)
        await face.release(lease)

    first = await face.acquire(clients[0].rwlock(name).read())
    writer = asyncio.create_task(use(clients[1], "writes"))
    await face.until(lambda: waiting(five, name) == [1] * 5)
    late = asyncio.create_task(use(clients[2], "reads"))
    await face.until(lambda: waiting(five, name) == [2] * 5)
    assert await face.try_acquire(clients[0].rwlock(name).read()) is None, "nor does a try pass it"
    await face.release(first)
    await asyncio.gather(writer, late)
    assert order == ["writes", "reads"]


async def test_a_writer_downgrades_and_no_other_writer_comes_between(face: Face, five: Cluster, name: str) -> None:
    # Rule D4.
    here, there, third = [await face.connected(five) for _ in range(3)]
    lease = await face.acquire(here.rwlock(name).write())
    fence = lease.fence
    other = asyncio.create_task(face.acquire(there.rwlock(name).write()))
    await face.until(lambda: waiting(five, name) == [1] * 5)
    await face.call(lease.downgrade)
    assert lease.held and lease.shared and lease.fence == fence + 1
    await face.until(lambda: five.holders(name) == ["shared"] * 5)
    await face.sleep(0.05)
    assert not other.done()
    assert await face.try_acquire(third.rwlock(name).read()) is None, "a writer waits"
    assert await face.extend(lease) > 0
    await face.release(lease)
    writer = await other
    assert writer.fence > fence + 1
    await face.release(writer)


async def test_what_cannot_be_downgraded(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    for lock, told in (
        (client.rwlock(name).read(), "a read lease already"),
        (client.lock(f"{name}/plain"), "no lease of a read-write lock"),
    ):
        lease = await face.acquire(lock)
        with pytest.raises(Misuse, match=told):
            await face.call(lease.downgrade)
        await face.release(lease)
    lease = await face.acquire(client.rwlock(name).write())
    await face.release(lease)
    with misuse("not_held"):
        await face.call(lease.downgrade)


async def test_waiting_to_write_while_one_reads_is_refused_at_once(face: Face, five: Cluster, name: str) -> None:
    """Rule W3. Also for a lock of the same name, which would share its lease with other readers."""
    client = await face.connected(five)
    rw = client.rwlock(name)

    def script() -> Script[list[str]]:
        read = face.block(rw.read())
        yield read.enter
        told = []
        for lock in (rw.write(reentrant=True), client.lock(name, reentrant=True)):
            assert (yield lock.try_acquire) is None
            try:
                yield lock.acquire
            except Misuse as error:
                told.append(str(error))
        yield read.leave
        return told

    told = await face.user(client, script())
    assert len(told) == 2
    assert all("wait for each other for ever" in it and "downgrade" in it for it in told)


async def test_entering_again(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    rw = client.rwlock(name)

    def script() -> Script[list[int]]:
        outer = face.block(rw.write())
        first = yield outer.enter
        inner = face.block(rw.read(reentrant=True))
        second = yield inner.enter
        with pytest.raises(Misuse, match="more than once"):
            yield first.downgrade
        yield inner.leave
        held = first.held
        yield outer.leave
        return [first.fence, second.fence, held]

    one, two, held = await face.user(client, script())
    assert one == two and held


async def test_an_operator_sees_readers_and_takes_the_lock_from_all_or_from_one(face: Face, five: Cluster, name: str) -> None:
    client, other = await face.connected(five), await face.connected(five)
    leases = [await face.acquire(client.rwlock(name).read()) for _ in range(3)]
    await face.until(lambda: all(it.votes == 5 for it in leases))
    status = await face.call(other.inspect, name)
    assert (status.state, status.holder) == ("held", "shared")
    assert [(it.token, it.nodes) for it in status.readers] == sorted((it.token, 5) for it in leases)
    assert await face.call(other.names, f"{name}*") == [name]
    assert await face.call(other.is_locked, name)
    assert await face.call(other.force_release, name, "this one only", leases[0].token) >= 3, "(a node may be busy)"
    await face.until_lost(leases[0])
    assert leases[1].held and leases[2].held
    waits = asyncio.create_task(face.acquire(other.rwlock(name).write()))
    await face.until(lambda: waiting(five, name) == [1] * 5)
    assert await face.call(other.force_release, name, "all of them") >= 3
    for it in leases[1:]:
        await face.until_lost(it)
        assert it.state is LeaseState.LOST
        with pytest.raises(LockLost, match="forced"):
            it.check()
    writer = await waits
    assert await face.call(client.force_release, name, "the writer, too") >= 3
    await face.until_lost(writer)


async def test_a_lock_and_a_read_write_lock_of_one_name_keep_each_other_out(face: Face, five: Cluster, name: str) -> None:
    # Rule W8.
    here, there = await face.connected(five), await face.connected(five)
    for one, other in ((here.lock(name), there.rwlock(name).read()), (here.rwlock(name).read(), there.lock(name))):
        lease = await face.acquire(one)
        assert await face.try_acquire(other) is None
        task = asyncio.create_task(face.acquire(other))
        await face.sleep(0.05)
        assert not task.done()
        await face.release(lease)
        await face.release(await task)
