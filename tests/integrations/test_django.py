"""Django with its own servers and a PostgreSQL: `./task guests django`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from fencing.databases import Database, postgresql
from integrations.stage import PROGRAMS, Stage, overlaps, staged

from holdfast import Holdfast
from holdfast.embedded import Nodes

pytestmark = pytest.mark.timeout(300)

TTL = 2.0
INCREMENTS = 100 if os.environ.get("HOLDFAST_GUESTS") == "quick" else 400
GUNICORN = ("gunicorn", "djsite:application", "-b", "127.0.0.1:{port}", "-w", "2", "--log-level", "warning")


@pytest.fixture(scope="module")
def database(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with postgresql() as found:
        found.run("CREATE TABLE counter (value integer)", "INSERT INTO counter VALUES (0)")
        with staged(tmp_path_factory.mktemp("migrated"), environment(nodes, found)) as stage:
            assert manage(stage, "migrate", "-v0").returncode == 0
        yield found


@pytest.fixture
def stage(nodes: Nodes, database: Database, tmp_path: Path) -> Iterator[Stage]:
    database.run("UPDATE counter SET value = 0")
    with staged(tmp_path, {**environment(nodes, database), "LOCK_PREFIX": f"{tmp_path.name}:"}) as stage:
        yield stage


def environment(nodes: Nodes, database: Database) -> dict[str, str]:
    return {
        "HOLDFAST_NODES": ",".join(nodes.urls),
        "HOLDFAST_FRESH": ",".join(nodes.run_ids),
        "POSTGRES": parse_qs(urlsplit(database.url).query)["host"][0],
    }


def manage(stage: Stage, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of `manage.py` to its end."""
    return subprocess.run(
        [sys.executable, str(PROGRAMS / "djsite.py"), *words],
        env={**stage.environment, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def serve(stage: Stage, *words: str) -> str:
    return stage.serve(*words, path="/value")


def storm(address: str, path: str) -> Counter[int]:
    with ThreadPoolExecutor(8) as pool, httpx.Client(timeout=60) as client:
        return Counter(pool.map(lambda _: client.get(f"{address}/{path}").status_code, range(INCREMENTS)))


def number(address: str) -> int:
    return int(httpx.get(f"{address}/value").text)


def other(stage: Stage) -> Holdfast:
    """A client that shares the names of the site."""
    nodes = stage.environment["HOLDFAST_NODES"].split(",")
    fresh = stage.environment["HOLDFAST_FRESH"].split(",")
    return Holdfast(*nodes, fresh=fresh, prefix=stage.environment["LOCK_PREFIX"], ttl=2, max_ttl=4)


@pytest.mark.parametrize("path, safe", [("inside", False), ("marked/1", True), ("atomic", True)])
def test_lost_updates(stage: Stage, path: str, safe: bool) -> None:
    """A lock inside the request's transaction is given back before the commit: updates are lost."""
    address = serve(stage, *GUNICORN, "-w", "4")
    assert storm(address, path) == {200: INCREMENTS}
    found = number(address)
    print(f"{path}: {found} of {INCREMENTS}")
    assert (found == INCREMENTS) is safe


def test_a_lost_lock_rolls_the_transaction_back(stage: Stage) -> None:
    address = serve(stage, *GUNICORN)
    answer = httpx.get(f"{address}/lost/1", timeout=30)
    assert (answer.status_code, answer.json()["type"]) == (503, "about:holdfast/lost")
    assert number(address) == 0


def test_statuses(stage: Stage) -> None:
    address = serve(stage, *GUNICORN)
    with other(stage) as locks, locks.lock("counter:1", wait=5):
        answer = httpx.get(f"{address}/busy/1")
        assert answer.status_code == 409
        assert 1 <= int(answer.headers["retry-after"]) <= TTL
        assert answer.headers["content-type"] == "application/problem+json"
    assert httpx.get(f"{address}/busy/1").status_code == 200
    inner = httpx.get(f"{address}/raises")
    assert (inner.status_code, inner.headers["retry-after"]) == (409, "7")
    assert httpx.get(f"{address}/wrong/1").status_code == 500
    assert "cannot be filled from the URL, which captures pk" in stage.logs()


@pytest.mark.parametrize(
    "words",
    [
        ("gunicorn", "djsite:application", "-b", "127.0.0.1:{port}", "-w", "2", "-k", "gthread", "--threads", "4"),
        ("gunicorn", "djsite:application", "-b", "127.0.0.1:{port}", "-w", "2", "--preload"),
        ("uvicorn", "djsite:asgi", "--port", "{port}", "--workers", "2"),
    ],
    ids=["gthread", "preload", "uvicorn"],
)
def test_servers_and_kinds_of_views(stage: Stage, words: tuple[str, ...]) -> None:
    """Sync and async views, under WSGI and under ASGI."""
    address = serve(stage, *words)
    paths = [f"{kind}/{it % 3}?seconds=0.01" for it in range(30) for kind in ("hold", "async")]
    with ThreadPoolExecutor(8) as pool, httpx.Client(timeout=60) as client:
        statuses = Counter(pool.map(lambda it: client.get(f"{address}/{it}").status_code, paths))
    assert statuses == {200: 60}
    assert len(stage.entries("enter")) == 60
    assert overlaps(stage.entries()) == []


def test_the_lock_of_a_killed_worker_is_free_within_its_ttl(stage: Stage) -> None:
    address = serve(stage, *GUNICORN)
    freed = stage.freed(
        lambda: httpx.get(f"{address}/hold/1?seconds=20", timeout=60),
        lambda: httpx.get(f"{address}/hold/1?seconds=0", timeout=60).status_code,
    )
    assert freed < TTL + 3


def test_the_reloader_leaves_no_lock_behind(stage: Stage) -> None:
    """`runserver` ends the process that holds the lock as Python ends, which closes the client."""
    program = stage.folder / "djsite.py"
    program.write_text((PROGRAMS / "djsite.py").read_text())
    # By itself, the lease would last for 40 seconds or more.
    stage.environment |= {"TTL": "60", "MAX_TTL": "60"}
    address = serve(stage, "djsite", "runserver", "127.0.0.1:{port}")
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(httpx.get, f"{address}/hold/1?seconds=100", timeout=120)
        stage.until(lambda: stage.entries("enter"), "the first request holds the lock")
        os.utime(program, (time.time() + 5, time.time() + 5))
        touched = time.monotonic()
        assert isinstance(held.exception(), httpx.TransportError)
        stage.until(lambda: _status(f"{address}/hold/1?seconds=0") == 200, "the next program holds it", 40)
    first, second = stage.entries("enter")
    assert first.pid != second.pid
    assert second.at - touched < 40


def _status(url: str) -> int:
    try:
        return httpx.get(url, timeout=60).status_code
    except httpx.TransportError:
        return 0


def test_a_command_runs_in_one_process_at_a_time(stage: Stage) -> None:
    with ThreadPoolExecutor(5) as pool:
        done = list(pool.map(lambda _: manage(stage, "locked", "--wait", "1m", "slow").returncode, range(5)))
    assert done == [0] * 5
    assert len(stage.entries("enter", "migrate")) == 5
    assert overlaps(stage.entries()) == []


def test_exit_codes_of_the_command(stage: Stage) -> None:
    with other(stage) as locks, locks.lock("manage:slow", wait=5):
        assert manage(stage, "locked", "--wait", "0.1", "slow").returncode == 75
        skipped = manage(stage, "locked", "--skip", "slow")
        assert (skipped.returncode, "manage:slow is busy" in skipped.stderr) == (0, True)
        assert manage(stage, "locked", "--name", "another", "slow").returncode == 0
    assert len(stage.entries("enter")) == 1
    away = manage(stage, "locked", "--wait", "0.5", "slow", HOLDFAST_NODES="redis://127.0.0.1:1")
    assert away.returncode == 69
    assert "could not acquire 'manage:slow'" in away.stderr
    wrong = manage(stage, "locked", "--wait", "soon", "slow")
    assert (wrong.returncode, "such as 90 or 10m, not 'soon'" in wrong.stderr) == (2, True)


def test_a_command_that_was_killed_is_replaced(stage: Stage) -> None:
    first = stage.start("djsite", "locked", "slow", MIGRATE_SECONDS="60")
    stage.until(lambda: stage.entries("enter"), "the first command runs")
    first.kill()
    first.wait()
    began = time.monotonic()
    assert manage(stage, "locked", "--wait", "30", "slow").returncode == 0
    # The second command has to start first, which takes long on a busy machine.
    assert stage.entries("enter")[-1].at - began < 30


@pytest.fixture
def unmigrated(stage: Stage, database: Database) -> Path:
    """A project with a migration that is not applied, and the file that lets it end."""
    database.run("DROP TABLE IF EXISTS moved", "DELETE FROM django_migrations WHERE app = 'djapp'")
    go = stage.folder / "go"
    stage.environment |= {"APPS": "djapp", "GO": str(go)}
    return go


def test_processes_that_migrate_at_once_apply_a_migration_once(stage: Stage, unmigrated: Path) -> None:
    migrating = [stage.start("djsite", "migrate", "-v0", "--lock-wait", "2m") for _ in range(5)]
    stage.until(lambda: stage.entries("enter"), "a process migrates")
    unmigrated.touch()
    assert [it.wait(timeout=60) for it in migrating] == [0] * 5, stage.logs()
    assert len(stage.entries("enter", "migration")) == 1


def test_without_the_lock_they_apply_it_at_the_same_time(stage: Stage, unmigrated: Path) -> None:
    migrating = [stage.start("djsite", "migrate", "-v0", UNLOCKED="1") for _ in range(2)]
    stage.until(lambda: len(stage.entries("enter")) == 2, "both processes migrate")
    unmigrated.touch()
    assert sorted(it.wait(timeout=60) for it in migrating) == [0, 1], stage.logs()
    assert "already exists" in stage.logs()


def test_a_migration_whose_process_was_killed_is_applied_by_the_next_one(stage: Stage, unmigrated: Path) -> None:
    """By way of `locked`, which takes the same lock as the command, once."""
    first = stage.start("djsite", "migrate", "-v0")
    stage.until(lambda: stage.entries("enter"), "the first process migrates")
    second = stage.start("djsite", "locked", "--wait", "2m", "migrate", "-v0")
    first.kill()
    first.wait()
    unmigrated.touch()
    assert second.wait(timeout=60) == 0, stage.logs()
    assert len(stage.entries("enter", "migration")) == 2
    assert len(stage.entries("leave", "migration")) == 1


def test_workers_of_parallel_tests_have_names_of_their_own(stage: Stage, unmigrated: Path) -> None:
    """And one set of servers, which are started for the run."""
    runner = "holdfast.integrations.django.testing.HoldfastRunner"
    unmigrated.touch()
    stage.environment["POSTGRES"] = ""
    tested = manage(stage, "test", "djapp", "--parallel", "2", RUNNER=runner, LOCAL="1", HOLDFAST_NODES="", HOLDFAST_FRESH="")
    assert tested.returncode == 0, tested.stderr
    seen = [it.words[1:] for it in stage.entries("test")]
    assert {it[1] for it in seen} == {f"{stage.environment['LOCK_PREFIX']}{number}:" for number in (1, 2)}
    assert len({it[0] for it in seen}) == 1
    # The servers of the run, which are not those of this test, are gone.
    assert not any(Path(it.removeprefix("unix://")).exists() for it in seen[0][0].split(","))


def test_with_djangos_runner_they_contend_for_the_same_names(stage: Stage, unmigrated: Path) -> None:
    unmigrated.touch()
    stage.environment |= {"POSTGRES": "", "PATIENCE": "2"}
    tested = manage(stage, "test", "djapp", "--parallel", "2")
    assert tested.returncode != 0
    assert "LockBusy" in tested.stderr


@pytest.mark.parametrize(
    "environment, told",
    [
        ({"HOLDFAST_NODES": ""}, "holdfast.E001"),
        ({"HOLDFAST_NODES": "redis://a,redis://a"}, "holdfast.E002"),
        ({"WITHOUT_MIDDLEWARE": "1"}, "djsite.marked has a lock that nobody takes"),
        ({"HOLDFAST_NODES": "redis://a,redis://b"}, "holdfast.W001"),
        ({"TTL": "11", "WITHOUT_MAX_TTL": "1"}, "holdfast.W002"),
    ],
)
def test_checks(stage: Stage, environment: dict[str, str], told: str) -> None:
    found = manage(stage, "check", **environment)
    assert told in found.stderr
    assert (found.returncode == 0) is told.startswith("holdfast.W")


def test_a_sound_project_has_nothing_to_complain_of_and_deployment_asks_the_nodes(stage: Stage) -> None:
    found = manage(stage, "check", "--tag", "holdfast", TTL="10", WITHOUT_MAX_TTL="1")
    assert (found.returncode, found.stderr) == (0, "")
    assert "holdfast.E004" not in manage(stage, "check", "--deploy", "--tag", "holdfast").stderr
    away = manage(stage, "check", "--deploy", "--tag", "holdfast", HOLDFAST_NODES="redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3")
    assert "holdfast.E004" in away.stderr


def test_without_the_middleware_a_locked_view_does_not_run(stage: Stage) -> None:
    stage.environment["WITHOUT_MIDDLEWARE"] = "1"
    address = serve(stage, *GUNICORN)
    assert httpx.get(f"{address}/marked/1").status_code == 500
    assert number(address) == 0
    assert "a locked view needs" in stage.logs()
