"""Your own asyncio code in virtual time, with `holdfast.aio` as it ships, against simulated nodes that fail.

Knows event loops, the asyncio face, and how to put the world's time and network under them. Must not know what your code does.

An hour of sleeping takes no time, the same seed is the same history, and the laws of the lock are watched all the while.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import socket
import time
from collections.abc import Collection, Coroutine, Iterator
from contextlib import contextmanager
from math import inf
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from ..aio import Holdfast
from ..aio import lease as aio_lease
from ..drivers import aio as driver
from ..drivers import turns
from ..face import lease as face_lease
from .faults import Faults, Plan
from .laws import Laws
from .network import WALL, Link, Node
from .timeline import timeline
from .world import Clock, Violation, World

T = TypeVar("T")

HOSTS = "192.0.2.{}"  # addresses that are nobody's, and that no name server is asked about
PORT = 6379
TURN = 1e-6  # seconds that a turn of the loop takes: whoever looks again and again lives to see something
LAST = 40  # lines of a failure's timeline


class Simulation:
    """A world of `nodes` simulated masters, and an event loop in it: `run` your code there.

    `seed`: of all chance in it; `max_ttl`: the longest that your clients use; `only`: the faults of a `storm` that may happen, such as
    "restarts 2": to find out which ones matter. `urls`: the nodes' addresses, for `holdfast.aio.Holdfast`; `nodes`: to be stopped,
    restarted, frozen or cut off at any time (see `network.Node`); `world`: time and what has happened.
    """

    def __init__(self, nodes: int = 3, seed: int = 0, *, max_ttl: float = 30.0, only: Collection[str] | None = None) -> None:
        self.seed, self._guard = seed, max_ttl + 2.0
        self.world = World(seed, only=only)
        self.nodes = tuple(Node(self.world, index, Clock(self.world, WALL)) for index in range(nodes))
        self.urls = tuple(f"redis://{HOSTS.format(node.index + 1)}:{PORT}" for node in self.nodes)
        self.laws = Laws(self.world, self.nodes, self._guard)
        self._seen: dict[driver.Driver, _Client] = {}
        self._faults: Faults | None = None
        self._watched = True

    def client(self, **options: Any) -> Holdfast:
        """A client of these nodes, as a process of its own would have one. `options`: its own."""
        return Holdfast(*self.urls, **options)

    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return self.world.now

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run this to its end, and all that it sets off. Returns what it returns, and raises what it raises.

        Also raises `world.Violation` if a law of the lock is broken, and RuntimeError if everybody waits and nothing is left to happen.
        """
        try:
            with self._patched(), asyncio.Runner(loop_factory=lambda: _Loop(self)) as runner:
                return runner.run(main)
        except BaseException as error:
            error.add_note(f"in the simulated world of seed {self.seed}, at {self.now:.6f} s; what had happened, last:")
            error.add_note("\n".join(timeline(self.world, LAST)))
            raise

    def storm(self, faults: float = 2.0, *, disks: bool = False) -> None:
        """From now on things go wrong, so many times a second, until `calm`: connections break, also half, and what was under way is
        executed late; nodes restart empty, freeze, refuse; their clocks are set. `disks`: nodes that restart may have kept what they had.
        """
        self.calm()
        plan = Plan(name="storm", nodes=len(self.nodes), faults=faults, disks=disks, ttls=(self._guard - 2.0,))
        self.world.slow = plan.slow
        self._faults = Faults(self.world, list(self.nodes), [], self.laws, plan, self._guard, _nobody)

    def calm(self) -> None:
        """From now on nothing is wrong any more. (What is half open stays so: it is for clients to notice.)"""
        if self._faults is not None:
            self._faults.end()

    def timeline(self, last: int | None = None) -> str:
        """What happened, one line an event: the last lines, or all."""
        return "\n".join(timeline(self.world, last))

    # ------------------------------------------------ within

    def look_away(self) -> None:
        """A law is broken: the clients may still end in peace."""
        self._watched = False
        self.world.looks.clear()
        self.world.passes.clear()

    def look(self) -> None:
        """Clients have done something: see whether all is as it must be."""
        if not self._watched:
            return
        for client in list(driver._drivers):
            if isinstance(client.loop, _Loop) and client.loop.simulation is self:
                self._seen.setdefault(client, _Client(self.world))
        for client, shown in self._seen.items():
            for claim in client.crew.live.values():
                if claim not in self.laws.open:
                    self.laws.began(cast(Any, shown), claim)
            self.laws.turned(cast(Any, shown))
        self.laws.look()

    def sends(self, client: driver.Driver, node: Node, data: bytes) -> None:
        """A client is about to send this."""
        if not self._watched:
            return
        self.laws.sends(cast(Any, self._seen.setdefault(client, _Client(self.world))), node, data)

    @contextmanager
    def _patched(self) -> Iterator[None]:
        """Whatever holdfast reads of the real world, it reads of this one."""

        def now() -> float:
            return self.world.now

        dice = self.world.chance.dice("clients")
        instead = [
            (driver, "clock", now),
            (turns, "clock", now),
            (face_lease, "clock", now),
            (aio_lease, "clock", now),
            (driver, "os", SimpleNamespace(**{**vars(os), "urandom": dice.randbytes})),
            (driver, "time", SimpleNamespace(**{**vars(time), "time": lambda: WALL + self.world.now})),
        ]
        before = [(module, name, getattr(module, name)) for module, name, _ in instead]
        for module, name, value in instead:
            setattr(module, name, value)
        try:
            yield
        finally:
            for module, name, value in before:
                setattr(module, name, value)


