"""One node that does its worst, and what fails at one node only: the engine goes on, and leases on the others survive. For both faces."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face, Threads

from bench.cluster import Open
from holdfast import LeaseState
from holdfast.errors import NoQuorum

TTL = 2  # seconds; a flooded client has FLOODED
FLOODED = 3


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(Open(3)) as cluster:
        yield cluster


class Hostile:
    """The way to a node, which at some moment says something else, in a thread of its own. `says`: that, again and again; `then`: first."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rpartition(":")[2])
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._server.getsockname()[1]}"
        self.first = self.says = b""
        self.sent = 0  # bytes of that
        self.over = False
        self._threads = [threading.Thread(target=self._takes)]
        self._threads[0].start()

    def close(self) -> None:
        self.over = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(15)

    def _takes(self) -> None:
        while not self.over:
            try:
                near = self._server.accept()[0]
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._port))
            for work, one, other in ((self._asks, near, far), (self._answers, far, near)):
                self._threads.append(threading.Thread(target=work, args=(one, other)))
                self._threads[-1].start()

    def _asks(self, near: socket.socket, far: socket.socket) -> None:
        with near, far, contextlib.suppress(OSError):
            near.settimeout(0.1)
            while not self.over:
                with contextlib.suppress(TimeoutError):
                    data = near.recv(65536)
                    if not data:
                        break
                    far.sendall(data)

    def _answers(self, far: socket.socket, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            far.settimeout(0.05)
            while not self.over and near.fileno() >= 0:
                if self.says:
                    near.sendall(self.first)
                while self.says and not self.over:
                    near.sendall(self.says)
                    self.sent += len(self.says)
                with contextlib.suppress(TimeoutError):
                    data = far.recv(65536)
                    if not data:
                        break
                    near.sendall(data)


@pytest.fixture
async def hostile(three: Cluster, face: Face) -> AsyncIterator[Hostile]:
    way = Hostile(three.urls[2])
    yield way
    way.says = b""
    way.over = True
    await face.finish()
    way.close()


async def connected(face: Face, three: Cluster, urls: list[str], **options: Any) -> Any:
    client = face.keep(face.kind(*urls, **{"ttl": TTL, **options}))
    await face.ready(client)
    await face.until(lambda: [it.state for it in client.nodes()] == ["up"] * 3)
    return client


async def outlives(face: Face, client: Any, lease: Any, name: str, seconds: float = 1.5 * TTL) -> None:
    """The lease is renewed for longer than its ttl, and others can be had."""
    for _ in range(int(seconds / 0.5)):
        await face.sleep(0.5)
        assert lease.state is not LeaseState.LOST
        await face.release(await face.acquire(client.lock(f"{name}.other", wait=5)))
    assert lease.held


# ------------------------------------------------ what a node sends

FLOODS = {
    "pushes": (b"", b">2\r\n$7\r\nnothing\r\n_\r\n" * 5000, ""),
    "a string without an end": (b"$33554432\r\n", b"x" * 65536, "sends more than any answer"),
    "a list without an end": (b"*1000000\r\n", b"$65000\r\n" + b"x" * 65000 + b"\r\n", "sends more than any answer"),
    "an error without an end": (b"-ERR ", b"x" * 65536, "sends more than any answer"),
    "a list of 2^31": (b"", b"*2147483647\r\n", "sends more than any answer"),
    "a string of 2^40": (b"", b"$1099511627776\r\n", "sends more than any answer"),
    "what nobody asked for": (b"", b":1\r\n" * 10000, ""),
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_node_that_sends_without_end_takes_no_lease_from_anybody(
    face: Face, three: Cluster, hostile: Hostile, name: str, flood: str
) -> None:
    """Nothing is renewed or judged while a driver only reads; and what it reads has to be put somewhere."""
    client = await connected(face, three, [*three.urls[:2], hostile.url], ttl=FLOODED)
    lease = await face.acquire(client.lock(name))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    causes: list[str] = []
    hostile.first, hostile.says, cause = FLOODS[flood]
    until = face.now() + 1.5 * FLOODED
    while face.now() < until:
        await outlives(face, client, lease, name, 0.5)
        causes.append(str(client.nodes()[2].cause))
    assert hostile.sent > 0
    # On a busy machine the node may count as silent before it has sent more than any answer has. And nobody hears what it
    # says before it was asked: the beginning of what it sends without end.
    assert any(cause in it or "silent for" in it or "does not speak" in it for it in causes), set(causes)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024, "kilobytes"
    hostile.first = hostile.says = b""
    await face.until(lambda: client.nodes()[2].state == "up", 30)
    await face.release(lease)


# ------------------------------------------------ what fails here


class NoDescriptors:
    """This process can open nothing, for as long as the block lasts."""

    def __enter__(self) -> NoDescriptors:
        self._taken: list[int] = []
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = max(int(it) for it in os.listdir("/proc/self/fd")) + 8
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, self._limits[1]))
        self.take()
        return self

    def take(self) -> None:
        """Take all that has become free."""
        with contextlib.suppress(OSError):
            while True:
                self._taken.append(os.open(os.devnull, os.O_RDONLY))

    def __exit__(self, *_: object) -> None:
        for file in self._taken:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="only Linux lists a process's files")
async def test_without_descriptors_leases_survive_and_the_error_names_the_cause(face: Face, three: Cluster, name: str) -> None:
    client = await connected(face, three, three.urls)
    lease = await face.acquire(client.lock(name))
    with NoDescriptors() as none:
        other = face.keep(face.kind(*three.urls, ttl=2, outage=1))
        with pytest.raises(NoQuorum, match="Too many open files"):
            await face.acquire(other.lock(f"{name}.other", wait=3))
        until = face.now() + 15
        while "Too many open files" not in str(client.nodes()[2].cause):  # (the first time, the client takes what it has just closed)
            assert face.now() < until
            cut(face, client)
            none.take()
            await face.sleep(0.002)
        for _ in range(6):
            await face.sleep(0.5)
            assert lease.held
    await face.until(lambda: client.nodes()[2].state == "up", 30)
    await face.release(lease)
    await face.ready(other)  # (which dials again)
    await face.release(await face.acquire(other.lock(f"{name}.other", wait=10)))


def cut(face: Face, client: Any) -> None:
    """Shut the connection to the last node, by its own socket: nobody can open another one."""
    link = client._driver.io_thread.sockets.by_node[2] if isinstance(face, Threads) else client._driver().sockets.links[2]
    with contextlib.suppress(OSError, AttributeError):
        connection = socket.socket(fileno=link.sock.fileno())
        try:
            connection.shutdown(socket.SHUT_RDWR)
        finally:
            connection.detach()
