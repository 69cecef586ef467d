"""A node dies or freezes: acquires before, the first one after it, and those that follow.

Figures: `healthy` and `healthy_p99` of the acquire before, `first` after the fault, `p50` and `p99` of all that follow; `failed`: how many
of these raised an error instead. Each acquire has a name of its own, so that what a failed one leaves behind is in nobody's way.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

from . import step
from .adapter import Adapter, Coroutines, quantiles

LONGEST = 15.0  # seconds after the fault


def _figures(before: list[float], after: list[float], first: float, failed: int) -> dict[str, Any]:
    healthy = quantiles(before[len(before) // 5 :])  # (the first ones warm up)
    told: dict[str, Any] = {"healthy": healthy["p50"], "healthy_p99": healthy["p99"], "first": first * 1e6, "failed": failed}
    return {**quantiles(after), **told, "count": len(after)}


def threads(make: type[Adapter], parameters: dict[str, Any]) -> dict[str, Any]:
    """In the main thread."""
    locks = make(parameters)
    locks.open()
    serial = 0

    def one() -> float:
        nonlocal serial
        serial += 1
        lock = locks.lock(f"bench:fault:{serial}")
        asked = perf_counter()
        held = locks.acquire(lock)
        took = perf_counter() - asked
        locks.release(held)
        return took

    before: list[float] = []
    end = perf_counter() + parameters["seconds"]
    while perf_counter() < end:
        before.append(one())
    step.wait()
    began, after, first, failed = perf_counter(), list[float](), 0.0, 0
    end = began + parameters["seconds"]
    while (now := perf_counter()) < end or not after:
        try:
            after.append(one())
        except Exception:
            failed += 1
            if now > began + LONGEST:
                raise
        else:
            first = first or (perf_counter() - began if failed else after[0])
    return _figures(before, after[1:] or after, first, failed)


async def tasks(make: type[Coroutines], parameters: dict[str, Any]) -> dict[str, Any]:
    """In one task."""
    locks = make(parameters)
    await locks.open()
    serial = 0

    async def one() -> float:
        nonlocal serial
        serial += 1
        lock = locks.lock(f"bench:fault:{serial}")
        asked = perf_counter()
        held = await locks.acquire(lock)
        took = perf_counter() - asked
        await locks.release(held)
        return took

    before: list[float] = []
    end = perf_counter() + parameters["seconds"]
    while perf_counter() < end:
        before.append(await one())
    step.wait()  # (the loop stands still meanwhile, as if it were busy: its next acquire is the first to meet the fault)
    began, after, first, failed = perf_counter(), list[float](), 0.0, 0
    end = began + parameters["seconds"]
    while (now := perf_counter()) < end or not after:
        try:
            after.append(await one())
        except Exception:
            failed += 1
            if now > began + LONGEST:
                raise
        else:
            first = first or (perf_counter() - began if failed else after[0])
    return _figures(before, after[1:] or after, first, failed)
