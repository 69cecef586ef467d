"""A job scheduler in four processes, of which one is killed with -9: each job is to run once.

The original stands in "Redis and Distributed Locks: A First Principles Approach".

Unsafe in the original: a lock around the job. A lock keeps two processes from running the job at
the same moment, and no more. Scheduler A fires at 12:00:00.0, has the lock, runs the job, releases;
B's timer fires at 12:00:00.1, has the lock, and runs the job again. A longer lock instead of a
release is no better: the job is lost if the process dies while it runs, and a clock that is a
minute late runs it again.

Instead: `locks.once(name, per=3600, keep=86400).at(time).run(job)`. Of all schedulers that ask for
the same hour one runs the job, and the others get its result, also those that ask late. A job that
raises has not run: the next scheduler tries. A scheduler that dies is replaced within its `ttl`. It
may have done its work before it died, so what a job writes can be fenced (`current().fence`).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from demo.stage import Stage, orders, play_a_part, say, wait_until

from holdfast import Holdfast

SCHEDULERS, HOURS = 4, 5
HOUR = 0.3  # seconds that an hour takes here
LATE = 0.05  # seconds by which the timer of each process fires after that of the one before
FATAL = 2  # the hour in which a process is killed
TTL = 1.0
MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def scheduler(way: str, number: str, name: str, folder: str) -> None:
    """One process. It fires every hour, and says what came of it."""

    def report(hour: int) -> str:
        if hour == FATAL:
            with suppress(FileNotFoundError):
                Path(folder, "sentence").unlink()
                os.kill(os.getpid(), signal.SIGKILL)  # The first process that begins the job of this hour ends here.
        time.sleep(LATE / 2)
        with Path(folder, "ledger").open("a") as file:
            file.write(f"{hour}\n")
        return f"report of {hour:02}:00 by process {number}"

    with Holdfast() as locks:
        locks.ready(wait=30)
        say("ready")
        begin = float(next(orders()))
        jobs = locks.once(name, per=3600, keep=86400, ttl=TTL)
        for hour in range(HOURS):
            wait_until(begin + hour * HOUR + int(number) * LATE)
            if way == "a lock":
                with locks.lock(f"{name}:{hour}", ttl=TTL):
                    say(report(hour))
            else:
                say(jobs.at(MIDNIGHT + timedelta(hours=hour)).run(report, hour))


def play(stage: Stage, way: str) -> tuple[Counter[str], list[list[str]]]:
    """Let the processes run. How often was the job of each hour run, and which results have those that live?"""
    name, folder = f"example:reports:{uuid4()}", stage.folder / way
    folder.mkdir()
    (folder / "sentence").touch()
    parts = [stage.start(scheduler, way, number, name, folder) for number in range(SCHEDULERS)]
    for it in parts:
        it.says()
    begin = time.time() + LATE
    for it in parts:
        it.tell(str(begin))
    results = [it.rest() for it in parts]
    return Counter((folder / "ledger").read_text().split()), [it for it in results if len(it) == HOURS]


def main() -> bool:
    with Stage() as stage:
        fatal = f"the first to begin that of {FATAL:02}:00 is killed with -9"
        print(f"{SCHEDULERS} processes have the same {HOURS} jobs; {fatal}")
        locked, alive = play(stage, "a lock")
        wrong = len(alive) == SCHEDULERS - 1 and locked.total() > HOURS
        print(f"a lock:    the jobs were run {locked.total()} times" + ": TOO OFTEN" * wrong)
        once, alive = play(stage, "holdfast")
        right = len(alive) == SCHEDULERS - 1 and all(it == alive[0] for it in alive)
        told = f"{len(alive)} processes live, and have {'the same' if right else 'OTHER'} results"
        print(f"holdfast:  the jobs were run {once.total()} times; {told}")
    return wrong and right and set(once.values()) == {1} and once.total() == HOURS


if __name__ == "__main__":
    play_a_part(scheduler)
    sys.exit(not main())
