"""holdfast: distributed locks on Redis and Valkey that tell you when you no longer hold them.

    from holdfast import Holdfast            # threads
    from holdfast.aio import Holdfast        # asyncio: same names, same parameters, same errors
"""

from .errors import (
    Cancelled,
    Closed,
    ConfigError,
    HoldfastError,
    LockBusy,
    LockLost,
    Misuse,
    NoQuorum,
    NotAcquired,
    NotHeld,
    SelfDeadlock,
    StaleFence,
    WrongLoop,
    WrongProcess,
)
from .face.lease import LeaseState
from .recipes.looking import LockStatus, NodeView, Waiter
from .sync import Holdfast, Lease, Lock
from .version import VERSION as __version__

__all__ = [
    "Cancelled",
    "Closed",
    "ConfigError",
    "Holdfast",
    "HoldfastError",
    "Lease",
    "LeaseState",
    "Lock",
    "LockBusy",
    "LockLost",
    "LockStatus",
    "Misuse",
    "NoQuorum",
    "NodeView",
    "NotAcquired",
    "NotHeld",
    "SelfDeadlock",
    "StaleFence",
    "Waiter",
    "WrongLoop",
    "WrongProcess",
    "__version__",
]
