"""The connections of a driver for asyncio: dialled, hung up, and read into one buffer.

Knows transports, TLS, and how the places of nodes are asked for. Must not know what callers want,
or when the engine is asked what to do.
"""

from __future__ import annotations

import asyncio
import os
import socket
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...engine.ready import Ready
from ...wire.address import Address
from .. import sockets
from ..access import Access, Places, discard

if TYPE_CHECKING:
    from ..tls import Tunnel
    from .driver import Driver

CHUNK = 65536

T = TypeVar("T")

# What each loop reads into.
_buffers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, bytearray] = weakref.WeakKeyDictionary()


class Link(asyncio.BufferedProtocol):
    """One connection: the bytes of one node, read into one buffer for ever.

    `tunnel`: its TLS, if it has one.

    (asyncio has TLS of its own, which hides whether more lies unread, and loses all but the first
    record where the buffer is a bytearray.)
    """

    def __init__(self, driver: Driver, node: int, tunnel: Tunnel | None) -> None:
        self.driver, self.node, self.tunnel = driver, node, tunnel
        self.transport: asyncio.Transport | None = None
        # Bytes can flow.
        self.open = driver.loop.create_future()
        # Why there will be no more.
        self.over: Exception | None = None
        # Did the last read fill the buffer? Then more may lie unread.
        self.full = False
        # Bytes that were unread when it was last to be judged, and still are; None: it was not
        # looked yet.
        self.left: int | None = None
        self._buffer = _buffer_of(driver.loop)
        self._view = memoryview(self._buffer)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # An assertion would be wrong: uvloop's are of no such class.
        self.transport = cast(asyncio.Transport, transport)
        if self.tunnel is None:
            self.open.set_result(None)
        else:
            self.tunnel.begin()
            self.write(b"")

    @property
    def sock(self) -> socket.socket | None:
        """Its socket. None if it is closed, and uvloop has forgotten it before anybody was told."""
        return self.transport.get_extra_info("socket") if self.transport is not None else None

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.full = nbytes == CHUNK
        if self.left is not None:
            self.left -= nbytes
        data: memoryview | bytes = self._view[:nbytes]
        if (tunnel := self.tunnel) is not None:
            opened, data = tunnel.open, tunnel.received(data)
            if opened or not tunnel.open:
                self.write(b"")
            elif not self.open.done():
                # The last bytes of the handshake leave together with the first command.
                self.open.set_result(None)
        if data:
            self.driver.received(self, data)
        if tunnel is not None and tunnel.fault is not None:
            self._end(tunnel.fault)
            self.driver.failed(self, tunnel.fault)

    def unread(self) -> bool:
        """May something lie unread that lay there when this was asked first since `left` was None?

        A node may send without end.
        """
        if self.full and self.left is None and (sock := self.sock) is not None:
            self.left = sockets.unread(sock)
        return self.full and (self.left or 0) > 0

    def write(self, data: bytes) -> None:
        """Send this, and whatever TLS has to say."""
        assert self.transport is not None
        try:
            data = data if self.tunnel is None else self.tunnel.sealed(data)
        except Exception as error:
            self._end(error)
            # The engine may be in the middle of something.
            self.driver.loop.call_soon(self.driver.failed, self, error)
        else:
            if data and self.over is None:
                self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionError("it closed the connection"))
        self.driver.lost(self, exc or ConnectionError("it closed the connection"))

    def _end(self, cause: Exception) -> None:
        self.over = self.over or cause
        if not self.open.done():
            self.open.set_result(None)


