"""Celery with real workers, a real broker and real kills: `./task guests celery`."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from integrations.stage import PROGRAMS, Stage, overlaps

from holdfast import ConfigError, Holdfast

pytestmark = pytest.mark.timeout(300)

QUICK = os.environ.get("HOLDFAST_GUESTS") == "quick"
VISIBLE_AFTER = 5.0  # seconds after which the broker delivers a message again


@pytest.fixture
def stage(stage_with_broker: Stage) -> Stage:
    return stage_with_broker


@pytest.fixture
def app(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The application as this process sees it: to send tasks."""
    for name, value in stage.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(PROGRAMS)
    sys.modules.pop("proj", None)
    import proj

    yield proj.app
    # Results speak to the broker when they are discarded, which must be while there is one.
    gc.collect()
    proj.app.close()
    sys.modules.pop("proj", None)


def worker(stage: Stage, *options: str, **environment: str) -> int:
    """Start a worker, and wait until it works. Returns its pid."""
    name = f"w{len(stage.processes)}"
    words = ["celery", "-A", "proj", "worker", "-n", name, "--loglevel", "INFO", "--without-gossip", "--without-mingle"]
    before = stage.logs().count(" ready.")
    process = stage.start(*words, *(options or ("--pool", "prefork", "-c", "2")), **environment)
    stage.until(lambda: stage.logs().count(" ready.") > before, f"the worker {name} works")
    return process.pid


def test_a_message_that_is_delivered_again_is_one_run(stage: Stage, app: Any) -> None:
    """The bare task beside it shows that messages are delivered again."""
    worker(stage, "--pool", "prefork", "-c", "8")
    seconds, others = (20, 2) if QUICK else (30, 3)
    results = [app.send_task(f"proj.{name}", [seconds]) for name in ("bare", "mailing")]
    stage.until(lambda: stage.entries("begin", "mailing"), "the task begins")
    for _ in range(others):
        time.sleep(VISIBLE_AFTER + 0.5)
        worker(stage, "--pool", "prefork", "-c", "8")
    kept = results[1].get(timeout=60)
    results[0].get(timeout=60)
    bare = len(stage.entries("begin", "bare"))
    print(f"a task of {seconds} s, delivered again after 5 s: {bare} runs without `once`")
    assert bare >= 1 + others
    assert len(stage.entries("begin", "mailing")) == 1
    # Copies that come back now find the result.
    time.sleep(2.5)
    assert len(stage.entries("begin", "mailing")) == 1
    assert results[1].get() == kept


def test_another_worker_takes_over_from_one_that_was_killed(stage: Stage, app: Any) -> None:
    for _ in range(2):
        worker(stage)
    result = app.send_task("proj.mailing", [3])
    stage.until(lambda: stage.entries("begin", "mailing"), "the task begins")
    first = stage.entries("begin", "mailing")[0].pid
    killed = next(it for it in stage.processes if os.getpgid(first) == it.pid)
    os.killpg(killed.pid, signal.SIGKILL)
    time.sleep(VISIBLE_AFTER + 0.5)
    worker(stage)
    assert result.get(timeout=60).startswith("mailing:")
    assert len(stage.entries("begin", "mailing")) == 2
    assert len(stage.entries("end", "mailing")) == 1


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent", "solo"])
def test_tasks_of_one_name_run_one_at_a_time_and_use_no_retries(stage: Stage, app: Any, pool: str) -> None:
    for _ in range(2):
        worker(stage, "--pool", pool, "-c", "4", VISIBLE_AFTER="3600")
    results = [app.send_task("proj.feed", [number % 5]) for number in range(60)]
    assert [it.get(timeout=60) for it in results] == [number % 5 for number in range(60)]
    assert overlaps(stage.entries()) == []
    assert len(stage.entries("enter")) == 60
    assert "MaxRetriesExceeded" not in stage.logs()


def test_a_busy_task_is_skipped_or_fails_if_you_say_so(stage: Stage, app: Any) -> None:
    worker(stage, "--pool", "threads", "-c", "4")
    for name in ("skipping", "raising"):
        first = app.send_task(f"proj.{name}", [2])
        stage.until(lambda name=name: stage.entries("begin", name), "the first task has the lock")
        second = app.send_task(f"proj.{name}", [2])
        if name == "skipping":
            assert second.get(timeout=20) is None
        else:
            error = second.get(timeout=20, propagate=False)
            assert "is held by" in str(error)
        assert first.get(timeout=20).startswith(name)
        assert len(stage.entries("begin", name)) == 1


