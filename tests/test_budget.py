"""What a pair costs, in things that can be counted and do not depend on the machine: these numbers may fall, and must not rise.

The asyncio driver speaks to simulated servers through transports without sockets, on a clock of their own, so that nothing is left
to chance: its calls (of functions of holdfast's own), its writes, futures, tasks and timers, and the commands that reach a node. Of the
driver for threads the caller's side is counted.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from scripts.dialects import VALKEY_9

import holdfast
from holdfast.aio import Holdfast as AsyncHoldfast
from holdfast.clock import Sources
from holdfast.drivers.aio.sockets import Link, Sockets
from holdfast.face.owner import INSIDE
from holdfast.testing.server import Server
from holdfast.wire.address import Address

pytestmark = pytest.mark.slow

SOURCE = str(Path(holdfast.__file__).parent)
SIMULATOR = str(Path(holdfast.__file__).parent / "testing")  # the nodes' work is not the client's
NODES, PAIRS = 5, 50

CALLS = 237  # of our own functions, for a pair on five nodes with asyncio, confirmed
CALLS_OF_MANY = 136  # the same with 100 tasks
WRITES_OF_MANY = 4  # a node, for 100 pairs: what the first task says leaves at once, what several say in a turn leaves together
CALLER = {1: 96, 5: 127}  # in a thread that acquires and releases, on so many nodes: of its own, and the I/O thread has nothing to do


class Counts:
    """What was counted."""

    def __init__(self) -> None:
        self.calls = self.writes = self.futures = self.tasks = self.timers = 0


@contextmanager
def counted(counts: Counts) -> Iterator[None]:
    """Count the calls of holdfast's own functions in this thread."""

    def look(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(SOURCE) and not file.startswith(SIMULATOR):
            counts.calls += 1

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)


class Pipe(asyncio.Transport):
    """To a simulated server and back, each way in a later turn of the loop."""

    def __init__(self, link: Link, server: Server, counts: Counts) -> None:
        super().__init__()
        self._link, self._counts, self._loop = link, counts, asyncio.get_running_loop()
        self._connection = server.connect(lambda data: self._loop.call_soon(self._deliver, data) and None)

    def write(self, data: Any) -> None:
        self._counts.writes += 1
        self._loop.call_soon(self._connection.feed, bytes(data))

    def _deliver(self, data: bytes) -> None:
        self._link.get_buffer(-1)[: len(data)] = data
        self._link.buffer_updated(len(data))

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        pass


