"""The route of rates: whether a call is allowed.

Knows the client's rates. Must not know leases.
"""

from __future__ import annotations

from . import models
from .gateway import Gateway
from .identity import Identity
from .problems import Problem, milliseconds
from .routing import Table

routes = Table()


@routes.add("POST", "/v1/rates/{name:path}/take")
async def take_rate(gateway: Gateway, client: Identity, name: str, asked: models.Take) -> models.Taken:
    """Ask for one call, and count it if it is allowed."""
    name = asked.name or name
    gateway.demand(client, "rate", name)
    found = await gateway.locks.rate(name, asked.limit, asked.period_ms / 1000, key=asked.key).take(asked.cost)
    if not found:
        wait = milliseconds(found.retry_after)
        detail = f"{name!r} is used up: {asked.limit} in {asked.period_ms} ms are allowed."
        raise Problem("rate-limited", detail, after=found.retry_after, name=name, retry_after_ms=wait)
    return models.Taken(allowed=True, remaining=found.remaining, reset_after_ms=milliseconds(found.reset_after))
