"""What docs/command.md says of `flock`, which every machine has."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from nemesis.processes import alive, until

from holdfast.cli import tree

FLOCK = shutil.which("flock")
pytestmark = pytest.mark.skipif(FLOCK is None, reason="flock belongs to util-linux")


def _child_of(supervisor: int) -> int:
    found: int = until(lambda: tree.children(supervisor))[0]
    return found


def test_the_command_of_a_flock_that_is_killed_lives_on_and_keeps_the_lock(tmp_path: Path) -> None:
    with subprocess.Popen(["flock", tmp_path / "lock", "sh", "-c", f"echo > {tmp_path}/mark; exec sleep 60"]) as process:
        until((tmp_path / "mark").exists)
        child = _child_of(process.pid)
        process.kill()
        process.wait(10)
        assert alive(child)
        assert subprocess.run(["flock", "-n", tmp_path / "lock", "true"], check=False).returncode == 1
        tree.send(child, signal.SIGKILL)
