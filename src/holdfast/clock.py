"""The clock that leases are measured on: monotonic, and running while the machine sleeps.

Knows the operating system's clocks. A lease of ten seconds that began before a laptop was closed is
over when the laptop opens. On Linux, CLOCK_MONOTONIC stands still while the machine sleeps, and
CLOCK_BOOTTIME does not. On macOS, CLOCK_MONOTONIC keeps running.

Only drivers read a clock. Each driver gets its clocks when it is made, as `Sources`, and everything
above asks the driver.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

WHICH: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
clock = partial(time.clock_gettime, WHICH)


class Sources(NamedTuple):
    """The sources of everything that differs between runs: the time and random bytes.

    Attributes:
        clock: Returns seconds on the clock that leases are measured on. It never goes back.
        wall: Returns seconds since 1970, on the clock that people and processes share. It may be
            set.
        entropy: Returns as many random bytes as it is asked for.
    """

    clock: Callable[[], float]
    wall: Callable[[], float]
    entropy: Callable[[int], bytes]


SYSTEM = Sources(clock, time.time, os.urandom)


def sources_of(loop: object) -> Sources:
    """Return the sources for drivers in an event loop.

    An event loop with a time of its own, such as the simulator's, has them as its attribute
    `holdfast_sources`.
    """
    found: Sources = getattr(loop, "holdfast_sources", SYSTEM)
    return found
