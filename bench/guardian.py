"""`./task bench guardian`: kills processes that hold a lock, at random moments. How soon has the
next one the lock, and have two ever held it?

Contenders are forks of this process. They share memory, in which each notes what it does and who
holds the lock. The next holder looks whether the one before is dead, and whether its own fence is
greater. Must not know how a guardian works.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import signal
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from holdfast import Holdfast
from holdfast.embedded import Nodes

NAME = "guarded"
TTL = 30.0
PHASES = ("acquire", "held", "extend", "release")
# Who holds the lock; the last fence; how often it was held, and since when; what went wrong.
REGISTER = struct.Struct("<qqqdq")
# Seconds after which the next holder is not waited for any longer.
PATIENCE = 20.0
# Seconds for which a contender lives at least: its guardian needs as long to start.
YOUNG = 0.3


class Register:
    """What all contenders see. The phase of each stands behind the register."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, 4096)

    @property
    def now(self) -> tuple[int, int, int, float, int]:
        return REGISTER.unpack_from(self.memory)

    def contend(self, urls: Sequence[str], place: int) -> None:
        """Hold the lock again and again, until this process is killed."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        chance = random.Random(os.getpid())
        lock = Holdfast(*urls, ttl=TTL, restart_guard=None, guardian=True).lock(NAME)
        while True:
            self.memory[100 + place] = 0
            lease = lock.acquire()
            self.memory[100 + place] = 1
            before, fence, count, _, wrong = self.now
            wrong += (before != 0 and _lives(before)) + (lease.fence <= fence)
            REGISTER.pack_into(self.memory, 0, os.getpid(), lease.fence, count + 1, time.monotonic(), wrong)
            time.sleep(chance.random() * 0.003)
            if chance.random() < 0.3:
                self.memory[100 + place] = 2
                lease.extend()
            before, fence, count, since, wrong = self.now
            REGISTER.pack_into(self.memory, 0, 0, fence, count, since, wrong + (before != os.getpid()))
            self.memory[100 + place] = 3
            lease.release()


class Found(NamedTuple):
    """What the kills have shown.

    Attributes:
        seconds: How long it took until the next holder had the lock, by what the killed one did.
        wrong: How often two held the lock, or a fence did not grow.
        left: Names that are still held at the end.
    """

    seconds: dict[str, list[float]]
    wrong: int
    left: list[str]

    @property
    def all(self) -> list[float]:
        return sorted(it for those in self.seconds.values() for it in those)


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_bytes().rpartition(b") ")[2][:1] not in b"ZX"
    except OSError:
        return False


def kill(count: int, nodes: Nodes, contenders: int = 6, seed: int = 1) -> Found:
    """Kill contenders, one after the other."""
    chance, register = random.Random(seed), Register()
    seconds: dict[str, list[float]] = {it: [] for it in PHASES}

    since = [0.0] * contenders

    def started(place: int) -> int:
        since[place] = time.monotonic()
        pid = os.fork()
        if not pid:
            try:
                register.contend(nodes.urls, place)
            finally:
                os._exit(1)
        return pid

    running = list(map(started, range(contenders)))
    try:
        while register.now[2] < 10:
            time.sleep(0.01)
        for _ in range(count):
            # The new one, and its guardian, begin meanwhile.
            time.sleep(0.05 + chance.random() * 0.05)
            # Every second time it is the holder, if that is not too young.
            place = chance.randrange(contenders)
            if chance.random() < 0.5 and (holder := register.now[0]) in running:
                place = running.index(holder)
            time.sleep(max(0.0, since[place] + YOUNG - time.monotonic()))
            victim, began, was = running[place], time.monotonic(), register.now[2]
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            phase = PHASES[register.memory[100 + place]]
            while (now := register.now)[3] <= began or now[2] == was:
                if time.monotonic() > began + PATIENCE:
                    with Holdfast(*nodes.urls, restart_guard=None) as client:
                        raise TimeoutError(f"process {victim} was killed in {phase}: {client.inspect(NAME)}")
                time.sleep(0.0002)
            seconds[phase].append(now[3] - began)
            running[place] = started(place)
    finally:
        for victim in running:
            # (Perhaps it was killed just now.)
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                os.waitpid(victim, 0)
    with Holdfast(*nodes.urls, restart_guard=None) as client:
        # The last guardians are still at work.
        until = time.monotonic() + PATIENCE
        while (left := client.names()) and time.monotonic() < until:
            time.sleep(0.01)
    return Found(seconds, register.now[4], left)


def memory(nodes: Nodes) -> tuple[float, float]:
    """Return the MB of a guardian that are in memory, and those of them that are its own."""
    with Holdfast(*nodes.urls, restart_guard=None, guardian=True) as client, client.lock("memory"):
        time.sleep(1.0)
        pid = subprocess.run(["pgrep", "-P", str(os.getpid()), "holdfast-guard"], capture_output=True, text=True, check=True).stdout
        lines = Path(f"/proc/{pid.strip()}/smaps_rollup").read_text().splitlines()
        found = {it.split(":")[0]: int(it.split()[1]) / 1000 for it in lines[1:]}
        return found["Rss"], found["Private_Clean"] + found["Private_Dirty"]


def cost(nodes: Nodes, rounds: int, pairs: int = 500) -> tuple[float, float]:
    """Return the median seconds of a pair, without a guardian and with one."""
    found: list[list[float]] = [[], []]
    clients = [Holdfast(*nodes.urls, restart_guard=None, guardian=it) for it in (False, True)]
    for turn in range(rounds * 2):
        lock, took = clients[turn % 2].lock("cost"), list[float]()
        for _ in range(pairs):
            began = time.perf_counter()
            with lock:
                pass
            took.append(time.perf_counter() - began)
        found[turn % 2].append(statistics.median(took))
    for it in clients:
        it.close()
    return statistics.median(found[0]), statistics.median(found[1])


def main() -> int:
    """Return 1 if two have held the lock, or if a lock is left on the nodes."""
    parser = argparse.ArgumentParser(prog="./task bench guardian", description="Kills processes that hold a lock, and have a guardian.")
    parser.add_argument("--kills", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--nodes", type=int, default=3, help="how many servers (default 3)")
    parser.add_argument("--rounds", type=int, default=10, help="how often pairs are measured (default 10)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default 1)")
    options = parser.parse_args()
    with Nodes(options.nodes) as nodes:
        found = kill(options.kills, nodes, seed=options.seed)
        for phase, took in [*found.seconds.items(), ("all", found.all)]:
            if took:
                cuts = [sorted(took)[min(len(took) - 1, int(len(took) * it))] * 1000 for it in (0.5, 0.99, 1.0)]
                told = f"next holder after p50 {cuts[0]:.1f} ms, p99 {cuts[1]:.1f} ms, at most {cuts[2]:.1f} ms"
                print(f"killed in {phase:8} {len(took):6}   {told}")
        print(f"overlaps, and fences that did not grow: {found.wrong}; names that are still held: {len(found.left)}")
        whole, own = memory(nodes)
        print(f"memory of a guardian: {whole:.1f} MB, of which {own:.1f} MB are its own")
        without, having = cost(nodes, options.rounds)
        print(f"a pair: {without * 1e6:.0f} us without a guardian, {having * 1e6:.0f} us with one ({having / without - 1:+.1%})")
    return 1 if found.wrong or found.left else 0


if __name__ == "__main__":
    sys.exit(main())
