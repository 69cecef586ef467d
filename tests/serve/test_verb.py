"""`holdfast serve` as a process: how it starts, drains and dies."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli.kit import Command
from nemesis.processes import PIPES, until
from serve.serving import certified, served


def put(url: str, lease: str, name: str, **more: Any) -> httpx.Response:
    return httpx.put(f"{url}/v1/leases/{lease}", json={"names": [name], **more}, timeout=20)


def test_a_second_signal_ends_a_drain(holdfast: Command) -> None:
    with served(holdfast) as (url, process):
        put(url, "a-lease-of-the-second", "verb:second")
        process.send_signal(signal.SIGTERM)
        until(lambda: httpx.get(f"{url}/readyz").status_code == 503)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert "1 leases are left to run out" in process.stderr.read()


def test_tls_and_tokens(holdfast: Command, tmp_path: Path) -> None:
    words, context = certified(tmp_path)
    tokens = tmp_path / "tokens.toml"
    token = holdfast.run("serve", "--new-token", "importer", "--tokens", str(tokens)).stdout.strip()
    with served(holdfast, *words, "--tokens", str(tokens), at=("--bind", "0.0.0.0:0")) as (url, process):
        port = url.rpartition(":")[2]
        bearer = {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=f"https://localhost:{port}", verify=context) as client:
            assert client.get("/v1/nodes").status_code == 401
            assert client.get("/v1/nodes", headers=bearer).status_code == 200
            # The file is read again on SIGHUP. A wrong one changes nothing.
            tokens.write_text("[client.importer]")
            process.send_signal(signal.SIGHUP)
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
        (("--page-only", "--resp", "127.0.0.1:0"), 64, "anybody could lock"),
    ],
)
def test_what_it_refuses(holdfast: Command, words: tuple[str, ...], status: int, why: str) -> None:
    done = holdfast.run("serve", *words)
    assert (done.returncode, why in done.stderr) == (status, True), done.stderr


def test_insecure_is_said_at_each_start(holdfast: Command) -> None:
    with holdfast.started("serve", "--bind", "0.0.0.0:0", "--insecure", **PIPES) as process:
        assert "INSECURE" in process.stderr.readline()


def test_without_the_extra_it_says_which_one(holdfast: Command, tmp_path: Path) -> None:
    (tmp_path / "starlette.py").write_text("raise ImportError('not here', name='starlette')\n")
    path = {"PYTHONPATH": f"{tmp_path}:{holdfast.environment['PYTHONPATH']}"}
    done = holdfast.run("serve", env=path)
    assert (done.returncode, 'pip install "holdfast[serve]"' in done.stderr) == (78, True), done.stderr
    # Tokens can be made anywhere.
    assert holdfast.run("serve", "--new-token", "a", "--tokens", str(tmp_path / "tokens"), env=path).returncode == 0


def test_importing_the_library_loads_nothing_of_it() -> None:
    script = "import sys, holdfast, holdfast.aio, holdfast.cli; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split())
    assert not loaded & {"starlette", "uvicorn", "httpx", "pydantic", "prometheus_client", "holdfast.serve"}
