"""Writes each client's settings to every node, so that clients that differ are reported.

Knows what is written there, and what a difference means. Must not know lanes or claims.

The guard and the fence horizon follow from `max_ttl`, the guard after a promotion from `failover`
too, and a majority from the list of nodes. No protocol keeps two clients apart that differ in one
of them. So each client writes them, for an
hour, and reads what another client wrote before. It warns once about each difference. The roll
(`engine/roll.py`) has the shards that each client knows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from math import inf

from ..core.round import Round
from ..wire.resp import pack

LIFE = 3600  # seconds that it stays on the nodes
AGAIN = 1200.0  # seconds after which a client that is in use says it again
# A text, which `re` compiles at its first use.
_SAID = rb"v1 ([0-9]{1,12}) ([0-9]{1,4}) ([0-9a-f,]*)(?: ([0-9a-f=,]+))?"
_SHOWN = 8  # digits of a run_id


class Census:
    """The census of one client. Times are in seconds.

    Attributes:
        due: When to write the settings.
        round: The round that is under way.
    """

    def __init__(self, prefix: str, max_ttl: float, patience: float) -> None:
        self._key, self._max_ttl, self._patience = b"{holdfast}:config:" + prefix.encode(), max_ttl, patience
        self._said = b""
        self.due, self._fades = inf, inf
        self.round: Round | None = None
        self._told: set[str] = set()

    def soon(self, now: float) -> None:
        """Plan to write to a node that is up (again), when the other nodes are known too."""
        self.due = min(self.due, now + self._patience)

    def used(self, now: float) -> None:
        """Note that the client is in use, so settings that were written long ago are due again."""
        if now >= self._fades:
            self.soon(now)

    def question(self, run_ids: Sequence[str], now: float, failovers: Sequence[float | None] = ()) -> bytes:
        """Return the bytes that write the settings and read those of another client.

        `run_ids` has one id for each node. It is empty where the id is unknown now. `failovers` has
        the `failover` of each node, and None where nobody has said it. It is empty if that is so
        for all.
        """
        self.due, self._fades = inf, now + AGAIN
        known = ",".join(sorted(it[:_SHOWN] for it in run_ids if it)).encode()
        self._said = b"v1 %d %d %b" % (round(self._max_ttl * 1000), len(run_ids), known)
        bounds = dict(zip(run_ids, failovers, strict=False))
        if told := [f"{it[:_SHOWN]}={round(bound * 1000)}" for it, bound in bounds.items() if it and bound is not None]:
            self._said += b" " + ",".join(sorted(told)).encode()
        return pack(b"SET", self._key, self._said, b"PX", b"%d" % (LIFE * 1000), b"GET")

    def difference(self, theirs: object, young: Collection[str]) -> str:
        """Return the difference to another client's settings as text, or an empty string.

        `young` has the run ids of servers that started within LIFE. What was written before a
        restart still has the old run id, which is no difference.
        """
        match, mine = (re.fullmatch(_SAID, it) if isinstance(it, bytes) else None for it in (theirs, self._said))
        if match is None or mine is None:
            return ""
        if match[1] != mine[1]:
            theirs, ours = (int(it[1]) / 1000 for it in (match, mine))
            return (
                f"another client of these nodes has max_ttl={theirs:g}, this one {ours:g}: "
                "only if all have the same are leases and fences safe. Set the larger one everywhere."
            )
        if match[2] != mine[2]:
            them, us = int(match[2]), int(mine[2])
            return (
                f"another client uses {them} nodes, this one {us}: "
                "their majorities need not meet. Name the same nodes everywhere."
            )
        known, others = (set(it[3].split(b",")) - {b""} for it in (mine, match))
        restarted = (known - others).intersection(it[:_SHOWN].encode() for it in young)
        if len(known | others) - len(restarted) > int(mine[2]):
            return (
                "another client uses other nodes besides this one: "
                "their majorities need not meet. Name the same nodes everywhere."
            )
        return _failover(known & others, _bounds(match[4]), _bounds(mine[4]))

    def news(self, difference: str) -> bool:
        """Return whether a difference is new. Every node reports it, and once is enough."""
        if difference in self._told:
            return False
        self._told.add(difference)
        return True


def _bounds(said: bytes | None) -> dict[bytes, float]:
    """Return the `failover` of nodes in seconds, by the run id. Nodes without one are left out."""
    pairs = (it.partition(b"=") for it in (said or b"").split(b",") if it)
    return {run_id: int(bound or b"0") / 1000 for run_id, _, bound in pairs}


def _failover(known: Collection[bytes], theirs: Mapping[bytes, float], mine: Mapping[bytes, float]) -> str:
    """Return the difference in `failover` of a node that both clients know, or an empty string."""
    for run_id in sorted(known):
        if theirs.get(run_id) != mine.get(run_id):
            other, own = (f"failover={it[run_id]:g}" if run_id in it else "no failover" for it in (theirs, mine))
            return (
                f"another client has {other} for the server with run_id {run_id.decode()}…, this one {own}: "
                "only if all have the same are locks safe after a failover. Set the larger one everywhere."
            )
    return ""
