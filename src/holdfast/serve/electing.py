"""Routes of elections: who leads, and who will. Candidates are leases of the kind "election".

Knows the client's elections. Must not know leases.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import APIRouter, Request, Response

from ..base.election import Leader
from . import models
from .asking import Client, Host
from .gateway import Gateway
from .looking import check_name
from .streams import Event, stream

routes = APIRouter(prefix="/v1", responses=models.PROBLEMS)


@routes.get(
    "/elections/{name:path}/events",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def events(gateway: Host, client: Client, request: Request, name: str) -> Response:
    """Follow who leads, as the nodes report it: first who leads now, then each change."""
    check_name(name)
    gateway.demand(client, "look", name)
    return stream(gateway, request, _events(gateway, name))


async def _events(gateway: Gateway, name: str) -> AsyncIterator[Event]:
    async for found in gateway.locks.election(name).observe():
        yield "leader", leader_of(found).model_dump()


@routes.get("/elections/{name:path}")
async def leader(gateway: Host, client: Client, name: str) -> models.LeaderSaid:
    """Show who leads."""
    check_name(name)
    gateway.demand(client, "look", name)
    return leader_of(await gateway.locks.election(name).leader())


def leader_of(found: Leader) -> models.LeaderSaid:
    """Return who leads, as the gateway says it."""
    return models.LeaderSaid(
        name=found.name, term=found.term, version=found.version, value=found.value, certain=found.certain
    )
