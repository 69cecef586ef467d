"""Forwards a request to the gateway that has its lease, once, with the caller's own token.

Knows HTTP, and where other gateways are. Must not know what a request is about.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..errors import ConfigError, NoQuorum
from . import models
from .peers import Peers, gone
from .problems import Problem

# Says that a request was forwarded, so that it is not forwarded again.
HOP = "holdfast-hop"
ASKED = ("authorization", "accept", "content-type", "if-match")
SAID = ("content-type", "cache-control", "fencing-token", "retry-after", "www-authenticate", "x-accel-buffering")
CONNECT = 2.0  # seconds
# Seconds between two bytes of an answer. The longest wait of a request has 60, and its client has
# its own patience.
ANSWER = 75.0
# Seconds for the leases of another gateway in a request that keeps many. Leases of this one must
# not wait longer for them.
BEAT = 1.0


class Forwarding:
    """Requests to other gateways.

    Args:
        peers: Where they are.
        authority: A file with the authorities of their certificates. None: those of the system.

    Raises:
        ConfigError: The file cannot be used.
    """

    def __init__(self, peers: Peers, authority: str | None) -> None:
        self._peers = peers
        try:
            trusted: ssl.SSLContext | bool = ssl.create_default_context(cafile=authority) if authority else True
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"the authorities of other gateways {authority} cannot be used: {error}") from None
        self._client = httpx.AsyncClient(
            verify=trusted,
            trust_env=False,
            timeout=httpx.Timeout(ANSWER, connect=CONNECT),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=100),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def forward(self, request: Request, body: bytes, name: str) -> Response:
        """Let another gateway answer a request.

        Args:
            request: The request.
            body: Its body.
            name: The gateway.

        Raises:
            Problem: gateway-gone; or gateway-unreachable, after which it may have happened.
            NoQuorum: It cannot be known where the gateway is.
        """
        if HOP in request.headers:
            # The other gateway has found this address for it. So that one has ended, and this one has
            # taken its place.
            raise gone(name)
        # As it came: what is decoded and encoded again may be another name.
        path = request.scope["raw_path"].decode() + (f"?{request.url.query}" if request.url.query else "")
        headers = {it: request.headers[it] for it in ASKED if it in request.headers}
        sending = asyncio.ensure_future(self._send(name, request.method, path, headers, body))
        leaving = asyncio.ensure_future(left(request))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                # The client has gone. The other gateway notices it by the end of its own connection.
                raise unreachable(name)
            return await _passed_on(sending.result(), name)
        finally:
            sending.cancel()
            leaving.cancel()

    async def keepalive(
        self, request: Request, name: str, leases: Sequence[str], ttl_ms: int | None
    ) -> list[models.Beat]:
        """Extend leases of another gateway.

        Returns:
            What that brought, for each lease.
        """
        body = models.KeepaliveOfMany(leases=list(leases), ttl_ms=ttl_ms).model_dump_json().encode()
        headers = {it: request.headers[it] for it in ASKED if it in request.headers}
        try:
            async with asyncio.timeout(BEAT):
                answer = await self._send(name, "POST", "/v1/keepalive", headers, body)
                await answer.aread()
            if answer.status_code == 200:
                return models.Beats.model_validate_json(answer.content).leases
            problem = unreachable(name)
        except (TimeoutError, NoQuorum):
            problem = unreachable(name)
        except Problem as its:
            problem = its
        state: Any = "gateway-gone" if problem.kind == "gateway-gone" else "in-doubt"
        return [models.Beat(id=it, state=state, valid_ms=0, detail=problem.detail) for it in leases]

    async def _send(self, name: str, method: str, path: str, headers: dict[str, str], body: bytes) -> httpx.Response:
        """Send a request to a gateway, whose address is asked for again if nobody is there."""
        known = self._peers.known(name)
        for url in (known, None):
            found = url or await self._peers.find(name)
            asked = self._client.build_request(method, found + path, content=body, headers={**headers, HOP: "1"})
            try:
                return await self._client.send(asked, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if url is None:
                    raise unreachable(name) from None
            except httpx.TransportError:
                raise unreachable(name) from None
        raise AssertionError("the second round has ended")


async def left(request: Request) -> None:
    """Wait until the client of a request has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def unreachable(name: str) -> Problem:
    """The problem of a lease whose gateway does not answer."""
    return Problem(
        "gateway-unreachable",
        f"The gateway {name}, which has this lease, does not answer. What you believe until `valid_until` stands. "
        "Try again; if you only wait, use a new id.",
        after=1.0,
    )


async def _passed_on(answer: httpx.Response, name: str) -> Response:
    """Return another gateway's answer as our own."""
    headers = {it: answer.headers[it] for it in SAID if it in answer.headers}
    if headers.get("content-type", "").startswith("text/event-stream"):
        return StreamingResponse(_chunks(answer), answer.status_code, headers)
    try:
        return Response(await answer.aread(), answer.status_code, headers)
    except httpx.TransportError:
        raise unreachable(name) from None
    finally:
        await answer.aclose()


async def _chunks(answer: httpx.Response) -> AsyncIterator[bytes]:
    """Pass on events until either side ends."""
    try:
        # Events are hints. If the other gateway ends, so does the stream.
        with suppress(httpx.TransportError):
            async for chunk in answer.aiter_raw():
                yield chunk
    finally:
        await answer.aclose()
