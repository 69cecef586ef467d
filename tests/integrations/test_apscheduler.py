"""APScheduler in several processes, some of which are killed: `./task guests apscheduler`."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger
from integrations.stage import Stage, overlaps, staged
from nemesis.processes import until as met

import holdfast
from holdfast import ConfigError, Holdfast
from holdfast.aio import Holdfast as AsyncHoldfast
from holdfast.embedded import Nodes
from holdfast.errors import Cancelled
from holdfast.integrations import apscheduler
from holdfast.integrations.apscheduler import OnceAsyncIOExecutor, OnceThreadPoolExecutor

pytestmark = pytest.mark.timeout(200)

PROCESSES = 4
TICKS = 20 if os.environ.get("HOLDFAST_GUESTS") == "quick" else 50
EACH = 0.2


@pytest.fixture
def stage(nodes: Nodes, tmp_path: Path) -> Iterator[Stage]:
    environment = {
        "HOLDFAST_NODES": ",".join(nodes.urls),
        "HOLDFAST_PREFIX": f"{tmp_path.name}:",
        "TICKS": str(TICKS),
        "EACH": str(EACH),
    }
    with staged(tmp_path, environment) as stage:
        yield stage


def schedulers(stage: Stage, kind: str = "threads", in_: float = 3.0, **environment: str) -> float:
    """Start the processes, whose first time comes in some seconds. Returns it, by the monotonic clock.

    A process that starts later runs the times that it has missed.
    """
    begin = time.time() + in_
    for number in range(PROCESSES):
        stage.start("ticker", kind, str(number), BEGIN=str(begin), **environment)
    return time.monotonic() + begin - time.time()


def numbers(stage: Stage) -> Counter[int]:
    return Counter(int(it.words[1]) for it in stage.entries("tick"))


@pytest.mark.parametrize("kind", ["threads", "asyncio", "sqlalchemy"])
def test_each_time_is_run_once_by_all_processes_together(stage: Stage, kind: str) -> None:
    schedulers(stage, kind)
    stage.until(lambda: len(stage.entries("executed")) >= PROCESSES * TICKS, "all processes have all results", 60)
    assert numbers(stage) == dict.fromkeys(range(TICKS), 1)
    heard = Counter(it.words[2] for it in stage.entries("executed"))
    assert heard == {"here": TICKS, "elsewhere": (PROCESSES - 1) * TICKS}
    # All have the result of the one that ran.
    results = {(it.words[1], *it.words[3:]) for it in stage.entries("executed")}
    assert len(results) == TICKS


def test_jobs_run_in_processes_of_a_pool(stage: Stage) -> None:
    stage.environment["TICKS"] = "5"
    schedulers(stage, "processes")
    stage.until(lambda: len(stage.entries("executed")) >= PROCESSES * 5, "all processes have all results", 60)
    assert numbers(stage) == dict.fromkeys(range(5), 1)
    assert {it.pid for it in stage.entries("tick")}.isdisjoint(it.pid for it in stage.processes)


def test_times_are_run_although_processes_are_killed(stage: Stage) -> None:
    """A process that is killed may have begun a run, which another one repeats: no time is left out."""
    begin = schedulers(stage)
    for number in range(PROCESSES - 1):
        at = begin + EACH * TICKS * (number + 1) / PROCESSES
        time.sleep(max(0.0, at - time.monotonic()))
        stage.processes[number].kill()
    stage.until(lambda: len(numbers(stage)) == TICKS, "all times have been run", 60)
    time.sleep(1)
    assert sum(numbers(stage).values()) - TICKS <= PROCESSES - 1, "one for each process that was killed"


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_one_scheduler_leads_and_the_others_are_paused(stage: Stage, kind: str) -> None:
    """One that leads is stopped, the next one is killed, and the third one loses its term."""
    schedulers(stage, kind, LEADER="1")
    stage.until(lambda: len(stage.entries("executed")) >= 5, "times are run", 60)
    first = leaders(stage)
    assert len(first) == 1
    assert {it.pid for it in stage.entries("executed")} == first, "the others have seen nothing"
    stage.until(lambda: {it.pid for it in stage.entries("paused")} == {it.pid for it in stage.processes}, "all were paused")
    os.kill(*first, signal.SIGTERM)
    second = next_leader(stage, first, "one that is stopped")
    os.kill(second, signal.SIGKILL)
    third = next_leader(stage, {*first, second}, "one that is killed")
    urls = stage.environment["HOLDFAST_NODES"].split(",")
    with Holdfast(*urls, prefix=stage.environment["HOLDFAST_PREFIX"], max_ttl=4, ttl=2, node_timeout=1) as locks:
        terms = len(stage.entries("leads"))
        assert locks.force_release("apscheduler:default[election]", "it must pause")
        # Once when it began, and once more.
        stage.until(lambda: [it.pid for it in stage.entries("paused")].count(third) == 2, "it has paused", 30)
        stage.until(lambda: len(stage.entries("leads")) > terms, "another term has begun", 30)
    stage.until(lambda: len(numbers(stage)) == TICKS, "all times have been run", 60)
    assert sum(numbers(stage).values()) - TICKS <= 1, "what the one that was killed had begun"
    assert "this scheduler does not lead, and stands by" in stage.logs()


def leaders(stage: Stage) -> set[int]:
    return {it.pid for it in stage.entries("leads")}


def next_leader(stage: Stage, others: set[int], what: str) -> int:
    stage.until(lambda: leaders(stage) - others, f"another scheduler leads after {what}", 30)
    (found,) = leaders(stage) - others
    return found


@pytest.mark.parametrize("how, runs", [("coalesced", 1), ("each", 3)])
def test_times_that_were_missed_are_run_once(stage: Stage, how: str, runs: int) -> None:
    """All processes run jobs only when three times have passed, and APScheduler runs the last one of them, or all."""
    # All have to start before, which takes long on a busy machine.
    schedulers(stage, in_=12, MISFIRES=how)
    stage.until(lambda: len(stage.entries("executed")) >= PROCESSES * runs, "all processes have all results", 60)
    assert len(stage.entries("interval")) == runs


def test_an_interval_is_run_once_in_each_of_its_lengths(stage: Stage) -> None:
    schedulers(stage, INTERVAL="1")
    stage.until(lambda: len(stage.entries("executed")) >= 5 * PROCESSES, "some intervals have passed", 60)
    times = [it.at for it in stage.entries("interval")]
    assert len(times) <= (times[-1] - times[0]) + 2


@pytest.mark.parametrize("seconds, keep", [(10, 86_400.0), (100_000, 200_000.0)])
def test_that_an_interval_was_run_is_known_for_twice_its_length(seconds: int, keep: float) -> None:
    """Another process may come to it when it is nearly over."""
    job = SimpleNamespace(id="job", trigger=IntervalTrigger(seconds=seconds, timezone="UTC"))
    with Holdfast("redis://nobody") as locks:
        assert OnceThreadPoolExecutor(locks)._once(job, now()).keep == keep


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_job_does_not_overlap_itself_although_processes_come_and_are_killed(stage: Stage, kind: str) -> None:
    """A process that starts while another one runs an earlier time has not seen that."""
    for number in range(PROCESSES):
        stage.start("ticker", kind, str(number), BEGIN=str(time.time()), SLOW="1")
        stage.until(lambda number=number: len(stage.entries("enter")) > number, "it runs", 30)
    # Two of them have started while the job ran, and for longer than a time waits.
    stage.until(lambda: "instances run in all processes together" in stage.logs(), "a time is skipped", 30)
    for process in stage.processes[:2]:
        seen = len(stage.entries("leave"))
        stage.kill(process.pid)
        stage.until(lambda seen=seen: len(stage.entries("leave")) > seen, "it runs again", 30)
    assert overlaps(stage.entries(), stage.killed) == []


def test_another_process_tries_a_job_that_has_failed(stage: Stage) -> None:
    schedulers(stage, FAILING="1")
    stage.until(lambda: len(stage.entries("executed")) + len(stage.entries("error")) >= PROCESSES, "all have ended", 60)
    ran = [it.words[1] for it in stage.entries("failing")]
    assert ran[-1] == "2"
    assert len(ran) == len(set(ran)), "each process tried once"
    assert len(stage.entries("error")) == len(ran) - 1
    assert all(it.words[2] == "ValueError" for it in stage.entries("error"))


def test_jobs_that_other_processes_cannot_know_are_refused(stage: Stage) -> None:
    schedulers(stage, in_=4, ANONYMOUS="1")
    stage.until(lambda: "needs an id that is the same in every process" in stage.logs(), "it is refused", 30)
    for refused in ("'jittery' has jitter", "'jittery-within' has jitter", "'interval-within' has an interval inside OrTrigger"):
        stage.until(lambda refused=refused: refused in stage.logs(), "it is refused", 30)
    assert not stage.entries("tick")


@pytest.mark.parametrize("end", ["shutdown", "loop"])
def test_a_thread_of_an_event_loop_that_is_stopped_keeps_its_lease(nodes: Nodes, tmp_path: Path, end: str) -> None:
    """A scheduler is shut down while its job works in a thread, and also if the whole event loop ends then."""
    heard, began, go, fences = list[Any](), threading.Event(), threading.Event(), list[int]()

    def job() -> str:
        fences.append(holdfast.current().fence)
        began.set()
        go.wait(20)
        return "done"

    async def main() -> None:
        locks = AsyncHoldfast(*nodes.urls, prefix=f"{tmp_path.name}:", ttl=1)
        scheduler = AsyncIOScheduler(executors={"default": OnceAsyncIOExecutor(locks)}, timezone="UTC")
        scheduler.add_listener(heard.append, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
        scheduler.add_job(job, "date", run_date=moment, id="job")
        scheduler.start()
        await asyncio.to_thread(began.wait, 20)
        scheduler.shutdown()
        if end == "shutdown":
            while not heard:
                await asyncio.sleep(0.01)
            await locks.close()

    moment = now()
    with ExitStack() as stack:
        loop = threading.Thread(target=asyncio.run, args=(main(),))
        loop.start()
        assert began.wait(20)
        other = threads(stack, nodes, tmp_path.name)
        other.add_listener(heard.append, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
        other.add_job(job, "date", run_date=moment, id="job", misfire_grace_time=60)
        # Longer than the lease would last if nobody renewed it.
        time.sleep(2)
        assert len(fences) == 1, "the other scheduler waits"
        go.set()
        loop.join(20)
        met(lambda: len(heard) == 2, told="both have the result")
    assert [(it.retval, it.code) for it in heard] == [("done", EVENT_JOB_EXECUTED)] * 2
    assert sorted(it.holdfast_elsewhere for it in heard) == [False, True]
    assert len(fences) == 1


def test_a_scheduler_that_stops_does_not_wait_for_a_job_elsewhere(nodes: Nodes, tmp_path: Path) -> None:
    """It waits for its own jobs, and if the user ends waits by an event, for those elsewhere, too."""
    go, ran, heard, moment = threading.Event(), list[str](), list[Any](), now()

    def job(where: str) -> str:
        ran.append(where)
        go.wait(20)
        return where

    with ExitStack() as stack:
        stack.callback(go.set)
        runs, stops, patient = [threads(stack, nodes, tmp_path.name, **it) for it in ({}, {}, {"cancel": threading.Event()})]
        for scheduler, where in ((runs, "runs"), (stops, "stops"), (patient, "patient")):
            scheduler.add_listener(heard.append, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
            scheduler.add_job(job, "date", [where], run_date=moment, id="job", misfire_grace_time=60)
            met(lambda: ran, told="the first one runs it")
        # Two threads wait for the job of the first one.
        met(lambda: waiting(nodes, tmp_path.name) == 2, told="two wait")
        stops.shutdown()
        assert [type(it.exception) for it in heard] == [Cancelled]
        ends = threading.Thread(target=patient.shutdown)
        ends.start()
        met(lambda: waiting(nodes, tmp_path.name) == 1, told="one waits")
        assert ends.is_alive()
        go.set()
        ends.join(20)
        runs.shutdown()
    assert [it.retval for it in heard[1:]] == ["runs", "runs"]
    assert ran == ["runs"]


def waiting(nodes: Nodes, prefix: str) -> int:
    """How many callers wait for the one job that runs."""
    with Holdfast(*nodes.urls, prefix=f"{prefix}:") as locks:
        return sum(len(locks.inspect(it).queue) for it in locks.names())


def threads(stack: ExitStack, nodes: Nodes, prefix: str, **options: Any) -> Any:
    """A scheduler in this process, with a client of its own."""
    locks = stack.enter_context(Holdfast(*nodes.urls, prefix=f"{prefix}:"))
    scheduler = BackgroundScheduler(executors={"default": OnceThreadPoolExecutor(locks, **options)}, timezone="UTC")
    scheduler.start()
    stack.callback(lambda: scheduler.running and scheduler.shutdown())
    return scheduler


def rotate() -> str:
    return "rotated"


def bill() -> str:
    return "billed"


@pytest.mark.parametrize("place", ["scheduler", "store"])
def test_two_jobs_with_the_same_id_are_refused(nodes: Nodes, tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture) -> None:
    """Only one of the two functions would run, and the other one have its result."""
    with ExitStack() as stack:
        first = threads(stack, nodes, tmp_path.name)
        other = first if place == "store" else threads(stack, nodes, tmp_path.name)
        other.add_jobstore("memory", "other")
        # APScheduler counts the instances of both jobs together.
        common = {"id": "nightly", "run_date": now(), "misfire_grace_time": 60, "max_instances": 2}
        first.add_job(rotate, "date", **common)
        other.add_job(bill, "date", jobstore="other", **common)
        met(lambda: "the id 'nightly' is that of two jobs, " in caplog.text, told="it is refused")


@pytest.mark.parametrize("stops", [False, True])
def test_a_job_may_get_another_function_and_a_scheduler_that_has_stopped_keeps_no_id(nodes: Nodes, tmp_path: Path, stops: bool) -> None:
    heard = list[Any]()
    scheduler: Any = None
    with ExitStack() as stack:
        for count, function in enumerate((rotate, bill), 1):
            if stops or count == 1:
                stack.close()
                scheduler = threads(stack, nodes, tmp_path.name)
                scheduler.add_listener(heard.append, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
            scheduler.add_job(function, "date", run_date=now(), id="nightly", misfire_grace_time=60, replace_existing=not stops)
            met(lambda count=count: len(heard) == count, told="it has ended")
    assert [it.retval for it in heard] == ["rotated", "billed"]


def now() -> datetime:
    return datetime.now(UTC)


def test_a_job_that_would_run_without_its_lock_is_refused(nodes: Nodes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The scheduler has the function that is below `@locks.locked`."""
    ran = []

    def job() -> None:
        ran.append(1)

    with ExitStack() as stack:
        scheduler = threads(stack, nodes, tmp_path.name)
        Holdfast(*nodes.urls).locked("a")(job)
        scheduler.scheduled_job("date", run_date=now(), id="nightly", misfire_grace_time=60)(job)
        met(lambda: "the job 'nightly' (" in caplog.text, told="it is refused")
    assert "was registered without the decorator of holdfast that is above it" in caplog.text
    assert ran == []


def test_mistakes_are_found_where_they_are_written() -> None:
    made: Any = apscheduler.OnceThreadPoolExecutor
    with pytest.raises(ConfigError, match=r"OnceThreadPoolExecutor needs a client of holdfast\S*\.Holdfast"):
        made(AsyncHoldfast("redis://nowhere"))
    with pytest.raises(ConfigError, match="OnceAsyncIOExecutor needs a client"):
        apscheduler.OnceAsyncIOExecutor(Holdfast("redis://nowhere"))  # type: ignore[arg-type]  # (the mistake)
    with pytest.raises(ConfigError, match="keep"):
        made(Holdfast("redis://nowhere"), keep=0)
    with pytest.raises(ConfigError, match="an election's name has 612 bytes"):
        made(Holdfast("redis://nowhere"), leader="x" * 600)
