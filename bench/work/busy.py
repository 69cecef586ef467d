"""A thread that computes without a pause, beside the one that locks: who needs the interpreter often, waits often.

Figures: `mean`, `p50` and `p99` of the acquire. (Some acquires keep the interpreter all the way, others lose it several times: only the
mean has both.)
"""

from __future__ import annotations

import threading
from time import perf_counter
from typing import Any

from .adapter import Adapter, quantiles


def threads(make: type[Adapter], parameters: dict[str, Any]) -> dict[str, Any]:
    """Acquires and releases while another thread counts."""
    locks = make(parameters)
    locks.open()
    lock, done = locks.lock("bench:busy"), False
    locks.release(locks.acquire(lock))

    def burn() -> None:
        n = 0
        while not done:
            n += 1

    burner = threading.Thread(target=burn)
    burner.start()
    acquires = []
    end = perf_counter() + parameters["seconds"]
    while (asked := perf_counter()) < end:
        held = locks.acquire(lock)
        acquires.append(perf_counter() - asked)
        locks.release(held)
    done = True
    burner.join()
    locks.close()
    return {**quantiles(acquires), "mean": sum(acquires) / len(acquires) * 1e6, "count": len(acquires)}
