"""What a command says while it waits and no majority of the nodes can be used."""

from __future__ import annotations

import re
from pathlib import Path

from cli.kit import Command
from contract.cluster import unmark

from holdfast import NodeStatus
from holdfast.cli.waiting import shortage
from holdfast.embedded import Nodes


def test_why_no_majority_can_be_used() -> None:
    up = NodeStatus("redis://a:1", "up", None, "", "", None)
    connecting = up._replace(node="redis://d:1", state="connecting")
    down = up._replace(node="redis://b:1", state="down", cause=OSError("refused"))
    guarded = up._replace(node="redis://c:1", state="guarded", guard_left=18.2)
    assert shortage([up, down, connecting]) == "1 of 3 nodes can be used, redis://b:1: refused"
    told = "1 of 3 nodes can be used, 2 restarted or were promoted a short while ago and can be used again in 20 s"
    assert ", 1 restarted or was promoted a short while ago" in shortage([up, guarded])
    assert shortage([up, guarded, guarded._replace(guard_left=20.0)]) == told


def test_it_waits_for_servers_that_have_just_started_and_says_so(tmp_path: Path) -> None:
    with Nodes(3) as nodes:
        unmark(nodes.urls)
        done = Command(tmp_path, nodes.environment).run("run", "-w", "6s", "x", "true")
    assert done.returncode in (69, 75)
    told = r"3 restarted or were promoted a short while ago and can be used again in 2\d(\.\d)? s\n"
    assert re.search(f"waiting 5 s for 'x': 0 of 3 nodes can be used, {told}", done.stderr), done.stderr
