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

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import Response, StreamingResponse

from ..engine.status import NodeStatus, majorities
from ..recipes.inspection import LockStatus
from . import looking, streams
from .asking import Client, Host
from .assets import Asset, assets
from .gateway import Gateway
from .problems import Problem, milliseconds
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


def attach(application: FastAPI, gateway: Gateway) -> Watcher:
    """Add the page to an application.

    Returns:
        The watcher. Close it when the application ends.
    """
    watcher = Watcher(gateway.locks, nodes_of, hello_of(gateway))
    gateway.audit.heard = lambda event, facts: _audited(watcher, event, facts)
    application.include_router(_files())
    application.include_router(_questions(watcher))
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
        {**looking.node(it).model_dump(), "ahead_us": None if it.ahead is None else round(it.ahead * 1e6)}
        for it in found
    ]
    return {"majority": needed, "up": up, "spare": spare, "nodes": nodes}


def _audited(watcher: Watcher, event: str, facts: dict[str, Any]) -> None:
    """Tell viewers of a lock that was taken away. Refusals are for the audit log alone."""
    if event == "force" and facts["nodes"]:
        at = round(datetime.now(UTC).timestamp() * 1000)
        watcher.scene.audited({"at": at, **{it: facts[it] for it in ("client", "name", "reason", "token")}})


def _files() -> APIRouter:
    routes = APIRouter(include_in_schema=False)
    for path, asset in assets().items():
        routes.add_api_route(f"/{path}", _sender(asset), methods=["GET", "HEAD"], response_model=None)
    return routes


def _sender(asset: Asset) -> Any:
    async def send(request: Request) -> Response:
        headers = {**HEADERS, "etag": asset.digest}
        if request.headers.get("if-none-match") == asset.digest:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(asset.packed, headers={**headers, "content-encoding": "gzip"}, media_type=asset.kind)
        return Response(asset.body, headers=headers, media_type=asset.kind)

    return send


def _questions(watcher: Watcher) -> APIRouter:
    routes = APIRouter(prefix="/ui", include_in_schema=False)

    @routes.get("/stream")
    async def stream(request: Request, gateway: Host, client: Client) -> Response:
        gateway.demand(client, "look", "*")
        if gateway.streams >= gateway.options.max_streams:
            raise Problem("too-many", "Too many pages are open: close some.", after=5.0, what="streams")
        told = _told(watcher, gateway, request)
        return StreamingResponse(told, headers=streams.HEADERS, media_type="text/event-stream")

    @routes.get("/lock")
    async def lock(gateway: Host, client: Client, name: Annotated[str, Query(min_length=1)]) -> dict[str, Any]:
        looking.check_name(name)
        gateway.demand(client, "look", name)
        found = looking.status(await gateway.locks.inspect(name))
        tenures = [
            {"fence": it.fence, "who": it.who, "first": round(it.first * 1000), "last": round(it.last * 1000)}
            for it in watcher.scene.tenures.of(name)
        ]
        may_force = gateway.options.allow_force and client.may("force", name)
        return {"lock": found.model_dump(), "tenures": tenures, "may_force": may_force}

    @routes.get("/left")
    async def left(
        gateway: Host, client: Client, name: Annotated[list[str], Query()]
    ) -> dict[str, int | None]:
        found = await looking.inspected(gateway, client, name)
        return {it.name: _left(it) for it in found if it.state == "held"}

    return routes


def _left(found: LockStatus) -> int | None:
    return None if found.ttl_left is None else milliseconds(found.ttl_left)


async def _told(watcher: Watcher, gateway: Gateway, request: Request) -> AsyncIterator[str]:
    """Tell one viewer what changes, until it leaves or the gateway ends."""
    viewer: Viewer = watcher.join()
    gateway.streams += 1
    try:
        # uvicorn says that a client has gone when it ends itself, too.
        while not gateway.draining and not await request.is_disconnected():
            if (news := viewer.take(watcher.scene)) is not None:
                kind, data = news
                yield f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
            # What it has never seen comes as fast as it can take it.
            await asyncio.sleep(0 if viewer.starting else PACE)
    finally:
        gateway.streams -= 1
        watcher.leave(viewer)
