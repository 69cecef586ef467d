"""Celery: tasks that run once although their message comes twice, tasks that run one at a time, and
tasks that are not sent twice.

Knows Celery's tasks and messages, and the client for threads. Must not know schedules: those are in
`celery_beat`.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from functools import partial, wraps
from inspect import unwrap
from math import inf
from typing import Any, NoReturn, ParamSpec, TypeVar, Unpack

from celery import Celery, Task, bootsteps, current_app, current_task, signals
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded, TaskPredicate
from celery.utils import uuid

from .. import Holdfast
from ..config import Clients
from ..errors import ConfigError, LockBusy, NoQuorum, message_of
from ..kit import unlocked
from ..typing import OnceOptions, Options
from . import calls
from .calls import BUSY, UNIQUE, Body, Busy, Delivery, Single, abortable, attempt, chosen, example

__all__ = ["Unique", "client_of", "once", "setup", "single"]

P = ParamSpec("P")
R = TypeVar("R")

LOGGER = "holdfast.celery"
COUNTDOWN = 15.0  # seconds until the copy of a message comes back
NO_ABORT = "abort=True needs the prefork pool, whose soft time limit interrupts a task"
LONGEST = 600.0  # seconds until a task without a majority is tried again
# Brokers that deliver a message again if it is not acknowledged in time, even while its task runs;
# and the seconds after which they do, unless the broker's options say otherwise.
_REPEATING = {"redis": 3600.0, "rediss": 3600.0, "sentinel": 3600.0, "sqs": 1800.0}

# How to get the client of each application.
_clients: dict[Celery, Callable[[], Holdfast]] = {}


# The attribute of a decorated function that has what a worker checks when it starts.
_CHECKS = "__holdfast_celery__"


class _Checks(bootsteps.Step):  # type: ignore[misc]  # (Celery has no types)
    """Refuses to start a worker with a task that could not run, or would run without its lock."""

    def __init__(self, worker: Any, **options: Any) -> None:
        bodies = [(f"the task {it.name!r}", getattr(it.run, "__func__", it.run)) for it in worker.app.tasks.values()]
        for told in unlocked(bodies).values():
            raise ConfigError(told)
        for name, body in bodies:
            for check in getattr(body, _CHECKS, ()):
                try:
                    check(worker)
                except ConfigError as error:
                    raise ConfigError(f"{name} cannot run: {error.message}") from error
        super().__init__(worker, **options)


@signals.worker_init.connect  # type: ignore[untyped-decorator]  # (Celery has no types)
def _check_tasks(sender: Any, **_: Any) -> None:
    # A signal's receiver cannot stop a worker, and a step can.
    sender.app.steps["worker"].add(_Checks)


def setup(app: Celery, locks: Holdfast | None = None) -> None:
    """Connect an application with a client, which is closed when a worker or its process stops.

    Without `locks`, the client is made at the first use, from the settings `holdfast_nodes`,
    `holdfast_ttl` and so on in Celery's configuration, and from the environment. If the
    configuration has a namespace, it goes before them: `CELERY_HOLDFAST_NODES`.

    Args:
        app: The application.
        locks: A client for threads (default: made from the settings).
    """
    clients = Clients(lambda: _settings(app), "holdfast_", "Celery's configuration")
    _clients[app] = (lambda: clients.locks) if locks is None else (lambda: locks)

    def close(**_: Any) -> None:
        clients.close()
        if locks is not None:
            locks.close()

    signals.worker_process_shutdown.connect(close, weak=False)
    signals.worker_shutdown.connect(close, weak=False)


def _settings(app: Celery) -> dict[str, Any]:
    """Celery's configuration, without the namespace that its names begin with."""
    given = {str(name): value for name, value in app.conf.items()}
    start = f"{app.namespace.rstrip('_')}_".lower() if app.namespace else ""
    return {name[len(start) :]: value for name, value in given.items() if name.lower().startswith(start)}


def client_of(app: Celery) -> Holdfast:
    """Return the client of an application.

    Args:
        app: The application.

    Raises:
        ConfigError: `setup` was not called for it, or its settings cannot work.
    """
    found = _clients.get(app)
    if found is None:
        raise ConfigError(f"the Celery application {app.main!r} has no client: call setup(app), or write on=")
    return found()


