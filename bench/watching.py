"""What the harness does while a contender works: it counts what the nodes see, or strikes one of them.

Knows the steps of the work, and the nodes' counters. Must not know scenarios.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from itertools import pairwise
from statistics import mean, median
from time import monotonic, perf_counter, sleep

from .cluster import Cluster, used
from .runner import Row

PATIENCE = 20.0  # seconds for a node to do what it is told

Watch = Callable[[subprocess.Popen[str], Cluster], Row]


def step(process: subprocess.Popen[str]) -> bool:
    """Wait until the contender has come to a `step`. False: it has ended before."""
    assert process.stdout is not None
    return process.stdout.readline() == "ready\n"


def go(process: subprocess.Popen[str]) -> None:
    """Send it on."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def counted(seconds: float, steps: int = 1) -> Watch:
    """What the nodes see in `seconds`: `seen` (calls by command), `reads` a second and node, and `worked` (all their seconds of CPU)."""

    def watch(process: subprocess.Popen[str], cluster: Cluster) -> Row:
        if not step(process):
            return {}
        cluster.empty_counters()
        if steps > 1:
            go(process)
        worked = used(cluster.pids)
        sleep(seconds)
        worked, seen, reads = used(cluster.pids) - worked, cluster.calls(), cluster.reads()
        if steps > 1 and not step(process):
            return {}
        left = [wire.say(b"DBSIZE") for wire in cluster.wires]
        go(process)
        calls = {name: sum(node.get(name, (0, 0))[0] for node in seen) for node in seen for name in node}
        writes = sum(it - 2 for it in reads) / len(reads) / seconds
        return {"seen": calls, "writes": writes, "keys": left, "watched": seconds, "worked": worked}

    return watch


WINDOW = 0.1  # seconds


def bursts(seconds: float, after: float) -> Watch:
    """Waits `after` seconds. `peak`: how many commands a node gets in the busiest 100 ms of `seconds`, over those in the mean ones."""

    def watch(process: subprocess.Popen[str], cluster: Cluster) -> Row:
        if not step(process):
            return {}
        go(process)
        sleep(after)
        cluster.empty_counters()
        began, seen = monotonic(), [0]
        for window in range(1, round(seconds / WINDOW) + 1):
            sleep(max(0.0, began + window * WINDOW - monotonic()))
            seen.append(cluster.calls()[0].get("evalsha", (0, 0))[0])
        if not step(process):
            return {}
        go(process)
        each = [after - before for before, after in pairwise(seen)]
        return {"peak": max(each) / mean(each)}

    return watch


def struck(blow: Callable[[Cluster], None]) -> Watch:
    """Something happens to the nodes between two steps."""

    def watch(process: subprocess.Popen[str], cluster: Cluster) -> Row:
        if step(process):
            blow(cluster)
            go(process)
        return {}

    return watch


def persisting(process: subprocess.Popen[str], cluster: Cluster) -> Row:
    """A third of the nodes writes nothing to disk, the next third each second, the last one before each answer."""
    if not step(process):
        return {}
    size = len(cluster.wires) // 3
    for number, wire in enumerate(cluster.wires[size:]):
        wire.say(b"CONFIG", b"SET", b"appendfsync", b"everysec" if number < size else b"always")
        wire.say(b"CONFIG", b"SET", b"appendonly", b"yes")
        until = monotonic() + PATIENCE
        # The node begins its file aside, and persists as it was told to only when that is done.
        while not _persists(wire.info("persistence")):
            if monotonic() > until:
                raise TimeoutError(f"{cluster.urls[size + number]}: no append-only file after {PATIENCE:.0f} s")
            sleep(0.01)
    go(process)
    return {}


def _persists(told: dict[str, str]) -> bool:
    rewriting = told["aof_rewrite_in_progress"] == "1" or told["aof_rewrite_scheduled"] == "1"
    return told["aof_enabled"] == "1" and not rewriting


def disk(row: Row, cluster: Cluster) -> Row:
    """`fsync`: the median microseconds of a small write and its fsync, in a file beside those of the nodes."""
    folder = cluster.wires[-1].say(b"CONFIG", b"GET", b"dir")[1].decode()
    sync, found = getattr(os, "fdatasync", os.fsync), list[float]()
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(100):
            began = perf_counter()
            file.write(b"x" * 300)
            sync(file.fileno())
            found.append(perf_counter() - began)
    return {"fsync": median(found) * 1e6}


def reset(process: subprocess.Popen[str], cluster: Cluster) -> Row:
    """The counters begin at nought when the contender goes on."""
    if step(process):
        cluster.empty_counters()
        go(process)
    return {}


def commands_each(row: Row, cluster: Cluster) -> Row:
    """Commands a node for each acquisition."""
    calls = [it.get(name, (0, 0))[0] for it in cluster.calls() for name in row["asks"]]
    return {"commands": sum(calls) / len(cluster.wires) / row["asked"]}


def commands_seen(row: Row, cluster: Cluster) -> Row:
    """Commands a second and node, of those that the contender sends."""
    return {"commands": sum(row["seen"].get(it, 0) for it in row["asks"]) / len(cluster.wires) / row["watched"]}


def held_seen(row: Row, cluster: Cluster) -> Row:
    """The same; and how many leases have lost a majority of their keys, at least."""
    per_lease = 2 if row["asks"] == ["evalsha"] and max(row["keys"]) > row["leases"] else 1  # with a fence for each name
    return commands_seen(row, cluster) | {"lost": max(0, row["leases"] - sorted(row["keys"])[len(row["keys"]) // 2] // per_lease)}


def server_time(row: Row, cluster: Cluster) -> Row:
    """Microseconds of a call, by the node that measures itself."""
    return {"p50": cluster.calls()[0][row["command"]][1]}
