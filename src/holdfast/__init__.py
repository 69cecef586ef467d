"""holdfast: distributed locks on Redis and Valkey that tell you when you no longer hold them.

    from holdfast import Holdfast            # threads
    from holdfast.aio import Holdfast        # asyncio: same names, same parameters, same errors

A `Holdfast` is a client. Its `lock()` describes a `Lock`, and acquiring the lock returns a `Lease`.
`holdfast.errors` has the errors that they raise, and `holdfast.events` the events that observers
receive.
"""

from typing import TYPE_CHECKING

from .base import PRIMITIVES
from .base.lease import LeaseInfo, LeaseState
from .base.terms import ElectionOptions, Options, PermitOptions, RateOptions
from .engine.record import Stats
from .errors import (
    BadFence,
    BadName,
    Cancelled,
    Closed,
    ConfigError,
    HoldfastError,
    LockBusy,
    LockLost,
    Misuse,
    NoQuorum,
    NotAcquired,
    NotAllArrived,
    NotHeld,
    RateLimited,
    SelfDeadlock,
    StaleFence,
    WrongLoop,
    WrongProcess,
)
from .later import later
from .node import Node
from .sync import Holdfast, Lease, Lock, RWLock, current
from .version import VERSION as __version__

if TYPE_CHECKING:
    from .base.election import Leader
    from .base.fill import FillOptions, Found
    from .base.once import OnceOptions, Result
    from .base.rate import Allowance
    from .base.repair import Repaired
    from .base.values import Serializer
    from .engine.registry import Straggler
    from .engine.status import NodeStatus
    from .recipes.inspection import LockStatus, NodeView, PermitHolder, Reader, Waiter
    from .recipes.survey import Row
    from .sync import Barrier, Election, Fill, Latch, Leadership, Observation, Once, Rate, Semaphore, Survey
else:
    __getattr__, __dir__ = later(
        __name__,
        {
            ".base.election": ["Leader"],
            ".base.fill": ["FillOptions", "Found"],
            ".base.once": ["OnceOptions", "Result"],
            ".base.rate": ["Allowance"],
            ".base.repair": ["Repaired"],
            ".base.values": ["Serializer"],
            ".engine.registry": ["Straggler"],
            ".engine.status": ["NodeStatus"],
            ".recipes.inspection": ["LockStatus", "NodeView", "PermitHolder", "Reader", "Waiter"],
            ".recipes.survey": ["Row"],
            ".sync": [name for names in PRIMITIVES.values() for name in names],
        },
    )

__all__ = [
    "BadFence",
    "Allowance",
    "BadName",
    "Barrier",
    "Cancelled",
    "Closed",
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
    "NotHeld",
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
    "SelfDeadlock",
    "Semaphore",
    "Serializer",
    "StaleFence",
    "Stats",
    "Straggler",
    "Survey",
    "Waiter",
    "WrongLoop",
    "WrongProcess",
    "__version__",
    "current",
    "ElectionOptions",
    "OnceOptions",
]
