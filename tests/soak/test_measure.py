"""Whatever is left behind in a process is found, by its name.

Each test has a process of its own, in which nothing else comes and goes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="a process is measured by /proc")]

TESTS = Path(__file__).parents[1]
PROGRAM = """
import asyncio, os, sys, threading
sys.path.insert(0, {tests!r})
from soak.measure import grown, measured
from holdfast.engine.timers import Timers

class Timed:
    wake, armed = 1.0, float("inf")

async def main():
    loop, timers = asyncio.get_running_loop(), [Timers()]
    before = measured(loop)
    {leave}
    print(*grown(before, measured(loop)), sep="\\n", flush=True)
    os._exit(0)

asyncio.run(main())
"""
LEFT = {
    "nothing": ("pass", []),
    "memory": ("kept = os.urandom(64 << 20)", ["memory, MiB"]),
    "a file": ("os.open(os.devnull, os.O_RDONLY)", ["files"]),
    "a thread": ("threading.Thread(target=threading.Event().wait).start()", ["threads"]),
    "any objects": ("kept = [[it] for it in range(20_000)]", ["all objects"]),
    "an object of holdfast's": ("timers.append(Timers())", ["holdfast.engine.timers.Timers"]),
    "what is in a table of it": ("timers[0].arm(Timed())", ["in holdfast.engine.timers.Timers._heap"]),
    "a task and a timer": ("kept = asyncio.create_task(asyncio.sleep(60)); await asyncio.sleep(0)", ["tasks", "timers"]),
}


@pytest.mark.parametrize("left", LEFT)
def test_what_is_left_is_found(left: str) -> None:
    leave, names = LEFT[left]
    program = PROGRAM.format(tests=str(TESTS), leave=leave)
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert [it.partition(":")[0] for it in told.splitlines() if it] == names
