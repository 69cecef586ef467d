"""The clock that leases are measured on: monotonic, and running on while the machine sleeps.

Knows the operating system's clocks. A lease of ten seconds that began before the lid was closed is over when it opens:
CLOCK_MONOTONIC of Linux stands still meanwhile, CLOCK_BOOTTIME does not. (macOS's CLOCK_MONOTONIC runs on.)
"""

from __future__ import annotations

import time
from functools import partial

WHICH: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
clock = partial(time.clock_gettime, WHICH)
