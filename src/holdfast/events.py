"""What holdfast tells observers: frozen facts, one class for each kind of event.

Knows words and facts. Must not know who listens, or what time it is: whoever hands an event on stamps `at`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

__all__ = [
    "Acquired",
    "Attempt",
    "Discarded",
    "Doubt",
    "Event",
    "HeldLong",
    "LeaseEvent",
    "Lost",
    "NodeDown",
    "NodeEvent",
    "NodeGuarded",
    "NodeUp",
    "Forced",
    "LockEvent",
    "Opened",
    "Queued",
    "Refused",
    "Released",
    "Renewed",
    "Warned",
]

_NEVER = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something happened. `at`: when, aware, in UTC."""

    at: datetime = field(default=_NEVER, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockEvent(Event):
    """Something happened to a lock. `token`: of the request; `waited`: seconds since the request began."""

    name: str
    token: str
    waited: float


class Attempt(LockEvent):
    """A request begins."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued(LockEvent):
    """Somebody else has the lock: the request waits in line."""

    holder: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(LockEvent):
    """The request came to nothing. `error`: what the caller was told; None if it gave up by itself."""

    error: Exception | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened(LockEvent):
    """The body runs without the lock, since `fail_open` allows it. `error`: why it was not to be had."""

    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced(Event):
    """This client's operator took a lock away from its holder. `holder`: its token, or a foreign value; `reason`: the operator's words."""

    name: str
    holder: str | None
    nodes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEvent(LockEvent):
    """Something happened to a lock that is held. `fence`: of the lease."""

    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired(LeaseEvent):
    """The lock is held. `contended`: somebody else had it when it was asked for."""

    contended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed(LeaseEvent):
    """A majority has confirmed a renewal. `remaining`: seconds that the lease is now good for."""

    remaining: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLong(LeaseEvent):
    """A lease has been held for longer than the client's `long_hold`. It goes on. `held`: seconds so far."""

    held: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt(LeaseEvent):
    """A renewal was not confirmed in time; it is tried again. `remaining`: seconds until the lease is lost."""

    remaining: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(LeaseEvent):
    """The lock is lost. `reason`: as in LockLost."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded(LeaseEvent):
    """A lease was dropped without a release, so holdfast no longer renews it.

    One event for a lease of several names, which are joined by commas; `fence` is then that of the first name. `remaining`: seconds
    until the lease ends. `acquired`: the file and line that acquired it, if HOLDFAST_DEBUG or Python's development mode is on.
    """

    remaining: float
    acquired: str | None = None

    def __str__(self) -> str:
        """What the log and the ResourceWarning say."""
        where = "" if self.acquired is None else f" It was acquired at {self.acquired}."
        return (
            f"the lease on {self.name!r} (fence {self.fence}) was discarded without release; it is no longer renewed and ends in "
            f'{self.remaining:.1f} s. Keep the lease that acquire() returns, or use "with".{where}'
        )


class Released(LeaseEvent):
    """The lock was given back."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent(Event):
    """Something happened to a node. `node`: its address, without password."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDown(NodeEvent):
    """The node cannot be used. `cause`: why."""

    cause: Exception


class NodeUp(NodeEvent):
    """The node is in use (again)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGuarded(NodeEvent):
    """The node may not know all leases, because it started or was promoted a short while ago: not used for `left` seconds.

    `cause` says which of the two, in words.
    """

    left: float
    cause: str = "it started lately and may have forgotten leases"


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(NodeEvent):
    """The node works, but something about it is dangerous. `warning`: what, and what to do."""

    warning: str
