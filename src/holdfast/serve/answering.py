"""Answers and problems: in JSON, in lines for a shell if the client prefers text, or in streams.

Knows Starlette's responses, and the format of server-sent events. Must not know routes, or what the
events are about. What events say are hints, which no client may count on.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Scope

from ..fencing.http import FENCING_TOKEN, header_of
from .gateway import Gateway
from .identity import Identity
from .models import HeldBody
from .problems import Problem

TEXT = "text/plain; charset=utf-8"
PING = 10.0  # seconds
Event = tuple[str, dict[str, Any]]
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
# What a route returns: a model, perhaps with a status.
Answer = Response | BaseModel | tuple[BaseModel, int]


def said(scope: Scope, answer: Answer) -> Response:
    """Return the response for what a route has returned."""
    if isinstance(answer, Response):
        return answer
    body, status = (answer, 200) if isinstance(answer, BaseModel) else answer
    headers = {"cache-control": "no-store"}
    fences = header_of(body.fences) if isinstance(body, HeldBody) and body.fences else ""
    if fences:
        headers[FENCING_TOKEN] = fences
    if _prefers_text(scope):
        facts = body.model_dump() | ({"fencing_token": fences} if fences else {})
        return Response(lines(facts), status, headers, TEXT)
    return Response(body.model_dump_json(), status, headers, "application/json")


def respond(scope: Scope, problem: Problem) -> Response:
    """Return the response for a problem."""
    found, headers = problem.document(scope["holdfast.instance"]), problem.headers()
    if _prefers_text(scope):
        # In zsh, nobody may set `status`.
        found["code"], found["state"] = found.pop("status"), problem.kind
        return Response(lines(found), problem.status, {**headers, "content-type": TEXT})
    return Response(json.dumps(found), problem.status, headers)


def _prefers_text(scope: Scope) -> bool:
    return any(name == b"accept" and value.startswith(b"text/plain") for name, value in scope["headers"])


def lines(facts: dict[str, Any]) -> str:
    """Write facts as lines of key=value that a shell can `eval`. Lists and tables are left out."""
    plain = {key: value for key, value in facts.items() if not isinstance(value, list | dict)}
    return "".join(f"{key}={_shell(value)}\n" for key, value in plain.items() if key.isidentifier())


def _shell(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return shlex.quote("" if value is None else str(value))


def stream(gateway: Gateway, client: Identity, request: Request, events: AsyncIterator[Event]) -> Response:
    """Answer with a stream of events, until they end, the client goes, or the gateway drains.

    Args:
        gateway: The gateway.
        client: The client. If its entry in the file of tokens changes, the stream ends.
        request: The request.
        events: Pairs of a name and what is known. The next one is asked for when the last one was
            sent, so a slow client misses some and fills no memory.

    Raises:
        Problem: too-many.
    """
    own = sum(it.name == client.name for it in gateway.streams.values())
    if own >= gateway.options.max_streams or len(gateway.streams) >= gateway.options.max_streams_in_all:
        raise Problem("too-many", f"{client.name} has as many streams as it may have.", after=5.0, what="streams")
    if request.method == "HEAD":
        return Response(headers=HEADERS, media_type="text/event-stream")
    return StreamingResponse(_events(gateway, client, events), media_type="text/event-stream", headers=HEADERS)


async def _events(gateway: Gateway, client: Identity, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    coming: asyncio.Task[Event] | None = None
    over = asyncio.Event()
    gateway.streams[over] = client
    # The client may have been revoked, or the drain have begun, before the first line was asked for.
    gateway.end_streams()
    ending = asyncio.ensure_future(over.wait())
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(events))
            await asyncio.wait((coming, ending), timeout=PING, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                if gateway.draining:
                    yield b"event: draining\ndata: {}\n\n"
                return
            if not coming.done():
                yield b": ping\n\n"
                continue
            try:
                name, facts = coming.result()
            except StopAsyncIteration:
                return
            coming = None
            yield f"event: {name}\ndata: {json.dumps(facts)}\n\n".encode()
    finally:
        del gateway.streams[over]
        ending.cancel()
        if coming is not None:
            coming.cancel()
