"""Asks the Sentinels of a node where its primary is.

For every driver, on a thread where waiting disturbs nobody. Knows sockets and Sentinel's commands.
Must not know connections: whether the server that was named is a primary shows when a connection
connects.

All Sentinels are asked at the same time. A place counts if a majority of them names it, and nobody
waits for the others then. A Sentinel never goes back to a former primary. So once a majority has
named a new primary to one client, no majority names the former one to another client any more,
which rule G13 needs. Neither a Sentinel that was cut off, nor the first one that knows of a
failover, can do without the others.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..clock import clock
from ..errors import ConfigError, readable
from ..wire.address import Address, Sentinels
from ..wire.resp import MORE, Refusal, pack, reader
from . import sockets

if TYPE_CHECKING:
    from ssl import SSLContext

    from .tls import Tunnel

CHUNK = 65536
# The part of the time for one attempt to connect that asking may take. The rest is for connecting.
SHARE = 0.5


Place = tuple[str, int]


def primary(address: Address, context: SSLContext | None, patience: float) -> Place:
    """Return the host and port of the primary.

    Args:
        address: The node, with its Sentinels.
        context: For TLS with the Sentinels, or None.
        patience: Seconds for one attempt to connect to the node. Asking takes half as long at most.

    Raises:
        ConnectionError: No majority of the Sentinels names one place now. The message says what
            each of them says.
        ConfigError: All Sentinels have answered, and none knows the group.
    """
    sentinels = address.sentinels
    assert sentinels is not None
    until = clock() + patience * SHARE
    talks = [_Talk(it, sentinels, address, context) for it in sentinels.places]
    try:
        _converse(talks, until)
    finally:
        for talk in talks:
            talk.close()
    if (place := _agreed(talks)) is not None:
        return place
    if all(it.knows_none for it in talks):
        raise ConfigError(
            f"its Sentinels know no group {sentinels.group!r}: write the NAME of their line 'sentinel monitor NAME ...'"
        )
    told = "; ".join(f"{talk.name} {talk.why}" for talk in talks)
    raise ConnectionError(f"no majority of its Sentinels says where {sentinels.group!r} is: {told}")


def _agreed(talks: Sequence[_Talk]) -> Place | None:
    """Return the place that a majority of the Sentinels names, if there is one."""
    named = [it.place for it in talks if it.place is not None]
    return next((it for it in named if named.count(it) > len(talks) // 2), None)


def _converse(talks: Sequence[_Talk], until: float) -> None:
    """Talk with all at once, until a majority names one place, all have ended, or it is late."""
    poll = select.poll()
    by_file = {}
    for talk in talks:
        talk.connect()
        if talk.sock is not None:
            poll.register(talk.sock, select.POLLIN | select.POLLOUT)
            by_file[talk.sock.fileno()] = talk
    while by_file and _agreed(talks) is None:
        left = until - clock()
        if left <= 0:
            return
        for file, _ in poll.poll(left * 1000):
            talk = by_file[file]
            talk.go_on()
            if talk.ended:
                poll.unregister(file)
                del by_file[file]
            else:
                poll.modify(file, select.POLLIN | (select.POLLOUT if talk.out else 0))


class _Talk:
    """What is said with one Sentinel.

    Attributes:
        place: The place that it names. None: it has not answered, has refused, or knows no group.
        knows_none: It does not know the group.
        why: What it says, or what is wrong with it.
        out: Bytes that the kernel has not taken yet.
    """

    def __init__(
        self, place: tuple[str, int], sentinels: Sentinels, address: Address, context: SSLContext | None
    ) -> None:
        host, port = place
        self.name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.place: Place | None = None
        self.knows_none = False
        self.why = "has not answered"
        self.sock: socket.socket | None = None
        self.out = b""
        self._where = address.but(host=host, port=port)
        self._context = context
        self._tunnel: Tunnel | None = None
        self._reader = reader()
        self._group = sentinels.group.encode()
        self._login = b""
        if sentinels.password:
            user = [sentinels.user.encode()] if sentinels.user else []
            self._login = pack(b"AUTH", *user, sentinels.password.encode())
        self._opening = True
        self._replies: list[object] = []

    @property
    def ended(self) -> bool:
        """Whether nothing more is to come."""
        return self.sock is None

    def close(self) -> None:
        """End it, whatever was said."""
        sock, self.sock = self.sock, None
        if sock is not None:
            with suppress(OSError):
                sock.close()

    def connect(self) -> None:
        """Begin. A host may have several places: those that refuse at once are skipped."""
        try:
            for family, where in sockets.places(self._where):
                self.sock = sockets.open_socket(family)
                code = self.sock.connect_ex(where)
                if code in (0, errno.EINPROGRESS):
                    return
                self.close()
                self.why = f"cannot be reached: {os.strerror(code)}"
        except (OSError, UnicodeError) as error:
            self._fail(f"cannot be reached: {error}")

    def go_on(self) -> None:
        """Send and read what is possible now."""
        try:
            assert self.sock is not None
            if self._opening:
                self._open()
            else:
                self._read()
            if self.out and self.sock is not None:
                self.out = self.out[self.sock.send(self.out) :]
        except BlockingIOError:
            pass
        except ConfigError as error:
            self._fail(error.message)
        except OSError as error:
            self._fail(f"cannot be reached: {error.strerror or error}")

    def _open(self) -> None:
        assert self.sock is not None
        if code := self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(code, os.strerror(code))
        self._opening = False
        if self._context is None:
            self._ask()
            return
        from .tls import Tunnel

        self._tunnel = Tunnel(self._context, self._where)
        self._tunnel.begin()
        self.out += self._tunnel.sealed()

    def _ask(self) -> None:
        self.out += self._sealed(self._login + pack(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", self._group))

    def _sealed(self, data: bytes) -> bytes:
        return data if self._tunnel is None else self._tunnel.sealed(data)

    def _read(self) -> None:
        assert self.sock is not None
        data = self.sock.recv(CHUNK)
        if not data:
            raise ConnectionError("it closed the connection")
        if self._tunnel is not None:
            opened = self._tunnel.open
            data = self._tunnel.received(data)
            if self._tunnel.fault is not None and not data:
                raise self._tunnel.fault
            if self._tunnel.open and not opened:
                self._ask()
            else:
                self.out += self._tunnel.sealed()
        try:
            self._reader.check(data)
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not MORE:
                self._replies.append(reply)
        except Exception as error:
            raise ConnectionError(f"it does not speak the servers' protocol: {error}") from None
        self._judge()

    def _judge(self) -> None:
        """Read the answers, if all are there."""
        first = 1 if self._login else 0
        for reply in self._replies[: first + 1]:
            if isinstance(reply, Refusal):
                self._fail(f"refuses: {readable(str(reply))}")
                return
        if len(self._replies) <= first:
            return
        self.close()
        match self._replies[first]:
            case [bytes() as host, bytes() as port] if port.isdigit():
                self.place = host.decode("utf-8", "replace"), int(port)
                self.why = f"names {readable(self.place[0])}:{self.place[1]}"
            case None:
                self.knows_none, self.why = True, "does not know the group"
            case _:
                self.why = "is no Sentinel"

    def _fail(self, why: str) -> None:
        self.why = why
        self.close()
