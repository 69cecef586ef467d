"""`holdfast serve` as a process: how it starts, drains and dies."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from cli.kit import SOURCE, Command, until
from serve.serving import address, copied

from holdfast import Holdfast
from holdfast.embedded import Nodes

ANY = ("--bind", "127.0.0.1:0", "--max-lag", "1m")
PIPES: dict[str, Any] = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE}


def put(url: str, lease: str, name: str, **more: Any) -> httpx.Response:
    return httpx.put(f"{url}/v1/leases/{lease}", json={"names": [name], **more}, timeout=20)


def locks_of(nodes: Nodes) -> Holdfast:
    return Holdfast(*nodes.urls)


def test_a_drain_serves_what_is_held_until_it_ends(holdfast: Command, nodes: Nodes) -> None:
    with holdfast.started("serve", *ANY, **PIPES) as process, locks_of(nodes) as locks:
        url = address(process)
        assert put(url, "a-lease-of-the-drain", "verb:drain").status_code == 201
        process.send_signal(signal.SIGTERM)
        until(lambda: httpx.get(f"{url}/readyz").status_code == 503)
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert put(url, "another-lease-later", "verb:other").json()["type"] == "/problems/draining"
        assert httpx.post(f"{url}/v1/leases/a-lease-of-the-drain/keepalive", json={}).status_code == 200
        assert locks.is_locked("verb:drain")
        assert httpx.delete(f"{url}/v1/leases/a-lease-of-the-drain").status_code == 200
        assert process.wait(10) == 0


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_an_end_is_no_release(holdfast: Command, nodes: Nodes, ending: signal.Signals) -> None:
    with holdfast.started("serve", *ANY, "--drain", "100ms", **PIPES) as process, locks_of(nodes) as locks:
        url = address(process)
        began = time.monotonic()
        said = put(url, f"a-lease-of-the-end-{ending}", f"verb:end {ending}", ttl_ms=2_000).json()
        process.send_signal(ending)
        process.wait(10)
        # While its client may believe in it, nobody else gets it. Soon afterwards, the next one does.
        with locks.lock(f"verb:end {ending}", wait=10):
            waited = time.monotonic() - began
        assert said["valid_ms"] / 1000 <= waited < 5


def test_a_second_signal_ends_a_drain(holdfast: Command) -> None:
    with holdfast.started("serve", *ANY, **PIPES) as process:
        url = address(process)
        put(url, "a-lease-of-the-second", "verb:second")
        process.send_signal(signal.SIGTERM)
        until(lambda: httpx.get(f"{url}/readyz").status_code == 503)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stderr is not None
        assert "1 leases are left to run out" in process.stderr.read()


def test_a_command_and_a_client_of_the_gateway_keep_each_other_out(holdfast: Command, nodes: Nodes) -> None:
    with holdfast.started("serve", *ANY, **PIPES) as process, locks_of(nodes) as locks:
        url = address(process)
        first = put(url, "a-lease-before-a-command", "verb:both").json()
        with holdfast.started("run", "verb:both", "--", "sh", "-c", "echo $HOLDFAST_FENCE; sleep 0.5", **PIPES) as command:
            until(lambda: len(locks.inspect("verb:both").queue) == 1)
            # The second client asks later than the command, and is behind it.
            waits = put(url, "a-lease-after-a-command", "verb:both", wait_ms=100, linger_ms=10_000).json()
            assert waits["state"] == "waiting"
            httpx.delete(f"{url}/v1/leases/a-lease-before-a-command")
            last = put(url, "a-lease-after-a-command", "verb:both", wait_ms=20_000, linger_ms=10_000).json()
            assert command.wait(10) == 0
            assert command.stdout is not None
            fence = int(command.stdout.read())
        assert last["state"] == "held"
        assert first["fence"] < fence < last["fence"]
        httpx.delete(f"{url}/v1/leases/a-lease-after-a-command")


def test_tls_and_tokens(holdfast: Command, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    ours = authority.issue_cert("127.0.0.1", "localhost")
    ours.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    ours.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    tokens = tmp_path / "tokens.toml"
    token = holdfast.run("serve", "--new-token", "importer", "--tokens", str(tokens)).stdout.strip()
    words = ("--server-cert", str(tmp_path / "cert.pem"), "--server-key", str(tmp_path / "key.pem"), "--tokens", str(tokens))
    with holdfast.started("serve", "--bind", "0.0.0.0:0", "--max-lag", "1m", *words, **PIPES) as process:
        port = address(process).rpartition(":")[2]
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        bearer = {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=f"https://localhost:{port}", verify=context) as client:
            assert client.get("/v1/nodes").status_code == 401
            assert client.get("/v1/nodes", headers=bearer).status_code == 200
            # The file is read again on SIGHUP. A wrong one changes nothing.
            tokens.write_text("[client.importer]")
            process.send_signal(signal.SIGHUP)
            assert process.stderr is not None
            assert "the old tokens stay in use" in process.stderr.readline()
            assert client.get("/v1/nodes", headers=bearer).status_code == 200


@pytest.mark.parametrize(
    "words,status,why",
    [
        (("--bind", "0.0.0.0:0"), 78, "without TLS and tokens"),
        (("--bind", "nonsense"), 64, "HOST:PORT"),
        (("--bind", "192.0.2.1:0", "--insecure"), 78, "cannot listen"),
        (("--bind", "127.0.0.1:0", "--tokens", "/nonexistent"), 78, "cannot be read"),
        (("--new-token", "a b", "--tokens", "x"), 78, "letters"),
        (("--workers", "2"), 64, "unrecognized"),
    ],
)
def test_what_it_refuses(holdfast: Command, words: tuple[str, ...], status: int, why: str) -> None:
    done = holdfast.run("serve", *words)
    assert (done.returncode, why in done.stderr) == (status, True), done.stderr


def test_insecure_is_said_at_each_start(holdfast: Command) -> None:
    with holdfast.started("serve", "--bind", "0.0.0.0:0", "--insecure", **PIPES) as process:
        assert process.stderr is not None
        assert "INSECURE" in process.stderr.readline()


def test_without_the_extra_it_says_which_one(holdfast: Command, tmp_path: Path) -> None:
    (tmp_path / "starlette.py").write_text("raise ImportError('not here', name='starlette')\n")
    path = {"PYTHONPATH": f"{tmp_path}:{holdfast.environment['PYTHONPATH']}"}
    done = holdfast.run("serve", env=path)
    assert (done.returncode, 'pip install "holdfast[serve]"' in done.stderr) == (78, True), done.stderr
    # Tokens can be made anywhere.
    assert holdfast.run("serve", "--new-token", "a", "--tokens", str(tmp_path / "tokens"), env=path).returncode == 0


def test_it_is_ready_before_anybody_has_asked_for_a_lease(holdfast: Command) -> None:
    with holdfast.started("serve", *ANY, **PIPES) as process:
        url = address(process)
        until(lambda: httpx.get(f"{url}/readyz").status_code == 200)


def test_importing_the_library_loads_nothing_of_it() -> None:
    script = "import sys, holdfast, holdfast.aio, holdfast.cli; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split())
    assert not loaded & {"starlette", "uvicorn", "httpx", "pydantic", "prometheus_client", "holdfast.serve"}


# What stands for the gateway has Python look at all objects once, and makes many more. It says how often
# Python has looked since.
CROWD = """
import asyncio, gc, sys
from holdfast.cli import main, serving

class Runner:
    def __init__(self, **more):
        pass
    def __enter__(self):
        return self
    def __exit__(self, *raised):
        pass
    def run(self, gateway):
        gateway.close()
        gc.collect()
        before = gc.get_stats()[-1]["collections"]
        kept = [[] for _ in range(500_000)]
        print(gc.get_stats()[-1]["collections"] - before)

asyncio.Runner, serving.QUICK = Runner, float(sys.argv[1])
main(["serve", "--bind", "127.0.0.1:0"])
"""


def looks_at_all(holdfast: Command, source: Path, quick: str) -> int:
    """How often Python looks at all objects of a crowd, if what takes so many seconds is quick."""
    environment = {**holdfast.environment, "PYTHONPATH": str(source)}
    words = [sys.executable, "-c", CROWD, quick]
    return int(subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout)


def test_a_look_at_all_objects_comes_rarely_once_it_takes_long(holdfast: Command, tmp_path: Path) -> None:
    assert looks_at_all(holdfast, SOURCE, "0") == 0
    assert looks_at_all(holdfast, SOURCE, "inf") > 0
    usual = copied(tmp_path, "holdfast/cli/serving.py", "    _collect_by_cost()\n", "")
    assert looks_at_all(holdfast, usual, "0") > 0
