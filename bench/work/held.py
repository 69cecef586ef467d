"""A thousand leases that are held, and renewed by whatever the library has for that.

Figures: `cpu` (the share of a core, in percent), `threads`, `memory` (MiB of this process, more than before the first lease), and what the
harness has from the nodes: `lost` (keys that were gone at the end), `commands` and `writes`, a second and node.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from . import step
from .adapter import Adapter, Coroutines
from .start import memory


def _threads() -> int:
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()


def threads(make: type[Adapter], parameters: dict[str, Any]) -> dict[str, Any]:
    """Acquired by the main thread."""
    locks = make(parameters | {"renew": True})
    locks.open()
    before = memory()
    held = [locks.acquire(locks.lock(f"bench:held:{i}")) for i in range(parameters["leases"])]
    step.wait()
    cpu, began = process_time(), perf_counter()
    step.wait()
    cpu, took = process_time() - cpu, perf_counter() - began
    return {"cpu": cpu / took * 100, "threads": _threads(), "memory": memory() - before, "leases": len(held), "asks": make.asks}


async def tasks(make: type[Coroutines], parameters: dict[str, Any]) -> dict[str, Any]:
    """Acquired by one task: `together` at once, by each of `clients` in turn."""
    clients = [make(parameters | {"renew": True}) for _ in range(parameters.get("clients", 1))]
    for locks in clients:
        await locks.open()
    before = memory()
    held, together = [], parameters.get("together", 1)
    for first in range(0, parameters["leases"], together):
        some = range(first, min(first + together, parameters["leases"]))
        asked = [(clients[i % len(clients)], f"bench:held:{i}") for i in some]
        held += await asyncio.gather(*[locks.acquire(locks.lock(name)) for locks, name in asked])
    await step.waited()
    cpu, began = process_time(), perf_counter()
    await step.waited()
    cpu, took = process_time() - cpu, perf_counter() - began
    return {"cpu": cpu / took * 100, "threads": _threads(), "memory": memory() - before, "leases": len(held), "asks": make.asks}
