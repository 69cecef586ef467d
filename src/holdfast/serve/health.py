"""Routes for those that watch the gateway: whether it lives, whether it is ready, and its metrics.

Knows the gateway. Must not know leases.
"""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from ..engine.status import majorities
from . import models
from .asking import Client, Host
from .gateway import Gateway
from .problems import Problem

routes = APIRouter(responses=models.PROBLEMS)

STUCK = 1.0  # seconds of lag


@routes.get("/healthz", responses={503: {"model": models.Health}})
async def healthz(gateway: Host, response: Response) -> models.Health:
    """Tell whether the gateway works at all. If not, start it again."""
    lag = gateway.lag.late
    if lag > STUCK:
        response.status_code = 503
        return models.Health(ok=False, detail=f"the event loop is {lag:.1f} s late")
    return models.Health(ok=True, detail="")


@routes.get("/readyz", responses={503: {"model": models.Health}})
async def readyz(gateway: Host, response: Response) -> models.Health:
    """Tell whether the gateway can grant leases. If not, send clients elsewhere for a while."""
    why = _unready(gateway)
    response.status_code = 503 if why else 200
    return models.Health(ok=not why, detail=why)


def _unready(gateway: Gateway) -> str:
    if gateway.draining:
        return "the gateway is about to end"
    if not gateway.findable:
        return "its address is not announced to the other gateways yet"
    if gateway.busy:
        return f"the event loop is {gateway.lag.late:.2f} s late"
    return next((it.why for it in majorities(gateway.locks.nodes()) if it.why), "")


@routes.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(gateway: Host, client: Client) -> Response:
    """Show the metrics of the gateway, for Prometheus."""
    if not client.counts:
        gateway.audit.note("forbidden", client=client.name, scope="metrics")
        raise Problem("forbidden", f"{client.name} lacks the scope metrics.", scope="metrics")
    return Response(gateway.metering.text(gateway.options.registry), media_type=CONTENT_TYPE_LATEST)
