"""Routes of leases, of rates, and of work that is done once.

Knows requests and answers. Must not know how a lease is acquired: `leases` does.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from .. import LeaseState
from ..aio import Leadership
from ..errors import HoldfastError
from . import models
from .answering import Answer, Event, stream
from .gateway import Gateway
from .identity import EVERYBODY, Identity, arrived_of
from .leases import BEATS, VERBS, Hold, Wanted
from .models import LEASE_ID, HeldBody, Released, Waits
from .once import Known, begun, keep, without_result
from .peers import HOP, left
from .problems import LeaseElsewhere, Problem, holder_of, milliseconds
from .routing import Table, counted_as

routes = Table()
# What a lease is for its client.
_EITHER = {200: HeldBody, 202: Waits}

# Seconds for which an answer to a waiter looks for who is before it.
LONGEST_LOOK = 1.0
# Seconds for which a try may take. The client of the nodes gives up earlier.
LONGEST_TRY = 60.0


@routes.add("PUT", "/v1/leases/{lease_id}", {200: HeldBody, 201: HeldBody, 202: Waits})
async def acquire(gateway: Gateway, client: Identity, request: Request, lease_id: str, asked: models.Acquire) -> Answer:
    """Acquire a lease, or wait on for it. The same request again has the same effect as one."""
    gateway.authorize(client, VERBS[asked.kind], *asked.names)
    part = part_of(gateway, lease_id)
    if gateway.leases.found(client, part) is None:
        gateway.refuse_unless_open()
    hold, new = gateway.leases.put(client, part, asked.wanted())
    return await settled(gateway, request, hold, asked.wait_ms / 1000, new)


def part_of(gateway: Gateway, lease_id: str) -> str:
    """Return the client's part of a lease's id.

    Raises:
        Problem: It is no id; or it belongs to another gateway, and this one knows no others.
        LeaseElsewhere: It belongs to another gateway.
    """
    if re.fullmatch(LEASE_ID, lease_id) is None:
        detail = "The id of a lease is 16 to 64 letters, digits, `-` or `_`. Make it unguessable."
        raise Problem("invalid", detail, errors=[{"pointer": "path.lease_id", "detail": detail}])
    name, _, part = lease_id.rpartition(".")
    if name not in ("", gateway.name):
        if gateway.peers is not None:
            raise LeaseElsewhere(name)
        raise Problem("unknown-lease", f"This gateway has no lease {lease_id}. It may have been another gateway's.")
    return part


def lease_of(gateway: Gateway, client: Identity, lease_id: str) -> Hold:
    """Return the lease of this id.

    Raises:
        Problem: unknown-lease; also if it is another client's.
        LeaseElsewhere: It is another gateway's.
    """
    hold = gateway.leases.found(client, part_of(gateway, lease_id))
    if hold is None:
        raise Problem("unknown-lease", f"This gateway has no lease {lease_id} of {client.name}.")
    hold.heard()
    return hold


async def settled(gateway: Gateway, request: Request, hold: Hold, wait: float, created: bool) -> Answer:
    """Wait until a lease is held or over, and answer what it is then.

    Args:
        gateway: The gateway.
        request: The request. If its client goes, the wait ends.
        hold: The lease.
        wait: Seconds to wait at most. 0: a try, which takes as long as the nodes take.
        created: Answer 201, and not 200, if it is held.
    """
    if hold.state == "waiting":
        await changed(request, hold, wait if hold.wanted.wait_ms else LONGEST_TRY)
    hold.heard()
    hold.refuse_if_over()
    return await either(gateway, hold, 201 if created else 200)


async def either(gateway: Gateway, hold: Hold, status: int = 200) -> Answer:
    """Answer with a lease that is held, or waited for."""
    return (held(hold), status) if hold.state == "held" else (await waits(gateway, hold), 202)


async def changed(request: Request, hold: Hold, wait: float) -> None:
    """Wait until a lease changes, the client goes, or the time is over.

    Raises:
        ClientDisconnect: The client has gone, so that nobody gets an answer.
    """
    arrived_of(request.scope).known(hold.client.name)
    with hold.listening():
        gone = asyncio.ensure_future(left(request))
        try:
            await asyncio.wait((hold.change, gone), timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise ClientDisconnect
            hold.heard()
        finally:
            gone.cancel()


def held(hold: Hold) -> HeldBody:
    """Return what is said of a lease that is held. `valid_ms` is as of now."""
    lease = hold.lease
    assert lease is not None
    fences = lease.fences
    # Several names have several fences, and no client should take one of them for that of all.
    ttl = milliseconds(hold.ttl)
    return HeldBody(
        id=hold.id, state="held", names=list(hold.wanted.names), kind=hold.wanted.kind,
        fence=next(iter(fences.values())) if len(fences) == 1 else None, fences=fences, slots=list(lease.slots),
        valid_ms=hold.valid_ms, ttl_ms=ttl, keepalive_ms=ttl // BEATS, waited_ms=milliseconds(lease.waited),
        contended=lease.contended, doubt=lease.state is LeaseState.DOUBT, votes=lease.votes,
    )  # fmt: skip


async def waits(gateway: Gateway, hold: Hold) -> Waits:
    """Return what is said of a lease that is waited for: also who holds it, if the nodes tell."""
    place, holder = None, None
    name = hold.wanted.names[0] + ("[election]" if hold.wanted.kind == "election" else "")
    if hold.wanted.kind not in ("permit", "once"):
        # It only informs. Without it, the place in line is the same.
        with suppress(HoldfastError, TimeoutError):
            async with asyncio.timeout(LONGEST_LOOK):
                found = await gateway.locks.inspect(name)
            holder = models.HolderBody(**holder_of(found))
            place = gateway.leases.place(hold, [it.owner for it in found.queue])
    return Waits(
        id=hold.id, state="waiting", names=list(hold.wanted.names), kind=hold.wanted.kind, place=place,
        linger_ms=hold.wanted.linger_ms, holder=holder,
    )  # fmt: skip


@routes.add("POST", "/v1/leases/{lease_id}/keepalive", _EITHER, urgent=True)
async def keepalive(gateway: Gateway, client: Identity, lease_id: str, asked: models.Keepalive) -> Answer:
    """Extend a lease. Nobody else does: send this every `keepalive_ms`."""
    hold = lease_of(gateway, client, lease_id)
    await hold.extend(asked.ttl_ms)
    return await either(gateway, hold)


@routes.add("DELETE", "/v1/leases/{lease_id}", urgent=True)
async def release(gateway: Gateway, client: Identity, lease_id: str, asked: models.Release) -> Released:
    """Release a lease, or stop waiting for it. The same again gets the same answer for 60 s."""
    hold = lease_of(gateway, client, lease_id)
    await hold.release(asked.confirm)
    return Released(id=hold.id, state="released", confirmed=hold.confirmed)


@routes.add("POST", "/v1/keepalive", urgent=True)
async def keepalive_of_many(
    gateway: Gateway, client: Identity, request: Request, asked: models.KeepaliveOfMany
) -> models.Beats:
    """Extend many leases, in one write to each node."""
    asked_for = list(dict.fromkeys(asked.leases))
    # The request itself has counted for one.
    if len(asked_for) > 1:
        gateway.refuse_too_many(counted_as(client, request.scope), len(asked_for) - 1)
    peers = None if HOP in request.headers else gateway.peers
    by_gateway = defaultdict[str, list[str]](list)
    for it in asked_for:
        by_gateway[it.rpartition(".")[0]].append(it)
    beats = await asyncio.gather(
        *[
            asyncio.gather(*[_beat(gateway, client, it, asked.ttl_ms) for it in leases])
            if peers is None or name in ("", gateway.name)
            else peers.keepalive(request, name, leases, asked.ttl_ms)
            for name, leases in by_gateway.items()
        ]
    )
    found = {beat.id: beat for some in beats for beat in some}
    return models.Beats(leases=[found[it] for it in asked_for])


async def _beat(gateway: Gateway, client: Identity, lease_id: str, ttl_ms: int | None) -> models.Beat:
    """Extend one lease of this gateway, and return what that brought."""
    name, _, part = lease_id.rpartition(".")
    hold = gateway.leases.found(client, part) if name in ("", gateway.name) else None
    if hold is None:
        return models.Beat(id=lease_id, state="unknown", valid_ms=0)
    state: Any
    try:
        await hold.extend(ttl_ms)
        state, detail = ("waiting" if hold.state == "waiting" else "held"), ""
    except Problem as end:
        state = end.kind if end.kind in ("in-doubt", "lost", "released", "invalid") else "lost"
        detail = end.detail
    return models.Beat(id=lease_id, state=state, valid_ms=hold.valid_ms, detail=detail)


@routes.add("GET", "/v1/leases")
async def list_leases(gateway: Gateway, client: Identity) -> models.AllKept:
    """List this client's leases. With the scope `look:*`, list those of all, without their ids."""
    found = [it for it in gateway.leases if it.client.name == client.name or client.everywhere("look")]
    return models.AllKept(gateway=gateway.name, leases=[_kept(it, client) for it in found])


