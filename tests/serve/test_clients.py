"""The clients of examples/http, each in its language, against a gateway in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cli.kit import Command
from nemesis.processes import PIPES, alive, kill_all, until
from serve.serving import served

from holdfast import Holdfast
from holdfast.embedded import Nodes
from holdfast.fencing.http import fences_in
from holdfast.serve.answering import lines

HERE = Path(__file__).parents[2] / "examples/http"
CLIENTS = {
    "sh": ["sh", str(HERE / "client.sh")],
    "node": [shutil.which("node") or "node", str(HERE / "client.mjs")],
    "python": [sys.executable, str(HERE / "client.py")],
}
PATIENCE = 30


# Lines of a client that somebody may copy: more are not read.
LONGEST = 80


def test_a_client_is_short_enough_to_be_read() -> None:
    lines = {it.name: len(it.read_text().splitlines()) for it in HERE.iterdir() if it.is_file()}
    assert set(lines) == {"client.sh", "client.mjs", "client.py"}
    assert {name: it for name, it in lines.items() if it > LONGEST} == {}


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> list[str]:
    words: list[str] = CLIENTS[request.param]
    return words


@pytest.fixture
def gateway(holdfast: Command) -> Iterator[dict[str, str]]:
    """The environment of a client."""
    with served(holdfast) as (url, process):
        yield {**os.environ, "HOLDFAST_GATEWAY": url, "TTL_MS": "2000", "GATEWAY_PID": str(process.pid)}


@pytest.fixture
def locks(nodes: Nodes) -> Iterator[Holdfast]:
    with Holdfast(*nodes.urls) as locks:
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


def test_it_waits_for_longer_than_a_lease_lasts(client: list[str], gateway: dict[str, str], locks: Holdfast) -> None:
    with locks.lock("clients:waits") as before:
        with subprocess.Popen([*client, "clients:waits", "sh", "-c", "sleep 0.3; echo done"], env=gateway, text=True, **PIPES) as process:
            until(lambda: locks.inspect("clients:waits").queue)
            # Counted from when it was sent, its first answer is then too old.
            time.sleep(1.5 * int(gateway["TTL_MS"]) / 1000)
            before.release()
            said, why = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (0, "done\n"), why


def test_it_beats_and_its_command_has_the_fence(client: list[str], gateway: dict[str, str], locks: Holdfast) -> None:
    # For longer than its ttl.
    words, gateway = [*client, "clients:beat", "sh", "-c", 'sleep 6; echo "$FENCING_TOKEN"'], {**gateway, "TTL_MS": "5000"}
    with subprocess.Popen(words, env=gateway, text=True, **PIPES) as process:
        until(lambda: locks.is_locked("clients:beat"))
        fence = locks.inspect("clients:beat").fence
        said, why = process.communicate(timeout=PATIENCE)
    assert (process.returncode, fences_in(said.strip())) == (0, {"clients:beat": fence}), why


def test_its_command_dies_when_the_lock_is_lost(client: list[str], gateway: dict[str, str], locks: Holdfast, tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/pid; sleep 60 & wait"
    with subprocess.Popen([*client, "clients:lost", "sh", "-c", script], env=gateway, text=True, **PIPES) as process:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        locks.force_release("clients:lost", "a test")
        assert ended(process) == 137


def test_a_client_that_was_killed_keeps_the_lock_no_longer_than_its_command_runs(
    client: list[str], gateway: dict[str, str], locks: Holdfast, tmp_path: Path
) -> None:
    script = f"sleep 0.1; touch {tmp_path}/began; sleep 1"
    with subprocess.Popen([*client, "clients:killed", "sh", "-c", script], env=gateway, text=True, **PIPES) as process:
        until(lambda: (tmp_path / "began").exists())
        process.kill()
        until(lambda: not locks.is_locked("clients:killed"))


def test_a_client_that_was_told_to_end_frees_no_lock_of_a_command_that_runs(
    client: list[str], gateway: dict[str, str], locks: Holdfast, tmp_path: Path
) -> None:
    script = f"echo $$ >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 6"
    with subprocess.Popen([*client, "clients:ended", "sh", "-c", script], env=gateway, text=True, **PIPES) as process:
        until(lambda: (tmp_path / "pid").exists())
        process.terminate()
        until(lambda: not locks.is_locked("clients:ended"))
        assert not alive(int((tmp_path / "pid").read_text()))


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


# Seconds for which a lease is valid when the gateway has read it, and for which the answer is on its way then.
VALID, SLOW = 3.0, 2.0
# Seconds by which a busy machine may be late. What is planted is late by more.
LATE = 1.0
# The machine's clock, in a file that is replaced as a whole.
LIVES = "while :; do cat /proc/uptime > $0.new; mv $0.new $0; sleep 0.02; done"


@contextmanager
def slow_gateway() -> Iterator[tuple[str, list[float]]]:
    """A gateway whose answers take long, and whose keepalives hang. Yields its address, and when it has read a lease."""
    read: list[float] = []
    over = threading.Event()

    class Slow(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            read.append(time.clock_gettime(time.CLOCK_BOOTTIME))
            over.wait(SLOW)
            facts = {"id": "a-lease-of-a-slow-gateway", "state": "held", "valid_ms": int(1000 * VALID), "keepalive_ms": 500}
            plain = self.headers["accept"] == "text/plain"
            text = lines({**facts, "fencing_token": "1"}) if plain else json.dumps(facts)
            self.send_response(201)
            self.send_header("Fencing-Token", "1")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def do_POST(self) -> None:
            over.wait(PATIENCE)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", read
        finally:
            over.set()
            server.shutdown()
            thread.join()


def outlived(client: list[str], place: Path) -> float:
    """By how many seconds a client's command outlived the time for which the lock was certainly held. At most `LATE` and a half."""
    file = place / "last"
    with slow_gateway() as (url, read):
        env = {**os.environ, "HOLDFAST_GATEWAY": url, "TTL_MS": "3000"}
        with subprocess.Popen([*client, "clients:slow", "sh", "-c", LIVES, str(file)], env=env, **PIPES) as process:
            until(lambda: file.exists() or process.poll() is not None)
            end = read[0] + VALID
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end + 1.5 * LATE - time.clock_gettime(time.CLOCK_BOOTTIME)))
            last = float(file.read_text().split()[0])
            kill_all(process.pid)
            process.communicate()
    return last - end


def test_a_slow_answer_counts_from_before_it_was_asked_for(client: list[str], tmp_path: Path) -> None:
    assert outlived(client, tmp_path) < LATE


