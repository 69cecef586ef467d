"""How connections are made and ended, for every driver.

Knows socket options. Must not know who reads.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
import termios
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ..wire.address import Address

# Seconds without a word before the kernel asks whether the other side is there.
SILENCE = 30
T = TypeVar("T")
_RESET = struct.pack("ii", 1, 0)


def places(address: Address) -> list[tuple[int, Any]]:
    """Return where to connect, best first, as (family, socket address).

    It may ask a name server, so it may block.
    """
    if address.path:
        return [(socket.AF_UNIX, address.path)]
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return [(family, where) for family, _, _, _, where in found]


def in_turn(places: Sequence[T], fails: int) -> list[T]:
    """Return the places in the order to try them.

    The first one depends on `fails`, the failed attempts in a row, because the usual first one may
    be a black hole.
    """
    first = fails % len(places) if places else 0
    return [*places[first:], *places[:first]]


def is_literal(address: Address) -> bool:
    """Whether `places` works without a name server."""
    if address.path:
        return True
    try:
        socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (socket.gaierror, UnicodeError):
        # A name, or not even that if a part of it is empty or too long. `places` will report it.
        return False
    return True


def open_socket(family: int) -> socket.socket:
    """A socket that never blocks, sends at once, and notices in the end that the other side's
    machine is gone.
    """
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_KEEPIDLE"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE)
    except BaseException:
        sock.close()
        raise
    return sock


def unread(sock: socket.socket) -> int:
    """How many bytes lie unread in the kernel; 0 if it cannot tell."""
    count = array.array("i", [0])
    # A socket that was closed meanwhile.
    with suppress(OSError, ValueError):
        fcntl.ioctl(sock.fileno(), termios.FIONREAD, count)
    return count[0]


def reset(sock: socket.socket) -> None:
    """Make closing this socket forget what it has not sent yet: a command left in the kernel would
    be executed later.
    """
    if sock.family != socket.AF_UNIX:
        # It is refused for a connection that is dead already, which is what is wanted: by macOS, and
        # by uvloop if the socket was closed meanwhile (ValueError).
        with suppress(OSError, ValueError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
