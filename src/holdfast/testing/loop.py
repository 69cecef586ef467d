"""Event loops in a world's time, whose connections lead to that world's nodes.

Knows asyncio's loops, transports, processes, and the asyncio driver. Must not know what tasks do,
or which faults there are.

What belongs to a process is run by it: when it is not paused, and not after its crash.
"""

from __future__ import annotations

import asyncio
import contextvars
import socket
from typing import Any

from ..drivers.access import Access
from ..drivers.aio.driver import Driver
from ..drivers.aio.sockets import Link
from .client import SimulatedClient
from .network import PORT, Node, SimulatedConnection
from .process import current, owner_of
from .server import Server
from .world import Violation, World

NO_THREADS = "threads are not in virtual time: nobody can wait for one in a simulated world"

# Whose connections are made here.
whose: contextvars.ContextVar[SimulatedClient | None] = contextvars.ContextVar("whose", default=None)


class VirtualLoop(asyncio.BaseEventLoop):
    """What all loops in a world have in common: the one of `simulation`, and that of the swarm."""

    def __init__(self, world: World, *arguments: Any) -> None:
        self.world = world
        # What was raised in a callback, or a law that was broken there.
        self.failure: BaseException | None = None
        # Has code run that belongs to no process, and may use any client?
        self._anybody = False
        self._opened: dict[socket.socket, Transport] = {}
        super().__init__(*arguments)

    def time(self) -> float:
        return self.world.now

    def holdfast_context(self, driver: Driver) -> contextvars.Context:
        """The context of what a client does by itself: it belongs to the process that runs now."""
        client = SimulatedClient(self.world, driver, current.get())
        self.world.clients[driver] = client
        context = contextvars.Context()
        context.run(current.set, client.process)
        context.run(whose.set, client)
        return context

    def run_in_executor(self, executor: Any, function: Any, *arguments: Any) -> Any:  # type: ignore[override]  # (it refuses what is not a client's)
        if not isinstance(getattr(function, "__self__", None), Access):
            raise RuntimeError(NO_THREADS)
        future = self.create_future()
        future.set_result(function(*arguments))
        return future

    def call_soon(  # type: ignore[override]  # (any arguments, whatever the callback takes)
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if (process := owner_of(context)) is None:
            self._anybody = True
            return super().call_soon(callback, *args, context=context)
        context = contextvars.copy_context() if context is None else context
        return super().call_soon(process.admit, callback, args, context, context=context)

    def call_at(  # type: ignore[override]  # (as above)
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if (process := owner_of(context)) is None:
            return super().call_at(when, callback, *args, context=context)
        context = contextvars.copy_context() if context is None else context
        return super().call_at(when, process.admit, callback, args, context, context=context)

    def create_task(self, coro: Any, *, context: contextvars.Context | None = None, **options: Any) -> Any:
        return self._owned(super().create_task(coro, context=context, **options), context)

    @staticmethod
    def _owned(task: asyncio.Task[Any], context: contextvars.Context | None) -> asyncio.Task[Any]:
        if (process := owner_of(context)) is not None:
            process.tasks.add(task)
        return task

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        # It leads nowhere. (A driver gives what it has opened to `create_connection`.)
        sock.close()
        found = self.world.hosts.get(address[0]) if address[1] == PORT else None
        client = whose.get()
        if found is None or client is None:
            raise ConnectionRefusedError(f"nobody is at {address} in a simulated world")
        node, server = found if isinstance(found, tuple) else (found, None)
        if client.process is not None:
            await client.process.path_to(node)
        transport = Transport(self, client, node, server)
        try:
            await transport.opened
        except BaseException:
            transport.pull()
            raise
        self._opened[sock] = transport

    async def create_connection(self, protocol_factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:
        if sock not in self._opened:
            raise ConnectionRefusedError("in a simulated world there are only its nodes")
        transport = self._opened.pop(sock)
        protocol = protocol_factory()
        transport.begins(protocol)
        return transport, protocol

    def look(self) -> None:
        """Clients have done something: see whether all is as it must be."""
        everybody, self._anybody = self._anybody, False
        for client in self.world.clients.values():
            process, laws = client.process, client.laws
            if laws is None or not (everybody or process is None or process.awake):
                continue
            if process is not None:
                process.awake = False
            # (It may have something to say at the end of this turn.)
            if client.gone or not client.driver._unsent:
                laws.turned(client)

    def sends(self, client: SimulatedClient, node: Node, data: bytes) -> None:
        """A client is about to send this. (It would take what is raised here for a failure of the
        node.)
        """
        if client.laws is not None:
            try:
                client.laws.sends(client, node, data)
            except Violation as violation:
                self.failure = self.failure or violation

    def raises(self) -> None:
        """Raise what went wrong in a callback, if anything did."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


class Transport(asyncio.Transport):
    """A connection to a simulated node."""

    def __init__(self, loop: VirtualLoop, client: SimulatedClient, node: Node, server: Server | None) -> None:
        super().__init__()
        self.loop, self.client = loop, client
        self.opened = loop.create_future()
        self.protocol: Link | None = None
        self._over = False
        # Of the process to which what is heard belongs.
        self._context = contextvars.copy_context()
        self.link = SimulatedConnection(loop.world, self, node, client, server)
        client.transports[self] = None

    def begins(self, protocol: Link) -> None:
        """Whose it is."""
        self.protocol = protocol
        protocol.connection_made(self)

    def pull(self) -> None:
        """It was given up, or the process is dead and its kernel closes the connection."""
        self.link.hang_up()
        self._is_over()

    def _is_over(self) -> None:
        self._over = True
        self.client.transports.pop(self, None)

    # ------------------------------------------------ what the world says

    def connected(self, link: SimulatedConnection) -> None:
        if not self.opened.done():
            self.opened.set_result(None)

    def heard(self, link: SimulatedConnection, data: bytes) -> None:
        self.loop.call_soon(self._read, data, context=self._context)

    def lost(self, link: SimulatedConnection, cause: Exception) -> None:
        if not self.opened.done():
            self.opened.set_exception(cause)
        else:
            self.loop.call_soon(self._end, cause, context=self._context)

    def _read(self, data: bytes) -> None:
        while data and self.protocol is not None and not self._over:
            buffer = self.protocol.get_buffer(len(data))
            piece = data[: len(buffer)]
            data = data[len(buffer) :]
            buffer[: len(piece)] = piece
            self.loop.world.note(self.client, "hears from", self.link.node, piece)
            self.protocol.buffer_updated(len(piece))

    def _end(self, cause: Exception | None) -> None:
        if not self._over:
            self._is_over()
            if self.protocol is not None:
                self.protocol.connection_lost(cause)

    # ------------------------------------------------ what the driver says

    def write(self, data: Any) -> None:
        if not self._over:
            self.loop.sends(self.client, self.link.node, bytes(data))
            self.link.send(bytes(data))

    def abort(self) -> None:
        self.link.hang_up()
        self.loop.call_soon(self._end, None, context=self._context)

    close = abort

    def is_closing(self) -> bool:
        return self._over or self.link.broken

    def get_write_buffer_size(self) -> int:
        return 0
