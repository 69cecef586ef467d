"""The demonstration: can four processes be kept from creating more than three items, while nodes are being killed?

Starts real servers and real processes of the service (app.py), plays the story, and prints what came of it: `python run.py --help`.
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
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from time import monotonic
from typing import NamedTuple, Self

import httpx

from holdfast import HoldfastError
from holdfast.embedded import Nodes

STORY = """\
A FastAPI service may create at most three items. `create_item` looks how many there are, works for 0.1 s, and writes: with
several processes that goes wrong, unless a lock is around it. The service runs in four processes on one SQLite file. It is asked

  1. five times at once, with holdfast;
  2. in rounds of 25 requests at once, after each of which the table is emptied, without a lock;
  3. the same with `SET NX` on one node, which is killed and restarted empty;
  4. the same with holdfast on five nodes, of which up to two at a time are killed and restarted empty, or frozen.

Faults are aimed: a request is held between looking and writing until the fault has been done, and 0.5 s longer, so that a second
one can come inside if there is a way. A restarted node may have forgotten leases: holdfast leaves it alone for max_ttl + 2 s
(the restart guard), and that counts as out of service, too."""
STATUS = """\
exit status: 0 if holdfast kept its promise, which is: in 1 three times 201 and twice 400; in 4 exactly three items in every round,
each round struck by a fault; in both never two requests inside at once, fences that increase with every item, and no answers but
201 and 400. 1 if not, 130 if interrupted."""

APP = Path(__file__).with_name("app.py")
WORKERS = 4
ALLOWED = 3  # items: MAX_ITEM_NUM of app.py
AT_ONCE = 25  # requests a round
HELD = 0.5  # seconds that a request is held after a fault: its lease of 1.5 s is renewed meanwhile
FROZEN = (0.3, 1.5)  # seconds, from, to
RECONNECT = 0.7  # seconds until all clients use a node again that has come back
GUARD = 1.5 + 2.0 + RECONNECT  # the same for one that was restarted: max_ttl of app.py, 2, and that


# ------------------------------------------------ what happened


class Answer(NamedTuple):
    """What a client got; `waited`: for how many seconds, less the time for which run.py held a request inside."""

    status: int
    waited: float
    body: str


@dataclass
class Round:
    """Some requests at once; the items that they created, each with its fence, in the order of their commits; and the faults meanwhile."""

    answers: list[Answer]
    items: list[tuple[str, int | None]]
    faults: Counter[str]


@dataclass
class Stage:
    """One part of the story. `most`: nodes that may be out of service at the same time; `crowd`: the most requests inside at once."""

    title: str
    lock: str
    count: int
    at_once: int = AT_ONCE
    most: int = 0
    rounds: list[Round] = field(default_factory=list)
    crowd: int = 0

    @property
    def broken(self) -> int:
        """How many rounds had too many items."""
        return sum(len(it.items) > ALLOWED for it in self.rounds)

    @property
    def lost(self) -> str:
        """How many nodes were lost, and how."""
        total = sum((it.faults for it in self.rounds), Counter[str]())
        return ", ".join(f"{total[kind]} {kind}" for kind in ("killed", "frozen") if total[kind]) or "none"

    def complaints(self) -> Iterator[str]:
        """Everything that is not as holdfast promised."""
        fence = 0
        for number, it in enumerate(self.rounds, 1):
            statuses = Counter(answer.status for answer in it.answers)
            if statuses != {201: ALLOWED, 400: self.at_once - ALLOWED} or len(it.items) != ALLOWED:
                told = ", ".join(f"{count} times {status}" for status, count in sorted(statuses.items()))
                yield f"round {number}: {len(it.items)} items; {told}"
            yield from {f"round {number}: {answer.status} {answer.body}" for answer in it.answers if answer.status not in (201, 400)}
            if self.most and not it.faults:
                yield f"round {number} was not struck by a fault"
            for name, later in it.items:
                if later is None or later <= fence:
                    yield f"round {number}: item {name} has fence {later}, after {fence}"
                fence = later or fence
        if self.crowd > 1:
            yield f"{self.crowd} requests were inside at once"

    def row(self) -> tuple[str, ...]:
        """For the table."""
        happened = f"too many in {self.broken} of {self.count} rounds"
        if not self.broken:
            happened = "as promised" if not any(self.complaints()) else "no item too many" if self.lock == "set_nx" else "not as promised"
        waits = sorted(answer.waited for it in self.rounds for answer in it.answers)
        wait = f"{waits[len(waits) // 2]:.2f} / {waits[len(waits) * 99 // 100]:.2f} s"
        items = f"{sum(len(it.items) for it in self.rounds)} ({ALLOWED * self.count})"
        return self.title, happened, str(len(waits)), items, wait, self.lost


# ------------------------------------------------ the parts of a stage


class Folder:
    """What run.py and the service share: the database, a journal of who is inside, and a trap that holds one there (app.py, `inside`)."""

    def __init__(self, path: Path) -> None:
        self.path, self._journal, self._trap, self._database = path, path / "journal", path / "trap", path / "items.db"
        self._journal.touch()
        with closing(sqlite3.connect(self._database)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, fence INTEGER)")

    def journal(self) -> list[int]:
        """How many requests were inside after each that came, and each that left."""
        return list(itertools.accumulate(1 if it == "+" else -1 for it in self._journal.read_text()))

    def set_trap(self) -> None:
        self._trap.touch()

    def caught(self) -> bool:
        """Is a request held inside?"""
        return any(self.path.glob("caught-*"))

    def release(self) -> None:
        """Take the trap away, and let go whom it has caught."""
        self._trap.unlink(missing_ok=True)
        for caught in self.path.glob("caught-*"):
            caught.unlink()

    def empty(self) -> list[tuple[str, int | None]]:
        """Empty the table; what was in it."""
        with closing(sqlite3.connect(self._database, timeout=30)) as database, database:
            items = database.execute("SELECT name, fence FROM items ORDER BY id").fetchall()
            database.execute("DELETE FROM items")
            return items


class Workers:
    """Processes of the service, each on a port of its own. They end with this block, or with this process, however that ends."""

    def __init__(self, folder: Folder, lock: str, nodes: Nodes) -> None:
        self.urls: list[str] = []
        self._processes: list[subprocess.Popen[str]] = []
        self._logs = [folder.path / f"worker-{number}.log" for number in range(WORKERS)]
        self._environment = {
            **os.environ,
            "DEMO_FOLDER": str(folder.path),
            "DEMO_LOCK": lock,
            "DEMO_REDIS": nodes.urls[0],
            "HOLDFAST_NODES": " ".join(nodes.urls),
        }

    def __enter__(self) -> Self:
        try:
            for log in self._logs:
                self._processes.append(self._start(log))
            for process, log in zip(self._processes, self._logs, strict=True):
                assert process.stdout is not None
                if not (port := process.stdout.readline().strip()):
                    raise RuntimeError(f"a process of the service did not start:\n{log.read_text()}")
                self.urls.append(f"http://127.0.0.1:{port}/items")
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *raised: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.communicate()

    def _start(self, log: Path) -> subprocess.Popen[str]:
        # It notices the end of the pipe that is its stdin. In a session of its own: Ctrl-C at the terminal is for run.py alone.
        with log.open("w") as errors:
            command, pipe = [sys.executable, str(APP)], subprocess.PIPE
            return subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=errors, env=self._environment, text=True, start_new_session=True
            )

    def said(self) -> str:
        """The end of each process's log."""
        return "\n".join(f"{log.name}: {line}" for log in self._logs for line in log.read_text().splitlines()[-10:])


