"""Nodes without servers: simulated ones, in real time, in a thread of this process.

Knows Unix sockets, an event loop in a thread, and simulated nodes. Must not know clients: these are
the shipped ones, and cannot tell the difference.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Self, TypeVar

from .. import checks
from ..checks import Seconds
from ..errors import ConfigError, Misuse
from ..folders import private
from .network import MATURE, Node, SimulatedConnection
from .server import Lua
from .world import DriftingClock, World

# Seconds for which the nodes have been up when they begin: longer than any restart guard.
OLD = 1e8
# Seconds for which a call that steers nodes waits for them.
PATIENCE = 30.0

T = TypeVar("T")


def memory(nodes: int = 3) -> MemoryNodes:
    """Start simulated nodes in this process, for unit tests.

    No server has to be installed, and starting takes some milliseconds.

    The clients that use them are the ones that ship, for threads and for asyncio, and the nodes run
    holdfast's own Lua scripts. What you see is what locks, queues, fences, expiries and restarts
    do, in real time:

        with memory() as nodes, Holdfast(*nodes.urls) as locks:
            with locks.lock("invoice:42"):
                ...

    What it does not show:

    - How servers behave. The nodes know the commands that holdfast sends, and no others. There is
      no persistence, replication, TLS, ACL or limit of memory. Use `holdfast.embedded.Nodes` or
      `Holdfast.local()` for real servers.
    - What networks do. The nodes listen on Unix sockets, in a directory that no other user can
      enter.
    - How fast it is. The nodes share this process's interpreter with your code, and their thread
      stops with it.
    - Clocks that differ. All nodes read this machine's.

    To control time and chance, use `holdfast.testing.simulation`.

    Args:
        nodes: How many nodes, at least 1.

    Returns:
        The nodes. Close them, or use them as a context manager. They can be killed, restarted and
        frozen like `holdfast.embedded.Nodes`.

    Raises:
        ConfigError: `nodes` is no such number, or the extra `testing` is not installed.
    """
    return MemoryNodes(nodes)


class MemoryNodes:
    """Simulated nodes in a thread of this process, as `memory` starts them.

    Nodes are counted from 0. Other processes can use them for as long as this one lives. Only the
    process that started them may steer them.

    Args:
        count: How many nodes, at least 1 (default 3).

    Raises:
        ConfigError: `count` is no such number, or the extra `testing` is not installed.

    Attributes:
        urls: The nodes' addresses in order.
    """

    urls: tuple[str, ...]

    def __init__(self, count: int = 3) -> None:
        if type(count) is not int or count < 1:
            raise ConfigError(
                f"{checks.shown(count)} nodes cannot be started: ask for at least one (five outlive the loss of two)"
            )
        # Which says what to install, before anything is made.
        lua = Lua()
        folder = private(f"{count}")
        self._owner = os.getpid()
        self._house = _NodesThread(count, folder, lua)
        self.urls = tuple(f"unix://{folder / str(node)}" for node in range(count))
        self._finalizer = weakref.finalize(self, _clean_up, self._owner, self._house, folder)
        threading.Thread(target=self._house.serve, name="holdfast-memory", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.urls)

    def close(self) -> None:
        """End the nodes and remove their directory. Idempotent.

        In a forked child, this has no effect.
        """
        self._finalizer()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which `Holdfast()` uses these nodes.

        Pass them to `monkeypatch.setenv` or to a child process.
        """
        return {"HOLDFAST_NODES": " ".join(self.urls)}

    @property
    def run_ids(self) -> frozenset[str]:
        """The run ids of the nodes now."""
        return frozenset(self._told(lambda: [node.server.run_id.decode() for node in self._house.nodes]))

    def kill(self, node: int) -> None:
        """Kill a node: its connections break, and new ones are closed at once. Idempotent.

        Args:
            node: The node, counted from 0.

        Raises:
            IndexError: There is no such node.
            Misuse: The nodes were closed.
            Misuse: Another process started the nodes (`wrong_process`).
        """
        self._steer(node, lambda it: it.stop() if it.running else None)

    def restart(self, node: int) -> None:
        """Start a node again, empty, and kill it first if it runs.

        Clients ignore it until their restart guard is over.

        Args:
            node: The node, counted from 0.

        Raises:
            IndexError: There is no such node.
            Misuse: The nodes were closed.
            Misuse: Another process started the nodes (`wrong_process`).
        """
        self._steer(node, lambda it: it.restart() if it.running else it.start())

    def freeze(self, node: int) -> None:
        """Stop a node, as SIGSTOP does: its connections stay open, and it does not answer.

        Args:
            node: The node, counted from 0.

        Raises:
            IndexError: There is no such node.
            Misuse: The node is dead, or the nodes were closed.
            Misuse: Another process started the nodes (`wrong_process`).
        """
        self._steer(node, lambda it: it.freeze(inf), alive=True)

    def thaw(self, node: int) -> None:
        """Let a frozen node go on, with everything that it was sent meanwhile.

        Args:
            node: The node, counted from 0.

        Raises:
            IndexError: There is no such node.
            Misuse: The node is dead, or the nodes were closed.
            Misuse: Another process started the nodes (`wrong_process`).
        """
        self._steer(node, lambda it: it.thaw(now=True), alive=True)

    def slow(self, node: int, seconds: Seconds) -> None:
        """Delay every message to and from a node from now on.

        Args:
            node: The node, counted from 0.
            seconds: Seconds of delay for each message. 0 ends the delay.

        Raises:
            ConfigError: `seconds` is no such time.
            IndexError: There is no such node.
            Misuse: The nodes were closed.
            Misuse: Another process started the nodes (`wrong_process`).
        """
        lag = checks.seconds(seconds, "seconds")

        def lags(it: Node) -> None:
            it.lag = lag

        self._steer(node, lags)

    def _steer(self, node: int, what: Callable[[Node], object], alive: bool = False) -> None:
        def steer() -> None:
            it = self._house.nodes[node]
            if alive and not it.running:
                raise Misuse(f"{it} is dead: restart it first")
            what(it)

        self._told(steer)

    def _told(self, what: Callable[[], T]) -> T:
        """Call a function in the nodes' thread, and return its result."""
        if os.getpid() != self._owner:
            told = f"process {self._owner} started these nodes, and only that process may steer them"
            raise Misuse(told, "wrong_process")
        if not self._finalizer.alive:
            raise Misuse("these nodes were closed")
        return self._house.told(what).result(PATIENCE)


