"""What nodes do to us: cut connections, save everything and die, are no nodes; and what we leave on them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from contract.cluster import Cluster, ask
from contract.faces import Face
from proof.books import word

from holdfast.drivers import sockets
from holdfast.errors import ConfigError, LockBusy, NotAcquired
from holdfast.protocol.exclusive import keys_of


@pytest.fixture
async def three(face: Face) -> AsyncIterator[Cluster]:
    async with face.nodes(3) as cluster:
        yield cluster


def cut(nodes: Cluster, *which: int) -> None:
    """Cut all connections of all clients."""
    for node in which or range(len(nodes)):
        for kind in ("normal", "pubsub"):
            nodes.ask(node, "CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


# ------------------------------------------------ connections


async def test_b30_cut_connections_lose_neither_a_lease_nor_a_place_in_line(face: Face, three: Cluster, name: str) -> None:
    heard: list[Any] = []
    client, other = await face.connected(three, ttl=3, observer=heard.append), await face.connected(three, ttl=3)
    lease = await face.acquire(client.lock(name))
    served: list[str] = []

    async def user(number: int) -> None:
        mine = await face.acquire((client, other)[number % 2].lock(name))
        served.append(mine.token[:16])
        await face.release(mine)

    users = []
    for number in range(4):
        users.append(asyncio.create_task(user(number)))
    await face.until(lambda: min(three.waiters(name)) == 4)
    for _ in range(3):
        cut(three)
        await face.sleep(0.1)  # until that is noticed: a waiter who hears nothing is passed over
        await face.until(lambda: all(it.state == "up" for it in (*client.nodes(), *other.nodes())))
    assert lease.held
    assert three.holders(name) == [lease.token] * 3
    await face.release(lease)
    await asyncio.gather(*users)
    assert len(served) == 4
    assert served == sorted(served), "in the order of their tickets"
    assert not [it for it in heard if word(it) == "lost"]


async def test_s31_nodes_that_save_everything_come_back_with_the_lock(face: Face, name: str) -> None:
    """`appendfsync always`, and therefore no guard: all of them die at once, and the lock is held on."""
    async with face.nodes(3, "--appendonly", "yes", "--appendfsync", "always") as nodes:
        client, other = [await face.connected(nodes, restart_guard=None, outage=20) for _ in range(2)]
        # A renewal in between would move the expiry.
        lease = await face.acquire(client.lock(name, ttl=20, renew=False))
        await face.until(lambda: lease.votes == 3)
        assert nodes.holders(name) == [lease.token] * 3
        left, then = nodes.everywhere("PTTL", name), face.now()
        await nodes.restart(0, 1, 2)
        now = face.now()
        assert nodes.holders(name) == [lease.token] * 3
        gone = [before - after for before, after in zip(left, nodes.everywhere("PTTL", name), strict=True)]
        assert all(0 <= it <= (face.now() - then) * 1000 + 50 for it in gone), "an expiry is a time, not a duration"
        assert now - then < 15
        with pytest.raises(LockBusy):
            await face.acquire(other.lock(name, wait=0.3))
        await face.until(lambda: all(it.state == "up" for it in (*client.nodes(), *other.nodes())))
        assert await face.extend(lease) > 15
        assert lease.held
        fence = lease.fence
        await face.release(lease, confirm=True)
        second = await face.acquire(other.lock(name, wait=5))
        assert second.fence > fence
        await face.release(second)


# ------------------------------------------------ refusals


async def test_s11_a_name_that_is_something_else(face: Face, five: Cluster, name: str) -> None:
    def spoil(node: int) -> None:
        assert five.ask(node, "RPUSH", name, "x") == 1

    client = await face.connected(five)
    spoil(1)
    spoil(4)
    lease = await face.acquire(client.lock(name))
    assert lease.votes == 3
    await face.release(lease, confirm=True)
    spoil(2)
    for wait in (None, 0):
        began = face.now()
        with pytest.raises(ConfigError) as caught:
            await face.acquire(client.lock(name, wait=wait))
        assert face.now() - began < 2
        assert name in str(caught.value)
        assert all(five.urls[node] in str(caught.value) for node in (1, 2, 4))
    await face.until(lambda: five.everywhere("EXISTS", name) == [0, 1, 1, 0, 1])  # B-28: the others are free again
    five.everywhere("DEL", name)


async def test_a_replica_is_no_node(face: Face, three: Cluster, name: str) -> None:
    assert three.ask(2, "REPLICAOF", "127.0.0.1", 1) == "OK"
    client = face.client(three)
    with pytest.raises(ConfigError, match="replica") as caught:
        await face.ready(client)
    assert three.urls[2] in str(caught.value)
    assert not any(url in str(caught.value) for url in three.urls[:2])
    lease = await face.acquire(client.lock(name, wait=5))  # the others are a majority
    assert lease.votes == 2
    await face.release(lease)


# ------------------------------------------------ ways to get there


async def test_operators_see_whose_connections_they_are_and_that_they_are_kept_alive(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three, owner="billing@worker-7")
    lease = await face.acquire(client.lock(name))
    told = f" name=holdfast:billing@worker-7:{lease.token[17:25]} "
    assert [sum(told in line for line in it.splitlines()) for it in three.everywhere("CLIENT", "LIST")] == [1] * 3
    with contextlib.closing(sockets.open_socket(socket.AF_INET)) as sock:
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        assert not hasattr(socket, "TCP_KEEPIDLE") or sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
    await face.release(lease)


# ------------------------------------------------ what we leave there

LASTING = """
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
    if redis.call('PTTL', key) == -1 then found[#found + 1] = key end
end
return found
"""


async def test_m4_every_key_has_an_expiry_at_any_time_and_m1_nothing_stays(face: Face, three: Cluster, name: str) -> None:
    # Rule K4.
    client, rival = await face.connected(three, ttl=0.6, max_ttl=1), await face.connected(three, ttl=0.6, max_ttl=1)
    over, found, dice = threading.Event(), [0], random.Random(name)
    lasting: list[str] = []

    def look() -> None:
        while not over.is_set():
            for url in three.urls:
                lasting.extend(ask(url, "EVAL", LASTING, 0))
                found[0] += 1

    async def user(number: int) -> None:
        for turn in range(12):
            lock = (client, rival)[turn % 2].lock(f"{name}/{dice.randrange(3)}", wait=dice.choice([None, 0, 0.01]))
            try:
                lease = await face.acquire(lock)
            except NotAcquired:
                continue
            if dice.random() < 0.2:
                await face.extend(lease, 1)
            await face.sleep(dice.random() / 100)
            await face.release(lease)

    watcher = asyncio.create_task(asyncio.to_thread(look))
    await asyncio.gather(*map(user, range(8)))
    over.set()
    await watcher
    assert lasting == []
    assert found[0] > 20
    await face.until(lambda: [it for keys in three.everywhere("KEYS", f"{name}*") for it in keys] == [], within=1)
    for key in keys_of(f"{name}/0".encode())[2:]:
        assert three.everywhere("EXISTS", key.decode()) == [0] * 3
    left = {it: ask(three.urls[0], "PTTL", it) for it in three.ask(0, "KEYS", "*")}
    for key in [it for it in left if it.startswith("{holdfast}:")]:
        # What clients say of themselves: their settings for an hour, and which lists of sets they know for 26 hours.
        assert 0 < left.pop(key) <= (3_600_000 if ":config:" in key else 26 * 3_600_000), key
    assert all(0 < it <= 3000 for it in left.values()), left  # the fences stay for 2 K at most, which is the guard


async def test_b40_waiting_costs_nothing(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five, ttl=30)
    lease = await face.acquire(client.lock(name))
    waiters = [asyncio.create_task(face.acquire(client.lock(name, wait=60))) for _ in range(20)]
    await face.until(lambda: min(five.waiters(name)) == 20)
    before = five.calls()
    await face.sleep(0.6)
    assert five.calls() == before
    await face.release(lease)
    for waiter in asyncio.as_completed(waiters):
        await face.release(await waiter)
    asked = [now - then for now, then in zip(five.calls(), before, strict=True)]
    assert max(asked) <= 21 * 2, "a request and a release for each, and no more"
