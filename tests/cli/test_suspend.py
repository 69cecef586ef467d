"""After a suspend, each of the two supervisors looks at the clock before anything else, and kills.

`step.c` makes CLOCK_BOOTTIME step for the supervisor, the holder or both, while CLOCK_MONOTONIC, which sleepers wait on, does not. The
lease is long, so that nothing else wakes anybody soon: a renewal is due in ten seconds.
"""

from __future__ import annotations

import mmap
import struct
import subprocess
from pathlib import Path

import pytest
from cli.kit import Command, holder_of
from nemesis.arena import life
from nemesis.processes import alive, compiled, until

from holdfast.cli import tree
from holdfast.embedded import Nodes

TTL = 30.0
STEP = 3600.0
# Far more than a turn of a loop, and far less than the time until the next renewal.
SOON = 3.0

pytestmark = pytest.mark.skipif(not tree.LINUX, reason="CLOCK_BOOTTIME is Linux's")


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library that is preloaded."""
    return compiled(Path(__file__).with_name("step.c"), tmp_path_factory.mktemp("step") / "step.so", "-shared", "-ldl")


@pytest.mark.parametrize("who", ["supervisor", "holder", "both"])
def test_the_command_is_killed_at_once(who: str, shim: str, beats: str, nodes: Nodes, tmp_path: Path) -> None:
    """The clock steps for the supervisor, the holder or both."""
    page = tmp_path / "step"
    page.write_bytes(bytes(64))
    holdfast = Command(tmp_path, nodes.environment)
    file = tmp_path / "life"
    words = ("run", "--ttl", f"{TTL:g}s", f"asleep {tmp_path.name}", "--", beats, str(file), "term", "twin")
    with holdfast.started(*words, stderr=subprocess.DEVNULL, env={"LD_PRELOAD": shim, "STEP_FILE": str(page)}) as process:
        until(lambda: life(file) and life(file.with_name("life.twin")))
        holder = holder_of(process.pid)
        below = [it.pid for it in tree.descendants(holder)]
        pids = {"supervisor": [process.pid], "holder": [holder], "both": [process.pid, holder]}[who]
        with open(page, "r+b") as opened, mmap.mmap(opened.fileno(), 64) as view:
            view[8 : 8 + 8 * len(pids)] = struct.pack(f"={len(pids)}d", *pids)
            view[0:8] = struct.pack("=d", STEP)
        until(lambda: not any(map(alive, below)), SOON)
        assert process.wait(10) == 76
