"""Nodes without servers: simulated ones, in real time, in a thread of this process.

Knows Unix sockets, a thread, and simulated nodes. Must not know clients: these are the shipped
ones, and cannot tell the difference.
"""

from __future__ import annotations

import os
import secrets
import selectors
import shutil
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
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

CHUNK = 65536
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
    """All nodes, and everything that their thread owns."""

    def __init__(self, count: int, folder: Path, lua: Lua) -> None:
        self._epoch = time.monotonic()
        self.world = _Now(secrets.randbits(32), records=False)
        self.nodes = [_Node(self.world, index, DriftingClock(self.world, time.time()), lua) for index in range(count)]
        self._asked: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._over = False
        self._ended = threading.Event()
        self._bell, self._clapper = os.pipe()
        for end in (self._bell, self._clapper):
            os.set_blocking(end, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._bell, selectors.EVENT_READ, self._woken)
        self._listeners = [self._listen(folder / str(node.index), node) for node in self.nodes]
        self._ends: set[_End] = set()

    def _listen(self, path: Path, node: Node) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(512)
        listener.setblocking(False)

        def accept() -> None:
            try:
                sock, _ = listener.accept()
            except OSError:
                # The client has gone already.
                return
            sock.setblocking(False)
            self._ends.add(_End(self, sock, node))

        self._selector.register(listener, selectors.EVENT_READ, accept)
        return listener

    def serve(self) -> None:
        """Serve the nodes until `end` is called."""
        try:
            while not self._over:
                self._pass_time()
                for key, _ in self._selector.select(self._pause()):
                    key.data()
                    self._pass_time()
        finally:
            self._shut()

    def _pause(self) -> float:
        due = self.world.due()
        return 3600.0 if due is None else max(0.0, min(due - (time.monotonic() - self._epoch), 3600.0))

    def _pass_time(self) -> None:
        self.world.run(time.monotonic() - self._epoch)

    def told(self, what: Callable[[], T]) -> Future[T]:
        """Have the nodes' thread call a function."""
        told: Future[T] = Future()
        self._asked.append((what, told))
        self._ring()
        return told

    def _ring(self) -> None:
        try:
            os.write(self._clapper, b"!")
        except OSError:
            # The pipe is full of rings, or is just being closed.
            pass

    def _woken(self) -> None:
        os.read(self._bell, CHUNK)
        while self._asked:
            what, told = self._asked.popleft()
            try:
                told.set_result(what())
            except BaseException as error:
                told.set_exception(error)

    def end(self) -> None:
        """End the thread, and wait for that."""
        self._over = True
        self._ring()
        self._ended.wait(PATIENCE)

    def _shut(self) -> None:
        for end in list(self._ends):
            end.close()
        for listener in self._listeners:
            listener.close()
        self._selector.close()
        os.close(self._bell)
        os.close(self._clapper)
        for _, told in self._asked:
            told.set_exception(Misuse("these nodes were closed"))
        self._ended.set()

    def watch(self, end: _End, also_writes: bool, new: bool = False) -> None:
        """Wait until this socket can be read, and with `also_writes` until it can be written."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if also_writes else 0)
        (self._selector.register if new else self._selector.modify)(end.sock, events, end.happened)

    def forget(self, end: _End) -> None:
        """Stop watching a socket that is about to be closed."""
        self._selector.unregister(end.sock)
        self._ends.discard(end)


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


class _End:
    """A client's end of a connection, as the node sees it: a socket."""

    def __init__(self, house: _NodesThread, sock: socket.socket, node: Node) -> None:
        self._house = house
        self.sock = sock
        self._node = node
        # What came before the node took the connection.
        self._early = b""
        # What the client has not taken yet.
        self._rest = b""
        self._open = self._closed = False
        house.watch(self, False, new=True)
        self.link = SimulatedConnection(house.world, self, node)

    def happened(self) -> None:
        """Read from the socket, and write to it: it is ready for one of them."""
        if self._closed:
            return
        if self._rest:
            self._send(b"")
        try:
            data = self.sock.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.link.hang_up()
            self.close()
        elif self._open:
            self.link.send(data)
        else:
            self._early += data

    # ------------------------------------------------ what the node says

    def connected(self, link: SimulatedConnection) -> None:
        self._open = True
        if self._early:
            link.send(self._early)

    def heard(self, link: SimulatedConnection, data: bytes) -> None:
        if not self._closed:
            self._send(data)

    def lost(self, link: SimulatedConnection, cause: Exception) -> None:
        self.close()

    def _send(self, data: bytes) -> None:
        waits = bool(self._rest)
        data = self._rest + data
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            # The client has hung up. The next read will show it.
            return
        self._rest = data[sent:]
        if waits is not bool(self._rest):
            self._house.watch(self, bool(self._rest))

    def close(self) -> None:
        """Close the socket. Idempotent."""
        if not self._closed:
            self._closed = True
            self._house.forget(self)
            self.sock.close()


def _clean_up(owner: int, house: _NodesThread, folder: Path) -> None:
    # In a forked child they are the parent's.
    if os.getpid() == owner:
        house.end()
        shutil.rmtree(folder, ignore_errors=True)