def once(
    key: str | None = None,
    *,
    keep: float,
    countdown: float = COUNTDOWN,
    on: Holdfast | None = None,
    **options: Unpack[OnceOptions],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a task, below `@app.task`, so that a message that is delivered again is one run.

    A copy whose task has run returns the result that was kept. A copy whose task still runs is sent
    again after `countdown` seconds: it is the only message left if the worker that runs the task
    dies. That uses up no retries.

    Args:
        key: What is done once: a template over the task's arguments. Default: the message's id.
            A function that is called inside of another task needs a key.
        keep: Seconds for which a result is known, at least twice the broker's visibility timeout.
        countdown: Seconds until a copy comes back, less than half of the visibility timeout
            (default: 15).
        on: A client for threads (default: that of `setup`).
        options: Those of `once`, except for `wait`.

    Returns:
        A decorator. A worker does not start if the task has no client, or if `keep` or `countdown`
        does not fit the broker: ConfigError. If most nodes are unreachable, the task is retried as
        with `single`.

    Raises:
        ConfigError: An option cannot work, the template has a field that is no parameter, or the
            decorator is above `@app.task`.
    """
    if "wait" in options:
        how = "a message whose task runs elsewhere comes back after `countdown` seconds"
        raise ConfigError(f"once has no wait= here: {how}")
    limits: Any = {"keep": keep, "wait": 0, **options}

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known = example().once(key or "any", **limits)(function)

        def run(*args: P.args, **kwargs: P.kwargs) -> Any:
            task = _task(function)
            if task is None and key is None:
                # Called like a function, there is no message.
                if (other := _running()) is None:
                    return function(*args, **kwargs)
                what = f"{function.__qualname__} is not what the task {other.name} runs, whose message has the id"
                raise ConfigError(f"{what}: write once(key, ...), or functools.wraps in each decorator above @once")
            if task is not None:
                _check(task.app, keep, countdown)
            # The id may have braces in it, which are no template.
            name = key or (lambda *_, **__: f"celery:{task.request.id}" if task is not None else "")
            locks = _client(on, task)
            try:
                return attempt(function, locks.once(name, **limits), args, kwargs)
            except Busy as error:
                _back(task, locks, error.busy, lambda: countdown)

        return _checked(wraps(known)(run), on, lambda worker: _check(worker.app, keep, countdown))

    return decorate


def single(
    name: str,
    *,
    busy: str = "later",
    countdown: float | None = None,
    abort: bool = False,
    on: Holdfast | None = None,
    **options: Unpack[Options],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a task, below `@app.task`, so that it runs one at a time for each name.

    Args:
        name: The lock's name, a template over the task's arguments, such as "feed:{url}".
        busy: What to do if the lock is busy. "later" (the default): wait for up to a second, then
            send the message again, which uses up no retries. "skip": return None. "raise": raise
            LockBusy.
        countdown: Seconds until a message comes back. None: when its turn is near, by how many
            messages are to come before it, and how long the task usually takes (the default).
        abort: Whether the task is interrupted if its lock is lost, as by Celery's soft time limit
            (default: False). Only for the prefork pool.
        on: A client for threads (default: that of `setup`).
        options: Those of `lock`. Unless you set `wait`, it is 1 with "later", and otherwise 0.

    Returns:
        A decorator. If most nodes are unreachable, the decorated task is retried as often as its
        `max_retries` allows: after `outage` seconds, and after twice as long each time.

    Raises:
        ConfigError: An option cannot work, the template has a field that is no parameter, or the
            decorator is above `@app.task`.
    """
    chosen("busy", busy, *BUSY)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        one = Single(function, name, options, busy, countdown)

        def run(*args: P.args, **kwargs: P.kwargs) -> Any:
            task = _task(function)
            interrupts = _abortable if abort and _running() is not None else None
            locks = _client(on, task)
            try:
                return one.call(locks, args, kwargs, task is not None, interrupts)
            except Busy as refused:
                error = refused.busy
                if busy != "later" and isinstance(error, LockBusy):
                    if busy == "skip":
                        return None
                    raise error from None
                _back(task, locks, error, lambda: one.back(locks, error.name))

        return _checked(wraps(one.known)(run), on, partial(_check_pool, abort))

    return decorate


class Unique(Task):  # type: ignore[misc]  # (Celery has no types)
    """The base of tasks that are not sent while a message of their name is under way.

    Write `@app.task(base=Unique)`, with these options:

    - `unique`: the name, a template over the task's arguments. True: the task and all of its
      arguments (the default).
    - `unique_until`: "finished" (the default), "started", or seconds from the sending.
    - `unique_on_failure`: "free" (the default) or "keep", for `unique_keep` seconds.
    - `unique_keep`: for how many seconds a message may be in a queue (default: 3600).
    - `unique_busy`: what sending a duplicate does. "first" (the default): return the result of the
      message that is under way. "raise": raise LockBusy.
    """

    abstract = True

    @classmethod
    def on_bound(cls, app: Celery) -> None:
        """Check the options.

        Args:
            app: The application.

        Raises:
            ConfigError: An option cannot work.
        """
        given = {it: getattr(cls, it) for it in UNIQUE if hasattr(cls, it)}
        cls._holdfast = calls.UniqueCalls(cls().run, cls.name, given)

    def apply_async(
        self, args: Any = None, kwargs: Any = None, task_id: str | None = None, *rest: Any, **options: Any
    ) -> Any:
        """Send the task, unless a message of its name is under way.

        Args:
            args: As Celery passes them, and so for the others.
            kwargs: The task's named arguments.
            task_id: The message's id.
            rest: Further options, in their order.
            options: Further options.

        Returns:
            Celery's result, which may be that of the message that is under way.

        Raises:
            LockBusy: A message is under way, with `unique_busy="raise"` or in a group or
                chord, or another process is sending one.
            NoQuorum: Too few nodes answered. Nothing was sent.
        """
        identity = task_id or uuid()

        def publish(name: str | None) -> tuple[Any, str]:
            if name is not None:
                options["headers"] = {**(options.get("headers") or {}), _NAME: name}
            return super(Unique, self).apply_async(args, kwargs, identity, *rest, **options), identity

        if self.app.conf.task_always_eager:
            return publish(None)[0]
        delivery = getattr(self.request, _DELIVERY, None)
        if delivery is not None and identity == self.request.id:
            # A retry, or a message that comes back later.
            delivery.again()
            return publish(delivery.name)[0]
        # A group, or a chord, would wait for ever for a message of its own that is not sent.
        known = self.AsyncResult if options.get("group_id") is None else None
        return self._holdfast.send(client_of(self.app), args or (), kwargs or {}, publish, known)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task."""
        if self.request.called_directly:
            return super().__call__(*args, **kwargs)
        delivery = _delivery(self, self.request)
        if delivery is None or hasattr(self.request, _DELIVERY):
            return self.run(*args, **kwargs)
        setattr(self.request, _DELIVERY, delivery)
        delivery.begin()
        try:
            return self.run(*args, **kwargs)
        except BaseException as error:
            delivery.failed = not isinstance(error, TaskPredicate)
            if isinstance(error, Reject) and error.requeue:
                delivery.again()
            raise
        finally:
            delivery.end()


# The header of a message that is not sent twice, and what a request has in its worker.
_NAME, _DELIVERY = "holdfast_unique", "holdfast_delivery"


def _delivery(task: Any, request: Any) -> Delivery | None:
    name = getattr(request, _NAME, None)
    if name is None or not isinstance(task, Unique):
        return None
    return Delivery(task._holdfast, client_of(task.app), name, request.id)


@signals.task_revoked.connect  # type: ignore[untyped-decorator]  # (Celery has no types)
def _revoked(sender: Any, request: Any, **_: Any) -> None:
    """Free the name of a message that has expired or was revoked."""
    if (delivery := _delivery(sender, request)) is not None:
        delivery.failed = True
        # A worker's main loop does not wait for nodes.
        threading.Thread(target=delivery.end, daemon=True).start()


def _checked(run: Callable[P, R], on: Holdfast | None, check: Callable[[Any], object]) -> Callable[P, R]:
    """Note what a worker checks when it starts."""
    setattr(run, _CHECKS, (*getattr(run, _CHECKS, ()), partial(_check_client, on), check))
    return run


def _check_pool(abort: bool, worker: Any) -> None:
    # Another worker may be the one for such a task.
    if abort and worker.pool_cls.__module__ != "celery.concurrency.prefork":
        logging.getLogger(LOGGER).warning("this worker refuses some tasks: %s", NO_ABORT)


def _check_client(on: Holdfast | None, worker: Any) -> None:
    locks = on or client_of(worker.app)
    if not isinstance(locks, Holdfast):
        raise ConfigError("it needs a client for threads: from holdfast import Holdfast")
    if not locks.settings.addresses:
        raise locks.settings.nodeless


def _back(task: Task | None, locks: Holdfast, error: LockBusy | NoQuorum, countdown: Callable[[], float]) -> NoReturn:
    """Send the task's message again, with its id and retries, and end this run without a state.

    After an outage, Celery retries the task. Without a message, the error goes on.
    """
    if task is None:
        raise error from None
    # The broker would deliver a message again that waits for longer.
    longest = _again(task.app) / 2
    if isinstance(error, NoQuorum):
        # A failover and the guard after it may take longer than a few equal waits.
        seconds = min(LONGEST, longest, locks.settings.outage * 2 ** min(task.request.retries, 16))
        raise task.retry(exc=error, countdown=seconds) from error
    seconds = min(countdown(), longest)
    copy = task.signature_from_request(task.request, countdown=seconds, retries=task.request.retries)
    try:
        copy.apply_async()
    except Exception as failed:
        if task.acks_late:
            # The broker keeps this message, which is as good as a copy.
            raise Reject(str(failed), requeue=True) from failed
        raise
    told = "%s[%s] comes back in %g s: %s"
    logging.getLogger(LOGGER).debug(told, task.name, task.request.id, seconds, message_of(error))
    raise Ignore from error


def _abortable(function: Body, options: Any) -> tuple[Body, Any]:
    """The function and the lock's options, so that losing the lock interrupts the function."""
    handler = signal.getsignal(signal.SIGUSR1)
    if getattr(handler, "__name__", "") != "soft_timeout_sighandler":
        raise ConfigError(NO_ABORT)
    # A signal to the process may go to another thread, and the task's would sleep on.
    return abortable(function, options, lambda it: signal.pthread_kill(it, signal.SIGUSR1), SoftTimeLimitExceeded)


def _task(function: Body) -> Task | None:
    """The task whose message is being worked on, if the function is its body."""
    task = _running()
    return task if task is not None and unwrap(task.run) is unwrap(function) else None


def _running() -> Task | None:
    """The task whose message is being worked on."""
    task = current_task._get_current_object()
    return None if task is None or task.request.called_directly or task.request.is_eager else task


def _client(on: Holdfast | None, task: Task | None) -> Holdfast:
    if on is not None:
        return on
    # Celery also knows the task that is called like a function, or run in place of being sent.
    called = task or current_task._get_current_object()
    return client_of(current_app if called is None else called.app)


def _again(app: Celery) -> float:
    """Return after how many seconds the broker delivers a message again. inf: it does not."""
    given = app.conf.broker_read_url or app.conf.broker_url or ""
    urls = given.split(";") if isinstance(given, str) else given
    known = [_REPEATING[kind] for url in urls if (kind := str(url).partition("://")[0]) in _REPEATING]
    options = app.conf.broker_transport_options or {}
    return float(options.get("visibility_timeout", min(known))) if known else inf


def _check(app: Celery, keep: float, countdown: float) -> None:
    """Refuse times that do not fit the broker's visibility timeout, if it has one."""
    if (again := _again(app)) == inf:
        return
    if keep < 2 * again:
        raise ConfigError(
            f"keep={keep:g} is too short: the broker delivers a message again after {again:g} s (visibility_timeout), "
            f"when its result must still be known. Set keep={2 * again:g} or more"
        )
    if countdown >= again / 2:
        raise ConfigError(
            f"countdown={countdown:g} is too long: the broker delivers a message that waits again after {again:g} s "
            f"(visibility_timeout). Set it below {again / 2:g}"
        )
