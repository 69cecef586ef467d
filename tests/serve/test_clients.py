"""The clients of examples/http, each in its language, against a gateway in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from cli.kit import Command, until
from serve.serving import address

from holdfast import Holdfast
from holdfast.embedded import Nodes
from holdfast.fencing.http import fences_in

HERE = Path(__file__).parents[2] / "examples/http"
CLIENTS = {
    "sh": ["sh", str(HERE / "client.sh")],
    "node": [shutil.which("node") or "node", str(HERE / "client.mjs")],
    "python": [sys.executable, str(HERE / "client.py")],
}
PIPES: dict[str, Any] = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
PATIENCE = 30


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> list[str]:
    words: list[str] = CLIENTS[request.param]
    return words


@pytest.fixture
def gateway(holdfast: Command) -> Iterator[dict[str, str]]:
    """The environment of a client."""
    with holdfast.started("serve", "--bind", "127.0.0.1:0", "--max-lag", "1m", **PIPES) as process:
        yield {**os.environ, "HOLDFAST_GATEWAY": address(process), "TTL_MS": "2000", "GATEWAY_PID": str(process.pid)}


@pytest.fixture
def locks(nodes: Nodes) -> Iterator[Holdfast]:
    with Holdfast(*nodes.urls, fresh=nodes.run_ids) as locks:
        yield locks


def ended(process: subprocess.Popen[str]) -> int:
    """Kill it if it does not end."""
    try:
        return process.wait(PATIENCE)
    finally:
        process.kill()
        process.communicate()


def test_it_runs_a_command_and_says_how_it_ended(client: list[str], gateway: dict[str, str], locks: Holdfast) -> None:
    done = subprocess.run([*client, "clients: \"it's\" one", "sh", "-c", "echo hello; exit 3"], env=gateway, timeout=PATIENCE, **PIPES)
    assert (done.returncode, done.stdout) == (3, b"hello\n"), done.stderr
    assert not locks.is_locked("clients: \"it's\" one")


def test_it_beats_and_its_request_carries_the_fence(client: list[str], gateway: dict[str, str], locks: Holdfast) -> None:
    seen: list[str] = []

    class Resource(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.headers["Fencing-Token"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Resource) as resource:
        thread = threading.Thread(target=resource.serve_forever, args=(0.05,))
        thread.start()
        url = f"http://127.0.0.1:{resource.server_port}/"
        # For longer than its ttl.
        script = f'sleep 6; curl -sS -X POST -H "Fencing-Token: $FENCING_TOKEN" {url}'
        gateway = {**gateway, "TTL_MS": "5000"}
        with subprocess.Popen([*client, "clients:beat", "sh", "-c", script], env=gateway, text=True, **PIPES) as process:
            until(lambda: locks.is_locked("clients:beat"))
            fence = locks.inspect("clients:beat").fence
            assert ended(process) == 0
        resource.shutdown()
        thread.join()
    assert [fences_in(it) for it in seen] == [{"clients:beat": fence}]


def test_its_command_dies_when_the_lock_is_lost(client: list[str], gateway: dict[str, str], locks: Holdfast, tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/pid; sleep 60 & wait"
    with subprocess.Popen([*client, "clients:lost", "sh", "-c", script], env=gateway, text=True, **PIPES) as process:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        locks.force_release("clients:lost", "a test")
        assert ended(process) == 137


def test_its_command_is_dead_before_another_has_the_lock(
    client: list[str], gateway: dict[str, str], locks: Holdfast, tmp_path: Path
) -> None:
    script = f"while :; do date +%s.%N > {tmp_path}/last.new; mv {tmp_path}/last.new {tmp_path}/last; sleep 0.02; done"
    with subprocess.Popen([*client, "clients:dead", "sh", "-c", script], env=gateway, text=True, **PIPES) as process:
        until(lambda: (tmp_path / "last").exists())
        # The gateway hangs: what the client believes has to end by its own clock.
        os.kill(int(gateway["GATEWAY_PID"]), signal.SIGSTOP)
        with locks.lock("clients:dead", wait=10):
            last = float((tmp_path / "last").read_text())
            now = float(subprocess.run(["date", "+%s.%N"], capture_output=True, check=True).stdout)
            assert last < now
            assert ended(process) == 137
            assert float((tmp_path / "last").read_text()) == last
        # Otherwise it would not end by a signal.
        os.kill(int(gateway["GATEWAY_PID"]), signal.SIGCONT)
