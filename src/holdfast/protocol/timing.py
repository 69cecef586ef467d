"""What a caller demands of a lease: its length, how long to wait for it, and how long to keep it.

Knows numbers. Must not know names, nodes or clocks.
"""

from math import inf
from typing import NamedTuple


class Timing(NamedTuple):
    """What a caller demands of a lease. The client makes it once, and the claim only reads it.

    Attributes:
        ttl: The length of the lease, in seconds.
        wait: How many seconds to wait for the lease. None waits for ever, 0 tries once.
        renew: Whether to renew the lease while it is held.
        max_hold: Seconds after which a held lease ends, however often it was renewed.
        news_needed: How many nodes must report news of the name to end the wait (`Overtaken`).
            With 0, news do not end it.
        at_least: Seconds for which the name stays taken, however soon the lease is released.
    """

    ttl: float
    wait: float | None = None
    renew: bool = True
    max_hold: float = inf
    news_needed: int = 0
    at_least: float = 0.0
