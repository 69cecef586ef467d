"""Routes that show nodes and locks, and the one that takes a lock away.

Knows the client's `nodes`, `survey`, `inspect` and `force_release`. Must not know leases.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request

from ..engine.status import NodeStatus, majorities
from ..errors import message_of
from ..recipes import inspection, survey
from . import models
from .asking import Client, Host
from .gateway import Gateway
from .identity import Identity
from .problems import Problem, milliseconds

routes = APIRouter(prefix="/v1", responses=models.PROBLEMS)

# Seconds for which one answer surveys the nodes. Later names are then left to the next request.
LONGEST_SURVEY = 5.0
# The share of a node's time that a survey takes.
SHARE = 0.2
# Names of one question about several locks: as many rows as a page shows.
IN_VIEW = 60


@routes.get("/nodes")
async def nodes(gateway: Host, client: Client) -> models.AllNodes:
    """Show how the nodes are."""
    gateway.demand(client, "look", "*")
    found = gateway.locks.nodes()
    _, up, needed, *_ = min(majorities(found))
    return models.AllNodes(
        gateway=gateway.name,
        majority=needed,
        up=up,
        nodes=[node(it) for it in found],
    )


def node(status: NodeStatus) -> models.Node:
    """Return a node's state as the gateway says it."""
    guard, uptime, rtt, ahead = status.guard_left, status.uptime, status.rtt, status.ahead
    return models.Node(
        node=status.node,
        state=status.state,
        cause=None if status.cause is None else message_of(status.cause),
        version=status.version,
        shard=status.shard,
        guard_left_ms=None if guard is None else milliseconds(guard),
        since_ms=milliseconds(status.since),
        uptime_ms=None if uptime is None else milliseconds(uptime),
        rtt_us=None if rtt is None else int(rtt * 1e6),
        ahead_ms=None if ahead is None else int(ahead * 1000),
        owing=status.owing,
        warnings=list(status.warnings),
    )


@routes.get("/locks")
async def locks(
    gateway: Host,
    client: Client,
    request: Request,
    names: Annotated[list[str], Query(default_factory=list, json_schema_extra={"maxItems": IN_VIEW})],
    pattern: Annotated[str, Query(min_length=1, max_length=512)] = "*",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[str, Query(max_length=models.LONGEST_NAME)] = "",
) -> models.AllLocks | models.TheseLocks:
    """List the locks that are held and that this client may see, sorted by name.

    With `names`, show these locks instead, each as `GET /v1/locks/{name}` does.
    """
    if names:
        if others := set(request.query_params) - {"names"}:
            detail = f"`names` asks for these locks and no others, so leave out {', '.join(sorted(others))}."
            raise Problem("malformed", detail)
        return models.TheseLocks(locks=[status(it) for it in await inspected(gateway, client, names)])
    return await _surveyed(gateway, client, pattern, limit, after)


async def inspected(gateway: Gateway, client: Identity, names: list[str]) -> list[inspection.LockStatus]:
    """Inspect several locks. The questions about all of them go to each node in one write.

    Args:
        gateway: The gateway.
        client: Who asks. It needs the scope for each of them.
        names: The names. One that comes twice is inspected once.

    Raises:
        Problem: There are too many; one is too long; or the client may not see one.
    """
    if len(names) > IN_VIEW:
        detail = f"One request asks for at most {IN_VIEW} names, and this one for {len(names)}. Send several."
        raise Problem("malformed", detail)
    for name in names:
        check_name(name)
    gateway.demand(client, "look", *names)
    return await asyncio.gather(*[gateway.locks.inspect(it) for it in dict.fromkeys(names)])


async def _surveyed(gateway: Gateway, client: Identity, pattern: str, limit: int, after: str) -> models.AllLocks:
    """Survey the nodes, for some seconds at most."""
    until = time.monotonic() + LONGEST_SURVEY
    # The first names after `after`, sorted. One more than the limit tells whether there are more.
    first: list[survey.Row] = []
    complete = True
    found = gateway.locks.survey(pattern, pause=SHARE)
    async for row in found:
        if row.name > after and _may_see(client, row):
            first.append(row)
            if len(first) > 4 * limit:
                first = heapq.nsmallest(limit + 1, first, key=lambda it: it.name)
        if time.monotonic() > until:
            complete = False
            break
    first = heapq.nsmallest(limit + 1, first, key=lambda it: it.name)
    shown = first[:limit]
    following = shown[-1].name if len(first) > limit else None
    return models.AllLocks(locks=[line(it) for it in shown], scanned=found.scanned, complete=complete, next=following)


