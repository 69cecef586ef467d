"""The network in front of one server, from which users can be cut off without a word.

Its connections are told apart by the name in their AUTH. What a user who is cut off says, and is told, goes
nowhere, and nobody closes anything: so a primary goes on for a while without its replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence


class Wire:
    """A port that leads to a server. One event loop, on a thread of its own, serves all wires."""

    def __init__(self, port: int, server: int, users: Sequence[str]) -> None:
        self._server, self._users = server, [it.encode() for it in users]
        self._cut: set[bytes] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        asyncio.run_coroutine_threadsafe(self._open(port), loop()).result(10)

    def cut(self, user: str) -> None:
        """From now on nothing that this user says or is told arrives."""
        self._cut.add(user.encode())

    def mend(self) -> None:
        """New connections work. Those of users that were cut off end, as after a partition."""
        self._cut.clear()
        loop().call_soon_threadsafe(lambda: [it.cancel() for it in self._tasks if it.get_name() == "cut"])

    async def _open(self, port: int) -> None:
        self._listener = await asyncio.start_server(self._accepted, "127.0.0.1", port)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("open")
        self._tasks.add(task)
        other: asyncio.StreamWriter | None = None
        try:
            there, other = await asyncio.open_connection("127.0.0.1", self._server)
            whose: list[bytes] = []
            ways = self._carry(reader, other, whose, task, True), self._carry(there, writer, whose, task, False)
            both = [asyncio.ensure_future(it) for it in ways]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in both:
                    way.cancel()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            for it in (writer, other):
                if it is not None:
                    it.transport.abort()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, whose: list[bytes], task: asyncio.Task[None], out: bool
    ) -> None:
        """Carry bytes in one direction."""
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if out and not whose:
                    whose += [it for it in self._users if b"\r\n%b\r\n" % it in data]
                if self._cut.intersection(whose):
                    task.set_name("cut")
                    continue
                if task.get_name() == "cut":
                    # What was lost cannot be gone on with.
                    return
                writer.write(data)
                await writer.drain()
        if self._cut.intersection(whose):
            # Nor does the other side learn that this one has closed the connection.
            task.set_name("cut")
            await asyncio.get_running_loop().create_future()


_loops: list[asyncio.AbstractEventLoop] = []


def loop() -> asyncio.AbstractEventLoop:
    """The event loop of all wires."""
    if not _loops:
        _loops.append(asyncio.new_event_loop())
        threading.Thread(target=_loops[0].run_forever, name="wires", daemon=True).start()
    return _loops[0]
