"""Clients in three languages contend for one lock, while processes and nodes are killed and stopped.

Each section reads a number from a register that checks fences, and writes the next one there.
A live harness of real processes and real servers, so it sleeps: what is stopped must stay stopped for a while.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.embedded import Nodes
from holdfast.testing.windows import HeldWindow

TESTS = Path(__file__).parent.parent
CLIENT = TESTS.parent / "clients/node"
LEVEL_1 = TESTS.parent / "clients/level1/level1.py"
TTL = 1000  # ms
LANGUAGES = ("node", "python", "level1")


class Register(socketserver.ThreadingTCPServer):
    """A number that is written with fences: `read FENCE`, `write FENCE OLD NEW`. A lower fence is refused.

    `lost`: how many updates were made from a number that somebody had changed meanwhile.
    """

    daemon_threads = allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Conversation)
        self.value = self.fence = self.written = self.refused = self.lost = 0
        self.mutex = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def says(self, what: str, fence: int, old: int = 0, new: int = 0) -> str:
        with self.mutex:
            if fence < self.fence:
                self.refused += 1
                return "refused"
            self.fence = fence
            if what == "write":
                self.lost += old != self.value
                self.value, self.written = new, self.written + 1
            return str(self.value)


class Conversation(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Register)
        for line in self.rfile:
            what, *numbers = line.decode().split()
            self.wfile.write(f"{self.server.says(what, *map(int, numbers))}\n".encode())


@dataclass
class Contender:
    """A process that is started again when it was killed. `path`: its PYTHONPATH."""

    language: str
    command: list[str]
    path: str = str(TESTS)
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": self.path}
        self.process = subprocess.Popen(self.command, env=environment, stdout=subprocess.DEVNULL)

    def kill(self, how: int = signal.SIGKILL) -> None:
        self.process.send_signal(how)
        self.process.wait()


class Storm:
    """The contenders on these nodes, and what they wrote.

    Args:
        nodes: Servers that listen on TCP.
        folder: Where the contenders write.
        each: How many processes of each language contend.
        languages: Which ones.
    """

    def __init__(self, nodes: Nodes, folder: Path, each: int = 2, languages: Sequence[str] = LANGUAGES) -> None:
        self.nodes, self.folder = nodes, folder
        self.register = Register()
        self.dice = random.Random(1)
        self.harmed = 0
        self.contenders = []
        for number, language in itertools.product(range(each), languages):
            words = {
                "node": ["node", str(CLIENT / "dist/storm/contender.js")],
                "python": [sys.executable, "-m", "clients.contender"],
                "level1": [sys.executable, "-m", "clients.contender_level1"],
            }
            self.contenders.append(Contender(language, [*words[language], json.dumps(self.task(f"{language}-{number}"))]))

    def task(self, name: str) -> dict[str, Any]:
        """What a contender is told. `name`: of the file into which it writes."""
        task = {"urls": self.nodes.urls, "name": "contended", "prefix": "storm:", "maxTtl": TTL, "ttl": TTL, "long": 0.1}
        return task | {"file": str(self.folder / name), "level1": str(LEVEL_1), "register": self.register.server_address[1]}

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
            self.register.shutdown()
            self.register.server_close()

    # ------------------------------------------------ harm

    def kills_a_process(self) -> None:
        victim = self.dice.choice(self.contenders)
        victim.kill()
        victim.start()
        time.sleep(0.3)

    def stops_a_process(self) -> None:
        """For longer than a lease lasts."""
        victim = self.dice.choice(self.contenders)
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

    def restarts_a_majority(self) -> None:
        """All at once, and without data. A holder believes in its lease for a while, and the others wait out the guard."""
        nodes = self.dice.sample(range(len(self.nodes)), len(self.nodes) // 2 + 1)
        for node in nodes:
            self.nodes.kill(node)
        for node in nodes:
            self.nodes.restart(node)
        time.sleep(TTL / 1000 + 3)

    def freezes_a_node(self) -> None:
        node = self.dice.randrange(len(self.nodes))
        self.nodes.freeze(node)
        time.sleep(0.5)
        self.nodes.thaw(node)
        time.sleep(0.2)

    def rests(self) -> None:
        time.sleep(0.2)

    # ------------------------------------------------ what it was

    def windows(self) -> list[HeldWindow]:
        """Of each lease, from when until when its process certainly believed that it held the lock."""
        windows = []
        for file in self.folder.glob("*-*"):
            seen: dict[int, list[int]] = {}
            for line in file.read_text().splitlines():
                fence, moment = map(int, line.split())
                seen.setdefault(fence, []).append(moment)
            windows += [HeldWindow("contended", file.name, it, min(at), max(at)) for it, at in seen.items()]
        return windows
