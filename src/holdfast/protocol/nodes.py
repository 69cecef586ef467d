"""Which nodes a client has, and which of them can be spoken to now. Claims only read this.

The engine keeps it. Knows numbers of nodes and what stands in their way. Must not know connections.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from math import inf

from ..errors import ConfigError, NoQuorum, message_of
from .quorum import UNMARKED, Quorum


class Standing(enum.Enum):
    """How a node stands with this client."""

    # It is being dialled, and nothing bad is known of it.
    CONNECTING = "connecting"
    # It started a short while ago, and may have forgotten leases.
    GUARDED = "guarded"
    UP = "up"
    DOWN = "down"


CONNECTING, GUARDED, UP, DOWN = Standing


_HINT = " (if no lock was ever held on these nodes: holdfast nodes adopt)"


class NodeSet:
    """The nodes as claims see them.

    Args:
        labels: The addresses of the nodes, without passwords.
        patience: Seconds that a node may owe an answer: `node_timeout`.
        outage: Seconds that a claim waits for a majority that is away.
        horizon: K, the fence horizon, in milliseconds.
        decides: Which of them decide. None: a majority.
    """

    def __init__(
        self, labels: Sequence[str], patience: float, outage: float, horizon: int, decides: Quorum | None = None
    ) -> None:
        self.labels = labels
        self.patience = patience
        self.outage = outage
        self.horizon = horizon
        self.size = len(labels)
        self.quorum = decides or Quorum(range(self.size))
        self.standing = [CONNECTING] * self.size
        # The same for people, in one word: `NodeStatus.state`.
        self.states = ["connecting"] * self.size
        # Why each node is down, what it refuses writes with, or why it is guarded if it did not
        # restart.
        self.causes: list[Exception | None] = [None] * self.size
        # Since when each node's state is this one; inf: nobody has tried it yet.
        self.since = [inf] * self.size
        # When each node's guard ends.
        self.free = [0.0] * self.size
        # When each node's server started, as far as it says.
        self.started = [-inf] * self.size
        # Which nodes have been UP for this client.
        self.worked = [False] * self.size
        # The nodes that are UP, and whether they are enough.
        self.up: Sequence[int] = ()
        self.enough = False
        # Since when too few nodes are up, guarded or hoped for.
        self.dark = inf
        # Until when requests may be sent whose grants count for more than `UNMARKED` seconds (G14).
        self.permitted = inf
        # The fence that the fence of a lease has to be above (rule F12); 0: any will do.
        self.floor = 0

    def cause(self, node: int, now: float) -> Exception | None:
        """Return why the node is not of use, if something is known."""
        cause = self.causes[node]
        if self.standing[node] is GUARDED:
            left = max(0.0, self.free[node] - now)
            age = now - self.started[node]
            started = f"{max(0.0, age):.0f} s ago" if age < inf else "recently"
            why = cause or f"it started {started} and may have forgotten locks{self.hint}"
            return ConnectionError(f"guarded, {left:.1f} s left: {why}")
        return cause

    def lasting(self, ttl: float, now: float) -> float:
        """Return for how many seconds a grant counts that is asked for now (G14)."""
        return ttl if now < self.permitted else UNMARKED

    @property
    def hint(self) -> str:
        """What ends the guard of new servers at once. Empty if one of the nodes has been in use."""
        return "" if any(self.worked) else _HINT

    def tried(self, node: int, now: float) -> None:
        """Record that somebody is connecting to the node."""
        self.since[node] = min(self.since[node], now)

    @property
    def misconfiguration(self) -> ConfigError | None:
        """Why waiting cannot help: the nodes that never worked for this client leave no majority.

        A node that worked before and now refuses us may come back: its password is being changed,
        or it fails over. That is an outage instead.
        """
        broken = {
            node: cause
            for node, cause in enumerate(self.causes)
            if isinstance(cause, ConfigError) and not self.worked[node]
        }
        if self.quorum.met(set(range(self.size)) - broken.keys()):
            return None
        return unusable({self.labels[node]: cause for node, cause in broken.items()})

    def note(
        self,
        node: int,
        standing: Standing,
        now: float,
        cause: Exception | None = None,
        free: float = 0.0,
        started: float = -inf,
    ) -> None:
        """Record how a node stands from now on.

        Args:
            node: The node.
            standing: How it stands.
            now: The time.
            cause: Why it is down, or what it refuses writes with.
            free: When its guard ends, if it is guarded.
            started: When its server started, if it is guarded.
        """
        state = standing.value
        if standing is UP and cause is not None:
            # It is asked all the same: only an answer tells when it accepts writes again.
            state = "refusing"
        elif standing is DOWN and isinstance(cause, ConfigError):
            state = "unfit"
        if self.states[node] != state or self.since[node] == inf:
            self.since[node] = now
        self.standing[node] = standing
        self.causes[node] = cause
        self.states[node] = state
        self.free[node] = free
        self.started[node] = started
        self.worked[node] |= standing is UP
        self.up = tuple(i for i, it in enumerate(self.standing) if it is UP)
        self.enough = self.quorum.met(self.up)
        if self.quorum.met([i for i, it in enumerate(self.standing) if it is not DOWN]):
            self.dark = inf
        elif self.dark == inf:
            self.dark = now


def unusable(causes: Mapping[str, Exception]) -> ConfigError:
    """Return the error for nodes that cannot work as they are set up.

    Args:
        causes: What is wrong, by node.
    """
    found = "".join(f"\n  {node}: {message_of(cause)}" for node, cause in causes.items())
    error = ConfigError(f"these nodes cannot be used:{found}")
    error.fix = next((it.fix for it in causes.values() if isinstance(it, ConfigError) and it.fix), "")
    return error


def forbidden(causes: Mapping[str, Exception | None], needed: int) -> ConfigError | None:
    """Return the error for what a user may not do on a majority of the nodes, or None.

    Args:
        causes: What is wrong, by node.
        needed: How many nodes are a majority.
    """
    wrong = {node: it for node, it in causes.items() if isinstance(it, ConfigError) and it.fix}
    return unusable(wrong) if len(wrong) >= needed else None


def too_few(
    name: str, waited: float, causes: Mapping[str, Exception], quorum: Quorum, doing: str, away: float = 0.0
) -> ConfigError | NoQuorum:
    """Return the error for too few answers. The other arguments are those of NoQuorum."""
    unheard = NoQuorum(name, waited, causes, quorum.least, doing, away=away, lists=quorum.lists)
    return forbidden(causes, quorum.least) or unheard
