"""Processes of tests: started, waited for, looked at, and ended with all that they have started.

Knows processes, the kernel's view of them, and C compilers. Must not know locks, nodes or why anybody ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import embedded
from holdfast.cli import tree

TESTS = Path(__file__).parent.parent
SOURCE = TESTS.parent / "src"
WITH_TESTS = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])  # the PYTHONPATH of what is in `tests`
PATIENCE = 20.0  # seconds for which anything is waited for
QUIET: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
free_port = embedded._free_port


def until(what: Callable[[], Any], within: float = PATIENCE, told: str = "") -> Any:
    """Wait until something is true. Returns what it is. Who does not answer yet is asked again. `told`: what it is, for the error."""
    deadline, last = time.monotonic() + within, None
    while True:
        try:
            if found := what():
                return found
        except OSError as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {within:g} s for nothing: {told or what}") from last
        time.sleep(0.002)


class Running:
    """A program that runs, can be stopped for a while, and can be started again. Anything of `Popen` may be said of it."""

    def __init__(self, *words: object, **more: Any) -> None:
        self._words, self._more = [str(it) for it in words], {**QUIET, **more}
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._words, **self._more)

    def end(self, number: int = signal.SIGKILL) -> None:
        """End it by a signal; what descends from it is killed after it, if it is. Idempotent."""
        others = below(self.process.pid) if number == signal.SIGKILL else []
        self.process.send_signal(number)
        for it in others:
            tree.send(it, signal.SIGKILL)
        self.process.wait(PATIENCE)

    def restart(self, number: int = signal.SIGKILL) -> None:
        """End it by a signal, and start it again."""
        self.end(number)
        self.process = self._started()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *raised: object) -> None:
        self.end()


def below(pid: int) -> list[int]:
    """All that descends from a process."""
    return [it.pid for it in tree.descendants(pid)]


def kill_all(pid: int) -> None:
    """Kill a process, and all that descends from it: as the end of their machine does."""
    for it in [*below(pid), pid]:
        tree.send(it, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Does this process run (or at least stand)?"""
    it = tree.process(pid)
    return it is not None and not it.dead


def state(pid: int) -> str:
    """A process's state, as the kernel has it: T is stopped. "" if there is none."""
    it = tree.process(pid)
    return it.state if it else ""


def naming(word: object) -> list[int]:
    """The processes whose command lines name this: a folder, or a file of theirs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if str(word).encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def bound(command: list[str], output: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Start a process that dies with this one."""
    command = [shutil.which(command[0]) or command[0], *command[1:]]
    return embedded._launch([sys.executable, "-I", "-S", "-c", embedded._BOUND, str(os.getpid()), *command], subprocess.DEVNULL, output)


def ran(*words: object, within: float, cwd: Path = TESTS.parent, **environment: str) -> tuple[int, str, str]:
    """Run a Python program, in which a warning is an error, to its end: its exit status, and what it wrote to stdout and stderr."""
    command = [sys.executable, "-W", "error", *map(str, words)]
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, text=True, timeout=within, start_new_session=True, **PIPES)
    return done.returncode, done.stdout, done.stderr


def ours(**more: str) -> dict[str, str]:
    """The environment of a program that knows this source, and nothing of what this process's environment says of holdfast."""
    kept = {name: it for name, it in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**kept, "PYTHONPATH": str(SOURCE), **more}


def compiled(source: Path, made: Path, *options: str) -> str:
    """Compile a program in C, or a library with `-shared`. Its path."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, f"{source.name} needs a C compiler"
    shared = ["-fPIC"] if "-shared" in options else []
    subprocess.run([compiler, "-O2", *shared, "-o", made, source, *options], check=True, capture_output=True)
    return str(made)
