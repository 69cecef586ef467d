"""What a network between a client and its nodes does: it loses answers, delays requests, swallows connections, leads to another server.

Each node has a proxy in front of it, which is where that happens: at exactly the word that a test names, and not at some moment or other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face
from live.test_promotion import ports, proxies
from nemesis.proxy import UP, Proxy, Way

from holdfast.errors import NoQuorum
from holdfast.wire import connection as connection

TICK = 0.3  # seconds by which a busy machine may be late
REQUEST = b"\r\n$16\r\n"  # stands in every request (the fence that it proposes), and in nothing else


class Breaks(Proxy):
    """The way to one node, which can be lost, blocked, or lead elsewhere.

    `lose_answer_to`: the connection is cut after the node has executed such a command, and before its answer is through; `keep_back`: such
    a command, and everything after it on that connection, is kept until `deliver`; `lost`: how many answers were; `kept`: what is.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.lose_answer_to = self.keep_back = b""
        self.lost, self.kept = 0, list[Way]()
        self.reads = self._read

    def deliver(self) -> int:
        """Let the node have, late, what was kept back; how much that was."""
        kept, self.kept, self.keep_back = self.kept, [], b""
        for way in kept:
            way.free()
        return len(kept)

    def _read(self, way: Way, data: bytes) -> None:
        if way.name == UP and self.keep_back and self.keep_back in data and way not in self.kept:
            way.hold()
            self.kept.append(way)
        elif way.name == UP and self.lose_answer_to and self.lose_answer_to in data:
            way.link.label = "doomed"
        elif way.link.label == "doomed":
            self.lost += 1
            self.lose_answer_to = b""
            way.link.reset()


@pytest.fixture
async def three(face: Face) -> AsyncIterator[Cluster]:
    async with ports(face, 3) as cluster:
        yield cluster


async def connected(face: Face, nodes: Cluster, through: list[Breaks], **options: Any) -> Any:
    """A client that knows only these ways."""
    client = face.keep(face.kind(*[way.url for way in through], **options))
    await face.ready(client)
    return client


# ------------------------------------------------ connections that nobody uses


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("wait", [0, 20])
async def test_an_idle_connection_that_was_cut_in_silence_costs_node_timeout_at_most(
    face: Face, three: Cluster, name: str, count: int, wait: float
) -> None:
    """As a firewall does it that forgets what has been quiet: what is sent is swallowed, and nobody says so.

    Nobody pings before: the request finds it out, and is made again on the next connection. A single try, too.
    """
    async with proxies(face, three, Breaks) as through:
        client = await connected(face, three, through, ttl=10, node_timeout=0.4)
        for way in through[:count]:
            way.keep_back = REQUEST
        pings = three.calls("ping")
        waits = asyncio.create_task(face.acquire(client.lock(name, wait=wait)))
        await face.until(lambda: all(way.kept for way in through[:count]))
        for way in through:
            way.keep_back = b""  # (connections that swallow go on with it; new ones do not)
        if count == 1:
            lease = await waits
            assert lease.waited < 0.4, "a minority costs nothing"
        else:
            lease = await waits
            assert 0.4 <= lease.waited < 2.5, "and not a third of the ttl, which is when a waiter asks again"
        await face.until(lambda: lease.votes == 3)
        assert three.calls("ping") == pings
        await face.release(lease)