class Bench:
    """Five simulated nodes and a client."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts = Counts()
        # An earlier test of this process may still be inside of a lock. That costs some calls more.
        INSIDE.set(None)
        # For loop, client and servers, time passes only when it is read. So no timer goes off while the test counts, however late the
        # machine is.
        loop: Any = asyncio.get_running_loop()
        readings = itertools.count()
        loop.time = lambda: 1e-6 * next(readings)
        loop.holdfast_sources = Sources(loop.time, loop.time, os.urandom)
        self.servers = [Server(loop.time, f"{i:040x}", dialect=VALKEY_9) for i in range(NODES)]

        async def found(sockets: Sockets, node: int) -> tuple[list[Any], Address, float]:
            return [], sockets._driver.settings.addresses[node], 0.0

        async def connected(sockets: Sockets, node: int, places: object, address: object) -> Link:
            link = Link(sockets._driver, node, None)
            link.connection_made(Pipe(link, self.servers[node], self.counts))
            return link

        monkeypatch.setattr(Sockets, "_found", found)
        monkeypatch.setattr(Sockets, "_connected", connected)
        self.locks = AsyncHoldfast(*[f"redis://node{i}:1" for i in range(NODES)], restart_guard=None)

    async def pair(self, name: str = "n", confirm: bool = True) -> None:
        lease = await self.locks.lock(name).acquire()
        await lease.release(confirm=confirm)

    async def measure(self, work: Callable[[], Awaitable[object]], monkeypatch: pytest.MonkeyPatch) -> Counts:
        """What the work costs, when everything is warm."""
        await self.locks.ready()
        await self.pair()
        loop, counts = asyncio.get_running_loop(), self.counts
        counts.__init__()  # type: ignore[misc]  # (start over)
        for server in self.servers:
            server.calls.clear()
        for name, kind in (("create_future", "futures"), ("create_task", "tasks"), ("call_at", "timers"), ("call_later", "timers")):
            monkeypatch.setattr(loop, name, self._watched(getattr(loop, name), kind))
        with counted(counts):
            await work()
        monkeypatch.undo()
        return copy.copy(counts)

    def _watched(self, function: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            setattr(self.counts, kind, getattr(self.counts, kind) + 1)
            return function(*arguments, **options)

        return watched

    @property
    def commands(self) -> list[int]:
        """Of locks, that have reached each node."""
        return [it.calls.get(b"EVALSHA", 0) for it in self.servers]


async def pairs(bench: Bench) -> None:
    for _ in range(PAIRS):
        await bench.pair()


async def crowd(bench: Bench) -> None:
    await asyncio.gather(*[bench.pair(f"n{i}") for i in range(100)])


async def queue(bench: Bench) -> None:
    await asyncio.gather(*[bench.pair() for _ in range(20)])


async def test_a_pair_costs_so_many_calls_two_writes_a_node_and_one_future_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    cost = await bench.measure(lambda: pairs(bench), monkeypatch)
    assert cost.calls <= CALLS * PAIRS
    assert cost.writes == 2 * NODES * PAIRS
    assert cost.futures <= 2 * PAIRS
    assert (cost.tasks, cost.timers) == (0, 0)
    assert bench.commands == [2 * PAIRS] * NODES
    await bench.locks.close()


async def test_what_one_task_says_leaves_in_its_own_call(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    await bench.measure(lambda: crowd(bench), monkeypatch)
    await bench.pair()
    lease = await bench.locks.lock("n").acquire()
    bench.counts.writes = 0
    # It does not even let the loop turn.
    with pytest.raises(StopIteration):
        lease.release().send(None)
    assert bench.counts.writes == NODES
    acquiring = bench.locks.lock("n").acquire()
    acquiring.send(None)
    assert bench.counts.writes == 2 * NODES
    acquiring.close()
    await bench.locks.close()


async def test_a_release_in_a_crowd_returns_when_its_bytes_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    await bench.locks.ready()
    leases = [await bench.locks.lock(f"n{i}").acquire() for i in range(10)]
    connections = bench.locks._driver().engine.connections

    async def left(lease: Any) -> bool:
        await lease.release()
        return not any(it.out for it in connections)

    assert await asyncio.gather(*map(left, leases)) == [True] * 10
    await bench.locks.close()


async def test_a_hundred_tasks_share_their_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    cost = await bench.measure(lambda: crowd(bench), monkeypatch)
    assert cost.calls <= CALLS_OF_MANY * 100
    assert cost.writes <= WRITES_OF_MANY * NODES
    assert cost.futures <= 2 * 100 + 1  # and gather's own
    assert (cost.tasks, cost.timers) == (100, 0)  # gather's
    assert bench.commands == [200] * NODES
    await bench.locks.close()


async def test_waiting_sends_nothing_and_each_acquisition_costs_two_commands_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    await bench.measure(lambda: queue(bench), monkeypatch)
    assert bench.commands == [2 * 20] * NODES
    await bench.locks.close()


# What other tests have loaded into this process would be counted, too.
ALONE = """
import sys
from test_budget import Counts, counted

from holdfast import Holdfast
from holdfast.embedded import Nodes

with Nodes(int(sys.argv[1])) as nodes, Holdfast(*nodes.urls) as locks:
    locks.ready()
    lock, costs = locks.lock("budget"), []
    for _ in range(200):
        counts = Counts()
        with counted(counts):
            lock.acquire().release()
        costs.append(counts.calls)
print(min(costs))
"""


@pytest.mark.parametrize("size", CALLER)
def test_a_thread_acquires_and_releases_by_itself(size: int) -> None:
    """Of many times the one with the fewest calls: where the nodes take longer than usual, the I/O thread helps."""
    program = [sys.executable, "-c", ALONE, str(size)]
    tests = str(Path(__file__).parent)
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": tests}, check=True)
    assert int(done.stdout) <= CALLER[size]
