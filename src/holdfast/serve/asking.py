"""What routes ask of a request: the gateway, and the client that it is from.

Knows FastAPI's dependencies. Must not know any route.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from .gateway import Gateway
from .identity import Identity
from .problems import Problem


async def gateway_of(request: Request) -> Gateway:
    """Return the gateway that got this request."""
    gateway: Gateway = request.app.state.gateway
    return gateway


async def client_of(request: Request) -> Identity:
    """Return the client that this request is from.

    Raises:
        Problem: unauthenticated.
    """
    client: Identity | None = request.scope["holdfast.client"]
    if client is None:
        (await gateway_of(request)).audit.note("unauthenticated")
        sent = "does not know the token that was sent" if "authorization" in request.headers else "asks who you are"
        raise Problem("unauthenticated", f"This gateway {sent}. Send one that it knows: `Authorization: Bearer ...`.")
    return client


Host = Annotated[Gateway, Depends(gateway_of)]
Client = Annotated[Identity, Depends(client_of)]
