"""holdfast: distributed locks on Redis and Valkey that tell you when you no longer hold them.

    from holdfast import Holdfast            # threads
    from holdfast.aio import Holdfast        # asyncio: same names, same parameters, same errors

A `Holdfast` is a client. Its `lock()` describes a `Lock`, and acquiring the lock returns a `Lease`.
`holdfast.errors` has all errors that they raise, `holdfast.events` the events that observers
receive, and `holdfast.typing` names for type hints.
"""

from typing import TYPE_CHECKING

from .client import at_first_use
from .client.sync import Holdfast
from .engine.recorder import Stats
from .errors import (
    ConfigError,
    HoldfastError,
    LockBusy,
    LockLost,
    Misuse,
    NoQuorum,
    NotAcquired,
    RateLimited,
    StaleFence,
)
from .face.lease import LeaseState
from .face.rwlock import RWLock
from .face.sync.decorators import current
from .face.sync.lease import Lease
from .face.sync.lock import Lock
from .lazy import lazy
from .node import Node
from .version import VERSION as __version__

if TYPE_CHECKING:
    from .engine.status import NodeStatus
    from .face.sync.semaphore import Semaphore
    from .operations.inspection.commands import LockStatus
    from .operations.survey.sync import Survey
    from .primitives.election.plan import Leader
    from .primitives.election.sync import Election, Leadership, Observation
    from .primitives.fill.plan import Found
    from .primitives.fill.sync import Fill
    from .primitives.latch.sync import Barrier, Latch
    from .primitives.once.plan import Result
    from .primitives.once.sync import Once
    from .primitives.rate.plan import Allowance
    from .primitives.rate.sync import Rate
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".engine.status": ["NodeStatus"],
            ".operations.inspection.commands": ["LockStatus"],
            ".primitives.election.plan": ["Leader"],
            ".primitives.fill.plan": ["Found"],
            ".primitives.once.plan": ["Result"],
            ".primitives.rate.plan": ["Allowance"],
            **at_first_use("sync"),
        },
    )

__all__ = [
    "Allowance", "Barrier", "ConfigError", "Election", "Fill", "Found", "Holdfast", "HoldfastError", "Latch",
    "Leader", "Leadership", "Lease", "LeaseState", "Lock", "LockBusy", "LockLost", "LockStatus", "Misuse", "NoQuorum",
    "Node", "NodeStatus", "NotAcquired", "Observation", "Once", "RWLock", "Rate", "RateLimited", "Result",
    "Semaphore", "StaleFence", "Stats", "Survey", "__version__", "current",
]  # fmt: skip
