"""One process that wants a lock again and again, and writes down when it held it.

    python worker.py SETTINGS    as JSON: see `Settings` in campaign.py

A section ends at the last moment at which its lease was seen to be held. In a failover, whoever has the
lock keeps it for as long as the lease lasts: sections are short, so it was granted lately.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from typing import Any

import holdfast
import holdfast.aio
from holdfast.clock import clock
from holdfast.errors import HoldfastError
from holdfast.wire import connection as connection

if "asks_once" in sys.argv[1]:
    # What is planted: a client goes on with the server that it has found (rule G13).
    vouched = connection.Connection._vouched

    def once_and_for_all(self: Any, asked: float) -> None:
        vouched(self, asked)
        self.sure, self.reask = asked + 86_400, asked + 86_400

    setattr(connection.Connection, "_vouched", once_and_for_all)  # noqa: B010 (a method that is replaced)

LOOK = 0.005  # seconds between two looks at a lease
stopped = False


def stop(*_: object) -> None:
    """End after this section."""
    global stopped
    stopped = True


async def work(settings: dict[str, Any], log: int) -> None:
    """Take the lock until the process is asked to end. Some make a new client every few seconds."""
    dice = random.Random(settings["seed"])
    options = {it: settings[it] for it in ("ttl", "max_ttl", "restart_guard") if it in settings}
    kind: Any = holdfast.Holdfast if settings["face"] == "threads" else holdfast.aio.Holdfast
    while not stopped:
        locks = kind(*settings["urls"], outage=60, **options)
        until = clock() + (dice.uniform(1, 4) if settings["restless"] else 3600)
        try:
            while clock() < until and not stopped:
                await once(locks, settings, dice, log)
        finally:
            await _told(locks.close())


async def once(locks: Any, settings: dict[str, Any], dice: random.Random, log: int) -> None:
    """One section, if the lock can be had within a second."""
    try:
        lease = await _told(locks.lock("failovers", wait=1.0).acquire())
    except HoldfastError as error:
        print(clock(), error.message[:300], file=sys.stderr)
        await asyncio.sleep(0.05)
        return
    begins = seen = clock()
    ends = begins + dice.uniform(0.0, 0.1)
    while (now := clock()) < ends or os.path.exists(settings["trouble"]):
        if not lease.held:
            break
        seen = now
        await asyncio.sleep(LOOK)
    line = {"token": lease.token, "fence": lease.fence, "begins": begins, "ends": seen, "who": settings["seed"]}
    os.write(log, json.dumps(line).encode() + b"\n")
    try:
        await _told(lease.release())
    except HoldfastError:
        pass
    await asyncio.sleep(dice.uniform(0, 0.02))


async def _told(answer: Any) -> Any:
    """The answer of either face. (The one for threads waits where it is called: nothing else runs here.)"""
    return await answer if hasattr(answer, "__await__") else answer


def main() -> None:
    """Work until SIGTERM."""
    settings = json.loads(sys.argv[1])
    signal.signal(signal.SIGTERM, stop)
    log = os.open(settings["log"], os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    asyncio.run(work(settings, log))


if __name__ == "__main__":
    main()
