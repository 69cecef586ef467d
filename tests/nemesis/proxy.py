"""A TCP proxy that breaks what goes through it: held back, late, cut after so many bytes, reset, swallowed.

Knows connections and bytes. Must not know what the bytes mean, who sent them, or why anything is broken: whoever wants to
act on what passes is handed every chunk before it goes on (`Proxy.reads`).

What is held back is delivered when the way is free again, even if its sender has gone: that is how a command comes to be executed late.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from holdfast.drivers import sockets

BACKLOG = 100
UP, DOWN = "requests", "answers"


class Way:
    """One direction of one connection. `limit`: how many more bytes go on until it is cut; None: all."""

    def __init__(self, link: Link, name: str) -> None:
        self.link, self.name = link, name
        self.to: asyncio.Transport | None = None
        self.limit: int | None = None
        self._holds = link.proxy.holds[name]  # by how many it is kept shut
        self._kept: deque[tuple[float, bytes]] = deque()  # when each is due
        self._ended = False  # nothing comes any more
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def open(self) -> bool:
        """Do bytes go on? (If not, they are kept.)"""
        return not self._holds

    def hold(self) -> None:
        """Keep what comes, until it is freed as often as it was held."""
        self._holds += 1

    def free(self) -> None:
        """The reverse."""
        self._holds -= 1
        self.flow()

    @property
    def kept(self) -> int:
        """Bytes that wait here."""
        return sum(len(data) for _, data in self._kept)

    def came(self, data: bytes) -> None:
        """Bytes have come."""
        proxy = self.link.proxy
        proxy.reads(self, data)
        proxy.seen[f"{self.name} bytes"] += len(data)
        if not self.open:
            proxy.seen[f"{self.name} kept"] += 1
        if delay := proxy.delay:
            proxy.seen[f"{self.name} late"] += 1
        self._kept.append((self._loop.time() + delay, data))
        self.flow()

    def end(self) -> None:
        """Nothing more will come: the other side hears of it when it has had everything."""
        self._ended = True
        self.flow()

    def flow(self) -> None:
        """Hand on what may go on by now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._kept and self.open and self.to is not None:
            due, data = self._kept[0]
            if (left := due - self._loop.time()) > 0:
                self._timer = self._loop.call_later(left, self.flow)
                return
            self._kept.popleft()
            if not self._pass(data):
                return
        if self._ended and not self._kept and self.to is not None:
            self.to.close()

    def _pass(self, data: bytes) -> bool:
        assert self.to is not None
        if self.to.is_closing():  # nobody is there any more
            return True
        if self.limit is not None and len(data) >= self.limit:
            self.to.write(data[: self.limit])
            self.link.proxy.seen[f"{self.name} truncated"] += 1
            self._kept.clear()
            self.link.part(self)
            return False
        if self.limit is not None:
            self.limit -= len(data)
        self.to.write(data)
        return True


class Link:
    """One connection of a client, and the one to the node that belongs to it. `up`: requests; `down`: answers."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.up, self.down = Way(self, UP), Way(self, DOWN)
        self.client: asyncio.Transport | None = None
        self.label: Any = None  # for whoever reads along

    @property
    def ways(self) -> tuple[Way, Way]:
        """Both directions."""
        return self.up, self.down

    def reset(self) -> None:
        """End it on both sides, by a reset; what was on its way is gone."""
        for transport in (self.client, self.up.to):
            _reset(transport)
        self.proxy.links.discard(self)

    def part(self, way: Way) -> None:
        """Whom `way` leads to has had its last byte; the other side is reset."""
        assert way.to is not None
        way.to.close()  # after what was written
        _reset(self.client if way is self.up else self.up.to)
        self.proxy.links.discard(self)

    def lost(self, way: Way) -> None:
        """The side that `way` comes from is gone."""
        way.end()
        if way.open and not way.kept:
            self.proxy.links.discard(self)


class _Side(asyncio.Protocol):
    """One end of a link. `way`: the one that begins here."""

    def __init__(self, link: Link, way: Way, back: Way) -> None:
        self.link, self.way, self.back = link, way, back

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # (uvloop's is none by its type)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.back.to = transport
        if self.way is self.link.up:
            self.link.client = transport
            self.link.proxy.took(self.link)
        else:
            self.link.up.flow()

    def data_received(self, data: bytes) -> None:
        self.way.came(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.link.lost(self.way)


class Proxy:
    """The way to one node, at (`host`, `port`). `delay`: seconds that everything takes, each way."""

    def __init__(self, host: str, port: int, node: int = 0) -> None:
        self.host, self.port, self.node = host, port, node
        self.delay = 0.0
        self.holds = Counter[str]()
        self.links: set[Link] = set()
        self.seen = Counter[str]()  # what happened, by kind
        self.reads: Callable[[Way, bytes], None] = _nothing
        self.opens: Callable[[Link], None] = _nothing  # called with each new link
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    async def start(self) -> None:
        """Take connections, on loopback."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, "127.0.0.1", 0, backlog=BACKLOG)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """No connection is left."""
        self._server.close()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports end in the next turn

    def reset(self) -> int:
        """Reset all connections; how many that were."""
        links = list(self.links)
        for link in links:
            link.reset()
        self.seen["reset"] += len(links)
        return len(links)

    def hold(self, *names: str) -> None:
        """Keep back what goes these ways, on connections that are still to come too."""
        for name in names:
            self.holds[name] += 1
            for way in self._ways(name):
                way.hold()

    def free(self, *names: str) -> None:
        """The reverse: what was kept back goes on, late."""
        for name in names:
            self.holds[name] -= 1
            for way in self._ways(name):
                way.free()

    def cut_after(self, count: int, name: str) -> None:
        """Cut every connection after so many more bytes on this way."""
        for way in self._ways(name):
            way.limit = count

    def _ways(self, name: str) -> list[Way]:
        return [way for link in self.links for way in link.ways if way.name == name]

    def took(self, link: Link) -> None:
        """A client has connected: connect to the node."""
        self.links.add(link)
        self.opens(link)
        task = asyncio.get_running_loop().create_task(self._dial(link))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _accept(self) -> _Side:
        link = Link(self)
        return _Side(link, link.up, link.down)

    async def _dial(self, link: Link) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: _Side(link, link.down, link.up), self.host, self.port)
        except OSError:
            self.seen["refused"] += 1
            link.reset()
            return
        if link not in self.links:  # it was reset meanwhile
            link.reset()


def _reset(transport: asyncio.Transport | None) -> None:
    if transport is None:
        return
    sockets.reset(transport.get_extra_info("socket"))
    transport.abort()


def _nothing(*nothing: object) -> None:
    pass
