"""The examples keep their promises, notice when these are broken, and are all listed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nemesis.processes import until

import holdfast
from holdfast.cli.tree import members
from holdfast.embedded import Nodes

FOLDER = Path(__file__).parents[2] / "examples"
FILES = sorted(it for it in FOLDER.glob("*.py") if not it.name.startswith("_"))
# All but the walkthrough, which tells much more, and the crowd, which is to be looked at. Both have tests of their own.
SHORT = [it for it in FILES if it.stem not in ("walkthrough", "crowd")]
PATIENCE = 120.0  # seconds; none takes ten on an idle machine

pytestmark = [pytest.mark.stories, pytest.mark.timeout(PATIENCE + 30)]


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-W", "error", *map(str, command)]
    uses = given() | environment
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE, env=uses)


def given() -> dict[str, str]:
    """This process's environment, without what it says of nodes."""
    kept = (it for it in os.environ.items() if not it[0].startswith("HOLDFAST_") or it[0] == "HOLDFAST_SERVER")
    return dict(kept)


@pytest.mark.parametrize("file", SHORT, ids=lambda it: it.stem)
def test_the_promise_holds(file: Path, nodes: Nodes) -> None:
    """On the nodes that the environment names, where the example does no harm to them."""
    uses = {"HOLDFAST_NODES": " ".join(nodes.urls)}
    does_no_harm = "HOLDFAST_NODES" in file.read_text() or "with Stage()" in file.read_text()
    ended = run(file, **(uses if does_no_harm else {}))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "holdfast" in ended.stdout or "fail_open" in ended.stdout
    assert 2 <= len(ended.stdout.splitlines()) <= 12, "a few lines"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this looks for processes as Linux shows them")
@pytest.mark.parametrize("name, says", [("fastapi_service_aio", "requests at once"), ("leader_election", "holdfast:  ")])
def test_an_example_that_is_killed_leaves_no_process_behind(name: str, says: str) -> None:
    with subprocess.Popen(
        [sys.executable, FOLDER / f"{name}.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=given() | {"PYTHONUNBUFFERED": "1"},
        text=True,
        start_new_session=True,
    ) as example:
        assert any(says in line for line in example.stdout)
        assert len(members(example.pid)) > 2, "it has started processes"
        example.kill()
    until(lambda: not members(example.pid), 60)


def test_the_task_lists_all_examples_and_runs_the_one_that_is_named() -> None:
    listed = run(str(FOLDER))
    assert listed.returncode == 0
    assert re.findall(r"/task demo (\w+) ", listed.stdout) == [it.stem for it in FILES]
    unknown = run(str(FOLDER), "no_such")
    assert (unknown.returncode, unknown.stdout) == (64, "")
    assert unknown.stderr.startswith("there is no example 'no_such'. There are: cached_operation, ")
    one = run(str(FOLDER), "redis_lock_class")
    assert one.returncode == 0, one.stderr
    assert one.stdout == run(str(FOLDER / "redis_lock_class.py")).stdout


def test_all_examples_are_listed() -> None:
    page = (FOLDER / "README.md").read_text()
    linked = re.findall(r"\]\(([^)#]*)\)", page)
    assert [it for it in linked if not (FOLDER / it).exists()] == []
    assert {it.name for it in FILES} <= set(linked)
    assert {f"{it.parent.name}/{it.name}" for it in FOLDER.glob("*/run.py")} <= set(linked)


def test_the_crowd_works_on_the_nodes_that_it_is_given() -> None:
    with Nodes(3) as nodes:
        command = [sys.executable, str(FOLDER / "crowd.py"), "--held", "5", "--changes", "50", "--seconds", "3"]
        seen = set()
        with subprocess.Popen(command, env={**os.environ, **nodes.environment}) as crowd:
            with holdfast.Holdfast(*nodes.urls) as locks:
                while crowd.poll() is None:
                    seen |= {it.partition(":")[0] for it in locks.names()}
                    time.sleep(0.1)
        assert crowd.returncode == 0
        assert seen >= {"deploy", "catalog", "poller[election]", "shard", "invoice", "gpu[slot 0]"}
