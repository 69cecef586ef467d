"""From no lock to Redlock, as the document "Redlock: Distributed Lock Manager with Redis" walks, and on to holdfast.

One FastAPI service may create three items and is asked for five. It runs in two processes on one database. Each version
of its lock (`versions/service.py`) first works in good weather, then meets the failure that breaks it. Requests are
held and processes are stopped or killed, so that each failure happens every time and on every machine.

Unsafe in the original:

- no lock: all five requests look before one writes;
- version 0 looks in one step and takes in another, and its key outlives the process that held the lock;
- version 1 forgets the lock when its only server restarts (with a replica: `./task demo failover`);
- version 2 waits for a server that hangs, although the others are a majority;
- version 2.1 works without the lock when a majority is dead, and also when the lock is only busy.

Instead: `with locks.lock("create_item", wait=30)`. It passes through all of it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import httpx
from redis import Redis

from holdfast import ConfigError
from holdfast.embedded import Nodes

STATUS = "exit status: 0 if everything happened as told, 1 if not, 130 if interrupted."
SERVICE = Path(__file__).with_name("versions") / "service.py"
PROCESSES = 2
SERVERS = 3
ALL = ("0", "1", "2", "3", "4")
WIDTH = 120


class NotAsTold(Exception):
    """Something that the story needs did not happen."""


class Answer(NamedTuple):
    """What a client got. The status is 0 if its connection broke before an answer."""

    item: str
    status: int
    told: str
    asked: float
    answered: float


class Passed(NamedTuple):
    """A line of the journal: when a request came to a point of its way, and how many items existed, if it looked."""

    at: float
    process: int
    item: str
    point: str
    items: int | None


@dataclass(frozen=True)
class Scene:
    """One thing that is done to a version, and how many answers of each status it must bring.

    Args:
        title: What is done.
        play: Does it, and returns what is worth telling beyond the answers.
        statuses: The statuses that the clients must get.
        inside: How many requests must have been inside the lock at the same time.
    """

    title: str
    play: Callable[[Stage], str]
    statuses: dict[int, int]
    inside: int = 1


@dataclass(frozen=True)
class Version:
    """A version of the lock, under the document's name, and the scenes that it plays."""

    name: str
    about: str
    scenes: Sequence[Scene]


class Row(NamedTuple):
    """A line of the table at the end."""

    version: str
    scene: str
    happened: str
    as_told: bool
    seconds: float


# ------------------------------------------------ the stage


