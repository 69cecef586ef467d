"""Django's commands as processes, with a PostgreSQL: `./task guests django`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fencing.databases import Database
from integrations.djmanage import manage
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
