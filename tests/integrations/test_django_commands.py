"""Django's commands as processes, with a PostgreSQL: `./task guests django`."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fencing.databases import Database
from integrations.djmanage import manage, other
from integrations.stage import Stage, overlaps

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def stage(stage_with_database: Stage) -> Stage:
    return stage_with_database


def test_a_command_runs_in_one_process_at_a_time(stage: Stage) -> None:
    with ThreadPoolExecutor(5) as pool:
        done = list(pool.map(lambda _: manage(stage, "locked", "--wait", "1m", "slow").returncode, range(5)))
    assert done == [0] * 5
    assert len(stage.entries("enter", "migrate")) == 5
    assert overlaps(stage.entries()) == []


def test_exit_codes_of_the_command(stage: Stage) -> None:
    with other(stage) as locks, locks.lock("manage:slow", wait=5):
        assert manage(stage, "locked", "--wait", "1", "slow").returncode == 75
        skipped = manage(stage, "locked", "--skip", "slow")
        assert (skipped.returncode, "manage:slow is busy" in skipped.stderr) == (0, True)
        assert manage(stage, "locked", "--name", "another", "slow").returncode == 0
    assert len(stage.entries("enter")) == 1
    away = manage(stage, "locked", "--wait", "0.5", "slow", HOLDFAST_NODES="redis://127.0.0.1:1")
    assert away.returncode == 69
    assert "could not acquire 'manage:slow'" in away.stderr
    wrong = manage(stage, "locked", "--wait", "soon", "slow")
    assert (wrong.returncode, "'soon' is no duration. Write 30, 30s" in wrong.stderr) == (2, True)


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
    tested = manage(stage, "test", "djapp", "--parallel", "2", RUNNER=runner, LOCAL="1", HOLDFAST_NODES="")
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
        ({"WRONG": "1"}, "holdfast.E006"),
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
