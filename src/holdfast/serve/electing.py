"""Routes of elections: who leads, and who will. Candidates are leases of the kind "election".

Knows the client's elections. Must not know leases.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response

from . import models
from .gateway import Gateway
from .identity import Identity
from .routing import Table
from .streams import Event, stream

routes = Table()


@routes.add("GET", "/v1/elections/{name:path}/events", {200: "text/event-stream"})
async def follow_election(gateway: Gateway, client: Identity, request: Request, name: str) -> Response:
    """Follow who leads, as the nodes report it: first who leads now, then each change."""
    gateway.demand(client, "look", name)
    return stream(gateway, client, request, _events(gateway, name))


async def _events(gateway: Gateway, name: str) -> AsyncIterator[Event]:
    async for found in gateway.locks.election(name).observe():
        yield "leader", models.LeaderSaid.model_validate(found).model_dump()


@routes.add("GET", "/v1/elections/{name:path}")
async def show_leader(gateway: Gateway, client: Identity, name: str) -> models.LeaderSaid:
    """Show who leads."""
    gateway.demand(client, "look", name)
    return models.LeaderSaid.model_validate(await gateway.locks.election(name).leader())
