"""Celery's beats, real ones, some of which are killed: `./task guests celery`."""

from __future__ import annotations

import os
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from integrations.stage import Stage
from integrations.tasks import other, worker

pytestmark = pytest.mark.timeout(300)

QUICK = os.environ.get("HOLDFAST_GUESTS") == "quick"


@pytest.fixture
def stage(stage_with_broker: Stage) -> Stage:
    return stage_with_broker


SCHEDULER = "holdfast.integrations.celery_beat:LeaderScheduler"


def test_a_beat_inside_of_a_worker_leads_too(stage: Stage) -> None:
    """The worker starts the beat as a process of its own (`-B`)."""
    worker(stage, "--pool", "prefork", "-c", "2", "-B", "--scheduler", SCHEDULER, "-s", "schedule", BEAT="1", VISIBLE_AFTER="3600")
    stage.until(lambda: len(stage.entries("tick")) >= 3, "it sends what is due")
    with other(stage) as locks:
        assert locks.election("beat:proj").leader()


@pytest.mark.parametrize("where", ["file", "database"])
def test_beats_send_each_time_once_and_another_takes_over(stage: Stage, where: str) -> None:
    """Three beats with a task each second. The one that leads is killed, again and again, and replaced by a new one.

    Their schedule is in a file of each, or that of django-celery-beat, which the configuration names.
    """
    schedule = {"BEAT": "1"}
    if where == "database":
        schedule = {"SCHEDULER": "djbeat:DatabaseScheduler", "SCHEDULE": str(stage.folder / "schedule.sqlite3")}
        assert stage.start("djbeat", **schedule).wait(90) == 0, stage.logs()
    worker(stage, "--pool", "solo", VISIBLE_AFTER="3600")
    ttl = 2
    beats: dict[Path, subprocess.Popen[bytes]] = {}

    def begin() -> None:
        log = stage.folder / f"log-{len(stage.processes)}"
        words = ["celery", "-A", "proj", "beat", "-S", SCHEDULER, "--pidfile=", "--max-interval", "1", "-l", "INFO"]
        beats[log] = stage.start(*words, *(["-s", f"schedule-{len(beats)}"] if where == "file" else []), **schedule)

    def leading() -> list[subprocess.Popen[bytes]]:
        return [it for log, it in beats.items() if it.poll() is None and "this beat leads" in log.read_text()]

    for _ in range(3):
        begin()
    stage.until(lambda: len(stage.entries("tick")) >= 3, "a beat leads")
    kills, each = (2, 4) if QUICK else (6, 8)
    for _ in range(kills):
        seen = len(stage.entries("tick"))
        stage.until(leading, "a beat leads")
        leading()[0].kill()
        begin()
        stage.until(lambda seen=seen: len(stage.entries("tick")) >= seen + each, "another beat leads", 30)
    times = [it.at for it in stage.entries("tick")]
    gaps = [after - before for before, after in pairwise(times)]
    assert max(gaps) < ttl + 1 + 1 + 1.5, "the lease, a standby's pause, the interval, and a busy machine"
    # A double is sent within the same second of the nodes' clock.
    assert len(times) <= (times[-1] - times[0]) + 2
