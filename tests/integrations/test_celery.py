"""Celery with real workers, a real broker and real kills: `./task guests celery`."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from types import ModuleType
from typing import Any

import pytest
from celery import Celery, Task, chord, group, shared_task
from integrations.stage import Stage, overlaps
from integrations.tasks import Queue, other, worker
from kombu.exceptions import OperationalError

from holdfast import ConfigError, Holdfast, LockBusy, current
from holdfast.integrations import celery
from holdfast.integrations.celery import client_of, once, setup, single

pytestmark = pytest.mark.timeout(300)

QUICK = os.environ.get("HOLDFAST_GUESTS") == "quick"
VISIBLE_AFTER = 5.0  # seconds after which the broker delivers a message again


@pytest.fixture
def stage(stage_with_broker: Stage) -> Stage:
    return stage_with_broker


@pytest.fixture
def app(queue: Queue) -> Any:
    """The application as this process sees it: to send tasks."""
    return queue.program.app


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


@pytest.mark.parametrize("pool", ["prefork", "prefork --max-tasks-per-child 5", "threads", "gevent", "solo"])
def test_tasks_of_one_name_run_one_at_a_time_and_use_no_retries(stage: Stage, app: Any, pool: str) -> None:
    for _ in range(2):
        worker(stage, "--pool", *pool.split(), "-c", "4", VISIBLE_AFTER="3600")
    results = [app.send_task("proj.feed", [number % 5]) for number in range(60)]
    assert [it.get(timeout=60) for it in results] == [number % 5 for number in range(60)]
    assert overlaps(stage.entries()) == []
    assert len(stage.entries("enter")) == 60
    assert "MaxRetriesExceeded" not in stage.logs()


@pytest.mark.parametrize("limit", ["soft_time_limit", "time_limit"])
def test_the_lock_of_a_task_that_ran_for_too_long_is_free(stage: Stage, app: Any, limit: str) -> None:
    """The soft limit interrupts the task, and the hard one kills its process."""
    worker(stage, "--pool", "prefork", "-c", "2", VISIBLE_AFTER="3600")
    error = app.send_task("proj.limited", [60], **{limit: 1}).get(timeout=30, propagate=False)
    assert "TimeLimitExceeded" in repr(error)
    assert app.send_task("proj.limited", [0]).get(timeout=30).startswith("limited:")
    assert len(stage.entries("begin", "limited")) == 2


@pytest.mark.parametrize(
    "task, told, visible, waits",
    [
        ("feed", "could not acquire 'feed:1'", 3600, ["2"]),
        ("daily", "could not acquire 'celery:", 3600, ["2", "4"]),
        ("daily", "could not acquire 'celery:", VISIBLE_AFTER, ["2", "2.5"]),
    ],
)
def test_without_a_majority_a_task_is_retried(stage: Stage, app: Any, task: str, told: str, visible: float, waits: list[str]) -> None:
    """As often as `max_retries` says, and twice as long each time, but not for longer than half of the visibility timeout."""
    worker(stage, "--pool", "solo", HOLDFAST_NODES="redis://127.0.0.1:1", VISIBLE_AFTER=f"{visible:g}")
    error = app.send_task(f"proj.{task}", [1]).get(timeout=60, propagate=False)
    assert told in str(error)
    assert [it for it in ("2", "2.5", "4", "8") if re.search(rf"Retry in {it}(?:\.0)?s", stage.logs())] == waits
    assert not stage.entries("enter")
    assert not stage.entries("begin")


def test_an_outage_inside_of_a_task_is_its_own(stage: Stage, app: Any) -> None:
    """What it has done would be done again."""
    worker(stage, "--pool", "solo", VISIBLE_AFTER="3600")
    error = app.send_task("proj.charging", []).get(timeout=60, propagate=False)
    assert "could not acquire 'elsewhere'" in str(error)
    assert len(stage.entries("charged")) == 1


def test_abort_is_refused_where_nothing_can_interrupt_a_task(stage: Stage, app: Any) -> None:
    worker(stage, "--pool", "threads", "-c", "1")
    assert "this worker refuses some tasks: abort=True" in stage.logs(), "it says so when it starts"
    app.send_task("proj.aborted")
    stage.until(lambda: "abort=True needs the prefork pool" in stage.logs(), "the task is refused", 15)
    assert not stage.entries("begun")


MISTAKES = {
    "keep": ("@app.task\n@once(keep=1)\ndef wrong(): ...\n", r"the task 'wrong.wrong' cannot run: keep=1 is too short: .* keep=10 or more"),
    "countdown": ("@app.task\n@once(keep=60, countdown=3)\ndef wrong(): ...\n", "countdown=3 is too long"),
    "client": ("app = Celery('lonely')\n@app.task\n@single('a')\ndef wrong(): ...\n", r"has no client: call setup\(app\)"),
    "face": ("@app.task\n@single('a', on=AsyncHoldfast())\ndef wrong(): ...\n", "it needs a client for threads"),
    "nodes": ("del os.environ['HOLDFAST_NODES']\n", "no nodes: name them"),
    "setting": ("app.conf.holdfast_ttll = 1\n", "unknown setting 'holdfast_ttll'"),
    "order": (
        "def wrong(): ...\napp.task(wrong)\nwrong = Holdfast().locked('a')(wrong)\n",
        r"the task 'wrong.wrong' \(wrong\) was registered without the decorator of holdfast that is above it",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_worker_does_not_start_with_a_task_that_cannot_run(stage: Stage, mistake: str) -> None:
    """Nor with one that would run without its lock."""
    program, told = MISTAKES[mistake]
    head = "import os\nfrom celery import Celery\nfrom proj import *\nfrom holdfast.aio import Holdfast as AsyncHoldfast\n"
    (stage.folder / "wrong.py").write_text(head + program)
    path = os.pathsep.join([str(stage.folder), stage.environment["PYTHONPATH"]])
    worker = stage.start("celery", "-A", "wrong:app", "worker", "-c", "1", PYTHONPATH=path)
    assert worker.wait(timeout=60) == 1
    assert re.search(told, stage.logs()), stage.logs()
    assert " ready." not in stage.logs()


def test_a_countdown_that_the_broker_would_overtake_is_refused(app: Any) -> None:
    celery._check(app, 10, 2.4)
    with pytest.raises(ConfigError, match=r"countdown=2.5 is too long.*Set it below 2.5"):
        celery._check(app, 10, 2.5)
    app.conf.broker_url = "amqp://broker"
    celery._check(app, 1, 1000)
    for several in (["amqp://broker", "redis://broker"], "amqp://broker;redis://broker"):
        app.conf.broker_url = several
        with pytest.raises(ConfigError, match=r"keep=1 is too short"):
            celery._check(app, 1, 2)
    app.conf.broker_url, app.conf.broker_transport_options = "sqs://", {}
    with pytest.raises(ConfigError, match=r"after 1800 s"):
        celery._check(app, 3600, 900)


def test_settings_may_have_a_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Celery's guide for Django."""
    monkeypatch.delenv("HOLDFAST_NODES", raising=False)
    settings = ModuleType("settings_of_a_project")
    vars(settings).update(CELERY_HOLDFAST_NODES=["redis://a", "redis://b"], CELERY_HOLDFAST_PREFIX="shop:", HOLDFAST_WEB={})
    monkeypatch.setitem(sys.modules, settings.__name__, settings)
    app = Celery("named", set_as_current=False)
    app.config_from_object(settings.__name__, namespace="CELERY")
    setup(app)
    assert client_of(app).settings.prefix == "shop:"
    assert client_of(app).urls == ("redis://a:6379", "redis://b:6379")


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_task_has_the_client_of_its_own_application(stage: Stage, eagerly: bool) -> None:
    """Also in another thread than the main one, which has no current application."""
    with other(stage) as shop, other(stage, prefix="mail:") as mail:
        apps = [Celery(name, set_as_current=True) for name in ("shop", "mail")]
        for app, locks in zip(apps, (shop, mail), strict=True):
            setup(app, locks)

        @apps[0].task
        @single("feed:{number}")
        def task(number: int) -> str:
            return current().name

        call = (lambda: task.apply([1]).get()) if eagerly else (lambda: task(1))
        found = [call()]
        thread = threading.Thread(target=lambda: found.append(call()))
        thread.start()
        thread.join()
        assert found == ["feed:1", "feed:1"]
        assert [it.acquired for it in (shop.stats(), mail.stats())] == [2, 0]


