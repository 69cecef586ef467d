"""The ASGI application: its routes, the gate before them, and the document that describes them.

Knows Starlette. Must not know how a server is started.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..aio import Holdfast
from . import doing, health, leasing, live, looking, schema
from .gateway import Gateway
from .options import options_of
from .routing import Gate, Table


def app(locks: Holdfast, **options: Any) -> Starlette:
    """Make the gateway's ASGI application.

    Serve it with one process: a second one would be a second gateway behind the same address.
    Close the client yourself when the application has ended, by `await locks.close(leave=True)`.

    Args:
        locks: The client, of `holdfast.aio`.
        options: See `Options`.

    Returns:
        The application. `application.state.gateway` is its Gateway.

    Raises:
        ConfigError: An option does not exist, or cannot work.
    """
    gateway = Gateway(locks, options_of(options))
    table = Table()
    # The most frequent ones are tried first.
    if not gateway.options.page_only:
        table += [*leasing.routes, *doing.routes]
    table += [*health.routes, *looking.routes]
    document = schema.document(table)

    @table.add("GET", "/openapi.json", {200: "application/json"}, public=True)
    async def describe(request: Request) -> Response:
        return JSONResponse(document)

    if gateway.options.page:
        table += live.routes(gateway)
    application = Starlette(routes=table.routes(), lifespan=_lifespan)
    application.router.redirect_slashes = False
    # The gate answers all problems, so it is the only middleware.
    application.middleware_stack = Gate(application.router, gateway)
    application.state.gateway = gateway
    return application


@asynccontextmanager
async def _lifespan(application: Starlette) -> AsyncIterator[None]:
    gateway: Gateway = application.state.gateway
    gateway.start()
    yield
    gateway.drain()
    await gateway.stop()
