"""The clock that leases are measured on: monotonic, and running on while the machine sleeps.

Knows the operating system's clocks. A lease of ten seconds that began before the lid was closed is over when it opens:
CLOCK_MONOTONIC of Linux stands still meanwhile, CLOCK_BOOTTIME does not. (macOS's CLOCK_MONOTONIC runs on.)

Only drivers read a clock. Each driver gets its clocks when it is made, as `Sources`, and everything
above asks the driver.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

WHICH: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
clock = partial(time.clock_gettime, WHICH)


class Sources(NamedTuple):
    """Where a driver gets what differs from one run to the next: the time and random bytes.

    Attributes:
        clock: Returns seconds on the clock that leases are measured on. It never goes back.
        wall: Returns seconds since 1970, on the clock that people and processes share. It may be set.
        entropy: Returns as many random bytes as it is asked for.
    """

    clock: Callable[[], float]
    wall: Callable[[], float]
    entropy: Callable[[int], bytes]


SYSTEM = Sources(clock, time.time, os.urandom)


def sources_of(loop: object) -> Sources:
    """The sources of drivers in an event loop.

    A loop in which time is not the machine's names its own, as its attribute `holdfast_sources`: the simulator's does.
    """
    found: Sources = getattr(loop, "holdfast_sources", SYSTEM)
    return found
