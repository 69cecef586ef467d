"""The processes of users, from outside.

Knows pipes and signals. Must not know what users do, or when they are to be stopped.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

TESTS = Path(__file__).parent.parent


class Client:
    """One process. `told`: what it was told when it began; `reports`: what it has said since, and when."""

    def __init__(self, title: str, told: dict[str, Any], log: Path) -> None:
        self.title, self.told, self._log = title, told, log
        self.reports: list[tuple[float, dict[str, Any]]] = []
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "soak.client", json.dumps(told)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": str(TESTS)},
                start_new_session=True,
            )
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()
        self.answer("ready")

    def _read(self, output: IO[str]) -> None:
        for line in output:
            (what, told), *_ = json.loads(line).items()
            if what == "report":
                self.reports.append((time.monotonic(), told))
            else:
                self._answers.put({what: told})
        self._answers.put({})

    def ask(self, wish: str) -> None:
        """Make a wish."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{wish}\n")
        self._process.stdin.flush()

    def answer(self, wish: str) -> dict[str, Any]:
        """What came of it."""
        try:
            told: dict[str, Any] = self._answers.get(timeout=60)[wish]
        except (queue.Empty, KeyError):
            raise SystemExit(f"{self.title} does not answer {wish!r}:\n{self._log.read_text()}") from None
        if "cycles" in told:
            self.reports.append((time.monotonic(), told))
        return told

    def last(self) -> dict[str, Any]:
        """What it told last."""
        nothing = {"cycles": 0, "holds": 0, "fresh": self.told["first"], "trouble": {}, "wrong": [], "memory": 0.0}
        return self.reports[-1][1] if self.reports else nothing

    def signal(self, number: int) -> None:
        """Stop it, have it run on, kill it."""
        self._process.send_signal(number)

    def end(self) -> None:
        """Kill it, whatever it does."""
        self._process.kill()
        self._process.communicate()


def all_of(clients: Iterable[Client], wish: str) -> list[dict[str, Any]]:
    """Make all of them the same wish at once; what came of it."""
    asked = list(clients)
    for it in asked:
        it.ask(wish)
    return [it.answer(wish) for it in asked]
