"""A test bench for the drivers: their shipped source, on a clock and sockets that a test moves.

Knows what both drivers ask of the world: the time, and connections. Must not know threads or event
loops (`on_threads.py`, `on_asyncio.py`), nor what a lock is.

The simulator has a driver of its own, so it proves nothing about when these two look at the clock.
Here nothing happens by itself. A test says when time passes, when a node's answers arrive, and when
the driver has a turn. Two hooks put time where only a busy machine would put it: between looking
which sockets can be read and the turn that reads them, and just before bytes are read.
"""

from __future__ import annotations

import atexit
import errno
import os
import socket
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from engine.world import INBOX, START, WALL, InStep, Node, bulk

import holdfast.drivers
from holdfast import node as named
from holdfast.clock import Sources
from holdfast.drivers import sockets
from holdfast.drivers.access import Access, accesses
from holdfast.engine.settings import DEFAULT_GUARD, Settings, settings
from holdfast.protocol.exclusive import Exclusive

TTL = 9.0
FIRST_PORT = 7001
_RESET = struct.pack("ii", 1, 0)  # linger for 0 s: what closing such a socket sends is a reset


PARTS = {
    # The modules that each driver consists of. A module imports only from those before it.
    "aio": ("aio.callbacks", "aio.sockets", "aio.driver"),
    "threads": ("threads.call", "threads.sockets", "threads.direct", "threads.io_thread", "threads.driver"),
}


def loaded(driver: str) -> list[ModuleType]:
    """Copy a driver's modules, from its shipped source.

    Other tests' clients in this process go on to use the original modules, and need the real clock.

    Args:
        driver: "aio" or "threads".

    Returns:
        The copies. The class `Driver` is in the last one.
    """
    folder = Path(holdfast.drivers.__path__[0])
    sources = {part: (folder / f"{part.replace('.', '/')}.py").read_text() for part in PARTS[driver]}
    copies: dict[str, ModuleType] = {}
    # What the copies would have done at a fork, or at the end of the process, the originals do.
    with (
        mock.patch.dict(sys.modules),
        mock.patch.object(atexit, "register"),
        mock.patch.object(os, "register_at_fork"),
    ):
        for part, source in sources.items():
            name = f"holdfast.drivers.{part}"
            module = ModuleType(name)
            module.__package__ = name.rpartition(".")[0]
            module.__file__ = str(folder / f"{part.replace('.', '/')}.py")
            # A copy that imports another part of the driver gets the copy of it.
            sys.modules[name] = module
            exec(compile(source, module.__file__, "exec"), vars(module))
            copies[part] = module
    return list(copies.values())


