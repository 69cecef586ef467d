"""The short clients on the gateway's page, as they are there; and its lines for HAProxy, which `balancer` runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.kit import Command, until
from serve.balancer import PAGE
from serve.serving import address

from holdfast import Holdfast
from holdfast.embedded import Nodes

PIPES: dict[str, Any] = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
NAME = "light: \"it's\" $HOME & 1%"


def block(first: str) -> str:
    """The block of the page that begins like this."""
    return first + PAGE.read_text().partition(f"```text\n{first}")[2].partition("```")[0]


CLIENTS = {"sh": ("sh", block("#!/bin/sh"), 12), "python": (sys.executable, block("import json, os"), 15)}


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    program, text, most = CLIENTS[request.param]
    assert 5 < len(text.splitlines()) <= most
    (tmp_path / "client").write_text(text)
    return [program, str(tmp_path / "client")]


@pytest.fixture
def gateway(holdfast: Command) -> Iterator[dict[str, str]]:
    with holdfast.started("serve", "--bind", "127.0.0.1:0", "--max-lag", "1m", **PIPES) as process:
        yield {**os.environ, "HOLDFAST_GATEWAY": address(process), "PID": str(process.pid)}


@pytest.fixture
def locks(nodes: Nodes) -> Iterator[Holdfast]:
    with Holdfast(*nodes.urls) as locks:
        yield locks


def test_it_runs_a_command_for_longer_than_a_lease(client: list[str], gateway: dict[str, str], locks: Holdfast) -> None:
    before = locks.lock(NAME).acquire()
    with subprocess.Popen([*client, NAME, "sh", "-c", "sleep 12; echo done; exit 3"], env=gateway, text=True, **PIPES) as process:
        until(lambda: locks.inspect(NAME).queue)
        before.release()
        until(lambda: locks.inspect(NAME).note == "local")
        time.sleep(11)
        assert locks.inspect(NAME).note == "local"
        said, why = process.communicate(timeout=60)
    assert (process.returncode, said) == (3, "done\n"), why
    assert not locks.is_locked(NAME)


@pytest.mark.parametrize("how", ["forced", "frozen"])
def test_its_command_is_dead_before_another_works(
    client: list[str], gateway: dict[str, str], locks: Holdfast, tmp_path: Path, how: str
) -> None:
    script = f"while :; do date +%s.%N > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/last; sleep 0.02; done"
    with subprocess.Popen([*client, NAME, "sh", "-c", script], env=gateway, text=True, **PIPES) as process:
        until(lambda: (tmp_path / "last").exists())
        if how == "forced":
            locks.force_release(NAME, "a test")
        else:
            os.kill(int(gateway["PID"]), signal.SIGSTOP)
            with locks.lock(NAME, wait=30):
                last = (tmp_path / "last").read_text()
                time.sleep(0.5)
                assert (tmp_path / "last").read_text() == last
            os.kill(int(gateway["PID"]), signal.SIGCONT)
        process.communicate(timeout=60)
    assert process.returncode in (137, -9 % 256)
