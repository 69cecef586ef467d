"""A gateway under load, as a process: it drains while clients hold and acquire, and thousands of connections say nothing.

Live, so it waits: a lease has to run out, and a silent connection has to be closed.
"""

from __future__ import annotations

import os
import re
import resource
import secrets
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from cli.kit import Command
from nemesis.arena import Life, beater, life, now
from nemesis.processes import PATIENCE, SOURCE, Running, until
from redis import Redis
from serve.kills import SCRIPT
from serve.serving import served
from serve.test_clients import CLIENTS

from holdfast import Holdfast
from holdfast.embedded import Nodes
from holdfast.serve.http import LAST, REQUEST

# ------------------------------------------------ a drain

TTL, DRAIN = 3.0, 5.0


@dataclass
class Drained:
    """What was seen of a drain.

    Attributes:
        told: When SIGTERM was sent. All times are by CLOCK_BOOTTIME.
        refusing: When it was seen that the gateway drains.
        lives: When the command of each client lived, by the lock's name.
        taken: When another client got that lock.
        asked: When each new lease was asked for, and what the answer was.
        waited: What a client was answered that waited when the gateway was told.
        status: How the process ended.
        took: Seconds from the signal to its end.
    """

    told: float = 0.0
    refusing: float = 0.0
    lives: dict[str, Life] = field(default_factory=dict)
    taken: dict[str, float] = field(default_factory=dict)
    asked: list[tuple[float, str]] = field(default_factory=list)
    waited: str = ""
    status: int | None = None
    took: float = 0.0

    @property
    def overlaps(self) -> dict[str, float]:
        """By how many seconds commands lived while another client had their lock."""
        return {name: it.last - self.taken[name] for name, it in self.lives.items() if it.last >= self.taken[name]}

    @property
    def granted(self) -> int:
        """How many leases were granted to requests that came later than the drain."""
        return sum(said == "held" for at, said in self.asked if at > self.refusing)


def kind(answer: httpx.Response) -> str:
    """The state or the problem that an answer says."""
    said: str = answer.json().get("state") or answer.json()["type"].removeprefix("/problems/")
    return said


class Load:
    """Threads that acquire and release leases of their own, one after another, until they are told to end."""

    def __init__(self, url: str, seen: Drained, threads: int) -> None:
        self._url, self._seen = url, seen
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._loop, args=(at,)) for at in range(threads)]
        for it in self._threads:
            it.start()

    def _loop(self, number: int) -> None:
        with httpx.Client(base_url=self._url, timeout=PATIENCE) as client:
            while not self._over.wait(0.02):
                at, lease = now(), f"/v1/leases/{secrets.token_hex(16)}"
                try:
                    said = kind(client.put(lease, json={"names": [f"load:{number}"], "ttl_ms": 1000, "wait_ms": 1000}))
                    self._seen.asked.append((at, said))
                    if said == "held":
                        client.post(f"{lease}/keepalive", json={})
                        client.delete(lease)
                except httpx.TransportError:
                    self._seen.asked.append((at, "gone"))

    def close(self) -> None:
        """Stop."""
        self._over.set()
        for it in self._threads:
            it.join()


@contextmanager
def believers(folder: Path, url: str) -> Iterator[dict[str, Path]]:
    """The clients of examples/http, whose commands write when they live. Yields the lock and the file of each."""
    env = {**os.environ, "HOLDFAST_GATEWAY": url, "TTL_MS": str(int(1000 * TTL))}
    files = {f"load:{language}": folder / f"life-{language}" for language in CLIENTS}
    program = beater(folder)
    with ExitStack() as running:
        for name, it in files.items():
            running.enter_context(Running(*CLIENTS[name.partition(":")[2]], name, "sh", "-c", SCRIPT, program, it, env=env))
        yield files


def wanting(nodes: Nodes, name: str, seen: Drained) -> None:
    """Note when a client that knows no gateway gets a lock."""
    with Holdfast(*nodes.urls) as locks, locks.lock(name, wait=4 * PATIENCE):
        seen.taken[name] = now()


def waiting(url: str, seen: Drained) -> None:
    """Note what a client is answered that waits."""
    body = {"names": ["load:sh"], "wait_ms": 20_000}
    seen.waited = kind(httpx.put(f"{url}/v1/leases/a-lease-that-waits", json=body, timeout=2 * PATIENCE))


def drained(folder: Path, nodes: Nodes, source: Path = SOURCE) -> Drained:
    """Drain a gateway whose clients hold and acquire."""
    seen = Drained()
    words = ("--no-page", "--drain", f"{DRAIN:g}s", "--max-requests", "1000000", "--max-keepalives", "1000000")
    with served(Command(folder, nodes.environment, source), *words) as (url, process):
        with believers(folder, url) as files:
            until(lambda: all(map(life, files.values())), 3 * PATIENCE)
            others = [threading.Thread(target=wanting, args=(nodes, name, seen)) for name in files]
            others.append(threading.Thread(target=waiting, args=(url, seen)))
            for it in others:
                it.start()
            load = Load(url, seen, 8)
            try:
                until(lambda: [said for _, said in seen.asked].count("held") > 20)
                process.send_signal(signal.SIGTERM)
                seen.told = now()
                until(lambda: httpx.get(f"{url}/readyz").status_code == 503)
                seen.refusing = now()
                seen.status = process.wait(DRAIN + LAST + PATIENCE)
                seen.took = now() - seen.told
                for it in others:
                    it.join(4 * PATIENCE)
            finally:
                load.close()
            seen.lives = {name: it for name, file in files.items() if (it := life(file))}
    return seen


