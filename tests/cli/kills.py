"""Nobody overlaps: contenders for one lock, and everything that can be killed, stopped or cut is, at random.

A live harness of real processes and real servers, so it sleeps: a process that is stopped must stay stopped for a while.

    PYTHONPATH=tests .venv/bin/python -m cli.kills --runs 200

Each class of faults is made so many times. The commands write when they lived, every 50 us, and two lives must not overlap. A
contender is `holdfast run --ttl 1s`. Its command ignores SIGTERM, and starts a daemon that does so, too.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import redis
from cli.kit import PLANTED, SOURCE, Command, Life, beater, copied, holder_of, life, overlaps, until

from holdfast.cli import tree
from holdfast.embedded import Nodes

CONTENDERS = 3
TTL = 1.0
PAUSE = 3.0  # seconds for which something is stopped


class NobodyGetsIt(Exception):
    """Long after a fault, no other contender has the lock."""


class Contender:
    """Runs one command after another under the lock, until it is told to end."""

    def __init__(self, arena: Arena, number: int) -> None:
        self.arena, self.number = arena, number
        self.process: subprocess.Popen[str] | None = None
        self.file = Path()
        self.codes: list[int] = []
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        run = 0
        while not self.arena.over.is_set():
            run += 1
            self.file = self.arena.folder / f"life-{self.number}-{run}"
            words = ("run", "--ttl", f"{TTL}s", "--kill-after", "100ms", "contended", "--")
            words = (*words, self.arena.beater, str(self.file), "term", "twin")
            with self.arena.command.started(*words, stderr=subprocess.DEVNULL) as self.process:
                self.codes.append(self.process.wait())

    def end(self) -> None:
        """Kill what still runs."""
        if self.process is not None:
            for it in [*tree.descendants(self.process.pid)]:
                tree.send(it.pid, signal.SIGKILL)
            tree.send(self.process.pid, signal.SIGKILL)
        self._thread.join(20)


class Arena:
    """The nodes, the contenders, and the faults."""

    def __init__(self, folder: Path, source: Path = SOURCE) -> None:
        self.folder = folder
        self.nodes = Nodes(3).start()
        self.command = Command(folder, {**self.nodes.environment, "HOLDFAST_MAX_TTL": str(TTL)}, source)
        self.beater = beater(folder)
        self.over = threading.Event()
        self.contenders = [Contender(self, it) for it in range(CONTENDERS)]

    def close(self) -> None:
        """End all of it."""
        self.over.set()
        for it in self.contenders:
            it.end()
        self._sweep()
        self.nodes.close()

    def _sweep(self) -> None:
        """Kill the commands that a planted fault has left alive: they name a file of this folder."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if str(self.folder).encode() in path.read_bytes():
                    tree.send(int(path.parent.name), signal.SIGKILL)

    def running(self, but: Contender | None = None) -> Contender | None:
        """The contender whose command lives now."""
        for it in self.contenders:
            found = life(it.file)
            if it is not but and found is not None and found.last > time.clock_gettime(time.CLOCK_BOOTTIME) - 0.05:
                return it
        return None

    def lives(self) -> list[Life]:
        """All lives so far. A command and its daemon are one life."""
        found = []
        for path in self.folder.glob("life-*[0-9]"):
            own, twin = life(path), life(path.with_name(path.name + ".twin"))
            if own is not None:
                found.append(own if twin is None else own._replace(last=max(own.last, twin.last)))
        return found

    def harm(self, fault: str, chance: random.Random) -> None:
        """Wait for a holder, make the fault, and wait for the next holder."""
        victim = until(self.running)
        file = victim.file
        time.sleep(chance.random() * 0.4)
        front = victim.process.pid
        FAULTS[fault](self, front, holder_of(front))
        if fault not in KEEPS:
            began = life(file)
            assert began is not None
            deadline = time.monotonic() + 30
            while not any(it.first > began.first for it in self.lives()):
                if time.monotonic() > deadline:
                    raise NobodyGetsIt(fault)
                time.sleep(0.01)

    def cut(self) -> None:
        """Cut every connection to every node."""
        for url in self.nodes.urls:
            with redis.Redis.from_url(url) as node:
                node.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def _frozen(arena: Arena, front: int, holder: int) -> None:
    for it in (0, 1):
        arena.nodes.freeze(it)
    time.sleep(2 * TTL)
    for it in (0, 1):
        arena.nodes.thaw(it)


def _restarted(arena: Arena, front: int, holder: int) -> None:
    for it in (0, 1):
        arena.nodes.restart(it)
    time.sleep(TTL + 2.0)


def _stopped(pid: int) -> None:
    tree.send(pid, signal.SIGSTOP)
    time.sleep(PAUSE)
    tree.send(pid, signal.SIGCONT)


FAULTS: dict[str, Callable[[Arena, int, int], None]] = {
    "majority frozen": _frozen,
    "majority restarted": _restarted,
    "connections cut": lambda arena, front, holder: arena.cut(),
    "holder killed": lambda arena, front, holder: tree.send(holder, signal.SIGKILL),
    "front killed": lambda arena, front, holder: tree.send(front, signal.SIGKILL),
    "holder stopped": lambda arena, front, holder: _stopped(holder),
    "front stopped": lambda arena, front, holder: _stopped(front),
    "command killed": lambda arena, front, holder: tree.send(tree.children(holder)[0], signal.SIGKILL),
}
KEEPS = {"front stopped", "connections cut"}  # the holder keeps the lock


def campaign(folder: Path, faults: list[str], runs: int, seed: int, source: Path = SOURCE) -> dict[str, int]:
    """Make each fault so many times.

    Returns:
        For each fault, how many lives overlapped while it was made.
    """
    chance = random.Random(seed)
    found = {}
    for fault in faults:
        place = folder / fault.replace(" ", "-")
        place.mkdir(parents=True)
        arena = Arena(place, source)
        try:
            for _ in range(runs):
                arena.harm(fault, chance)
        finally:
            arena.close()
        lives = arena.lives()
        found[fault] = len(overlaps(lives))
        print(f"{fault:20} {runs} faults, {len(lives)} lives, {found[fault]} overlaps", flush=True)
    return found


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(prog="./task cli-kills", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="faults of each class (default 20)")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this class; may be repeated")
    parser.add_argument("--plant", choices=PLANTED, help="plant a fault into a copy of the command, which has to be found")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as folder:
        source = copied(Path(folder), PLANTED[options.plant]) if options.plant else SOURCE
        found = campaign(Path(folder), options.fault or list(FAULTS), options.runs, options.seed, source)
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
