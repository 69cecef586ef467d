"""The way of every request, to a route of the table and back.

Knows the ASGI protocol, Starlette's routes, and pydantic's models. Must not know what a route does.
The gate is plain ASGI, because middleware that wraps the response breaks streams and hides that a
client has gone.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar, get_origin, get_type_hints
from urllib.parse import parse_qsl, unquote, unquote_to_bytes, urlsplit

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import readable
from .answering import Answer, respond, said
from .audit import asking
from .gateway import Gateway
from .identity import EVERYBODY, Identity, arrived_of, identify
from .models import Beats, HeldBody, Parameters, Waits
from .problems import LeaseElsewhere, Problem, problem_of

LARGEST = 65_536  # bytes of a body
FORM = b"application/x-www-form-urlencoded"
CHANGING = {"POST", "PUT", "DELETE", "PATCH"}
# The kinds of problems that stand for statuses of Starlette itself.
_OWN = {404: "not-found", 405: "not-allowed"}

Endpoint = TypeVar("Endpoint", bound=Callable[..., Awaitable[Answer]])


class RequestCounter:
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
        asking.set({"address": arrived_of(scope).address, "request": instance})
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                self._gateway.answers[message["status"]] += 1
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", instance.encode())]
            await send(message)

        try:
            if not scope["path"].startswith("/"):
                _take_apart(scope)
            if "\ufffd" in scope["path"]:
                _check_text(scope.get("raw_path") or b"")
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            return
        except Exception as error:
            # It is too late for another answer.
            if begun:
                raise
            if isinstance(error, HTTPException):
                kind = _OWN.get(error.status_code, "malformed")
                problem = Problem(kind, f"{scope['method']} {scope['path']}: {error.detail}")
            else:
                problem = problem_of(error)
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


def _check_text(path: bytes) -> None:
    """Refuse what is not UTF-8.

    Servers read each such byte as U+FFFD, so several names would be one.

    Raises:
        Problem: malformed.
    """
    try:
        unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        raise Problem("malformed", "The path of the request is not UTF-8.") from None


@dataclass(frozen=True, slots=True)
class Entry:
    """A route, which is an ASGI application.

    Attributes:
        method: Its method.
        path: Its path, as Starlette has it.
        endpoint: What answers.
        takes: What the endpoint gets: of `gateway`, `client`, `request`, `asked` and the parts of
            the path, what it names.
        asked: What the request has to say, in its body or its parameters. None: whatever it says.
        answers: The models, or the media types, of its answers by their statuses.
        urgent: Whether it is served however busy the gateway is: it keeps or releases a lease.
        public: Whether anybody may ask, by any name, as often as they like.
        anywhere: Whether a client may ask by any name, such as the address of a pod.
        headers: Headers that it needs, and what they say.
    """

    method: str
    path: str
    endpoint: Callable[..., Awaitable[Answer]]
    takes: tuple[str, ...]
    asked: type[BaseModel] | None
    answers: Mapping[int, Any]
    _: KW_ONLY
    urgent: bool = False
    public: bool = False
    anywhere: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        gateway: Gateway = scope["app"].state.gateway
        headers, given = dict(scope["headers"]), scope["path_params"]
        given["gateway"], given["request"] = gateway, Request(scope, receive, send)
        if not self.public:
            if not self.anywhere:
                check(gateway, scope, headers)
            given["client"] = client_of(gateway, scope, headers, self.urgent)
        body = b"" if scope["method"] in ("GET", "HEAD") else await _body(given["request"], headers)
        known = gateway.clients
        try:
            if self.asked is not None:
                given["asked"] = _asked(self.asked, scope["query_string"], body, _media(headers))
            answer = await self.endpoint(**{it: given[it] for it in self.takes})
            if _shows_a_lease(answer):
                arrived_of(scope).known(given["client"].name)
        except LeaseElsewhere as other:
            assert gateway.peers is not None
            answer = await gateway.peers.forward(given["request"], body, str(other))
        if not self.public and gateway.clients is not known:
            gateway.now(given["client"])
        await said(scope, answer)(scope, receive, send)


class Table(list[Entry]):
    """Routes, in the order in which they are tried."""

    def add(
        self, method: str, path: str, answers: Mapping[int, Any] | None = None, **more: Any
    ) -> Callable[[Endpoint], Endpoint]:
        """Add a route. See `Entry`. By default it answers 200 with what the endpoint returns."""

        def added(endpoint: Endpoint) -> Endpoint:
            hints = get_type_hints(endpoint)
            returned = hints.pop("return")
            asked = hints.get("asked", None if more.get("public") else Parameters)
            self.append(Entry(method, path, endpoint, tuple(hints), asked, answers or {200: returned}, **more))
            return endpoint

        return added


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
    gateway.refuse_too_many(counted_as(client, scope), 1 if urgent and client else 0)
    if client is None:
        gateway.audit.note("unauthenticated")
        sent = "does not know the token that was sent" if b"authorization" in headers else "asks who you are"
        raise Problem("unauthenticated", f"This gateway {sent}. Send one that it knows: `Authorization: Bearer ...`.")
    # Where everybody is one client, only the id of a lease shows more.
    if client is not EVERYBODY:
        arrived_of(scope).known(client.name)
    return client


def counted_as(client: Identity | None, scope: Scope) -> str:
    """Return by what requests are counted: where everybody is one client, by connection."""
    if client is None:
        return arrived_of(scope).address
    return client.name if client is not EVERYBODY else f"{client.name}:{(scope.get('client') or ('', ''))[1]}"


def _name_of(host: str) -> str:
    """The name in a `Host` header, without the port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()


