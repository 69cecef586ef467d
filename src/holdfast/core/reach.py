"""Which nodes there are, and which of them can be spoken to now: kept by the crew, only read by claims.

Knows numbers of nodes and what stands in their way. Must not know connections.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from math import inf

from . import quorum


class Standing(enum.Enum):
    """How a node stands with this client."""

    HOPED = "hoped"  # being dialled, and nothing bad is known of it
    GUARDED = "guarded"  # it started a short while ago, and may have forgotten leases
    UP = "up"
    DOWN = "down"


HOPED, GUARDED, UP, DOWN = Standing


class Reach:
    """The nodes as claims see them.

    `labels`: their addresses, without passwords; `patience`: seconds that a node may owe an answer (node_timeout);
    `outage`: for how many seconds a majority must have been away before waiting has no point; `horizon`: K, the fence horizon, in ms.
    """

    def __init__(self, labels: Sequence[str], patience: float, outage: float, horizon: int) -> None:
        self.labels, self.patience, self.outage, self.horizon = labels, patience, outage, horizon
        self.size, self.quorum = len(labels), quorum.majority(len(labels))
        self.standing = [HOPED] * self.size
        self.causes: list[Exception | None] = [None] * self.size  # why it is down
        self.free = [0.0] * self.size  # when its guard ends
        self.up: Sequence[int] = ()  # the nodes that are UP
        self.dark = inf  # since when too few nodes are up, guarded or hoped for

    def cause(self, node: int, now: float) -> Exception | None:
        """Why the node is not of use, if something is known."""
        if self.standing[node] is GUARDED:
            left = max(0.0, self.free[node] - now)
            return ConnectionError(f"guarded, {left:.1f} s left: it started lately and may have forgotten leases")
        return self.causes[node]

    def note(self, node: int, standing: Standing, now: float, cause: Exception | None = None, free: float = 0.0) -> None:
        """The node stands like this from now on."""
        self.standing[node], self.causes[node], self.free[node] = standing, cause, free
        self.up = tuple(i for i, it in enumerate(self.standing) if it is UP)
        if not quorum.hopeless(self.quorum, (it is not DOWN for it in self.standing)):
            self.dark = inf
        elif self.dark == inf:
            self.dark = now
