"""Routes for those that watch the gateway: whether it lives, whether it is ready, and its metrics.

Knows the gateway, and prometheus-client. Must not know requests.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.responses import Response

from ..engine.status import majorities
from . import models
from .gateway import Gateway
from .identity import METRICS, Identity
from .problems import Problem
from .routing import Table

routes = Table()

STUCK = 1.0  # seconds of lag


@routes.add("GET", "/healthz", {200: models.Health, 503: models.Health}, public=True)
async def healthz(gateway: Gateway) -> tuple[models.Health, int]:
    """Tell whether the gateway works at all. If not, start it again."""
    lag = gateway.lag.late
    if lag > STUCK:
        return models.Health(ok=False, detail=f"the event loop is {lag:.1f} s late"), 503
    return models.Health(ok=True, detail=""), 200


@routes.add("GET", "/readyz", {200: models.Health, 503: models.Health}, public=True)
async def readyz(gateway: Gateway) -> tuple[models.Health, int]:
    """Tell whether the gateway can grant leases. If not, send clients elsewhere for a while."""
    why = _unready(gateway)
    return models.Health(ok=not why, detail=why), 503 if why else 200


def _unready(gateway: Gateway) -> str:
    if gateway.draining:
        return "the gateway is about to end"
    if not gateway.findable:
        return "its address is not announced to the other gateways yet"
    if gateway.busy:
        return f"the event loop is {gateway.lag.late:.2f} s late"
    return next((it.why for it in majorities(gateway.locks.nodes()) if it.why), "")


@routes.add("GET", "/metrics", {200: "text/plain"}, anywhere=True)
async def metrics(gateway: Gateway, client: Identity) -> Response:
    """Show the metrics of the gateway, for Prometheus."""
    if METRICS not in client.scopes:
        gateway.audit.note("forbidden", client=client.name, scope="metrics")
        raise Problem("forbidden", f"{client.name} lacks the scope metrics.", scope="metrics")
    registries = [it for it in (_Metrics(gateway), gateway.options.registry) if it is not None]
    return Response(b"".join(map(generate_latest, registries)), media_type=CONTENT_TYPE_LATEST)


class _Metrics(Collector):
    """What a gateway counts, in Prometheus' own format."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Return the metrics as they are now."""
        gateway = self._gateway
        answers = CounterMetricFamily("holdfast_gateway_responses", "Answers to requests.", labels=["status"])
        for status, count in gateway.answers.items():
            answers.add_metric([str(status)], count)
        yield answers
        leases = GaugeMetricFamily("holdfast_gateway_leases", "Leases of clients of the gateway.", labels=["state"])
        waiting = gateway.leases.waiting
        leases.add_metric(["held"], len(gateway.leases) - waiting)
        leases.add_metric(["waiting"], waiting)
        yield leases
        yield GaugeMetricFamily("holdfast_gateway_streams", "Open event streams.", len(gateway.streams))
        yield GaugeMetricFamily("holdfast_gateway_lag_seconds", "How late the event loop is.", gateway.lag.late)
