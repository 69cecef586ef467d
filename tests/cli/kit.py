"""What the tests of the command share: its processes, and an instrument that shows when a command lived."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from holdfast.cli import tree

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent / "src"
# Compiled once, and not for each test.
PYC = Path(tempfile.gettempdir()) / f"holdfast-tests-{os.getuid()}"
PATIENCE = 20.0  # seconds for which anything is waited for
T = TypeVar("T")


class Life(NamedTuple):
    """When a beater lived, by CLOCK_BOOTTIME, and its fence."""

    first: float
    last: float
    fence: int


def life(path: Path) -> Life | None:
    """Read a beater's file; None if it has not begun."""
    try:
        first, last, fence = struct.unpack("=3d", path.read_bytes())
    except (FileNotFoundError, struct.error):
        return None
    return Life(first, last, int(fence))


def overlaps(lives: list[Life]) -> list[tuple[Life, Life]]:
    """List the neighbours of which the earlier one still lived when the later one began."""
    ordered = sorted(lives)
    return [(a, b) for a, b in pairwise(ordered) if a.last > b.first]


def shared_out(faults: Sequence[str], runs: int, at_once: int, share: Callable[[str, int, int], T]) -> Iterator[tuple[str, list[T]]]:
    """Share the faults of each class out among arenas that run at the same time.

    Args:
        faults: The classes.
        runs: How many faults of each.
        at_once: How many arenas there are at the same time.
        share: Makes an arena, which has a number, and so many faults of a class in it. Returns what it found.

    Yields:
        Each class, with what its arenas found.
    """
    shares = [runs // at_once + (it < runs % at_once) for it in range(at_once)]
    with ThreadPoolExecutor(at_once) as pool:
        asked = {it: [pool.submit(share, it, number, some) for number, some in enumerate(shares) if some] for it in faults}
        for fault, parts in asked.items():
            yield fault, [it.result() for it in parts]


def beater(folder: Path) -> str:
    """Compile the instrument."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, "the instrument needs a C compiler"
    program = folder / "beater"
    subprocess.run([compiler, "-O2", "-o", program, HERE / "beater.c"], check=True)
    return str(program)


class Command:
    """Runs `holdfast` as a user does, in an environment of its own."""

    def __init__(self, folder: Path, environment: Mapping[str, str], source: Path = SOURCE) -> None:
        self.folder = folder
        shim = folder / "bin/holdfast"
        shim.parent.mkdir(exist_ok=True)
        shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
        shim.chmod(0o755)
        ours = {name: it for name, it in os.environ.items() if not name.startswith("HOLDFAST_")}
        ours.pop("PYTHONDONTWRITEBYTECODE", None)
        self.environment = {
            **ours,
            "PATH": f"{shim.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(source),
            "PYTHONPYCACHEPREFIX": str(PYC),
            "HOME": str(folder),
            **environment,
        }

    def words(self, *words: str) -> list[str]:
        """The words of a command line."""
        return [sys.executable, "-m", "holdfast", *words]

    def run(self, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        more = {"capture_output": True, "text": True, "timeout": PATIENCE, "check": False, **more}
        more["env"] = {**self.environment, **more.pop("env", {})}
        return subprocess.run(self.words(*words), **more)

    @contextlib.contextmanager
    def started(self, *words: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
        """Start it; what is left of it at the end is killed."""
        more["env"] = {**self.environment, **more.pop("env", {})}
        process = subprocess.Popen(self.words(*words), text=True, **more)
        try:
            yield process
        finally:
            below = [it.pid for it in tree.descendants(process.pid)]
            for pid in (process.pid, *below):
                tree.send(pid, signal.SIGCONT)
            # The holder kills the command, and releases the lock.
            tree.send(process.pid, signal.SIGKILL)
            process.wait()
            deadline = time.monotonic() + 3.0
            while any(map(alive, below)) and time.monotonic() < deadline:
                time.sleep(0.002)
            for pid in below:
                tree.send(pid, signal.SIGKILL)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


def until(what: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Wait until something is true. Returns what it is."""
    deadline = time.monotonic() + patience
    while not (found := what()):
        assert time.monotonic() < deadline, f"waited {patience} s for nothing"
        time.sleep(0.002)
    return found


def holder_of(supervisor: int) -> int:
    """The process id of the holder below a supervisor."""
    found: int = until(lambda: tree.children(supervisor))[0]
    return found


def alive(pid: int) -> bool:
    """Does this process run?"""
    it = tree.process(pid)
    return it is not None and not it.dead


def lines(text: str) -> list[dict[str, Any]]:
    """The lines of JSON in a text."""
    return [json.loads(it) for it in text.splitlines() if it.startswith("{")]


Changes = list[tuple[str, str, str]]  # files of the command, text of each, and what replaces it
# Nothing renews the lease, and to kill takes 30 ms, as on a machine that is busy.
UNRENEWED: Changes = [("work.py", 'asked: dict[str, Any] = {"ttl": ttl, ', 'asked: dict[str, Any] = {"renew": False, "ttl": ttl, ')]
_FOUND = "    found = descendants(root, without)\n    for it"
SLOW: Changes = [("tree.py", _FOUND, f"    __import__('time').sleep(0.03)\n{_FOUND}")]
# A holder that was killed is long in ending. It has closed its files, and its children are still its own.
_TURN = "        self._hear()\n        self._line.flush()\n"
_DIES = "        if os.path.exists(os.environ['DIES']): self._line.close(); os.kill(os.getpid(), signal.SIGSTOP)\n"
DYING: Changes = [("holder.py", _TURN, _DIES + _TURN)]
# The kernel does not let a command die.
_SENT = "        os.kill(pid, number)"
DEATHLESS: Changes = [
    ("tree.py", _SENT, f"        if number != 9 or not (it := process(pid)) or it.name != 'beater':\n    {_SENT}"),
    ("tree.py", "_prctl(_SET_PDEATHSIG, signal.SIGKILL)", "pass"),
]


def copied(folder: Path, *changes: tuple[str, str, str]) -> Path:
    """Copy the package, with changes. Returns where the copy is."""
    copy = folder / "copy"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, before, after in changes:
        file = copy / "holdfast/cli" / name
        text = file.read_text()
        assert before in text, f"{name} has changed: plant {after!r} elsewhere"
        file.write_text(text.replace(before, after))
    return copy
