"""The demonstration keeps its promise, notices when it is broken, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "examples/demo/run.py"
PATIENCE = 150.0  # seconds; on an idle machine it takes 17

pytestmark = [pytest.mark.stories, pytest.mark.timeout(PATIENCE + 30)]


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    """Start a short demonstration, with `folder` for its temporary files, in a process group of its own (as a terminal does)."""
    command = [sys.executable, "-u", "-W", "error", str(RUN), "--quick", *options]
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True)


def finish(process: subprocess.Popen[str]) -> str:
    """What it prints from now on. Killed if it does not end by itself."""
    try:
        return process.communicate(timeout=PATIENCE)[0]
    finally:
        process.kill()
        process.communicate()


def cells(output: str, title: str) -> list[str]:
    """The table's row with this title."""
    rows = [line for line in output.splitlines() if line.startswith(title) and ":" not in line]
    assert len(rows) == 1, output
    return [cell for cell in rows[0].split("  ") if cell]


def test_the_promise_holds(tmp_path: Path) -> None:
    process = start(tmp_path)
    output = finish(process)
    assert process.returncode == 0, output
    assert output.splitlines()[-1].startswith("The promise held: "), output
    assert output.count("\n201 - {") == 3, output
    assert output.count("\n400 - {") == 2, output
    exact, bare, single, quorum = (cells(output, title) for title in ("1. five", "2. no lock", "3. SET NX", "4. holdfast"))
    assert [it.strip() for it in exact[1:4]] == ["as promised", "5", "3 (3)"]
    assert [it.strip() for it in quorum[1:4]] == ["as promised", "75", "9 (9)"]
    assert "killed" in quorum[-1]
    assert "frozen" in quorum[-1]
    for wrong in (bare, single):
        assert wrong[1].strip().startswith("too many in "), output
        assert int(wrong[3].split()[0]) > 9, output
    assert "killed" in single[-1]
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_demonstration_leaves_nothing_behind(tmp_path: Path) -> None:
    process = start(tmp_path)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("3. SET NX on one node: round 1"):  # nodes, the service and the faults are at work
                break
        started = offspring(process.pid)
        assert len(started) >= 4 + 5, started  # and perhaps the single node, which is dead for moments
        os.killpg(process.pid, signal.SIGINT)
    finally:
        output = finish(process)
    assert process.returncode == 130, output
    assert list(tmp_path.iterdir()) == []
    deadline = time.monotonic() + 5
    while (alive := [pid for pid in started if runs(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert alive == []


def offspring(pid: int) -> set[int]:
    """All processes that come from this one."""
    told = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in told.splitlines())}
    found, new = set[int](), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new}
        found |= new
    return found


def runs(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False
