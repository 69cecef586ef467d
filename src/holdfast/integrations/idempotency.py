"""Requests that are carried out once for each idempotency key, in any ASGI application.

Knows the ASGI protocol, and `once`. Must not know frameworks.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..aio import Holdfast
from ..checks import Seconds
from ..errors import ConfigError, HoldfastError, LockBusy, LockLost, NoQuorum, is_closed, message_of
from .asgi import App, Message, Receive, Scope, Send, answer, where
from .web import LOGGER, ProblemResponse, Statuses, problem

__all__ = ["Idempotency"]

MOST = 1_000_000  # bytes of a response that is kept
LONGEST_KEY = 255  # characters
# Their users wait for the beginning, and there may be no end.
_ENDLESS = ("text/event-stream", "multipart/x-mixed-replace")


class Idempotency:
    """Middleware that carries out a request once for each idempotency key.

    It replays the response to later requests with the same key.

    It follows draft-ietf-httpapi-idempotency-key-header. A request whose key is in use gets 409. A
    request with the key of another request gets 422. A response is kept if its status is below 500
    and it does not ask the client to come back (`Retry-After`). A response that is larger than 1
    MB, or a stream of events, is sent and not kept, and the log has a warning.
    """

    def __init__(
        self,
        app: App,
        locks: Holdfast,
        *,
        keep: Seconds = 86400.0,
        header: str = "Idempotency-Key",
        who: Callable[[Scope], str] | None = None,
        methods: Collection[str] = ("POST", "PATCH"),
        required: bool = False,
    ) -> None:
        """Wrap an application.

        Args:
            app: The application.
            locks: A client for asyncio.
            keep: Seconds for which a response is kept (default: a day).
            header: The header that has the key.
            who: A function of the ASGI scope that returns whose request it is. Keys of different
                principals never meet. Default: the Authorization header.
            methods: The methods of the requests that are carried out once, in any case.
            required: Whether a request without a key gets 400 (default: False).

        Raises:
            ConfigError: The client is not one for asyncio, `keep` is out of range, or `methods` is
                a text.
        """
        if not isinstance(locks, Holdfast):
            raise ConfigError("Idempotency needs a client for asyncio: from holdfast.aio import Holdfast")
        if isinstance(methods, str):
            raise ConfigError(f"methods is a collection of methods, such as ({methods!r},), not the text {methods!r}")
        locks.once("any", keep=keep)
        self.app, self._locks, self._keep, self._header = app, locks, keep, header.lower().encode()
        self._who = who or _authorization
        self._methods, self._required = frozenset(map(str.upper, methods)), required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http" or scope["method"] not in self._methods:
            await self.app(scope, receive, send)
            return
        given = _values(scope, self._header)
        if not given and not self._required:
            await self.app(scope, receive, send)
            return
        key = _key(given)
        if key is None:
            title = f"The request needs one header {self._header.decode()} of 1 to {LONGEST_KEY} characters."
            await answer(send, problem(400, "idempotency-key", title))
            return
        await self._carry_out(key, scope, _Reading(receive, hashlib.sha256(_said(scope))), send)

    async def _carry_out(self, key: str, scope: Scope, reading: _Reading, send: Send) -> None:
        whose = json.dumps([scope["method"], scope["path"], self._who(scope), key])
        name = f"idempotency:{hashlib.sha256(whose.encode()).hexdigest()}"
        response = _Response(send, where(scope))
        once = self._locks.once(name, keep=self._keep, wait=0, serializer=_Kept)
        try:
            kept = await once.run(partial(self._handle, scope, reading, response))
        except _NotKept:
            await response.flush()
        except Exception as error:
            if not (isinstance(error, LockBusy | LockLost | NoQuorum) or is_closed(error)):
                # A framework may have sent a response to what it raises again, for the server's
                # log.
                await response.flush()
                raise
            # Errors of the handler's own locks are for `Errors`, as without this middleware.
            if response.begun or (response.ran and error is response.raised):
                raise
            await answer(send, _refused(error, response))
        else:
            await reading.rest()
            if response.ran:
                await response.flush()
                if response.raised is not None:
                    raise response.raised
            elif kept.fingerprint != reading.hash.hexdigest():
                title = "This idempotency key was used for another request."
                await answer(send, problem(422, "idempotency-key", title))
            else:
                await kept.replay(send)

    async def _handle(self, scope: Scope, reading: _Reading, response: _Response) -> _Kept:
        response.ran = True
        try:
            # Extensions of the server, such as sending a file by its path, would pass by `response`.
            await self.app({**scope, "extensions": {}}, reading, response)
        except Exception as error:
            response.raised = error
            # After a whole response, it was a background task.
            if not response.keepable:
                raise
        if not response.keepable:
            raise _NotKept
        await reading.rest()
        if reading.cut and response.status >= 400:
            # That is about the part that has arrived. The client sends its request again, and means the whole.
            raise _NotKept
        return _Kept(reading.hash.hexdigest(), response.status, response.headers, bytes(response.body))


class _NotKept(Exception):
    """The handler has run, and its response is for this request only."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A response as it is kept: a line of JSON, and the body."""

    fingerprint: str
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @staticmethod
    def dumps(kept: _Kept, /) -> bytes:
        headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in kept.headers]
        return json.dumps([kept.fingerprint, kept.status, headers]).encode() + b"\n" + kept.body

    @staticmethod
    def loads(data: bytes, /) -> _Kept:
        head, _, body = data.partition(b"\n")
        fingerprint, status, headers = json.loads(head)
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        return _Kept(fingerprint, status, pairs, body)

    async def replay(self, send: Send) -> None:
        headers = [*self.headers, (b"idempotent-replayed", b"true")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


@dataclass(slots=True)
class _Reading:
    """The request's body on its way to the handler, which adds to the request's fingerprint."""

    receive: Receive
    hash: Any
    over: bool = False
    cut: bool = False

    async def __call__(self) -> Message:
        message = await self.receive()
        if message["type"] == "http.request":
            self.hash.update(message.get("body", b""))
            self.over = not message.get("more_body", False)
        elif message["type"] == "http.disconnect":
            self.cut = self.cut or not self.over
            self.over = True
        return message

    async def rest(self) -> None:
        """Read what the handler has left, so that the fingerprint is that of the whole body."""
        while not self.over:
            await self()


@dataclass(slots=True)
class _Response:
    """The handler's response, which is held back until it is kept, or cannot be kept."""

    send: Send
    where: str
    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False
    begun: bool = False
    ran: bool = False
    raised: Exception | None = None
    _size: int = 0

    @property
    def keepable(self) -> bool:
        """Is it whole, and worth the same for every later request?"""
        asks_to_come_back = any(name.lower() == b"retry-after" for name, _ in self.headers)
        return self.ended and not self.begun and self.status < 500 and not asks_to_come_back

    async def __call__(self, message: Message) -> None:
        if self.begun:
            await self.send(message)
        elif message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
            self._size = sum(len(name) + len(value) + 8 for name, value in self.headers)
            kind = next((value for name, value in self.headers if name.lower() == b"content-type"), b"")
            if kind.decode("latin-1").startswith(_ENDLESS):
                await self._let_go("it is a stream")
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")
            self.ended = not message.get("more_body", False)
            if self._size + len(self.body) > MOST:
                await self._let_go(f"it has more than {MOST} bytes")
        else:
            await self.send(message)

    async def _let_go(self, why: str) -> None:
        told = "%s: the response is not kept for its idempotency key: %s"
        logging.getLogger(LOGGER).warning(told, self.where, why)
        await self.flush()

    async def flush(self) -> None:
        """Send what was held back."""
        if self.begun or not self.status:
            return
        self.begun = True
        await self.send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await self.send({"type": "http.response.body", "body": bytes(self.body), "more_body": not self.ended})


def _refused(error: HoldfastError, response: _Response) -> ProblemResponse:
    """The response to a request that was not carried out, or whose outcome is unknown."""
    if isinstance(error, LockBusy):
        title = "A request with this idempotency key is in progress."
        return problem(409, "in-progress", title, ("retry-after", "1"))
    if response.ran and not isinstance(error, LockLost):
        # The handler has run, and nobody knows whether its response is kept.
        error = LockLost(getattr(error, "name", ""), "expired", None, message_of(error))
    return Statuses().answer(error, response.where)


def _values(scope: Scope, header: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == header]


def _key(given: list[str]) -> str | None:
    """The idempotency key: a text, or a string in quotes as the draft writes it."""
    text = given[0].strip() if len(given) == 1 else ""
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    return text if re.fullmatch(f"[!-~]{{1,{LONGEST_KEY}}}", text) else None


def _said(scope: Scope) -> bytes:
    """What a request says beside its body: the query, and of which type the body is."""
    query = scope.get("query_string", b"").decode("latin-1")
    return json.dumps([query, *_values(scope, b"content-type")]).encode()


def _authorization(scope: Scope) -> str:
    return "\n".join(_values(scope, b"authorization"))
