"""APScheduler 3: executors that run each scheduled time of a job once, although every process has a
scheduler.

Knows APScheduler's executors, triggers and states, and both clients. Jobs do not know for which
time they run, so only an executor can tell the runs of different processes apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import re
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from typing import Any, NamedTuple, Unpack
from weakref import ReferenceType, ref

from apscheduler.events import EVENT_SCHEDULER_START
from apscheduler.executors.asyncio import AsyncIOExecutor
from apscheduler.executors.pool import ProcessPoolExecutor, ThreadPoolExecutor
from apscheduler.schedulers import SchedulerNotRunningError
from apscheduler.triggers.interval import IntervalTrigger

from .. import Holdfast, Lease, current
from ..aio import Holdfast as AsyncHoldfast
from ..errors import Cancelled, ConfigError, HoldfastError, message_of
from ..kit import Current, unlocked
from ..typing import OnceOptions

__all__ = ["OnceAsyncIOExecutor", "OnceProcessPoolExecutor", "OnceThreadPoolExecutor"]

LOGGER = "holdfast.apscheduler"
KEEP = 86400.0  # seconds for which it is known that a time was run
PAUSE = 1.0  # seconds until a process that could not lead tries again
# What APScheduler calls a job that has no id of its own. Each process calls it differently.
_RANDOM = re.compile(r"[0-9a-f]{32}")
# The latest jobs of this process, by prefix and id: the executor, the job store, and the function's name.
_jobs: OrderedDict[tuple[str, str], tuple[ReferenceType[Any], str, str | None]] = OrderedDict()
_REMEMBERED = 1000  # jobs


class _Once:
    """What the executors share: what is done once for a job and a time, and which process leads."""

    # What stands for a job.
    _run: type[_Run]
    _campaign: Callable[[], None]
    _scheduler: Any
    # `shutdown` sets it, which ends the wait for a run in another process. An event loop's cancels tasks.
    _stopped: Any = None

    def _prepare(self, kind: type[Any], locks: Any, keep: float, leader: bool | str, options: Any) -> None:
        if not isinstance(locks, kind):
            raise ConfigError(f"{type(self).__name__} needs a client of {kind.__module__}.{kind.__name__}")
        locks.once("any", keep=keep, **options)
        self._locks, self._keep, self._options = locks, keep, options
        self._leader = "default" if leader is True else leader
        if leader:
            self._election()

    def start(self, scheduler: Any, alias: str) -> None:
        """Start the executor. If one process is to lead, the scheduler is paused until it does.

        Args:
            scheduler: As APScheduler passes it.
            alias: As APScheduler passes it.
        """
        super().start(scheduler, alias)  # type: ignore[misc]  # (a mixin)
        if not self._leader:
            return
        # A scheduler that starts says so before it looks at any job.
        scheduler.remove_listener(self._stand_by)
        scheduler.add_listener(self._stand_by, EVENT_SCHEDULER_START)
        if scheduler.running:
            self._stand_by()

    def _stand_by(self, event: Any = None) -> None:
        self._scheduler.pause()
        self._campaign()

    def _election(self, **options: Any) -> Any:
        myself = f"{socket.gethostname()}:{os.getpid()}"
        return self._locks.election(f"apscheduler:{self._leader}", myself, **options)

    @contextlib.contextmanager
    def _leading(self) -> Iterator[None]:
        """Let the scheduler run in the block."""
        logging.getLogger(LOGGER).info("this scheduler leads")
        self._scheduler.resume()
        try:
            yield
        finally:
            # Before another process can lead.
            with contextlib.suppress(SchedulerNotRunningError):
                self._scheduler.pause()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Log why the scheduler does not lead, or does so no longer."""
        try:
            yield
        except (Cancelled, SchedulerNotRunningError):
            # The scheduler is shut down.
            pass
        except HoldfastError as error:
            logging.getLogger(LOGGER).warning("this scheduler does not lead, and stands by: %s", message_of(error))

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:
        _check(job)
        self._refuse_twins(job)
        run = self._run(job, self)
        super()._do_submit_job(run, run.told(run_times))  # type: ignore[misc]  # (a mixin)

    def _refuse_twins(self, job: Any) -> None:
        """Refuse two jobs with the same id and another function: only one of them would run."""
        name, mine = (self._locks.settings.prefix, job.id), (ref(self), job._jobstore_alias, job.func_ref)
        before, alias, function = _jobs.get(name, mine)
        lives = (executor := before()) is not None and executor._scheduler.running
        if lives and (executor, alias) != (self, mine[1]) and function != mine[2]:
            told = f"the id {job.id!r} is that of two jobs, {function} and {job.func_ref}, and only one would run"
            raise ConfigError(f"{told}: give each an id of its own, or each scheduler a client with another prefix")
        _jobs[name] = mine
        if len(_jobs) > _REMEMBERED:
            _jobs.popitem(last=False)

    def _run_job_success(self, identity: str, events: list[Any]) -> None:
        for event in events:
            if isinstance(event.retval, _Result):
                event.holdfast_elsewhere = not event.retval.here
                event.retval = event.retval.value
        super()._run_job_success(identity, events)  # type: ignore[misc]  # (a mixin)

    def _once(self, job: Any, time: datetime) -> Any:
        options = {"cancel": self._stopped, **self._options}
        if isinstance(job.trigger, IntervalTrigger):
            # Each process begins its intervals at another moment, so an interval is what is done once.
            length = job.trigger.interval_length
            keep = max(self._keep, 2 * length)
            return self._locks.once(f"job:{job.id}", keep=keep, per=length, **options).at(time)
        name = f"job:{job.id}@{time.astimezone(UTC).isoformat()}"
        return self._locks.once(name, keep=self._keep, **options)

    def _apart(self, job: Any, body: Any) -> Any:
        """Keep a run apart from those of other times, which other processes may have begun.

        Each process has its own view of how many instances run, since it was started.
        """
        # The permit of a process that died is free after one ttl.
        ttl = self._options.get("ttl") or self._locks.settings.ttl
        limits = {"on_busy": "skip", "wait": ttl, "ttl": ttl}
        return self._locks.permitted(lambda *_: f"job:{job.id}", job.max_instances, **limits)(body)

    def _call(self, job: Any) -> Any:
        return job.func(*job.args, **job.kwargs)


