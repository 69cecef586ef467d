"""Serves the routes of leases without FastAPI, if a request is as it should be.

Knows FastAPI's routes, and the ASGI protocol. Must not know what a route does.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, get_type_hints

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute

from .asking import client_of, gateway_of
from .gate import App, Message, Receive, Scope, Send

Failed = Callable[[Request, Exception], Awaitable[Response]]
# What a route may ask for, besides the parts of its path and its queries.
_KNOWN = {"gateway", "client", "request", "asked", "return"}


class _Route(NamedTuple):
    """A route of FastAPI, as far as it is served here.

    Attributes:
        path: The paths that it has.
        endpoint: What answers.
        model: What the body has to be. None: the route asks for no body.
        whole: Whether it asks for the request itself.
    """

    path: re.Pattern[str]
    endpoint: Callable[..., Awaitable[Response | BaseModel]]
    model: type[BaseModel] | None
    whole: bool


class Direct:
    """Middleware that serves some of an application's routes itself.

    FastAPI finds the route of a request, and resolves its arguments, again for each request. That
    costs more than all the rest of a keepalive. This finds the route by its method and path, and
    passes on the gateway, the client, the request, the parts of the path and the body. FastAPI
    documents the same routes, and gets each request that has a query, or a body that is not valid.
    The gate has refused bodies that are not JSON.

    Args:
        app: The application that serves everything else.
        routes: The routes. Parts of their paths are texts.
        failed: Answer each kind of exceptions. All others are for the application's server.

    Raises:
        TypeError: A route asks for something that this does not know.
    """

    def __init__(self, app: App, routes: Sequence[BaseRoute], failed: Mapping[type[Exception], Failed]) -> None:
        self._app = app
        self._failed = failed
        self._expected = tuple(failed)
        self._routes: dict[str, list[_Route]] = {}
        for it in routes:
            assert isinstance(it, APIRoute)
            for method in it.methods or ():
                self._routes.setdefault(method, []).append(_understood(it))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or leave it to FastAPI."""
        # Below another application, FastAPI knows which part of the path is its own.
        if scope["type"] == "http" and not scope["query_string"] and not scope.get("root_path"):
            path = scope["path"]
            for route in self._routes.get(scope["method"], ()):
                if (found := route.path.match(path)) is not None:
                    await self._serve(route, found.groupdict(), scope, receive, send)
                    return
        await self._app(scope, receive, send)

    async def _serve(
        self, route: _Route, arguments: dict[str, Any], scope: Scope, receive: Receive, send: Send
    ) -> None:
        request = Request(scope, receive, send)
        try:
            if route.model is not None:
                body = await request.body()
                try:
                    arguments["asked"] = route.model.model_validate_json(body)
                except ValidationError:
                    # FastAPI says what is wrong with it.
                    await self._app(scope, _again(body, receive), send)
                    return
            if route.whole:
                arguments["request"] = request
            said = await route.endpoint(
                gateway=await gateway_of(request), client=await client_of(request), **arguments
            )
        except ClientDisconnect:
            return
        except self._expected as error:
            kind = next(it for it in type(error).__mro__ if it in self._failed)
            said = await self._failed[kind](request, error)
        if isinstance(said, BaseModel):
            said = Response(said.model_dump_json(), media_type="application/json")
        await said(scope, receive, send)


def _understood(route: APIRoute) -> _Route:
    """Take in what a route asks for.

    Raises:
        TypeError: It asks for something that is not known here.
    """
    hints = get_type_hints(route.endpoint)
    queries = {it.name for it in route.dependant.query_params}
    if unknown := hints.keys() - _KNOWN - route.param_convertors.keys() - queries:
        raise TypeError(f"{route.path} asks for {', '.join(sorted(unknown))}, which a direct route does not know")
    return _Route(route.path_regex, route.endpoint, hints.get("asked"), "request" in hints)


def _again(body: bytes, receive: Receive) -> Receive:
    """Receive a body that has arrived already, and then what follows it."""
    message: Message | None = {"type": "http.request", "body": body, "more_body": False}

    async def received() -> Message:
        nonlocal message
        first, message = message, None
        return await receive() if first is None else first

    return received
