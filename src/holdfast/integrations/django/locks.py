"""Locks that are taken before a transaction begins, and given back after its commit.

Knows Django's requests, transactions and settings, and both clients.

A lock that is taken inside a transaction is given back before the commit: the next holder reads
what was there before. With ATOMIC_REQUESTS, a view and all its decorators run inside. Only a
middleware comes earlier.
"""

from __future__ import annotations

import contextlib
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from threading import Event
from typing import Any, NoReturn, Unpack

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.core.signals import setting_changed
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.utils.functional import SimpleLazyObject, empty

from ... import Lease, LeaseState
from ...aio import Lease as AsyncLease
from ...checks import Seconds
from ...config import LOCAL, Clients
from ...errors import ConfigError, HoldfastError, Misuse
from ...fencing.sql import FenceTable
from ...kit import Current, named, noted, written
from ...typing import Options, RateOptions
from ..calls import example
from ..web import Counting, Statuses, filled

__all__ = [
    "MARK", "Middleware", "alocks", "clients", "given", "guard", "limited_view", "locked_atomic", "locked_view",
    "locks",
]  # fmt: skip

View = Callable[..., Any]

MARK = "holdfast_lock"  # the attribute of a view that has a lock
# The attribute of a request that has the mark of its view, until an error is answered, and the lease of that lock.
_TAKEN = "_holdfast_taken"
_NOTHING = (None, None)


def given() -> dict[str, Any]:
    """Return a copy of `settings.HOLDFAST`, with all names in capitals."""
    return {str(name).upper(): value for name, value in getattr(settings, "HOLDFAST", {}).items()}


def is_local() -> bool:
    """Return whether the settings ask for servers of their own."""
    return str(given().get("NODES")).strip().lower() == LOCAL


clients = Clients(lambda: getattr(settings, "HOLDFAST", {}), where="settings.HOLDFAST")
# Made at the first use. `settings.HOLDFAST` has the options of a client, in capitals.
locks: Any = SimpleLazyObject(lambda: clients.locks)
alocks: Any = SimpleLazyObject(lambda: clients.alocks)


def forget(*, setting: str, **_: object) -> None:
    """Make new clients after a test has changed the settings."""
    if setting == "HOLDFAST":
        clients.close()
        locks._wrapped = alocks._wrapped = empty


setting_changed.connect(forget)


def locked_view(name: str | Callable[..., str], **options: Unpack[Options]) -> Callable[[View], View]:
    """Decorate a view, so that a request holds a lock from before its transaction until after it.

    It needs the middleware. `holdfast.current()` is the lease in the view. If the lock is lost
    meanwhile, the transaction is rolled back. A lock is released before the content of a streaming
    response is sent.

    Args:
        name: A template over what the URL captures, such as "order:{pk}", or a function of the
            request and of these arguments that returns the name.
        options: Those of `lock`.

    Returns:
        A decorator, also for `SomeView.as_view()`, and for a method of a class that handles a
        request: `post`, or an `@action` of a ViewSet of Django REST framework.

    Raises:
        ConfigError: The view has a lock already, an option cannot work, or `name` is no template.
            Running it raises ConfigError if nobody took its lock: the middleware is missing, or the
            URL leads to another view that calls this one.
    """

    mark = (name, options)
    example().lock("any", **options)
    named(name, example().lock)

    def decorate(view: View) -> View:
        if hasattr(view, MARK):
            raise ConfigError(f"the view {view.__qualname__} has a lock already: a request holds one lock of a view")

        def marked(*args: Any, **kwargs: Any) -> Any:
            with _checked(args, view, mark):
                return view(*args, **kwargs)

        async def amarked(*args: Any, **kwargs: Any) -> Any:
            with _checked(args, view, mark):
                return await view(*args, **kwargs)

        made: View = noted(wraps(view)(amarked if iscoroutinefunction(view) else marked), view, "locked_view")
        setattr(made, MARK, mark)
        return made

    return decorate


def limited_view(
    name: str | Callable[..., str],
    limit: int | Sequence[tuple[int, Seconds]],
    period: Seconds | None = None,
    *,
    key: str | Callable[..., str] | None = None,
    **options: Unpack[RateOptions],
) -> Callable[[View], View]:
    """Decorate a view, so that requests above a rate get 429.

    It needs the middleware. The response has the headers `RateLimit` and `RateLimit-Policy`, and a
    refusal `Retry-After`. A view with a lock is counted when the request has the lock.

    Args:
        name: A template over what the URL captures, or a function of the request and of these
            arguments that returns the name.
        limit: How many requests are allowed in a period; or several pairs of requests and seconds.
        period: Seconds. Leave it out if `limit` is a list of pairs.
        key: Each key has a limit of its own, as `name`. Default: all requests share the limit.
        options: Those of `rate`, such as `burst` and `fail_open`. `wait` is 0 unless you set it.

    Returns:
        A decorator, as `locked_view`.

    Raises:
        ConfigError: An option cannot work.
    """
    counting = Counting(name, limit, period, key, options)

    def rate(clients: Any, args: Any, kwargs: Any) -> Any:
        rest = args[1:] if hasattr(args[0], "META") else args[2:]
        return counting.rate(clients, lambda name: _named(name, _request(args), rest, kwargs))

    def decorate(view: View) -> View:
        def counted(*args: Any, **kwargs: Any) -> Any:
            allowance = rate(locks, args, kwargs).acquire()
            return counting.tell(allowance, view(*args, **kwargs))

        async def acounted(*args: Any, **kwargs: Any) -> Any:
            allowance = await rate(alocks, args, kwargs).acquire()
            return counting.tell(allowance, await view(*args, **kwargs))

        made: View = noted(wraps(view)(acounted if iscoroutinefunction(view) else counted), view, "limited_view")
        return made

    return decorate


