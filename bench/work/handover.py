"""Hand-over under contention: many who want one name, in one process or in several.

Each of `waiters` asks, holds for `hold` seconds, lets go and thinks for `think` seconds, so that the lock has to move. By the monotonic
clock, which processes share, each notes when it asked, got and let go (just before it calls `release`). Two holders at once: no figures.

Figures: `p50` and `p99` of the gap (from letting go to the next one's return from `acquire`); `rate`: sections a second; `jain`: Jain's
index of who got it how often; `longest`: wait in seconds; `unserved`: who never got it; `overtaken`: how often somebody was served before
one who had asked 20 ms earlier or more; `changes`: the share of hand-overs to another waiter.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from itertools import pairwise
from time import monotonic, sleep
from typing import Any

from .adapter import Adapter, Coroutines, quantiles

SETTLING = 0.3  # seconds at the beginning that do not count
GRACE = 3.0  # seconds at the end for who still waits
CLEARLY = 0.02  # seconds by which one has asked earlier than another

Log = list[tuple[float, float, float, int]]  # asked, got, let go, who


def threads(make: type[Adapter], parameters: dict[str, Any]) -> dict[str, Any]:
    """A thread for each of those who wait."""
    if parameters["processes"] > 1:
        return _together(parameters)
    locks = make(parameters)
    locks.open()
    start, end, log = _times(parameters)
    waiting = 0

    def work(who: int) -> None:
        nonlocal waiting
        lock = locks.lock("bench:handover")
        first = who == 0  # holds the lock until all have asked: nobody's start is a race
        sleep(max(0.0, start - (0.2 if first else 0.0) - monotonic()))
        while (asked := monotonic()) < end:
            waiting += 1
            held = locks.acquire(lock)
            got = monotonic()
            sleep(parameters["hold"] if not first else max(0.0, start + 0.15 - got))
            first = False
            gone = monotonic()
            locks.release(held)
            waiting -= 1
            log.append((asked, got, gone, who))
            sleep(parameters["think"])

    own = range(parameters.get("first", 0), parameters.get("first", 0) + parameters["waiters"])
    crowd = [threading.Thread(target=work, args=(who,), daemon=True) for who in own]
    for it in crowd:
        it.start()
    for it in crowd:
        it.join(max(0.0, end + GRACE - monotonic()))
    return _told(parameters, log, waiting, make.asks)


async def tasks(make: type[Coroutines], parameters: dict[str, Any]) -> dict[str, Any]:
    """A task for each of those who wait."""
    if parameters["processes"] > 1:
        return await asyncio.to_thread(_together, parameters)
    locks = make(parameters)
    await locks.open()
    start, end, log = _times(parameters)
    waiting = 0

    async def work(who: int) -> None:
        nonlocal waiting
        lock = locks.lock("bench:handover")
        first = who == 0
        await asyncio.sleep(max(0.0, start - (0.2 if first else 0.0) - monotonic()))
        while (asked := monotonic()) < end:
            waiting += 1
            held = await locks.acquire(lock)
            got = monotonic()
            await asyncio.sleep(parameters["hold"] if not first else max(0.0, start + 0.15 - got))
            first = False
            gone = monotonic()
            await locks.release(held)
            waiting -= 1
            log.append((asked, got, gone, who))
            await asyncio.sleep(parameters["think"])

    own = range(parameters.get("first", 0), parameters.get("first", 0) + parameters["waiters"])
    crowd = [asyncio.create_task(work(who)) for who in own]
    await asyncio.wait(crowd, timeout=end + GRACE - monotonic())
    for it in crowd:
        if it.done():
            it.result()
        else:
            it.cancel()
    return _told(parameters, log, waiting, make.asks)


def _times(parameters: dict[str, Any]) -> tuple[float, float, Log]:
    """When all begin and end. Of several processes, none begins before all have loaded and connected."""
    if parameters.get("raw"):
        print("ready", flush=True)
        start = float(sys.stdin.readline())
    else:
        start = monotonic() + 0.3
    return start, start + SETTLING + parameters["seconds"], []


def _together(parameters: dict[str, Any]) -> dict[str, Any]:
    """Several processes, and what they have noted."""
    processes, waiters = parameters["processes"], parameters["waiters"]
    share = waiters // processes
    children = []
    for i in range(processes):
        own = parameters | {"processes": 1, "waiters": share, "first": i * share, "raw": True}
        command = [sys.executable, "-m", "bench.work", "handover", json.dumps(own)]
        children.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    start = monotonic() + 0.3
    log: Log = []
    waiting, asks = 0, []
    for child in children:
        assert child.stdin is not None
        try:
            child.stdin.write(f"{start}\n")
            child.stdin.flush()
        except BrokenPipeError:  # it has failed: it is asked below
            pass
    for child in children:
        output, errors = child.communicate()
        if child.returncode:
            for each in children:
                each.kill()
            raise SystemExit(errors)
        told = json.loads(output.splitlines()[-1])
        log += [tuple(it) for it in told["log"]]
        waiting += told["waiting"]
        asks = told["asks"]
    return figures(log, waiting, asks, start + SETTLING, waiters)


def _told(parameters: dict[str, Any], log: Log, waiting: int, asks: tuple[str, ...]) -> dict[str, Any]:
    if parameters.get("raw"):
        return {"log": list(log), "waiting": waiting, "asks": asks}
    since = min((it[1] for it in log), default=0.0) + SETTLING
    return figures(list(log), waiting, list(asks), since, parameters["waiters"])


def figures(log: Log, waiting: int, asks: list[str], since: float, waiters: int) -> dict[str, Any]:
    """What the log says from `since` on. `waiting`: how many had asked and not got it when the run ended."""
    log.sort(key=lambda it: it[1])
    overlaps = sum(after[1] < before[2] for before, after in pairwise(log))
    steady = [(before, after) for before, after in pairwise(log) if before[2] >= since]
    if overlaps:
        raise SystemExit(f"two holders at once, {overlaps} times of {len(log)}")
    if len(steady) < 2:
        raise SystemExit(f"only {len(log)} acquisitions in all that time")
    counts = dict.fromkeys(range(waiters), 0)
    for _, after in steady:
        counts[after[3]] += 1
    overtaken, earliest = 0, float("inf")  # when the first one had asked of those who are served later
    for _, after in reversed(steady):
        overtaken += earliest < after[0] - CLEARLY
        earliest = min(earliest, after[0])
    took = steady[-1][1][1] - steady[0][0][1]
    return {
        **quantiles([after[1] - before[2] for before, after in steady if after[0] < before[2]]),
        "rate": len(steady) / took,
        "jain": sum(counts.values()) ** 2 / (waiters * sum(it**2 for it in counts.values())),
        "longest": max(after[1] - after[0] for _, after in steady),
        "unserved": sum(not it for it in counts.values()),
        "overtaken": overtaken,
        "changes": sum(before[3] != after[3] for before, after in steady) / len(steady),
        "count": len(steady),
        "asked": len(log) + waiting,
        "asks": asks,
    }
