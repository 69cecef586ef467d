"""What of a gateway is counted.

Knows the types. Must not know the gateway, which knows its metrics.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from .lag import Lag
from .leases import Leases


class Counted(Protocol):
    """What the metrics need of a gateway.

    Attributes:
        leases: Its leases.
        streams: How many event streams of each client are open.
        lag: How late its event loop is.
    """

    leases: Leases
    streams: Counter[str]
    lag: Lag
