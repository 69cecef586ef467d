"""APScheduler 3: executors that run each scheduled time of a job once, although every process has a
scheduler.

Knows APScheduler's executors and triggers, and both clients. Jobs do not know for which time they
run, so only an executor can tell the runs of different processes apart.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Unpack

from apscheduler.executors.asyncio import AsyncIOExecutor, run_coroutine_job
from apscheduler.executors.base import run_job
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

    def _prepare(self, kind: type[Any], locks: Any, keep: float, options: Any) -> None:
        if not isinstance(locks, kind):
            raise ConfigError(f"{type(self).__name__} needs a client of {kind.__module__}.{kind.__name__}")
        locks.once("any", keep=keep, **options)
        self._locks, self._keep, self._options = locks, keep, options

    def _once(self, job: Any, time: datetime) -> Any:
        if isinstance(job.trigger, IntervalTrigger):
            # Each process begins its intervals at another moment, so an interval is what is done once.
            length = job.trigger.interval_length
            keep = max(self._keep, 2 * length)
            return self._locks.once(f"job:{job.id}", keep=keep, per=length, **self._options).at(time)
        name = f"job:{job.id}@{time.astimezone(UTC).isoformat()}"
        return self._locks.once(name, keep=self._keep, **self._options)


class OnceThreadPoolExecutor(_Once, ThreadPoolExecutor):  # type: ignore[misc]  # (APScheduler has no types)
    """Runs jobs in threads, each scheduled time in one process of all.

    The other processes wait for the run, take over if its process dies, and dispatch
    EVENT_JOB_EXECUTED with the same result. Such an event has `holdfast_elsewhere=True`. If a job
    raises, the next process tries it.
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

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:
        _check(job)
        self._pool.submit(self._all, job, run_times).add_done_callback(partial(self._done, job.id))

    def _done(self, identity: str, future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            self._run_job_success(identity, future.result())
        else:
            self._run_job_error(identity, error, error.__traceback__)

    def _all(self, job: Any, run_times: list[datetime]) -> list[Any]:
        return [event for time in run_times for event in self._one(job, time)]

    def _one(self, job: Any, time: datetime) -> list[Any]:
        run = _Run(job, lambda body: self._once(job, time).run(body), lambda: self._call(job))
        return run.marked(run_job(run, job._jobstore_alias, [time], self._logger.name))

    def _call(self, job: Any) -> Any:
        return job.func(*job.args, **job.kwargs)


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

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:
        _check(job)
        task = self._eventloop.create_task(self._all(job, run_times))
        self._pending_futures.add(task)
        task.add_done_callback(partial(self._done, job.id))

    def _done(self, identity: str, task: asyncio.Task[Any]) -> None:
        self._pending_futures.discard(task)
        error = asyncio.CancelledError("the scheduler has stopped") if task.cancelled() else task.exception()
        if error is None:
            self._run_job_success(identity, task.result())
        else:
            self._run_job_error(identity, error, error.__traceback__)

    async def _all(self, job: Any, run_times: list[datetime]) -> list[Any]:
        return [event for time in run_times for event in await self._one(job, time)]

    async def _one(self, job: Any, time: datetime) -> list[Any]:
        async def call() -> Any:
            if iscoroutinefunction(job.func):
                return await job.func(*job.args, **job.kwargs)
            return await asyncio.to_thread(job.func, *job.args, **job.kwargs)

        async def once(body: Callable[[], Any]) -> Any:
            async def run() -> Any:
                return await body()

            return await self._once(job, time).run(run)

        run = _Run(job, once, call)
        return run.marked(await run_coroutine_job(run, job._jobstore_alias, [time], self._logger.name))


class _Run:
    """Stands for a job while APScheduler runs it for one time, and knows whether it ran here."""

    args, kwargs = (), dict[str, Any]()

    def __init__(self, job: Any, once: Callable[[Callable[[], Any]], Any], call: Callable[[], Any]) -> None:
        self.id, self.misfire_grace_time, self._job = job.id, job.misfire_grace_time, job
        self._once, self._call, self._here = once, call, False

    def __str__(self) -> str:
        return str(self._job)

    def func(self) -> Any:
        return self._once(self._body)

    def _body(self) -> Any:
        self._here = True
        return self._call()

    def marked(self, events: list[Any]) -> list[Any]:
        for event in events:
            event.holdfast_elsewhere = not self._here
        return events


def _check(job: Any) -> None:
    """Refuse jobs that other processes do not know by the same name and times."""
    if _RANDOM.fullmatch(job.id):
        raise ConfigError(f"the job {job.name!r} needs an id that is the same in every process: add_job(..., id=...)")
    if getattr(job.trigger, "jitter", None):
        raise ConfigError(f"the job {job.id!r} has jitter: each process would run it at another time. Leave jitter out")
