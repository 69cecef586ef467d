"""Acquires beside many leases, which the same client holds and renews.

The leases are taken as fast as the client can, so that they begin together. Then one name after the other is acquired and released, with
a pause between two, for one and a half periods of renewal. Python's garbage collector does not look at the leases (`gc.freeze`), since its
pauses would be measured otherwise, and not what the library does.

Figures: `p50`, `p99` and `longest` of the acquire; `lag` (the longest time by which a pause of a millisecond took longer: how late the
event loop, or another thread, was).
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from time import perf_counter, sleep
from typing import Any

from .adapter import TTL, Adapter, Coroutines, quantiles

MEASURED = TTL / 2  # seconds: one and a half periods of renewal
PAUSE = 0.001  # seconds between two acquires
TOGETHER = 100  # leases that are asked for at once, with asyncio


def _figures(acquires: Sequence[float], late: float, leases: int) -> dict[str, Any]:
    longest = max(acquires) * 1e6
    return {**quantiles(acquires), "longest": longest, "lag": late * 1e6, "count": len(acquires), "leases": leases}


def threads(make: type[Adapter], parameters: dict[str, Any]) -> dict[str, Any]:
    """In the main thread."""
    locks = make(parameters | {"renew": True})
    locks.open()
    held = [locks.acquire(locks.lock(f"bench:beside:{i}")) for i in range(parameters["leases"])]
    gc.freeze()
    acquires, late, number = list[float](), 0.0, 0
    end = perf_counter() + parameters.get("measured", MEASURED)
    while (asked := perf_counter()) < end:
        number += 1
        mine = locks.acquire(locks.lock(f"bench:new:{number}"))
        acquires.append(perf_counter() - asked)
        locks.release(mine)
        paused = perf_counter()
        sleep(PAUSE)
        late = max(late, perf_counter() - paused - PAUSE)
    return _figures(acquires, late, len(held))


async def tasks(make: type[Coroutines], parameters: dict[str, Any]) -> dict[str, Any]:
    """In one task."""
    locks = make(parameters | {"renew": True})
    await locks.open()
    held: list[Any] = []
    for first in range(0, parameters["leases"], TOGETHER):
        some = range(first, min(first + TOGETHER, parameters["leases"]))
        held += await asyncio.gather(*[locks.acquire(locks.lock(f"bench:beside:{i}")) for i in some])
    gc.freeze()
    acquires, late, number = list[float](), 0.0, 0
    end = perf_counter() + parameters.get("measured", MEASURED)
    while (asked := perf_counter()) < end:
        number += 1
        mine = await locks.acquire(locks.lock(f"bench:new:{number}"))
        acquires.append(perf_counter() - asked)
        await locks.release(mine)
        paused = perf_counter()
        await asyncio.sleep(PAUSE)
        late = max(late, perf_counter() - paused - PAUSE)
    return _figures(acquires, late, len(held))
