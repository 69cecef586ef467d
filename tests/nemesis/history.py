"""What clients wrote down of what they believed, and whether all of it can be true.

Knows lines, times and the laws. Must not know how the lines came about.

A line is one JSON object: `what`, `at` (on the machine's clock that leases are measured on, which all processes share), `who`, and
by kind `name`, `token`, `fence`, `since`, `until`. A window begins when its client learnt that it holds the lock (`since`), and ends
with its release, with the news that it is lost, or at the last deadline that it knew of, whichever was first.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windows import fences_back, overlaps

from holdfast.testing.windows import HeldWindow

# What clients write.
ASKED, GRANTED, REFUSED, UNTIL, LOST, RELEASED = "asked", "granted", "refused", "until", "lost", "released"
READY, FORKED, RAISED = "ready", "forked", "raised"  # raised: a lease was lost, and its user met with it
BALANCED = "balanced"  # at a client's end: what it told its observers goes together, and so do its counts
FAILED = "failed"  # what no client may ever see

EXCLUSION, FENCING, NO_FENCE = "exclusion", "fence", "no fence"
AROUND = 0.5  # seconds of history to tell before and after what went wrong
MOST_LINES = 60


@dataclass(frozen=True)
class Broken:
    """A law is broken. `at`: when."""

    law: str
    told: str
    at: float

    def __str__(self) -> str:
        return f"{self.law}: {self.told}"


@dataclass
class History:
    """All lines of all clients, in the order in which they were read."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    windows: dict[str, HeldWindow] = field(default_factory=dict)  # by token
    counts: Counter[str] = field(default_factory=Counter)
    alive: dict[str, float] = field(default_factory=dict)  # when each name was last granted, kept or given back
    ready: set[str] = field(default_factory=set)  # clients that have begun
    balanced: set[str] = field(default_factory=set)  # clients whose books went together at their end
    broken: list[Broken] = field(default_factory=list)  # what one line is enough to see
    _over: set[str] = field(default_factory=set)
    _whose: dict[str, str] = field(default_factory=dict)

    def add(self, line: dict[str, Any]) -> None:
        """One more line."""
        self.lines.append(line)
        what, at, token = line["what"], line["at"], line.get("token", "")
        self.counts[what] += 1
        if what == READY:
            self.ready.add(line["who"])
        if what == BALANCED:
            self.balanced.add(line["who"])
        if what == FAILED:
            self.broken.append(Broken(FAILED, f"{line['who']}: {line['told']}", at))
        if what == GRANTED:
            self._granted(line)
        elif (window := self.windows.get(token)) is not None and token not in self._over:
            if what == UNTIL:
                window.ends = line["until"]
            elif what in (LOST, RELEASED):
                window.ends = min(window.ends, at)
                self._over.add(token)
        if what in (GRANTED, UNTIL, RELEASED):
            self.alive[line["name"]] = max(at, self.alive.get(line["name"], 0.0))

    def _granted(self, line: dict[str, Any]) -> None:
        fence, token = line["fence"], line["token"]
        if type(fence) is not int or not 0 < fence < 2**53:
            self.broken.append(Broken(NO_FENCE, f"{line['who']} was granted {line['name']} with the fence {fence!r}", line["at"]))
            return
        self.windows[token] = HeldWindow(line["name"], token, fence, line["since"], line["until"])
        self._whose[token] = line["who"]

    def judge(self, since: float = 0.0) -> list[Broken]:
        """Every law that is broken by windows that begin after `since`."""
        windows = [it for it in self.windows.values() if it.begins >= since]
        found = [it for it in self.broken if it.at >= since]
        for earlier, later in overlaps(windows):
            told = f"{self._of(later)} was granted it {earlier.ends - later.begins:.6f} s before {self._of(earlier)} was over"
            found.append(Broken(EXCLUSION, told, later.begins))
        for earlier, later in fences_back(windows):
            told = f"{self._of(later)} was granted it with {later.fence}, after {self._of(earlier)} with {earlier.fence}"
            found.append(Broken(FENCING, told, later.begins))
        return found

    def around(self, at: float) -> list[str]:
        """The lines around a moment, in the order of time."""
        near = sorted((it for it in self.lines if abs(it["at"] - at) < AROUND), key=lambda it: it["at"])
        near.sort(key=lambda it: abs(it["at"] - at))
        return [json.dumps(it) for it in sorted(near[:MOST_LINES], key=lambda it: it["at"])]

    def _of(self, window: HeldWindow) -> str:
        return f"{window.name} {self._whose[window.token]} ({window.token})"


class Tail:
    """Reads what is appended to files in a folder. A last line that is not whole is left for the next time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[Path, int] = {}

    def take(self) -> list[dict[str, Any]]:
        """All lines that are new."""
        found = []
        for path in sorted(self.folder.glob("*.history")):
            with open(path, "rb") as file:
                file.seek(self._read.get(path, 0))
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read[path] = self._read.get(path, 0) + len(whole) + len(newline)
            found += [json.loads(line) for line in whole.splitlines()]
        return found
