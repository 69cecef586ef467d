"""One lease for several names: all of them or none, whatever order callers use (rules N1 to N4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face

from holdfast.errors import LockBusy, LockLost, Misuse
from holdfast.face.lease import LeaseState


def named(name: str, letters: str) -> list[str]:
    return [f"{name}/{it}" for it in letters]


async def test_one_lease_for_all(face: Face, five: Cluster, name: str) -> None:
    client, names = await face.connected(five), named(name, "ba")
    lock = client.lock(*names)
    assert (lock.name, lock.names) == (",".join(names), tuple(names))
    before = five.calls()
    lease = await face.acquire(lock)
    assert (lease.name, lease.names, lease.state, lease.held) == (",".join(names), tuple(names), LeaseState.HELD, True)
    assert list(lease.fences) == list(lease.tokens) == names
    await face.until(lambda: lease.votes == 5)
    assert [now - then for now, then in zip(five.calls(), before, strict=True)] == [2] * 5, "one request a name and node"
    assert len(set(lease.tokens.values())) == 2, "a token is used for one name only"
    assert len({it.split(":")[0] for it in lease.tokens.values()}) == 1, "but all have one ticket"
    for each in names:
        assert five.holders(each) == [lease.tokens[each]] * 5
    for alone in ("fence", "token"):
        with pytest.raises(Misuse, match="several names"):
            getattr(lease, alone)
    assert await face.release(lease, confirm=True) >= 3
    await face.until(lambda: all(five.holders(each) == [None] * 5 for each in names))
    assert lease.state is LeaseState.RELEASED


async def test_all_or_nothing_in_try_mode(face: Face, five: Cluster, name: str) -> None:
    client, (a, b, c) = await face.connected(five), named(name, "abc")
    other = await face.acquire(client.lock(b))
    assert await face.try_acquire(client.lock(a, b, c)) is None
    with pytest.raises(LockBusy) as caught:
        await face.acquire(client.lock(c, a, b, wait=0))
    assert (caught.value.name, caught.value.holder) == (b, other.token), "the name that is busy, and who has it"
    await face.until(lambda: five.holders(a) == five.holders(c) == [None] * 5)
    assert five.waiters(b) == [0] * 5
    await face.release(other)
    lease = await face.try_acquire(client.lock(a, b, c))
    assert lease is not None
    await face.release(lease)


async def test_waiting_ends_with_the_busy_name_and_nothing_is_kept(face: Face, five: Cluster, name: str) -> None:
    client, (a, b) = await face.connected(five), named(name, "ab")
    other = await face.acquire(client.lock(b))
    with pytest.raises(LockBusy) as caught:
        await face.acquire(client.lock(a, b, wait=0.2))
    assert caught.value.name == b
    await face.until(lambda: five.holders(a) == [None] * 5 and five.waiters(b) == [0] * 5)
    await face.release(other)


async def test_the_whole_waits_for_the_last_name(face: Face, five: Cluster, name: str) -> None:
    """Meanwhile nobody with a lower ticket waits for it: names that it has so far are given to who came before."""
    client, rival, (a, b) = await face.connected(five), await face.connected(five), named(name, "ab")
    other = await face.acquire(rival.lock(b))
    waiter = asyncio.create_task(face.acquire(client.lock(a, b)))
    await face.until(lambda: five.waiters(b) == [1] * 5)
    await face.release(other)
    lease = await waiter
    assert lease.contended
    assert all(fence > other.fence for fence in [lease.fences[b]])
    await face.release(lease)


async def test_lost_as_a_whole(face: Face, three: Cluster, name: str) -> None:
    client, (a, b) = await face.connected(three, ttl=1), named(name, "ab")
    lost: list[Any] = []
    lease = await face.acquire(client.lock(a, b, on_lost=lost.append))
    await face.until(lambda: lease.votes == 3)
    assert await face.call(client.force_release, b, "a test") == 3
    await face.until_lost(lease)
    assert (lease.state, lease.held, lease.votes) == (LeaseState.LOST, False, 0)
    with pytest.raises(LockLost, match="forced") as caught:
        lease.check()
    assert (caught.value.name, caught.value.reason, caught.value.fence) == (f"{a},{b}", "forced", None)
    await face.until(lambda: lost == [lease])
    await face.until(lambda: three.holders(a) == [None] * 3)
    with pytest.raises(LockLost):
        await face.release(lease)
