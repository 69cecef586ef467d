"""Each call that waits for others: the end of its client ends it, and so does its caller, and it leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face, Threads
from contract.test_fills import Work
from proof.misuse import misuse

from holdfast.errors import Cancelled

Call = Callable[..., Any]
# What waits, with a client, a name and what it is to run.
WAITS: dict[str, Callable[[Any, str, Any], Call]] = {
    "lock": lambda client, name, _: client.lock(name).acquire,
    "election": lambda client, name, _: client.election(name).campaign,
    "once": lambda client, name, does: lambda **cancel: client.once(name, keep=60, **cancel).run(does),
    "forget": lambda client, name, _: lambda **cancel: client.once(name, keep=60, **cancel).forget(),
    "fill": lambda client, name, does: client.fill(name, 60, does).get,
    "rate": lambda client, name, _: client.rate(name, 1, 1000).acquire,
    "latch": lambda client, name, _: client.latch(name, 2).wait,
    "barrier": lambda client, name, _: lambda **cancel: client.barrier(name, 2).wait("a", **cancel),
}
# The lock that it waits for, if it is one.
LOCKS = {"lock": "", "election": "[election]", "once": "[once]", "forget": "[once]", "fill": "[fill]"}


@asynccontextmanager
async def busy(face: Face, client: Any, name: str, call: str) -> AsyncIterator[Work]:
    """Another client has what the call wants."""
    work, running, lease = Work(face), None, None
    work.shut = True
    match call:
        case "lock" | "election":
            lease = await face.acquire(client.lock(name) if call == "lock" else client.election(name))
        case "once" | "forget" | "fill":
            running = asyncio.create_task(face.call(WAITS["fill" if call == "fill" else "once"](client, name, work.compute)))
            await work.goes_on()
        case "rate":
            assert await face.call(client.rate(name, 1, 1000).take)
    yield work
    work.shut = False
    if running is not None:
        await running
    elif lease is not None:
        await face.release(lease)


@pytest.mark.parametrize("end", ["closed", "closed, and leaves", "ended by its caller"])
@pytest.mark.parametrize("call", WAITS)
async def test_a_wait_can_be_ended(face: Face, five: Cluster, name: str, call: str, end: str) -> None:
    client, other, cancel = await face.connected(five), await face.connected(five), threading.Event()
    async with busy(face, other, name, call) as work:
        waits = WAITS[call](client, name, work.compute)
        by_event = isinstance(face, Threads) and end == "ended by its caller"
        waiter = asyncio.create_task(face.call(waits, cancel=cancel) if by_event else face.call(waits))
        await face.sleep(0.2)
        assert not waiter.done()
        if end == "ended by its caller":
            cancel.set() if by_event else waiter.cancel()
            outcome: Any = (await asyncio.gather(waiter, return_exceptions=True))[0]
            assert isinstance(outcome, Cancelled if by_event else asyncio.CancelledError)
            assert not by_event or outcome.name == name
            # With these goes the way that the exception went.
            del outcome, waiter
            gc.collect()
        else:
            await face.call(client.close, end == "closed, and leaves")
            for calls in (waiter, face.call(waits)):
                with misuse("closed"):
                    await calls
        if call in LOCKS:
            await face.until(lambda: five.waiters(f"{name}{LOCKS[call]}") == [0] * 5)
    if end == "ended by its caller" and not by_event:
        driver = client._driver()
        await face.until(lambda: (len(driver.engine.watches), driver.waiting.news, driver.engine.queries) == (0, [], {}))
    assert work.began == (call in ("once", "forget", "fill")), "who only waited has run nothing"
