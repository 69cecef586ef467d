"""The bench of the driver for asyncio: asyncio's own loop, whose selector, clock and transports are the test's.

Knows what that driver takes from an event loop. As asyncio's own loop, this one looks what can be
read when a turn begins, reads each connection once in a turn, and calls in the next turn what was
asked for in this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from drivers.bench import TTL, Bench, Call, Lease, Socket, Taken, loaded

from holdfast.protocol.timing import Timing


class Transport(asyncio.Transport):
    """A connection, in a loop."""

    def __init__(self, loop: Loop, sock: Socket, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__({"socket": sock})
        self._loop, self.sock, self._protocol = loop, sock, protocol
        loop.transports.append(self)

    def read(self) -> None:
        """What asyncio does when a socket can be read."""
        if not self.sock.closed:
            self._protocol.buffer_updated(self.sock.recv_into(self._protocol.get_buffer(-1)))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sock.send(bytes(data))

    def get_write_buffer_size(self) -> int:
        """All that was written has gone."""
        return 0

    def abort(self) -> None:
        if not self.sock.closed:
            self._loop.transports.remove(self)
            # asyncio closes the socket in the next turn; whatever was set on it before counts.
            self._loop.call_soon(self._closed)

    close = abort

    def is_closing(self) -> bool:
        return self not in self._loop.transports

    def _closed(self) -> None:
        self.sock.close()
        self._protocol.connection_lost(None)


class Selector:
    """What a loop asks which of its files can be read. Never waits."""

    def __init__(self, bench: AsyncioBench) -> None:
        self._bench = bench

    def select(self, timeout: float | None) -> list[Transport]:
        ready = [it for it in self._bench.loop.transports if it.sock.unread]
        self._bench.looked()
        return ready

    def close(self) -> None:
        pass


class Loop(asyncio.BaseEventLoop):
    """asyncio's loop, in a world that stands still between its turns."""

    def __init__(self, bench: AsyncioBench) -> None:
        super().__init__()
        self._bench, self._selector = bench, Selector(bench)
        self.holdfast_sources = bench.sources
        self.transports: list[Transport] = []

    def time(self) -> float:
        return self._bench.time()

    def _process_events(self, ready: list[Transport]) -> None:
        for it in ready:
            self.call_soon(it.read)

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(self, executor: object, function: Callable[..., Any], *arguments: object) -> Any:  # type: ignore[override]  # (no thread)
        done = self.create_future()
        try:
            done.set_result(function(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done

    async def sock_connect(self, sock: Any, where: Any) -> None:
        sock.node_set(where)

    async def create_connection(self, *arguments: Any, sock: Any = None, **options: Any) -> Any:  # type: ignore[override]  # (it takes fewer arguments)
        protocol = arguments[0]()
        transport = Transport(self, sock, protocol)
        protocol.connection_made(transport)
        return transport, protocol


class AsyncioBench(Bench):
    """See `bench.py`."""

    def __init__(self) -> None:
        super().__init__()
        modules = loaded("aio")
        self.loop = Loop(self)
        self._tasks: list[asyncio.Task[None]] = []

        def make() -> None:
            self.driver = self.made(modules)

        self.loop.call_soon(make)
        self.turn()

    @property
    def engine(self) -> Any:
        return self.driver.engine

    def turn(self) -> None:
        self.loop.stop()  # so that it turns once
        self.loop.run_forever()

    def callers(self) -> None:
        """Tasks go on in the loop's own turns."""

    def _call(self, call: Call, waits: Callable[[], Coroutine[Any, Any, object]]) -> Call:
        async def run() -> None:
            try:
                await waits()
            except Exception as error:
                call.error = error
            call.done = True

        self._tasks.append(self.loop.create_task(run()))
        return call

    def acquire(self, name: str = "a") -> Taken:
        call = Taken(Lease())

        async def acquire() -> None:
            await self.driver.acquire(call.lease, self.recipes(name), Timing(TTL))
            call.at, call.until = self.time(), call.lease._want.until

        self._call(call, acquire)
        return call

    def close(self) -> None:
        super().close()
        for it in self._tasks:
            it.cancel()
        self.settle()
        self.loop.close()
