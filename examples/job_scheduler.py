"""A job scheduler: the same timetable in four processes, so that a dead one is not missed; each job is to run once.

Unsafe in the original: a lock around the job. A lock keeps two from running at the same moment, and no more. Scheduler A fires at
12:00:00.0, has the lock, runs the job, releases; B's timer fires at 12:00:00.1, has the lock, and runs the job again. A longer lock
instead of a release is no better: the job is lost with whoever dies while it runs, and a clock that is a minute late runs it again.

Instead: `locks.once(name, per=3600, keep=86400).at(time).run(job)`. Of all who ask for the same hour one runs the job, and the others get
its result; also those who ask late. A job that raises has not run: the next one tries. A runner that dies is replaced within its ttl, and
may have done its work: what a job writes can be fenced (`current().fence`).
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from holdfast import Holdfast

SCHEDULERS, HOURS = 4, 5
LATE = 0.05  # seconds by which the timer of each fires after that of the one before
Run = Callable[[Holdfast, datetime], object]


class Ledger:
    """What was done: which job, how often."""

    def __init__(self) -> None:
        self.done = Counter[datetime]()

    def report(self, hour: datetime) -> str:
        """The job."""
        self.done[hour] += 1
        time.sleep(LATE / 2)
        return f"report of {hour:%H:%M}"


def play(schedulers: list[Holdfast], run: Run) -> None:
    """Hour by hour, every scheduler fires for the same hour; each a little later than the one before."""

    def fires(number: int, hour: datetime) -> None:
        time.sleep(number * LATE)
        run(schedulers[number], hour)

    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    with ThreadPoolExecutor(SCHEDULERS) as timers:
        for hour in (midnight + timedelta(hours=it) for it in range(HOURS)):
            list(timers.map(lambda number, hour=hour: fires(number, hour), range(SCHEDULERS)))


def main() -> bool:
    with ExitStack() as stack:
        first = stack.enter_context(Holdfast() if "HOLDFAST_NODES" in os.environ else Holdfast.local())
        rest = [stack.enter_context(Holdfast(*first.urls, fresh=first.fresh)) for _ in range(SCHEDULERS - 1)]
        locked, once, reports = Ledger(), Ledger(), set[str]()

        def under_a_lock(locks: Holdfast, hour: datetime) -> None:
            with locks.lock(f"example:report:{hour:%H}"):
                locked.report(hour)

        name = f"example:reports:{uuid4()}"  # (each run of this example has a timetable of its own)

        def just_once(locks: Holdfast, hour: datetime) -> None:
            reports.add(locks.once(name, per=3600, keep=86400).at(hour).run(once.report, hour))

        play([first, *rest], under_a_lock)
        print(f"a lock:    {HOURS} jobs were due, {locked.done.total()} were run by {SCHEDULERS} schedulers")
        play([first, *rest], just_once)
        print(f"holdfast:  {HOURS} jobs were due, {once.done.total()} were run by {SCHEDULERS} schedulers, all have {len(reports)} results")
        return locked.done.total() > HOURS and set(once.done.values()) == {1} and len(reports) == once.done.total() == HOURS


if __name__ == "__main__":
    sys.exit(not main())
