"""A holder that computes on after its release, in another process than who waits: how soon does the next one have the lock?

Figures: `p50` and `p99` of the time from the call of `release` to the next holder's return from `acquire`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from time import perf_counter, sleep
from typing import Any

from .adapter import Adapter, quantiles

COMPUTES = 0.02  # seconds after each release
QUEUED = 0.01  # seconds until the other one certainly waits


def threads(make: type[Adapter], parameters: dict[str, Any]) -> dict[str, Any]:
    """Both sides: the holder starts the one that waits."""
    locks = make(parameters)
    locks.open()
    lock = locks.lock("bench:computing")
    if parameters.get("waits"):
        for _ in sys.stdin:
            held = locks.acquire(lock)
            got = perf_counter()
            locks.release(held)
            print(got, flush=True)
        locks.close()
        return {}
    command = [sys.executable, "-m", "bench.work", "computing", json.dumps(parameters | {"waits": True})]
    gaps: list[float] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None and other.stdout is not None
        end = 0.0
        while perf_counter() < end or len(gaps) < 5:
            held = locks.acquire(lock)
            other.stdin.write("\n")
            other.stdin.flush()
            sleep(QUEUED if gaps else 1.0)  # (at first the other one has to connect)
            end = end or perf_counter() + parameters["seconds"]
            gone = perf_counter()
            locks.release(held)
            while perf_counter() < gone + COMPUTES:
                pass
            gaps.append(float(other.stdout.readline()) - gone)
        other.stdin.close()
    locks.close()
    return {**quantiles(gaps[1:]), "count": len(gaps) - 1}
