"""Holding a lock: what a lease knows, how it is kept alive, and how it is made to last longer."""

from __future__ import annotations

import asyncio
import random
import re
from datetime import timedelta
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face
from proof.misuse import misuse

from holdfast import LeaseState
from holdfast.errors import ConfigError, LockBusy, LockLost, NoQuorum

TICK = 0.3  # seconds by which a busy machine may be late


async def test_what_a_lease_knows(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five, ttl=9)
    lease = await face.acquire(client.lock(name))
    assert (lease.name, lease.state, lease.held, lease.contended) == (name, LeaseState.HELD, True, False)
    assert 8 < lease.remaining <= 9
    assert 0 <= lease.waited < TICK
    assert type(lease.fence) is int
    assert 0 < lease.fence < 2**53
    assert re.fullmatch("[0-9]{16}:[0-9a-f]{32}:[0-9a-f]{8}", lease.token)
    await face.until(lambda: lease.votes == 5)
    assert five.holders(name) == [lease.token] * 5
    assert five.everywhere("GET", f"{{{name}}}:fence") == [str(lease.fence)] * 5
    assert lease.lost is lease.lost
    assert not lease.lost.is_set()
    assert lease.check() is None
    assert name in repr(lease)
    assert str(lease.fence) in repr(lease)
    assert re.search(r" [0-9.]+ s left unless renewed or released>$", repr(lease))
    await face.release(lease)
    assert (lease.state, lease.held, lease.remaining, lease.votes) == (LeaseState.RELEASED, False, 0, 0)
    assert repr(lease).endswith(" RELEASED: not held>")
    assert lease.fence > 0  # for logs
    assert not lease.lost.is_set()
    with misuse("not_held"):
        lease.check()
    with misuse("not_held"):
        await face.extend(lease)


async def test_b07_tokens_do_not_come_from_the_shared_generator(face: Face, five: Cluster, name: str) -> None:
    inboxes = set()
    for _ in range(2):
        random.seed(0)
        client = face.client(five)
        lease = await face.acquire(client.lock(name))
        inboxes.add(lease.token.split(":")[1])
        await face.release(lease)
    assert len(inboxes) == 2


# ------------------------------------------------ extending


async def test_b23_extensions_do_not_add_up_and_never_shorten(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five, ttl=5)
    lease = await face.acquire(client.lock(name))
    for _ in range(3):
        assert 4 < await face.extend(lease) <= 5
    assert 4 < lease.remaining <= 5
    for longer in (15, timedelta(seconds=15)):
        assert 14 < await face.extend(lease, longer) <= 15
    for shorter in ((), (0.05,), (timedelta(seconds=1),)):
        assert 13 < await face.extend(lease, *shorter) <= 15
    await face.until(lambda: all(13_000 < left <= 15_000 for left in five.everywhere("PTTL", name)), within=1)
    await face.release(lease)


async def test_an_extension_may_move_the_end_that_max_hold_sets(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five, ttl=5)
    lease = await face.acquire(client.lock(name, max_hold=2))
    assert 1 < await face.extend(lease) <= 2
    assert 3 < await face.extend(lease, max_hold=4) <= 4
    with pytest.raises(ConfigError, match="max_hold"):
        await face.extend(lease, max_hold=0)
    assert 0.1 < await face.extend(lease, max_hold=0.3) <= 0.3
    await face.until(lambda: lease.state is LeaseState.LOST, within=1)
    with pytest.raises(LockLost) as caught:
        lease.check()
    assert caught.value.reason == "max_hold"


async def test_an_extension_without_a_quorum_says_so_and_the_lease_is_in_doubt(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three, node_timeout=0.2)
    lease = await face.acquire(client.lock(name))
    await three.freeze(0, 2)
    began = face.now()
    with pytest.raises(NoQuorum) as caught:
        await face.extend(lease)
    assert face.now() - began < 0.2 + 2 * TICK
    assert {three.urls[0], three.urls[2]} <= set(caught.value.causes)
    assert "extend" in str(caught.value)
    assert (lease.state, lease.held) == (LeaseState.DOUBT, True)
    assert lease.remaining > 5
    assert lease.check() is None
    await three.thaw(0, 2)
    await face.until(lambda: lease.state is LeaseState.HELD)
    assert await face.extend(lease) > 9
    await face.release(lease)


# ------------------------------------------------ renewal


async def test_b45_renewal_keeps_a_short_lease_alive(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    for attempt in range(5):
        lease = await face.acquire(client.lock(f"{name}/{attempt}", ttl=0.6))
        pause, last = 0.0, face.now()
        end = last + 1.9
        while last < end:
            await face.sleep(0.01)
            pause, last = max(pause, face.now() - last), face.now()
        if lease.held:
            await face.release(lease)
            return
        assert pause > 0.2, "lost, and this machine did not even stand still"
    pytest.fail("this machine stands still for longer than a third of a lease, again and again")


async def test_b19_the_wall_clock_decides_nothing(face: Face, five: Cluster, name: str) -> None:
    """It is set an hour ahead, or back, while one waits and while one holds."""
    client = await face.connected(five)
    fences: list[int] = []
    for step in (3600.0, -3600.0):
        lease = await face.acquire(client.lock(name, ttl=3, renew=False))
        busy = asyncio.create_task(face.acquire(client.lock(name, wait=0.5)))
        waiter = asyncio.create_task(face.acquire(client.lock(name, wait=20)))
        await face.until(lambda: min(five.waiters(name)) == 2)
        began = face.now()
        face.set_wall(client, step)
        with pytest.raises(LockBusy) as caught:
            await busy
        assert 0.4 < caught.value.waited < 0.5 + 2 * TICK
        assert caught.value.ttl_left is not None
        assert 0 < caught.value.ttl_left < 3
        assert lease.held
        assert 0 < lease.remaining < 3
        assert await face.extend(lease) <= 3
        await face.release(lease)
        second = await waiter
        assert face.now() - began < 3, "a lease that is released is over, whatever the time is"
        assert second.waited < 3
        assert second.fence > lease.fence
        fences += [lease.fence, second.fence]
        await face.release(second)
        face.set_wall(client, -step)
    assert fences == sorted(fences)


async def test_s24_max_hold_ends_a_lease(face: Face, five: Cluster, name: str) -> None:
    told: list[Any] = []
    client = await face.connected(five)
    lease = await face.acquire(client.lock(name, ttl=0.6, max_hold=0.9, on_lost=told.append))
    began = face.now() - lease.waited
    other = face.acquire(client.lock(name))
    assert lease.remaining <= 0.6
    await face.sleep(0.5)
    assert lease.held
    assert lease.remaining <= 0.45
    await face.extend(lease, 5)
    assert lease.remaining <= 0.45, "no extension gets past it"
    await face.until_lost(lease)
    assert 0.8 < face.now() - began < 0.9 + TICK
    await face.until(lambda: told == [lease])
    with pytest.raises(LockLost) as caught:
        await face.release(lease)
    assert caught.value.reason == "max_hold"
    await face.release(await other)  # at once: an extended key would stand there for 5 s
    assert face.now() - began < 0.9 + 3 * TICK
