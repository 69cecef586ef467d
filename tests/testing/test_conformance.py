"""The whole examination of servers, with its command line. (What is wrong with a server is in conformance/*.txt.)"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripts.kinds import program

from holdfast.embedded import Nodes
from holdfast.testing import MemoryNodes, memory
from holdfast.testing.conformance import __main__, examination, examine

pytestmark = pytest.mark.stories

FEW = 1500  # requests of a storm: each of its phases comes


@pytest.fixture(scope="module")
def node() -> Iterator[Nodes]:
    with Nodes(1) as nodes:
        yield nodes


@pytest.fixture
def simulated() -> Iterator[MemoryNodes]:
    with memory(1) as nodes:
        yield nodes


def server_of(nodes: MemoryNodes) -> Any:
    return nodes._house.nodes[0].server


@pytest.mark.parametrize("which", ["newest", "oldest"])
def test_a_real_server_can_be_a_node(which: str) -> None:
    with Nodes(1, server=program(which)) as nodes:
        found = examine(nodes.urls[0], requests=FEW)
        assert found.fit, found.table()
        assert found.product == nodes.version
        assert {it.verdict for it in found.checks} == {"ok", "left out"}, found.table()
        assert found.table().endswith("can be a node")


def test_it_leaves_nothing_that_does_not_expire(node: Nodes) -> None:
    examine(node.urls[0], requests=FEW, prefix="mine:")
    from redis import Redis

    with Redis.from_url(node.urls[0]) as client:
        # But for what says that the server is new.
        keys = [it for it in client.scan_iter() if it != b"{holdfast}:adopted"]
        assert {b"mine:" in it and client.pttl(it) != -1 for it in keys} == {True}, keys


def test_tracking_that_is_denied_is_no_fault(simulated: MemoryNodes) -> None:
    server_of(simulated).refuse[b"CLIENT"] = b"NOPERM this user has no permissions to run the 'client' command"
    found = examine(simulated.urls[0], requests=FEW)
    row = "tracking            not permitted  CLIENT TRACKING is denied: waiters notice other clients by a timer"
    assert row in found.table().splitlines()
    assert found.fit, found.table()


def test_a_restart_is_noticed() -> None:
    with Nodes(1) as nodes:
        found = examine(nodes.urls[0], requests=FEW, restart_command=lambda: nodes.restart(0))
        assert found.checks[-1] == examination.Check("restart", "ok", "noticed, data lost")


def test_a_restart_that_cannot_be_noticed_is_found(node: Nodes) -> None:
    """Planted: the command restarts nothing, so run id and uptime are the same."""
    found = examine(node.urls[0], requests=FEW, restart_command="true")
    assert "run id is the same" in found.checks[-1].detail
    found = examine(node.urls[0], requests=FEW, restart_command="echo no >&2; exit 4")
    assert found.checks[-1].detail == "the restart command ended with 4: no"


def test_nobody_listens() -> None:
    why = "cannot connect: [Errno 2] No such file or directory"
    verdict = "unix:///nowhere/at/all (unknown server): cannot be a node: greeting"
    assert examine("unix:///nowhere/at/all").table() == f"greeting  unfit          {why}\n{verdict}"


def test_the_command_line(node: Nodes, simulated: MemoryNodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--requests", "500"]
    # Twice the same server: what the first examination has left is still there.
    assert __main__.main([*node.urls, *node.urls, *few]) == 0
    assert __main__.main([*node.urls, *few, "--json", str(tmp_path / "found")]) == 0
    (said,) = json.loads((tmp_path / "found").read_text())
    assert (said["fit"], said["product"]) == (True, node.version)
    server_of(simulated).role = b"slave"
    assert __main__.main([*node.urls, *simulated.urls, *few]) == 2
    assert "can be a node" in (told := capsys.readouterr().out)
    assert "cannot be a node: greeting" in told
    for wrong in ([], ["ftp://x"], ["redis://a", "redis://b", "--restart", "true"]):
        with pytest.raises(SystemExit) as raised:
            __main__.main(wrong)
        assert raised.value.code == 2
