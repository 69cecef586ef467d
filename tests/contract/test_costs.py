"""What a contended hand-over costs each node, by its own count of commands: one release, one push, and no request.

An exclusive lock and both kinds of a read-write lock are handed on by nothing else. Whoever is handed a permit stood in the line of every
slot, and leaves the others: one release more for each of them, of which nobody is told. (Leases are long: nothing is renewed meanwhile.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face

from holdfast.protocol.exclusive import keys_of
from holdfast.protocol.readwrite import rw_keys_of

LONG = 30.0  # seconds


async def costs(face: Face, nodes: Cluster, holds: Sequence[Any], waits: Sequence[Any], queues: Sequence[bytes]) -> set[tuple[int, int]]:
    """Some hold, others wait; all who hold let go, and those who wait have it: EVALSHA and PUBLISH on each node meanwhile.

    `queues`: where those who wait stand in line.
    """
    lines = [it.decode() for it in queues]

    def stand(count: int) -> bool:
        return all(nodes.everywhere("ZCARD", it) == [count] * len(nodes) for it in lines)

    held = [await face.acquire(it) for it in holds]
    waiting = [asyncio.ensure_future(face.acquire(it)) for it in waits]
    await face.until(lambda: stand(len(waits)))
    before = list(zip(nodes.calls(), nodes.calls("publish"), strict=True))
    for it in held:
        await face.release(it, confirm=True)
    leases = await asyncio.gather(*waiting)
    assert all(it.contended for it in leases)
    await face.until(lambda: all(it.votes == len(nodes) for it in leases) and stand(0))
    await face.sleep(0.05)  # (what is sent besides has come by then)
    after = list(zip(nodes.calls(), nodes.calls("publish"), strict=True))
    for it in leases:
        await face.release(it, confirm=True)
    return {(now[0] - then[0], now[1] - then[1]) for then, now in zip(before, after, strict=True)}


async def test_an_exclusive_lock(face: Face, five: Cluster, name: str) -> None:
    here, there = await face.connected(five, ttl=LONG), await face.connected(five, ttl=LONG)
    queue = keys_of(name.encode())[2]
    assert await costs(face, five, [here.lock(name)], [there.lock(name)], [queue]) == {(1, 1)}


@pytest.mark.parametrize("kinds, most", [("ww", 1), ("wr", 1), ("rw", 1), ("wrr", 2)])
async def test_a_read_write_lock(face: Face, five: Cluster, name: str, kinds: str, most: int) -> None:
    """The first holds, the others wait. Each reader who is let in together with others is told by a push of his own."""
    here, there = await face.connected(five, ttl=LONG), await face.connected(five, ttl=LONG)
    clients = [here] + [there] * (len(kinds) - 1)
    holds, *waits = [getattr(it.rwlock(name), {"r": "read", "w": "write"}[kind])() for kind, it in zip(kinds, clients, strict=True)]
    assert await costs(face, five, [holds], waits, [rw_keys_of(name.encode())[2]]) == {(1, most)}


@pytest.mark.parametrize("permits", [1, 4])
async def test_a_permit(face: Face, five: Cluster, name: str, permits: int) -> None:
    here, there = await face.connected(five, ttl=LONG), await face.connected(five, ttl=LONG)
    pool, wanted = here.semaphore(name, permits), there.semaphore(name, permits)
    others = [await face.acquire(pool) for _ in range(permits - 1)]
    await face.release(await face.acquire(wanted), confirm=True)  # (the number of permits is agreed on before a client's first use)
    slots = [keys_of(f"{name}[slot {it}]".encode())[2] for it in range(permits)]
    assert await costs(face, five, [pool], [wanted], slots) == {(1 + permits - 1, 1)}
    for it in others:
        await face.release(it)
