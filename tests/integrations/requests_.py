"""Requests to an ASGI application, without a server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    """What an application has sent. `whole`: the response has ended."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    whole: bool = False


async def ask(
    app: Any,
    path: str = "/",
    method: str = "POST",
    body: bytes = b"",
    query: bytes = b"",
    *,
    into: Answer | None = None,
    cut: bool = False,
    **headers: str,
) -> Answer:
    """Send one request. An underscore in a header's name stands for a hyphen.

    `cut`: the client goes before the end of the body.
    """
    answer = into or Answer()
    parts = [body[:5], body[5:]] if body else [b""]

    async def receive() -> dict[str, Any]:
        if not parts and cut:
            return {"type": "http.disconnect"}
        if not parts:
            await asyncio.Event().wait()
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts) or cut}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            assert answer.status == 0, "a response begins once"
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message.get("headers", ())}
        else:
            assert answer.status, "a response begins with its status"
            answer.body += message.get("body", b"")
            answer.whole = not message.get("more_body", False)

    sent = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": sent, "extensions": {"x": {}}}
    await app(scope, receive, send)
    return answer


async def respond(send: Any, status: int = 200, body: bytes = b"", *, more: bool = False, **headers: str) -> None:
    """What a handler sends."""
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body, "more_body": more})
