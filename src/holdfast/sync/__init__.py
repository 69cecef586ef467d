"""The face for threads.

Knows what a user of threads sees. Must not know anything below the driver's few methods, or the other face.
"""

from ..face.rwlock import RWLock
from .client import Holdfast
from .decorating import current
from .gathering import Barrier, Latch
from .lease import Lease
from .lock import Lock
from .rate import Rate

__all__ = ["Barrier", "Holdfast", "Latch", "Lease", "Lock", "RWLock", "Rate", "current"]
