"""What holdfast costs a node: memory, commands, bytes and connections, counted by the servers themselves. `./task bench sizes`.

Knows INFO and the asyncio face. Must not know how the library keeps its keys, but for two: whatever is there is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from contextlib import AsyncExitStack
from typing import Any

import redis

from holdfast.aio import Holdfast
from holdfast.embedded import Nodes

NODES = 3
NAMES = 4000  # locks, held at once and then left; each has a name of 20 bytes
WAITERS = 2000  # for one lock
PAIRS = 500
CLIENTS = 50  # that do nothing
RESTS = 4.0  # seconds
RENEWED = 200  # leases that are renewed while commands are counted
TTL = 1.5  # seconds, of those


class Node:
    """One server, asked what it has counted."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)

    def memory(self) -> int:
        """Bytes that it has in use."""
        self._client.memory_purge()
        return int(self._info("memory")["used_memory"])

    async def rests(self) -> int:
        """The same, when servers have made the buffers smaller that the beginning of a connection needs: after some seconds."""
        await asyncio.sleep(RESTS)
        return self.memory()

    def calls(self) -> int:
        """Scripts it was asked to run."""
        return int(self._info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))

    def traffic(self) -> int:
        """Bytes it has received and sent."""
        stats = self._info("stats")
        return int(stats["total_net_input_bytes"]) + int(stats["total_net_output_bytes"])

    def kept(self, key: str) -> float:
        """For how many seconds it still has this key."""
        return float(self._client.pttl(key)) / 1000

    async def queued(self, count: int) -> None:
        """Return when so many wait for the lock "queue"."""
        while self._client.zcard("{queue}:queue") != count:
            await asyncio.sleep(0.05)

    def connections(self) -> int:
        """How many are connected, this one not counted."""
        return int(self._info("clients")["connected_clients"]) - 1

    def _info(self, section: str) -> dict[str, Any]:
        told: dict[str, Any] = self._client.info(section)
        return told


async def measure() -> dict[str, float]:
    """Each size, as it is for one node."""
    found: dict[str, float] = {}
    with Nodes(NODES) as servers:
        node = Node(servers.urls[0])
        found["connections of a client"] = -node.connections()
        async with Holdfast(*servers.urls, ttl=30) as locks, AsyncExitStack() as held:
            await locks.ready(30)
            found["connections of a client"] += node.connections()

            before = await node.rests()
            others = [Holdfast(*servers.urls) for _ in range(CLIENTS)]
            await asyncio.gather(*(it.ready(30) for it in others))
            found["bytes of a connection"] = (await node.rests() - before) / CLIENTS
            await asyncio.gather(*(it.close() for it in others))

            # With the default ttl, and released at once: a longer lease, or a renewal, would keep the record for longer.
            await (await locks.lock("warm up", ttl=10).acquire()).release(confirm=True)
            found["seconds that a fence is kept after its grant"] = node.kept("{warm up}:fence")
            before = node.memory()
            leases = await asyncio.gather(*(locks.lock(f"invoice:{it:012d}").acquire() for it in range(NAMES)))
            full = node.memory()
            await asyncio.gather(*(it.release(confirm=True) for it in leases))
            left = node.memory()
            found["bytes of a held lock"] = (full - before) / NAMES
            found["bytes of a fence that is left behind"] = (left - before) / NAMES

            lease = await held.enter_async_context(locks.lock("queue"))
            before = node.memory()
            waiting = [asyncio.create_task(locks.lock("queue", wait=60).acquire()) for _ in range(WAITERS)]
            await node.queued(WAITERS)
            found["bytes of a waiter"] = (node.memory() - before) / WAITERS
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
            await node.queued(0)
            assert lease.held

            calls, traffic = node.calls(), node.traffic()
            for _ in range(PAIRS):
                await (await locks.lock("pair").acquire()).release(confirm=True)
            found["commands of an acquire and release"] = (node.calls() - calls) / PAIRS
            found["bytes on the wire of an acquire and release"] = (node.traffic() - traffic) / PAIRS

            await asyncio.gather(*(held.enter_async_context(locks.lock(f"renewed:{it}", ttl=TTL)) for it in range(RENEWED)))
            calls, began = node.calls(), time.monotonic()
            await asyncio.sleep(4 * TTL)
            found["commands of a held lock in one ttl"] = (node.calls() - calls) / RENEWED / (time.monotonic() - began) * TTL
    return found


def main() -> None:
    """Print what one node has to bear."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--json", action="store_true", help="for programs")
    as_json = parser.parse_args().json
    found = asyncio.run(measure())
    if as_json:
        print(json.dumps(found))
    else:
        for what, size in found.items():
            print(f"{size:8.1f}  {what}")


if __name__ == "__main__":
    main()
