"""Real servers of frameworks as processes, and a record of what their programs did, by the monotonic clock.

Knows processes and files. Must not know frameworks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import httpx
from integrations.leash import leashed
from nemesis.processes import free_port

import holdfast

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE = 90.0  # seconds for a server to start on a busy machine; on an idle one it takes 2
SOURCE = Path(holdfast.__file__).parents[1]


class Entry(NamedTuple):
    """A line that a program wrote. `at`: seconds of the monotonic clock, which all processes of a machine share."""

    at: float
    pid: int
    words: list[str]


class Stage:
    """Processes of one test, all of which write into one record."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder, self.record = folder, folder / "record"
        self.record.touch()
        paths = os.pathsep.join([str(SOURCE), str(PROGRAMS)])
        self.environment = {**os.environ, **environment, "RECORD": str(self.record), "PYTHONPATH": paths}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.killed: dict[int, float] = {}
        self._leashes = contextlib.ExitStack()

    def start(self, *words: str, program: str = "", **environment: str) -> subprocess.Popen[bytes]:
        """Start a module of this Python, or else a program. It is the first of a group of its own, which ends with this process."""
        log = (self.folder / f"log-{len(self.processes)}").open("wb")
        process = subprocess.Popen(
            [program, *words[1:]] if program else [sys.executable, "-m", *words],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        log.close()
        self.processes.append(process)
        self._leashes.enter_context(leashed(process.pid))
        return process

    def kill(self, pid: int) -> None:
        """Kill a process, and if it is the first of a group, the whole group."""
        group = {it.pid for it in self.entries() if _group(it.pid) == pid}
        self.killed.update(dict.fromkeys({pid, *group}, time.monotonic()))
        if _group(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)

    def entries(self, *words: str) -> list[Entry]:
        """What was written so far, in order; only lines that begin with these words."""
        lines = [line.split() for line in self.record.read_text().splitlines()]
        found = [Entry(float(at), int(pid), rest) for at, pid, *rest in lines]
        return sorted(it for it in found if it.words[: len(words)] == list(words))

    def logs(self) -> str:
        """All that the processes printed."""
        return "\n".join(it.read_text(errors="replace") for it in sorted(self.folder.glob("log-*")))

    def until(self, condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
        """Wait until something is the case."""
        end = time.monotonic() + patience
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not within {patience:g} s\n{self.logs()[-6000:]}")
            time.sleep(0.02)

    def serve(self, *words: str, path: str, program: str = "") -> str:
        """Start a server, whose words may have {port} in them, and wait until it answers at a path. Returns its address."""
        port = free_port()
        address = f"http://127.0.0.1:{port}"
        self.start(*(it.format(port=port) for it in words), program=program)
        self.until(lambda: _answers(f"{address}{path}"), "the server answers")
        return address

    def close(self) -> None:
        """End all processes that are left, with what they started."""
        self._leashes.close()
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


@contextlib.contextmanager
def staged(folder: Path, environment: Mapping[str, str]) -> Iterator[Stage]:
    """A stage that is cleared at the end."""
    stage = Stage(folder, environment)
    try:
        yield stage
    finally:
        stage.close()


def overlaps(entries: list[Entry], killed: Mapping[int, float] | None = None) -> list[tuple[Entry, Entry]]:
    """Sections that were entered before the one before them had been left: `enter NAME` and `leave NAME` lines.

    A section of a process that was killed ends there. `killed`: when, by process id.
    """
    ends = killed or {}
    found, inside = [], dict[str, Entry]()
    for entry in entries:
        if entry.words[0] not in ("enter", "leave"):
            continue
        word, name = entry.words[:2]
        if word == "enter":
            if name in inside and ends.get(inside[name].pid, entry.at) >= entry.at:
                found.append((inside[name], entry))
            inside[name] = entry
        elif name in inside and inside[name].pid == entry.pid:
            del inside[name]
    return found


def fairness(entries: list[Entry], began: float) -> float:
    """Jain's index of how long names waited on average: 1 if all did equally long. `entries`: `WORD NAME ...` lines."""
    waits: dict[str, list[float]] = {}
    for entry in entries:
        waits.setdefault(entry.words[1], []).append(entry.at - began)
    means = [sum(it) / len(it) for it in waits.values()]
    return sum(means) ** 2 / (len(means) * sum(it * it for it in means))
