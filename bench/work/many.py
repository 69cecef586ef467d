"""Many locks at once: tasks acquire and release, each its share of a thousand names in turn (of more, if there are more tasks).

Figures: `rate` (locks a second), `cpu` of this process for a pair, `p50` and `p99` of a pair. The C floor and `batches` do `tasks` names in
one write a node, then their releases.
"""

from __future__ import annotations

import asyncio
from array import array
from time import perf_counter, process_time
from typing import Any

from .adapter import Coroutines, quantiles

NAMES = 1000
WARM_UP = 0.4


async def tasks(make: type[Coroutines], parameters: dict[str, Any]) -> dict[str, Any]:
    """As many tasks as `tasks` says. A description is made for each use, as programs do that lock many names."""
    locks = make(parameters)
    await locks.open()
    cpu, began = process_time(), perf_counter()
    warm = began + WARM_UP
    end = warm + parameters["seconds"]
    pairs, done = array("d"), 0

    async def work(names: list[str]) -> None:
        nonlocal done
        while True:
            for name in names:
                asked = perf_counter()
                if asked >= end:
                    return
                await locks.release(await locks.acquire(locks.lock(name)))
                done += 1
                now = perf_counter()
                if now >= warm:
                    pairs.append(now - asked)

    count = parameters["tasks"]
    names = [f"bench:many:{i}" for i in range(max(NAMES, count))]
    await asyncio.gather(*[work(names[i::count]) for i in range(count)])
    # Rate and CPU are of all that was done, from the first to the last: of the slowest, hardly a pair begins and ends within the time.
    cpu, took = process_time() - cpu, perf_counter() - began
    figures = {**quantiles(pairs), "rate": done / took, "cpu": cpu / done * 1e6, "count": done}
    await locks.close()
    return figures


def threads(make: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """Whole batches, by one thread. (Only a floor can do that: `ask` takes bytes.)"""
    locks = make(parameters)
    all_names = [locks.lock(f"bench:many:{i}") for i in range(parameters["tasks"])]
    batches, count = array("d"), len(all_names)
    warm = perf_counter() + WARM_UP
    cpu = began = 0.0
    while (asked := perf_counter()) < warm + parameters["seconds"]:
        if asked >= warm and not cpu:
            cpu, began = process_time(), asked
            batches = array("d")
        tokens = [it.token() for it in all_names]
        granted = locks.ask(b"".join([it.request(token) for it, token in zip(all_names, tokens, strict=True)]), count)
        if not all(sum(map(it.granted, yes)) >= locks.quorum for it, yes in zip(all_names, granted, strict=True)):
            raise RuntimeError("not granted")
        locks.ask(b"".join([it.release(token) for it, token in zip(all_names, tokens, strict=True)]), count)
        batches.append(perf_counter() - asked)
    cpu, took, done = process_time() - cpu, perf_counter() - began, len(batches) * count
    return {**quantiles(batches), "rate": done / took, "cpu": cpu / done * 1e6, "count": done}
