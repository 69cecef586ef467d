"""What each client says of its settings on every node, so that clients which do not agree are found out before they do harm.

Knows what is written there, and what a difference means. Must not know lanes or claims.

The guard and the fence horizon follow from `max_ttl`, and a majority from the list of nodes. No protocol keeps two clients apart that
differ in either of them. So each client writes them, for an hour, and reads what another client wrote before. It warns once of each
difference. (Which sets of nodes a client knows is on the roll, `engine/roll.py`.)
"""

from __future__ import annotations

import re
from collections.abc import Collection
from math import inf

from ..core.round import Round
from ..wire.resp import pack

LIFE = 3600  # seconds that it stays on the nodes
AGAIN = 1200.0  # seconds after which a client that is in use says it again
_SAID = re.compile(rb"v1 ([0-9]{1,12}) ([0-9]{1,4}) ([0-9a-f,]*)")
_SHOWN = 8  # digits of a run_id


class Census:
    """One client's part in it. `due`: when it is to be said; `round`: the one under way. Times in seconds."""

    def __init__(self, prefix: str, max_ttl: float, patience: float) -> None:
        self._key, self._max_ttl, self._patience = b"{holdfast}:config:" + prefix.encode(), max_ttl, patience
        self._said = b""
        self.due, self._fades = inf, inf
        self.round: Round | None = None
        self._told: set[str] = set()

    def soon(self, now: float) -> None:
        """A node is up (again): it is to be told, when the others will be known, too."""
        self.due = min(self.due, now + self._patience)

    def used(self, now: float) -> None:
        """The client is in use: what was said long ago is said again."""
        if now >= self._fades:
            self.soon(now)

    def question(self, run_ids: Collection[str], now: float) -> bytes:
        """The bytes that say it, and ask what another has said. `run_ids`: one for each node, empty where it is not known now."""
        self.due, self._fades = inf, now + AGAIN
        known = ",".join(sorted(it[:_SHOWN] for it in run_ids if it)).encode()
        self._said = b"v1 %d %d %b" % (round(self._max_ttl * 1000), len(run_ids), known)
        return pack(b"SET", self._key, self._said, b"PX", b"%d" % (LIFE * 1000), b"GET")

    def difference(self, theirs: object, young: Collection[str]) -> str:
        """What another client sees in another way, in words; empty if nothing. `young`: run_ids of servers that started within LIFE.

        A server that restarted is another run, and what was written before still has the old one: that is no difference.
        """
        match, mine = (_SAID.fullmatch(it) if isinstance(it, bytes) else None for it in (theirs, self._said))
        if match is None or mine is None:
            return ""
        if match[1] != mine[1]:
            return (
                f"another client of these nodes has max_ttl={int(match[1]) / 1000:g}, this one {int(mine[1]) / 1000:g}: "
                "only if all have the same are leases and fences safe. Set the larger one everywhere."
            )
        if match[2] != mine[2]:
            them, us = int(match[2]), int(mine[2])
            return f"another client uses {them} nodes, this one {us}: their majorities need not meet. Name the same nodes everywhere."
        known, others = (set(it[3].split(b",")) - {b""} for it in (mine, match))
        restarted = (known - others).intersection(it[:_SHOWN].encode() for it in young)
        if len(known | others) - len(restarted) > int(mine[2]):
            return "another client uses other nodes besides this one: their majorities need not meet. Name the same nodes everywhere."
        return ""

    def news(self, difference: str) -> bool:
        """Is this difference to be told? (Every node tells of it; once is enough.)"""
        if difference in self._told:
            return False
        self._told.add(difference)
        return True