class _Result(NamedTuple):
    """What a run returned, and whether it ran in this process."""

    value: Any
    here: bool


class _Run:
    """Stands for a job while APScheduler runs it, so that each of its times is run once."""

    args, kwargs = (), dict[str, Any]()

    def __init__(self, job: Any, executor: _Once) -> None:
        self.id, self.misfire_grace_time, self._jobstore_alias = job.id, job.misfire_grace_time, job._jobstore_alias
        self._job, self._executor, self._here = job, executor, False

    def __str__(self) -> str:
        return str(self._job)

    def told(self, run_times: list[datetime]) -> Iterator[datetime]:
        """Yield the times. APScheduler takes one, runs the job for it, and takes the next one."""
        for time in run_times:
            self._time, self._here = time, False
            yield time

    def func(self) -> Any:
        value = self._executor._once(self._job, self._time).run(self._alone)
        return _Result(value, self._here)

    def _alone(self) -> Any:
        return self._noted(self._executor._apart(self._job, self._body)(current()))

    def _noted(self, value: Any) -> Any:
        """Log if the job was skipped. Returns its value."""
        if not self._here:
            told = "%s is skipped at %s: %d instances run in all processes together"
            logging.getLogger(LOGGER).warning(told, self, self._time, self._job.max_instances)
        return value

    def _body(self, lease: Lease) -> Any:
        self._here = True
        # The fence is that of the time, and not that of a permit.
        with Current(lease):
            return self._executor._call(self._job)


