"""Routes that show the gateway, nodes, locks and leaders, and the one that takes a lock away.

Knows the client's `nodes`, `survey`, `inspect`, `force_release` and elections, and
prometheus-client. Must not know leases.
"""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import AsyncIterator, Iterator

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from ..kit import majorities
from ..typing import Row
from . import models
from .answering import Answer, Event, stream
from .gateway import Gateway
from .identity import METRICS, Identity
from .problems import Problem, holder_of, mark
from .routing import Table

routes = Table()

STUCK = 1.0  # seconds of lag
# Seconds for which one answer surveys the nodes. Later names are then left to the next request.
LONGEST_SURVEY = 5.0
# The share of a node's time that a survey takes.
SHARE = 0.2


@routes.add("GET", "/v1/nodes")
async def list_nodes(gateway: Gateway, client: Identity) -> models.AllNodes:
    """Show how the nodes are."""
    gateway.authorize(client, "look")
    found = gateway.locks.nodes()
    _, up, needed, *_ = min(majorities(found))
    nodes = [models.NodeBody.model_validate(it) for it in found]
    return models.AllNodes(gateway=gateway.name, majority=needed, up=up, nodes=nodes)


@routes.add("GET", "/v1/locks", {200: models.AllLocks | models.TheseLocks})
async def list_locks(gateway: Gateway, client: Identity, request: Request, asked: models.Listing) -> Answer:
    """List the locks that are held and that this client may see, sorted by name.

    With `names`, show these locks instead, each as `GET /v1/locks/{name}` does. With `prefix`,
    follow the locks whose names begin with it, by events: `held` when one is held, or has another
    holder or another queue, and `free`.
    """
    for alone in {"names", "prefix"} & asked.model_fields_set:
        if others := asked.model_fields_set - {alone}:
            detail = f"`{alone}` says which locks are meant, so leave out {', '.join(sorted(others))}."
            raise Problem("malformed", detail)
    if asked.prefix is not None:
        return stream(gateway, client, request, _watched(gateway, client, asked.prefix))
    if asked.names:
        return await _inspected(gateway, client, asked.names)
    return await _surveyed(gateway, client, asked.pattern, asked.limit, asked.after)


async def _watched(gateway: Gateway, client: Identity, prefix: str) -> AsyncIterator[Event]:
    """Tell the differences between one survey and the next."""
    surveys, before = gateway.surveys, dict[str, Row]()
    while True:
        await asyncio.shield(surveys.next())
        if surveys.why:
            yield "unsure", {"detail": surveys.why}
            continue
        now = {it.name: it for it in surveys.rows.values() if it.name.startswith(prefix) and _may_see(client, it)}
        for name, row in now.items():
            if name not in before or _told(row) != _told(before[name]):
                yield "held", models.RowBody.model_validate(row).model_dump()
        for name in before.keys() - now.keys():
            yield "free", {"name": name}
        before = now


def _told(row: Row) -> tuple[object, ...]:
    return row.state, row.holder, row.fence, row.waiting, row.note


async def _inspected(gateway: Gateway, client: Identity, names: list[str]) -> models.TheseLocks:
    """Inspect several locks. The questions about all of them go to each node in one write."""
    if len(names) > models.IN_VIEW:
        detail = f"One request asks for at most {models.IN_VIEW} names, and this one for {len(names)}. Send several."
        raise Problem("malformed", detail)
    gateway.authorize(client, "look", *names)
    found = await asyncio.gather(*[gateway.locks.inspect(it) for it in dict.fromkeys(names)])
    return models.TheseLocks(locks=[models.LockBody.model_validate(it) for it in found])


async def _surveyed(gateway: Gateway, client: Identity, pattern: str, limit: int, after: str) -> models.AllLocks:
    """Survey the nodes, for some seconds at most."""
    until = time.monotonic() + LONGEST_SURVEY
    # The first names after `after`, sorted. One more than the limit tells whether there are more.
    first: list[Row] = []
    complete = True
    found = gateway.locks.survey(pattern, pause=SHARE)
    async for row in found:
        if row.name > after and _may_see(client, row):
            bisect.insort(first, row, key=lambda it: it.name)
            del first[limit + 1 :]
        if time.monotonic() > until:
            complete = False
            break
    shown = first[:limit]
    following = shown[-1].name if len(first) > limit else None
    locks = [models.RowBody.model_validate(it) for it in shown]
    return models.AllLocks(locks=locks, scanned=found.scanned, complete=complete, next=following)


