"""Hand-over by push, by hand: our scripts queue whoever asks and promote the next one at a release; the node tells whose turn it is.

It leaves out what every floor does, and besides: no cede, no write-back, no heartbeat. Split votes are not resolved, so that it needs a
queue that never runs empty; the work sees to that, and a floor that hangs is told.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
from collections import deque
from time import time_ns
from typing import Any, cast

from holdfast.protocol.exclusive import Exclusive
from holdfast.wire.resp import MORE, Push, pack, reader

from .commands import HORIZON, TTL


class Votes:
    """One request: which nodes have granted it, whether in an answer or by a push."""

    __slots__ = ("granted", "name", "token")

    def __init__(self, name: Exclusive, ticket: int, inbox: bytes, serial: int) -> None:
        self.name, self.token, self.granted = name, b"%016d:%b:%08x" % (ticket, inbox, serial), set[int]()

    @property
    def request(self) -> bytes:
        return self.name.request(self.token, TTL, b"w", int(self.token[:16]))

    @property
    def release(self) -> bytes:
        return self.name.release(self.token)


class Ear:
    """What one node says on one connection, in the order of the stream."""

    def __init__(self, node: int) -> None:
        self.node, self.owed, self._reader = node, deque[Votes | None](), reader()

    def hear(self, data: Any, wanted: dict[bytes, Votes]) -> list[Votes]:
        """Whose request this node has granted now."""
        self._reader.feed(data)
        news = []
        while (said := self._reader.gets()) is not MORE:
            if type(said) is Push:
                kind, *_, message = said
                votes = wanted.get(message.split(b" ")[1]) if kind == b"message" and message[:2] == b"g " else None
            else:
                asked = self.owed.popleft()
                votes = asked if asked is not None and (isinstance(said, bytes) or (isinstance(said, list) and said[0])) else None
            if votes is not None:
                votes.granted.add(self.node)
                news.append(votes)
        return news


class Threads:
    """Each thread has connections and an inbox of its own, and polls them itself: no hop between threads at all."""

    asks = ("evalsha",)
    _ticket = 0
    _first = threading.Lock()

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._places = [it.removeprefix("redis://").split(":") for it in parameters["urls"]]
        self._quorum = len(self._places) // 2 + 1
        self._mine = threading.local()

    def open(self) -> None:
        pass

    def lock(self, name: str) -> Exclusive:
        if not hasattr(self._mine, "ends"):
            self._connect()
        return Exclusive(name, ttl=TTL, horizon=HORIZON)

    def _connect(self) -> None:
        mine = self._mine
        mine.inbox, mine.serial, mine.poll, mine.ends, mine.wanted = os.urandom(16).hex().encode(), 0, select.poll(), {}, {}
        for node, (host, port) in enumerate(self._places):
            end = socket.create_connection((host, int(port)))
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.sendall(pack(b"HELLO", b"3") + pack(b"SUBSCRIBE", mine.inbox))
            ear = Ear(node)
            ear.owed.append(None)
            mine.ends[end.fileno()] = end, ear
            mine.poll.register(end, select.POLLIN)

    def acquire(self, lock: Exclusive) -> Votes:
        mine = self._mine
        with self._first:
            Threads._ticket = max(Threads._ticket + 1, time_ns() // 1000)
            ticket = Threads._ticket
        mine.serial += 1
        votes = Votes(lock, ticket, mine.inbox, mine.serial)
        mine.wanted[votes.token] = votes
        self._say(votes.request, votes)
        while len(votes.granted) < self._quorum:
            for file, _ in mine.poll.poll():
                end, ear = mine.ends[file]
                ear.hear(end.recv(65536), mine.wanted)
        return votes

    def release(self, votes: Votes) -> None:
        del self._mine.wanted[votes.token]
        self._say(votes.release, None)

    def _say(self, data: bytes, votes: Votes | None) -> None:
        for end, ear in self._mine.ends.values():
            ear.owed.append(votes)
            end.sendall(data)

    def close(self) -> None:
        pass


class Line(asyncio.BufferedProtocol):
    """One node, for all tasks."""

    transport: asyncio.Transport

    def __init__(self, ear: Ear, engine: Asyncio) -> None:
        self.ear, self._engine = ear, engine
        self._buffer = bytearray(65536)
        self._view = memoryview(self._buffer)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        for votes in self.ear.hear(self._view[:nbytes], self._engine.wanted):
            if len(votes.granted) == self._engine.quorum:
                self._engine.futures[votes.token].set_result(None)


class Asyncio:
    """All tasks share one connection a node."""

    asks = ("evalsha",)

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._places = [it.removeprefix("redis://").split(":") for it in parameters["urls"]]
        self.quorum = len(self._places) // 2 + 1
        self.wanted: dict[bytes, Votes] = {}
        self.futures: dict[bytes, asyncio.Future[None]] = {}
        self._inbox, self._serial, self._ticket = os.urandom(16).hex().encode(), 0, 0

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: list[Line] = []
        for node, (host, port) in enumerate(self._places):
            line = (await self._loop.create_connection(lambda node=node: Line(Ear(node), self), host, int(port)))[1]  # type: ignore[misc]  # (mypy knows no type of a default in a loop)
            line.ear.owed.append(None)
            line.transport.write(pack(b"HELLO", b"3") + pack(b"SUBSCRIBE", self._inbox))
            self._lines.append(line)

    def lock(self, name: str) -> Exclusive:
        return Exclusive(name, ttl=TTL, horizon=HORIZON)

    async def acquire(self, lock: Exclusive) -> Votes:
        self._ticket, self._serial = max(self._ticket + 1, time_ns() // 1000), self._serial + 1
        votes = Votes(lock, self._ticket, self._inbox, self._serial)
        self.wanted[votes.token], future = votes, self._loop.create_future()
        self.futures[votes.token] = future
        self._say(votes.request, votes)
        await future
        return votes

    async def release(self, votes: Votes) -> None:
        del self.wanted[votes.token], self.futures[votes.token]
        self._say(votes.release, None)

    def _say(self, data: bytes, votes: Votes | None) -> None:
        for line in self._lines:
            line.ear.owed.append(votes)
            line.transport.write(data)

    async def close(self) -> None:
        for line in self._lines:
            line.transport.abort()
