"""Clients in two languages contend for one lock, while processes and nodes are killed and stopped.

A live harness of real processes and real servers, so it sleeps: what is stopped must stay stopped for a while.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.embedded import Nodes
from holdfast.testing.windows import Window

TESTS = Path(__file__).parent.parent
CLIENT = TESTS.parent / "clients/node"
TTL = 1000  # ms
LANGUAGES = ("node", "python")


@dataclass
class Contender:
    """A process that is started again when it was killed."""

    language: str
    command: list[str]
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        self.process = subprocess.Popen(self.command, env=environment, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Storm:
    """The contenders on these nodes, and what they wrote.

    Args:
        nodes: Servers that listen on TCP.
        folder: Where the contenders write.
        each: How many processes of each language contend.
        client: Where the client for Node was built.
    """

    def __init__(self, nodes: Nodes, folder: Path, each: int = 3, client: Path = CLIENT) -> None:
        self.nodes, self.folder = nodes, folder
        self.dice = random.Random(1)
        self.harmed = 0
        task = {"urls": nodes.urls, "fresh": sorted(nodes.run_ids), "name": "contended", "prefix": "storm:"}
        self.contenders = []
        for number, language in itertools.product(range(each), LANGUAGES):
            told = json.dumps(task | {"maxTtl": TTL, "ttl": TTL, "file": str(folder / f"{language}-{number}")})
            node = ["node", str(client / "dist/storm/contender.js"), told]
            self.contenders.append(
                Contender(language, node if language == "node" else [sys.executable, "-m", "clients.contender", told])
            )

    def rages(self, seconds: float, harms: Sequence[Callable[[], None]], enough: Callable[[], bool]) -> None:
        """Do harm until it is enough, for so long at most. Then everybody is killed."""
        for it in self.contenders:
            it.start()
        end = time.monotonic() + seconds
        try:
            time.sleep(1)
            while time.monotonic() < end and not enough():
                self.dice.choice(harms)()
                self.harmed += 1
                for it in self.contenders:
                    assert it.process.poll() is None, f"a contender in {it.language} has ended by itself: {it.process.returncode}"
        finally:
            for it in self.contenders:
                it.kill()

    # ------------------------------------------------ harm

    def kills_a_process(self) -> None:
        victim = self.dice.choice(self.contenders)
        victim.kill()
        victim.start()
        time.sleep(0.3)

    def stops_a_process(self, *languages: str) -> None:
        """For longer than a lease lasts."""
        victim = self.dice.choice([it for it in self.contenders if it.language in (languages or LANGUAGES)])
        os.kill(victim.process.pid, signal.SIGSTOP)
        time.sleep(TTL / 1000 * 1.3)
        os.kill(victim.process.pid, signal.SIGCONT)
        time.sleep(0.1)

    def kills_a_node(self) -> None:
        node = self.dice.randrange(len(self.nodes))
        self.nodes.kill(node)
        time.sleep(0.3)
        self.nodes.restart(node)
        time.sleep(0.3)

    def freezes_a_node(self) -> None:
        node = self.dice.randrange(len(self.nodes))
        self.nodes.freeze(node)
        time.sleep(0.5)
        self.nodes.thaw(node)
        time.sleep(0.2)

    def rests(self) -> None:
        time.sleep(0.2)

    # ------------------------------------------------ what it was

    def windows(self) -> list[Window]:
        """Of each lease, from when until when its process certainly believed that it held the lock."""
        windows = []
        for file in self.folder.glob("*-*"):
            seen: dict[int, list[int]] = {}
            for line in file.read_text().splitlines():
                fence, moment = map(int, line.split())
                seen.setdefault(fence, []).append(moment)
            windows += [Window("contended", file.name, it, min(at), max(at)) for it, at in seen.items()]
        return windows


def planted(folder: Path, *changes: tuple[str, str, str]) -> Path:
    """Copy the client as it was built, with changes: file, text, and what replaces it. Returns where the copy is."""
    copy = folder / "copy"
    shutil.copytree(CLIENT / "dist", copy / "dist")
    (copy / "package.json").write_text('{"type": "module"}')
    shutil.copytree(CLIENT.parent / "vectors", folder / "vectors")
    for name, before, after in changes:
        file = copy / "dist/src" / name
        text = file.read_text()
        assert before in text, f"{name} has changed: plant {after!r} elsewhere"
        file.write_text(text.replace(before, after))
    return copy
