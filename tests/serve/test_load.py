"""A gateway under load, as a process: it drains, nobody uses it, and thousands of connections say nothing.

Live, so it waits: a lease has to run out, and a silent connection has to be closed.
"""

from __future__ import annotations

import re
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from cli.kit import Command
from nemesis.processes import PATIENCE, until
from serve.page.kit import commands
from serve.serving import served

from holdfast import Holdfast
from holdfast.embedded import Nodes
from holdfast.serve.http import LAST, REQUEST


def kind(answer: httpx.Response) -> str:
    """The state or the problem that an answer says."""
    said: str = answer.json().get("state") or answer.json()["type"].removeprefix("/problems/")
    return said


TTL, DRAIN = 3.0, 4.5


def test_a_drain_gives_no_lease_to_anybody_else(holdfast: Command, nodes: Nodes) -> None:
    """Keepalives are served until its end. (With clients in three languages and kills: serve/test_kills.py.)"""
    mine, wanted = "/v1/leases/a-lease-that-is-kept", {"names": ["load:drain"], "ttl_ms": int(1000 * TTL)}
    with ExitStack() as stack:
        url, process = stack.enter_context(served(holdfast, "--no-page", "--drain", f"{DRAIN:g}s"))
        client = stack.enter_context(httpx.Client(base_url=url, timeout=PATIENCE))
        locks, pool = stack.enter_context(Holdfast(*nodes.urls)), stack.enter_context(ThreadPoolExecutor())
        assert kind(client.put(mine, json=wanted)) == "held"
        waits = pool.submit(httpx.put, f"{url}/v1/leases/a-lease-that-waits", json={**wanted, "wait_ms": 20_000}, timeout=PATIENCE)
        until(lambda: locks.inspect("load:drain").queue)
        process.send_signal(signal.SIGTERM)
        told = asked = time.monotonic()
        until(lambda: client.get("/readyz").status_code == 503)
        assert kind(waits.result()) == "draining"
        assert kind(client.put("/v1/leases/a-lease-that-comes-late", json={"names": ["load:late"]})) == "draining"
        believed = 0.0
        while process.poll() is None:
            try:
                asked, answer = time.monotonic(), client.post(f"{mine}/keepalive", json={})
            except httpx.TransportError:
                break
            assert kind(answer) == "held"
            believed = asked + answer.json()["valid_ms"] / 1000
            time.sleep(0.1)
        assert process.wait(LAST + PATIENCE) == 0
        with locks.lock("load:drain", wait=PATIENCE):
            assert time.monotonic() >= believed
    assert believed - told > TTL + DRAIN / 2


# ------------------------------------------------ a gateway that nobody uses

QUIET_FOR = 3.0  # seconds


def test_an_idle_gateway_sends_nothing_to_the_nodes(tmp_path: Path, own_nodes: Nodes) -> None:
    with served(Command(tmp_path, own_nodes.environment)) as (url, _):
        lease = f"{url}/v1/leases/a-lease-before-silence"
        assert httpx.put(lease, json={"names": ["load:idle"]}).status_code == 201
        assert httpx.delete(lease).status_code == 200
        assert httpx.get(url).status_code == 200
        # What the start and the release have asked for is over.
        time.sleep(1)
        before = commands(own_nodes)
        time.sleep(QUIET_FOR)
        assert commands(own_nodes) == before


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


def beats(url: str, over: threading.Event) -> set[str]:
    """Keep a lease until it is over. Returns what the gateway has said."""
    lease, said = f"{url}/v1/leases/a-lease-among-silence", set[str]()
    with httpx.Client(timeout=PATIENCE) as client:
        client.put(lease, json={"names": ["load:silence"], "ttl_ms": 5000})
        while not over.wait(0.2):
            said.add(kind(client.post(f"{lease}/keepalive", json={})))
        client.delete(lease)
    return said


def silence(url: str, many: int) -> None:
    """Open connections that say nothing, and wait until the gateway has closed them."""
    host, _, port = url.removeprefix("http://").partition(":")
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection((host, int(port)), REQUEST + PATIENCE)) for _ in range(many)]
        assert all(it.recv(1) == b"" for it in silent)


def test_connections_that_say_nothing_are_closed_and_cost_nobody_a_lease(holdfast: Command, files: int) -> None:
    many, over = min(SILENT, files - OTHER), threading.Event()
    with served(holdfast, "--no-page") as (url, process), ThreadPoolExecutor() as pool:
        said = pool.submit(beats, url, over)
        memory = [most(process.pid)]
        try:
            for _ in range(2):
                silence(url, many)
                memory.append(most(process.pid))
        finally:
            over.set()
        assert said.result() == {"held"}
        before, first, second = memory
        print(f"{many} connections, twice: {before / 1e6:.0f}, {first / 1e6:.0f}, {second / 1e6:.0f} MB")
        assert first - before < many * EACH
        # What a second wave needs was there already.
        assert second - first < many * LEFT
        # None of them is open any more.
        assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) < OTHER
