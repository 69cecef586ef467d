"""What persistence costs: a lock and a `once` on nodes that write nothing, each second, or always.

One process has a client for each of three sets of nodes and uses them in turn, so that all three
meet the same machine and the same disk. `bench.watching.persisting` has told the sets how to
persist before the first use. Of holdfast only.

Figures: `pair` and `once`, in µs (median), on nodes that write nothing; `pair_everysec`,
`pair_always`, `once_everysec` and `once_always`, as multiples of those.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from time import perf_counter
from typing import Any

from . import step
from .adapter import quantiles

SETS = ("none", "everysec", "always")  # what the first nodes do, the second ones, and the third ones
# Uses of each set that count. One more comes before them: the first one finds the work of another set in the caches.
IN_TURN = 5
WARM_UP = 2  # turns that do not count


def threads(make: Callable[[dict[str, Any]], Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """In the main thread."""
    size = len(parameters["urls"]) // len(SETS)
    adapters = [make(parameters | {"urls": parameters["urls"][i * size : (i + 1) * size]}) for i in range(len(SETS))]
    for adapter in adapters:
        adapter.open()
    step.wait()
    times = {(what, kind): array("d") for what in ("pair", "once") for kind in SETS}
    turn, end = 0, perf_counter() + parameters["seconds"]
    while turn <= WARM_UP or perf_counter() < end:
        turn += 1
        for kind, adapter in zip(SETS, adapters, strict=True):
            pairs, calls = _uses(adapter, turn)
            if turn > WARM_UP:
                times["pair", kind].extend(pairs[1:])
                times["once", kind].extend(calls[1:])
    for adapter in adapters:
        adapter.close()
    middle = {key: quantiles(found)["p50"] for key, found in times.items()}
    figures: dict[str, Any] = {"count": len(times["pair", "none"])}
    for what in ("pair", "once"):
        figures[what] = middle[what, "none"]
        figures |= {f"{what}_{kind}": middle[what, kind] / middle[what, "none"] for kind in SETS[1:]}
    return figures


def _uses(adapter: Any, turn: int) -> tuple[list[float], list[float]]:
    """Some pairs and some runs of `once`, each with a key of its own: how long each took."""
    lock, pairs, calls = adapter.lock("bench:pair"), list[float](), list[float]()
    for _ in range(IN_TURN + 1):
        began = perf_counter()
        adapter.release(adapter.acquire(lock))
        pairs.append(perf_counter() - began)
    for use in range(IN_TURN + 1):
        once = adapter.locks.once(f"bench:{turn}:{use}", keep=60)
        began = perf_counter()
        once.run(lambda: "done")
        calls.append(perf_counter() - began)
    return pairs, calls
