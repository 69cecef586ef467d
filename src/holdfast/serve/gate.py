"""What every request passes: its id and its problems, its host, its origin and its client.

Knows the ASGI protocol. Must not know routes. It is plain ASGI, because middleware that wraps the
response breaks streams and hides that a client has gone.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import HoldfastError
from .answering import respond
from .audit import asking
from .gateway import Gateway
from .identity import EVERYBODY, Identity, address_of, identify, note_client
from .problems import Problem, problem_of

CHANGING = {"POST", "PUT", "DELETE", "PATCH"}
# The kinds of problems that stand for statuses of Starlette itself.
_OWN = {404: "not-found", 405: "not-allowed"}


class Gate:
    """Middleware that numbers and counts requests, and answers what they raise."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        """Put the gate before an application."""
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # An application that is mounted elsewhere may hear nothing of the start of the server.
        self._gateway.start()
        instance = secrets.token_hex(8)
        scope["holdfast.instance"] = instance
        asking.set({"address": address_of(scope), "request": instance})
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                self._gateway.metering.answers[message["status"]] += 1
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", instance.encode())]
            await send(message)

        try:
            if not scope["path"].startswith("/"):
                _take_apart(scope)
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            return
        except Exception as error:
            # It is too late for another answer.
            if begun:
                raise
            problem = _problem(scope, error)
            await respond(scope, problem)(scope, receive, sending)
            if problem.kind == "fault":
                # The server logs the error itself.
                raise


def _take_apart(scope: Scope) -> None:
    """Take the host from a target in absolute form. The header does not count then (RFC 9112)."""
    try:
        target = urlsplit(scope["raw_path"])
    except ValueError as error:
        raise Problem("malformed", f"The target of the request is no address: {error}.") from None
    scope["raw_path"] = target.path or b"/"
    scope["path"] = unquote(scope["raw_path"].decode("latin-1"))
    scope["headers"] = [*[it for it in scope["headers"] if it[0] != b"host"], (b"host", target.netloc)]


def _problem(scope: Scope, error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case HoldfastError():
            return problem_of(error)
        case HTTPException():
            kind = _OWN.get(error.status_code, "malformed")
            return Problem(kind, f"{scope['method']} {scope['path']}: {error.detail}")
        case _:
            # The client gets nothing of it but the number of the request.
            return Problem("fault", "The gateway failed. Its log has the reason; please report it.")


def check(gateway: Gateway, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    """Refuse a name that the gateway does not have, and changes by pages from elsewhere.

    Raises:
        Problem: misdirected; or forbidden.
    """
    host = headers.get(b"host", b"").decode("latin-1")
    if _name_of(host) not in gateway.options.names:
        gateway.audit.note("misdirected", host=host)
        raise Problem(
            "misdirected",
            f"This gateway is not called {_name_of(host)!r}. Use one of its names "
            f"({', '.join(gateway.options.names)}), or start it with --host-name.",
        )
    origin = headers.get(b"origin", b"").decode("latin-1")
    if origin and scope["method"] in CHANGING and origin.partition("://")[2] != host:
        gateway.audit.note("forbidden", scope="origin", origin=origin)
        raise Problem("forbidden", "Requests of pages from elsewhere may change nothing here.", scope="origin")


def client_of(gateway: Gateway, scope: Scope, headers: Mapping[bytes, bytes], urgent: bool) -> Identity:
    """Return the client that a request is from.

    Args:
        gateway: The gateway.
        scope: The request.
        headers: Its headers.
        urgent: Whether it is served however busy the gateway is.

    Raises:
        Problem: unauthenticated; overloaded; or too-many.
    """
    client = identify(scope, headers, gateway.clients, gateway.options.trusted_proxies)
    if gateway.busy and not urgent:
        detail = f"The gateway is {gateway.lag.late:.2f} s behind, and serves only keepalives and releases."
        raise Problem("overloaded", detail, after=1.0)
    gateway.refuse_too_many(client.name if client else address_of(scope), 1 if urgent and client else 0)
    if client is None:
        gateway.audit.note("unauthenticated")
        sent = "does not know the token that was sent" if b"authorization" in headers else "asks who you are"
        raise Problem("unauthenticated", f"This gateway {sent}. Send one that it knows: `Authorization: Bearer ...`.")
    # Where everybody is one client, only the id of a lease shows more.
    if client is not EVERYBODY:
        note_client(scope, client)
    return client


def _name_of(host: str) -> str:
    """The name in a `Host` header, without the port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()