class _Client:
    """What the laws see of a client: its clock; and that its process runs."""

    dead = stopped = False

    def __init__(self, world: World) -> None:
        self.clock = Clock(world, 0.0)


class _Selector(selectors.SelectSelector):
    """Where a loop waits: there the world goes on."""

    loop: _Loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        world, ready = self.loop.simulation.world, self.loop._ready  # type: ignore[attr-defined]  # (what asyncio itself looks at before it waits)
        try:
            self.loop.simulation.look()
            world.run(world.now + TURN)
            self._wait(world, ready, timeout)
        except Violation:
            self.loop.simulation.look_away()
            raise
        return []

    def _wait(self, world: World, ready: Collection[object], timeout: float | None) -> None:
        if timeout is None or timeout > 0:
            world.run(inf if timeout is None else world.now + timeout, lambda: bool(ready))
            if timeout is None and not ready:
                raise RuntimeError("everybody waits, and nothing is left to happen")


class _Loop(asyncio.SelectorEventLoop):
    """An event loop in a world's time, whose connections lead to that world's nodes."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self._opened: dict[socket.socket, _Transport] = {}
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.simulation.world.now

    def run_in_executor(self, *_: Any) -> Any:  # type: ignore[override]  # (it takes all, and does nothing)
        raise RuntimeError("threads are not in virtual time: nobody can wait for one in a simulated world")

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        node = next((it for it in self.simulation.nodes if address[:2] == (HOSTS.format(it.index + 1), PORT)), None)
        if node is None:
            raise ConnectionRefusedError(f"nobody is at {address} in a simulated world")
        transport = _Transport(self, node, sock)
        try:
            await transport.opened
        except BaseException:
            transport.link.hang_up()
            raise
        self._opened[sock] = transport

    async def create_connection(self, protocol_factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:
        if sock not in self._opened:
            raise ConnectionRefusedError("in a simulated world there are only its nodes")
        transport, protocol = self._opened.pop(sock), protocol_factory()
        transport.begins(protocol)
        return transport, protocol


class _Transport(asyncio.Transport):
    """A connection to a simulated node. `sock`: a real one, which leads nowhere, for whoever asks for it."""

    def __init__(self, loop: _Loop, node: Node, sock: socket.socket) -> None:
        super().__init__({"socket": sock})
        self.loop, self.sock, self.opened = loop, sock, loop.create_future()
        self.protocol: driver.Link | None = None
        self._over = False
        self.link = Link(loop.simulation.world, self, node)

    def __repr__(self) -> str:
        return "a client" if self.protocol is None else f"client {self.protocol.driver.crew.mint.inbox[:4].decode()}"

    def begins(self, protocol: driver.Link) -> None:
        """Whose it is."""
        self.protocol = protocol
        protocol.connection_made(self)

    # ------------------------------------------------ what the world says

    def connected(self, link: Link) -> None:
        if not self.opened.done():
            self.opened.set_result(None)

    def heard(self, link: Link, data: bytes) -> None:
        self.loop.call_soon(self._read, data)

    def lost(self, link: Link, cause: Exception) -> None:
        if not self.opened.done():
            self.opened.set_exception(cause)
        else:
            self.loop.call_soon(self._end, cause)

    def _read(self, data: bytes) -> None:
        while data and self.protocol is not None and not self._over:
            buffer = self.protocol.get_buffer(len(data))
            piece, data = data[: len(buffer)], data[len(buffer) :]
            buffer[: len(piece)] = piece
            self.loop.simulation.world.note(self, "hears from", self.link.node, piece)
            self.protocol.buffer_updated(len(piece))

    def _end(self, cause: Exception | None) -> None:
        if not self._over:
            self._over = True
            self.sock.close()
            if self.protocol is not None:
                self.protocol.connection_lost(cause)

    # ------------------------------------------------ what the driver says

    def write(self, data: Any) -> None:
        if not self._over and self.protocol is not None:
            self.loop.simulation.sends(self.protocol.driver, self.link.node, bytes(data))
            self.link.send(bytes(data))

    def abort(self) -> None:
        self.link.hang_up()
        self.loop.call_soon(self._end, None)

    close = abort

    def is_closing(self) -> bool:
        return self._over or self.link.broken

    def get_write_buffer_size(self) -> int:
        return 0


def _nobody() -> None:
    raise AssertionError("no client of a simulation is replaced")
