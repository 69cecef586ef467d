"""A scheduler in each process, with the same jobs. Arguments: which executor, the number of this process, and options."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from apscheduler.events import (
    EVENT_JOB_ERROR,
    EVENT_JOB_EXECUTED,
    EVENT_SCHEDULER_PAUSED,
    EVENT_SCHEDULER_RESUMED,
)
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger
from record import note

from holdfast import Holdfast
from holdfast.aio import Holdfast as AsyncHoldfast
from holdfast.integrations.apscheduler import OnceAsyncIOExecutor, OnceProcessPoolExecutor, OnceThreadPoolExecutor

OPTIONS = {"ttl": 2, "max_ttl": 4}
BEGIN = datetime.fromtimestamp(float(os.environ["BEGIN"]), UTC)
TICKS = int(os.environ.get("TICKS", "10"))
EACH = float(os.environ.get("EACH", "0.3"))  # seconds
MISFIRES = 3  # times that have passed when the schedulers run jobs


def tick(number: int) -> str:
    note("tick", number)
    time.sleep(0.001)
    return f"done by {os.getpid()}"


async def atick(number: int) -> str:
    return tick(number)


def interval() -> None:
    note("interval")


def slow() -> None:
    note("enter", "slow")
    time.sleep(5)
    note("leave", "slow")


def failing(process: str) -> None:
    note("failing", process)
    if process != "2":
        raise ValueError("this process cannot do it")


def told(event: Any) -> None:
    if event.code == EVENT_JOB_ERROR:
        note("error", event.job_id, type(event.exception).__name__)
    else:
        note("executed", event.job_id, "elsewhere" if event.holdfast_elsewhere else "here", event.retval)


def add(scheduler: Any, function: Any, process: str) -> None:
    scheduler.add_listener(told, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
    common = {"misfire_grace_time": 30, "coalesce": False}
    if "INTERVAL" in os.environ:
        # Each process begins at another moment.
        scheduler.add_job(interval, "interval", seconds=1, id="interval", **common)
    elif "FAILING" in os.environ:
        scheduler.add_job(failing, "date", [process], run_date=BEGIN, id="failing", **common)
    elif "SLOW" in os.environ:
        scheduler.add_job(slow, "cron", second="*", id="slow", **common)
    elif "ANONYMOUS" in os.environ:
        scheduler.add_job(tick, "date", [0], run_date=BEGIN, **common)
        scheduler.add_job(tick, "interval", [1], seconds=1, jitter=1, id="jittery", **common)
        inner = OrTrigger([CronTrigger(second="*", jitter=1)])
        scheduler.add_job(tick, OrTrigger([CronTrigger(year=2000), inner]), [2], id="jittery-within", **common)
        inner = AndTrigger([IntervalTrigger(seconds=1)])
        scheduler.add_job(tick, OrTrigger([inner]), [3], id="interval-within", **common)
    elif "MISFIRES" in os.environ:
        common["coalesce"] = os.environ["MISFIRES"] == "coalesced"
        start = BEGIN.replace(microsecond=0)
        end = start + timedelta(seconds=MISFIRES - 1)
        scheduler.add_job(interval, "cron", second="*", start_date=start, end_date=end, id="misfires", **common)
    else:
        for number in range(TICKS):
            moment = BEGIN + timedelta(seconds=EACH * number)
            scheduler.add_job(function, "date", [number], run_date=moment, id=f"tick-{number}", **common)


def options(**more: Any) -> dict[str, Any]:
    """What all executors are made with."""
    return {"keep": 600, "leader": "LEADER" in os.environ, **more}


def began(scheduler: Any, function: Any, process: str) -> None:
    """Start a scheduler, with its jobs."""
    add(scheduler, function, process)
    scheduler.add_listener(lambda event: note("leads"), EVENT_SCHEDULER_RESUMED)
    scheduler.add_listener(lambda event: note("paused"), EVENT_SCHEDULER_PAUSED)
    scheduler.start(paused="MISFIRES" in os.environ)
    note("started", process)


def started(kind: str, process: str) -> Any:
    made = OnceProcessPoolExecutor if kind == "processes" else OnceThreadPoolExecutor
    workers = 2 if kind == "processes" else 20
    stores = {}
    if kind == "sqlalchemy":
        from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore

        stores = {"default": SQLAlchemyJobStore(f"sqlite:///jobs-{process}")}
    executor = made(Holdfast(**OPTIONS), **options(max_workers=workers))
    scheduler = BackgroundScheduler(executors={"default": executor}, jobstores=stores)
    began(scheduler, tick, process)
    return scheduler


def main() -> None:
    kind, process = sys.argv[1:]
    if kind == "asyncio":
        asyncio.run(amain(process))
        return
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    scheduler = started(kind, process)
    if "MISFIRES" in os.environ:
        # After all times.
        time.sleep(max(0.0, BEGIN.timestamp() + MISFIRES - time.time()))
        scheduler.resume()
    stop.wait(600)
    scheduler.shutdown()
    note("stopped", process)


async def amain(process: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    scheduler = AsyncIOScheduler(executors={"default": OnceAsyncIOExecutor(AsyncHoldfast(**OPTIONS), **options())})
    began(scheduler, atick, process)
    await stop.wait()
    scheduler.shutdown()
    note("stopped", process)


if __name__ == "__main__":
    main()
