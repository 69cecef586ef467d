"""What routes ask of a request: the gateway, the client that it is from, and its body.

Knows FastAPI's dependencies. Must not know any route.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, get_type_hints

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

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
        address = request.client.host if request.client else None
        instance = request.scope["holdfast.instance"]
        (await gateway_of(request)).audit.note("unauthenticated", address=address, request=instance)
        sent = "does not know the token that was sent" if "authorization" in request.headers else "asks who you are"
        raise Problem("unauthenticated", f"This gateway {sent}. Send one that it knows: `Authorization: Bearer ...`.")
    return client


Host = Annotated[Gateway, Depends(gateway_of)]
Client = Annotated[Identity, Depends(client_of)]


class Direct(APIRoute):
    """A route that FastAPI documents, but resolves only if a request is not as it should be.

    FastAPI resolves the arguments of a route again for each request, which costs as much as the
    rest of a keepalive. This route passes on the gateway, the client, the request, the parts of the
    path and the body. A request that has a query, or a body that is not valid, is left to FastAPI.
    The gate has refused bodies that are not JSON.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what handles a request.

        Raises:
            TypeError: The route asks for something else.
        """
        thorough, endpoint = super().get_route_handler(), self.endpoint
        hints = get_type_hints(endpoint)
        queries = {it.name for it in self.dependant.query_params}
        known = {"gateway", "client", "request", "asked", "return", *self.param_convertors, *queries}
        if unknown := hints.keys() - known:
            raise TypeError(f"{self.path} asks for {', '.join(sorted(unknown))}, which a direct route does not know")
        model = hints.get("asked")
        whole = "request" in hints

        async def handle(request: Request) -> Response:
            if request.scope["query_string"]:
                return await thorough(request)
            found: dict[str, Any] = dict(request.path_params)
            if model is not None:
                try:
                    found["asked"] = model.model_validate_json(await request.body())
                except (ValidationError, ClientDisconnect):
                    return await thorough(request)
            if whole:
                found["request"] = request
            answer = await endpoint(gateway=await gateway_of(request), client=await client_of(request), **found)
            if isinstance(answer, Response):
                return answer
            return Response(answer.model_dump_json(), media_type="application/json")

        return handle