def test_a_duplicate_in_a_group_or_chord_is_refused(stage: Stage, app: Any) -> None:
    """The group would wait for ever for the result of a message that is not sent."""
    import proj

    first = proj.unique.delay("a", 0)
    with pytest.raises(LockBusy, match=f"is held by the message {first.id}"):
        chord([proj.unique.s("b", 0), proj.unique.s("a", 0)])(proj.starting.si(3))
    with pytest.raises(LockBusy, match=f"is held by the message {first.id}"):
        group(proj.unique.s("c", 0), proj.unique.s("a", 0)).apply_async()
    assert proj.unique.delay("a", 0).id == first.id, "elsewhere it is the first one"


def test_a_reservation_ends_with_what_it_is_for(stage: Stage, app: Any) -> None:
    """One `ttl` after a worker was killed, if the message expires, and if the broker is down."""
    import proj

    with app.connection_for_write("redis://127.0.0.1:1") as down, pytest.raises(OperationalError):
        proj.unique.apply_async(["lost", 0], connection=down, retry=False)
    lost = proj.unique.delay("lost", 0)
    assert proj.unique.delay("lost", 0).id == lost.id
    expired = proj.unique.apply_async(["expired", 0], expires=0.1)
    time.sleep(0.2)
    worker(stage, VISIBLE_AFTER="3600")
    stage.until(lambda: proj.unique.delay("expired", 0).id != expired.id, "its name is free", 10)
    assert lost.get(timeout=20) == "lost", "it was sent"
    first = proj.unique.delay("killed", 60)
    stage.until(lambda: stage.entries("begin", "killed"), "it runs")
    time.sleep(3)
    assert proj.unique.delay("killed", 0).id == first.id, "renewed"
    stage.kill(stage.processes[0].pid)
    stage.until(lambda: proj.unique.delay("killed", 0).id != first.id, "its name is free", 2 + 3)