class Faults(threading.Thread):
    """Strikes at nodes in turn, whenever fewer than `most` are out of service, and always while a request is inside.

    `kinds`: of faults, also in turn: killed and restarted empty, or frozen; `guard`: how long a restarted node is out of service.
    """

    def __init__(self, nodes: Nodes, folder: Folder, dice: random.Random, *, most: int, kinds: tuple[str, ...], guard: float) -> None:
        super().__init__(daemon=True)
        self.done = Counter[str]()
        self.error: BaseException | None = None
        self._nodes, self._folder, self._dice, self._most, self._guard = nodes, folder, dice, most, guard
        self._node, self._kind = itertools.cycle(range(len(nodes))), itertools.cycle(kinds)
        self._thaw: dict[int, float] = {}  # frozen nodes, and when to thaw them
        self._back = dict.fromkeys(range(len(nodes)), 0.0)  # when a node is in service again
        self._held: list[tuple[float, float]] = []  # from when to when a request was held inside
        self._over = threading.Event()

    @property
    def room(self) -> int:
        """How many more nodes may be lost now."""
        return self._most - sum(back > monotonic() for back in self._back.values())

    def held(self, since: float, until: float) -> float:
        """For how many seconds a request was held inside, in a time."""
        return sum(max(0.0, min(until, end) - max(since, begin)) for begin, end in self._held)

    def run(self) -> None:
        try:
            while not self._over.is_set():
                self._pass()
                if self.room > 0 and self._caught():
                    begin = monotonic()
                    for _ in range(self._dice.randint(1, self.room)):
                        self._strike(next(node for node in self._node if self._back[node] <= monotonic()), next(self._kind))
                    until = monotonic() + HELD
                    while self._folder.journal()[-1] == 1 and monotonic() < until and not self._over.is_set():
                        self._pass()
                    self._held.append((begin, monotonic()))
                self._folder.release()
        except BaseException as error:
            self.error = error
            self._folder.release()

    def _caught(self) -> bool:
        """Wait until a request is inside, and held there; false if none will be."""
        self._folder.set_trap()
        while not (caught := self._folder.caught()) and not self._over.is_set():
            self._pass()
        return caught

    def _strike(self, node: int, kind: str) -> None:
        self.done[kind] += 1
        if kind == "killed":
            self._nodes.kill(node)
            self._nodes.restart(node)
            self._back[node] = monotonic() + self._guard
        else:
            self._nodes.freeze(node)
            self._thaw[node], self._back[node] = monotonic() + self._dice.uniform(*FROZEN), inf

    def _pass(self) -> None:
        """Let some time pass."""
        self._over.wait(0.005)
        for node in [node for node, due in self._thaw.items() if due <= monotonic()]:
            self._nodes.thaw(node)
            del self._thaw[node]
            self._back[node] = monotonic() + RECONNECT

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self.join()