class _CoroutineRun(_Run):
    """The same on an event loop."""

    async def func(self) -> Any:
        value = await self._executor._once(self._job, self._time).run(self._coroutine)
        return _Result(value, self._here)

    async def _coroutine(self) -> Any:
        return self._noted(await self._executor._apart(self._job, self._work)(current()))

    async def _work(self, lease: Lease) -> Any:
        if iscoroutinefunction(self._job.func):
            self._here = True
            with Current(lease):
                return await self._executor._call(self._job)
        body = contextvars.copy_context().run
        work = asyncio.get_running_loop().run_in_executor(None, body, self._body, lease)
        while not work.done():
            # `shutdown` and the end of the loop cancel this task. Nothing stops a thread, so the lease
            # lasts until it ends, and its result is kept. (A task for the thread would be cancelled, too.)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        return work.result()


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
        leader: bool | str = False,
        max_workers: int = 10,
        pool_kwargs: dict[str, Any] | None = None,
        **options: Unpack[OnceOptions],
    ) -> None:
        """Take the client.

        Args:
            locks: A client for threads.
            keep: Seconds for which it is known that a time was run (default: a day). A job with an
                interval is known for twice its interval if that is longer.
            leader: Whether the scheduler of one process runs jobs, and those of all others are
                paused until it dies (default: False). If an application has several schedulers,
                give each a name here instead of True.
            max_workers: Threads. A thread is busy while the job runs in another process.
            pool_kwargs: As for APScheduler's `ThreadPoolExecutor`.
            options: Those of `once`, such as `wait`, `ttl` and `serializer`.

        Raises:
            ConfigError: The client is not one for threads, or an option cannot work.
        """
        self._make_pool(max_workers, pool_kwargs)
        self._prepare(Holdfast, locks, keep, leader, options)
        self._stopped, self._over = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def _make_pool(self, max_workers: int, pool_kwargs: dict[str, Any] | None) -> None:
        super().__init__(max_workers, pool_kwargs)

    def shutdown(self, wait: bool = True) -> None:
        """Stop the threads. If this process leads, another one does so at once.

        Jobs that run in other processes are no longer waited for: they end with `Cancelled` here.

        Args:
            wait: Whether to wait for the jobs that run in this process.
        """
        self._stopped.set()
        self._over.set()
        super().shutdown(wait)
        if wait and self._thread is not None:
            self._thread.join()

    def _campaign(self) -> None:
        self._stopped, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._lead, args=(self._stopped, self._over), daemon=True)
        self._thread.start()

    def _lead(self, stopped: threading.Event, over: threading.Event) -> None:
        election = self._election(on_lost=lambda lease: over.set())
        while not stopped.is_set():
            with self._told(), contextlib.ExitStack() as term:
                term.callback(election.campaign(stopped).resign)
                term.enter_context(self._leading())
                over.wait()
            over.clear()
            stopped.wait(PAUSE)


class OnceProcessPoolExecutor(OnceThreadPoolExecutor):
    """Runs jobs in processes, each scheduled time in one of all.

    A thread of this process holds the lease while a process of its pool works. `max_workers` is the
    number of processes, and of threads that wait for them. `pool_kwargs` is as for APScheduler's
    `ProcessPoolExecutor`.
    """

    def _make_pool(self, max_workers: int, pool_kwargs: dict[str, Any] | None) -> None:
        super()._make_pool(max_workers, None)
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

    def __init__(
        self, locks: AsyncHoldfast, *, keep: float = KEEP, leader: bool | str = False, **options: Unpack[OnceOptions]
    ) -> None:
        """Take the client.

        Args:
            locks: A client for asyncio.
            keep: Seconds for which it is known that a time was run (default: a day).
            leader: As for `OnceThreadPoolExecutor`.
            options: Those of `once`.

        Raises:
            ConfigError: The client is not one for asyncio, or an option cannot work.
        """
        super().__init__()
        self._prepare(AsyncHoldfast, locks, keep, leader, options)

    def _campaign(self) -> None:
        # `shutdown` cancels these.
        self._pending_futures.add(self._eventloop.create_task(self._lead()))

    async def _lead(self) -> None:
        while True:
            with self._told():
                async with self._election():
                    with self._leading():
                        # The block is cancelled when the term is lost.
                        await asyncio.Event().wait()
            await asyncio.sleep(PAUSE)


def _check(job: Any) -> None:
    """Refuse jobs that other processes do not know by the same name and times."""
    if _RANDOM.fullmatch(job.id):
        raise ConfigError(f"the job {job.name!r} needs an id that is the same in every process: add_job(..., id=...)")
    for told in unlocked([(f"the job {job.id!r}", job.func)]).values():
        raise ConfigError(told)
    for trigger in _triggers(job.trigger):
        if getattr(trigger, "jitter", None):
            raise ConfigError(f"the job {job.id!r} has jitter: each process would run it at another time. Leave it out")
        if trigger is not job.trigger and isinstance(trigger, IntervalTrigger):
            told = f"the job {job.id!r} has an interval inside {type(job.trigger).__name__}: each process counts it"
            raise ConfigError(f"{told} from another moment. Use cron there, or the interval alone")


def _triggers(trigger: Any) -> Iterator[Any]:
    """Yield a trigger, and those that it combines."""
    yield trigger
    for part in getattr(trigger, "triggers", ()):
        yield from _triggers(part)
