"""Many leases at once: one thread, or one timer of the loop, keeps them all, and nothing of them stays."""

from __future__ import annotations

import asyncio
import gc
import os
import warnings
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face, Threads
from live.kit import io_thread_of

COUNT = 1000
TTL = 6.0  # seconds: a busy machine that takes half as long for a thousand renewals is still in time


def engine_of(face: Face, client: Any) -> Any:
    return io_thread_of(client).engine if isinstance(face, Threads) else client._driver().engine


def things(face: Face, client: Any) -> tuple[int, ...]:
    """How many threads and open files this process has; or with asyncio, how many of the loop's timers and tasks are the client's."""
    if isinstance(face, Threads):
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    loop: Any = asyncio.get_running_loop()
    ticks = [it for it in loop._scheduled if not it.cancelled() and it._callback == client._driver()._timer._tick]
    return max(1, len(ticks)), len(asyncio.all_tasks())


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="only Linux lists a process's threads and files")
async def test_b48_1000_leases_that_are_held_and_renewed(face: Face, three: Cluster, name: str) -> None:
    """How fast a machine is says nothing here: whatever is waited for has much more time than it needs."""
    client = await face.connected(three, ttl=TTL)
    before = things(face, client)

    def never_more() -> bool:
        # A thread of an earlier test may have ended meanwhile.
        return all(now <= then for now, then in zip(things(face, client), before, strict=True))

    leases = [await face.acquire(client.lock(f"{name}.{number}")) for number in range(COUNT)]
    await face.until(never_more)
    ends = [it.until for it in leases]
    await face.until(lambda: all(it.until > end for it, end in zip(leases, ends, strict=True)), TTL)
    await face.until(never_more)
    assert all(it.held for it in leases)
    assert (client.stats().held, client.stats().lost) == (COUNT, 0)
    names = [leases[0].name, leases[-1].name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        leases.clear()
        gc.collect()
    assert sum(it.category is ResourceWarning and name in str(it.message) for it in caught) == COUNT
    engine = engine_of(face, client)
    await face.until(lambda: not engine.live, 10 * TTL)
    await face.until(lambda: not any(any(three.everywhere("EXISTS", it)) for it in names))
    if isinstance(face, Threads):
        await face.until(lambda: not io_thread_of(client)._pending_calls and not io_thread_of(client).waiting)
    # The thread of the log, which told of their ends, ends when it is idle.
    await face.until(never_more)