class Sockets:
    """The connections of one driver.

    Attributes:
        links: The connection to each node, if there is one.
    """

    def __init__(self, driver: Driver, access: Sequence[Access]) -> None:
        self._driver = driver
        self._access = access
        self.links: list[Link | None] = [None] * len(access)
        self._dialling: dict[int, asyncio.Task[None]] = {}
        # Names, or credentials, are being asked for.
        self._finding: dict[int, asyncio.Task[tuple[Places, Address, float] | Exception]] = {}
        # By node: who asks whether it is still where it was.
        self._placing: dict[int, asyncio.Task[None]] = {}

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """What is under way."""
        return [*self._dialling.values(), *self._finding.values(), *self._placing.values()]

    @property
    def sending(self) -> bool:
        """Has the kernel not taken all bytes yet?"""
        transports = [it.transport for it in self.links if it is not None and it.transport is not None]
        return any(it.get_write_buffer_size() for it in transports)

    def end(self) -> None:
        """Close everything."""
        for task in self.tasks:
            task.cancel()
        links, self.links = self.links, [None] * len(self.links)
        for link in links:
            if link is not None and link.transport is not None:
                # What the kernel has is sent; nothing waits for a node that does not read.
                link.transport.abort()

    def forget(self) -> None:
        """In a forked child: have nothing be said on the parent's connections."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        for link in self.links:
            if link is not None and (sock := link.sock) is not None and (file := sock.fileno()) >= 0:
                # To close it is the transport's business.
                os.dup2(nowhere, file, inheritable=False)
        os.close(nowhere)

    def connect(self, ready: Ready) -> None:
        """Close what the engine wants closed, with a reset, then dial what it wants dialled."""
        driver = self._driver
        for node in ready.hangups:
            if (task := self._dialling.pop(node, None)) is not None:
                task.cancel()
            link = self.links[node]
            self.links[node] = None
            if link is not None and link.transport is not None:
                if (sock := link.sock) is not None:
                    sockets.reset(sock)
                link.transport.abort()
        for node in ready.dials:
            if not driver.closed:
                self._dialling[node] = driver.apart(driver.loop.create_task, self._dial(node))
        for node in ready.places:
            if not driver.closed and node not in self._placing:
                self._placing[node] = driver.apart(driver.loop.create_task, self._place(node, driver.clock()))

    async def _place(self, node: int, asked: float) -> None:
        """Ask whether a node is still where it was."""
        try:
            answer: Address | Exception = await self._found_at(self._access[node])
        except Exception as error:
            answer = error
        del self._placing[node]
        self._driver.do(self._driver.engine.upkeep.placed, node, self._driver.clock(), answer, asked)

    async def _dial(self, node: int) -> None:
        driver = self._driver
        link, address, asked = None, None, 0.0
        cause: Exception | None = ConnectionError("given up")
        try:
            places, address, asked = await self._found(node)
            link = await self._connected(node, sockets.in_turn(places, driver.engine.connections[node].fails), address)
            await link.open
            cause = link.over
        except Exception as error:
            # Not only an OSError: some names cannot even be looked up.
            cause = error
        finally:
            # Else it was given up meanwhile.
            mine = self._dialling.get(node) is asyncio.current_task()
            if link is not None and link.transport is not None and (cause is not None or not mine):
                link.transport.abort()
        if mine:
            del self._dialling[node]
            if cause is None:
                self.links[node] = link
                driver.do(driver.engine.upkeep.connected, node, driver.clock(), address, asked)
            else:
                driver.do(driver.engine.upkeep.lost, node, driver.clock(), cause)

    async def _found(self, node: int) -> tuple[Places, Address, float]:
        """Where to connect to, and as whom, and when that was asked.

        What takes longer to tell than one attempt has time is good for the next one.
        """
        access = self._access[node]
        if access.at_hand:
            return *access.ask(), self._driver.clock()
        if node not in self._finding:
            self._finding[node] = self._driver.apart(self._driver.loop.create_task, self._find(access))
        finding = self._finding[node]
        self._driver.engine.connections[node].asks = access.asks
        await asyncio.wait([finding])
        del self._finding[node]
        if isinstance(answer := finding.result(), Exception):
            raise answer
        self._driver.engine.connections[node].asks = ""
        return answer

    async def _find(self, access: Access) -> tuple[Places, Address, float] | Exception:
        asked = self._driver.clock()
        try:
            address = await self._found_at(access)
            places, said = await self._on_a_thread(access.begin_asking, address)
            return places, said if isinstance(said, Address) else await access.signed(said, address), asked
        except Exception as error:
            return error

    async def _found_at(self, access: Access) -> Address:
        """Return the address with the host and port of the moment."""
        if not access.address.moves:
            return access.address
        address = await self._on_a_thread(access.begin_finding)
        return address if isinstance(address, Address) else await access.found(address)

    async def _on_a_thread(self, ask: Callable[..., T], *arguments: Any) -> T:
        """Ask what may block. If this is cancelled, nobody awaits what is said later."""
        asking = self._driver.loop.run_in_executor(None, ask, *arguments)
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(_unheard)
            raise

    async def _connected(self, node: int, places: Places, address: Address) -> Link:
        """A connection to the first of the node's places that takes one."""
        driver = self._driver
        refusal: OSError = OSError(f"{address.label} has no address")
        for family, where in places:
            try:
                sock = sockets.open_socket(family)
            except OSError as error:
                # This machine does not have the address family.
                refusal = error
                continue
            try:
                link = Link(driver, node, self._access[node].tunnel(address))
                await driver.loop.sock_connect(sock, where)
                if address.path:
                    await driver.loop.create_unix_connection(lambda: link, sock=sock)  # noqa: B023 (called at once)
                else:
                    await driver.loop.create_connection(lambda: link, sock=sock)  # noqa: B023 (called at once)
                return link
            except OSError as error:
                refusal = error
                sock.close()
            except BaseException:
                sock.close()
                raise
        raise refusal


def _buffer_of(loop: asyncio.AbstractEventLoop) -> bytearray:
    """What all connections of a loop are read into.

    A loop reads one connection at a time and hands over what it has read at once, and nobody keeps
    it. So no connection needs a buffer of its own. Loops of two threads read at the same time.
    """
    buffer = _buffers.get(loop)
    if buffer is None:
        buffer = _buffers[loop] = bytearray(CHUNK)
    return buffer


def _unheard(asking: asyncio.Future[Any]) -> None:
    """Close the coroutine that was said, alone or beside places."""
    if not asking.cancelled() and asking.exception() is None:
        said = asking.result()
        discard(said[-1] if isinstance(said, tuple) else said)
