"""Threads on names of their own, which share a client.

Figures: `rate` (locks a second, of all threads), `p50` and `p99` of a pair, `cpu` of this process for a pair.
"""

from __future__ import annotations

import threading
from array import array
from time import perf_counter, process_time, sleep
from typing import Any

from .adapter import Adapter, quantiles

WARM_UP = 0.3


def threads(make: type[Adapter], parameters: dict[str, Any]) -> dict[str, Any]:
    """As many threads as `threads` says."""
    locks = make(parameters)
    locks.open()
    warm = perf_counter() + WARM_UP
    end = warm + parameters["seconds"]
    times = [array("d") for _ in range(parameters["threads"])]

    def work(i: int) -> None:
        lock, mine = locks.lock(f"bench:crowd:{i}"), times[i]
        while (asked := perf_counter()) < end:
            locks.release(locks.acquire(lock))
            if asked >= warm:
                mine.append(perf_counter() - asked)

    crowd = [threading.Thread(target=work, args=(i,)) for i in range(len(times))]
    for it in crowd:
        it.start()
    sleep(max(0.0, warm - perf_counter()))
    cpu = process_time()
    for it in crowd:
        it.join()
    cpu = process_time() - cpu
    pairs = [it for mine in times for it in mine]
    locks.close()
    return {**quantiles(pairs), "rate": len(pairs) / parameters["seconds"], "cpu": cpu / len(pairs) * 1e6, "count": len(pairs)}