def _kept(hold: Hold, client: Identity) -> models.KeptBody:
    # Where everybody is one client, an id would be everybody's.
    own = hold.client.name == client.name and client is not EVERYBODY
    return models.KeptBody(
        id=hold.id if own else None, client=hold.client.name, state="waiting" if hold.state == "waiting" else "held",
        names=list(hold.wanted.names), kind=hold.wanted.kind, label=hold.wanted.label,
        age_ms=milliseconds(asyncio.get_running_loop().time() - hold.began), valid_ms=hold.valid_ms,
    )  # fmt: skip


@routes.add("GET", "/v1/leases/{lease_id}", _EITHER)
async def show_lease(gateway: Gateway, client: Identity, request: Request, lease_id: str, asked: models.Show) -> Answer:
    """Show a lease without extending it. With `wait_ms`, wait for a change first."""
    hold = lease_of(gateway, client, lease_id)
    hold.refuse_if_over()
    if asked.wait_ms:
        await changed(request, hold, asked.wait_ms / 1000)
        hold.refuse_if_over()
    return await either(gateway, hold)


@routes.add("GET", "/v1/leases/{lease_id}/events", {200: "text/event-stream"})
async def follow_lease(gateway: Gateway, client: Identity, request: Request, lease_id: str) -> Response:
    """Follow a lease. These are hints: only answers to requests say for how long it is valid."""
    return stream(gateway, client, request, _events(lease_of(gateway, client, lease_id)))