def _may_see(client: Identity, row: survey.Row) -> bool:
    return client.may("look", row.name) or (row.group is not None and client.may("look", row.group))


def line(row: survey.Row) -> models.Row:
    """Return one lock of a survey as the gateway says it."""
    return models.Row(
        name=row.name,
        kind=row.kind,
        group=row.group,
        slot=row.slot,
        state=row.state,
        holder=row.holder,
        owner=row.owner,
        note=row.note,
        left_ms=None if row.left is None else milliseconds(row.left),
        fence=row.fence,
        waiting=row.waiting,
        waits_since=moment(row.waits_since),
        nodes=row.nodes,
        asked=moment(row.asked),
    )


def moment(at: datetime | None) -> str | None:
    """Return a time as RFC 3339 has it, in UTC."""
    return None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@routes.get("/locks/{name:path}")
async def inspect(gateway: Host, client: Client, name: str) -> models.Lock:
    """Show one lock, node by node."""
    check_name(name)
    gateway.demand(client, "look", name)
    return status(await gateway.locks.inspect(name))


def status(found: inspection.LockStatus) -> models.Lock:
    """Return the state of a lock as the gateway says it."""
    return models.Lock(
        name=found.name,
        state=found.state,
        holder=found.holder,
        owner=found.owner,
        note=found.note,
        asked=moment(found.asked),
        left_ms=None if found.ttl_left is None else milliseconds(found.ttl_left),
        fence=found.fence,
        queue=[_waiting(it) for it in found.queue],
        readers=[_waiting(it) for it in found.readers],
        nodes=[
            models.OnNode(
                node=it.node,
                error=None if it.error is None else message_of(it.error),
                holder=it.holder,
                left_ms=None if it.ttl_left is None else milliseconds(it.ttl_left),
                fence=it.fence,
                waiting=it.waiting,
            )
            for it in found.nodes
        ],
    )


def _waiting(it: inspection.Waiter | inspection.Reader) -> models.Waiting:
    left = milliseconds(it.left)
    return models.Waiting(token=it.token, owner=it.owner, asked=moment(it.asked), left_ms=left, nodes=it.nodes)


@routes.delete("/locks/{name:path}")
async def force(
    gateway: Host,
    client: Client,
    name: str,
    asked: models.Force,
    if_match: Annotated[str | None, Header()] = None,
) -> models.Forced:
    """Take a lock away from its holder. What it protected may still be going on."""
    name = asked.name or name
    check_name(name)
    gateway.demand(client, "force", name)
    if if_match is None:
        detail = 'Say whose lock it is: `If-Match: "<token>"`, as an inspection shows it, or `If-Match: *`.'
        raise Problem("needs-if-match", detail)
    only = None if if_match.strip() == "*" else if_match.strip().removeprefix('"').removesuffix('"')
    taken = await gateway.locks.force_release(name, asked.reason, only=only)
    gateway.audit.note(
        "force", client=client.name, name=name, token=only or "*", reason=asked.reason, nodes=taken
    )
    if not taken:
        await _explain(gateway, name)
    return models.Forced(name=name, nodes=taken)


async def _explain(gateway: Host, name: str) -> None:
    """Say why nothing was taken away."""
    found = await gateway.locks.inspect(name)
    if found.state == "free":
        raise Problem("free", f"Nobody holds {name!r}.", name=name)
    left = None if found.ttl_left is None else milliseconds(found.ttl_left)
    holder = {"token": found.holder, "owner": found.owner, "note": found.note, "left_ms": left}
    raise Problem("not-the-holder", f"Another client holds {name!r} by now. Inspect it again.", holder=holder)


def check_name(name: str) -> None:
    """Refuse a name that is too long.

    Raises:
        Problem: name-too-long.
    """
    size = len(name.encode())
    if size > models.LONGEST_NAME:
        raise Problem("name-too-long", f"A name has at most {models.LONGEST_NAME} bytes, and this one has {size}.")
