"""The table of routes, and how a request passes through one.

Knows Starlette's routes, and pydantic's models. Must not know what a route does.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar, get_origin, get_type_hints
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette import routing
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..errors import readable
from .answering import said
from .gate import check, client_of
from .identity import note_client
from .models import Beats, Held, Parameters, Waits
from .problems import Elsewhere, Problem

LARGEST = 65_536  # bytes of a body
FORM = b"application/x-www-form-urlencoded"

Answer = Response | BaseModel | tuple[BaseModel, int]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Awaitable[Answer]])


class Entry(NamedTuple):
    """A route.

    Attributes:
        method: Its method.
        path: Its path, as Starlette has it.
        endpoint: What answers. It gets what it names: `gateway`, `client`, `request`, `asked` and
            the parts of the path.
        asked: What the request has to say, in its body or its parameters. None: whatever it says.
        answers: The models, or the media types, of its answers by their statuses.
        urgent: Whether it is served however busy the gateway is: it keeps or releases a lease.
        public: Whether anybody may ask, by any name, as often as they like.
        anywhere: Whether a client may ask by any name, such as the address of a pod.
        headers: Headers that it needs, and what they say.
        shown: Whether the OpenAPI document has it.
    """

    method: str
    path: str
    endpoint: Callable[..., Awaitable[Answer]]
    asked: type[BaseModel] | None
    answers: Mapping[int, Any]
    urgent: bool = False
    public: bool = False
    anywhere: bool = False
    headers: Mapping[str, str] = {}
    shown: bool = True


class Table(list[Entry]):
    """Routes, in the order in which they are tried."""

    def add(
        self, method: str, path: str, answers: Mapping[int, Any] | None = None, **more: Any
    ) -> Callable[[Endpoint], Endpoint]:
        """Add a route. See `Entry`. By default it answers 200 with what the endpoint returns."""

        def added(endpoint: Endpoint) -> Endpoint:
            hints = get_type_hints(endpoint)
            asked = hints.get("asked", None if more.get("public") else Parameters)
            self.append(Entry(method, path, endpoint, asked, answers or {200: hints["return"]}, **more))
            return endpoint

        return added

    def routes(self) -> list[routing.BaseRoute]:
        """Return Starlette's routes."""
        return [routing.Route(it.path, _Served(it), methods=[it.method], name=it.endpoint.__name__) for it in self]


class _Served:
    """The ASGI application of one route."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._names = [it for it in get_type_hints(entry.endpoint) if it != "return"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        entry, gateway, headers = self._entry, scope["app"].state.gateway, dict(scope["headers"])
        request, given = Request(scope, receive, send), scope["path_params"]
        given["gateway"], given["request"] = gateway, request
        if not entry.public:
            if not entry.anywhere:
                check(gateway, scope, headers)
            given["client"] = client_of(gateway, scope, headers, entry.urgent)
        body = b"" if scope["method"] in ("GET", "HEAD") else await _body(request, headers)
        known = gateway.clients
        try:
            if entry.asked is not None:
                given["asked"] = _asked(entry.asked, scope["query_string"], body, _media(headers))
            answer = await entry.endpoint(**{it: given[it] for it in self._names})
            if _shows_a_lease(answer):
                note_client(scope, given["client"])
        except Elsewhere as other:
            answer = await gateway.peers.forward(request, body, other.gateway)
        if not entry.public and gateway.clients is not known:
            gateway.refuse_if_revoked(given["client"])
        await said(request, answer)(scope, receive, send)


def _shows_a_lease(answer: Answer) -> bool:
    body = answer[0] if isinstance(answer, tuple) else answer
    return isinstance(body, Held | Waits) or (isinstance(body, Beats) and any(it.valid_ms for it in body.leases))


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
        errors = [{"pointer": _pointer(it["loc"]), "detail": readable(it["msg"])} for it in found]
        detail = "; ".join(f"{it['pointer']}: {it['detail']}" for it in errors)
        raise Problem("invalid", detail, errors=errors) from None


def _pointer(place: tuple[int | str, ...]) -> str:
    return "".join(f"/{it}" for it in place)


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
