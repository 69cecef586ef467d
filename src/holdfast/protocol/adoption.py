"""A lease that is handed over: its ticket, and how another claim takes the place of the one before.

Knows `scripts/adopt.lua`. Must not know which nodes there are, or what they answer.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from zlib import crc32

from .. import checks
from ..errors import ConfigError
from ..scripts import ADOPT
from ..wire.resp import evalsha
from .command import TRY
from .exclusive import Exclusive, keys_of

# A text, which `re` compiles at its first use.
_TICKET = r"(?s)holdfast:([0-9a-f]{4}):([0-9]{16}):([0-9]{16}:[0-9a-f]{32}:[0-9a-f]{8}):(.+)"


class Handover(NamedTuple):
    """What a ticket tells: the lock's name, and the token and the fence of its lease."""

    name: str
    token: bytes
    fence: int

    def text(self) -> str:
        """Return the ticket."""
        told = f"{self.fence:016d}:{self.token.decode()}:{self.name}"
        # A ticket that was cut short would be that of another name.
        return f"holdfast:{crc32(told.encode()) & 0xFFFF:04x}:{told}"


def read_ticket(ticket: object) -> Handover:
    """Return what a ticket tells.

    Raises:
        ConfigError: It is no ticket, or not a whole one.
    """
    found = re.fullmatch(_TICKET, ticket) if isinstance(ticket, str) else None
    if found is None:
        raise ConfigError(f"a ticket is the text that `lease.hand_over()` returns, not {checks.shown(ticket)}")
    given = Handover(found[4], found[3].encode(), int(found[2]))
    if given.text() != ticket:
        raise ConfigError(
            f"the ticket {checks.shown(ticket)} was cut short or changed on its way. Pass on the whole text that "
            "`lease.hand_over()` returns"
        )
    return given


class Adopted(Exclusive):
    """The commands of a lock whose first request takes over a lease (rule H2). Immutable.

    Args:
        given: What the ticket tells.
        prefix: As for `Exclusive`, and so for the others.
    """

    __slots__ = ("_adopt", "_given", "proposes")

    def __init__(self, given: Handover, *, prefix: str = "", ttl: float, horizon: int) -> None:
        super().__init__(given.name, prefix=prefix, ttl=ttl, horizon=horizon)
        self.basic = False
        self._given = given.token
        self.proposes = given.fence

    def request(self, token: bytes, ttl: float, mode: bytes, fence: int, clock: int = 0) -> bytes:
        """Return the bytes of a request. Those of a try take over the lease."""
        if mode is not TRY:
            return super().request(token, ttl, mode, fence, clock)
        return self._moves(self._given, token, ttl)

    def release(self, token: bytes, held: bool = True, rest: float = 0.0) -> bytes:
        """Return the bytes of a release. Not `held`: take the adoption back (rule H4)."""
        return super().release(token, rest=rest) if held else self._moves(token, self._given, 0.0)

    def _moves(self, start: bytes, end: bytes, ttl: float) -> bytes:
        key, fence, _, _ = keys_of(self.name)
        lease, proposed = b"%d" % round(ttl * 1000), b"%016d" % self.proposes
        return evalsha(ADOPT, key, fence, start, end, lease, proposed, b"%d" % self.horizon)
