"""Streams of server-sent events. What they say are hints, which no client may count on.

Knows the format. Must not know what the events are about.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from .gateway import Gateway
from .identity import Identity
from .problems import Problem

PING = 10.0  # seconds
Event = tuple[str, dict[str, Any]]
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


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
    return StreamingResponse(_lines(gateway, client, events), media_type="text/event-stream", headers=HEADERS)


async def _lines(gateway: Gateway, client: Identity, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
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
