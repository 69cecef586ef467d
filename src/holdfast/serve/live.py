"""The routes of the live page: its files, its stream, and what it asks about locks in view.

Knows the watcher. Must not know how the page draws anything.

The files need no token: they are the same for everybody, and they ask for the token. Whatever tells
of locks needs the scope `look:*`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from ..engine.status import NodeStatus, majorities
from ..recipes.inspection import LockStatus
from . import looking, models, streams
from .assets import Asset, assets
from .gateway import Gateway
from .identity import Identity
from .problems import milliseconds
from .routing import Table
from .scene import Viewer
from .watching import Watcher

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    # The digest tells whether a browser has the newest.
    "cache-control": "no-cache",
    "vary": "accept-encoding",
}
PACE = 0.25  # seconds between two messages of one viewer


class Name(models.Parameters):
    """Which lock is shown."""

    name: Annotated[str, Field(min_length=1)]


class InView(models.Parameters):
    """Which locks are in view."""

    names: list[str]


def watcher_of(gateway: Gateway) -> Watcher:
    """Return what surveys the nodes for the page. Close it when the application ends."""
    watcher = Watcher(gateway.locks, nodes_of, hello_of(gateway))
    gateway.audit.heard = lambda event, facts: _audited(watcher, event, facts)
    return watcher


def hello_of(gateway: Gateway) -> dict[str, Any]:
    """Return what each viewer is told first."""
    return {
        "prefix": gateway.locks.settings.prefix,
        "allow_force": gateway.options.allow_force,
        "grafana_url": gateway.options.grafana_url,
    }


def nodes_of(found: tuple[NodeStatus, ...]) -> dict[str, Any]:
    """Return what viewers see of the nodes. Of several shards, the numbers are of the worst."""
    spare, up, needed, *_ = min(majorities(found))
    nodes = [
        {**models.Node.model_validate(it).model_dump(), "ahead_us": None if it.ahead is None else round(it.ahead * 1e6)}
        for it in found
    ]
    return {"majority": needed, "up": up, "spare": spare, "nodes": nodes}


def _audited(watcher: Watcher, event: str, facts: dict[str, Any]) -> None:
    """Tell viewers of a lock that was taken away. Refusals are for the audit log alone."""
    if event == "force" and facts["nodes"]:
        at = round(datetime.now(UTC).timestamp() * 1000)
        watcher.scene.audited({"at": at, **{it: facts[it] for it in ("client", "name", "reason")}})


def routes(watcher: Watcher) -> Table:
    """Return the routes of the page."""
    found = _questions(watcher)
    for path, asset in assets().items():
        found.add("GET", f"/{path}", {200: asset.kind}, public=True, shown=False)(_sender(asset))
    return found


def _sender(asset: Asset) -> Any:
    async def send(request: Request) -> Response:
        headers = {**HEADERS, "etag": asset.digest}
        if request.headers.get("if-none-match") == asset.digest:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(asset.packed, headers={**headers, "content-encoding": "gzip"}, media_type=asset.kind)
        return Response(asset.body, headers=headers, media_type=asset.kind)

    return send


def _questions(watcher: Watcher) -> Table:
    routes = Table()

    @routes.add("GET", "/ui/stream", shown=False)
    async def stream(request: Request, gateway: Gateway, client: Identity) -> Response:
        gateway.demand(client, "look", "*")
        gateway.refuse_another_stream(client)
        told = _told(watcher, gateway, client, request)
        return StreamingResponse(told, headers=streams.HEADERS, media_type="text/event-stream")

    @routes.add("GET", "/ui/lock", shown=False)
    async def lock(gateway: Gateway, client: Identity, asked: Name) -> Response:
        name = asked.name
        gateway.demand(client, "look", name)
        found = models.Lock.model_validate(await gateway.locks.inspect(name))
        tenures = [
            {"fence": it.fence, "who": it.who, "first": round(it.first * 1000), "last": round(it.last * 1000)}
            for it in watcher.scene.tenures.of(name)
        ]
        may_force = gateway.options.allow_force and client.may("force", name)
        return JSONResponse({"lock": found.model_dump(), "tenures": tenures, "may_force": may_force})

    @routes.add("GET", "/ui/left", shown=False)
    async def left(gateway: Gateway, client: Identity, asked: InView) -> Response:
        found = await looking.inspected(gateway, client, asked.names)
        return JSONResponse({it.name: _left(it) for it in found if it.state == "held"})

    return routes


def _left(found: LockStatus) -> int | None:
    return None if found.ttl_left is None else milliseconds(found.ttl_left)


async def _told(watcher: Watcher, gateway: Gateway, client: Identity, request: Request) -> AsyncIterator[str]:
    """Tell one viewer what changes, until it leaves or the gateway ends."""
    viewer: Viewer = watcher.join()
    gateway.streams[client.name] += 1
    try:
        # uvicorn says that a client has gone when it ends itself, too.
        while not gateway.draining and gateway.now(client) == client and not await request.is_disconnected():
            if (news := viewer.take(watcher.scene)) is not None:
                kind, data = news
                yield f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
            # What it has never seen comes as fast as it can take it.
            await asyncio.sleep(0 if viewer.starting else PACE)
    finally:
        gateway.streams[client.name] -= 1
        watcher.leave(viewer)
