"""`holdfast nodes adopt`: servers that are new are used at once, and only those."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli.kit import Command
from contract.cluster import ask, asks, unmark
from nemesis.processes import until

from holdfast import Holdfast, NoQuorum
from holdfast.embedded import Nodes

DAY = 86_400_000


@pytest.fixture
def three() -> Iterator[Nodes]:
    with Nodes(3) as nodes:
        unmark(nodes.urls)
        yield nodes


@pytest.fixture
def adopts(tmp_path: Path, three: Nodes) -> Command:
    return Command(tmp_path, {"HOLDFAST_NODES": " ".join(three.urls)})


def words(nodes: Nodes) -> list[str | None]:
    """What the nodes have been told."""
    return [None if (said := ask(it, "GET", "{holdfast}:adopted")) is None else str(said) for it in nodes.urls]


def run_ids(nodes: Nodes) -> list[str]:
    return [re.findall(r"^run_id:(\w+)", str(ask(it, "INFO", "server")), re.MULTILINE)[0] for it in nodes.urls]


def test_the_first_lock_on_new_servers_takes_less_than_a_second(adopts: Command, three: Nodes) -> None:
    done = adopts.run("nodes", "adopt")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:3] == [f"{url}: new, run {run}" for url, run in zip(three.urls, run_ids(three), strict=True)]
    assert words(three) == run_ids(three)
    assert all(0 < ask(it, "PTTL", "{holdfast}:adopted") <= DAY for it in three.urls)
    began = time.monotonic()
    with Holdfast(*three.urls) as locks, locks.lock("invoice:42", wait=5):
        assert time.monotonic() - began < 1
    again = adopts.run("nodes", "adopt", "--json")
    assert (again.returncode, [json.loads(line) for line in again.stdout.splitlines()]) == (
        0,
        [{"node": url, "run_id": run, "problem": None} for url, run in zip(three.urls, run_ids(three), strict=True)],
    ), "what was said stays true while the nodes are in use"


def test_a_node_that_restarted_is_not_new(adopts: Command, three: Nodes) -> None:
    assert adopts.run("nodes", "adopt").returncode == 0
    with Holdfast(*three.urls) as locks, locks.lock("invoice:42", wait=5):
        until(lambda: all(ask(it, "EXISTS", "invoice:42") for it in three.urls))
    three.restart(1)
    refused = adopts.run("nodes", "adopt")
    assert refused.returncode == 1 and refused.stdout.count(" keys, so it is in use, or kept them when it restarted") == 2
    assert words(three)[1] is None
    with Holdfast(*three.urls) as locks, locks.lock("invoice:42", wait=5):
        until(lambda: [it.state for it in locks.nodes()] == ["up", "guarded", "up"])


def promoted(nodes: Nodes) -> None:
    assert str(ask(nodes.urls[1], "REPLICAOF", "127.0.0.1", "1")) == "OK"
    assert str(ask(nodes.urls[1], "REPLICAOF", "NO", "ONE")) == "OK"


HARM: dict[str, tuple[Callable[[Nodes], object], str]] = {
    "a lock": (lambda nodes: ask(nodes.urls[1], "SET", "a", "b", "PX", 60_000), "node-1/socket: it has 1 keys, so it is in use"),
    "a key elsewhere": (lambda nodes: asks(nodes.urls[1], [("SELECT", 3), ("SET", "a", "b")]), "node-1/socket: it has 1 keys"),
    "dead": (lambda nodes: nodes.kill(1), "node-1/socket: down: "),
    "promoted": (promoted, "node-1/socket: it was a replica before: it may lack locks that its primary granted"),
    "may not look": (lambda nodes: ask(nodes.urls[1], "ACL", "SETUSER", "default", "-client|list"), "this user may not look: "),
}


@pytest.mark.parametrize("harm", HARM)
def test_nothing_is_marked_where_one_node_may_not_be_new(adopts: Command, three: Nodes, harm: str) -> None:
    does, why = HARM[harm]
    does(three)
    done = adopts.run("nodes", "adopt")
    assert done.returncode == 1
    told, last = done.stdout.splitlines()
    assert why in told and last == "not all nodes are new, so clients wait for the restart guard"
    if harm != "dead":
        assert words(three) == [None] * 3


def test_a_server_that_loaded_what_expired_since_is_not_new(tmp_path: Path) -> None:
    with Nodes(1) as nodes:
        unmark(nodes.urls)
        ask(nodes.urls[0], "SET", "a", "b", "PX", 300)
        assert str(ask(nodes.urls[0], "SAVE")) == "OK"
        until(lambda: ask(nodes.urls[0], "EXISTS", "a") == 0)
        nodes.restart(0)
        assert ask(nodes.urls[0], "DBSIZE") == 0
        adopts = Command(tmp_path, {"HOLDFAST_NODES": nodes.urls[0]})
        assert "it loaded 1 keys when it started, so it ran before" in adopts.run("nodes", "adopt").stdout


def test_nothing_is_marked_where_clients_are_connected(adopts: Command, three: Nodes) -> None:
    with Holdfast(*three.urls, owner="web:7") as locks:
        with pytest.raises(NoQuorum):
            locks.lock("a", wait=0.1).acquire()
        until(lambda: all(it.state == "guarded" for it in locks.nodes()))
        done = adopts.run("nodes", "adopt")
    assert done.returncode == 1 and done.stdout.count("web:7 may hold locks that it forgot: stop all clients first") == 3
    assert words(three) == [None] * 3
    assert adopts.run("nodes", "adopt").returncode == 0


def test_an_operator_is_told_why_nodes_are_not_used_for_how_long_and_how_to_end_that(adopts: Command, three: Nodes) -> None:
    why = r"guarded, \d+\.\d s left: it started \d+ s ago and may have forgotten locks "
    why += r"\(if no lock was ever held on these nodes: holdfast nodes adopt\)"
    for verb in ("nodes", "doctor"):
        told = adopts.run(verb)
        assert told.returncode == 69 and len(re.findall(why, told.stdout)) >= 3
        assert "\x1b" not in told.stdout, "no color in a pipe"
    new = "holdfast nodes adopt  # only if no lock was ever held on these nodes; else wait"
    assert told.stdout.count(f"{new}\n  see: docs/operations.md") == 3
    adopts.run("nodes", "adopt")
    with Holdfast(*three.urls) as locks, locks.lock("a", wait=5):
        three.restart(0)
        until(lambda: locks.nodes()[0].state == "guarded")
        assert "adopt" not in str(locks.nodes()[0].cause), "other nodes are in use"


def test_a_node_that_does_not_take_the_mark_is_named(adopts: Command, three: Nodes) -> None:
    ask(three.urls[1], "ACL", "SETUSER", "default", "-set")
    done = adopts.run("nodes", "adopt")
    assert done.returncode == 1 and "node-1/socket: " in done.stdout
