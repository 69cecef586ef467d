"""What of a gateway is counted.

Knows the types. Must not know the gateway, which knows its metrics.
"""

from __future__ import annotations

from typing import Protocol

from .lag import Lag
from .leases import Leases


class Counted(Protocol):
    """What the metrics need of a gateway.

    Attributes:
        leases: Its leases.
        streams: How many event streams are open.
        lag: How late its event loop is.
    """

    leases: Leases
    streams: int
    lag: Lag