def _may_see(client: Identity, row: Row) -> bool:
    return client.may("look", row.name) or (row.group is not None and client.may("look", row.group))


@routes.add("GET", "/v1/locks/{name:path}")
async def show_lock(gateway: Gateway, client: Identity, name: str) -> models.LockBody:
    """Show one lock, node by node."""
    gateway.authorize(client, "look", name)
    return models.LockBody.model_validate(await gateway.locks.inspect(name))


@routes.add(
    "DELETE", "/v1/locks/{name:path}", headers={"If-Match": "A holder in quotes, as shown by an inspection, or *"}
)
async def force_release(
    gateway: Gateway, client: Identity, request: Request, name: str, asked: models.Force
) -> models.ForcedBody:
    """Take a lock away from its holder. What it protected may still be going on."""
    name = asked.name or name
    gateway.authorize(client, "force", name)
    if_match = request.headers.get("if-match")
    if if_match is None:
        detail = 'Say whose lock it is: `If-Match: "<holder>"`, as an inspection shows it, or `If-Match: *`.'
        raise Problem("needs-if-match", detail)
    shown = if_match.strip().removeprefix('"').removesuffix('"')
    only, taken = None, 0
    if shown != "*":
        found = await gateway.locks.inspect(name)
        there = [found.holder, *[it.holder for it in found.nodes], *[it.token for it in found.readers]]
        only = next((it for it in there if it is not None and shown in (it, mark(it))), None)
    if shown == "*" or only is not None:
        taken = await gateway.locks.force_release(name, asked.reason, only=only)
    whose = "*" if shown == "*" else mark(only)
    gateway.audit.note("force", client=client.name, name=name, holder=whose, reason=asked.reason, nodes=taken)
    if not taken:
        found = await gateway.locks.inspect(name)
        if found.state == "free":
            raise Problem("free", f"Nobody holds {name!r}.", name=name)
        detail = f"Another client holds {name!r} by now. Inspect it again."
        raise Problem("not-the-holder", detail, holder=holder_of(found))
    return models.ForcedBody(name=name, nodes=taken)


@routes.add("GET", "/v1/elections/{name:path}/events", {200: "text/event-stream"})
async def follow_election(gateway: Gateway, client: Identity, request: Request, name: str) -> Response:
    """Follow who leads, as the nodes report it: first who leads now, then each change."""
    gateway.authorize(client, "look", name)
    return stream(gateway, client, request, _leaders(gateway, name))


async def _leaders(gateway: Gateway, name: str) -> AsyncIterator[Event]:
    async for found in gateway.locks.election(name).observe():
        yield "leader", models.LeaderSaid.model_validate(found).model_dump()


@routes.add("GET", "/v1/elections/{name:path}")
async def show_leader(gateway: Gateway, client: Identity, name: str) -> models.LeaderSaid:
    """Show who leads."""
    gateway.authorize(client, "look", name)
    return models.LeaderSaid.model_validate(await gateway.locks.election(name).leader())


@routes.add("GET", "/healthz", {200: models.HealthBody, 503: models.HealthBody}, public=True)
async def healthz(gateway: Gateway) -> tuple[models.HealthBody, int]:
    """Tell whether the gateway works at all. If not, start it again."""
    why = f"the event loop is {gateway.lag.late:.1f} s late" if gateway.lag.late > STUCK else ""
    return models.HealthBody(ok=not why, detail=why), 503 if why else 200


@routes.add("GET", "/readyz", {200: models.HealthBody, 503: models.HealthBody}, public=True)
async def readyz(gateway: Gateway) -> tuple[models.HealthBody, int]:
    """Tell whether the gateway can grant leases. If not, send clients elsewhere for a while."""
    why = _unready(gateway)
    return models.HealthBody(ok=not why, detail=why), 503 if why else 200


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
