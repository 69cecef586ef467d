"""What finds overlaps finds them, and what a test has started ends with it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from integrations.stage import Entry, overlaps

pytestmark = pytest.mark.slow


def record(*lines: str) -> list[Entry]:
    return [Entry(float(at), 1, line.split()) for at, line in enumerate(lines)]


def test_sections_one_after_the_other_do_not_overlap() -> None:
    assert overlaps(record("enter a", "enter b", "leave a", "seeded", "enter a", "leave b", "leave a")) == []


def test_an_overlap_is_found() -> None:
    found = overlaps(record("enter a", "enter a", "leave a", "leave a"))
    assert [(before.at, after.at) for before, after in found] == [(0.0, 1.0)]


def test_a_burst_is_counted_from_when_its_messages_are_sent() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from bench import queues

    found = queues.row("x", record("done warm 0", "began", "done a 0", "done b 1", "sent 4"), 2, 1.0)
    assert found == "| x | 2.0 | 2.0 | 0.900 | 2 |"


def test_the_section_of_a_killed_process_ends_there() -> None:
    entries = [Entry(1.0, 7, ["enter", "a"]), Entry(3.0, 8, ["enter", "a"]), Entry(4.0, 8, ["leave", "a"])]
    assert overlaps(entries, {7: 2.0}) == []
    assert len(overlaps(entries, {7: 3.5})) == 1, "the next one came before"
    assert len(overlaps(entries, {8: 2.0})) == 1, "another process was killed"


def test_leaving_ends_one_s_own_section_only() -> None:
    entries = [Entry(float(at), at, ["leave" if at == 3 else "enter", "a"]) for at in (1, 2, 3, 4)]
    assert len(overlaps(entries)) == 2


# A test that starts a server with a worker, writes their process ids into a file, and hangs.
_TEST = """
import sys, time
from pathlib import Path
from integrations import stage
folder = Path(sys.argv[1])
stage.PROGRAMS = folder
if sys.argv[2] == "without":
    stage.leashed = lambda group: stage.contextlib.nullcontext()
started = stage.Stage(folder, {"PIDS": str(folder / "pids")})
started.start("server")
time.sleep(600)
"""
_SERVER = """
import os, subprocess, time
from pathlib import Path
worker = subprocess.Popen(["sleep", "600"])
Path(os.environ["PIDS"] + "-").write_text(f"{os.getpid()} {worker.pid}")
os.rename(os.environ["PIDS"] + "-", os.environ["PIDS"])
time.sleep(600)
"""


@pytest.mark.parametrize("leash", ["with", "without"])
def test_a_server_and_its_workers_end_with_a_test_that_is_killed(tmp_path: Path, leash: str) -> None:
    """Without the leash they stay, so this test can fail."""
    (tmp_path / "server.py").write_text(_SERVER)
    paths = [str(it) for it in (Path(__file__).parents[1], tmp_path)]
    program = f"import sys; sys.path[:0] = {paths}\n{_TEST}"
    test = subprocess.Popen([sys.executable, "-c", program, str(tmp_path), leash])
    deadline = time.monotonic() + 30
    while not (tmp_path / "pids").exists():
        assert time.monotonic() < deadline and test.poll() is None
        time.sleep(0.02)
    pids = [int(it) for it in (tmp_path / "pids").read_text().split()]
    test.kill()
    test.wait()
    deadline = time.monotonic() + (20 if leash == "with" else 1)
    while any(map(runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    left = [it for it in pids if runs(it)]
    for it in left:
        os.kill(it, 9)
    assert left == ([] if leash == "with" else pids)


def runs(pid: int) -> bool:
    """Is there a process, and is it more than a status that nobody has asked for?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return sys.platform != "linux"


@pytest.mark.parametrize(
    "option, status, told",
    [("--help", 0, "usage: ./task guests"), ("--quik", 2, "unrecognized arguments: --quik")],
)
def test_no_framework_is_tested_if_help_or_an_unknown_option_is_asked_for(option: str, status: int, told: str) -> None:
    guests = Path(__file__).parents[1] / "guests.py"
    # Testing the frameworks would take minutes, and print no usage.
    done = subprocess.run([sys.executable, str(guests), option], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, told in done.stdout + done.stderr) == (status, True)