# ------------------------------------------------ the story


async def ask(client: httpx.AsyncClient, url: str, name: str, faults: Faults | None) -> Answer:
    """Ask for one item."""
    began = monotonic()
    try:
        answer = await client.post(url, json={"name": name})
        status, body = answer.status_code, answer.text
    except httpx.HTTPError as error:
        status, body = 0, f"(no answer: {error!r})"
    now = monotonic()
    return Answer(status, now - began - (faults.held(began, now) if faults else 0.0), body)


async def play(stage: Stage, folder: Folder, urls: list[str], faults: Faults | None) -> None:
    """All rounds of a stage."""
    async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
        for number in range(1, stage.count + 1):
            while faults and faults.room <= 0:  # every round is to be struck
                await asyncio.sleep(0.01)
            before = faults.done.copy() if faults else Counter[str]()
            requests = [ask(client, urls[i % len(urls)], str(i), faults) for i in range(stage.at_once)]
            answers = await asyncio.gather(*requests)
            stage.rounds.append(Round(answers, folder.empty(), faults.done - before if faults else before))
            if faults and faults.error:
                raise faults.error
            progress(f"{stage.title}: round {number} of {stage.count}, {len(stage.rounds[-1].items)} items (nodes lost: {stage.lost})")


def perform(stage: Stage, nodes: Nodes, dice: random.Random) -> None:
    """Start the service, play the stage, end the service."""
    progress(f"{stage.title}: starting {WORKERS} processes")
    kinds, guard = (("killed",), 0.0) if len(nodes) == 1 else (("killed", "killed", "frozen"), GUARD)
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as path:
        folder = Folder(Path(path))
        faults = Faults(nodes, folder, dice, most=stage.most, kinds=kinds, guard=guard) if stage.most else None
        with Workers(folder, stage.lock, nodes) as workers, faults or nullcontext():
            asyncio.run(play(stage, folder, workers.urls, faults))
            stage.crowd = max(folder.journal())
            progress("")
            if any(answer.status not in (201, 400) for it in stage.rounds for answer in it.answers):
                print(workers.said() or "(the service's processes said nothing)")