async def test_a_single_try_outlives_a_majority_of_quiet_connections_that_were_cut(
    face: Face, three: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was quiet for long says nothing of its node when it is found to be cut: the try is made on the next connections."""
    monkeypatch.setattr(connection, "QUIET", 0.3)  # instead of 30 s
    async with proxies(face, three, Breaks) as through:
        client = await connected(face, three, through, ttl=10, node_timeout=0.4)
        await face.sleep(1.1)  # (a connection that was of use for less than a second is a failure in any case)
        for way in through:
            way.keep_back = REQUEST
        waits = asyncio.create_task(face.acquire(client.lock(name, wait=0)))
        await face.until(lambda: all(way.kept for way in through))
        for way in through:
            way.keep_back = b""
        lease = await waits
        assert 0.4 <= lease.waited < 2.5
        await face.release(lease)


# ------------------------------------------------ answers and requests


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("wait", [0, 10])
async def test_b30_s05_whose_grant_went_missing_does_not_wait_for_himself(
    face: Face, three: Cluster, name: str, count: int, wait: float
) -> None:
    """The node has executed it, and the connection breaks before the answer is through: on one, on a majority, everywhere."""
    async with proxies(face, three, Breaks) as through:
        client = await connected(face, three, through, ttl=20)
        for way in through[:count]:
            way.lose_answer_to = REQUEST
        began = face.now()
        try:
            lease = await face.acquire(client.lock(name, wait=wait))
        except NoQuorum:
            assert wait == 0 and count > 1, "who may wait asks again, and one node is not needed"
        else:
            assert set(three.holders(name)) <= {lease.token, None}, "one token"
            await face.release(lease)
        await face.until(lambda: [way.lost for way in through] == [1] * count + [0] * (3 - count))
        await face.until(lambda: three.holders(name) == [None] * 3)
        assert face.now() - began < 3, "it waited for its own key"
        await face.until(lambda: all(it.state == "up" for it in client.nodes()))
        assert await face.release(await face.acquire(client.lock(name, wait=0)), confirm=True) >= 2


async def test_s06_s07_a_request_that_arrives_after_its_release_lasts_for_one_ttl_at_most(face: Face, three: Cluster, name: str) -> None:
    """Kept back on the way, executed when its claim is over: on another connection than the release, which overtook it."""
    async with proxies(face, three, Breaks) as through:
        client = await connected(face, three, through, ttl=1.5, node_timeout=0.2)
        through[2].keep_back = REQUEST
        lease = await face.acquire(client.lock(name))
        token = lease.token
        await face.until(lambda: client.nodes()[2].state == "down")
        await face.release(lease)
        through[2].keep_back = b""
        await face.until(lambda: client.nodes()[2].state == "up")  # and the release has been said on the new connection
        await face.until(lambda: not any(three.holders(name)))
        assert through[2].deliver() > 0
        delivered = face.now()
        await face.until(lambda: three.ask(2, "GET", name) == token or face.now() > delivered + 0.5)
        assert three.ask(2, "PTTL", name) <= 1500
        other = await face.acquire(client.lock(name, wait=0.5))  # a minority is no obstacle
        await face.until(lambda: three.ask(2, "GET", name) != token, within=1.5 + 2 * TICK)
        assert face.now() - delivered < 1.5 + 2 * TICK, "nobody renews it"
        await face.until(lambda: other.votes == 3)
        await face.release(other)


# ------------------------------------------------ connections


@contextlib.contextmanager
def black_hole() -> Iterator[str]:
    """An address at which nobody answers a connection, not even to refuse it: somebody listens whose line is full."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    fill = []
    try:
        for _ in range(4):
            fill.append(socket.socket())
            fill[-1].setblocking(False)
            fill[-1].connect_ex(listener.getsockname())
        probe = socket.socket()
        fill.append(probe)
        probe.settimeout(0.2)
        with pytest.raises(TimeoutError):  # else this is no black hole
            probe.connect(listener.getsockname())
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for it in (*fill, listener):
            it.close()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="only Linux drops connections silently when a line is full, and lists files")
async def test_s03_a_node_that_swallows_connections_keeps_nobody_waiting(face: Face, three: Cluster, name: str) -> None:
    with black_hole() as nowhere:
        client = face.keep(face.kind(*three.urls[:2], nowhere, node_timeout=0.3))
        before, began = len(os.listdir("/proc/self/fd")), face.now()
        lease = await face.acquire(client.lock(name, wait=5))
        assert face.now() - began < 0.3 + TICK, "as fast as the other two are"
        assert lease.votes == 2
        await face.until(lambda: client.nodes()[2].state == "down")
        most = 0
        for _ in range(40):
            await face.sleep(0.025)
            most = max(most, len(os.listdir("/proc/self/fd")))
        assert most <= before + 8, "dials pile up"  # three connections, a bell, a thread's loop
        assert lease.held
        await face.release(lease)
