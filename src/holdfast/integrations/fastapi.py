"""FastAPI: a client for an application, and dependencies that hold a lock or count a call.

Knows FastAPI. What other ASGI frameworks need too is in `asgi`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Unpack

from fastapi import Depends, FastAPI, Request, Response
from fastapi.requests import HTTPConnection

from ..aio import Holdfast, Lease
from ..checks import Seconds
from ..errors import ConfigError
from ..kit import written
from ..typing import Options, RateOptions
from .asgi import App, Errors, Receive, Scope, Send, lifespan, refuse_bypassed
from .web import Counting, filled

__all__ = ["Limited", "Locked", "install"]

Named = str | Callable[[Any], str]

_CLIENT = "holdfast"  # where a scope has the client that was installed

_RESPONSES: dict[int | str, dict[str, Any]] = {
    429: {"description": "Too many requests"},
    503: {"description": "The lock service is not available, or the lock was lost"},
}


def install(
    app: FastAPI,
    locks: Holdfast,
    *,
    busy: int = 409,
    names: bool = False,
    ready: Seconds | None = None,
    once: Mapping[str, Callable[[], Any]] | None = None,
) -> None:
    """Connect an application with a client. Call it before you add routes.

    The application opens the client when it starts, and closes it when it stops. Requests that
    `LockBusy`, `NoQuorum` and the like have ended get 409, 503 and the like, also in applications
    that are mounted in this one. The OpenAPI schema lists these responses. If an endpoint was
    registered without a decorator of holdfast above it, the application does not start.

    Args:
        app: The application.
        locks: The client, which must be one for asyncio. Functions of `def` endpoints may be
            decorated by a client for threads all the same.
        busy: The status for a busy lock, 409 (the default) or 423.
        names: Whether responses contain the lock's name (default: False).
        ready: Seconds to wait at the start until a majority of the nodes is usable. Default: the
            application starts without asking.
        once: Coroutine functions that one process of all runs at the start, by their key. Write
            the release into the key, or the next release does not run it.

    Raises:
        ConfigError: The client is not one for asyncio, or `busy` is another status.
    """
    if not isinstance(locks, Holdfast):
        raise ConfigError("install needs a client for asyncio: from holdfast.aio import Holdfast")
    Errors(app, busy=busy)
    unchecked = [app]

    def installed(inner: App) -> App:
        errors = Errors(inner, busy=busy, names=names, outage=locks.settings.outage)

        async def answering(scope: Scope, receive: Receive, send: Send) -> None:
            # Of an application that is not started, as in some tests, the first request says what is wrong.
            if unchecked and scope["type"] != "lifespan":
                refuse_bypassed(app)
                unchecked.clear()
            # Applications that are mounted in this one get the same scope.
            scope[_CLIENT] = locks
            await errors(scope, receive, send)

        return answering

    app.add_middleware(installed)
    app.router.lifespan_context = lifespan(locks, ready=ready, once=once, inner=app.router.lifespan_context)
    app.router.responses = {busy: {"description": "The lock is busy"}, **_RESPONSES, **app.router.responses}


def Locked(name: Named, *, on: Holdfast | None = None, **options: Unpack[Options]) -> Any:
    """Make a dependency that holds a lock while the endpoint runs, and gives its lease.

    The lock is released before the response is sent. Prefer the decorator `@locks.locked(...)`
    below the route, unless you need the lock in several endpoints of a router.

    Args:
        name: A template over the path's parameters, such as "order:{id}", or a function of the
            request, or of the websocket, that returns the name.
        on: The client for asyncio. Default: the one that was installed.
        options: Those of `lock`.

    Returns:
        What FastAPI's `Depends` returns.

    Raises:
        ConfigError: This FastAPI is older than 0.121, which would hold the lock until the response
            has been sent.
    """

    # A request, or a websocket.
    async def held(request: HTTPConnection) -> AsyncIterator[Lease]:
        async with _client(on, request).lock(_filled(name, request), **options) as lease:
            yield lease

    return _depends(held)


def Limited(
    name: Named,
    limit: int | Sequence[tuple[int, Seconds]],
    period: Seconds | None = None,
    *,
    key: Named | None = None,
    on: Holdfast | None = None,
    **options: Unpack[RateOptions],
) -> Any:
    """Make a dependency that counts the request, and refuses it with 429 if there are too many.

    The response has the headers `RateLimit` and `RateLimit-Policy`, and a refusal `Retry-After`.

    Args:
        name: A template over the path's parameters, or a function of the request.
        limit: How many requests are allowed in a period; or several pairs of requests and seconds.
        period: Seconds. Leave it out if `limit` is a list of pairs.
        key: Each key has a limit of its own: a template, or a function of the request. Default: all
            requests share the limit.
        on: The client for asyncio. Default: the one that was installed.
        options: Those of `rate`, such as `burst` and `fail_open`. `wait` is 0 unless you set it.

    Returns:
        What FastAPI's `Depends` returns. The dependency gives the `Allowance`.

    Raises:
        ConfigError: An option cannot work, or this FastAPI is older than 0.121.
    """

    counting = Counting(name, limit, period, key, options)

    async def counted(request: Request, response: Response) -> Any:
        allowance = await counting.rate(_client(on, request), partial(_filled, request=request)).acquire()
        counting.tell(allowance, response)
        return allowance

    return _depends(counted)


def _depends(dependency: Callable[..., Any]) -> Any:
    if "scope" not in inspect.signature(Depends).parameters:
        why = "where a dependency can end before the response is sent"
        raise ConfigError(f"Locked and Limited need FastAPI 0.121 or newer, {why}")
    return Depends(dependency, scope="function")


def _client(on: Holdfast | None, request: HTTPConnection) -> Holdfast:
    found = on or request.scope.get(_CLIENT)
    if not isinstance(found, Holdfast):
        raise ConfigError("no client for asyncio: call install(app, locks), or write on=")
    return found


def _filled(name: Named, request: HTTPConnection) -> str:
    """The name that a request means."""
    return written(name(request), name) if callable(name) else filled(name, (), _captured(request))


def _captured(request: HTTPConnection) -> dict[str, Any]:
    """The path's parameters as the endpoint gets them: /orders/7 and /orders/07 are one order.

    The text stays where FastAPI does not tell a type, or will answer that the value is wrong.
    """
    found = dict(request.path_params)
    route = request.scope.get("route")
    # A newer FastAPI keeps the parameters in a router's prefix apart from the route, which it shares.
    included = request.scope.get("fastapi", {}).get("effective_route_context")
    if getattr(included, "original_route", None) is route:
        route = included
    for parameter in _parameters(getattr(route, "dependant", None)):
        with suppress(Exception):
            value, wrong = parameter.validate(request.path_params[parameter.alias], {}, loc=("path", parameter.alias))
            if not wrong:
                found[parameter.alias] = value
    return found


def _parameters(dependant: Any) -> Iterator[Any]:
    """The parameters of the path that dependencies have, and then those of the endpoint itself."""
    for it in getattr(dependant, "dependencies", ()):
        yield from _parameters(it)
    yield from getattr(dependant, "path_params", ())
