"""Nobody overlaps: contenders for one lock, and everything around them is killed, stopped or cut. What such campaigns share.

Live, so it sleeps: what is stopped must stay stopped for a while. The commands of contenders write when they lived, every 50 us, with their
fence (`beater.c`), and two lives must not overlap. Each class of faults is made so many times, in several arenas at the same time. Where
only the fence can tell two holders apart, an overlap counts as caught if the later life has the greater one.
"""

from __future__ import annotations

import argparse
import random
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from holdfast.cli import tree
from holdfast.embedded import Nodes

from .processes import compiled, kill_all, naming, until

NAME = "contended"
Faults = Mapping[str, Callable[[Any, Any], None]]


# ------------------------------------------------ lives


class Life(NamedTuple):
    """When a beater lived, by CLOCK_BOOTTIME, and its fence."""

    first: float
    last: float
    fence: int


def life(path: Path) -> Life | None:
    """Read a beater's file; None if it has not begun."""
    try:
        first, last, fence = struct.unpack("=3d", path.read_bytes())
    except (FileNotFoundError, struct.error):
        return None
    return Life(first, last, int(fence))


def beater(folder: Path) -> str:
    """Compile the instrument."""
    return compiled(Path(__file__).with_name("beater.c"), folder / "beater")


def now() -> float:
    """The clock of lives."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# ------------------------------------------------ the judge


def overlaps(lives: Sequence[Life]) -> list[tuple[Life, Life]]:
    """List the neighbours of which the earlier one still lived when the later one began."""
    return [(a, b) for a, b in pairwise(sorted(lives)) if a.last > b.first]


class Found(NamedTuple):
    """What one class of faults has shown.

    Attributes:
        faults: How many were made.
        lives: How many commands lived.
        overlaps: How many lives overlapped the next one, and nothing catches it.
        caught: How many overlapped, and the fence catches it.
        uncaught: How many had no higher fence than the one before.
    """

    faults: int = 0
    lives: int = 0
    overlaps: int = 0
    caught: int = 0
    uncaught: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in self._asdict().items())


def judged(lives: Sequence[Life], faults: int = 0, late: float = 0.0) -> Found:
    """Count what must not be. `late`: seconds by which a life may overlap the next one, if that has the greater fence."""
    pairs = overlaps(lives)
    caught = sum(a.fence < b.fence and a.last - b.first < late for a, b in pairs)
    return Found(faults, len(lives), len(pairs) - caught, caught, sum(a.fence >= b.fence for a, b in pairwise(sorted(lives))))


# ------------------------------------------------ the arena


class NobodyGetsIt(Exception):
    """Long after a fault, no other contender has the lock."""


class Contender:
    """Runs one command after another under the lock, until it is told to end."""

    def __init__(self, arena: Arena, name: str) -> None:
        self.arena, self.name = arena, name
        self.process: subprocess.Popen[Any] | None = None
        # Nobody writes this one: the first command has another.
        self.file = arena.folder / f"life-{name}-0"
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        run = 0
        while not self.arena.over.is_set():
            run += 1
            self.file = self.arena.folder / f"life-{self.name}-{run}"
            with self.arena.runs(self.name, self.file) as self.process:
                self.process.wait()

    @property
    def pid(self) -> int:
        """Of the process that wants the lock, or has it."""
        assert self.process is not None
        return self.process.pid

    def end(self) -> None:
        """Kill what still runs."""
        if self.process is not None:
            kill_all(self.pid)
        self._thread.join(20)


class Arena:
    """The nodes, the contenders, and the faults. Each campaign says what its contenders run, and what may befall them.

    `names`: of the contenders; `faults`: by class, what is done to the arena and the contender that has the lock; `keeps`: those in
    which the holder keeps the lock; `fenced`: those in which lives may overlap, and the fence has to tell them apart; `patience`: seconds
    within which somebody else must have the lock; `late`: seconds by which lives may overlap on a busy machine, if fences tell them apart;
    `began`: when the command began to live that the last fault met.
    """

    names: Sequence[str]
    faults: ClassVar[Faults]
    keeps: frozenset[str] = frozenset()
    fenced: frozenset[str] = frozenset()
    ttl: float
    patience: float
    late = 0.0
    began = 0.0

    def __init__(self, folder: Path, fault: str = "", seed: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.fault, self.chance = folder, fault, random.Random(seed)
        self.nodes = Nodes(3).start()
        self.beater = beater(folder)
        self.over = threading.Event()
        self.set_up()
        self.contenders = [Contender(self, it) for it in self.names]

    def set_up(self) -> None:
        """Start what stands between the contenders and the nodes."""

    def tear_down(self) -> None:
        """End that."""

    def runs(self, name: str, file: Path) -> AbstractContextManager[subprocess.Popen[Any]]:
        """Start a contender's command, which beats into a file, under the lock."""
        raise NotImplementedError

    def close(self) -> None:
        """End all of it, also the commands that a fault has left alive."""
        self.over.set()
        for it in self.contenders:
            it.end()
        self.tear_down()
        for pid in naming(self.folder):
            tree.send(pid, signal.SIGKILL)
        self.nodes.close()

    def running(self) -> Contender | None:
        """The contender whose command lives now."""
        return next((it for it in self.contenders if (found := life(it.file)) and found.last > now() - 0.05), None)

    def lives(self) -> dict[Life, str]:
        """All lives so far, and whose they are. A command and its daemon are one life."""
        found = {}
        for path in self.folder.glob("life-*[0-9]"):
            own, twin = life(path), life(path.with_name(path.name + ".twin"))
            if own is not None:
                found[own if twin is None else own._replace(last=max(own.last, twin.last))] = path.name.removeprefix("life-")
        return found

    def victim(self) -> Contender | None:
        """The one that has the lock, and has had it for a moment. None: it has ended meanwhile."""
        found: Contender = until(self.running)
        file = found.file
        time.sleep(0.4 * self.ttl * self.chance.random())
        if (one := life(file)) is None:
            return None
        self.began = one.first
        return found

    def harm(self, fault: str) -> None:
        """Wait for a holder, make the fault, and wait for the next holder."""
        victim: Contender = until(self.victim)
        self.faults[fault](self, victim)
        if fault not in self.keeps:
            self.next_one(lambda: self.linger(victim))

    def linger(self, victim: Contender) -> None:
        """What is done while nobody else has the lock."""

    def next_one(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait until a later command lives than the one that lived when the fault was made."""
        deadline = time.monotonic() + self.patience
        while not any((found := life(it.file)) is not None and found.first > self.began for it in self.contenders):
            meanwhile()
            if time.monotonic() > deadline:
                raise NobodyGetsIt
            time.sleep(0.01)

    def suffer(self, runs: int) -> Found:
        """Make its fault so many times, and judge."""
        try:
            for _ in range(runs):
                self.harm(self.fault)
        finally:
            self.close()
        lives = self.lives()
        for a, b in overlaps([*lives]):
            print(f"    {lives[a]} lived for {1000 * (a.last - b.first):.1f} ms beside {lives[b]}", flush=True)
        return judged([*lives], runs, float("inf") if self.fault in self.fenced else self.late)


# ------------------------------------------------ campaigns


def campaign(
    make: Callable[[Path, str, str], Arena], folder: Path, faults: Sequence[str], runs: int, seed: int, at_once: int = 1
) -> dict[str, Found]:
    """Make each fault so many times.

    Args:
        make: Makes an arena of a folder, a class of faults and a seed.
        folder: Where files may be.
        faults: The classes.
        runs: How many faults of each.
        seed: Decides when they are made.
        at_once: How many arenas there are at the same time. Each class is shared out among as many.

    Raises:
        NobodyGetsIt: Nobody has the lock long after a fault.
    """
    shares = [it for number in range(at_once) if (it := runs // at_once + (number < runs % at_once))]

    def share(fault: str, number: int) -> Found:
        place = folder / f"{fault.replace(' ', '-')}-{number}"
        return make(place, fault, f"{seed} {fault} {number}").suffer(shares[number])

    found = {}
    with ThreadPoolExecutor(at_once) as pool:
        asked = {it: [pool.submit(share, it, number) for number in range(len(shares))] for it in faults}
        for fault, parts in asked.items():
            found[fault] = Found(*map(sum, zip(*[it.result() for it in parts], strict=True)))
            print(f"{fault:32} {found[fault]}", flush=True)
    return found


def main(kind: type[Arena], wrong: Callable[[dict[str, Found]], list[str]], task: str, about: str | None, at_once: int) -> int:
    """Run a campaign as its options say."""
    parser = argparse.ArgumentParser(prog=task, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="faults of each class (default 20)")
    parser.add_argument("--fault", action="append", choices=kind.faults, help="only this class; may be repeated")
    parser.add_argument("--at-once", type=int, default=at_once, help=f"arenas at the same time (default {at_once})")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as folder:
        found = campaign(kind, Path(folder), options.fault or [*kind.faults], options.runs, options.seed, options.at_once)
    if bad := wrong(found):
        print(f"commands lived at the same time: {', '.join(bad)}")
    return int(bool(bad))
