"""The other gateways: where they are, and how one answers a request for a lease that it has.

Knows HTTP, and the client's elections. Must not know what a request is about.

A lease lives in the gateway that granted it, and the gateway's name is in the lease's id. Each
gateway leads an election of its own, and announces its address by that. The entry of a gateway
lasts for `max_ttl`, and no lease lasts longer. So once no entry is left, the leases of that gateway
are over, too. A request is passed on once, with the caller's own token.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..aio import Holdfast, Leadership
from ..errors import ConfigError, HoldfastError, NoQuorum, is_closed, message_of
from . import models
from .gateway import ELECTION
from .problems import Problem

# Addresses that are remembered. A gateway's address never changes, so they only have to be bounded.
MOST = 1_000
AGAIN = 1.0  # seconds until it is tried again to announce an address
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
log = logging.getLogger("holdfast.serve")


class Peers:
    """The gateways that share their clients with this one.

    Args:
        locks: The client.
        name: This gateway's name.
        url: The address at which the other gateways reach this one.
        authority: A file with the authorities of their certificates. None: those of the system.

    Attributes:
        announced: Whether the others can find this gateway. It grants nothing before that.

    Raises:
        ConfigError: The file cannot be used.
    """

    def __init__(self, locks: Holdfast, name: str, url: str, authority: str | None = None) -> None:
        self._locks = locks
        self._name = name
        self._url = url
        self._known: dict[str, str] = {}
        self.announced = False
        # If nobody had it, it would count as forgotten.
        self._leading: Leadership | None = None
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

    async def announce(self) -> None:
        """Announce this gateway, until this is cancelled.

        The entry then runs out by itself, after all leases of this gateway.
        """
        most = self._locks.settings.max_ttl
        while True:
            try:
                election = self._locks.election(ELECTION + self._name, self._url, ttl=most)
                self._leading = leading = await election.campaign()
                self.announced = True
                await leading.lost.wait()
            except HoldfastError as error:
                if is_closed(error):
                    return
                log.warning("the address of this gateway is not announced yet: %s", message_of(error))
                await asyncio.sleep(AGAIN)
            finally:
                self.announced = False

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def find(self, name: str) -> str:
        """Ask the nodes for the address of a gateway.

        Raises:
            Problem: gateway-gone.
            NoQuorum: Too few nodes answered to know.
        """
        found = (await self._locks.election(ELECTION + name).leader()).value
        # An address without TLS would be that of a stranger, if gateways use TLS.
        if found is None or urlsplit(found).scheme != urlsplit(self._url).scheme:
            self._known.pop(name, None)
            raise _gone(name)
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[name] = found
        return found

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
            raise _gone(name)
        # As it came: what is decoded and encoded again may be another name.
        path = request.scope["raw_path"].decode() + (f"?{request.url.query}" if request.url.query else "")
        sending = asyncio.ensure_future(self._send(name, request, request.method, path, body))
        leaving = asyncio.ensure_future(left(request))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                # The client has gone. The other gateway notices it by the end of its own connection.
                raise _unreachable(name)
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
        try:
            async with asyncio.timeout(BEAT):
                answer = await self._send(name, request, "POST", "/v1/keepalive", body)
                await answer.aread()
            if answer.status_code == 200:
                return models.Beats.model_validate_json(answer.content).leases
            problem = _unreachable(name)
        except (TimeoutError, NoQuorum, Problem) as why:
            problem = why if isinstance(why, Problem) else _unreachable(name)
        state: Any = "gateway-gone" if problem.kind == "gateway-gone" else "in-doubt"
        return [models.Beat(id=it, state=state, valid_ms=0, detail=problem.detail) for it in leases]

    async def _send(self, name: str, request: Request, method: str, path: str, body: bytes) -> httpx.Response:
        """Send a request to a gateway, whose address is asked for again if nobody is there."""
        headers = {HOP: "1", **{it: request.headers[it] for it in ASKED if it in request.headers}}
        for known in (self._known.get(name), None):
            url = known or await self.find(name)
            asked = self._client.build_request(method, url + path, content=body, headers=headers)
            try:
                return await self._client.send(asked, stream=True)
            except httpx.TransportError as error:
                if known is None or not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                    raise _unreachable(name) from None
        raise AssertionError("the second round has ended")


async def left(request: Request) -> None:
    """Wait until the client of a request has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _gone(name: str) -> Problem:
    return Problem("gateway-gone", f"The gateway {name} has ended, and so have its leases. Use a new id.")


def _unreachable(name: str) -> Problem:
    return Problem(
        "gateway-unreachable",
        f"The gateway {name}, which has this lease, does not answer. Your lease lasts as long as you were told. "
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
        raise _unreachable(name) from None
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
