"""The ASGI application: its routes, the gate before them, and the document that describes them.

Knows Starlette, OpenAPI 3.1, and the JSON schemas of pydantic's models. Must not know what a route
does, or how a server is started.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from inspect import getdoc
from typing import Any

try:
    from starlette.applications import Starlette
except ImportError as missing:
    raise ImportError('holdfast.serve needs Starlette: pip install "holdfast[serve]"', name="starlette") from missing
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..aio import Holdfast
from ..version import VERSION
from . import leasing, live, looking, models
from .gateway import Gateway
from .options import options_of
from .problems import MEDIA
from .routing import Entry, RequestCounter, Table

# What the parts of paths may be.
_PARTS: dict[str, Any] = {"lease_id": models.LeaseId, "name": models.Name, "key": models.Name}


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
    return application_of(Gateway(locks, options_of(options)))


def application_of(gateway: Gateway) -> Starlette:
    """Make the ASGI application of a gateway."""
    table = Table()
    # The most frequent ones are tried first.
    if not gateway.options.page_only:
        table += leasing.routes
    table += looking.routes
    document = _document(table)

    @table.add("GET", "/openapi.json", {200: "application/json"}, public=True)
    async def describe(request: Request) -> Response:
        return JSONResponse(document)

    if gateway.options.page:
        table += live.routes(gateway)
    routes = [Route(it.path, it, methods=[it.method], name=it.endpoint.__name__) for it in table]

    @asynccontextmanager
    async def lifespan(application: Starlette) -> AsyncIterator[None]:
        gateway.start()
        yield
        gateway.drain()
        await gateway.stop()

    application = Starlette(routes=routes, lifespan=lifespan)
    application.router.redirect_slashes = False
    # The gate answers all problems, so it is the only middleware.
    application.middleware_stack = RequestCounter(application.router, gateway)
    application.state.gateway = gateway
    return application


def _document(routes: Sequence[Entry]) -> dict[str, Any]:
    """Describe routes."""
    used: set[Any] = {models.ProblemDocument, *[it.asked for it in routes if it.asked]}
    used |= {it for entry in routes for it in entry.answers.values() if not isinstance(it, str)}
    found, definitions = TypeAdapter.json_schemas(
        [(it, "validation", TypeAdapter(it)) for it in used], ref_template="#/components/schemas/{model}"
    )
    schemas: dict[Any, Any] = {model: schema for (model, _), schema in found.items()}
    for it in definitions["$defs"].values():
        for field in it.get("properties", {}).values():
            # What has no default may be left out. Generators would ask for it.
            if field.get("default", ...) is None:
                del field["default"]
    paths: dict[str, Any] = {}
    for entry in routes:
        path = entry.path.replace(":path}", "}")
        paths.setdefault(path, {})[entry.method.lower()] = _operation(entry, path, schemas)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "holdfast", "summary": "Distributed locks over HTTP.", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # A gateway for one machine asks nobody who they are.
        "security": [{"token": []}, {}],
    }
    # `HeldBody` is `Held` there: clients need not tell it from a class of the library.
    named: dict[str, Any] = json.loads(re.sub(r'(?<!request)Body"', '"', json.dumps(document)))
    return named


def _operation(entry: Entry, path: str, schemas: dict[Any, Any]) -> dict[str, Any]:
    text = getdoc(entry.endpoint) or ""
    parameters = [
        {"in": "path", "name": it, "required": True, "schema": TypeAdapter(_PARTS[it]).json_schema()}
        for it in re.findall(r"{(\w+)}", path)
    ]
    parameters += [
        {"in": "header", "name": name, "required": True, "description": about, "schema": {"type": "string"}}
        for name, about in entry.headers.items()
    ]
    problem = {"content": {MEDIA: {"schema": schemas[models.ProblemDocument]}}, "description": "What went wrong"}
    found: dict[str, Any] = {
        "operationId": entry.endpoint.__name__,
        "summary": text.partition("\n")[0].partition(". ")[0].removesuffix("."),
        "description": text,
        "parameters": parameters,
        "responses": {
            **{str(status): _answer(kind, schemas) for status, kind in entry.answers.items()},
            "4XX": problem,
            "5XX": problem,
        },
    }
    if entry.public:
        found["security"] = []
    if entry.asked is not None and issubclass(entry.asked, models.Parameters):
        properties = entry.asked.model_json_schema()["properties"]
        parameters += [{"in": "query", "name": name, "schema": about} for name, about in properties.items()]
    elif entry.asked is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schemas[entry.asked]}}}
    return found


def _answer(kind: Any, schemas: dict[Any, Any]) -> dict[str, Any]:
    media, schema = (kind, {"type": "string"}) if isinstance(kind, str) else ("application/json", schemas[kind])
    return {"description": "", "content": {media: {"schema": schema}}}
