"""holdfast: distributed locks on Redis and Valkey that tell you when you no longer hold them.

    from holdfast import Holdfast            # threads
    from holdfast.aio import Holdfast        # asyncio: same names, same parameters, same errors

A `Holdfast` describes a `Lock`; whoever acquires it has a `Lease`. What they raise is in `holdfast.errors`, what observers hear in
`holdfast.events`.
"""

from .engine.crew import NodeStatus
from .errors import (
    Closed,
    ConfigError,
    HoldfastError,
    LockBusy,
    LockLost,
    Misuse,
    NoQuorum,
    NotAcquired,
    NotHeld,
    StaleFence,
    WrongLoop,
    WrongProcess,
)
from .face.lease import LeaseState
from .sync import Holdfast, Lease, Lock
from .version import VERSION as __version__

__all__ = [
    "Closed",
    "ConfigError",
    "Holdfast",
    "HoldfastError",
    "Lease",
    "LeaseState",
    "Lock",
    "LockBusy",
    "LockLost",
    "Misuse",
    "NoQuorum",
    "NodeStatus",
    "NotAcquired",
    "NotHeld",
    "StaleFence",
    "WrongLoop",
    "WrongProcess",
    "__version__",
]
