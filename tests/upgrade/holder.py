"""One process of a storm: takes a lock again and again, and writes down when it held it.

Knows only what both versions of the library have. Started with PYTHONPATH at one of them.

    python holder.py FACE NAME LOG    nodes and options come as environment variables
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import IO

TTL = 2.0


def main() -> None:
    """Hold the lock until the process is ended."""
    face, name, log = sys.argv[1:]
    import holdfast

    with open(log, "a", buffering=1) as out:
        out.write(f"from {holdfast.__file__}\n")
        if face == "threads":
            threads(name, out)
        else:
            asyncio.run(tasks(name, out))


def begin(out: IO[str], fence: int) -> None:
    """Note that the lock is held from now on."""
    out.write(f"begin {time.clock_gettime(time.CLOCK_MONOTONIC):.9f} {fence}\n")


def end(out: IO[str]) -> None:
    """Note that the lock was held until now."""
    out.write(f"end {time.clock_gettime(time.CLOCK_MONOTONIC):.9f}\n")


def threads(name: str, out: IO[str]) -> None:
    """The face for threads."""
    from holdfast import Holdfast

    with Holdfast(ttl=TTL, max_ttl=TTL) as locks:
        while True:
            with locks.lock(name, wait=60) as lease:
                begin(out, lease.fence)
                time.sleep(random.random() * 0.004)
                lease.check()
                end(out)


async def tasks(name: str, out: IO[str]) -> None:
    """The face for asyncio."""
    from holdfast.aio import Holdfast

    async with Holdfast(ttl=TTL, max_ttl=TTL) as locks:
        while True:
            async with locks.lock(name, wait=60) as lease:
                begin(out, lease.fence)
                await asyncio.sleep(random.random() * 0.004)
                lease.check()
                end(out)


if __name__ == "__main__":
    main()
