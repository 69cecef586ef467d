"""What somebody sees who types a verb before there are nodes, or whose nodes are all down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.kit import Command

from holdfast.cli.diagnosis import OK, WARNING, Check
from holdfast.cli.doctor import _rows
from holdfast.cli.options import VERBS

# What is typed, by the verb.
USES = {
    "run": ["x", "--", "true"],
    "hold": ["x"],
    "once": ["--keep", "1h", "x", "--", "true"],
    "elect": ["x", "--", "true"],
    "rate": ["-n", "x", "1/1s", "--", "true"],
    "ls": [],
    "inspect": ["x"],
    "top": [],
    "release": ["x", "--reason", "a test", "--any", "--yes"],
    "repair": [],
    "nodes": [],
    "doctor": [],
    "bench": ["--seconds", "1"],
    "serve": ["--bind", "127.0.0.1:0"],
}
# `check` is for commands that `run` has started: these know the nodes.
NEEDS_NONE = {"check", "local"}
# Verbs that wait for nodes, as a lock is waited for.
WAITS = {"run": ["-w", "0.2"], "hold": ["-w", "0.2"], "once": ["-w", "0.2"], "elect": ["-w", "0.2"]}
CONFIG, NO_QUORUM = 78, 69


def test_every_verb_is_here() -> None:
    assert set(USES) | NEEDS_NONE == set(VERBS)


@pytest.mark.parametrize("verb", USES)
def test_without_nodes_each_verb_says_how_to_name_them(tmp_path: Path, verb: str) -> None:
    done = Command(tmp_path, {}).run(verb, *USES[verb], stdin=-3)
    assert (done.returncode, done.stdout) == (CONFIG, ""), done.stderr
    assert done.stderr == (
        "holdfast: no nodes: name them, `--nodes 'redis://a redis://b redis://c'`, or set HOLDFAST_NODES. "
        "To try holdfast without servers: `holdfast local -- COMMAND`\n"
    )


@pytest.mark.parametrize("verb", [it for it in USES if it not in ("serve", "bench", "repair")])
def test_with_all_nodes_down_each_verb_says_so_once(tmp_path: Path, verb: str) -> None:
    # Nothing listens at the first ports.
    down = {"HOLDFAST_NODES": "redis://127.0.0.1:1 redis://127.0.0.1:2 redis://127.0.0.1:3"}
    done = Command(tmp_path, down).run(verb, *WAITS.get(verb, []), *USES[verb], stdin=-3)
    assert done.returncode == NO_QUORUM, done
    said = done.stdout + done.stderr
    assert "Connection refused" in said
    assert "fault of holdfast" not in said
    # One line of ours, and one for each node.
    assert all(it.startswith(("holdfast: ", "  redis://")) for it in done.stderr.splitlines()), done.stderr


def test_doctor_says_nothing_good_of_nodes_that_it_has_not_seen(tmp_path: Path) -> None:
    down = {"HOLDFAST_NODES": "redis://127.0.0.1:1 redis://127.0.0.1:2 redis://127.0.0.1:3"}
    told = json.loads(Command(tmp_path, down).run("doctor", "--json").stdout)
    assert told["verdict"] == "no quorum"
    assert [it["check"] for it in told["checks"] if it["level"] == OK] == []


def test_what_is_well_on_all_nodes_is_one_row() -> None:
    role = [Check(it, "role", OK, "primary") for it in "abc"]
    state = [Check("a", "state", OK, "up"), Check("b", "state", WARNING, "down"), Check("c", "state", OK, "up")]
    whole = Check("all", "number", OK, "three")
    assert _rows([*state, *role, whole], 3) == [
        ("a", "state", OK, "up"), ("b", "state", WARNING, "down"), ("c", "state", OK, "up"),
        ("all 3", "role", OK, "primary"), ("all", "number", OK, "three"),
    ]  # fmt: skip
    # Bad news are said of each node.
    bad = [Check(it, "role", WARNING, "a replica") for it in "abc"]
    assert [it[0] for it in _rows(bad, 3)] == ["a", "b", "c"]
    assert _rows(role[:1], 1) == [("a", "role", OK, "primary")]
