"""The C library's `send`, `recv` and `read`, called without letting other threads run meanwhile.

They are for descriptors that never block. Knows the C library. Must not know sockets.

`socket.send` and `recv` release the interpreter's lock, because they may take long. Calls that
never block take no time. But if another thread computes, a call that releases the lock gets it back
only after 5 ms. This happens once for each node that is written to, and once for each that answers.
`ctypes.PyDLL` is the standard library's way to make calls that keep the lock.

Each function returns a number of bytes, or -1 for an error. Then use the socket itself, which
raises the error.

`poll` does block, and keeps the lock all the same. It is for a caller whose answers come sooner
than another thread would have taken over the interpreter.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from typing import Any

MOST = 2**30  # bytes at once: sizes are told as an `int`


def _not_here(*_: object) -> int:
    return -1


send: Callable[[int, bytes, int, int], int] = _not_here
recv: Callable[[int, Any, int, int], int] = _not_here
read: Callable[[int, Any, int], int] = _not_here
# Waits until some of these files can be read: files, how many, and milliseconds at most.
poll: Callable[[Any, int, int], int] = _not_here
# Makes the argument of `poll` of numbers of files.
polled: Callable[[Sequence[int]], Any] = _not_here
# Makes the argument with which `recv` and `read` write into a buffer.
place: Callable[[bytearray], Any] = _not_here

try:
    import ctypes
except ImportError:
    # This Python was built without ctypes. The sockets do everything.
    pass
else:

    def _place(buffer: bytearray) -> Any:
        return (ctypes.c_char * len(buffer)).from_buffer(buffer)

    class _Polled(ctypes.Structure):
        _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))

    def _files(files: Sequence[int]) -> Any:
        return (_Polled * len(files))(*[_Polled(file, select.POLLIN, 0) for file in files])

    # The types of arguments are not declared, because that would cost more than the calls do. The
    # types that ctypes assumes are right.
    _library = ctypes.PyDLL(None)
    send, recv, read, place = _library.send, _library.recv, _library.read, _place
    poll, polled = _library.poll, _files
