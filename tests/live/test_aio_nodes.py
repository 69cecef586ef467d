"""A node that does not read, and what that costs the users of a loop."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from contract.cluster import Cluster
from live.test_aio_kit import SOON, calm, connected, driver_of, some, turns

from holdfast.clock import clock
from holdfast.drivers import sockets
from holdfast.embedded import Nodes


@calm
async def test_a_write_buffer_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that does not read: what is said to it piles up for `node_timeout` at most, and nobody waits for that; nor does the end."""

    def open_socket(family: int, plain: Any = sockets.open_socket) -> socket.socket:
        sock: socket.socket = plain(family)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return sock

    monkeypatch.setattr(sockets, "open_socket", open_socket)
    with Cluster(Nodes(5)) as cluster:
        locks = await connected(cluster.nodes)
        driver = driver_of(locks)

        async def speaks() -> None:
            async with locks.lock(some("full" * 100)):
                pass

        async def fills() -> None:
            """Until the kernel takes nothing more for that node."""
            began = clock()
            while (link := driver.sockets.links[2]) is None or not (it := link.transport) or it.get_write_buffer_size() < 100_000:
                assert clock() < began + SOON, "its buffer was never full"
                await asyncio.gather(*[speaks() for _ in range(50)])

        await cluster.freeze(2)
        leases = [await locks.lock(some("full")).acquire() for _ in range(20)]
        await fills()
        async with locks.lock(some("full")) as lease:
            assert lease.votes >= 3
        await fills()
        link, began = driver.sockets.links[2], clock()
        assert link is not None and link.transport is not None
        await locks.close()
        assert clock() - began < 3 * driver.settings.node_timeout
        assert not any(it.held for it in leases)
        await turns(2)
        assert link.sock is None or link.sock.fileno() == -1  # what was not sent is not waited for
