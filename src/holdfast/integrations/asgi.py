"""ASGI applications: statuses for holdfast's errors, clients that live as long, and health.

Knows the ASGI protocol and both clients. Must not know frameworks.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from .. import Holdfast as ThreadHoldfast
from ..aio import Holdfast
from ..checks import Seconds, seconds
from ..errors import ConfigError, HoldfastError, Misuse, NoQuorum, is_closed
from ..kit import majorities, unlocked
from .web import Answering, ProblemResponse

__all__ = ["Errors", "health", "lifespan"]

_WHOLE = "whole"  # stands for the type of a message that ends a response

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


class Errors(Answering):
    """Middleware that answers requests which holdfast's errors have ended.

    `LockBusy` becomes 409, `RateLimited` 429, `NoQuorum` and a closed client 503, `LockLost` 503,
    `StaleFence` 412, a bad name 422. Other errors of holdfast are mistakes in the program, and go
    on. After the response has begun, the error goes on too, and the server cuts the response off.
    An error of a background task goes on.

    A websocket is closed: with 1013 where a client may come back later, otherwise with 1008 if the
    mistake is the client's, and with 1011 if it is not.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        sent, held = set[str](), list[Message]()

        async def sending(message: Message) -> None:
            # Starlette's applications, which may be mounted in another one, answer 500 to any error, and
            # then raise it.
            if (not sent and message.get("status") == 500) or (held and not message.get("more_body")):
                held.append(message)
                return
            for it in (*held, message):
                ends = it["type"] == "http.response.body" and not it.get("more_body")
                sent.add(_WHOLE if ends else it["type"])
                await send(it)
            held.clear()

        try:
            await self.app(scope, receive, sending)
        except HoldfastError as error:
            if _WHOLE in sent:
                # A background task has raised it.
                raise
            found = self._answer(error, where(scope), bool(sent - {"websocket.accept", "websocket.send"}))
            held.clear()
            await (_close(send, found, sent) if scope["type"] == "websocket" else answer(send, found))
        finally:
            for it in held:
                await send(it)


def lifespan(
    *clients: Holdfast | ThreadHoldfast,
    ready: Seconds | None = None,
    once: Mapping[str, Callable[[], Any]] | None = None,
    keep: Seconds = 30 * 86400.0,
    inner: Lifespan | None = None,
) -> Lifespan:
    """Make a lifespan for Starlette, FastAPI or Litestar, which opens and closes clients.

    It can be entered again after it was left, as tests do.

    Args:
        clients: The clients. Leaving the lifespan closes them.
        ready: Seconds to wait at the start until a majority of the nodes is usable. Default: the
            application starts without asking.
        once: Functions that one process of all runs at the start, by their key. Write the release
            into the key, such as "seed@2026-11-23", or the next release does not run it. The first
            client carries it out, so with a client for asyncio they are coroutine functions.
        keep: Seconds for which it is known that they have run (default: 30 days).
        inner: Another lifespan, which is entered last and left first.

    Returns:
        A function of the application that returns a context manager. Entering it raises ConfigError
        if a client has no nodes, or if an endpoint runs without the decorators above it.

    Raises:
        ConfigError: There is `once`, and no client.
    """
    seeds = dict(once or {})
    if seeds and not clients:
        raise ConfigError("once= needs a client, which makes sure that one process runs it: lifespan(locks, once=...)")

    @asynccontextmanager
    async def entered(app: Any) -> AsyncIterator[Any]:
        refuse_bypassed(app)
        async with AsyncExitStack() as stack:
            for client in clients:
                await _opened(client, stack, ready)
            for key, seed in seeds.items():
                await _blocking(clients[0].once(key, keep=keep).run, seed)
            state = None if inner is None else await stack.enter_async_context(inner(app))
            yield state

    return entered


def health(locks: Holdfast | ThreadHoldfast, *, deep: bool = False, wait: Seconds = 1.0) -> App:
    """Make an application that says how the nodes are, without their addresses.

    It answers 200 as long as the process runs. Do not use `deep=True` as a readiness probe: an
    outage of the nodes would then take every replica of your service out of use at once.

    Args:
        locks: The client.
        deep: Ask the nodes, and answer 503 if no majority is usable (default: False).
        wait: Seconds to wait for the nodes, with `deep` (default: 1).

    Returns:
        An ASGI application, for a route or a mount.

    Raises:
        ConfigError: `wait` is no duration.
    """

    seconds(wait, "wait", waits=True)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        usable = True
        if deep:
            try:
                await _blocking(locks.ready, wait)
            except HoldfastError as error:
                if not (isinstance(error, NoQuorum | ConfigError) or is_closed(error)):
                    raise
                usable = False
        try:
            nodes = locks.nodes()
        except Misuse as error:
            if not is_closed(error):
                raise
            nodes = ()
        if deep:
            # A node whose connection broke while it was asked is down by now.
            usable = usable and not any(it.why for it in majorities(nodes))
        said = {"status": "pass" if usable else "fail", "nodes": [it.state for it in nodes]}
        headers = (("content-type", "application/health+json"),)
        await answer(send, ProblemResponse(200 if usable else 503, headers, json.dumps(said).encode()))

    return app


def where(scope: Scope) -> str:
    """Return a request's method and path, as the log shows them."""
    return f"{scope.get('method', 'websocket')} {scope['path']}"


def refuse_bypassed(app: Any) -> None:
    """Refuse an application with an endpoint that runs without the decorators above it.

    Args:
        app: The application. Only Starlette's and FastAPI's tell their endpoints.

    Raises:
        ConfigError: There is such an endpoint.
    """
    for told in unlocked(_endpoints(app)).values():
        raise ConfigError(told)


def _endpoints(app: Any, start: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the endpoints of an application, and those of applications and routers in it."""
    for it in getattr(app, "routes", None) or ():
        path = start + getattr(it, "path", "")
        yield f"the route {path}", getattr(it, "endpoint", None)
        # A newer FastAPI keeps routers as they are included.
        yield from _endpoints(getattr(it, "original_router", it), path)


async def _opened(client: Holdfast | ThreadHoldfast, stack: AsyncExitStack, ready: Seconds | None) -> None:
    """Enter a client, and close it with the stack. Raises ConfigError if it has no nodes."""
    if not client.settings.addresses:
        # Otherwise the application would start, and each request that needs a lock would fail.
        raise client.settings.nodeless
    if isinstance(client, Holdfast):
        await stack.enter_async_context(client)
    else:
        client.__enter__()
        stack.push_async_callback(asyncio.to_thread, client.close)
    if ready is not None:
        await _blocking(client.ready, ready)


async def _blocking(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call either client: in a thread, if it is the one for threads."""
    if inspect.iscoroutinefunction(call):
        return await call(*arguments)
    return await asyncio.to_thread(call, *arguments)


async def _close(send: Send, found: ProblemResponse, sent: set[str]) -> None:
    """Close a websocket, which has to be open for its client to get the code."""
    code = 1013 if "retry-after" in dict(found.headers) else 1008 if found.status < 500 else 1011
    # If the client has gone, servers raise one of these.
    with suppress(OSError, RuntimeError):
        if not sent:
            await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": code, "reason": json.loads(found.body)["title"]})


async def answer(send: Send, found: ProblemResponse) -> None:
    """Send a whole response."""
    headers = [(name.encode(), value.encode()) for name, value in found.headers]
    headers.append((b"content-length", str(len(found.body)).encode()))
    await send({"type": "http.response.start", "status": found.status, "headers": headers})
    await send({"type": "http.response.body", "body": found.body})
