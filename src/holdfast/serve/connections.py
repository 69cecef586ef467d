"""The connections of a gateway: how many there may be, and which one makes room for another.

Knows sockets. Must not know HTTP.

Anybody can open connections, so one that has not shown yet which client it is from makes room. One
that has shown it stays, and so do the leases that are kept over it.
"""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import suppress

# The share of all connections that one address may have without showing a client, and one client.
SHARE = 4


class Connections:
    """The connections of one gateway.

    Args:
        most: How many there may be.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._share = max(1, most // SHARE)
        # By what each is counted, in the order in which they came.
        self._strangers: dict[socket.socket, str] = {}
        self._known: dict[socket.socket, str] = {}
        self._counts: Counter[str] = Counter()

    def come(self, it: socket.socket, address: str) -> bool:
        """Take in a connection. If there are too many, cut the oldest one of a stranger.

        Returns:
            Whether there is room.
        """
        who = f"address {address}"
        oldest = None
        if self._counts[who] >= self._share:
            oldest = next(it for it, other in self._strangers.items() if other == who)
        elif len(self._strangers) + len(self._known) >= self._most:
            oldest = next(iter(self._strangers), None)
            if oldest is None:
                return False
        if oldest is not None:
            self.gone(oldest)
            with suppress(OSError):
                # Its transport notices that, and closes it.
                oldest.shutdown(socket.SHUT_RDWR)
        self._add(self._strangers, it, who)
        return True

    def known(self, it: socket.socket, client: str) -> None:
        """Note which client a connection is from. A client that has many is not noted any more."""
        if it in self._strangers and self._counts[f"client {client}"] < self._share:
            self.gone(it)
            self._add(self._known, it, f"client {client}")

    def gone(self, it: socket.socket) -> None:
        """Note that a connection has ended. Has no effect the second time."""
        for group in (self._strangers, self._known):
            if (who := group.pop(it, None)) is not None:
                self._counts[who] -= 1
                if not self._counts[who]:
                    del self._counts[who]

    def _add(self, group: dict[socket.socket, str], it: socket.socket, who: str) -> None:
        group[it] = who
        self._counts[who] += 1
