"""The demonstration: may four processes create more than three items, while nodes are being killed?

Starts real servers and real API processes (app.py), plays the story, and prints what came of it. `python run.py --help` tells it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, NamedTuple, Self

import httpx

from holdfast import HoldfastError
from holdfast.embedded import Nodes

STORY = """
A FastAPI service may create at most three items. `create_item` looks how many there are, works for 0.1 s, and writes: with several
processes that goes wrong, unless a lock is around it. The service runs in four processes on one SQLite file, and is asked

  1. five times at once, with holdfast: three times 201, twice 400;
  2. in rounds of 25 requests at once, of which three may succeed, without a lock;
  3. the same with `SET NX` on one node, which is killed and restarted empty while a request is between looking and writing;
  4. the same with holdfast on five nodes, of which up to two at a time are killed, restarted empty or frozen at that very moment.

"Inside" is between looking and writing. A request that is to be struck at is held there until the fault has been done.
Out of service is a node that is dead, frozen, or in its restart guard: it may have forgotten leases, and is left alone for max_ttl + 2 s.
"""
STATUS = """
exit status: 0 if holdfast kept its promise (1. exactly so, 4. exactly three items in every round, never two requests inside at once,
each item's fence greater than all before, no other answers than 201 and 400); 1 if not; 130 if interrupted.
"""

APP = Path(__file__).with_name("app.py")
WORKERS = 4
ALLOWED = 3  # items: MAX_ITEM_NUM of app.py
AT_ONCE = 25  # requests a round
GUARD = 1.5 + 2.0 + 0.7  # seconds after its restart until all clients use a node again: max_ttl of app.py, 2, and a reconnect
HELD = 0.4  # seconds that a request is held after a fault, so that a second one can come inside, if there is a way


class Answer(NamedTuple):
    """What a client got, after how many seconds."""

    status: int
    body: str
    seconds: float


class Item(NamedTuple):
    """What the service wrote, in the order of its commits."""

    name: str
    fence: int | None


@dataclass
class Stage:
    """One part of the story: how the service was asked, and what it did."""

    asked: str
    lock: str
    rounds: int
    at_once: int = AT_ONCE
    most: int = 0  # nodes out of service at the same time
    answers: list[list[Answer]] = field(default_factory=list)  # by round
    items: list[list[Item]] = field(default_factory=list)
    crowd: int = 0  # the most requests that were inside at once
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def broken(self) -> int:
        """How many rounds had too many items."""
        return sum(len(items) > ALLOWED for items in self.items)

    @property
    def verdict(self) -> str:
        if self.broken:
            return f"too many items in {self.broken} of {self.rounds} rounds"
        return "as promised" if not any(self.complaints()) else "not as promised"

    @property
    def lost(self) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items(), reverse=True)) or "none"

    @property
    def waits(self) -> tuple[float, float]:
        """The median and the 99th percentile of what clients waited for their answers, in seconds."""
        seconds = sorted(answer.seconds for answers in self.answers for answer in answers)
        return seconds[len(seconds) // 2], seconds[len(seconds) * 99 // 100]

    def complaints(self) -> Iterator[str]:
        """Everything that is not as holdfast promised."""
        for number, (answers, items) in enumerate(zip(self.answers, self.items, strict=True), 1):
            statuses = Counter(answer.status for answer in answers)
            if statuses != {201: ALLOWED, 400: self.at_once - ALLOWED} or len(items) != ALLOWED:
                told = ", ".join(f"{count} times {status}" for status, count in sorted(statuses.items()))
                yield f"{self.asked}, round {number}: {len(items)} items; {told}"
            yield from {f"    {it.status}: {it.body}" for it in answers if it.status not in (201, 400)}
        if self.crowd > 1:
            yield f"{self.asked}: {self.crowd} requests were inside at once"
        fences = [item.fence or 0 for items in self.items for item in items]
        if any(later <= earlier for earlier, later in pairwise([0, *fences])):
            yield f"{self.asked}: fences do not increase: {fences}"


class Folder:
    """A stage's folder: the database, and the two files by which requests inside are noticed and held (see `inside` in app.py)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "journal").touch()
        with closing(sqlite3.connect(path / "items.db")) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, fence INTEGER)")

    def journal(self) -> str:
        """A + for every request that has gone inside, a - for every one that has left, in this order."""
        return (self.path / "journal").read_text()

    def entered(self) -> int:
        return self.journal().count("+")

    def crowd(self) -> int:
        """The most requests that were inside at once."""
        return max(itertools.accumulate((1 if it == "+" else -1 for it in self.journal()), initial=0))

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Whoever goes inside from now on stays there, until this ends."""
        hold = self.path / "hold"
        hold.touch()
        try:
            yield
        finally:
            hold.unlink()

    def clear(self) -> list[Item]:
        """Empty the table; what was in it."""
        with closing(sqlite3.connect(self.path / "items.db", timeout=30)) as database, database:
            items = [Item(*row) for row in database.execute("SELECT name, fence FROM items ORDER BY id")]
            database.execute("DELETE FROM items")
            return items


class Workers:
    """API processes, each on a port of its own. They end when this is closed, or when this process dies in whatever way."""

    def __init__(self, folder: Folder, lock: str, nodes: Nodes) -> None:
        self._folder, self._processes = folder, list[subprocess.Popen[str]]()
        self.urls: list[str] = []
        environment = {
            "DEMO_FOLDER": str(folder.path),
            "DEMO_LOCK": lock,
            "DEMO_REDIS": nodes.urls[0],
            "HOLDFAST_NODES": " ".join(nodes.urls),
            "HOLDFAST_FRESH": " ".join(nodes.run_ids),  # these need no restart guard; once restarted, they have other ids
        }
        try:
            for number in range(WORKERS):
                with self._log(number).open("w") as log:
                    self._processes.append(self._spawn({**os.environ, **environment}, log))
            for number, process in enumerate(self._processes):
                assert process.stdout is not None
                if not (port := process.stdout.readline().strip()):
                    raise RuntimeError(f"worker {number} did not start:\n{self.log(number)}")
                self.urls.append(f"http://127.0.0.1:{port}/items")
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _spawn(environment: dict[str, str], log: IO[str]) -> subprocess.Popen[str]:
        # Its stdin is a pipe whose end it notices. A session of its own: Ctrl-C at the terminal is for this process, which then ends it.
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, str(APP)], stdin=pipe, stdout=pipe, stderr=log, env=environment, text=True, start_new_session=True
        )

    def _log(self, number: int) -> Path:
        return self._folder.path / f"worker-{number}.log"

    def log(self, number: int) -> str:
        """The end of what a worker had to say."""
        return "\n".join(self._log(number).read_text(errors="replace").splitlines()[-15:])

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class Faults(threading.Thread):
    """Strikes at nodes in turn, each time while a request is inside, and never has more than `most` of them out of service.

    `frozen`: strike by SIGSTOP too; `guard`: seconds for which a node is out of service after its restart.
    """

    def __init__(self, nodes: Nodes, folder: Folder, dice: random.Random, *, most: int, frozen: bool, guard: float) -> None:
        super().__init__(name="faults")
        self.done = Counter[str]()
        self.error: BaseException | None = None
        self._nodes, self._folder, self._dice, self._most, self._guard = nodes, folder, dice, most, guard
        self._kinds = ("killed", "killed", "frozen") if frozen else ("killed",)
        self._turn = itertools.cycle(range(len(nodes)))
        self._mending: dict[int, tuple[float, str]] = {}  # dead and frozen nodes: until when, and which of the two
        self._back = dict.fromkeys(range(len(nodes)), 0.0)  # when a node is in service again
        self._over = threading.Event()

    @property
    def room(self) -> int:
        """How many more nodes may be taken out of service."""
        return self._most - sum(node in self._mending or back > time.monotonic() for node, back in self._back.items())

    def run(self) -> None:
        try:
            while not self._over.is_set():
                self._mend()
                if self.room:
                    self._ambush()
                self._over.wait(0.01)
        except BaseException as error:
            self.error = error

    def _ambush(self) -> None:
        """Hold whoever goes inside next, and strike."""
        with self._folder.hold():
            before = self._folder.entered()
            while not self._over.is_set() and self._folder.entered() == before:
                self._mend()
                self._over.wait(0.005)
            if self._over.is_set():
                return
            for _ in range(self._dice.randint(1, self.room)):
                self._strike(next(node for node in self._turn if node not in self._mending and self._back[node] <= time.monotonic()))
            until = time.monotonic() + HELD
            while time.monotonic() < until and self._folder.entered() == before + 1:
                self._mend()
                self._over.wait(0.005)

    def _strike(self, node: int) -> None:
        kind = self._kinds[self.done.total() % len(self._kinds)]
        if kind == "killed":
            self._nodes.kill(node)
        else:
            self._nodes.freeze(node)
        self.done[kind] += 1
        self._mending[node] = time.monotonic() + (1.0 if kind == "frozen" else 0.0), kind

    def _mend(self) -> None:
        for node, (due, kind) in list(self._mending.items()):
            if time.monotonic() < due:
                continue
            if kind == "killed":
                self._nodes.restart(node)
            else:
                self._nodes.thaw(node)
            del self._mending[node]
            self._back[node] = time.monotonic() + (self._guard if kind == "killed" else 0.7)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self.join()


async def ask(client: httpx.AsyncClient, url: str, name: str) -> Answer:
    began = time.monotonic()
    try:
        answer = await client.post(url, json={"name": name})
    except httpx.HTTPError as error:
        return Answer(0, f"no answer: {error!r}", time.monotonic() - began)
    return Answer(answer.status_code, answer.text, time.monotonic() - began)


async def play(stage: Stage, folder: Folder, urls: list[str], faults: Faults | None) -> None:
    """All rounds of a stage."""
    async with httpx.AsyncClient(timeout=60, trust_env=False, verify=False) as client:
        for number in range(1, stage.rounds + 1):
            while faults and not faults.room and not faults.error:  # every round is to see a fault
                await asyncio.sleep(0.01)
            requests = [ask(client, urls[i % len(urls)], str(i)) for i in range(stage.at_once)]
            stage.answers.append(await asyncio.gather(*requests))
            stage.items.append(folder.clear())
            if faults:
                stage.faults = faults.done.copy()
                if faults.error:
                    raise faults.error
            progress(f"{stage.asked}: round {number} of {stage.rounds}, {len(stage.items[-1])} items; nodes lost so far: {stage.lost}")


def perform(stage: Stage, nodes: Nodes, dice: random.Random) -> None:
    """Start the service, play a stage, and end the service."""
    progress(f"{stage.asked}: starting {WORKERS} processes")
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as place, ExitStack() as stack:
        folder = Folder(Path(place))
        workers = stack.enter_context(Workers(folder, stage.lock, nodes))
        faults = None
        if stage.most:
            one = len(nodes) == 1
            faults = stack.enter_context(Faults(nodes, folder, dice, most=stage.most, frozen=not one, guard=0.0 if one else GUARD))
        asyncio.run(play(stage, folder, workers.urls, faults))
        stage.crowd = folder.crowd()
        progress("")
        if any(answer.status not in (201, 400) for answers in stage.answers for answer in answers):
            for number in range(WORKERS):
                print(f"worker {number} said last:\n{workers.log(number)}")


def progress(line: str) -> None:
    """One line that changes, on a terminal; else a line for each."""
    if sys.stdout.isatty():
        print(f"\r\033[K{line[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)
    elif line:
        print(line, flush=True)


def table(stages: list[Stage]) -> str:
    """What happened, for people."""
    rows = [("what was asked", "what happened", "requests", "items (allowed)", "p50 / p99 wait", "nodes lost")]
    rows += [
        (
            stage.asked,
            stage.verdict,
            str(stage.rounds * stage.at_once),
            f"{sum(map(len, stage.items))} ({stage.rounds * ALLOWED})",
            "{:.2f} / {:.2f} s".format(*stage.waits),
            stage.lost,
        )
        for stage in stages
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def story(rounds: int, seed: int, lock: str) -> bool:
    """All stages; was the promise kept?"""
    began, dice = time.monotonic(), random.Random(seed)
    exact = Stage("five at once, holdfast", lock, rounds=1, at_once=5)
    naked = Stage("no lock", "none", rounds)
    single = Stage("SET NX, one node", "set_nx", rounds, most=1)
    quorum = Stage("holdfast, five nodes", lock, rounds, most=2)
    stages = [exact, naked, single, quorum]
    with Nodes(5) as five, Nodes(1) as one:
        print(f"{five.version}, {WORKERS} API processes; faults by seed {seed}\n")
        for stage in stages:
            perform(stage, one if stage is single else five, dice)
            if stage is exact:
                print("\n".join(f"{answer.status} - {answer.body}" for answer in sorted(stage.answers[0])), end="\n\n")
    complaints = [*exact.complaints(), *quorum.complaints()]
    print(f"\n{table(stages)}\n")
    print(f"A round is {AT_ONCE} requests at once, of which {ALLOWED} may succeed. The wait is that for an answer; it includes the 0.1 s")
    print(f"of work for each item before, and {HELD} s for each time that a request was held inside for a fault.")
    print(f"{time.monotonic() - began:.0f} s.\n")
    print("\n".join(complaints), end="\n" if complaints else "")
    if not single.broken:
        print("(By chance, SET NX on one node created no item too many this time.)")
    if complaints:
        print(f"The promise was broken: with {lock}, ...")
    else:
        print(f"The promise held: with holdfast, each of {rounds} rounds created exactly {ALLOWED} items, while nodes were {quorum.lost}.")
    return not complaints


def main() -> int:
    parser = argparse.ArgumentParser(description=STORY, epilog=STATUS, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three rounds a stage, not ten")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="repeat the faults of another run: which nodes, how many")
    parser.add_argument("--plant", choices=["none", "set_nx"], help="use this in the place of holdfast, to see that the demonstration fails")
    options = parser.parse_args()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)  # clean up, as with Ctrl-C
    try:
        return 0 if story(3 if options.quick else 10, options.seed, options.plant or "holdfast") else 1
    except KeyboardInterrupt:
        print("\ninterrupted: everything that was started is gone")
        return 130
    except (HoldfastError, RuntimeError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