def test_losing_the_lock_interrupts_a_task(stage: Stage, app: Any) -> None:
    worker(stage, "--pool", "prefork", "-c", "1")
    app.send_task("proj.aborted")
    stage.until(lambda: stage.entries("interrupted"), "the body is interrupted", 15)
    begun, ended = stage.entries("begun")[0].at, stage.entries("interrupted")[0].at
    assert 0.5 < ended - begun < 4
    stage.until(lambda: "LockLost" in stage.logs(), "the task fails with LockLost", 5)


def test_abort_is_refused_where_nothing_can_interrupt_a_task(stage: Stage, app: Any) -> None:
    worker(stage, "--pool", "threads", "-c", "1")
    app.send_task("proj.aborted")
    stage.until(lambda: "abort=True needs the prefork pool" in stage.logs(), "the task is refused", 15)
    assert not stage.entries("begun")


def test_a_result_that_is_forgotten_too_soon_is_refused(stage: Stage, app: Any) -> None:
    worker(stage, "--pool", "solo")
    error = app.send_task("proj.too_short").get(timeout=20, propagate=False)
    assert "keep=1 is too short" in str(error)
    assert "keep=10 or more" in str(error)
    assert not stage.entries("begin")


def test_a_countdown_that_the_broker_would_overtake_is_refused(app: Any) -> None:
    from holdfast.integrations import celery

    celery._check(app, 10, 2.4)
    with pytest.raises(ConfigError, match=r"countdown=2.5 is too long.*Set it below 2.5"):
        celery._check(app, 10, 2.5)
    app.conf.broker_url = "amqp://broker"
    celery._check(app, 1, 1000)


def test_a_task_that_is_called_like_a_function_has_no_message(stage: Stage, app: Any) -> None:
    import proj

    from holdfast.errors import LockBusy

    assert proj.mailing(0) == proj.mailing(0)
    assert len(stage.entries("begin", "mailing")) == 2
    with Holdfast(*os.environ["HOLDFAST_NODES"].split(","), ttl=2, max_ttl=4) as other, other.lock("feed:7"):
        assert proj.skipping(0).startswith("skipping")
        with pytest.raises(LockBusy):
            proj.feed(7)


@pytest.mark.parametrize(
    "words, told",
    [
        (lambda celery: celery.single("feed:{colour}")(lambda url: None), "'colour'"),
        (lambda celery: celery.single("feed:{url}", tll=3)(lambda url: None), "unknown lock option 'tll'"),
        (lambda celery: celery.single("feed", busy="maybe"), "busy is 'later', 'skip' or 'raise'"),
        (lambda celery: celery.once(keep=0)(lambda url: None), "keep is"),
        (lambda celery: celery.once("{colour}", keep=60)(lambda url: None), "'colour'"),
        (lambda celery: celery.once(keep=60, wait=3), "comes back after `countdown` seconds"),
    ],
)
def test_mistakes_are_found_where_they_are_written(words: Any, told: str) -> None:
    from holdfast.integrations import celery

    with pytest.raises(ConfigError, match=told):
        words(celery)


def test_an_application_without_setup_is_named() -> None:
    from celery import Celery

    from holdfast.integrations.celery import client_of

    with pytest.raises(ConfigError, match=r"'lonely' has no client: call setup\(app\)"):
        client_of(Celery("lonely"))


def test_beats_send_each_time_once_and_another_takes_over(stage: Stage, app: Any) -> None:
    """Three beats with a task each second. The one that leads is killed, again and again, and replaced by a new one."""
    worker(stage, "--pool", "solo", VISIBLE_AFTER="3600")
    scheduler, ttl = "holdfast.integrations.celery_beat:LeaderScheduler", 2
    beats: dict[Path, subprocess.Popen[bytes]] = {}

    def begin() -> None:
        log = stage.folder / f"log-{len(stage.processes)}"
        words = ["celery", "-A", "proj", "beat", "-S", scheduler, "-s", f"schedule-{len(beats)}", "--pidfile=", "-l", "INFO"]
        beats[log] = stage.start(*words, BEAT="1")

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
