"""What the two supervising processes share: a board in memory, and a line between them.

Knows bytes. Must not know what is said. The board has the deadline of the lease. It can be read at
any time, also after its reader was stopped for hours; a message could be old by then.
"""

from __future__ import annotations

import marshal
import mmap
import socket
from typing import Any

_HEAD = 4  # bytes that tell how long a message is
_CHUNK = 65536
Message = tuple[Any, ...]


class Board:
    """A number that one process writes and another reads: until when the lease is held.

    0: nothing runs under a lease. The time is that of `holdfast.clock`, which is the same for all
    processes of a machine.
    """

    def __init__(self) -> None:
        self._view = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("d")

    @property
    def until(self) -> float:
        """The moment at which the lease ends unless it is renewed."""
        return self._view[0]

    @until.setter
    def until(self, moment: float) -> None:
        # One aligned store of eight bytes: nobody can read half of it.
        self._view[0] = moment


class Pipe:
    """One end of the connection between the two processes. Sending never blocks."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._in, self._out = bytearray(), bytearray()
        self.ended = False
        end.setblocking(False)

    def fileno(self) -> int:
        """The descriptor, to wait for."""
        return self._end.fileno()

    @property
    def owing(self) -> bool:
        """Is there something that could not be sent yet?"""
        return bool(self._out)

    def send(self, *message: Any) -> None:
        """Send a message, or keep it until the other end reads."""
        data = marshal.dumps(message)
        self._out += len(data).to_bytes(_HEAD, "big") + data
        self.flush()

    def flush(self) -> None:
        """Send as much as fits of what is owing."""
        try:
            while self._out:
                del self._out[: self._end.send(self._out)]
        except BlockingIOError:
            return
        except OSError:
            self._out.clear()

    def received(self) -> list[Message]:
        """Return the messages that have come. Sets `ended` if the other process is gone."""
        try:
            while chunk := self._end.recv(_CHUNK):
                self._in += chunk
            self.ended = True
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True
        found = []
        while len(self._in) >= _HEAD:
            end = _HEAD + int.from_bytes(self._in[:_HEAD], "big")
            if len(self._in) < end:
                break
            found.append(marshal.loads(self._in[_HEAD:end]))
            del self._in[:end]
        return found

    def close(self) -> None:
        """Close this end."""
        self._end.close()