def test_a_reservation_may_end_with_the_start_or_after_some_time(stage: Stage, app: Any) -> None:
    import proj

    first = proj.starting.delay(3)
    with pytest.raises(LockBusy, match=f"is held by the message {first.id}"):
        proj.starting.delay(3)
    timed, sent = proj.timed.delay(True), time.monotonic()
    worker(stage, "--pool", "threads", "-c", "2", VISIBLE_AFTER="3600")
    stage.until(lambda: stage.entries("begin", "starting"), "it has started")
    assert proj.starting.delay(3).id != first.id
    assert isinstance(timed.get(timeout=20, propagate=False), ZeroDivisionError)
    kept = proj.kept.delay(True)
    assert isinstance(kept.get(timeout=20, propagate=False), ZeroDivisionError)
    failed = time.monotonic()
    for task, before, since in ((proj.timed, timed, sent), (proj.kept, kept, failed)):
        stage.until(lambda task=task, before=before: task.delay(True).id != before.id, "its time is over", 20)
        assert time.monotonic() - since > 3.5


def test_a_task_that_is_called_like_a_function_is_run_each_time(stage: Stage, app: Any) -> None:
    import proj

    assert proj.mailing(0) == proj.mailing(0)
    assert len(stage.entries("begin", "mailing")) == 2


def test_a_task_whose_decorator_is_hidden_does_not_run(stage: Stage, app: Any) -> None:
    """It would run without its lock: a decorator without functools.wraps is between."""
    worker(stage, "--pool", "solo")
    error = app.send_task("proj.hidden", [0]).get(timeout=20, propagate=False)
    assert "hidden is not what the task proj.hidden runs, whose message has the id" in str(error)
    assert not stage.entries("begin")


@pytest.mark.parametrize(
    "words, told",
    [
        (lambda celery: celery.single("feed:{colour}")(lambda url: None), "'colour'"),
        (lambda celery: celery.single("feed:{url}", tll=3)(lambda url: None), "unknown lock option 'tll'"),
        (lambda celery: celery.single("feed", busy="maybe"), "busy is 'later', 'skip' or 'raise'"),
        (lambda celery: celery.once(keep=0)(lambda url: None), "keep is"),
        (lambda celery: celery.once("{colour}", keep=60)(lambda url: None), "'colour'"),
        (lambda celery: celery.once(keep=60, wait=3), "comes back after `countdown` seconds"),
        (lambda celery: not_twice(celery, unique="feed:{colour}"), "'colour'"),
        (lambda celery: not_twice(celery, unique_until="later"), "unique_until is 'started' or 'finished', not 'later'"),
        (lambda celery: not_twice(celery, unique_until=0), "unique_until"),
        (lambda celery: not_twice(celery, unique_keep=-1), "unique_keep"),
        (lambda celery: not_twice(celery, unique_on_failure="lost"), "unique_on_failure is 'free' or 'keep'"),
        (lambda celery: not_twice(celery, unique_busy="skip"), "unique_busy is 'first' or 'raise'"),
    ],
)
def test_mistakes_are_found_where_they_are_written(words: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        words(celery)


def not_twice(celery: Any, **options: Any) -> None:
    def task(url: str) -> None: ...

    made = Celery("twice", set_as_current=False).task(task, base=celery.Unique, **options)
    assert made.name


@pytest.mark.parametrize("kind", ["task", "shared_task", "class", "wrapped"])
def test_a_decorator_above_the_task_is_refused(kind: str) -> None:
    """Workers would run the function below `@app.task`, without its lock."""

    def feed(url: str) -> str:
        return url

    def noting(task: Any) -> Any:
        def run(url: str) -> None: ...

        run.__wrapped__ = task  # type: ignore[attr-defined]  # (an attribute of a function)
        return run

    app = Celery("order")
    makes = {"task": app.task, "shared_task": shared_task, "class": lambda it: Task(), "wrapped": lambda it: noting(app.task(it))}
    task = makes[kind](feed)
    locks = Holdfast("redis://nowhere")
    for decorator in (single("feed:{url}"), once(keep=60), locks.locked("feed"), locks.once("feed", keep=60), locks.limited("feed", 1, 1)):
        with pytest.raises(ConfigError, match="below the one of celery"):
            decorator(task)
    assert not app.finalized, "the application may still be configured"


def test_b8_a_bound_task_is_not_in_the_name_of_its_lock() -> None:
    """Its text has the address of its application, so each worker would have a lock of its own."""
    app = Celery("bound", set_as_current=False)
    locks = Holdfast("redis://nowhere")

    @app.task(bind=True)
    @single("feed:{task}", on=locks)
    def load(task: Any, feed: str) -> None: ...

    with pytest.raises(ConfigError, match=r"\{task\} is <@task: .*load of bound at 0x.*, which another process would write differently"):
        load("a")
    with pytest.raises(ConfigError, match=r"\{0\} is self of .*again"):

        @app.task(bind=True)
        @single("feed:{0}", on=locks)
        def again(self: Any, feed: str) -> None: ...
