"""Failovers by real Sentinels under load, and whether two ever held a lock at the same time.

A cell is one set of nodes with workers of its own. Each of its nodes is a primary with two replicas. In a
round, a fault happens to a majority of a cell's nodes at once. A live harness, so it sleeps.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from failovers.groups import ASKED, CUT, FAULTS, SECRET, Group, Watch, until

from holdfast.clock import clock
from holdfast.testing.windows import HeldWindow, fences_back, overlaps

HERE = Path(__file__).parent
WORKERS = 3  # of a cell
# What is planted. No client has a guard; or none asks again where the primary is.
GUARD, BOUND = "guard", "bound"
PLANTS = (GUARD, BOUND)
# By what is planted: a ttl and a lag with which it shows, for then old primaries go on for long.
SUITS = {"": (3.0, 1), GUARD: (3.0, 9), BOUND: (3.0, 12)}
SLACK = 2.0  # what the guard is longer than max_ttl, and what failover is longer than min-replicas-max-lag


@dataclass(frozen=True)
class Plan:
    """What a campaign does.

    Attributes:
        runs: How many failovers there are at least.
        cells: The number of nodes of each cell.
        ttl: Of leases, and max_ttl, in seconds.
        lag: The servers' min-replicas-max-lag, in seconds.
        plant: What is wrong on purpose, or "".
        work: Seconds for which workers have the lock after each guard.
        seed: Of its dice.
    """

    runs: int
    cells: tuple[int, ...] = (1, 1, 1, 3)
    ttl: float = 3.0
    lag: int = 1
    plant: str = ""
    work: float = 1.0
    seed: int = 0

    @property
    def bound(self) -> float:
        """For how long an old primary can go on, as docs/nodes.md says it."""
        return self.lag + SLACK

    @property
    def told(self) -> float:
        """What the addresses say of it."""
        return max(self.ttl / 2, 0.0 if self.plant == BOUND else self.bound)

    @property
    def guard(self) -> float:
        """For how long a promoted server grants nothing."""
        return 0.0 if self.plant == GUARD else self.ttl + SLACK + self.told


@dataclass
class Outcome:
    """What a campaign has shown."""

    failovers: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    windows: list[HeldWindow] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    # Sections that began before a promotion and ended after it: the load was there.
    across: int = 0

    @property
    def overlaps(self) -> list[str]:
        """Two that held a lock at the same time."""
        return [f"{b.token} began {a.ends - b.begins:.3f} s before {a.token} ended" for a, b in overlaps(self.windows)]

    @property
    def backward(self) -> list[str]:
        """Fences that did not grow."""
        return [f"{b.token} got the fence {b.fence} after {a.token} had {a.fence}" for a, b in fences_back(self.windows)]


class Cell:
    """Nodes, and workers that want one lock on them."""

    def __init__(self, number: int, nodes: int, folder: Path, plan: Plan) -> None:
        self.number, self._folder, self._plan = number, folder, plan
        self.groups = [Group(f"g{number}-{it}", folder, plan.lag) for it in range(nodes)]
        self.dice = random.Random(plan.seed * 1000 + number)
        # It is there while a failover goes on.
        self._trouble = folder / f"trouble-{number}"
        self._workers: list[subprocess.Popen[bytes]] = []
        # When replicas were promoted.
        self.promotions: list[float] = []

    def work(self, watch: Watch) -> None:
        """Start its workers."""
        urls = [f"redis+sentinel://:{SECRET}@{watch.places}/{it.name}?failover={self._plan.told:g}" for it in self.groups]
        for number in range(WORKERS):
            settings = {
                "urls": urls,
                "ttl": self._plan.ttl,
                "max_ttl": self._plan.ttl,
                "face": ("threads", "asyncio")[number % 2],
                "restless": number > 0,
                "seed": self._plan.seed * 10_000 + self.number * 100 + number,
                "log": str(self._folder / f"cell-{self.number}.{number}.log"),
                "trouble": str(self._trouble),
            }
            if self._plan.plant == GUARD:
                settings["restart_guard"] = None
            elif self._plan.plant == BOUND:
                settings["asks_once"] = True
            with (self._folder / f"cell-{self.number}.{number}.err").open("w") as errors:
                self._workers.append(subprocess.Popen([sys.executable, HERE / "worker.py", json.dumps(settings)], stderr=errors))

    def fail_over(self, fault: str, watch: Watch) -> None:
        """Let a majority of the nodes fail over at once."""
        hit = self.dice.sample(self.groups, len(self.groups) // 2 + 1)
        if fault != ASKED:
            for it in hit:
                it.lose()
            # Locks that are granted now are lost, until the primary misses its replica.
            time.sleep(self.dice.uniform(0.2, 0.8))
        self._trouble.touch()
        for it in hit:
            if fault == ASKED:
                watch.fail_over(it)
            else:
                it.strike(fault)
        for it in hit:
            it.promoted()
        promotion = clock()
        self.promotions.append(promotion)
        if fault in (CUT, ASKED):
            # The old primary goes on for as long as it can.
            time.sleep(self._plan.bound)
        for it in hit:
            it.rejoin(fault)
            watch.knows(it)
            it.settled()
        # Whoever still has the lock keeps it until the new primary grants it, and longer than a lease.
        time.sleep(max(0.0, promotion + self._plan.guard + self._plan.ttl - clock()))
        self._trouble.unlink()
        until(lambda: any(it.begins > promotion for it in self.windows()), f"somebody has the lock of cell {self.number} again")
        time.sleep(self._plan.work)

    def windows(self) -> list[HeldWindow]:
        """What its workers have written."""
        found = []
        for path in sorted(self._folder.glob(f"cell-{self.number}.*.log")):
            for line in path.read_text().splitlines():
                it = json.loads(line)
                found.append(HeldWindow(self.number, f"{it['who']}:{it['token']}", it["fence"], it["begins"], it["ends"]))
        return found

    def stop(self) -> list[str]:
        """End the workers. Returns what they complained of."""
        for it in self._workers:
            it.terminate()
        for it in self._workers:
            try:
                it.wait(15)
            except subprocess.TimeoutExpired:
                it.kill()
                it.wait()
        return [text[-600:] for path in self._folder.glob(f"cell-{self.number}.*.err") if "Traceback" in (text := path.read_text())]

    def close(self) -> None:
        """End the servers."""
        for it in self.groups:
            it.close()


def run(plan: Plan, folder: Path, say: bool = False) -> Outcome:
    """Run a campaign.

    Args:
        plan: What it does.
        folder: For settings and logs.
        say: Print each failover.

    Returns:
        What was seen.
    """
    outcome, lock = Outcome(), threading.Lock()
    cells: list[Cell] = []
    watch = None
    try:
        cells += [Cell(number, nodes, folder, plan) for number, nodes in enumerate(plan.cells)]
        watch = Watch(folder, [group for it in cells for group in it.groups])
        for it in cells:
            it.work(watch)
        # No client has met these servers at these places, so all have a guard at first.
        for it in cells:
            until(lambda it=it: len(it.windows()) > WORKERS, f"cell {it.number} works")  # type: ignore[misc]  # (mypy knows no type of a default in a lambda)
        threads = [threading.Thread(target=_rounds, args=(it, watch, plan, outcome, lock, say)) for it in cells]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for cell in cells:
            outcome.wrong += cell.stop()
        if watch is not None:
            watch.close()
        for cell in cells:
            cell.close()
    for cell in cells:
        windows = cell.windows()
        outcome.windows += windows
        outcome.across += sum(it.begins < when < it.ends for it in windows for when in cell.promotions)
    return outcome


def _rounds(cell: Cell, watch: Watch, plan: Plan, outcome: Outcome, lock: threading.Lock, say: bool) -> None:
    try:
        while True:
            with lock:
                if outcome.failovers >= plan.runs:
                    return
                fault = CUT if plan.plant else FAULTS[sum(outcome.faults.values()) % len(FAULTS)]
                outcome.faults[fault] = outcome.faults.get(fault, 0) + 1
                outcome.failovers += len(cell.groups) // 2 + 1
                if say:
                    print(f"{outcome.failovers} of {plan.runs}: {fault} in cell {cell.number}", flush=True)
            cell.fail_over(fault, watch)
    except Exception as error:
        with lock:
            outcome.wrong.append(f"cell {cell.number}: {type(error).__name__}: {error}")
