"""Names for type hints: the options that calls take, and parts of what they return.

    from holdfast.typing import Options

Programs that have no type hints need none of these.
"""

from .engine.registry import Straggler
from .face.lease import LeaseInfo
from .face.semaphore import PermitOptions
from .face.terms import ElectionOptions, Options
from .face.values import Serializer
from .operations.inspection.commands import NodeView, PermitHolder, Reader, Waiter
from .operations.repair.plan import Repaired
from .operations.survey.commands import Row
from .primitives.fill.plan import FillOptions
from .primitives.once.plan import OnceOptions
from .primitives.rate.plan import RateOptions

__all__ = [
    "ElectionOptions", "FillOptions", "LeaseInfo", "NodeView", "OnceOptions", "Options", "PermitHolder",
    "PermitOptions", "RateOptions", "Reader", "Repaired", "Row", "Serializer", "Straggler", "Waiter",
]  # fmt: skip
