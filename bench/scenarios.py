"""What is measured: for each scenario its cases, with who takes part, where it runs and how often.

Knows works, contenders and the nodes' counters. Must not know what the figures ought to be (`bars`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import sleep

from . import catalogue
from .catalogue import ASYNCIO, OURS, PEER, THREADS, Contender, named, peers
from .cluster import Cluster
from .runner import Case, Row

Watch = Callable[[subprocess.Popen[str], Cluster], Row]


@dataclass(frozen=True)
class Scenario:
    """Cases that are measured in the same rounds. `rounds`: how many, unless asked for otherwise."""

    name: str
    title: str
    cases: tuple[Case, ...]
    rounds: int = 9


# ------------------------------------------------ what the harness does meanwhile


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


# ------------------------------------------------ pair


def pairs(nodes: int, delay: float = 0.0) -> Case:
    """Every contender that can use so many nodes."""
    alone = tuple(it for it in catalogue.ALL if it.kind != PEER and not any(word in it.name for word in ("coalescing", "batches", "push")))
    wanted = alone + peers(THREADS, ASYNCIO, nodes=nodes)
    if delay:
        wanted = tuple(it for it in wanted if it.face != "uvloop")
    needed = {"redis-py Lock", "redis-py in turn", "pottery"}
    if delay:
        needed |= {"redlock-py", "pyredlock", "redlock-ng"}
    seldom = frozenset(it.name for it in wanted if (it.kind == PEER and it.name not in needed) or (nodes == 3 and it.kind != OURS))
    name = f"pair, {nodes} node{'s' * (nodes > 1)}" + (f", {delay:g} ms" if delay else "")
    return Case(name, "pair", wanted, nodes, delay, seldom=seldom)


PAIR = Scenario("pair", "One lock, uncontended: acquire and release", tuple(pairs(nodes) for nodes in (1, 3, 5)))
DELAYED = Scenario("delay", "The same over a network", (pairs(5, 0.3), pairs(5, 1.0), pairs(5, 5.0)))

# ------------------------------------------------ many


def _many(tasks: int) -> Case:
    floors = [it for it in catalogue.ALL if "coalescing" in it.name or "batches" in it.name]
    wanted = (*named("holdfast asyncio", "holdfast asyncio confirmed", "holdfast uvloop confirmed"), *floors)
    wanted += (*named("floor: asyncio, plain", "floor: asyncio, scripts"), *peers(ASYNCIO, nodes=5))
    return Case(f"many, {tasks:,} tasks", "many", wanted, pin="split", parameters={"tasks": tasks}, seldom=frozenset({"pottery asyncio"}))


MANY = Scenario("many", "Many locks at once: 1,000 names", (_many(100), _many(1000)))

# ------------------------------------------------ threads


def _crowd(threads: int) -> Case:
    wanted = named("holdfast", "holdfast confirmed", "redis-py in turn", "pottery", "redlock-py", "pyredlock", "redlock-ng")
    seldom = frozenset(it.name for it in wanted if it.kind == PEER)
    name = f"{threads} thread{'s' * (threads > 1)}"
    return Case(name, "crowd", wanted, pin="none", parameters={"threads": threads}, seldom=seldom)


CROWD = Scenario("threads", "Threads on names of their own", (_crowd(1), _crowd(4), _crowd(16)))
BUSY = Scenario(
    "busy",
    "Beside a thread that computes",
    (
        Case("computing thread, 1 node", "busy", named("holdfast", "redis-py Lock", "python-redis-lock"), 1, pin="none"),
        Case("computing thread, 5 nodes", "busy", named("holdfast", "redis-py in turn", "pottery", "pyredlock"), pin="none"),
        Case("computing holder", "computing", named("holdfast", "floor: push by hand"), pin="none"),
    ),
)

# ------------------------------------------------ hand-over

WAITERS = (
    *named("holdfast", "holdfast asyncio", "floor: push by hand", "floor: push by hand, asyncio"),
    *(it for it in peers(THREADS, ASYNCIO, nodes=5)),
)


def _handover(waiters: int, processes: int) -> Case:
    name = f"{waiters} waiters in {'one process' if processes == 1 else 'four'}"
    parameters = {"waiters": waiters, "processes": processes, "hold": 0.001, "think": 0.002}
    seldom = frozenset(it.name for it in WAITERS if it.kind == PEER)
    return Case(name, "handover", WAITERS, 5, 0, "none", parameters, after=commands_each, seconds=1.5, patience=15, seldom=seldom)


def _one_node() -> Case:
    wanted = (
        *named("holdfast", "holdfast asyncio", "floor: push by hand"),
        *(it for it in peers(THREADS, ASYNCIO, nodes=1) if it.most == 1),
    )
    parameters = {"waiters": 64, "processes": 4, "hold": 0.001, "think": 0.002}
    seldom = frozenset(it.name for it in wanted if it.kind == PEER)
    name = "64 waiters in four, one node"
    return Case(name, "handover", wanted, 1, 0, "none", parameters, after=commands_each, seconds=1.5, patience=15, seldom=seldom)


_waiting = Case(
    "64 wait for 2 s",
    "waiting",
    tuple(it for it in WAITERS if it.kind != PEER or it.name in ("redlock-ng", "redis-py in turn")),
    pin="none",
    parameters={"waiters": 64},
    watch=counted(2.0),
    after=commands_seen,
    seldom=frozenset({"redlock-ng", "redis-py in turn"}),
)
HANDOVER = Scenario(
    "handover",
    "Hand-over under contention",
    (_handover(8, 1), _handover(8, 4), _handover(64, 1), _handover(64, 4), _one_node(), _waiting),
    rounds=5,
)

# ------------------------------------------------ faults

FAULTS = Scenario(
    "faults",
    "One of five nodes dead, or frozen",
    tuple(
        Case(
            f"one node {name}",
            "faults",
            (*named("holdfast", "holdfast asyncio"), *peers(THREADS, ASYNCIO, nodes=5)),
            pin="none",
            watch=struck(blow),
            own_servers=True,
            patience=16,
            seldom=frozenset(it.name for it in peers(THREADS, ASYNCIO, nodes=5)),
        )
        for name, blow in (("dead", lambda cluster: cluster.nodes.kill(0)), ("frozen", lambda cluster: cluster.nodes.freeze(0)))
    ),
    rounds=5,
)

# ------------------------------------------------ held

HELD = Scenario(
    "held",
    "1,000 leases that are held and renewed, ttl 10 s",
    (
        Case(
            "1,000 leases, 5 nodes",
            "held",
            named("holdfast", "holdfast asyncio", "aioredlock"),
            pin="split",
            parameters={"leases": 1000},
            watch=counted(12.0, steps=2),
            after=held_seen,
            patience=40,
        ),
        Case(
            "1,000 leases, 1 node",
            "held",
            named("holdfast", "python-redis-lock", "aioredlock"),
            1,
            pin="split",
            parameters={"leases": 1000},
            watch=counted(12.0, steps=2),
            after=held_seen,
            patience=40,
            seldom=frozenset({"holdfast"}),
        ),
    ),
    rounds=3,
)

# ------------------------------------------------ start, server time


def _import(module: str, environment: str, kind: str = PEER) -> Contender:
    return Contender(f"import {module}", kind, THREADS, environment, module)


IMPORTS = (
    _import("holdfast", "holdfast", OURS), _import("holdfast.aio", "holdfast", OURS), _import("asyncio", "holdfast", catalogue.FLOOR),
    _import("redis", "redis"), _import("redis_lock", "python-redis-lock"), _import("pottery", "pottery"), _import("redlock", "redlock-py"),
    _import("pyredlock", "pyredlock"), _import("aioredlock", "aioredlock"), _import("coredis", "coredis"),
)  # fmt: skip
START = Scenario(
    "start",
    "Imports, and the way to a first lock",
    (
        Case("import", "start", IMPORTS, pin="split"),
        Case("Holdfast.local()", "start", (Contender("Holdfast.local()", OURS, THREADS, "holdfast", "local"),), pin="none"),
    ),
)


def _server(half: str) -> Case:
    wanted = tuple(Contender(f"{kind} {half}", catalogue.FLOOR, THREADS, "holdfast", kind) for kind in ("plain", "scripts"))
    return Case(f"server time, {half}", "servertime", wanted, 1, 0, "split", {"half": half}, watch=reset, after=server_time)


SERVER = Scenario("server", "What a command costs a node", (_server("request"), _server("release")))

ALL = {it.name: it for it in (PAIR, DELAYED, MANY, CROWD, BUSY, HANDOVER, FAULTS, HELD, START, SERVER)}


def delayed(scenario: Scenario, delay: float) -> Scenario:
    """The same, with so many milliseconds more for each round trip; what kills nodes, or needs none, stays as it is."""
    able = tuple(it for it in scenario.cases if not (it.own_servers or it.delay or it.work in ("start", "servertime")))
    return replace(scenario, cases=tuple(replace(it, name=f"{it.name}, {delay:g} ms", delay=delay) for it in able))
