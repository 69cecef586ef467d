"""Processes of two versions of the library on one lock, while one version replaces the other.

A live harness of real processes and real servers, so it sleeps. Processes are ended by SIGTERM and by
SIGKILL in turn, as a deployment does.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from windows import fences_back, overlaps

from holdfast.embedded import Nodes
from holdfast.testing.windows import HeldWindow

HERE = Path(__file__).parent
OLD, NEW = "old", "new"
# Who runs at first. The storm replaces the old ones by new ones, and one of the new ones by an old one.
AT_FIRST = ((OLD, "threads"), (OLD, "asyncio"), (OLD, "threads"), (NEW, "asyncio"))
CHANGES = ((0, NEW, "threads"), (1, NEW, "asyncio"), (0, OLD, "asyncio"), (3, OLD, "threads"), (2, NEW, "threads"))
PATIENCE = 20.0  # seconds for a process to hold the lock for the first time
LEAST = 0.1  # of all sections that each version must have had


class Section(NamedTuple):
    """When a process held the lock, by CLOCK_MONOTONIC."""

    first: float
    last: float
    fence: int
    version: str


@dataclass
class Outcome:
    """What a storm has shown."""

    sections: list[Section] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def share(self, version: str) -> int:
        """How many sections a version had."""
        return sum(it.version == version for it in self.sections)


class Process:
    """One process, and its log."""

    def __init__(self, version: str, face: str, place: Path, log: Path, environment: dict[str, str]) -> None:
        self.version, self.log, self._place = version, log, place
        self.ended = float("inf")
        ours = {it: value for it, value in os.environ.items() if not it.startswith("HOLDFAST_")}
        with log.with_suffix(".err").open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, HERE / "holder.py", face, "upgraded", log],
                env={**ours, **environment, "PYTHONPATH": str(place)},
                stderr=errors,
            )

    def end(self, how: signal.Signals) -> None:
        """End it, and wait for that."""
        self._process.send_signal(how)
        self._process.wait(20)
        self.ended = time.clock_gettime(time.CLOCK_MONOTONIC)

    def died(self) -> str:
        """Why it has ended by itself, if it has."""
        if self._process.poll() is None:
            return ""
        return f"a process of the {self.version} version ended with {self._process.returncode}: {self.errors()}"

    def errors(self) -> str:
        """The end of what it has said."""
        return self.log.with_suffix(".err").read_text()[-600:].strip()

    def written(self) -> list[str]:
        """The lines of its log."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def begun(self) -> bool:
        """Has it held the lock, or ended by itself?"""
        return len(self.written()) > 2 or self._process.poll() is not None

    def sections(self) -> list[Section]:
        """When it held the lock. A section that its end has cut off lasted until that end."""
        found, first, fence = [], 0.0, 0
        for line in self.written():
            match line.split():
                case ["from", path]:
                    assert path.startswith(str(self._place)), f"{path} is not of {self._place}"
                case ["begin", when, number]:
                    first, fence = float(when), int(number)
                case ["end", when]:
                    found.append(Section(first, float(when), fence, self.version))
                    first = 0.0
        return found + ([Section(first, self.ended, fence, self.version)] if first else [])


def faults(sections: list[Section]) -> list[str]:
    """Two holders at once, and fences that do not grow."""
    windows = [HeldWindow("", it.version, it.fence, it.first, it.last) for it in sections]
    wrong = [f"{a.token} {a.fence} and {b.token} {b.fence} held at once for {a.ends - b.begins:.3f} s" for a, b in overlaps(windows)]
    return wrong + [f"{b.token} got the fence {b.fence} after {a.token} had {a.fence}" for a, b in fences_back(windows)]


def storm(places: dict[str, Path], folder: Path, seconds: float) -> Outcome:
    """Let processes of both versions contend.

    Args:
        places: Where each version is, for PYTHONPATH.
        folder: For logs.
        seconds: How long it lasts.

    Returns:
        What was seen.
    """
    numbers, outcome, gone = itertools.count(), Outcome(), list[Process]()
    with Nodes(3) as nodes:
        environment = {**nodes.environment, "HOLDFAST_MAX_TTL": "2"}

        def start(version: str, face: str) -> Process:
            return Process(version, face, places[version], folder / f"{next(numbers)}.log", environment)

        running = [start(*it) for it in AT_FIRST]
        try:
            for step, (which, version, face) in enumerate((*CHANGES, (-1, "", ""))):
                # On a busy machine, a process may take seconds to start.
                deadline = time.monotonic() + PATIENCE
                while not all(it.begun() for it in running) and time.monotonic() < deadline:
                    time.sleep(0.02)
                time.sleep(seconds / (len(CHANGES) + 1))
                outcome.wrong += [told for it in running if (told := it.died())]
                if version:
                    gone.append(running[which])
                    running[which].end(signal.SIGKILL if step % 2 else signal.SIGTERM)
                    running[which] = start(version, face)
        finally:
            for it in running:
                it.end(signal.SIGKILL)
    outcome.sections = [section for it in (*gone, *running) for section in it.sections()]
    outcome.wrong += faults(outcome.sections)
    for version in (OLD, NEW):
        if outcome.share(version) < LEAST * len(outcome.sections) or not outcome.sections:
            outcome.wrong.append(f"the {version} version had {outcome.share(version)} of {len(outcome.sections)} sections")
    return outcome