class Stage:
    """Servers, and processes of the service that use one version of the lock, from `start` to `close`."""

    def __init__(self, lock: str, patience: float) -> None:
        self.patience = patience
        self.good_weather = 0.0  # seconds that this version needed for five requests without a failure
        self.answers: list[Future[Answer]] = []
        self.nodes = Nodes(SERVERS)
        self._lock = lock
        self._read = 0
        self._processes: list[subprocess.Popen[str]] = []
        self._urls: list[str] = []
        self._directory = tempfile.TemporaryDirectory(prefix="holdfast-walk-")
        self._folder = Path(self._directory.name)
        self._journal = self._folder / "journal"
        self._logs = [self._folder / f"process-{number}.log" for number in range(PROCESSES)]
        self._crowd = ThreadPoolExecutor(len(ALL))
        self._client = httpx.Client(timeout=4 * patience, trust_env=False)

    def start(self) -> Self:
        """Start everything. Does not wait until the processes serve."""
        self.nodes.start()
        with closing(self._database()) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT)")
        self._journal.touch()
        chosen = {"WALK_FOLDER": str(self._folder), "WALK_LOCK": self._lock}
        environment = {**os.environ, **self.nodes.environment, **chosen}
        for log in self._logs:
            with log.open("w") as errors:
                # In a session of its own: Ctrl-C at the terminal is for the walkthrough, which then ends the processes.
                process = subprocess.Popen(
                    [sys.executable, str(SERVICE)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=environment,
                    text=True,
                    start_new_session=True,
                )
            self._processes.append(process)
        return self

    def wait_until_it_serves(self) -> None:
        """Wait until every process of the service has told its port."""
        for process, log in zip(self._processes, self._logs, strict=True):
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            if not port:
                raise NotAsTold(f"a process of the service did not start:\n{log.read_text()}")
            self._urls.append(f"http://127.0.0.1:{port}/items")

    def close(self) -> None:
        """End everything. Idempotent."""
        # The processes first: their clients' connections break, and the threads that wait for answers end.
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.communicate()
        self._processes = []
        self._crowd.shutdown()
        self._client.close()
        self.nodes.close()
        self._directory.cleanup()

    def _database(self) -> sqlite3.Connection:
        return sqlite3.connect(self._folder / "items.db", timeout=30, isolation_level=None)

    # -------- clients

    def ask(self, *items: str) -> list[Future[Answer]]:
        """Send a request for each of these items, all at once, to the processes in turn."""
        alive = [url for url, process in zip(self._urls, self._processes, strict=True) if process.poll() is None]
        sent = [self._crowd.submit(self._post, alive[int(it) % len(alive)], it) for it in items]
        self.answers += sent
        return sent

    def _post(self, url: str, item: str) -> Answer:
        asked = time.monotonic()
        try:
            answer = self._client.post(url, json={"name": item})
            status = answer.status_code
            told = str(answer.json()) if answer.headers["content-type"] == "application/json" else answer.text
        except httpx.TransportError as error:
            status, told = 0, f"no answer: {type(error).__name__}"
        return Answer(item, status, told, asked, time.monotonic())

    # -------- what happens in the service

    def passed(self, point: str, item: str | None = None) -> int:
        """How many times requests came to this point in this scene. If an item is named, only its request counts."""
        return sum(it.point == point and item in (None, it.item) for it in self.journal())

    def journal(self) -> list[Passed]:
        """What happened in this scene, in order."""
        whole = self._journal.read_bytes()[self._read :]
        return [Passed(**json.loads(line)) for line in whole.splitlines(keepends=True) if line.endswith(b"\n")]

    def inside(self) -> int:
        """The largest number of requests that were inside the lock at the same moment."""
        now: set[str] = set()
        most = 0
        for it in self.journal():
            if it.point == "looked":
                now.add(it.item)
            elif it.point in ("left", "died"):
                now.discard(it.item)
            most = max(most, len(now))
        return most

    def items(self) -> list[str]:
        """The items that exist now."""
        with closing(self._database()) as database:
            return [name for (name,) in database.execute("SELECT name FROM items ORDER BY id")]

    def logged(self) -> list[str]:
        """The last lines that each process of the service has logged."""
        return [f"{log.name}: {line}" for log in self._logs for line in log.read_text().splitlines()[-5:]]

    # -------- directions

    def hold(self, *points: str) -> None:
        """Hold every request that comes to one of these points, until `let_go`."""
        for point in points:
            (self._folder / f"hold-{point}").touch()

    def let_go(self, point: str, item: str | None = None) -> None:
        """Let all requests that are held at a point go on, or the request for one item."""
        if item is None:
            (self._folder / f"hold-{point}").unlink(missing_ok=True)
        else:
            (self._folder / f"go-{point}-{item}").touch()

    def wait_until(self, happens: Callable[[], object], otherwise: str) -> None:
        """Wait until something happens. Raises NotAsTold if it does not happen in time."""
        until = time.monotonic() + self.patience
        while not happens():
            if time.monotonic() > until:
                raise NotAsTold(f"after {self.patience:.0f} s {otherwise}")
            time.sleep(0.005)

    def wait_for(self, point: str, count: int = 1, item: str | None = None) -> None:
        """Wait until requests have come to a point `count` times. If an item is named, only its request counts."""
        who = f"request {item} has" if item else "the requests have"
        otherwise = f"{who} not come to the point '{point}' {count} time(s)"
        self.wait_until(lambda: self.passed(point, item) >= count, otherwise)

    def wait_for_answers(self, answers: Sequence[Future[Answer]] | None = None) -> None:
        """Wait until these requests are answered, or all requests of this scene."""
        wanted = self.answers if answers is None else answers
        self.wait_until(lambda: all(it.done() for it in wanted), f"not all of {len(wanted)} request(s) are answered")

    def kill_process(self, item: str) -> None:
        """Kill the process that works on the request for this item with SIGKILL, and all requests in it."""
        pid = next(it.process for it in self.journal() if it.item == item)
        dead = {it.item for it in self.journal() if it.process == pid}
        process = next(it for it in self._processes if it.pid == pid)
        process.kill()
        process.wait()
        with open(self._journal, "ab", buffering=0) as journal:
            died = [Passed(time.monotonic(), pid, it, "died", None) for it in sorted(dead)]
            journal.writelines(json.dumps(it._asdict()).encode() + b"\n" for it in died)

    def server(self, number: int) -> Redis:
        """A connection to one of the servers."""
        return Redis.from_url(self.nodes.urls[number])

    def clear(self) -> None:
        """End a scene: let everything go on, wait for its end, and empty the table."""
        for direction in (*self._folder.glob("hold-*"), *self._folder.glob("go-*")):
            direction.unlink()
        self.wait_for_answers()
        self.answers = []
        self._read = self._journal.stat().st_size
        with closing(self._database()) as database:
            database.execute("DELETE FROM items")


# ------------------------------------------------ the scenes


def one_after_another(stage: Stage) -> str:
    """Each request is sent when the one before it has been answered."""
    for item in ALL:
        stage.wait_for_answers(stage.ask(item))
    return ""


def one_behind_another(stage: Stage) -> str:
    """Each request is sent while the one before it is inside, so that only one ever waits."""
    stage.hold("looked")
    for item, before in zip(ALL, (None, *ALL), strict=False):
        stage.ask(item)
        if before is not None:
            stage.wait_for("busy", item=item)
            stage.let_go("looked", before)
        stage.wait_for("looked", item=item)
    stage.let_go("looked")
    stage.wait_for_answers()
    return ""


def five_at_once(stage: Stage) -> str:
    """All requests are sent at once, and nothing else happens."""
    began = time.monotonic()
    stage.ask(*ALL)
    stage.wait_for_answers()
    stage.good_weather = time.monotonic() - began
    return ""


def five_at_once_by_turns(stage: Stage) -> str:
    """All requests are sent at once. Those that find the lock taken try again one by one, each when the lock is free.

    A version that gives up after some tries works without the lock if its random pauses are unlucky. Not so in good
    weather.
    """
    stage.hold("busy")
    answers = dict(zip(ALL, stage.ask(*ALL), strict=True))
    while answers:
        came = [it for it in answers if stage.passed("looked", it)]
        if not came:
            stage.wait_until(
                lambda: all(stage.passed("busy", it) or stage.passed("looked", it) for it in answers),
                "some requests have found the lock neither free nor taken",
            )
            came = [it for it in answers if stage.passed("looked", it)] or [next(iter(answers))]
        for item in came:
            stage.let_go("busy", item)
            stage.wait_for_answers([answers.pop(item)])
    return ""


def all_look_first(stage: Stage) -> str:
    """All requests look how many items exist before one of them writes."""
    stage.hold("looked")
    stage.ask(*ALL)
    stage.wait_for("looked", len(ALL))
    stage.let_go("looked")
    stage.wait_for_answers()
    return "all looked before one wrote"


def all_find_it_free(stage: Stage) -> str:
    """All requests look whether the lock is free before one of them takes it."""
    stage.hold("free", "looked")
    stage.ask(*ALL)
    stage.wait_for("free", len(ALL))
    stage.let_go("free")
    stage.wait_for("looked", len(ALL))
    stage.let_go("looked")
    stage.wait_for_answers()
    return "each found the lock free"


def holder_dies_and_all_wait_for_ever(stage: Stage) -> str:
    """The process that has the lock is killed, and the request behind it is asked to wait for ever."""
    _, waiter = _holder_dies(stage)
    tries = stage.passed("busy", waiter.item)
    stage.wait_for("busy", tries + 10, item=waiter.item)
    with stage.server(0) as server:
        expiry = server.pttl("create_item")
        if expiry != -1:
            raise NotAsTold(f"the key would expire by itself (PTTL {expiry})")
        if waiter.answer.done():
            raise NotAsTold("the request behind it was answered")
        server.delete("create_item")
    stage.wait_for_answers()
    return "a deadlock, until a DEL by hand"


def holder_dies_and_the_next_goes_on(stage: Stage) -> str:
    """The process that has the lock is killed, and the request behind it gets the lock when the lease ends."""
    died, _ = _holder_dies(stage)
    stage.wait_for_answers()
    return f"after {time.monotonic() - died:.1f} s, by itself"


class Waiter(NamedTuple):
    """A request that waits, and its answer."""

    item: str
    answer: Future[Answer]


def _holder_dies(stage: Stage) -> tuple[float, Waiter]:
    stage.hold("looked")
    stage.ask("0")
    stage.wait_for("looked", item="0")
    (answer,) = stage.ask("1")
    stage.wait_for("arrived", item="1")
    stage.kill_process("0")
    stage.let_go("looked")
    return time.monotonic(), Waiter("1", answer)


def server_restarts_and_two_are_inside(stage: Stage) -> str:
    """The first server restarts empty while a request is inside, and the next request comes in, too."""
    _one_is_inside(stage)
    _restart(stage)
    return _the_next_comes_in(stage)


def server_restarts_and_one_is_inside(stage: Stage) -> str:
    """The first server restarts empty while a request is inside, and the next request stays outside."""
    _one_is_inside(stage)
    _restart(stage)
    stage.ask("3")
    stage.wait_for("arrived", item="3")
    # A lock that lets the request in does so now: it has three times as long as five requests needed in good weather,
    # and longer than version 2.1 tries.
    time.sleep(max(2.0, 3 * stage.good_weather))
    if stage.passed("looked", "3"):
        raise NotAsTold("the next request came in while one was inside")
    _all_go_on(stage)
    return "one inside at a time"


def holder_is_slow_and_two_are_inside(stage: Stage) -> str:
    """All servers are well, but a request stays inside for longer than the next request tries."""
    _one_is_inside(stage)
    return _the_next_comes_in(stage)


def _one_is_inside(stage: Stage) -> None:
    """Two items are there, and a request that has seen that one more is allowed stays inside."""
    for item in ("0", "1"):
        stage.wait_for_answers(stage.ask(item))
    stage.hold("looked")
    stage.ask("2")
    stage.wait_for("looked", item="2")


def _restart(stage: Stage) -> None:
    stage.nodes.kill(0)
    stage.nodes.restart(0)


def _the_next_comes_in(stage: Stage) -> str:
    stage.ask("3")
    stage.wait_for("looked", item="3")
    _all_go_on(stage)
    return "two were inside"


def _all_go_on(stage: Stage) -> None:
    stage.let_go("looked")
    stage.wait_for_answers()
    stage.wait_for_answers(stage.ask("4"))


def server_hangs_and_all_wait(stage: Stage) -> str:
    """The first server hangs for twice as long as five requests needed in good weather. Nobody is answered meanwhile."""
    began = time.monotonic()
    with _hung(stage):
        stage.ask(*ALL)
        stage.wait_for("arrived", len(ALL))
        time.sleep(max(2.0, 2 * stage.good_weather))
        if answered := sum(it.done() for it in stage.answers):
            raise NotAsTold(f"{answered} request(s) were answered while the server hung")
    stage.wait_for_answers()
    took = time.monotonic() - began
    return f"{took:.1f} s, not {stage.good_weather:.1f}: all waited for it"


def server_hangs_and_nobody_waits(stage: Stage) -> str:
    """The first server hangs, and all requests are answered while it does."""
    began = time.monotonic()
    with _hung(stage):
        stage.ask(*ALL)
        stage.wait_for_answers()
        took = time.monotonic() - began
    return f"{took:.1f} s, while it hung"


@contextmanager
def _hung(stage: Stage) -> Iterator[None]:
    stage.nodes.freeze(0)
    try:
        yield
    finally:
        stage.nodes.thaw(0)


def majority_dies_and_all_go_in(stage: Stage) -> str:
    """Two of three servers are dead. All requests give up trying and go in without the lock."""
    _majority_dies(stage)
    stage.wait_for("looked", len(ALL))
    stage.let_go("looked")
    stage.wait_for_answers()
    return "all went in without the lock"


def majority_dies_and_nobody_goes_in(stage: Stage) -> str:
    """Two of three servers are dead. All requests are refused."""
    _majority_dies(stage)
    stage.wait_for_answers()
    if not all("NoQuorum" in it.result().told for it in stage.answers):
        raise NotAsTold("the answers do not say that a majority is missing")
    return "NoQuorum, and nobody went in"


def _majority_dies(stage: Stage) -> None:
    for node in (1, 2):
        stage.nodes.kill(node)
    stage.hold("looked")
    stage.ask(*ALL)


# ------------------------------------------------ the story

KEPT = {201: 3, 400: 2}  # the limit is kept
ONE_TOO_MANY = {201: 4, 400: 1}
EXCEEDED = {201: 5}
VERSIONS = {
    "bare": Version(
        "no lock",
        "the bare service",
        [
            Scene("good weather: one after another", one_after_another, KEPT),
            Scene("five requests at once", all_look_first, EXCEEDED, inside=5),
        ],
    ),
    "version-0": Version(
        "Version 0",
        "a bare Redis lock: GET, SET, DEL",
        [
            Scene("good weather: one behind another", one_behind_another, KEPT),
            Scene("five at once: all GET, then SET", all_find_it_free, EXCEEDED, inside=5),
            Scene("the holder's process is killed", holder_dies_and_all_wait_for_ever, {0: 1, 201: 1}),
        ],
    ),
    "version-1": Version(
        "Version 1",
        "a single instance: SET NX, a random value, a script that releases",
        [
            Scene("good weather: five requests at once", five_at_once, KEPT),
            Scene("the server restarts empty", server_restarts_and_two_are_inside, ONE_TOO_MANY, inside=2),
        ],
    ),
    "version-2": Version(
        "Version 2",
        "Redlock, on three instances, one after the other",
        [
            Scene("good weather: five requests at once", five_at_once, KEPT),
            Scene("one of three servers hangs", server_hangs_and_all_wait, KEPT),
        ],
    ),
    "version-2.1": Version(
        "Version 2.1",
        "Redlock with bounded retries and a drift, going on without the lock",
        [
            Scene("good weather: five requests at once", five_at_once_by_turns, KEPT),
            Scene("the holder is slow", holder_is_slow_and_two_are_inside, ONE_TOO_MANY, inside=2),
            Scene("two of three servers die", majority_dies_and_all_go_in, EXCEEDED, inside=5),
        ],
    ),
    "holdfast": Version(
        "holdfast",
        "on three servers",
        [
            Scene("good weather: five requests at once", five_at_once, KEPT),
            Scene("one of three servers hangs", server_hangs_and_nobody_waits, KEPT),
            Scene("one of three servers restarts empty", server_restarts_and_one_is_inside, KEPT),
            Scene("the holder's process is killed", holder_dies_and_the_next_goes_on, {0: 1, 201: 1}),
            Scene("two of three servers die", majority_dies_and_nobody_goes_in, {503: 5}, inside=0),
        ],
    ),
}


def walk(chosen: Sequence[str], scenes: Sequence[str], replaced: dict[str, str], patience: float, trace: Path | None) -> bool:
    """Play the chosen versions, or some of their scenes. Did everything happen as told?"""
    began = time.monotonic()
    rows: list[Row] = []
    with ExitStack() as at_the_end:

        def started(name: str) -> Stage:
            stage = Stage(replaced.get(name, name), patience)
            at_the_end.callback(stage.close)
            return stage.start()

        stage = started(chosen[0])
        for name, following in zip(chosen, [*chosen[1:], None], strict=True):
            # The processes of the next version start while this one plays.
            ahead = started(following) if following else None
            version = VERSIONS[name]
            say(f"\n{version.name}: {version.about}")
            waiting = [it for it in version.scenes if not scenes or it.title in scenes]
            while waiting:
                stage.wait_until_it_serves()
                as_told = True
                while waiting and as_told:
                    rows.append(play(version, waiting.pop(0), stage, trace))
                    as_told = rows[-1].as_told
                stage.close()
                if waiting:
                    # The next scene needs a new stage: requests may wait for ever on the old one.
                    stage = started(name)
            stage = ahead or stage
    say(f"\n{table(rows)}\n")
    wrong = sum(not row.as_told for row in rows)
    verdict = "Everything happened as told" if wrong == 0 else f"NOT AS TOLD: {wrong} of {len(rows)} scenes"
    say(f"{verdict}. {time.monotonic() - began:.0f} s.")
    return wrong == 0


def play(version: Version, scene: Scene, stage: Stage, trace: Path | None) -> Row:
    """Play one scene, and print its answers as the document does."""
    say(f"  {scene.title}:")
    began = time.monotonic()
    complaints: list[str] = []
    note = ""
    try:
        note = scene.play(stage)
    except NotAsTold as why:
        complaints.append(str(why))
    inside = stage.inside()
    answers = sorted((it.result() for it in stage.answers if it.done()), key=lambda it: it.answered)
    for answer in answers:
        line = f"    {answer.status or '---'} - {answer.told}"
        say(line if len(line) <= WIDTH else line[: WIDTH - 1] + "…")
    complaints += disagreements(scene, answers, stage.items(), inside)
    if trace and scene is VERSIONS["bare"].scenes[-1] and not complaints:
        told = {"answers": [it._asdict() for it in answers], "journal": [it._asdict() for it in stage.journal()]}
        trace.write_text(json.dumps(told))
    for complaint in complaints:
        say(f"    NOT AS TOLD: {complaint}")
    if complaints:
        for line in stage.logged():
            say(f"    {line}")
    else:
        stage.clear()
    happened = counted(Counter(it.status for it in answers)) + (f"; {note}" if note else "")
    return Row(version.name, scene.title, happened, not complaints, time.monotonic() - began)


def disagreements(scene: Scene, answers: Sequence[Answer], items: Sequence[str], inside: int) -> Iterator[str]:
    """What is not as the scene tells it."""
    statuses = Counter(it.status for it in answers)
    if statuses != scene.statuses:
        yield f"the clients got {counted(statuses)}, instead of {counted(Counter(scene.statuses))}"
    if sorted(items) != sorted(it.item for it in answers if it.status == 201):
        yield f"the items {list(items)} are not those of the requests that were answered with 201"
    if inside != scene.inside:
        yield f"{inside} request(s) were inside at the same time, instead of {scene.inside}"


def counted(statuses: Counter[int]) -> str:
    """How many answers of each status."""
    return ", ".join(f"{count} × {status or 'no answer'}" for status, count in sorted(statuses.items())) or "nothing"


def table(rows: Sequence[Row]) -> str:
    """What happened, for people."""
    lines = [("version", "what was done", "as told", "time", "what happened")]
    lines += [(it.version, it.scene, "yes" if it.as_told else "NO", f"{it.seconds:.1f} s", it.happened) for it in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    ruled = [lines[0], tuple("-" * it for it in widths), *lines[1:]]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in ruled)


def say(line: str) -> None:
    """Print a line now, also where nobody sits at a terminal."""
    print(line, flush=True)


def replacement(text: str) -> tuple[str, str]:
    """The two names of a `VERSION=OTHER`."""
    version, _, other = text.partition("=")
    if version not in VERSIONS or other not in VERSIONS:
        raise argparse.ArgumentTypeError(f"must be VERSION=OTHER, with two of {', '.join(VERSIONS)}, not {text!r}")
    return version, other


def main() -> bool:
    """The command line. Did everything happen as told?"""
    about = (__doc__ or "").partition("\nUnsafe")[0]
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, epilog=STATUS, formatter_class=form)
    names = ", ".join(VERSIONS)
    parser.add_argument("--only", nargs="+", choices=VERSIONS, default=list(VERSIONS), metavar="VERSION", help=names)
    parser.add_argument("--scene", nargs="+", default=[], metavar="TITLE", help="only scenes with these titles")
    parser.add_argument(
        "--plant",
        type=replacement,
        metavar="VERSION=OTHER",
        help="play VERSION's scenes with OTHER's lock: some of them must fail",
    )
    parser.add_argument(
        "--patience", type=float, default=30.0, help="seconds to wait for one event of a scene (default: %(default)s)"
    )
    parser.add_argument("--trace", type=Path, help="write the interleaving without a lock to this file, as JSON")
    options = parser.parse_args()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        # Clean up, as after Ctrl-C.
        signal.signal(ending, signal.default_int_handler)
    try:
        replaced = dict([options.plant]) if options.plant else {}
        return walk(options.only, options.scene, replaced, options.patience, options.trace)
    except KeyboardInterrupt:
        print("\ninterrupted; everything that was started is gone", file=sys.stderr)
        sys.exit(130)
    except (ConfigError, NotAsTold) as error:
        print(f"\n{error}", file=sys.stderr)
        return False


if __name__ == "__main__":
    sys.exit(not main())
