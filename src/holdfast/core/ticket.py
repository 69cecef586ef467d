"""Tickets, which only grow, and tokens, which are unique.

Knows the token's layout: 16 digits of ticket, 32 hex of inbox, 8 hex of serial, and for read-write locks r or w, joined by ":", of
fixed width, so that its byte order is ticket order. Must not know a clock: the time is handed in.
"""

from __future__ import annotations

import re

from ..errors import ConfigError

LAST = 9 * 10**15  # microseconds: the year 2255, and below 2**53, so that a node's Lua counts in whole numbers


FENCE = re.compile(rb"[0-9]{1,16}")
TOKEN = re.compile(rb"[0-9]{16}:[0-9a-f]{32}:[0-9a-f]{8}(?::[rw])?")


class Mint:
    """Where a crew's tickets and tokens come from. `inbox`: 32 hex digits of randomness, this crew's alone."""

    __slots__ = ("_serial", "_ticket", "inbox")

    def __init__(self, inbox: bytes) -> None:
        self.inbox, self._serial, self._ticket = inbox, 0, 0

    def ticket(self, time: float) -> int:
        """A place in the queue: `time` (seconds since 1970) in microseconds, and above every ticket before it."""
        now = int(time * 1e6)
        if not 0 < now < LAST:
            raise ConfigError(f"the clocks of the nodes, or of this machine, say {time:.0f} s after 1970: set them (2255 is the end)")
        self._ticket = max(self._ticket + 1, now)
        return self._ticket

    def forget(self) -> None:
        """The clock that tickets were taken from was wrong: the next one need not be above those before it."""
        self._ticket = 0

    def token(self, ticket: int) -> bytes:
        """A token that nobody has had before, with this place in the queue. (A recipe's kind may follow.)"""
        self._serial = (self._serial + 1) % 2**32  # (it may begin anew: by then the tickets are other ones)
        return b"%016d:%b:%08x" % (ticket, self.inbox, self._serial)


def inbox_of(token: bytes) -> bytes:
    """The inbox of the client that made a token."""
    return token[17:49]


def kind_of(token: bytes) -> bytes:
    """What a token ends in, after its serial: ":r", ":w" or nothing."""
    return token[58:]
