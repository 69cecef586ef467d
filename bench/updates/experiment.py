"""The experiment: for each way to lock, some clients that update a register, and are stopped for longer than their leases.

Knows processes, signals and what was acknowledged. Must not know locks, or how results are shown.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.embedded import Nodes

from .. import environments
from ..catalogue import BY_NAME, OURS, Contender
from .storage import Register

LEASE = 2.0  # seconds: everybody's
THINK = 0.1  # seconds at most between reading and writing: far from a lease
CLIENTS = 5
PAUSE = 3.0, 4.5  # seconds for which a client is stopped: longer than its lease
EVERY = 4.0, 6.0  # seconds from the beginning of one pause of a group to that of the next, if it is over by then
GRACE = 60.0  # seconds for them to end

NOBODY, RANDOM, AIMED = "nobody stopped", "stopped at random", "stopped before a write"


@dataclass(frozen=True)
class Way:
    """A way to lock. `contender`: as the bench knows it; `fence`: storage looks at fences; `check`: the lock is asked before a write."""

    name: str
    contender: Contender
    fence: bool = False
    check: bool = False


@dataclass
class Outcome:
    """What came of one way under one condition. `lost`: acknowledged, and not there in the end; `refused`: by storage; `stopped`: their
    lock told them in time; `pauses`: of these clients."""

    way: str
    condition: str
    acknowledged: int = 0
    lost: int = 0
    refused: int = 0
    stopped: int = 0
    pauses: int = 0
    others: dict[str, int] = field(default_factory=dict)
    error: str = ""


WAYS = (
    Way("redis-py Lock", BY_NAME["redis-py Lock"]),
    Way("redis-py Lock, owned() before the write", BY_NAME["redis-py Lock"], check=True),
    Way("pottery", BY_NAME["pottery"]),
    Way("pottery, locked() before the write", BY_NAME["pottery"], check=True),
    Way("holdfast", BY_NAME["holdfast"]),
    Way("holdfast, check() before the write", BY_NAME["holdfast"], check=True),
    Way("holdfast asyncio, body cancelled", BY_NAME["holdfast asyncio"]),
    Way("holdfast, fence", BY_NAME["holdfast"], fence=True),
    Way("holdfast, check() and fence", BY_NAME["holdfast"], fence=True, check=True),
    Way("holdfast asyncio, body cancelled, and fence", BY_NAME["holdfast asyncio"], fence=True),
)


class Group:
    """The clients of one way, all on one register. `seed`: of the pauses, and of what clients think."""

    def __init__(self, way: Way, condition: str, nodes: Nodes, folder: Path, clients: int, seed: int, blind: bool) -> None:
        self.way, self.condition, self.pauses = way, condition, 0
        self._folder, self._dice = folder, random.Random(seed)
        self._trap, self._file = folder / "trap", folder / "register"
        self._due, self._began, self._caught, self._set = float("inf"), 0.0, 0, False
        place = way.contender.environment
        interpreter, variables = environments.python(place), environments.variables(place)
        folder.mkdir()
        Register(str(self._file)).close()
        self._processes = []
        for number in range(clients):
            told = {
                "urls": nodes.urls, "ttl": LEASE, "adapter": way.contender.adapter,
                "name": f"updates:{folder.name}",
                "file": str(self._file), "trap": str(self._trap), "number": number, "seed": f"{seed} {number}", "think": THINK,
                "fence": way.fence and not blind, "check": way.check,
            }  # fmt: skip
            with (folder / f"{number}.log").open("w") as log:
                command = [str(interpreter), "-m", "bench.updates.client", json.dumps(told)]
                pipe = subprocess.PIPE
                process = subprocess.Popen(
                    command, stdin=pipe, stdout=pipe, stderr=log, text=True, cwd=environments.ROOT, env=variables, start_new_session=True
                )
            self._processes.append(process)

    def ready(self) -> None:
        """Return when all clients have connected. (One that cannot has ended.)"""
        for process in self._processes:
            assert process.stdout is not None
            process.stdout.readline()

    def begin(self, until: float) -> None:
        """Have them work until then."""
        for process in self._processes:
            assert process.stdin is not None
            try:
                process.stdin.write(f"{until}\n")
                process.stdin.flush()
            except BrokenPipeError:  # it has failed: it is asked in the end
                pass
        if self.condition is not NOBODY:
            self._due = time.monotonic() + self._dice.uniform(0.5, 2.0)

    def step(self, now: float) -> None:
        """Stop a client if it is time; and let it go on, later."""
        if now < self._due:
            return
        if self._caught:
            self._go_on()
            self._due = max(now, self._began + self._dice.uniform(*EVERY))
            return
        if self.condition is RANDOM:
            self._began, self._caught = now, self._dice.choice(self._processes).pid
            os.kill(self._caught, signal.SIGSTOP)
        elif not self._set:
            self._trap.touch()  # the first one that is about to write stops there
            self._set = True
            return
        elif not (found := list(self._folder.glob("caught *"))):
            return
        else:
            self._began, self._caught, self._set = now, int(found[0].name.split()[1]), False
            found[0].unlink()
        self.pauses += 1
        self._due = now + self._dice.uniform(*PAUSE)

    def finish(self) -> Outcome:
        """What came of it. Nobody is stopped any more, or stays so."""
        self._trap.unlink(missing_ok=True)
        outcome = Outcome(self.way.name, self.condition, pauses=self.pauses)
        acknowledged, others = set[int](), Counter[str]()
        for number, process in enumerate(self._processes):
            try:
                told = json.loads(self._output(process).splitlines()[-1])
            except (ValueError, IndexError):
                outcome.error = self._said(number)
                continue
            acknowledged.update(told["acknowledged"])
            others.update(told["others"])
        register = Register(str(self._file))
        outcome.acknowledged, outcome.lost = len(acknowledged), len(acknowledged.difference(register.read()))
        outcome.refused, outcome.stopped, outcome.others = others.pop("refused", 0), others.pop("stopped", 0), dict(others)
        register.close()
        return outcome

    def end(self) -> None:
        """Leave no process behind."""
        for process in self._processes:
            process.kill()
            process.communicate()

    def _go_on(self) -> None:
        os.kill(self._caught, signal.SIGCONT)
        self._caught = 0

    def _output(self, process: subprocess.Popen[str]) -> str:
        until = time.monotonic() + GRACE
        while True:
            process.send_signal(signal.SIGCONT)  # (it may have stepped into the trap just now)
            try:
                return process.communicate(timeout=0.1 if time.monotonic() < until else None)[0]
            except subprocess.TimeoutExpired:
                if time.monotonic() >= until:
                    process.kill()

    def _said(self, number: int) -> str:
        lines = (self._folder / f"{number}.log").read_text().strip().splitlines()
        return lines[-1] if lines else f"it did not end within {GRACE:.0f} s"


def perform(
    condition: str, ways: Sequence[Way], nodes: Nodes, folder: Path, *, clients: int, seconds: float, seed: int, blind: bool = False
) -> list[Outcome]:
    """All ways at once, each on a lock and a register of its own, with the same pauses. `blind`: no fence is shown to any storage."""
    groups: list[Group] = []
    outcomes: dict[str, Outcome] = {}
    try:
        for number, way in enumerate(ways):
            try:
                place = folder / f"{condition.replace(' ', '-')}-{number}"
                groups.append(Group(way, condition, nodes, place, clients, seed, blind))
            except environments.Unavailable as reason:
                outcomes[way.name] = Outcome(way.name, condition, error=str(reason))
            else:
                groups[-1].ready()
        until = time.monotonic() + seconds
        for group in groups:
            group.begin(until)
        while (now := time.monotonic()) < until:
            for group in groups:
                group.step(now)
            time.sleep(0.005)
        outcomes |= {group.way.name: group.finish() for group in groups}
    finally:
        for group in groups:
            group.end()
    return [outcomes[way.name] for way in ways]


def complaints(outcomes: Sequence[Outcome], ways: Sequence[Way] = WAYS) -> list[str]:
    """What must not be. That a lock without a fence loses updates is none: it is what the experiment is there to show, and has to see."""
    known, found = {way.name: way for way in ways}, []
    for it in outcomes:
        way = known[it.way]
        told = f"{it.way}, {it.condition}"
        if way.contender.kind != OURS:
            continue
        if it.error:
            found.append(f"{told}: {it.error}")
        elif not it.acknowledged:
            found.append(f"{told}: nothing was written, so nothing is shown")
        elif it.condition != NOBODY and not it.pauses:
            found.append(f"{told}: nobody was stopped, so nothing is shown")
        if it.lost and (way.fence or it.condition == NOBODY):
            found.append(f"{told}: {it.lost} of {it.acknowledged} acknowledged updates are lost")
        if it.condition == AIMED and not it.error:
            if way.fence and not it.refused:
                found.append(f"{told}: no late write came, so nothing is shown")
            if not way.fence and not it.lost:
                found.append(f"{told}: not a single update is lost, so the experiment sees nothing")
    return found
