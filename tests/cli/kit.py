"""What the tests of the command share: its processes, and copies of the package with a fault planted."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nemesis.processes import PATIENCE, SOURCE, alive, below, ours, until

from holdfast.cli import tree

# Compiled once, and not for each test.
PYC = Path(tempfile.gettempdir()) / f"holdfast-tests-{os.getuid()}"


class Command:
    """Runs `holdfast` as a user does, in an environment of its own."""

    def __init__(self, folder: Path, environment: Mapping[str, str], source: Path = SOURCE) -> None:
        self.folder = folder
        shim = folder / "bin/holdfast"
        shim.parent.mkdir(exist_ok=True)
        shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
        shim.chmod(0o755)
        found = ours(PATH=f"{shim.parent}:{os.environ['PATH']}", PYTHONPYCACHEPREFIX=str(PYC), HOME=str(folder))
        found.pop("PYTHONDONTWRITEBYTECODE", None)
        self.environment = {**found, "PYTHONPATH": str(source), **environment}

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
            others = below(process.pid)
            for pid in (process.pid, *others):
                tree.send(pid, signal.SIGCONT)
            # The holder kills the command, and releases the lock.
            tree.send(process.pid, signal.SIGKILL)
            process.wait()
            with contextlib.suppress(AssertionError):
                until(lambda: not any(map(alive, others)), 3.0)
            for pid in others:
                tree.send(pid, signal.SIGKILL)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


def holder_of(supervisor: int) -> int:
    """The process id of the holder below a supervisor."""
    found: int = until(lambda: tree.children(supervisor))[0]
    return found


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