def test_a_drain_under_load_gives_no_lease_to_anybody_else(tmp_path: Path, nodes: Nodes) -> None:
    seen = drained(tmp_path, nodes)
    assert set(seen.taken) == set(seen.lives) == {f"load:{it}" for it in CLIENTS}
    assert seen.overlaps == {}
    # Keepalives were served until the end of the drain: without them, a lease had ended earlier.
    assert all(it.last > seen.told + TTL + 0.5 for it in seen.lives.values()), seen
    later = {said for at, said in seen.asked if at > seen.refusing}
    assert seen.granted == 0
    assert "draining" in later
    assert later <= {"draining", "gone"}
    assert seen.waited == "draining"
    assert seen.status == 0
    assert seen.took < DRAIN + LAST + PATIENCE


# ------------------------------------------------ a gateway that nobody uses

QUIET_FOR = 3.0  # seconds


class Heard:
    """What nodes were asked. Looking at a node is one command on a connection of its own."""

    def __init__(self, nodes: Nodes) -> None:
        self._looking = [Redis.from_url(it, single_connection_client=True) for it in nodes.urls]

    def commands(self) -> list[int]:
        """How many commands each node has carried out, without those that only keep a connection."""
        asked = [it.info("commandstats") for it in self._looking]
        return [sum(it["calls"] for name, it in stats.items() if name != "cmdstat_ping") for stats in asked]

    def close(self) -> None:
        """Stop looking."""
        for it in self._looking:
            it.close()


def asked_while_idle(command: Command, nodes: Nodes) -> int:
    """How many commands a gateway that nobody uses sends to the nodes. It was used before."""
    heard = Heard(nodes)
    with served(command) as (url, _):
        lease = f"{url}/v1/leases/a-lease-before-silence"
        assert httpx.put(lease, json={"names": ["load:idle"]}).status_code == 201
        assert httpx.delete(lease).status_code == 200
        assert httpx.get(url).status_code == 200
        # What the start and the release have asked for is over.
        time.sleep(1)
        before = heard.commands()
        time.sleep(QUIET_FOR)
        after = heard.commands()
    heard.close()
    return sum(after) - sum(before) - len(after)


def test_an_idle_gateway_sends_nothing_to_the_nodes(tmp_path: Path, own_nodes: Nodes) -> None:
    assert asked_while_idle(Command(tmp_path, own_nodes.environment), own_nodes) == 0


# ------------------------------------------------ connections that say nothing

SILENT = 10_000
# Files that a process needs besides.
OTHER = 500
# Bytes of memory for a connection while it is open, which are 5,000 or less, and what may be left of each later.
EACH, LEFT = 15_000, 1_000


@pytest.fixture
def files() -> Iterator[int]:
    """Let this process, and those that it starts, open as many files as they may. Returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def most(pid: int) -> int:
    """The most bytes of memory that a process had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def opened(pid: int) -> int:
    """How many files and connections a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def closed(silent: list[socket.socket], patience: float) -> int:
    """How many of these connections the other side closes in time."""
    poll = select.epoll()
    numbers = {it.fileno(): it for it in silent}
    for it in numbers:
        poll.register(it, select.EPOLLIN)
    deadline, found = time.monotonic() + patience, 0
    while numbers and time.monotonic() < deadline:
        for number, _ in poll.poll(0.1, 1000):
            poll.unregister(number)
            found += numbers.pop(number).recv(1) == b""
    poll.close()
    return found


class Keeper:
    """A client that keeps its lease."""

    def __init__(self, url: str) -> None:
        self.said: list[str] = []
        self.late = 0.0
        self._over = threading.Event()
        self._lease = f"{url}/v1/leases/a-lease-among-silence"
        self._client = httpx.Client(timeout=PATIENCE)
        assert self._client.put(self._lease, json={"names": ["load:silence"], "ttl_ms": 5000}).status_code == 201
        self._thread = threading.Thread(target=self._loop)
        self._thread.start()

    def _loop(self) -> None:
        while not self._over.wait(0.2):
            began = time.monotonic()
            self.said.append(kind(self._client.post(f"{self._lease}/keepalive", json={})))
            self.late = max(self.late, time.monotonic() - began)

    def close(self) -> None:
        """Stop, and release it."""
        self._over.set()
        self._thread.join()
        self._client.delete(self._lease)
        self._client.close()


def silence(url: str, many: int, patience: float) -> int:
    """Open connections that say nothing. Returns how many of them the gateway closes."""
    host, _, port = url.removeprefix("http://").partition(":")
    silent = []
    try:
        for _ in range(many):
            silent.append(socket.create_connection((host, int(port)), PATIENCE))
        return closed(silent, patience)
    finally:
        for it in silent:
            it.close()


def waves(pid: int, url: str, many: int) -> list[int]:
    """Two waves of connections that say nothing. Returns the most memory that the gateway had before, and with each."""
    found = [most(pid)]
    for _ in range(2):
        assert silence(url, many, REQUEST + PATIENCE) == many
        found.append(most(pid))
    return found


def test_connections_that_say_nothing_are_closed_and_cost_nobody_a_lease(holdfast: Command, files: int) -> None:
    many = min(SILENT, files - OTHER)
    with served(holdfast, "--no-page") as (url, process):
        keeper = Keeper(url)
        try:
            before, first, second = waves(process.pid, url, many)
        finally:
            keeper.close()
        print(f"{many} connections, twice: {before / 1e6:.0f}, {first / 1e6:.0f}, {second / 1e6:.0f} MB; slowest {keeper.late:.3f} s")
        assert set(keeper.said) == {"held"}
        assert first - before < many * EACH
        # What a second wave needs was there already.
        assert second - first < many * LEFT
        # None of them is open any more.
        assert opened(process.pid) < OTHER
