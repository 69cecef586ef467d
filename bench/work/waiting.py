"""One holds the lock, many wait: what do they send meanwhile?

The harness counts from when all wait until less than a third of a ttl after they have begun: no heartbeat is due.
"""

from __future__ import annotations

import asyncio
import threading
from time import sleep
from typing import Any

from . import step
from .adapter import Adapter, Coroutines

SETTLING = 0.5


def threads(make: type[Adapter], parameters: dict[str, Any]) -> dict[str, Any]:
    """In threads, which end with the process."""
    locks = make(parameters)
    locks.open()
    locks.acquire(locks.lock("bench:waiting"))
    for _ in range(parameters["waiters"]):
        threading.Thread(target=lambda: locks.acquire(locks.lock("bench:waiting")), daemon=True).start()
    sleep(SETTLING)
    step.wait()
    return {"asks": make.asks}


async def tasks(make: type[Coroutines], parameters: dict[str, Any]) -> dict[str, Any]:
    """In tasks."""
    locks = make(parameters)
    await locks.open()
    held = await locks.acquire(locks.lock("bench:waiting"))
    crowd = [asyncio.create_task(locks.acquire(locks.lock("bench:waiting"))) for _ in range(parameters["waiters"])]
    await asyncio.sleep(SETTLING)
    await step.waited()
    for it in crowd:
        it.cancel()
    del held
    return {"asks": make.asks}
