"""The face for asyncio: `from holdfast.aio import Holdfast`. Same names, same parameters, same errors as the face for threads.

Knows what a user of asyncio sees. Must not know anything below the driver's few methods, or the other face.
"""

from ..face.rwlock import RWLock
from .client import Holdfast
from .decorating import current
from .election import Election, Leadership, Observation
from .fill import Fill
from .gathering import Barrier, Latch
from .lease import Lease
from .lock import Lock
from .once import Once
from .rate import Rate

__all__ = [
    "Barrier", "Election", "Fill", "Holdfast", "Latch", "Leadership", "Lease", "Lock", "Observation", "Once", "RWLock", "Rate", "current",
]  # fmt: skip
