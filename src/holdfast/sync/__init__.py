"""The face for threads.

Knows what a user of threads sees. Must not know anything below the driver's few methods, or the other face.
"""

from typing import TYPE_CHECKING

from ..face import PRIMITIVES
from ..face.rwlock import RWLock
from ..later import later
from .client import Holdfast
from .decorating import current
from .lease import Lease
from .lock import Lock

if TYPE_CHECKING:
    from .election import Election, Leadership, Observation
    from .fill import Fill
    from .gathering import Barrier, Latch
    from .once import Once
    from .rate import Rate
    from .semaphore import Semaphore
else:
    __getattr__, __dir__ = later(__name__, PRIMITIVES)

__all__ = [
    "Barrier", "Election", "Fill", "Holdfast", "Latch", "Leadership", "Lease", "Lock", "Observation", "Once", "RWLock", "Rate", "Semaphore",
    "current",
]  # fmt: skip
