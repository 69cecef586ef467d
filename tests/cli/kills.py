"""Nobody overlaps: contenders for one lock, and everything that can be killed, stopped or cut is, at random.

    PYTHONPATH=tests .venv/bin/python -m cli.kills --runs 200

A contender is `holdfast run --ttl 1s`. Its command ignores SIGTERM, and starts a daemon that does so, too.

In two classes lives may overlap, as `holdfast run --help` says: both supervisors are stopped, or an operator takes the lock away.
There each life must have a higher fence than the one before, so that storage refuses the late one.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import redis
from cli.kit import Command
from nemesis import arena
from nemesis.arena import NAME, Contender, Found
from nemesis.harm import frozen, stopped
from nemesis.processes import SOURCE

from holdfast import Holdfast
from holdfast.cli import tree

TTL = 1.0
LONGER = 1.5 * TTL  # seconds: no lease that is not renewed lasts so long
AFTER = 0.3  # seconds for which two commands could live at once, after the second one began


class Arena(arena.Arena):
    """Supervisors that run a command. `supervisor`, `holder`: the processes of the contender that has the lock."""

    names = ("0", "1", "2")
    ttl, patience = TTL, 30.0
    keeps = frozenset({"supervisor stopped", "connections cut"})
    fenced = frozenset({"both stopped", "lock taken"})
    supervisor = holder = 0

    def __init__(self, folder: Path, fault: str = "", seed: str = "", source: Path = SOURCE) -> None:
        self._source = source
        super().__init__(folder, fault, seed)

    def set_up(self) -> None:
        self.command = Command(self.folder, {**self.nodes.environment, "HOLDFAST_MAX_TTL": str(TTL)}, self._source)

    def runs(self, name: str, file: Path) -> AbstractContextManager[subprocess.Popen[Any]]:
        ends = ["ends"] if self.fault == "command ends" else []
        words = ("run", "--ttl", f"{TTL}s", "--kill-after", "100ms", NAME, "--", self.beater, str(file), "term", "twin", *ends)
        return self.command.started(*words, stderr=subprocess.DEVNULL)

    def victim(self) -> Contender | None:
        if (found := super().victim()) is None:
            return None
        # The holder is the first child. Others are orphans, of a holder that adopts none.
        below = tree.children(found.pid)
        if not below or not tree.children(below[0]):
            return None
        self.supervisor, self.holder = found.pid, below[0]
        return found

    def take(self) -> None:
        """Take the lock away, as an operator does."""
        # The time-out that a lease of one second asks for is too short for a client of a busy machine that has only one try.
        with Holdfast(*self.nodes.urls, max_ttl=TTL, ttl=TTL, node_timeout=0.3) as locks:
            locks.ready()
            locks.force_release(NAME, "a test")

    def cut(self) -> None:
        """Cut every connection to every node."""
        for url in self.nodes.urls:
            with redis.Redis.from_url(url) as node:
                node.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def freeze(self) -> None:
        """Two of three nodes say nothing."""
        with frozen(self.nodes, 0, 1):
            time.sleep(LONGER)

    def restart(self) -> None:
        """Two of three nodes forget everything."""
        for it in (0, 1):
            self.nodes.restart(it)

    def stop(self, *pids: int) -> None:
        """Stop them until somebody else has had the lock for a while."""
        with stopped(*pids):
            self.next_one()
            time.sleep(AFTER)

    def suspend(self) -> None:
        """Stop the supervisor for longer than a lease."""
        with stopped(self.supervisor):
            time.sleep(LONGER)

    faults: ClassVar[arena.Faults] = {
        "majority frozen": lambda it, _: it.freeze(),
        "majority restarted": lambda it, _: it.restart(),
        "connections cut": lambda it, _: it.cut(),
        "holder killed": lambda it, _: tree.send(it.holder, signal.SIGKILL),
        "supervisor killed": lambda it, _: tree.send(it.supervisor, signal.SIGKILL),
        "holder stopped": lambda it, _: it.stop(it.holder),
        "supervisor stopped": lambda it, _: it.suspend(),
        "both stopped": lambda it, _: it.stop(it.supervisor, it.holder),
        "lock taken": lambda it, _: it.take(),
        "command ends": lambda it, _: None,
        "command killed": lambda it, _: tree.send(tree.children(it.holder)[0], signal.SIGKILL),
    }


class Quiet(Arena):
    """Of a command that renews nothing: `UNRENEWED` in the kit."""

    faults: ClassVar[arena.Faults] = {"lease runs out": lambda it, _: None}


def campaign(folder: Path, fault: str, runs: int, source: Path = SOURCE, kind: type[Arena] = Arena) -> Found:
    """Make one class of faults so many times, with the package of another place."""
    return arena.campaign(partial(kind, source=source), folder, [fault], runs, seed=1)[fault]


def wrong(found: dict[str, Found]) -> list[str]:
    """The classes of faults in which something happened that must not."""
    return [fault for fault, it in found.items() if it.uncaught or it.overlaps]


if __name__ == "__main__":
    sys.exit(arena.main(Arena, wrong, "./task nemesis command", __doc__, at_once=4))
