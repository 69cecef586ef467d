"""The gate that every request passes: its id, its host, its origin, its size and its client.

Knows the ASGI protocol. Must not know routes. It is plain ASGI, because middleware that wraps the
response breaks streams and hides that a client has gone.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from .assets import PATHS
from .audit import asking
from .gateway import Gateway
from .identity import identify
from .limits import Limits
from .problems import Problem

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST = 65_536  # bytes of a body
CHANGING = {"POST", "PUT", "DELETE", "PATCH"}


class Gate:
    """Middleware that lets requests in, or answers them with a problem."""

    def __init__(self, app: App, gateway: Gateway) -> None:
        """Put the gate before an application."""
        self._app = app
        self._gateway = gateway
        self._limits = Limits(gateway.options.max_requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # An application that is mounted elsewhere may hear nothing of the start of the server.
        self._gateway.start()
        headers = dict(scope["headers"])
        instance = secrets.token_hex(8)
        scope["holdfast.instance"] = instance
        address = (scope.get("client") or ("",))[0]
        asking.set({"address": address, "request": instance})

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._gateway.metering.answered(message["status"])
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", instance.encode())]
            await send(message)

        try:
            self._check(scope, headers)
            client = identify(scope, headers, self._gateway.clients, self._gateway.options.trusted_proxies)
            scope["holdfast.client"] = client
            # A page that lacks one of its files cannot come back by itself.
            if not urgent(scope) and scope["path"] not in PATHS:
                self._admit(client.name if client else address)
            await self._app(scope, _Bounded(scope, receive), sending)
        except Problem as problem:
            await answer(sending, problem, instance)

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if _name_of(host) not in self._gateway.options.names:
            raise Problem(
                "misdirected",
                f"This gateway is not called {_name_of(host)!r}. Use one of its names "
                f"({', '.join(self._gateway.options.names)}), or start it with --host-name.",
            )
        origin = headers.get(b"origin")
        if origin is not None and scope["method"] in CHANGING:
            asked = urlsplit(origin.decode("latin-1")).netloc
            if asked != host:
                raise Problem("forbidden", "Requests of pages from elsewhere may change nothing here.", scope="origin")
        media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        length = headers.get(b"content-length", b"0")
        if (length != b"0" or b"transfer-encoding" in headers) and media != b"application/json":
            raise Problem("not-json", "A body is JSON, and says so: `Content-Type: application/json`.")
        if length.isdigit() and int(length) > LARGEST:
            raise Problem("too-large", f"A body has at most {LARGEST} bytes, and this one has {int(length)}.")

    def _admit(self, client: str) -> None:
        """Refuse what can wait while the gateway is busy, or if its client asks too often.

        Raises:
            Problem: overloaded; or too-many.
        """
        if self._gateway.busy:
            detail = f"The gateway is {self._gateway.lag.late:.2f} s behind, and serves only keepalives and releases."
            raise Problem("overloaded", detail, after=1.0)
        wait = self._limits.take(client, time.monotonic())
        if wait:
            most = self._gateway.options.max_requests
            detail = f"{client} may make {most} requests a second. `POST /v1/keepalive` keeps many leases in one."
            raise Problem("too-many", detail, after=wait, what="requests")


def urgent(scope: Scope) -> bool:
    """Return whether a request comes before all others.

    It keeps or releases a lease, or asks how the gateway is.
    """
    method, path = scope["method"], scope["path"]
    if method == "POST":
        ends: tuple[str, ...] = ("/keepalive",)
    elif method == "DELETE":
        return "/v1/leases/" in path
    else:
        ends = ("/healthz", "/readyz")
    return bool(path.endswith(ends))


class _Bounded:
    """Receives a body of a bounded size, also if the request does not say how long it is."""

    __slots__ = ("_receive", "_scope", "_seen")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope = scope
        self._receive = receive
        self._seen = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self._seen > LARGEST:
            # FastAPI takes every exception here for a body that cannot be read. The scope tells which it was.
            problem = self._scope["holdfast.problem"] = Problem("too-large", f"A body has at most {LARGEST} bytes.")
            raise problem
        return message


async def answer(send: Send, problem: Problem, instance: str) -> None:
    """Send a problem as the response."""
    body = json.dumps(problem.document(instance)).encode()
    headers = [(name.encode(), value.encode()) for name, value in problem.headers().items()]
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _name_of(host: str) -> str:
    """The name in a `Host` header, without the port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()