def _shows_a_lease(answer: Answer) -> bool:
    body = answer[0] if isinstance(answer, tuple) else answer
    return isinstance(body, HeldBody | Waits) or (isinstance(body, Beats) and any(it.valid_ms for it in body.leases))


def _media(headers: Mapping[bytes, bytes]) -> bytes:
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower()


async def _body(request: Request, headers: Mapping[bytes, bytes]) -> bytes:
    """Read the body of a request.

    Raises:
        Problem: It is too large, or of a kind that no route reads.
        ClientDisconnect: The client has gone.
    """
    length = headers.get(b"content-length", b"0")
    if (length != b"0" or b"transfer-encoding" in headers) and _media(headers) not in (b"application/json", FORM):
        raise Problem("not-json", "A body is JSON or a form, and says so: `Content-Type: application/json`.")
    if length.isdigit() and int(length) > LARGEST:
        raise Problem("too-large", f"A body has at most {LARGEST} bytes, and this one has {int(length)}.")
    body: bytes = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST:
            raise Problem("too-large", f"A body has at most {LARGEST} bytes.")
    return body


def _asked(model: type[BaseModel], query: bytes, body: bytes, media: bytes) -> BaseModel:
    """Return what a request asks for: its body in JSON, or its parameters.

    Parameters are in the address or in a form.

    Raises:
        Problem: It cannot be read, or has values that cannot work.
    """
    form = media == FORM
    try:
        if body and not form:
            if query:
                raise Problem("malformed", "Send a body in JSON or parameters in the address, and not both.")
            return model.model_validate(_json(body))
        return model.model_validate(_parameters(model, query, body if form else b""), strict=False)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        # Where something is, as RFC 6901 has it.
        errors = [{"pointer": "".join(f"/{part}" for part in it["loc"]), "detail": readable(it["msg"])} for it in found]
        detail = "; ".join(f"{it['pointer']}: {it['detail']}" for it in errors)
        raise Problem("invalid", detail, errors=errors) from None


def _json(body: bytes) -> Any:
    try:
        return _DECODER.decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise Problem("malformed", f"The body is no JSON object: {readable(str(error))}") from None


def _once_each(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        raise ValueError("a member is there twice")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number in JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_once_each, parse_constant=_no_number)


def _parameters(model: type[BaseModel], query: bytes, form: bytes) -> dict[str, Any]:
    """Return what parameters say. A list comes as several, such as `name=a&name=b`."""
    lists = {it for it, field in model.model_fields.items() if get_origin(field.annotation) is list}
    found: dict[str, Any] = {}
    try:
        pairs = [it for text in (query, form) for it in parse_qsl(text.decode(), True, errors="strict")]
    except ValueError as error:
        raise Problem("malformed", f"The parameters cannot be read: {readable(str(error))}") from None
    for name, value in pairs:
        if (many := name if name in lists else f"{name}s") in lists:
            found.setdefault(many, []).append(value)
        elif found.setdefault(name, value) is not value:
            raise Problem("malformed", f"The parameter {readable(name)} is there twice.")
    return found
