"""A job scheduler: the same timetable in four processes, of which one is killed with -9 in the middle of a job. Each job is to run once.

Unsafe in the original: a lock around the job. A lock keeps two processes from running the job at the same moment, and no more. Scheduler A
fires at 12:00:00.0, has the lock, runs the job, releases; B's timer fires at 12:00:00.1, has the lock, and runs the job again. A longer
lock instead of a release is no better: the job is lost if the process dies while it runs, and a clock that is a minute late runs it again.

Instead: `locks.once(name, per=3600, keep=86400).at(time).run(job)`. Of all schedulers that ask for the same hour one runs the job, and the
others get its result, also those that ask late. A job that raises has not run: the next scheduler tries. A scheduler that dies is
replaced within its `ttl`. It may have done its work before it died, so what a job writes can be fenced (`current().fence`).
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from demo.stage import Stage, orders, play_a_part, say, wait_until

from holdfast import Holdfast

SCHEDULERS, HOURS = 4, 5
HOUR = 0.3  # seconds that an hour takes here
LATE = 0.05  # seconds by which the timer of each process fires after that of the one before
FATAL = 2  # the hour in which the first process is killed
TTL = 1.0
MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def scheduler(way: str, number: str, name: str, ledger: str, begin: str) -> None:
    """One process. At every hour it runs the report of that hour, unless it finds that it was run."""

    def report(hour: int) -> str:
        say(f"begins {hour}")
        if number == "0" and hour == FATAL:
            next(orders())  # (never comes: this process is killed here)
        time.sleep(LATE / 2)
        with Path(ledger).open("a") as file:
            file.write(f"{hour}\n")
        return f"report of {hour:02}:00 by process {number}"

    with Holdfast() as locks:
        locks.ready(wait=30)
        jobs = locks.once(name, per=3600, keep=86400, ttl=TTL)
        for hour in range(HOURS):
            wait_until(float(begin) + hour * HOUR + int(number) * LATE)
            if way == "a lock":
                with locks.lock(f"{name}:{hour}", ttl=TTL):
                    say(report(hour))
            else:
                say(jobs.at(MIDNIGHT + timedelta(hours=hour)).run(report, hour))


def play(stage: Stage, way: str) -> tuple[Counter[str], set[tuple[str, ...]]]:
    """Let the processes run. How often was the job of each hour run, and which results have those that live?"""
    name, ledger = f"example:reports:{uuid4()}", stage.folder / f"{way}.txt"
    begin = time.time() + 1
    first, *others = [stage.start(scheduler, way, number, name, ledger, begin) for number in range(SCHEDULERS)]
    while first.says() != f"begins {FATAL}":
        pass
    first.kill()
    results = {tuple(line for line in it.rest() if line.startswith("report")) for it in others}
    return Counter(ledger.read_text().split()), results


def main() -> bool:
    with Stage() as stage:
        print(f"{HOURS} jobs are due; {SCHEDULERS} processes have the timetable; one is killed with -9 while it runs the job of {FATAL:02}:00")
        locked, _ = play(stage, "a lock")
        print(f"a lock:    the jobs were run {locked.total()} times: TOO OFTEN" if locked.total() > HOURS else "a lock:    as often as due")
        once, results = play(stage, "holdfast")
        [same] = results if len(results) == 1 else [()]
        print(f"holdfast:  the jobs were run {once.total()} times, and the {SCHEDULERS - 1} processes that live have the same {len(same)} results")
    return locked.total() > HOURS and set(once.values()) == {1} and len(same) == once.total() == HOURS


if __name__ == "__main__":
    play_a_part(scheduler)
    sys.exit(not main())