def _request(args: Sequence[Any]) -> Any:
    """Return the request among the arguments of a view. A method has its object before."""
    return next((it for it in args[:2] if hasattr(it, "META")), None)


def class_of(view: View) -> Any:
    """Return the class of a view, as Django or its REST framework notes it, or None."""
    return getattr(view, "view_class", getattr(view, "cls", None))


def handlers_of(view: View, methods: Iterable[str]) -> list[Any]:
    """Return a view, and what its class has for these methods of requests, such as "post"."""
    # A ViewSet of Django REST framework has other names for them.
    names = getattr(view, "actions", None) or {}
    return [view, *(getattr(class_of(view), names.get(it, it), None) for it in methods)]


def _mark_of(view: View, request: HttpRequest) -> Any:
    """Return the mark of what handles a request. None: it needs no lock."""
    methods = ("head", "get") if request.method == "HEAD" else (str(request.method).lower(),)
    return next((getattr(it, MARK) for it in handlers_of(view, methods) if hasattr(it, MARK)), None)


@contextlib.contextmanager
def _checked(args: Sequence[Any], view: View, mark: object) -> Iterator[None]:
    """Refuse to run a view that nobody took the lock for, or to commit what it did after a loss."""
    request = _request(args)
    if not hasattr(request, _TAKEN):
        raise ConfigError(f"a locked view needs {Middleware.__module__}.Middleware in settings.MIDDLEWARE")
    taken, lease = getattr(request, _TAKEN)
    if taken is not mark:
        raise ConfigError(
            f"nobody took the lock of the view {view.__qualname__}: it was called by another view, or by a decorator "
            "that hides it. Write @locked_view above all other decorators of the view that the URL leads to"
        )
    with Current(lease):
        yield
    # Inside the transaction, which an error rolls back.
    _check(lease)


def _check(lease: Lease | AsyncLease) -> None:
    """Raise LockLost, unless the options say that the work may be done without the lock."""
    # An async view has no transaction, so the lock may have another owner by now.
    handed_over = isinstance(lease, AsyncLease) and lease.state is LeaseState.HANDED_OVER
    if lease.state is not LeaseState.OPEN and not handed_over:
        lease.check()


class Middleware:
    """Takes the locks of views, and answers requests that holdfast's errors have ended.

    A busy lock becomes 409, and no majority 503. `settings.HOLDFAST_WEB` may have `busy` and
    `names`, as in `holdfast.integrations.web.Statuses`.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        """Wrap the rest of the middleware.

        Args:
            get_response: As Django passes it.
        """
        self.get_response = get_response
        self._statuses = Statuses(**getattr(settings, "HOLDFAST_WEB", {}))
        self.process_view: Callable[..., Any] = self._take
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)
            self.process_view = self._atake

    def __call__(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """Handle a request."""
        if iscoroutinefunction(self):
            return self._acall(request)
        setattr(request, _TAKEN, _NOTHING)
        try:
            response = self.get_response(request)
        finally:
            failed = self._given_back(request)
        return failed or response

    async def _acall(self, request: HttpRequest) -> HttpResponse:
        setattr(request, _TAKEN, _NOTHING)
        try:
            response = await self.get_response(request)
        finally:
            failed = await self._agiven_back(request)
        return failed or response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer a request whose view has raised an error of holdfast."""
        if isinstance(error, HoldfastError):
            # A mistake in the program is not answered, and goes on.
            with contextlib.suppress(HoldfastError):
                answer = self._answer(request, error)
                # If that was the loss of the lock, the release tells of it once more.
                setattr(request, _TAKEN, (None, getattr(request, _TAKEN)[1]))
                return answer
        return None

    def _take(
        self, request: HttpRequest, view: View, args: Any, kwargs: Any, cancel: Event | None = None
    ) -> HttpResponse | None:
        if (mark := _mark_of(view, request)) is None:
            return None
        if cancel is None and isinstance(request, ASGIRequest):
            # A middleware that knows no asyncio stands behind this one. Only a task hears that the client has gone.
            answer: HttpResponse | None = async_to_sync(self._atake)(request, view, args, kwargs)
            return answer
        try:
            lease = locks.lock(_named(mark[0], request, args, kwargs), **mark[1]).acquire(cancel)
        except HoldfastError as error:
            return self._answer(request, error)
        setattr(request, _TAKEN, (mark, lease))
        return None

    async def _atake(self, request: HttpRequest, view: View, args: Any, kwargs: Any) -> HttpResponse | None:
        if (mark := _mark_of(view, request)) is None:
            return None
        if not iscoroutinefunction(view):
            # It runs in a thread, where a lease of the event loop cannot be used.
            cancel = Event()
            try:
                return await sync_to_async(self._take)(request, view, args, kwargs, cancel)
            except CancelledError:
                # The client has disconnected, and the thread waits for the lock or has just got it.
                cancel.set()
                await sync_to_async(self._given_back)(request)
                raise
        try:
            lease = await alocks.lock(_named(mark[0], request, args, kwargs), **mark[1]).acquire()
        except HoldfastError as error:
            return self._answer(request, error)
        setattr(request, _TAKEN, (mark, lease))
        return None

    def _given_back(self, request: HttpRequest) -> HttpResponse | None:
        """Release what the request holds. The response, if a lock was lost before the commit."""
        mark, lease = getattr(request, _TAKEN)
        if lease is None:
            return None
        if isinstance(lease, AsyncLease):
            answer: HttpResponse | None = async_to_sync(self._agiven_back)(request)
            return answer
        try:
            lease.release()
        except HoldfastError as error:
            return mark and self._answer(request, error)
        return None

    async def _agiven_back(self, request: HttpRequest) -> HttpResponse | None:
        mark, lease = getattr(request, _TAKEN)
        if not isinstance(lease, AsyncLease):
            return lease and await sync_to_async(self._given_back)(request)
        try:
            await lease.release()
        except HoldfastError as error:
            return mark and self._answer(request, error)
        return None

    def _answer(self, request: HttpRequest, error: HoldfastError) -> HttpResponse:
        found = self._statuses.answer(error, f"{request.method} {request.path}")
        return HttpResponse(found.body, status=found.status, headers=dict(found.headers))


