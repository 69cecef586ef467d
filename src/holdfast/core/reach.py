"""Which nodes there are, and which of them can be spoken to now: kept by the crew, only read by claims.

Knows numbers of nodes and what stands in their way. Must not know connections.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from math import inf

from ..errors import ConfigError
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
        self.causes: list[Exception | None] = [None] * self.size  # why it is down; or, if not for a restart, left alone
        self.free = [0.0] * self.size  # when its guard ends
        self.started = [-inf] * self.size  # when its server started, as far as it says
        self.worked = [False] * self.size  # has it been UP for this client?
        self.up: Sequence[int] = ()  # the nodes that are UP
        self.dark = inf  # since when too few nodes are up, guarded or hoped for

    def cause(self, node: int, now: float) -> Exception | None:
        """Why the node is not of use, if something is known."""
        cause = self.causes[node]
        if self.standing[node] is GUARDED:
            left = max(0.0, self.free[node] - now)
            age = now - self.started[node]
            started = f"{max(0.0, age):.0f} s ago" if age < inf else "recently"
            why = cause or (
                f"it started {started} and may have forgotten locks (for development and CI, set HOLDFAST_RESTART_GUARD=off)"
            )
            return ConnectionError(f"guarded, {left:.1f} s left: {why}")
        return cause

    @property
    def misconfiguration(self) -> ConfigError | None:
        """Why waiting cannot help: this client was never able to use so many nodes that a majority is out of reach.

        A node that worked before and now refuses us (a password that is being changed, a failover) may come back, and is
        an outage instead.
        """
        broken = {
            self.labels[node]: cause
            for node, cause in enumerate(self.causes)
            if isinstance(cause, ConfigError) and not self.worked[node]
        }
        return unusable(broken) if self.size - len(broken) < self.quorum else None

    def note(
        self, node: int, standing: Standing, now: float, cause: Exception | None = None, free: float = 0.0, started: float = -inf
    ) -> None:
        """Record how a node stands from now on.

        Args:
            cause: Why it is down.
            free: When its guard ends, if it is guarded.
            started: When its server started, if it is guarded.
        """
        self.standing[node], self.causes[node], self.free[node], self.started[node] = standing, cause, free, started
        self.worked[node] |= standing is UP
        self.up = tuple(i for i, it in enumerate(self.standing) if it is UP)
        if not quorum.hopeless(self.quorum, (it is not DOWN for it in self.standing)):
            self.dark = inf
        elif self.dark == inf:
            self.dark = now


def unusable(causes: Mapping[str, Exception]) -> ConfigError:
    """The error for nodes that cannot work as they are set up. `causes`: what is wrong, by node."""
    return ConfigError("these nodes cannot be used:" + "".join(f"\n  {node}: {cause}" for node, cause in causes.items()))
