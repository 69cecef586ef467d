"""A bug in the engine, on both faces: held leases are lost, waiters fail at once, the log says it once, and the client works on."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face, Threads

from holdfast.errors import Cancelled, HoldfastError, LockLost

SOON, TTL = 10.0, 1.0
FAULTS = ["received", "tick", "begin", "extend", "end", "lost", "connected", "ready"]


async def stops_waiting(face: Face, lock: Any) -> None:
    """Wait for a lock that another has, and be stopped."""
    stop = threading.Event()
    waiter = asyncio.create_task(face.call(lock.acquire, stop) if isinstance(face, Threads) else face.acquire(lock))
    await face.sleep(0.05)
    stop.set()
    if not isinstance(face, Threads):
        waiter.cancel()
    with pytest.raises((Cancelled, asyncio.CancelledError)):
        await waiter


@pytest.mark.parametrize("where", FAULTS)
async def test_a_bug_in_the_engine(face: Face, five: Cluster, name: str, caplog: pytest.LogCaptureFixture, where: str) -> None:
    caplog.set_level(logging.CRITICAL, "holdfast")
    locks, others = await face.connected(five), await face.connected(five)
    foreign = await face.acquire(others.lock(f"{name}.foreign"))
    told: list[Any] = []
    lease = await face.acquire(locks.lock(name, ttl=TTL, on_lost=told.append))
    lost, tasks = lease.lost, dict[str, asyncio.Task[Any]]()

    async def works(lease: Any) -> None:
        await face.until_lost(lease, SOON)  # with asyncio it is cancelled meanwhile

    tasks["body"] = asyncio.create_task(face.within(locks.lock(f"{name}.body", ttl=TTL), works))
    tasks["waiter"] = asyncio.create_task(face.acquire(locks.lock(f"{name}.foreign")))
    engine = face.drivers(locks)[-1].engine
    await face.until(lambda: len(engine.live) == 3 and len(locks.leases()) == 2)
    planted = ZeroDivisionError("a bug")

    def broken(*arguments: Any) -> Any:
        raise planted

    setattr(engine.upkeep if hasattr(engine.upkeep, where) else engine, where, broken)
    match where:
        case "begin":
            # (What has a note is the I/O thread's business.)
            with pytest.raises(HoldfastError, match="failed") as failed:
                await face.acquire(locks.lock(f"{name}.new", note="noted"))
            assert failed.value.__cause__ is planted
        case "extend" | "received":
            tasks["extension"] = asyncio.create_task(face.extend(lease))
        case "end":
            await stops_waiting(face, locks.lock(f"{name}.foreign"))
        case "lost" | "connected":
            five.ask(0, "CLIENT", "KILL", "TYPE", "pubsub")
    await face.until(lost.is_set, SOON)
    await asyncio.wait(tasks.values(), timeout=SOON)
    raised = {who: task.exception() for who, task in tasks.items()}
    error = raised.pop("waiter")
    assert isinstance(error, HoldfastError) and error.__cause__ is planted
    assert {type(it) for it in raised.values()} == {LockLost}
    assert not lease.held
    await face.until(lambda: told == [lease])
    with pytest.raises(LockLost):
        await face.release(lease)
    await face.until(lambda: [it for it in caplog.records if it.levelno == logging.CRITICAL])
    assert [it.exc_info and it.exc_info[1] for it in caplog.records if it.levelno == logging.CRITICAL] == [planted]
    heir = face.drivers(locks)[-1].engine
    assert heir is not engine
    for free in (f"{name}.new", name):  # (when the keys that nobody renews have run out)
        await face.release(await face.acquire(locks.lock(free, wait=SOON)))
    await face.release(foreign)
    await face.until(lambda: not heir.live)
