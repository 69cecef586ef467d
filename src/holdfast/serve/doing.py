"""Routes of rates, and of work that is done once. The client works; the gateway keeps the result.

Knows the client's `once` and its rates, and leases. Must not know how a result is kept.

The function that `once` runs here only waits: for the result that its client sends, for the loss of
the lease, or for its client to give up.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, NamedTuple

from pydantic import ValidationError
from starlette.requests import Request

from ..aio import Lease
from ..base.decorating import current
from ..errors import Misuse, message_of
from . import models
from .answering import Answer
from .gateway import Gateway
from .identity import Identity
from .leases import Hold
from .leasing import lease_of, part_of, settled
from .problems import Problem, milliseconds
from .routing import Table

routes = Table()


class Gone(Exception):
    """The client has given up, so that another one does the work."""


class Known(Problem):
    """The work is done already. Not a problem: it ends the lease that was asked for.

    Attributes:
        value: The result.
    """

    def __init__(self, value: Any) -> None:
        super().__init__("released", "The work is done, so this lease is not needed any more.")
        self.value = value


class Work(NamedTuple):
    """Work that a client has begun, or waits for.

    Attributes:
        outcome: What the client says came of it.
        running: Runs `once`, and returns the result as it is kept.
    """

    outcome: asyncio.Future[Any]
    running: asyncio.Task[Any]


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


# This address is asked first: the other one would take it for a key.
@routes.add("PUT", "/v1/once/{key:path}/result")
async def keep_result(gateway: Gateway, client: Identity, key: str, asked: models.Result) -> models.Done:
    """Keep the result of the work that this client has begun.

    The same request again gets the same answer.
    """
    key = asked.key or key
    gateway.demand(client, "once", key)
    hold = lease_of(gateway, client, asked.lease)
    work = hold.work
    if not isinstance(work, Work):
        hold.refuse_if_over()
        raise Problem("kind-mismatch", f"The lease {hold.id} is not for work that is done once.")
    if hold.wanted.names != [key]:
        raise Problem("kind-mismatch", f"The lease {hold.id} is for another key than {key!r}.")
    if not work.outcome.done():
        hold.refuse_if_over()
        work.outcome.set_result(asked.value)
    # The client may go while the nodes keep the result. They keep it all the same.
    value = await asyncio.shield(work.running)
    hold.give_up(True)
    return models.Done(done=True, value=value)


@routes.add("PUT", "/v1/once/{key:path}", {200: models.Done, 201: models.Held, 202: models.Waits})
async def begin_once(gateway: Gateway, client: Identity, request: Request, key: str, asked: models.Begin) -> Answer:
    """Begin the work, or get its result. After 201, do it, keep the lease, and send the result.

    The same request again gets 201, too: 200 always has the result.
    """
    key = asked.key or key
    gateway.demand(client, "once", key)
    part = secrets.token_hex(16) if asked.lease is None else part_of(gateway, asked.lease)
    if gateway.leases.found(client, part) is None:
        gateway.refuse_unless_open()
    # No lease that is asked for has this kind.
    shared = asked.model_dump(include={"ttl_ms", "wait_ms", "linger_ms", "label"})
    wanted = models.Acquire.model_construct(names=[key], kind="once", **shared)
    hold, _ = gateway.leases.put(client, part, wanted, lambda hold: _begun(gateway, hold, asked.keep_ms / 1000))
    try:
        return await settled(gateway, request, hold, asked.wait_ms / 1000, created=True)
    except Known as known:
        try:
            return models.Done(done=True, value=known.value)
        except ValidationError as error:
            # Another program has kept it.
            raise _without_result(f"{key!r}: {error.errors()[0]['msg']}") from None


@routes.add("DELETE", "/v1/once/{key:path}")
async def forget_once(gateway: Gateway, client: Identity, key: str, asked: models.Forget) -> models.Forgotten:
    """Forget the result of work, so that the next client does it again."""
    gateway.demand(client, "once", key)
    # For how long a result is kept does not matter for that.
    once = gateway.locks.once(key, keep=1, wait=asked.wait_ms / 1000, note=client.name)
    return models.Forgotten(key=key, forgotten=await once.forget())


async def _begun(gateway: Gateway, hold: Hold, keep: float) -> Lease:
    """Run `once` until it is this client that does the work.

    Raises:
        Known: The work is done.
        HoldfastError: It cannot be known whether it is done.
    """
    loop = asyncio.get_running_loop()
    leased: asyncio.Future[Lease] = loop.create_future()
    outcome: asyncio.Future[Any] = loop.create_future()

    async def function() -> Any:
        leased.set_result(current())
        while not outcome.done() and hold.state != "over":
            await asyncio.wait((outcome, hold.change), return_when=asyncio.FIRST_COMPLETED)
        if not outcome.done():
            raise Gone
        return outcome.result()

    once = gateway.locks.once(
        hold.wanted.names[0],
        keep=keep,
        ttl=hold.ttl,
        wait=None if hold.wanted.wait_ms else 0,
        renew=False,
        on_lost=hold.check,
        note=hold.note,
    )
    running = loop.create_task(once.run(function))
    # Its error was heard. Those that wait for it get it, too.
    running.add_done_callback(lambda it: it.cancelled() or it.exception())
    try:
        await asyncio.wait((running, leased), return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        running.cancel()
        raise
    if not leased.done():
        try:
            raise Known(running.result())
        except Misuse as error:
            raise _without_result(message_of(error)) from None
    hold.work = Work(outcome, running)
    return leased.result()


def _without_result(why: str) -> Problem:
    return Problem("no-result", f"{why}. `DELETE /v1/once/KEY` forgets it, and the next client does the work again.")
