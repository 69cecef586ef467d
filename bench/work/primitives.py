"""Every primitive beside the exclusive lock, uncontended, in turn and in one process: what is compared has met the same machine.

Of holdfast only: nobody else has them all. Turns are of several uses each, of which the first does not count, since what comes before it (a
release that nobody waits for) is another's.

Figures, in µs (median): `lock`, `read`, `write` and `permit` (of four) acquired and released; `rate`: one call taken, and allowed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from time import perf_counter
from typing import Any

from .adapter import quantiles

IN_TURN = 10  # uses that count, of each
WARM_UP = 3  # turns that do not
PERMITS, CALLS = 4, 1_000_000


def _descriptions(locks: Any) -> dict[str, Any]:
    """What is acquired and released, by the figure's name. Each has a name of its own: nobody profits from what another left there."""
    return {
        "lock": locks.lock("bench:lock"),
        "read": locks.rwlock("bench:read").read(),
        "write": locks.rwlock("bench:write").write(),
        "permit": locks.semaphore("bench:permit", PERMITS),
    }


def _figures(times: dict[str, array[float]]) -> dict[str, Any]:
    return {what: quantiles(found)["p50"] for what, found in times.items()} | {"count": len(times["lock"])}


def threads(make: Callable[[dict[str, Any]], Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """In the main thread."""
    adapter = make(parameters)
    adapter.open()
    descriptions, rate = _descriptions(adapter.locks), adapter.locks.rate("bench:rate", CALLS, 1.0)
    acquire, release = adapter.acquire, adapter.release
    times = {what: array("d") for what in (*descriptions, "rate")}
    turn, end = 0, perf_counter() + parameters["seconds"]
    while turn <= WARM_UP or perf_counter() < end:
        turn += 1
        for what, description in descriptions.items():
            found = []
            for _ in range(IN_TURN + 1):
                began = perf_counter()
                release(acquire(description))
                found.append(perf_counter() - began)
            if turn > WARM_UP:
                times[what].extend(found[1:])
        for use in range(IN_TURN + 1):
            began = perf_counter()
            allowance = rate.take()
            took = perf_counter() - began
            assert allowance, "a refusal costs less"
            if turn > WARM_UP and use:
                times["rate"].append(took)
    adapter.close()
    return _figures(times)


async def tasks(make: Callable[[dict[str, Any]], Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """In one task."""
    adapter = make(parameters)
    await adapter.open()
    descriptions, rate = _descriptions(adapter.locks), adapter.locks.rate("bench:rate", CALLS, 1.0)
    acquire, release = adapter.acquire, adapter.release
    times = {what: array("d") for what in (*descriptions, "rate")}
    turn, end = 0, perf_counter() + parameters["seconds"]
    while turn <= WARM_UP or perf_counter() < end:
        turn += 1
        for what, description in descriptions.items():
            found = []
            for _ in range(IN_TURN + 1):
                began = perf_counter()
                await release(await acquire(description))
                found.append(perf_counter() - began)
            if turn > WARM_UP:
                times[what].extend(found[1:])
        for use in range(IN_TURN + 1):
            began = perf_counter()
            allowance = await rate.take()
            took = perf_counter() - began
            assert allowance, "a refusal costs less"
            if turn > WARM_UP and use:
                times["rate"].append(took)
    await adapter.close()
    return _figures(times)