def progress(line: str) -> None:
    """On a terminal one line that changes until an empty one ends it, else a line each time."""
    if sys.stdout.isatty():
        print(f"\r\033[K{line[: shutil.get_terminal_size().columns - 1]}" if line else "\n", end="", flush=True)
    elif line:
        print(line, flush=True)


def table(stages: list[Stage]) -> str:
    """What happened, for people."""
    head = ("what was asked", "what happened", "requests", "items (allowed)", "p50 / p99 wait", "nodes lost")
    rows = [it.row() for it in stages]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in [head, tuple("-" * it for it in widths), *rows])


def story(count: int, seed: int, lock: str) -> int:
    """Everything. Returns the exit status."""
    began, dice = monotonic(), random.Random(seed)
    exact = Stage("1. five at once, holdfast", lock, count=1, at_once=5)
    bare = Stage("2. no lock", "none", count)
    single = Stage("3. SET NX on one node", "set_nx", count, most=1)
    quorum = Stage("4. holdfast on five nodes", lock, count, most=2)
    stages = [exact, bare, single, quorum] if lock == "holdfast" else [exact, quorum]
    with Nodes(5) as five, Nodes(1) as one:
        print(f"{five.version}; {WORKERS} processes of the service; seed {seed}\n")
        for stage in stages:
            perform(stage, one if stage is single else five, dice)
            if stage is exact:
                print("\n".join(f"{it.status} - {it.body}" for it in sorted(exact.rounds[0].answers)), end="\n\n")
    print(f"\n{table(stages)}\n")
    print(f"A round is {AT_ONCE} requests at once, of which {ALLOWED} may succeed. The wait is for the answer, yes or no, less the time")
    print(f"for which a request was held inside to be struck at. It all took {monotonic() - began:.0f} s.\n")
    complaints = [f"{stage.title}: {it}" for stage in (exact, quorum) for it in stage.complaints()]
    for complaint in complaints[:20]:
        print(complaint)
    if complaints:
        print(f"The promise was broken, with {'holdfast' if lock == 'holdfast' else f'{lock} in its place'}.")
        return 1
    if not single.broken:
        print("(By chance, SET NX on one node let no item too many through this time.)")
    print(f"The promise held: with holdfast exactly {ALLOWED} items in every round, with these nodes lost on the way: {quorum.lost}.")
    return 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=STORY, epilog=STATUS, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three rounds a stage instead of eight")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="of the faults: how many at a time, how long")
    parser.add_argument("--plant", choices=["none", "set_nx"], help="use this in holdfast's place, and play 1 and 4: the promise breaks")
    options = parser.parse_args()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)  # clean up, as after Ctrl-C
    try:
        return story(3 if options.quick else 8, options.seed, options.plant or "holdfast")
    except KeyboardInterrupt:
        print("\ninterrupted; everything that was started is gone", file=sys.stderr)
        return 130
    except (HoldfastError, RuntimeError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
