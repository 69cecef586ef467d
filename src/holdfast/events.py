"""What holdfast tells observers: frozen facts, one class for each kind of event.

Knows words and facts. Must not know who listens, or what time it is: whoever hands an event on stamps `at`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

__all__ = [
    "Acquired",
    "Attempt",
    "Doubt",
    "Event",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(LockEvent):
    """A request begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued(LockEvent):
    """Somebody else has the lock: the request waits in line."""

    holder: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired(LockEvent):
    """The lock is held."""

    fence: int


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
class Renewed(LockEvent):
    """A majority has confirmed a renewal. `remaining`: seconds that the lease is now good for."""

    fence: int
    remaining: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt(LockEvent):
    """A renewal was not confirmed in time; it is tried again. `remaining`: seconds until the lease is lost."""

    fence: int
    remaining: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(LockEvent):
    """The lock is lost. `reason`: as in LockLost."""

    fence: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(LockEvent):
    """The lock was given back."""

    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent(Event):
    """Something happened to a node. `node`: its address, without password."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDown(NodeEvent):
    """The node cannot be used. `cause`: why."""

    cause: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUp(NodeEvent):
    """The node is in use (again)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGuarded(NodeEvent):
    """The node started a short while ago and may have forgotten leases: not used for `left` seconds."""

    left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(NodeEvent):
    """The node works, but something about it is dangerous. `warning`: what, and what to do."""

    warning: str
