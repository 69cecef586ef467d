"""Nobody overlaps: contenders for one lock, and everything that can be killed, stopped or cut is, at random.

A live harness of real processes and real servers, so it sleeps: a process that is stopped must stay stopped for a while.

    PYTHONPATH=tests .venv/bin/python -m cli.kills --runs 200

Each class of faults is made so many times, in several arenas at the same time. The commands write when they lived, every 50 us,
and two lives must not overlap. A contender is `holdfast run --ttl 1s`. Its command ignores SIGTERM, and starts a daemon that does
so, too.

In two classes lives may overlap, as `holdfast run --help` says: both supervisors are stopped, or an operator takes the lock away.
There each life must have a higher fence than the one before, so that storage refuses the late one.
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
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import redis
from cli.kit import SOURCE, Command, Life, beater, life, overlaps, shared_out, until

from holdfast import Holdfast
from holdfast.cli import tree
from holdfast.embedded import Nodes

CONTENDERS = 3
TTL = 1.0
LONGER = 1.5 * TTL  # seconds: no lease that is not renewed lasts so long
PATIENCE = 30.0  # seconds within which somebody else must have the lock
AFTER = 0.3  # seconds for which two commands could live at once, after the second one began
NAME = "contended"


class Found(NamedTuple):
    """What one class of faults has shown.

    Attributes:
        faults: How many were made.
        lives: How many commands lived.
        overlaps: How many lives overlapped the next one.
        uncaught: How many had no higher fence than the one before.
    """

    faults: int = 0
    lives: int = 0
    overlaps: int = 0
    uncaught: int = 0


class NobodyGetsIt(Exception):
    """Long after a fault, no other contender has the lock."""


class Contender:
    """Runs one command after another under the lock, until it is told to end."""

    def __init__(self, arena: Arena, number: int) -> None:
        self.arena, self.number = arena, number
        self.process: subprocess.Popen[str] | None = None
        # Nobody writes this one: the first command has another.
        self.file = arena.folder / f"life-{number}-0"
        self.codes: list[int] = []
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        run = 0
        while not self.arena.over.is_set():
            run += 1
            self.file = self.arena.folder / f"life-{self.number}-{run}"
            words = ("run", "--ttl", f"{TTL}s", "--kill-after", "100ms", NAME, "--")
            words = (*words, self.arena.beater, str(self.file), "term", "twin", *self.arena.manners)
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

    def __init__(self, folder: Path, source: Path = SOURCE, manners: tuple[str, ...] = ()) -> None:
        self.folder, self.manners = folder, manners
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
        """Kill the commands that a fault has left alive: they name a file of this folder."""
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
        supervisor, holder, self.began = until(lambda: self._ready(chance))
        {**FAULTS, **QUIET}[fault](self, supervisor, holder)
        if fault not in KEEPS:
            self.next_one()

    def _ready(self, chance: random.Random) -> tuple[int, int, float] | None:
        """The supervisor and the holder whose command lives for a while now, and when it began. None: it has ended meanwhile."""
        victim = until(self.running)
        time.sleep(chance.random() * 0.4)
        supervisor, began = victim.process.pid, life(victim.file)
        # The holder is the first child. Others are orphans, of a holder that adopts none.
        below = tree.children(supervisor)
        if began is None or not below or not tree.children(below[0]):
            return None
        return supervisor, below[0], began.first

    def next_one(self) -> None:
        """Wait until a later command lives than the one that lived when the fault was made."""
        deadline = time.monotonic() + PATIENCE
        while not any((found := life(it.file)) is not None and found.first > self.began for it in self.contenders):
            if time.monotonic() > deadline:
                raise NobodyGetsIt
            time.sleep(0.005)

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


def _frozen(arena: Arena, supervisor: int, holder: int) -> None:
    for it in (0, 1):
        arena.nodes.freeze(it)
    time.sleep(LONGER)
    for it in (0, 1):
        arena.nodes.thaw(it)


def _restarted(arena: Arena, supervisor: int, holder: int) -> None:
    for it in (0, 1):
        arena.nodes.restart(it)


def _stopped(arena: Arena, *pids: int) -> None:
    """Stop them until somebody else has had the lock for a while."""
    for it in pids:
        tree.send(it, signal.SIGSTOP)
    try:
        arena.next_one()
        time.sleep(AFTER)
    finally:
        for it in pids:
            tree.send(it, signal.SIGCONT)


def _suspended(supervisor: int) -> None:
    tree.send(supervisor, signal.SIGSTOP)
    time.sleep(LONGER)
    tree.send(supervisor, signal.SIGCONT)


FAULTS: dict[str, Callable[[Arena, int, int], None]] = {
    "majority frozen": _frozen,
    "majority restarted": _restarted,
    "connections cut": lambda arena, supervisor, holder: arena.cut(),
    "holder killed": lambda arena, supervisor, holder: tree.send(holder, signal.SIGKILL),
    "supervisor killed": lambda arena, supervisor, holder: tree.send(supervisor, signal.SIGKILL),
    "holder stopped": lambda arena, supervisor, holder: _stopped(arena, holder),
    "supervisor stopped": lambda arena, supervisor, holder: _suspended(supervisor),
    "both stopped": lambda arena, supervisor, holder: _stopped(arena, supervisor, holder),
    "lock taken": lambda arena, supervisor, holder: arena.take(),
    "command ends": lambda arena, supervisor, holder: None,
    "command killed": lambda arena, supervisor, holder: tree.send(tree.children(holder)[0], signal.SIGKILL),
}
# Of a command that renews nothing: `UNRENEWED` in the kit.
QUIET: dict[str, Callable[[Arena, int, int], None]] = {"lease runs out": lambda arena, supervisor, holder: None}
KEEPS = {"supervisor stopped", "connections cut"}  # the holder keeps the lock
# Lives may overlap, and the fence has to tell them apart.
FENCED = {"both stopped", "lock taken"}
MANNERS = {"command ends": ("ends",)}


def campaign(folder: Path, faults: list[str], runs: int, seed: int, source: Path = SOURCE, at_once: int = 1) -> dict[str, Found]:
    """Make each fault so many times.

    Args:
        folder: Where files may be.
        faults: The classes.
        runs: How many faults of each.
        seed: Decides when they are made.
        source: Where the package is.
        at_once: How many arenas there are at the same time. Each class is shared out among as many.

    Raises:
        NobodyGetsIt: Nobody has the lock long after a fault.
    """
    def share(fault: str, number: int, some: int) -> Found:
        place = folder / f"{fault.replace(' ', '-')}-{number}"
        return _share(place, fault, some, f"{seed} {fault} {number}", source)

    found = {}
    for fault, parts in shared_out(faults, runs, at_once, share):
        found[fault] = it = Found(*map(sum, zip(*parts, strict=True)))
        counts = f"{it.faults} faults, {it.lives} lives, {it.overlaps} overlaps"
        print(f"{fault:20} {counts}, {it.uncaught} that no fence catches", flush=True)
    return found


def _share(place: Path, fault: str, runs: int, seed: str, source: Path) -> Found:
    """Make a fault so many times in one arena."""
    chance = random.Random(seed)
    place.mkdir(parents=True)
    arena = Arena(place, source, MANNERS.get(fault, ()))
    try:
        for _ in range(runs):
            arena.harm(fault, chance)
    finally:
        arena.close()
    lives = sorted(arena.lives())
    return Found(runs, len(lives), len(overlaps(lives)), sum(a.fence >= b.fence for a, b in pairwise(lives)))


def wrong(found: dict[str, Found]) -> list[str]:
    """The classes of faults in which something happened that must not."""
    return [fault for fault, it in found.items() if it.uncaught or (it.overlaps and fault not in FENCED)]


def main() -> int:
    """Run the campaign."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="./task nemesis command", description=__doc__, formatter_class=form)
    parser.add_argument("--runs", type=int, default=20, help="faults of each class (default 20)")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this class; may be repeated")
    parser.add_argument("--at-once", type=int, default=4, help="arenas at the same time (default 4)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as folder:
        found = campaign(Path(folder), options.fault or list(FAULTS), options.runs, options.seed, at_once=options.at_once)
    if bad := wrong(found):
        print(f"commands lived at the same time: {', '.join(bad)}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
