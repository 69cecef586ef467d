"""The pytest fixtures, used by pytest in a process of its own, as users' tests use them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.embedded import Nodes
from holdfast.testing import at_end, ending
from holdfast.testing.plugin import Clients

pytestmark = pytest.mark.slow

CONFTEST = 'pytest_plugins = ["holdfast.testing.plugin"]\n'

TESTS = """
import asyncio, time
import pytest
from holdfast import Holdfast
import holdfast.aio

began = time.monotonic()
nodes = set()
kept = []

@pytest.mark.parametrize("turn", range(3))
def test_threads(locks, holdfast_client, holdfast_nodes, turn):
    nodes.add(holdfast_nodes.urls)
    assert locks.names() == []                      # nothing is left of the test before
    kept.append(locks.lock("x").acquire())          # held until the test's clients are closed
    assert holdfast_client().lock("x").try_acquire() is None
    assert Holdfast(*holdfast_nodes.urls, prefix=holdfast_client.prefix).lock("x").try_acquire() is None

def test_asyncio(alocks, locks, holdfast_client):
    async def main():
        async with alocks.lock("x"):
            assert await holdfast_client.aio(ttl=2).lock("x").try_acquire() is None
            assert await asyncio.to_thread(locks.lock("x").try_acquire) is None
    asyncio.run(main())

def test_a_loop_that_outlives_the_test(alocks, loop):
    async def main():
        kept.append(await alocks.lock("x").acquire())
    loop.run_until_complete(main())

def test_what_it_had_is_free(holdfast_client, loop):
    assert asyncio.all_tasks(loop) == set()

@pytest.fixture(scope="module")
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()

def test_harm(lock_cluster):
    lock_cluster.kill(0)
    with Holdfast(*lock_cluster.urls) as locks, locks.lock("x", wait=10) as lease:
        assert lease.votes <= 4

def test_quickly():
    assert len(nodes) == 1                          # for the session
    assert time.monotonic() - began < 25            # nobody has waited for a restart guard of 32 s
"""

OVERRIDDEN = """
import pytest
from holdfast.testing import memory

@pytest.fixture(scope="session")
def holdfast_nodes():
    with memory() as nodes:
        yield nodes
"""


ENDS = """
import os
import pytest
from holdfast.testing import at_end

@pytest.fixture(scope="session")
def made(once_per_run):
    return [once_per_run(key, lambda key=key: print(key, "is made") or key) for key in "abc"]

def undo(key):
    print(key, "is undone")
    if key in os.environ.get("RAISES", ""):
        raise OSError(f"{key} cannot be undone")

for key in "abc":
    at_end(key)(undo)
"""

THAT_STAY = """
import os
import pytest

class Servers:
    urls = tuple(os.environ["SERVERS"].split(","))

@pytest.fixture(scope="session")
def holdfast_nodes():
    return Servers()
"""


def ran(folder: Path, conftest: str, tests: str, **environment: str) -> str:
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_it.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings =\n    error\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-s", str(folder)]
    variables = {**os.environ, **environment}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=55).stdout


def test_the_fixtures_on_real_nodes(tmp_path: Path) -> None:
    told = ran(tmp_path, CONFTEST, TESTS)
    assert "8 passed" in told, told


def test_each_run_makes_its_own_on_servers_that_stay(tmp_path: Path, nodes: Nodes) -> None:
    conftest, tests = CONFTEST + THAT_STAY + ENDS, "def test_it(made):\n    assert made == ['a', 'b', 'c']\n"
    for _ in range(2):
        told = ran(tmp_path, conftest, tests, SERVERS=",".join(nodes.urls), **nodes.environment)
        assert "1 passed" in told, told
        assert told.count("is made") == told.count("is undone") == 3, told


@pytest.mark.parametrize("raises", ["a", "ab"])
def test_all_are_undone_although_one_raises(tmp_path: Path, raises: str) -> None:
    told = ran(tmp_path, CONFTEST + OVERRIDDEN + ENDS, "def test_it(made):\n    pass\n", RAISES=raises)
    assert "1 passed, 1 error" in told, told
    assert all(f"{it} is undone" in told for it in "abc"), told
    assert all(f"OSError: {it} cannot be undone" in told and f"at_end('{it}')" in told for it in raises), told
    assert ("functions of at_end failed" in told) == (raises == "ab"), told


def test_nothing_is_loaded_by_a_run_that_did_not_ask(tmp_path: Path) -> None:
    told = ran(tmp_path, "", "def test_it():\n    import sys\n    assert 'holdfast' not in sys.modules\n")
    assert "1 passed" in told, told


def test_each_test_has_a_prefix_of_its_own() -> None:
    one, two = Clients(("redis://a",)), Clients(("redis://a",))
    assert one.prefix != two.prefix
    assert one().settings.prefix == one.aio().settings.prefix == one.prefix
    assert one(prefix="mine:").settings.prefix == "mine:"
    with pytest.raises(ValueError, match="ttl"):
        one(ttl=0)


def test_a_key_has_one_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "ends", {})
    assert at_end("a")(len) is len
    with pytest.raises(ValueError, match="'a' already: len"):
        at_end("a")