class Time:
    """The clock that leases are measured on. It stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now

    def wall(self) -> float:
        """The wall clock."""
        return self.now - START + WALL


class Socket:
    """One connection to a node, as the client has it."""

    family = socket.AF_INET
    _numbers = iter(range(1_000_000, 2_000_000))

    def __init__(self, bench: Bench) -> None:
        self._bench, self._number = bench, next(self._numbers)
        self.node = -1
        self.unread = bytearray()  # has arrived, and can be read
        self.closed = False
        self._resets = False

    def fileno(self) -> int:
        return -1 if self.closed else self._number

    def connect(self, where: tuple[str, int]) -> None:
        self.node_set(where)
        raise BlockingIOError

    def node_set(self, where: tuple[str, int]) -> None:
        """The node has taken the connection."""
        self.node = where[1] - FIRST_PORT
        self._bench.nodes[self.node].begins()
        self._bench.wires[self.node] = self

    def setsockopt(self, level: int, option: int, value: object) -> None:
        self._resets |= (level, option, value) == (socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def getsockopt(self, level: int, option: int) -> int:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_ERROR)
        return 0

    def send(self, data: bytes) -> int:
        self._bench.sent(self, bytes(data))
        return len(data)

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        if not self.unread:
            raise BlockingIOError
        self._bench.reads()
        size = min(len(buffer), len(self.unread))
        buffer[:size] = self.unread[:size]
        del self.unread[:size]
        return size

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._bench.ends.append((self.node, "reset" if self._resets else "finished"))
            if self.node >= 0:
                self._bench.nodes[self.node].linked = False


class Lease:
    """What a face would give to its user. `fell`: how often it was told that it is lost."""

    # Of threads.
    _pending: Any
    # Of asyncio.
    _want: Any

    def __init__(self) -> None:
        self.fell = 0

    @property
    def _lease(self) -> Lease:
        return self

    def _told_lost(self) -> None:
        self.fell += 1


class Silent:
    """Nobody listens to events."""

    observers = ()

    def __call__(self, event: object) -> None:
        pass

    log = __call__

    def logs(self, event: object) -> bool:
        return False


class Call:
    """A call of the driver that waits, by a thread or a task of its own."""

    def __init__(self) -> None:
        self.done = False
        self.error: BaseException | None = None

    def result(self) -> None:
        """It is over, and has raised nothing."""
        assert self.done, "it still waits"
        if self.error is not None:
            raise self.error


class Taken(Call):
    """A call that acquires. `until`: the end of its lease, `at`: the time, both when it returned."""

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self.lease = lease
        self.at, self.until = inf, -inf


class Bench(ABC):
    """A driver, its nodes, and the time. Its nodes answer at once, save those that are told to be silent."""

    driver: Any
    # Says where nodes are. None: they are where their addresses say.
    resolve: Callable[[str], tuple[str, int]] | None = None

    def __init__(self, nodes: int = 3) -> None:
        self.time = Time()
        self.nodes = [Node(number) for number in range(nodes)]
        self.wires: list[Socket | None] = [None] * nodes
        self.silent: set[int] = set()  # nodes whose answers stay under way
        self.ends: list[tuple[int, str]] = []  # connections that were closed: to which node, and how
        self.descriptors = True  # are there any left for another connection?
        # Hooks, which are called once: when the driver has looked what can be read, and before it reads bytes.
        self.after_looking: Callable[[], object] | None = None
        self.before_reading: Callable[[], object] | None = None
        self._kept: dict[int, bytearray] = {number: bytearray() for number in range(nodes)}

    # ------------------------------------------------ what a test does

    def connect(self) -> Bench:
        """Have the driver connected to every node."""
        # Its claims have no places of their own: they ask every ttl/3 exactly.
        self.engine.tickets = InStep(self.engine.tickets.inbox)
        call = self.ready()
        self.settle()
        self.over(call)
        self.settle()
        assert all(it.state == "up" for it in self.driver.status())
        return self

    def acquired(self, name: str = "a") -> Taken:
        """A lease that is held."""
        call = self.acquire(name)
        self.settle()
        call.result()
        return call

    def settle(self) -> None:
        """Turns at this moment, until nothing is left to do."""
        for _ in range(12):
            self.callers()
            self.turn()
        self.callers()

    def over(self, call: Call) -> None:
        """Time passes until a call is over, which raises nothing."""
        for _ in range(100):
            if call.done:
                break
            self.time.now += 0.05
            self.settle()
        call.result()

    def passes(self, seconds: float) -> None:
        """Time passes on an idle machine."""
        end = self.time.now + seconds
        while self.time.now < end:
            self.time.now = min(self.time.now + 0.05, end)
            self.settle()

    def arrives(self, *numbers: int) -> None:
        """What these nodes have answered arrives, and can be read."""
        for number in numbers:
            self.silent.discard(number)
            wire = self.wires[number]
            assert wire is not None
            wire.unread += self._kept[number]
            self._kept[number].clear()

    def says(self, number: int, *messages: bytes) -> None:
        """A node says something of its own accord, which can be read at once."""
        wire = self.wires[number]
        assert wire is not None
        wire.unread += b"".join(messages)

    def tells(self, kind: bytes, token: bytes, name: bytes = b"a") -> bytes:
        """A message to the client, as the nodes' scripts send it."""
        message = b"%b %b %016d %b" % (kind, token, 1, name)
        return b">3\r\n$7\r\nmessage\r\n" + bulk(self.inbox) + bulk(message)

    @property
    def inbox(self) -> bytes:
        """Where nodes write to this client."""
        inbox: bytes = self.engine.tickets.inbox
        return inbox

    # ------------------------------------------------ what a driver does

    @property
    @abstractmethod
    def engine(self) -> Any:
        """The engine."""

    @abstractmethod
    def turn(self) -> None:
        """The driver has one turn: it reads what can be read, and does what is due."""

    @abstractmethod
    def callers(self) -> None:
        """Whoever waits for the driver, and need not wait any longer, goes on."""

    @abstractmethod
    def acquire(self, name: str = "a") -> Taken:
        """Ask for a lock, for as long as it takes."""

    @abstractmethod
    def _call(self, call: Call, function: Callable[[], Any]) -> Call:
        """Have a thread or a task of its own call the driver."""

    def ready(self) -> Call:
        """`driver.ready()`"""
        return self._call(Call(), lambda: self.driver.ready(5.0))

    def close(self) -> None:
        """End the driver, and whatever it has begun."""
        self.after_looking = self.before_reading = None
        self.silent.clear()
        self.over(self._call(Call(), self.driver.close))

    # ------------------------------------------------ for the world

    def settings(self) -> Settings:
        """A client's settings: a renewal every 3 seconds, and a second for a node to answer."""
        usual: dict[str, Any] = {"max_ttl": 30.0, "node_timeout": None, "restart_guard": DEFAULT_GUARD, "outage": None}
        if self.resolve is not None:
            # (The nodes here keep no notes.)
            usual["restart_guard"] = None
        return settings([it.address for it in self.ways()], ttl=TTL, owner="me", prefix="", **usual)

    def ways(self) -> tuple[Access, ...]:
        """The ways in at the nodes."""
        urls = [f"redis://127.0.0.1:{FIRST_PORT + it.number}" for it in self.nodes]
        return accesses([named.Node(it, resolve=self.resolve) for it in urls], None, None)

    def made(self, modules: Sequence[ModuleType]) -> Any:
        """A driver of these modules, in this world."""
        ours = {"open_socket": self.open_socket, "unread": lambda sock: len(sock.unread)}
        for module in modules:
            if "sockets" in vars(module):
                vars(module)["sockets"] = SimpleNamespace(**{**vars(sockets), **ours})
        given = self.settings()
        return modules[-1].Driver(given, self.ways(), Silent(), **self.given())

    def open_socket(self, family: int) -> Socket:
        """Open a socket, if the process may have one more."""
        if not self.descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return Socket(self)

    @property
    def sources(self) -> Sources:
        """Where the driver gets its time."""
        return Sources(self.time, self.time.wall, os.urandom)

    def given(self) -> dict[str, Any]:
        """What the driver is made with, besides."""
        return {}

    def recipes(self, name: str) -> list[Exclusive]:
        """What a lock of this name is asked for with."""
        return [Exclusive(name, ttl=TTL, horizon=self.settings().horizon)]

    def sent(self, wire: Socket, data: bytes) -> None:
        """The driver has sent this."""
        assert not wire.closed, "it writes to a closed connection"
        answers = self.nodes[wire.node].reads(data, self.time())
        (self._kept[wire.node] if wire.node in self.silent else wire.unread).extend(answers)

    def reads(self) -> None:
        """The driver is about to read."""
        hook, self.before_reading = self.before_reading, None
        if hook is not None:
            hook()

    def looked(self) -> None:
        """The driver has looked what can be read."""
        hook, self.after_looking = self.after_looking, None
        if hook is not None:
            hook()


@contextmanager
def closing(bench: Bench) -> Iterator[Bench]:
    """A bench that is connected, and ended afterwards."""
    try:
        yield bench.connect()
    finally:
        bench.close()


__all__ = ["INBOX", "TTL", "Bench", "Call", "Lease", "Socket", "Taken", "closing", "loaded"]
