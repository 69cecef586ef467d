"""Many clients in one process, which share one core: what each costs, and what it costs to connect them all at once.

The clients of a first hand connect one after the other. Then all others connect at once, and when they are there, the nodes cut every
connection at once, as a restart of all nodes does.

Figures: `memory` (KB of this process for each client that has used a lock; only if `storm` is 0), `connections` (made for each client and
node), `late` (seconds, of a core of its own, that the clients took longer than as many that come one after the other need), `first` and
`again` (seconds of a core of its own until all clients are connected, and are so again).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from ..cluster import Wire

HAND = 50  # clients that connect one after the other, to see what each needs
PATIENCE = 600.0  # seconds
LOOK = 0.5  # seconds between two looks whether all clients are connected
SPARE = 1000  # connections that a node takes beside those of the clients


def own_seconds() -> float:
    """The time, less that in which this thread could have run, and another one had its core."""
    try:
        waited = int(Path("/proc/self/schedstat").read_text().split()[1])
    except (OSError, IndexError):
        waited = 0
    return perf_counter() - waited / 1e9


def memory() -> int:
    """Bytes of this process that are in the machine's memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def tasks(make: type[Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """`clients`: how many; `storm`: do they come at once?"""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    nodes = [Wire(it) for it in parameters["urls"]]
    for it in nodes:
        it.say(b"CONFIG", b"SET", b"maxclients", b"%d" % (parameters["clients"] + SPARE))
    made = [make(parameters) for _ in range(parameters["clients"])]
    before, began = 0, 0.0
    for number, client in enumerate(made[: HAND if parameters["storm"] else None]):
        await _used(client, number)
        if number == HAND // 5:  # what is loaded once is there
            before, began = memory(), own_seconds()
    if not parameters["storm"]:
        counted = len(made) - HAND // 5 - 1
        return {"memory": (memory() - before) / counted / 1000, "count": counted}
    needed = (own_seconds() - began) / (HAND - HAND // 5 - 1) * len(made)
    connected = _connections(nodes)
    began = own_seconds()
    await asyncio.gather(*[it.locks.ready(PATIENCE) for it in made[HAND:]])
    first, came = own_seconds() - began, _connections(nodes) - connected
    again, back = await _cut(made, nodes)
    needed_connections = len(made) * len(nodes)
    connections = max(came / (needed_connections - HAND * len(nodes)), back / needed_connections)
    late = max(0.0, first - needed, again - needed)
    return {"connections": connections, "late": late, "first": first, "again": again, "needed": needed, "count": len(made)}


async def _used(client: Any, number: int) -> None:
    """Connect it, and use a lock once."""
    await client.open()
    await client.release(await client.acquire(client.lock(f"bench:multitude:{number}")))


def _connections(nodes: Sequence[Wire]) -> int:
    """How many were ever made."""
    return sum(int(it.info("stats")["total_connections_received"]) for it in nodes)


async def _cut(clients: Sequence[Any], nodes: Sequence[Wire]) -> tuple[float, int]:
    """The nodes cut all connections: the seconds until every client is connected again, and how many connections that took."""
    before = _connections(nodes)
    for it in nodes:
        it.say(b"CLIENT", b"KILL", b"TYPE", b"pubsub", b"SKIPME", b"yes")
    began = own_seconds()
    end = perf_counter() + PATIENCE
    waiting = list(clients)
    while waiting or _connections(nodes) - before < len(clients) * len(nodes):
        if perf_counter() > end:
            raise SystemExit(f"{len(waiting)} of {len(clients)} clients are not connected again after {PATIENCE:.0f} s")
        await asyncio.sleep(LOOK)
        if _connections(nodes) - before >= len(clients) * len(nodes):
            waiting = [it for it in waiting if any(node.state != "up" for node in it.locks.nodes())]
    return own_seconds() - began, _connections(nodes) - before
