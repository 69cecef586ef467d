"""Processes of two versions of the library on one lock, while one version replaces the other.

It is the storm of tests/clients, whose contenders in Python have one version or the other. Processes
are ended by SIGTERM and by SIGKILL in turn, as a deployment does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from clients.storm import TESTS, Contender, Storm
from windows import fences_back, overlaps

from holdfast.embedded import Nodes

OLD, NEW = "old", "new"
# Who runs at first. The storm replaces the old ones by new ones, and one of the new ones by an old one.
AT_FIRST = (OLD, OLD, OLD, NEW)
CHANGES = ((0, NEW), (1, NEW), (0, OLD), (3, OLD), (2, NEW))
LEAST = 0.1  # of all sections that each version must have had


class Upgrade(Storm):
    """A storm of two versions. `places`: where each is, for PYTHONPATH."""

    def __init__(self, places: dict[str, Path], nodes: Nodes, folder: Path, seconds: float) -> None:
        super().__init__(nodes, folder, languages=())
        self.places, self.pause = places, seconds / (len(CHANGES) + 1)
        self.contenders = [self.of(version, number) for number, version in enumerate(AT_FIRST)]

    def of(self, version: str, number: int) -> Contender:
        """A process of a version."""
        task = self.task(f"{version}-{number}") | {"long": 0.01}  # many short sections
        command = [sys.executable, "-m", "clients.contender", json.dumps(task)]
        return Contender(version, command, os.pathsep.join([str(self.places[version]), str(TESTS)]))

    def replaces(self) -> None:
        """The next change."""
        which, version = CHANGES[self.harmed]
        time.sleep(self.pause)
        self.contenders[which].kill(signal.SIGKILL if self.harmed % 2 else signal.SIGTERM)
        self.contenders[which] = self.of(version, len(AT_FIRST) + self.harmed)
        self.contenders[which].start()

    def is_over(self) -> bool:
        """Were all changes made? Then the processes go on for a while."""
        if over := self.harmed == len(CHANGES):
            time.sleep(self.pause)
        return over


def storm(places: dict[str, Path], folder: Path, seconds: float) -> tuple[Counter[str], list[str]]:
    """Let processes of both versions contend.

    Args:
        places: Where each version is, for PYTHONPATH.
        folder: For what they write.
        seconds: How long it lasts.

    Returns:
        How many sections each version had, and what is wrong.
    """
    with Nodes(3, tcp=True) as nodes:
        upgrade = Upgrade(places, nodes, folder, seconds)
        upgrade.rages(seconds + 60, [upgrade.replaces], upgrade.is_over)
    windows = upgrade.windows()
    wrong = [f"{a.token} {a.fence} and {b.token} {b.fence} held at once for {a.ends - b.begins} ns" for a, b in overlaps(windows)]
    wrong += [f"{b.token} got the fence {b.fence} after {a.token} had {a.fence}" for a, b in fences_back(windows)]
    wrong += [f"{upgrade.register.lost} updates were lost"] * bool(upgrade.register.lost)
    shares = Counter(it.token.partition("-")[0] for it in windows)
    wrong += [f"the {it} version had {shares[it]} of {len(windows)} sections" for it in (OLD, NEW) if shares[it] <= LEAST * len(windows)]
    return shares, wrong
