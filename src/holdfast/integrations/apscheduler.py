"""APScheduler 3: executors that run each scheduled time of a job once, although every process has a
scheduler.

Knows APScheduler's executors and triggers, and both clients. Jobs do not know for which time they
run, so only an executor can tell the runs of different processes apart.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from typing import Any, NamedTuple, Unpack

from apscheduler.executors.asyncio import AsyncIOExecutor
from apscheduler.executors.pool import ProcessPoolExecutor, ThreadPoolExecutor
from apscheduler.triggers.interval import IntervalTrigger

from .. import Holdfast, OnceOptions
from ..aio import Holdfast as AsyncHoldfast
from ..errors import ConfigError

__all__ = ["OnceAsyncIOExecutor", "OnceProcessPoolExecutor", "OnceThreadPoolExecutor"]

KEEP = 86400.0  # seconds for which it is known that a time was run
# What APScheduler calls a job that has no id of its own. Each process calls it differently.
_RANDOM = re.compile(r"[0-9a-f]{32}")


class _Once:
    """What the executors share: what is done once for a job and a time."""

    # What stands for a job.
    _run: type[_Run]

    def _prepare(self, kind: type[Any], locks: Any, keep: float, options: Any) -> None:
        if not isinstance(locks, kind):
            raise ConfigError(f"{type(self).__name__} needs a client of {kind.__module__}.{kind.__name__}")
        locks.once("any", keep=keep, **options)
        self._locks, self._keep, self._options = locks, keep, options

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:
        _check(job)
        run = self._run(job, self._once, self._call)
        super()._do_submit_job(run, run.told(run_times))  # type: ignore[misc]  # (a mixin)

    def _run_job_success(self, identity: str, events: list[Any]) -> None:
        for event in events:
            if isinstance(event.retval, _Result):
                event.holdfast_elsewhere = not event.retval.here
                event.retval = event.retval.value
        super()._run_job_success(identity, events)  # type: ignore[misc]  # (a mixin)

    def _once(self, job: Any, time: datetime) -> Any:
        if isinstance(job.trigger, IntervalTrigger):
            # Each process begins its intervals at another moment, so an interval is what is done once.
            length = job.trigger.interval_length
            keep = max(self._keep, 2 * length)
            return self._locks.once(f"job:{job.id}", keep=keep, per=length, **self._options).at(time)
        name = f"job:{job.id}@{time.astimezone(UTC).isoformat()}"
        return self._locks.once(name, keep=self._keep, **self._options)

    def _call(self, job: Any) -> Any:
        return job.func(*job.args, **job.kwargs)


class _Result(NamedTuple):
    """What a run returned, and whether it ran in this process."""

    value: Any
    here: bool


class _Run:
    """Stands for a job while APScheduler runs it, so that each of its times is run once."""

    args, kwargs = (), dict[str, Any]()

    def __init__(self, job: Any, once: Callable[[Any, datetime], Any], call: Callable[[Any], Any]) -> None:
        self.id, self.misfire_grace_time, self._jobstore_alias = job.id, job.misfire_grace_time, job._jobstore_alias
        self._job, self._once, self._call, self._here = job, once, call, False

    def __str__(self) -> str:
        return str(self._job)

    def told(self, run_times: list[datetime]) -> Iterator[datetime]:
        """Yield the times. APScheduler takes one, runs the job for it, and takes the next one."""
        for time in run_times:
            self._time, self._here = time, False
            yield time

    def func(self) -> Any:
        value = self._once(self._job, self._time).run(self._body)
        return _Result(value, self._here)

    def _body(self) -> Any:
        self._here = True
        return self._call(self._job)


class _CoroutineRun(_Run):
    """The same on an event loop."""

    async def func(self) -> Any:
        value = await self._once(self._job, self._time).run(self._coroutine)
        return _Result(value, self._here)

    async def _coroutine(self) -> Any:
        if iscoroutinefunction(self._job.func):
            return await self._body()
        return await asyncio.to_thread(self._body)


class OnceThreadPoolExecutor(_Once, ThreadPoolExecutor):  # type: ignore[misc]  # (APScheduler has no types)
    """Runs jobs in threads, each scheduled time in one process of all.

    The other processes wait for the run, take over if its process dies, and dispatch
    EVENT_JOB_EXECUTED with the same result. Such an event has `holdfast_elsewhere=True`. If a job
    raises, the next process tries it.
    """

    _run = _Run

    def __init__(
        self,
        locks: Holdfast,
        *,
        keep: float = KEEP,
        max_workers: int = 10,
        pool_kwargs: dict[str, Any] | None = None,
        **options: Unpack[OnceOptions],
    ) -> None:
        """Take the client.

        Args:
            locks: A client for threads.
            keep: Seconds for which it is known that a time was run (default: a day). A job with an
                interval is known for twice its interval if that is longer.
            max_workers: Threads. A thread is busy while the job runs in another process.
            pool_kwargs: As for APScheduler's `ThreadPoolExecutor`.
            options: Those of `once`, such as `wait`, `ttl` and `serializer`.

        Raises:
            ConfigError: The client is not one for threads, or an option cannot work.
        """
        super().__init__(max_workers, pool_kwargs)
        self._prepare(Holdfast, locks, keep, options)


class OnceProcessPoolExecutor(OnceThreadPoolExecutor):
    """Runs jobs in processes, each scheduled time in one of all.

    A thread of this process holds the lease while a process of its pool works.
    """

    def __init__(
        self,
        locks: Holdfast,
        *,
        keep: float = KEEP,
        max_workers: int = 10,
        pool_kwargs: dict[str, Any] | None = None,
        **options: Unpack[OnceOptions],
    ) -> None:
        """Take the client.

        Args:
            locks: A client for threads.
            keep: Seconds for which it is known that a time was run (default: a day).
            max_workers: Processes, and threads that wait for them.
            pool_kwargs: As for APScheduler's `ProcessPoolExecutor`.
            options: Those of `once`.

        Raises:
            ConfigError: The client is not one for threads, or an option cannot work.
        """
        super().__init__(locks, keep=keep, max_workers=max_workers, **options)
        self._make: Callable[[], Any] = lambda: ProcessPoolExecutor(max_workers, pool_kwargs)._pool
        self._processes = self._make()

    def shutdown(self, wait: bool = True) -> None:
        """Stop the pool.

        Args:
            wait: Whether to wait for the jobs that run.
        """
        super().shutdown(wait)
        self._processes.shutdown(wait)

    def _call(self, job: Any) -> Any:
        pool = self._processes
        try:
            return pool.submit(job.func, *job.args, **job.kwargs).result()
        except BrokenProcessPool:
            # A process was killed. The job has failed, and the next one gets a new pool.
            with self._lock:
                if self._processes is pool:
                    self._processes = self._make()
            raise


class OnceAsyncIOExecutor(_Once, AsyncIOExecutor):  # type: ignore[misc]  # (APScheduler has no types)
    """Runs coroutine functions on the event loop, and other functions in its threads, each
    scheduled time in one process of all.
    """

    _run = _CoroutineRun

    def __init__(self, locks: AsyncHoldfast, *, keep: float = KEEP, **options: Unpack[OnceOptions]) -> None:
        """Take the client.

        Args:
            locks: A client for asyncio.
            keep: Seconds for which it is known that a time was run (default: a day).
            options: Those of `once`.

        Raises:
            ConfigError: The client is not one for asyncio, or an option cannot work.
        """
        super().__init__()
        self._prepare(AsyncHoldfast, locks, keep, options)


def _check(job: Any) -> None:
    """Refuse jobs that other processes do not know by the same name and times."""
    if _RANDOM.fullmatch(job.id):
        raise ConfigError(f"the job {job.name!r} needs an id that is the same in every process: add_job(..., id=...)")
    if getattr(job.trigger, "jitter", None):
        raise ConfigError(f"the job {job.id!r} has jitter: each process would run it at another time. Leave jitter out")
