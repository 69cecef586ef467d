"""Where the work waits until the harness has done its part: looked at the nodes' counters, or killed one."""

from __future__ import annotations

import asyncio
import sys


def wait() -> None:
    """Say that this point is reached, and wait to be sent on."""
    print("ready", flush=True)
    if not sys.stdin.readline():
        raise SystemExit("the harness is gone")


async def waited() -> None:
    """The same, in a loop that goes on."""
    await asyncio.get_running_loop().run_in_executor(None, wait)
