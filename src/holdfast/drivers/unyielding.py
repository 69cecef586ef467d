"""The C library's `send`, `recv` and `read`, called without letting other threads run meanwhile. For what never blocks.

Knows the C library. Must not know sockets.

`socket.send` and its like let go of the interpreter's lock, as everything must that may take long. What never blocks takes no time; but
beside a thread that computes, whoever lets go waits for as long as that one may go on, 5 ms: once for each node that is spoken to, and for
each that answers. `ctypes.PyDLL` is the standard library's way to call what keeps the lock.

Each returns a number of bytes, or -1 for trouble: then ask the socket itself, which says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MOST = 2**30  # bytes at once: sizes are told as an `int`


def _not_here(*_: object) -> int:
    return -1


send: Callable[[int, bytes, int, int], int] = _not_here
recv: Callable[[int, Any, int, int], int] = _not_here
read: Callable[[int, Any, int], int] = _not_here
place: Callable[[bytearray], Any] = _not_here  # what `recv` and `read` need, to put into this buffer what they have received

try:
    import ctypes
except ImportError:  # a Python that was built without it: sockets do it all
    pass
else:

    def _place(buffer: bytearray) -> Any:
        return (ctypes.c_char * len(buffer)).from_buffer(buffer)

    # (Their arguments' types are not declared: that would cost more than the calls do. They are what ctypes takes them for.)
    _library = ctypes.PyDLL(None)
    send, recv, read, place = _library.send, _library.recv, _library.read, _place
