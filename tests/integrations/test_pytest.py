"""What is done once for all workers of pytest-xdist, by pytest in processes of their own: `./task guests pytest`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

PATIENCE = 150.0  # seconds for a run; on an idle machine it takes 5
CONFTEST = """
import os
import pytest
from holdfast.testing import at_end
pytest_plugins = ["holdfast.testing.plugin"]

def note(word):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{word} {os.getpid()}\\n")

def make():
    note("begun")
    if os.environ.get("DIE") and not os.path.exists(os.environ["DIE"]):
        open(os.environ["DIE"], "w").close()
        os._exit(9)
    note("made")
    return {"name": "test_shop"}

@pytest.fixture(scope="session")
def database(once_per_run):
    return once_per_run("database", make)

@at_end("database")
def drop(made):
    assert made == {"name": "test_shop"}
    note("dropped")

@at_end("never")
def never(made):
    note("never")
"""

TESTS = """
import os, time
import pytest

@pytest.mark.parametrize("number", range(12))
def test_it(database, holdfast_nodes, number):
    assert database == {"name": "test_shop"}
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{holdfast_nodes.urls[0]} {os.getpid()}\\n")
    if number == 3 and os.environ.get("CRASH"):
        os._exit(9)
    time.sleep(0.02)
"""

OVERRIDDEN = """
from holdfast.testing import memory

@pytest.fixture(scope="session")
def holdfast_nodes():
    with memory() as nodes:
        yield nodes
"""


def ran(folder: Path, conftest: str = CONFTEST, *words: str, **environment: str) -> tuple[str, Counter[str], set[str]]:
    """Run the tests. Returns what pytest printed, how often each word was noted, and who noted something."""
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_it.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings =\n    error\n")
    notes = folder / "notes"
    notes.touch()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", *words, str(folder)]
    variables = {**os.environ, **environment, "NOTES": str(notes)}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=PATIENCE)
    told = done.stdout + done.stderr
    assert "Traceback" not in done.stderr, told
    lines = [it.split() for it in notes.read_text().splitlines()]
    return told, Counter(word for word, _ in lines), {pid for _, pid in lines}


def test_it_is_made_and_undone_once_for_all_workers(tmp_path: Path) -> None:
    told, noted, pids = ran(tmp_path, CONFTEST, "-n", "4")
    assert "12 passed" in told, told
    assert (noted["made"], noted["dropped"], noted["never"]) == (1, 1, 0)
    # Four workers, and the controller, which dropped it.
    assert len(pids) == 5
    assert len([it for it in noted if it.startswith("unix")]) == 1, "all workers have the same nodes"


def test_it_is_undone_although_a_worker_was_killed(tmp_path: Path) -> None:
    told, noted, _ = ran(tmp_path, CONFTEST, "-n", "2", CRASH="1")
    assert "crashed while running" in told, told
    assert (noted["made"], noted["dropped"]) == (1, 1)


def test_another_worker_makes_it_if_the_first_was_killed(tmp_path: Path) -> None:
    told, noted, _ = ran(tmp_path, CONFTEST, "-n", "2", DIE=str(tmp_path / "died"))
    assert "crashed while running" in told, told
    assert (noted["begun"], noted["made"], noted["dropped"]) == (2, 1, 1)


def test_without_workers_it_is_the_same(tmp_path: Path) -> None:
    told, noted, pids = ran(tmp_path)
    assert "12 passed" in told, told
    assert (noted["made"], noted["dropped"], len(pids)) == (1, 1, 1)


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_workers_without_common_nodes_are_refused(tmp_path: Path, workers: tuple[str, ...]) -> None:
    told, noted, _ = ran(tmp_path, CONFTEST + OVERRIDDEN, *workers)
    if workers:
        assert "once_per_run needs nodes that all workers share" in told
        assert noted["made"] == 0
    else:
        assert "12 passed" in told, told
        assert (noted["made"], noted["dropped"]) == (1, 1)
