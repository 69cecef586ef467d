"""Nodes that are dead, frozen, slow to read, or no servers at all (B-25, S-02, S-25, S-35).

What that costs the users of a loop, how connections end, and who is called late.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from contract.cluster import Cluster
from live.test_aio_kit import SOON, Down, Eye, calm, client, connected, driver_of, eye, some, true, turns

from holdfast.aio import Holdfast
from holdfast.clock import clock
from holdfast.drivers import sockets
from holdfast.embedded import Nodes

__all__ = ["eye"]


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """Five nodes that the tests of this module freeze and thaw, and leave as they were."""
    with Cluster(Nodes(5)) as cluster:
        yield cluster


@asynccontextmanager
async def frozen(cluster: Cluster, *which: int) -> AsyncIterator[None]:
    await cluster.freeze(*which)
    try:
        yield
    finally:
        await cluster.thaw(*which)


# ------------------------------------------------ connections


@calm
async def test_a_frozen_node_is_hung_up_with_a_reset(own: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    # Rule T4.
    resets: list[Any] = []

    def reset(sock: socket.socket, plain: Any = sockets.reset) -> None:
        resets.append(sock.getpeername())
        plain(sock)

    monkeypatch.setattr(sockets, "reset", reset)
    down = Down()
    async with await connected(own.nodes, ttl=2, max_ttl=2, observer=down) as locks:
        link = driver_of(locks).sockets.links[3]
        assert link is not None
        async with frozen(own, 3):
            lease = await locks.lock(some("reset")).acquire()
            await true(lambda: down.nodes)
            assert down.nodes == [own.urls[3]]
            assert resets[0] == own.urls[3].removeprefix("unix://")
            await turns(2)
            assert link.transport is not None and link.transport.is_closing()
            assert lease.held
        await true(lambda: all(it.state == "up" for it in locks.nodes()))
        assert driver_of(locks).sockets.links[3] is not link
        await true(lambda: lease.votes == 5)  # asked again with the next renewal
        await lease.release()


@calm
async def test_late_news_of_an_old_connection(nodes: Nodes) -> None:
    """A connection that was replaced is no connection: what it still says, and that it is lost, concerns nobody."""
    down = Down()
    async with await connected(nodes, observer=down) as locks:
        driver = driver_of(locks)
        old = driver.sockets.links[0]
        assert old is not None and old.transport is not None
        driver.do(driver.engine.upkeep.lost, 0, clock(), ConnectionError("hung up"))
        await true(lambda: driver.sockets.links[0] is not None and all(it.state == "up" for it in locks.nodes()))
        assert driver.sockets.links[0] is not old
        down.nodes.clear()
        old.get_buffer(-1)[:5] = b"+OK\r\n"
        old.buffer_updated(5)
        old.connection_lost(None)
        async with locks.lock(some("old")) as lease:
            await true(lambda: lease.votes == 5)
        assert down.nodes == []


@calm
async def test_a_write_buffer_that_is_full(own: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that does not read: what is said to it piles up for `node_timeout` at most, and nobody waits for that; nor does the end."""

    def open_socket(family: int, plain: Any = sockets.open_socket) -> socket.socket:
        sock: socket.socket = plain(family)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return sock

    monkeypatch.setattr(sockets, "open_socket", open_socket)
    locks = await connected(own.nodes)
    driver = driver_of(locks)
    async with frozen(own, 2):

        def buffered() -> int:
            link = driver.sockets.links[2]
            return link.transport.get_write_buffer_size() if link is not None and link.transport is not None else 0

        leases = [await locks.lock(some("full")).acquire() for _ in range(20)]
        await _fill(locks, buffered)
        async with locks.lock(some("full")) as lease:
            assert lease.votes >= 3
        await _fill(locks, buffered)
        link, began = driver.sockets.links[2], clock()
        assert link is not None and link.transport is not None
        await locks.close()
        assert clock() - began < 3 * driver.settings.node_timeout
        assert not any(it.held for it in leases)
        await turns(2)
        assert link.sock is None or link.sock.fileno() == -1  # what was not sent is not waited for


async def _fill(locks: Holdfast, buffered: Callable[[], int]) -> None:
    """Until the kernel takes nothing more for that node."""
    began = clock()
    while buffered() < 100_000:
        assert clock() < began + SOON, "its buffer was never full"
        await asyncio.gather(*[_pair(locks) for _ in range(50)])


async def _pair(locks: Holdfast) -> None:
    async with locks.lock(some("full" * 100)):
        pass


@calm
async def test_a_node_that_is_frozen_at_the_end_still_hears_the_release(own: Cluster) -> None:
    """Its connection is closed, and not reset, however short some lock's patience is: it obeys when it thaws."""
    async with client(own.nodes, node_timeout=0.4) as locks:
        await locks.ready(SOON)
        async with locks.lock(some("short"), ttl=0.3):  # (no node may owe an answer for longer than a third of that)
            pass
        name = some("end")
        lease = await locks.lock(name, ttl=20).acquire()
        await true(lambda: lease.votes == 5)
        async with frozen(own, 4):
            began = clock()
            await locks.close()
            assert clock() - began < 3.0
        with Eye(own.nodes) as eye:
            await eye.gone(name, within=5)


# ------------------------------------------------ addresses


@calm
async def test_addresses_that_lead_nowhere(nodes: Nodes) -> None:
    """A minority of them costs nothing; each says why it is of no use."""
    odd = ["redis://no-such-host.invalid:6379", "unix:///nowhere/at/all.sock"]
    async with Holdfast(*nodes.urls[:3], *odd, node_timeout=0.5) as locks:
        async with asyncio.timeout(SOON):
            async with locks.lock(some("nowhere"), wait=SOON) as lease:
                assert lease.votes >= 3
        await true(lambda: [it.state for it in locks.nodes()] == ["up", "up", "up", "down", "down"])
        causes = [it.cause for it in locks.nodes()[3:]]
        assert isinstance(causes[0], socket.gaierror) and isinstance(causes[1], FileNotFoundError)


@calm
async def test_s03_connections_that_never_come_do_not_pile_up(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A black hole: each dial is given up after `node_timeout`, and nothing of it remains."""
    loop: Any = asyncio.get_running_loop()
    connect, hole, dials = loop.sock_connect, nodes.urls[4].removeprefix("unix://"), [0]

    async def sock_connect(sock: socket.socket, where: Any) -> None:
        if where == hole:
            dials[0] += 1
            await loop.create_future()
        await connect(sock, where)

    monkeypatch.setattr(loop, "sock_connect", sock_connect, raising=False)
    async with client(nodes, node_timeout=0.05) as locks:
        async with locks.lock(some("hole")):  # as fast as the others are
            pass
        while dials[0] < 5:
            await asyncio.sleep(0.01)
            assert len(asyncio.all_tasks()) <= 2 + 1
        assert [it.state for it in locks.nodes()] == ["up"] * 4 + ["down"]
