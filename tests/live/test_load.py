"""Many leases at once, which one thread or one timer keeps, and more to say than a node reads. Nothing of it stays."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import warnings
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face, Threads
from live.kit import io_thread_of

from holdfast.drivers import sockets

COUNT = 1000
TTL = 6.0  # seconds: a busy machine that takes half as long for a thousand renewals is still in time


def engine_of(face: Face, client: Any) -> Any:
    return io_thread_of(client).engine if isinstance(face, Threads) else client._driver().engine


def things(face: Face, client: Any) -> tuple[int, ...]:
    """How many threads and open files this process has; or with asyncio, how many of the loop's timers and tasks are the client's."""
    if isinstance(face, Threads):
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    loop: Any = asyncio.get_running_loop()
    ticks = [it for it in loop._scheduled if not it.cancelled() and it._callback == client._driver()._timer._tick]
    return max(1, len(ticks)), len(asyncio.all_tasks())


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="only Linux lists a process's threads and files")
async def test_b48_1000_leases_that_are_held_and_renewed(face: Face, three: Cluster, name: str) -> None:
    """How fast a machine is says nothing here: whatever is waited for has much more time than it needs."""
    client = await face.connected(three, ttl=TTL)
    before = things(face, client)

    def never_more() -> bool:
        # A thread of an earlier test may have ended meanwhile.
        return all(now <= then for now, then in zip(things(face, client), before, strict=True))

    leases = [await face.acquire(client.lock(f"{name}.{number}")) for number in range(COUNT)]
    await face.until(never_more)
    ends = [it.until for it in leases]
    await face.until(lambda: all(it.until > end for it, end in zip(leases, ends, strict=True)), TTL)
    await face.until(never_more)
    assert all(it.held for it in leases)
    assert (client.stats().held, client.stats().lost) == (COUNT, 0)
    names = [leases[0].name, leases[-1].name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        leases.clear()
        gc.collect()
    assert sum(it.category is ResourceWarning and name in str(it.message) for it in caught) == COUNT
    engine = engine_of(face, client)
    await face.until(lambda: not engine.live, 10 * TTL)
    await face.until(lambda: not any(any(three.everywhere("EXISTS", it)) for it in names))
    if isinstance(face, Threads):
        await face.until(lambda: not io_thread_of(client)._pending_calls and not io_thread_of(client).waiting)
    # The thread of the log, which told of their ends, ends when it is idle.
    await face.until(never_more)


def link_of(face: Face, client: Any, node: int) -> Any:
    """The connection to a node."""
    return io_thread_of(client).sockets.by_node[node] if isinstance(face, Threads) else client._driver().sockets.links[node]


def unsent(face: Face, link: Any) -> int:
    """How many bytes wait for the kernel to take them."""
    return len(link.rest) if isinstance(face, Threads) else link.transport.get_write_buffer_size()


async def test_a_node_that_reads_nothing_and_a_socket_that_is_full(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for it. When it reads again, not a byte was lost; and the end of a client does not wait until it does."""

    def small(family: int) -> socket.socket:
        sock = real(family)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return sock

    async def fill() -> None:
        number = 0
        while not unsent(face, link):
            await face.release(await face.acquire(client.lock(f"{number}:{'x' * 200}")))
            number += 1

    real = sockets.open_socket
    monkeypatch.setattr(sockets, "open_socket", small)
    async with face.nodes(3) as three:
        # (the first renewals would be after 20 s: nothing else reminds the driver of what waited for the socket)
        client = await face.connected(three, ttl=60, max_ttl=60, node_timeout=20)
        await three.freeze(2)
        held = [await face.acquire(client.lock(f"full{number}")) for number in range(10)]
        link = link_of(face, client, 2)
        await fill()
        await three.thaw(2)
        await face.until(lambda: all(it.votes == 3 for it in held))
        await face.until(lambda: not unsent(face, link) and not engine_of(face, client).owing)
        assert three.holders(held[0].name) == [held[0].token] * 3
        assert link_of(face, client, 2) is link, "one connection"
        assert sum(not it.startswith("{") for it in three.ask(2, "KEYS", "*")) == 10
        await three.freeze(2)
        await fill()
        await face.close(client)
        assert not any(it.held for it in held)
        await face.until(lambda: link.sock is None or link.sock.fileno() == -1)
