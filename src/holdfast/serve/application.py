"""The ASGI application: routes, the gate before them, and problems in place of errors.

Knows FastAPI. Must not know how a server is started.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from ..aio import Holdfast
from ..errors import HoldfastError, readable
from ..version import VERSION
from . import doing, electing, health, leasing, live, looking, rating
from .direct import Direct, Failed
from .gate import Gate
from .gateway import Gateway
from .options import Options, options_of
from .problems import Elsewhere, Problem, problem_of

# The kinds of problems that stand for statuses of FastAPI itself.
_OWN = {404: "not-found", 405: "not-allowed"}


def app(locks: Holdfast, **options: Any) -> FastAPI:
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
    application = FastAPI(
        title="holdfast",
        summary="Distributed locks over HTTP.",
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
    )
    application.state.gateway = gateway
    for routes in _parts(gateway.options):
        application.include_router(routes)
    if gateway.options.page:
        application.state.watcher = live.attach(application, gateway)
    failed: dict[type[Exception], Failed] = {Problem: _problem, HoldfastError: _error, Elsewhere: _elsewhere}
    rest: dict[type[Exception], Failed] = {RequestValidationError: _invalid, HTTPException: _other, Exception: _fault}
    for kind, handler in {**failed, **rest}.items():
        application.add_exception_handler(kind, handler)
    # The last one is the first that a request comes to.
    if not gateway.options.page_only:
        application.add_middleware(Direct, routes=leasing.routes.routes, failed=failed)
    application.add_middleware(Gate, gateway=gateway)
    return application


def _parts(options: Options) -> list[APIRouter]:
    """The routers that a gateway with these options has, in the order in which they are asked."""
    shown = [health.routes, looking.routes, electing.routes]
    return shown if options.page_only else [leasing.routes, doing.routes, rating.routes, *shown]


@asynccontextmanager
async def _lifespan(application: FastAPI) -> AsyncIterator[None]:
    gateway: Gateway = application.state.gateway
    gateway.start()
    yield
    gateway.drain()
    if gateway.options.page:
        await application.state.watcher.close()
    await gateway.stop()


def respond(request: Request, problem: Problem) -> Response:
    """Return the response for a problem."""
    found, headers = problem.document(request.scope["holdfast.instance"]), problem.headers()
    if leasing.prefers_text(request):
        text = leasing.lines({**found, "state": problem.kind})
        return Response(text, problem.status, {**headers, "content-type": "text/plain; charset=utf-8"})
    return JSONResponse(found, problem.status, headers)


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return respond(request, error)


async def _error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HoldfastError)
    return respond(request, problem_of(error))


async def _elsewhere(request: Request, error: Exception) -> Response:
    assert isinstance(error, Elsewhere)
    gateway: Gateway = request.app.state.gateway
    assert gateway.forwarding is not None
    try:
        return await gateway.forwarding.forward(request, error.gateway)
    except Problem as problem:
        return respond(request, problem)
    except HoldfastError as unsure:
        return respond(request, problem_of(unsure))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if any(it["type"] == "json_invalid" for it in found):
        return respond(request, Problem("malformed", "The body is no JSON object."))
    errors = [{"pointer": _pointer(it["loc"]), "detail": readable(it["msg"])} for it in found]
    detail = "; ".join(f"{it['pointer']}: {it['detail']}" for it in errors)
    return respond(request, Problem("invalid", detail, errors=errors))


def _pointer(place: tuple[Any, ...]) -> str:
    """Where in the body something is, as RFC 6901 has it; or which parameter it is."""
    where, *rest = [str(it) for it in place]
    return "".join(f"/{it}" for it in rest) if where == "body" else ".".join([where, *rest])


async def _other(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if (problem := request.scope.get("holdfast.problem")) is not None:
        return respond(request, problem)
    kind = _OWN.get(error.status_code, "malformed")
    return respond(request, Problem(kind, f"{request.method} {request.url.path}: {error.detail}"))


async def _fault(request: Request, error: Exception) -> Response:
    # The server logs the error itself. The client gets nothing of it but the number of the request.
    return respond(request, Problem("fault", "The gateway failed. Its log has the reason; please report it."))