async def _events(hold: Hold) -> AsyncIterator[Event]:
    before = ""
    while True:
        change, now = hold.change, _state(hold)
        if now == before:
            await asyncio.wait((change,))
            continue
        before = now
        reason = {} if hold.problem is None else {"reason": hold.problem.facts.get("reason", hold.problem.kind)}
        yield now, {"id": hold.id, **reason}
        if hold.state == "over":
            return


def _state(hold: Hold) -> str:
    """The state of a lease as its events call it."""
    hold.check()
    if hold.state == "over":
        return "released" if hold.problem is None else "lost"
    if hold.state == "held" and hold.lease is not None and hold.lease.state is LeaseState.DOUBT:
        return "doubt"
    return hold.state


@routes.add("POST", "/v1/leases/{lease_id}/publish")
async def publish(gateway: Gateway, client: Identity, lease_id: str, asked: models.Publish) -> HeldBody:
    """Announce another value of the leader."""
    hold = lease_of(gateway, client, lease_id)
    hold.refuse_if_over()
    if not isinstance(hold.lease, Leadership):
        raise Problem("kind-mismatch", f"The lease {hold.id} does not lead: it is {hold.state}, {hold.wanted.kind}.")
    await hold.lease.publish(asked.value)
    hold.refuse_if_over()
    return held(hold)


@routes.add("POST", "/v1/rates/{name:path}/take")
async def take_rate(gateway: Gateway, client: Identity, name: str, asked: models.Take) -> models.Taken:
    """Ask for one call, and count it if it is allowed."""
    name = asked.name or name
    gateway.authorize(client, "rate", name)
    found = await gateway.locks.rate(name, asked.limit, asked.period_ms / 1000, key=asked.key).take(asked.cost)
    if not found:
        wait = milliseconds(found.retry_after)
        detail = f"{name!r} is used up: {asked.limit} in {asked.period_ms} ms are allowed."
        raise Problem("rate-limited", detail, after=found.retry_after, name=name, retry_after_ms=wait)
    return models.Taken(allowed=True, remaining=found.remaining, reset_after_ms=milliseconds(found.reset_after))


# This address is asked first: the other one would take it for a key.
@routes.add("PUT", "/v1/once/{key:path}/result")
async def keep_result(gateway: Gateway, client: Identity, key: str, asked: models.ResultBody) -> models.Done:
    """Keep the result of the work that this client has begun.

    The same request again gets the same answer.
    """
    key = asked.key or key
    gateway.authorize(client, "once", key)
    hold = lease_of(gateway, client, asked.lease)
    return models.Done(done=True, value=await keep(hold, key, asked.value))


@routes.add("PUT", "/v1/once/{key:path}", {200: models.Done, 201: models.HeldBody, 202: models.Waits})
async def begin_once(gateway: Gateway, client: Identity, request: Request, key: str, asked: models.Begin) -> Answer:
    """Begin the work, or get its result. After 201, do it, keep the lease, and send the result.

    The same request again gets 201, too: 200 always has the result.
    """
    key = asked.key or key
    gateway.authorize(client, "once", key)
    part = secrets.token_hex(16) if asked.lease is None else part_of(gateway, asked.lease)
    if gateway.leases.found(client, part) is None:
        gateway.refuse_unless_open()
    shared = asked.model_dump(include={"ttl_ms", "wait_ms", "linger_ms", "label"})
    wanted = Wanted(names=(key,), kind="once", **shared)
    hold, _ = gateway.leases.put(client, part, wanted, lambda hold: begun(gateway.locks, hold, asked.keep_ms / 1000))
    try:
        return await settled(gateway, request, hold, asked.wait_ms / 1000, created=True)
    except Known as known:
        try:
            return models.Done(done=True, value=known.value)
        except ValidationError as error:
            # Another program has kept it.
            raise without_result(f"{key!r}: {error.errors()[0]['msg']}") from None


@routes.add("DELETE", "/v1/once/{key:path}")
async def forget_once(gateway: Gateway, client: Identity, key: str, asked: models.Forget) -> models.Forgotten:
    """Forget the result of work, so that the next client does it again."""
    gateway.authorize(client, "once", key)
    # For how long a result is kept does not matter for that.
    once = gateway.locks.once(key, keep=1, wait=asked.wait_ms / 1000, note=client.name)
    return models.Forgotten(key=key, forgotten=await once.forget())
