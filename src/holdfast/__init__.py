"""holdfast: distributed locks on Redis and Valkey that tell you when you no longer hold them.

    from holdfast import Holdfast            # threads
    from holdfast.aio import Holdfast        # asyncio: same names, same parameters, same errors
"""

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
from .sync import Holdfast, Lease, Lock, current
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
    "NotAcquired",
    "NotHeld",
    "StaleFence",
    "WrongLoop",
    "WrongProcess",
    "__version__",
    "current",
]