def locked_atomic(*names: str, using: str | None = None, **options: Unpack[Options]) -> AbstractContextManager[Lease]:
    """Hold a lock around a transaction: lock, BEGIN, the block, COMMIT, release.

    If the lock is lost in the block, the transaction is rolled back.

    Args:
        names: One name, or several, as for `lock`.
        using: The database (default: Django's default one).
        options: Those of `lock`.

    Returns:
        A context manager, which gives the lease.

    Raises:
        LockBusy: Another holder has the lock. (As the errors below, raised where the block begins
            or ends.)
        NoQuorum: No majority of the nodes answered.
        LockLost: The lock was lost.
        Misuse: It is called inside another transaction, whose commit would come too late. No lock
            was acquired.
        ConfigError: It decorates a function.
    """
    return _Block(_atomic(names, using, options))


class _Block(AbstractContextManager[Lease]):
    """Decorates nothing: a decorator would neither fill the name nor await a coroutine."""

    def __init__(self, block: AbstractContextManager[Lease]) -> None:
        self._block = block

    def __enter__(self) -> Lease:
        return self._block.__enter__()

    def __exit__(self, *raised: Any) -> bool | None:
        return self._block.__exit__(*raised)

    def __call__(self, function: object) -> NoReturn:
        raise ConfigError("locked_atomic is no decorator: write `with locked_atomic(...):` in the function")


@contextlib.contextmanager
def _atomic(names: Sequence[str], using: str | None, options: Any) -> Iterator[Lease]:
    _refuse_inside(using)
    with locks.lock(*names, **options) as lease, transaction.atomic(using=using, durable=True):
        yield lease
        _check(lease)


def _refuse_inside(using: str | None) -> None:
    """Refuse to begin inside a transaction, as `durable` does, but before there is a lock."""
    around = transaction.get_connection(using).atomic_blocks
    # A block of Django's TestCase is no transaction of the program.
    if around and not around[-1]._from_testcase:
        raise Misuse(
            "locked_atomic is inside a transaction, whose commit would come after the release of the lock. "
            "For a view with ATOMIC_REQUESTS: use @locked_view, or @transaction.non_atomic_requests. "
            "Elsewhere: call it outside of the atomic block"
        )


def guard(lease: Lease | AsyncLease, using: str = "default", *, read: bool = False) -> None:
    """Refuse a late holder in this transaction, and keep later holders waiting until it ends.

    Call it first in the transaction. `manage.py migrate holdfast` makes its table.

    Args:
        lease: The lease of the lock that protects what you write.
        using: The database.
        read: The transaction only reads (default: False).

    Raises:
        StaleFence: A later holder has been here. The transaction must be rolled back.
        Misuse: There is no transaction, or the lease has no fence.
    """
    connection = connections[using]
    with connection.cursor() as cursor:
        fence_table(connection).guard(cursor, lease, read=read)


def fence_table(connection: Any) -> FenceTable:
    """Return the table of fences in a database of Django's."""
    return FenceTable(connection.vendor, paramstyle="format")


def _named(name: str | Callable[..., str], request: HttpRequest, args: Any, kwargs: dict[str, Any]) -> str:
    return written(name(request, *args, **kwargs), name) if callable(name) else filled(name, args, kwargs)
