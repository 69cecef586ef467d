"""What the harness does while a contender works: it counts what the nodes see, or strikes one of them.

Knows the steps of the work, and the nodes' counters. Must not know scenarios.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from time import sleep

from .cluster import Cluster
from .runner import Row

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
    """What the nodes see in `seconds`: `seen` (calls by command), and `reads` a second and node."""

    def watch(process: subprocess.Popen[str], cluster: Cluster) -> Row:
        if not step(process):
            return {}
        cluster.empty_counters()
        if steps > 1:
            go(process)
        sleep(seconds)
        seen, reads = cluster.calls(), cluster.reads()
        if steps > 1 and not step(process):
            return {}
        left = [wire.say(b"DBSIZE") for wire in cluster.wires]
        go(process)
        calls = {name: sum(node.get(name, (0, 0))[0] for node in seen) for node in seen for name in node}
        return {"seen": calls, "writes": sum(it - 2 for it in reads) / len(reads) / seconds, "keys": left, "watched": seconds}

    return watch


def struck(blow: Callable[[Cluster], None]) -> Watch:
    """Something happens to the nodes between two steps."""

    def watch(process: subprocess.Popen[str], cluster: Cluster) -> Row:
        if step(process):
            blow(cluster)
            go(process)
        return {}

    return watch


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
