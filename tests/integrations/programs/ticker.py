"""A scheduler in each process, with the same jobs. Arguments: which executor, the number of this process, and options."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler
from record import note

from holdfast import Holdfast
from holdfast.aio import Holdfast as AsyncHoldfast
from holdfast.integrations.apscheduler import OnceAsyncIOExecutor, OnceProcessPoolExecutor, OnceThreadPoolExecutor

OPTIONS = {"ttl": 2, "max_ttl": 4}
BEGIN = datetime.fromtimestamp(float(os.environ["BEGIN"]), UTC)
TICKS = int(os.environ.get("TICKS", "10"))
EACH = float(os.environ.get("EACH", "0.3"))  # seconds


def tick(number: int) -> str:
    note("tick", number)
    time.sleep(0.001)
    return f"done by {os.getpid()}"


async def atick(number: int) -> str:
    return tick(number)


def interval() -> None:
    note("interval")


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
        scheduler.add_job(interval, "interval", seconds=2, id="interval", **common)
    elif "FAILING" in os.environ:
        scheduler.add_job(failing, "date", [process], run_date=BEGIN, id="failing", **common)
    elif "ANONYMOUS" in os.environ:
        scheduler.add_job(tick, "date", [0], run_date=BEGIN, **common)
        scheduler.add_job(tick, "interval", [1], seconds=1, jitter=1, id="jittery", **common)
    else:
        for number in range(TICKS):
            moment = BEGIN + timedelta(seconds=EACH * number)
            scheduler.add_job(function, "date", [number], run_date=moment, id=f"tick-{number}", **common)


def main() -> None:
    kind, process = sys.argv[1:]
    if kind == "asyncio":
        asyncio.run(amain(process))
        return
    made = OnceProcessPoolExecutor if kind == "processes" else OnceThreadPoolExecutor
    workers = 2 if kind == "processes" else 20
    stores = {}
    if kind == "sqlalchemy":
        from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore

        stores = {"default": SQLAlchemyJobStore(f"sqlite:///jobs-{process}")}
    executor = made(Holdfast(**OPTIONS), keep=600, max_workers=workers)
    scheduler = BackgroundScheduler(executors={"default": executor}, jobstores=stores)
    add(scheduler, tick, process)
    scheduler.start()
    note("started", process)
    time.sleep(600)


async def amain(process: str) -> None:
    scheduler = AsyncIOScheduler(executors={"default": OnceAsyncIOExecutor(AsyncHoldfast(**OPTIONS), keep=600)})
    add(scheduler, atick, process)
    scheduler.start()
    note("started", process)
    await asyncio.sleep(600)


if __name__ == "__main__":
    main()
