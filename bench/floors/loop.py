"""asyncio, by hand: one protocol a node, one future a round, settled when all have answered.

`Coalesced`: what is said in one turn of the loop leaves in one write a node, and a round is settled by a majority: the plainest
transport that is good with many tasks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

import hiredis

from . import commands

Held = tuple[Any, bytes]


class Round:
    """One command to all nodes."""

    __slots__ = ("future", "granted", "left", "yes")

    def __init__(self, future: asyncio.Future[None], count: int, granted: Any) -> None:
        self.future, self.left, self.granted, self.yes = future, count, granted, 0


class Line(asyncio.BufferedProtocol):
    """One node."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.asked: deque[Round] = deque()
        self._buffer = bytearray(65536)
        self._view = memoryview(self._buffer)
        self._reader = hiredis.Reader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # (uvloop's is none, and does the same)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.feed(self._view[:nbytes])  # type: ignore[arg-type]  # (it takes any buffer, whatever its types say)
        while (answer := self._reader.gets()) is not False:
            round_ = self.asked.popleft()
            round_.yes += round_.granted(answer)
            round_.left -= 1
            if not round_.left:
                round_.future.set_result(None)


class Plain:
    asks: tuple[str, ...] = ("set", "evalsha")
    commands: Any = commands.Plain
    majority = False

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._places = [it.removeprefix("redis://").split(":") for it in parameters["urls"]]
        self._quorum = len(self._places) // 2 + 1
        self._wanted = self._quorum if self.majority else len(self._places)

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines = [(await self._loop.create_connection(Line, host, int(port)))[1] for host, port in self._places]

    def lock(self, name: str) -> Any:
        return self.commands(name)

    async def acquire(self, lock: Any) -> Held:
        token = lock.token()
        if await self._ask(lock.request(token), lock.granted) < self._quorum:
            raise RuntimeError("not granted")
        return lock, token

    async def release(self, held: Held) -> None:
        lock, token = held
        await self._ask(lock.release(token), bool)

    async def _ask(self, data: bytes, granted: Any) -> int:
        round_ = Round(self._loop.create_future(), self._wanted, granted)
        for line in self._lines:
            line.asked.append(round_)
        self._write(data)
        await round_.future
        return round_.yes

    def _write(self, data: bytes) -> None:
        for line in self._lines:
            line.transport.write(data)

    async def close(self) -> None:
        for line in self._lines:
            line.transport.abort()


class Scripts(Plain):
    asks = ("evalsha",)
    commands = commands.Scripts


class CoalescedPlain(Plain):
    majority = True

    def __init__(self, parameters: dict[str, Any]) -> None:
        super().__init__(parameters)
        self._out: list[bytes] = []

    def _write(self, data: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        data = b"".join(self._out)
        self._out.clear()
        for line in self._lines:
            line.transport.write(data)


class CoalescedScripts(CoalescedPlain):
    asks = ("evalsha",)
    commands = commands.Scripts