class _NodesThread:
    """All nodes, and the event loop of their thread."""

    def __init__(self, count: int, folder: Path, lua: Lua) -> None:
        self.world = _Now(secrets.randbits(32), records=False)
        self.nodes = [_Node(self.world, index, DriftingClock(self.world, time.time()), lua) for index in range(count)]
        self.ends: set[_End] = set()
        self._loop = asyncio.SelectorEventLoop()
        self._epoch = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._over, self._ended = asyncio.Event(), threading.Event()
        self._listeners = [_listening(folder / str(node.index)) for node in self.nodes]

    def serve(self) -> None:
        """Serve the nodes until `end` is called."""
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()
            self._ended.set()

    async def _serve(self) -> None:
        servers = [
            await self._loop.create_unix_server(partial(_End, self, node), sock=it)
            for node, it in zip(self.nodes, self._listeners, strict=True)
        ]
        # They may have been told to end before they have begun.
        await self._over.wait()
        for server in servers:
            server.close()
        for end in self.ends:
            end.transport.abort()
        # What was to be done by then is.
        await asyncio.sleep(0)

    def turn(self, do: Callable[..., object] = int, *arguments: object) -> None:
        """Do something at this moment, and what the nodes have to do by now."""
        if self._timer is not None:
            self._timer.cancel()
        self.world.run(self._loop.time() - self._epoch)
        do(*arguments)
        self.world.run(self._loop.time() - self._epoch)
        due = self.world.due()
        self._timer = None if due is None else self._loop.call_at(self._epoch + due, self.turn)

    def told(self, what: Callable[[], T]) -> Future[T]:
        """Have the nodes' thread call a function."""
        told: Future[T] = Future()

        def tell() -> None:
            try:
                told.set_result(what())
            except BaseException as error:
                told.set_exception(error)

        self._loop.call_soon_threadsafe(self.turn, tell)
        return told

    def end(self) -> None:
        """End the thread, and wait for that."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._ended.wait(PATIENCE)


def _listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(512)
    return listener


class _Now(World):
    """A world whose time is the real one, and in which messages need none."""

    def delay(self) -> float:
        return 0.0

    def due(self) -> float | None:
        """Return when the next event is due. None if there is none."""
        return self._events[0][0] if self._events and self._events[0][0] < inf else None


class _Node(Node):
    """A node with a run id of its own, whatever else this process has started."""

    def _begin(self, uptime: float, data: Any = None) -> None:
        super()._begin(OLD if uptime == MATURE else uptime, data)
        self.server.run_id = secrets.token_hex(20).encode()


class _End(asyncio.Protocol):
    """A client's end of a connection, as the node sees it."""

    transport: asyncio.Transport

    def __init__(self, house: _NodesThread, node: Node) -> None:
        self._house, self._node = house, node
        # What came before the node took the connection.
        self._early = b""
        self._open = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # (as asyncio calls it)
        self.transport = transport
        self._house.ends.add(self)
        self._house.turn(self._dial)

    def _dial(self) -> None:
        self.link = SimulatedConnection(self._house.world, self, self._node)

    def data_received(self, data: bytes) -> None:
        self._house.turn(self._take, data)

    def _take(self, data: bytes) -> None:
        if self._open:
            self.link.send(data)
        else:
            self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        self._house.ends.discard(self)
        self._house.turn(self.link.hang_up)

    # ------------------------------------------------ what the node says

    def connected(self, link: SimulatedConnection) -> None:
        self._open = True
        if self._early:
            link.send(self._early)

    def heard(self, link: SimulatedConnection, data: bytes) -> None:
        self.transport.write(data)

    def lost(self, link: SimulatedConnection, cause: Exception) -> None:
        self.transport.abort()


def _clean_up(owner: int, house: _NodesThread, folder: Path) -> None:
    # In a forked child they are the parent's.
    if os.getpid() == owner:
        house.end()
        shutil.rmtree(folder, ignore_errors=True)
