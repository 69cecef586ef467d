"""Locks for asyncio: `from holdfast.aio import Holdfast`.

The names, parameters and errors are those of `holdfast`, which is for threads.

Knows what a user of asyncio sees. Must not know anything below the driver's few methods, or `sync`.
"""

from typing import TYPE_CHECKING

from ..base import PRIMITIVES
from ..base.rwlock import RWLock
from ..later import later
from .client import Holdfast
from .decorating import current
from .lease import Lease
from .lock import Lock

if TYPE_CHECKING:
    from .election import Election, Leadership, Observation
    from .fill import Fill
    from .latch import Barrier, Latch
    from .once import Once
    from .rate import Rate
    from .semaphore import Semaphore
    from .survey import Survey
else:
    __getattr__, __dir__ = later(__name__, PRIMITIVES)

__all__ = [
    "Barrier", "Election", "Fill", "Holdfast", "Latch", "Leadership", "Lease", "Lock", "Observation", "Once", "RWLock",
    "Rate", "Semaphore", "Survey", "current",
]  # fmt: skip
