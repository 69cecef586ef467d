"""What is measured: for each scenario its cases, with who takes part, where it runs and how often.

Knows works and contenders. Must not know what the figures ought to be (`bars`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import catalogue, growth
from .catalogue import ASYNCIO, OURS, PEER, THREADS, Contender, named, peers
from .runner import Case
from .watching import bursts, commands_each, commands_seen, counted, disk, held_seen, persisting, reset, server_time, struck


@dataclass(frozen=True)
class Scenario:
    """Cases that are measured in the same rounds. `rounds`: how many, unless asked for otherwise."""

    name: str
    title: str
    cases: tuple[Case, ...]
    rounds: int = 9


# ------------------------------------------------ pair


def pairs(nodes: int, delay: float = 0.0) -> Case:
    """Every contender that can use so many nodes."""
    alone = tuple(it for it in catalogue.ALL if it.kind != PEER and not any(word in it.name for word in ("coalescing", "batches", "push")))
    wanted = alone + peers(THREADS, ASYNCIO, nodes=nodes)
    if delay:
        wanted = tuple(it for it in wanted if it.face != "uvloop")
    needed = {"redis-py Lock", "redis-py Lock asyncio", "redis-py in turn", "pyredlock", "pottery"}
    if delay:
        needed |= {"redlock-py", "redlock-ng"}
    seldom = frozenset(it.name for it in wanted if (it.kind == PEER and it.name not in needed) or (nodes == 3 and it.kind != OURS))
    name = f"pair, {nodes} node{'s' * (nodes > 1)}" + (f", {delay:g} ms" if delay else "")
    return Case(name, "pair", wanted, nodes, delay, seldom=seldom)


def free_pairs(nodes: int) -> Case:
    """Those that bars compare, with client and servers wherever the system likes."""
    wanted = named("holdfast", "holdfast asyncio", "floor: sockets, plain", "floor: asyncio, plain", "pyredlock")
    if nodes == 1:
        wanted += named("redis-py Lock", "redis-py Lock asyncio")
    return replace(pairs(nodes), name=f"pair, {nodes} node{'s' * (nodes > 1)}, free", contenders=wanted, pin="none", seldom=frozenset())


PAIR = Scenario(
    "pair", "One lock, uncontended: acquire and release", (*map(pairs, (1, 3, 5)), free_pairs(1), free_pairs(5))
)
DELAYED = Scenario("delay", "The same over a network", (pairs(5, 0.3), pairs(5, 1.0), pairs(5, 5.0)))

# ------------------------------------------------ primitives

PRIMITIVES = Scenario(
    "primitives",
    "Read lock, write lock, permit and rate beside the exclusive lock, uncontended",
    (
        Case(
            "primitives, 5 nodes",
            "primitives",
            named("holdfast", "holdfast confirmed", "holdfast asyncio", "holdfast asyncio confirmed"),
            seconds=1.5,
        ),
    ),
)

# ------------------------------------------------ persistence

PERSISTENCE = Scenario(
    "persistence",
    "Nodes that write nothing to disk, that write each second, and that write before each answer",
    (
        # Three sets of five nodes. Each measurement has servers of its own, because it changes how they persist.
        Case(
            "persistence, 5 nodes",
            "persistence",
            named("holdfast", "holdfast confirmed"),
            15,
            watch=persisting,
            after=disk,
            own_servers=True,
            seconds=2.0,
        ),
    ),
)

# ------------------------------------------------ many


def _many(tasks: int) -> Case:
    floors = [it for it in catalogue.ALL if "coalescing" in it.name or "batches" in it.name]
    wanted = (*named("holdfast asyncio", "holdfast asyncio confirmed", "holdfast uvloop confirmed"), *floors)
    wanted += (*named("floor: asyncio, plain", "floor: asyncio, scripts"), *peers(ASYNCIO, nodes=5))
    return Case(f"many, {tasks:,} tasks", "many", wanted, pin="split", parameters={"tasks": tasks}, seldom=frozenset({"pottery asyncio"}))


MANY = Scenario("many", "Many locks at once: 1,000 names", (_many(100), _many(1000)))

# ------------------------------------------------ telling


def _listening(face: str, suffix: str, adapter: str) -> tuple[Contender, ...]:
    """holdfast without anybody who listens, and with each kind of listener."""
    listeners = ("observer", "metrics", "otel")
    return (
        *named(f"holdfast{suffix}"),
        *(
            Contender(f"holdfast{suffix}, {it}", OURS, face, "holdfast", f"contenders.telling:{adapter}{it.title()}")
            for it in listeners
        ),
    )


TELLING = Scenario(
    "telling",
    "A pair while nobody listens, an observer, the metrics of Prometheus, and OpenTelemetry without an SDK",
    (Case("telling, 5 nodes", "pair", (*_listening(ASYNCIO, " asyncio", "Asyncio"), *_listening(THREADS, "", "Threads"))),),
)

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
    if half == "renewal":
        floor = Contender("a script with the six commands of a renewal", catalogue.FLOOR, THREADS, "holdfast", "six commands")
        wanted = (wanted[1], floor)
    if half == "request":
        wanted += (
            Contender("a script that does nothing", catalogue.FLOOR, THREADS, "holdfast", "nothing"),
            Contender("a script with the three commands of request", catalogue.FLOOR, THREADS, "holdfast", "commands"),
        )
    return Case(f"server time, {half}", "servertime", wanted, 1, 0, "split", {"half": half}, watch=reset, after=server_time)


SERVER = Scenario("server", "What a command costs a node", (_server("request"), _server("release")))
LEASES = Scenario(
    "leases",
    "Many leases in one client: what their renewals cost, and what an acquire beside them waits",
    (
        _server("renewal"),
        Case(
            "beside 10,000 leases, 5 nodes",
            "beside",
            named("holdfast", "holdfast asyncio"),
            pin="none",
            parameters={"leases": 10_000},
            patience=240,
        ),
    ),
)
BURSTS = Scenario(
    "bursts",
    "Renewals of many clients, whose leases were acquired together",
    (
        Case(
            "100 clients, 5,000 leases, 3 nodes",
            "held",
            named("holdfast asyncio"),
            3,
            pin="split",
            parameters={"leases": 5000, "clients": 100, "together": 100},
            watch=bursts(10.0, 5.0),
            patience=60,
            figures=(("peak", "busiest 100 ms / mean"),),
        ),
    ),
)

HANDSHAKE = Scenario(
    "handshake",
    "What a connection costs a node before its first command",
    (
        Case(
            "handshake, 1 node",
            "handshake",
            (
                Contender("a client of locks", OURS, THREADS, "holdfast", "locks"),
                Contender("a client that has used everything", OURS, THREADS, "holdfast", "everything"),
                Contender("all scripts with their comments, as before", catalogue.FLOOR, THREADS, "holdfast", "files"),
                Contender("no script at all", catalogue.FLOOR, THREADS, "holdfast", "nothing"),
            ),
            1,
            pin="split",
        ),
    ),
)

MULTITUDE = Scenario(
    "clients",
    "Many clients in one process: what each costs, and all of them connecting at once on one core",
    (
        Case(
            "300 clients, 5 nodes",
            "multitude",
            named("holdfast asyncio", "holdfast uvloop"),
            pin="split",
            parameters={"clients": 300, "storm": 0},
            patience=120,
            figures=(("memory", "KB a client"),),
        ),
        # (Three nodes, because a process may have 20,000 connections.)
        Case(
            "4,000 clients, 3 nodes",
            "multitude",
            named("holdfast asyncio"),
            3,
            pin="split",
            parameters={"clients": 4000, "storm": 1},
            patience=1200,
            figures=(
                ("connections", "connections a node"),
                ("first", "all connected after, s"),
                ("again", "again after, s"),
                ("needed", "needed, s"),
                ("late", "later, s"),
            ),
        ),
    ),
    rounds=3,
)

GROWTH = tuple(Scenario(it.scenario, it.title, it.cases(), rounds=1 if it.name == "names" else 3) for it in growth.AXES.values())

_EACH = (
    PAIR, DELAYED, PRIMITIVES, PERSISTENCE, MANY, TELLING, CROWD, BUSY, HANDOVER, FAULTS, HELD, START, SERVER, HANDSHAKE, LEASES, BURSTS,
    MULTITUDE,
)  # fmt: skip
ALL = {it.name: it for it in (*_EACH, *GROWTH)}


# Works that no delay on the way changes.
_ALIKE = ("start", "servertime", "beside", "handshake", "multitude")


def delayed(scenario: Scenario, delay: float) -> Scenario:
    """The same, with so many milliseconds more for each round trip; what kills nodes, or needs none, stays as it is."""
    able = tuple(it for it in scenario.cases if not (it.own_servers or it.delay or it.figures or it.work in _ALIKE))
    return replace(scenario, cases=tuple(replace(it, name=f"{it.name}, {delay:g} ms", delay=delay) for it in able))
