"""Tickets, which only grow, and tokens, which are unique.

Knows the token's layout: 16 digits of ticket, 32 hex of inbox and 8 hex of serial, joined by ":".
Tokens of read-write locks end in r or w. The width is fixed, so that byte order is ticket order.
Must not know a clock: the time is handed in.
"""

from __future__ import annotations

import re

from ..errors import ConfigError

# Microseconds: the year 2255. It is below 2**53, so that a node's Lua counts in whole numbers.
LAST = 9 * 10**15

# The golden ratio, in 32 bits: multiples of it fall evenly into any interval of them.
GOLDEN = 0x9E3779B1

FENCE = re.compile(rb"[0-9]{1,16}")
TOKEN = re.compile(rb"[0-9]{16}:[0-9a-f]{32}:[0-9a-f]{8}(?::[rw])?")


class Tickets:
    """Where an engine's tickets and tokens come from.

    Args:
        inbox: 32 hex digits of randomness, which no other engine has.
    """

    def __init__(self, inbox: bytes) -> None:
        self.inbox = inbox
        self._offset = int(inbox[:8], 16)
        self._serial = 0
        self._ticket = 0

    def ticket(self, time: float) -> int:
        """Return a place in the queue, which is above every ticket before it.

        Args:
            time: Seconds since 1970.

        Returns:
            The time in microseconds, or the next number after the last ticket.

        Raises:
            ConfigError: The time is before 1970 or after the year 2255.
        """
        now = int(time * 1e6)
        if not 0 < now < LAST:
            raise ConfigError(
                f"the clocks of the nodes, or of this machine, say {time:.0f} s after 1970: set them (2255 is the end)"
            )
        self._ticket = max(self._ticket + 1, now)
        return self._ticket

    def forget(self) -> None:
        """Let the next ticket be below earlier ones: the clock of those was wrong."""
        self._ticket = 0

    def place(self, ticket: int) -> float:
        """Return where in its period a claim of this ticket asks again: from 0 to less than 1.

        Tickets that are taken together get places far apart, in one client and in several. All
        claims of one ticket have one place, so that they ask in one write.
        """
        return (ticket * GOLDEN + self._offset) % 2**32 / 2**32

    def token(self, ticket: int) -> bytes:
        """Return a token that nobody has had before, with this place in the queue.

        A recipe adds its kind to the end.
        """
        # The serial may start again at 0: by then the tickets are other ones.
        self._serial = (self._serial + 1) % 2**32
        return b"%016d:%b:%08x" % (ticket, self.inbox, self._serial)


def inbox_of(token: bytes) -> bytes:
    """Return the inbox of the client that made a token."""
    return token[17:49]


def kind_of(token: bytes) -> bytes:
    """Return what follows the serial of a token: ":r", ":w" or nothing."""
    return token[58:]
