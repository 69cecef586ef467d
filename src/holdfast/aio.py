"""Locks for asyncio: `from holdfast.aio import Holdfast`.

The names, parameters and errors are those of `holdfast`, which is for threads.
"""

from typing import TYPE_CHECKING

from .client import at_first_use
from .client.aio import Holdfast
from .face.aio.decorators import current
from .face.aio.lease import Lease
from .face.aio.lock import Lock
from .face.rwlock import RWLock
from .lazy import lazy

if TYPE_CHECKING:
    from .face.aio.semaphore import Semaphore
    from .operations.survey.aio import Survey
    from .primitives.election.aio import Election, Leadership, Observation
    from .primitives.fill.aio import Fill
    from .primitives.latch.aio import Barrier, Latch
    from .primitives.once.aio import Once
    from .primitives.rate.aio import Rate
else:
    __getattr__, __dir__ = lazy(__name__, at_first_use("aio"))

__all__ = [
    "Barrier", "Election", "Fill", "Holdfast", "Latch", "Leadership", "Lease", "Lock", "Observation", "Once", "RWLock",
    "Rate", "Semaphore", "Survey", "current",
]  # fmt: skip
