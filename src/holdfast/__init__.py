"""holdfast: distributed locks on Redis and Valkey that tell you when you no longer hold them.

    from holdfast import Holdfast            # threads
    from holdfast.aio import Holdfast        # asyncio: same names, same parameters, same errors

A `Holdfast` describes a `Lock`; whoever acquires it has a `Lease`. What they raise is in `holdfast.errors`, what observers hear in
`holdfast.events`.
"""

from typing import TYPE_CHECKING

from .engine.crew import NodeStatus
from .engine.record import Stats
from .engine.roll import Straggler
from .errors import (
    BadFence,
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
from .face import PRIMITIVES
from .face.decorating import Options, PermitOptions, RateOptions
from .face.lease import LeaseState
from .later import later
from .sync import Holdfast, Lease, Lock, RWLock, current
from .version import VERSION as __version__

if TYPE_CHECKING:
    from .face.election import Leader
    from .face.fill import FillOptions, Found
    from .face.once import Result
    from .face.rate import Allowance
    from .face.repair import Repaired
    from .face.values import Serializer
    from .recipes.looking import LockStatus, NodeView, PermitHolder, Reader, Waiter
    from .sync import Barrier, Election, Fill, Latch, Leadership, Observation, Once, Rate, Semaphore
else:
    __getattr__, __dir__ = later(
        __name__,
        {
            ".face.election": ["Leader"],
            ".face.fill": ["FillOptions", "Found"],
            ".face.once": ["Result"],
            ".face.rate": ["Allowance"],
            ".face.repair": ["Repaired"],
            ".face.values": ["Serializer"],
            ".recipes.looking": ["LockStatus", "NodeView", "PermitHolder", "Reader", "Waiter"],
            ".sync": [name for names in PRIMITIVES.values() for name in names],
        },
    )

__all__ = [
    "BadFence",
    "Allowance",
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
    "LeaseState",
    "Lock",
    "LockBusy",
    "LockLost",
    "LockStatus",
    "Misuse",
    "NoQuorum",
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
    "SelfDeadlock",
    "Semaphore",
    "Serializer",
    "StaleFence",
    "Stats",
    "Straggler",
    "Waiter",
    "WrongLoop",
    "WrongProcess",
    "__version__",
    "current",
]
