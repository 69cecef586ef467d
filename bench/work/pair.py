"""Uncontended: one after the other acquires and releases one name.

Figures: `p50` and `p99` of a pair, `acquire` and `acquire_p99` of the acquire alone, `cpu` of this process for a pair.
"""

from __future__ import annotations

from array import array
from time import perf_counter, process_time
from typing import Any

from .adapter import Adapter, Coroutines, quantiles

WARM_UP = 0.25


def _figures(acquires: array[float], pairs: array[float], cpu: float) -> dict[str, Any]:
    alone = quantiles(acquires)
    return {**quantiles(pairs), "acquire": alone["p50"], "acquire_p99": alone["p99"], "cpu": cpu / len(pairs) * 1e6, "count": len(pairs)}


def threads(make: type[Adapter], parameters: dict[str, Any]) -> dict[str, Any]:
    """In the main thread."""
    locks = make(parameters)
    locks.open()
    lock, acquire, release = locks.lock("bench:pair"), locks.acquire, locks.release
    warm = perf_counter() + WARM_UP
    while perf_counter() < warm:
        release(acquire(lock))
    acquires, pairs = array("d"), array("d")
    cpu, end = process_time(), perf_counter() + parameters["seconds"]
    while (began := perf_counter()) < end:
        held = acquire(lock)
        got = perf_counter()
        release(held)
        pairs.append(perf_counter() - began)
        acquires.append(got - began)
    figures = _figures(acquires, pairs, process_time() - cpu)
    locks.close()
    return figures


async def tasks(make: type[Coroutines], parameters: dict[str, Any]) -> dict[str, Any]:
    """In one task."""
    locks = make(parameters)
    await locks.open()
    lock, acquire, release = locks.lock("bench:pair"), locks.acquire, locks.release
    warm = perf_counter() + WARM_UP
    while perf_counter() < warm:
        await release(await acquire(lock))
    acquires, pairs = array("d"), array("d")
    cpu, end = process_time(), perf_counter() + parameters["seconds"]
    while (began := perf_counter()) < end:
        held = await acquire(lock)
        got = perf_counter()
        await release(held)
        pairs.append(perf_counter() - began)
        acquires.append(got - began)
    figures = _figures(acquires, pairs, process_time() - cpu)
    await locks.close()
    return figures
