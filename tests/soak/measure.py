"""What a process has in its hands: memory, threads, files, tasks, timers, and everything that holdfast keeps, counted by class and table.

Knows the interpreter and /proc. Must not know what is kept where: it looks at all objects of holdfast's, so that what
is new there is counted, too.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sized
from typing import Any

ALLOWED = {  # how much more there may be at rest: so much, and this share of what there was. Of everything else: nothing
    "memory, MiB": (2.0, 0.05),  # what the allocator holds is not all in use
    "server's memory, MiB": (1.0, 0.1),
    "all objects": (1000, 0.02),  # the interpreter has caches
    "in holdfast.engine.recorder.Recorder.counts": (20, 0.0),  # one for each kind of event, some of which are rare
    # Of each node the run that was killed last: which of them are remembered depends on when the next connection was made.
    "in holdfast.wire.server.KnownServer._left": (5, 0.0),
    "in holdfast.engine.health.Health._runs": (5, 0.0),
}
CONTAINERS = "dict", "set", "list", "deque", "Counter", "WeakSet", "WeakValueDictionary", "WeakKeyDictionary"


def measured(loop: asyncio.AbstractEventLoop | None = None) -> dict[str, float]:
    """Everything by name. `loop`: the one that a client lives in, if it does."""
    gc.collect()
    gc.collect()
    _trim()
    found: dict[str, float] = {
        "memory, MiB": memory(),
        "threads": threads(),
        "files": files(),
        "all objects": len(gc.get_objects()),
    }
    if loop is not None:
        found["tasks"] = len(asyncio.all_tasks(loop))
        found["timers"] = sum(not it.cancelled() for it in loop._scheduled)  # type: ignore[attr-defined]  # (nobody else knows)
    return found | _kept()


def grown(before: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    """What there is more of, beyond what each may."""
    wrong = []
    for what, now in after.items():
        then = before.get(what, 0)
        some, share = ALLOWED.get(what, (0, 0.0))
        if now > then + some + then * share:
            wrong.append(f"{what}: {then:g} before, {now:g} after")
    return wrong


def memory() -> float:
    """What the process has of its own, in MiB; files that it shares are not counted."""
    return _status("RssAnon") / 1024


def threads() -> int:
    """How many there are, Python's or not."""
    return _status("Threads")


def files() -> int:
    """How many are open, sockets among them."""
    return len(os.listdir("/proc/self/fd")) - 1  # (listing opens one)


def _status(name: str) -> int:
    with open("/proc/self/status") as told:
        return next(int(line.split()[1]) for line in told if line.startswith(f"{name}:"))


def _trim() -> None:
    """Have the allocator give back what it can, where it can be asked."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _kept() -> dict[str, float]:
    """holdfast's own objects by class; and how much is in their tables, and in those of its modules."""
    objects: Counter[str] = Counter()
    tables: Counter[str] = Counter()
    for it in gc.get_objects():
        kind = type(it)
        if str(getattr(kind, "__module__", "")).startswith("holdfast"):
            label = f"{kind.__module__}.{kind.__qualname__}"
            objects[label] += 1
            for name, value in _attributes(it):
                _count(tables, f"{label}.{name}", value)
    for label, module in list(sys.modules.items()):
        if label.startswith("holdfast"):
            for name, value in list(vars(module).items()):
                _count(tables, f"{label}.{name}", value)
    return {**objects, **{f"in {name}": size for name, size in tables.items()}}


def _attributes(of: Any) -> Iterator[tuple[str, Any]]:
    yield from list(getattr(of, "__dict__", {}).items())
    for kind in type(of).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(of, name) and name not in ("__weakref__", "__dict__"):
                yield name, getattr(of, name)


def _count(tables: Counter[str], name: str, value: object) -> None:
    if type(value).__name__ in CONTAINERS and isinstance(value, Sized):
        tables[name] += len(value)
