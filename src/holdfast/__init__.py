"""holdfast: distributed locks on Redis and Valkey that tell you when you no longer hold them.

    from holdfast import Holdfast            # threads
    from holdfast.aio import Holdfast        # asyncio: same names, same parameters, same errors

A `Holdfast` is a client. Its `lock()` describes a `Lock`, and acquiring the lock returns a `Lease`.
`holdfast.errors` has the errors that they raise, and `holdfast.events` the events that observers
receive.
"""

from typing import TYPE_CHECKING

from .client import at_first_use
from .client.sync import Holdfast
from .engine.recorder import Stats
from .errors import (
    BadFence,
    Cancelled,
    ConfigError,
    HoldfastError,
    LockBusy,
    LockLost,
    Misuse,
    NoQuorum,
    NotAcquired,
    NotAllArrived,
    RateLimited,
    StaleFence,
)
from .face.lease import LeaseInfo, LeaseState
from .face.rwlock import RWLock
from .face.sync.decorators import current
from .face.sync.lease import Lease
from .face.sync.lock import Lock
from .face.terms import ElectionOptions, Options, PermitOptions, RateOptions
from .lazy import lazy
from .node import Node
from .version import VERSION as __version__

if TYPE_CHECKING:
    from .engine.registry import Straggler
    from .engine.status import NodeStatus
    from .face.sync.semaphore import Semaphore
    from .face.values import Serializer
    from .operations.inspection.commands import LockStatus, NodeView, PermitHolder, Reader, Waiter
    from .operations.repair.plan import Repaired
    from .operations.survey.commands import Row
    from .operations.survey.sync import Survey
    from .primitives.election.plan import Leader
    from .primitives.election.sync import Election, Leadership, Observation
    from .primitives.fill.plan import FillOptions, Found
    from .primitives.fill.sync import Fill
    from .primitives.latch.sync import Barrier, Latch
    from .primitives.once.plan import OnceOptions, Result
    from .primitives.once.sync import Once
    from .primitives.rate.plan import Allowance
    from .primitives.rate.sync import Rate
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".engine.registry": ["Straggler"],
            ".engine.status": ["NodeStatus"],
            ".face.values": ["Serializer"],
            ".operations.inspection.commands": ["LockStatus", "NodeView", "PermitHolder", "Reader", "Waiter"],
            ".operations.repair.plan": ["Repaired"],
            ".operations.survey.commands": ["Row"],
            ".primitives.election.plan": ["Leader"],
            ".primitives.fill.plan": ["FillOptions", "Found"],
            ".primitives.once.plan": ["OnceOptions", "Result"],
            ".primitives.rate.plan": ["Allowance"],
            **at_first_use("sync"),
        },
    )

__all__ = [
    "BadFence",
    "Allowance",
    "Barrier",
    "Cancelled",
    "ConfigError",
    "Election",
    "Fill",
    "FillOptions",
    "Found",
    "Holdfast",
    "HoldfastError",
    "Latch",
    "Leader",
    "Leadership",
    "Lease",
    "LeaseInfo",
    "LeaseState",
    "Lock",
    "LockBusy",
    "LockLost",
    "LockStatus",
    "Misuse",
    "NoQuorum",
    "Node",
    "NodeStatus",
    "NodeView",
    "NotAcquired",
    "NotAllArrived",
    "Observation",
    "Once",
    "Options",
    "PermitHolder",
    "PermitOptions",
    "RWLock",
    "Rate",
    "RateOptions",
    "RateLimited",
    "Reader",
    "Repaired",
    "Result",
    "Row",
    "Semaphore",
    "Serializer",
    "StaleFence",
    "Stats",
    "Straggler",
    "Survey",
    "Waiter",
    "__version__",
    "current",
    "ElectionOptions",
    "OnceOptions",
]
