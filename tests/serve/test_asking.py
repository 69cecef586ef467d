"""Direct routes answer as FastAPI's do. A query that no route knows has FastAPI resolve a request."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from serve.serving import gateway_app

from holdfast.aio import Holdfast
from holdfast.serve import models
from holdfast.serve.asking import Client, Host
from holdfast.serve.direct import Direct

# What clients send for a body, good and bad.
BODIES: dict[str, bytes] = {
    "good": b'{"names": ["asking:%s"], "ttl_ms": 5000}',
    "no JSON": b"{",
    "nothing": b"",
    "no object": b"[]",
    "null": b"null",
    "unknown field": b'{"names": ["asking:%s"], "tll_ms": 5000}',
    "text for a number": b'{"names": ["asking:%s"], "ttl_ms": "5000"}',
    "a number that is no text": b'{"names": [1]}',
    "no number": b'{"names": ["asking:%s"], "ttl_ms": NaN}',
    "too little": b'{"names": ["asking:%s"], "ttl_ms": 1}',
    "a name twice": b'{"names": ["asking:%s"], "ttl_ms": 1, "ttl_ms": 5000}',
    "no UTF-8": b'{"names": ["\xff"]}',
    "a lone surrogate": b'{"names": ["\\ud800"]}',
}
# What no two answers have in common.
OWN = {"instance", "fence", "fences", "valid_ms", "token", "waited_ms", "votes", "doubt", "contended"}


def alike(answer: httpx.Response, way: str) -> tuple[int, str, dict[str, Any]]:
    said = {key: value for key, value in json.loads(answer.text.replace(way, "WAY")).items() if key not in OWN}
    return answer.status_code, answer.headers["content-type"], said


async def differs(client: httpx.AsyncClient, body: bytes) -> bool:
    found = []
    for way, query in (("direct", ""), ("fastapi", "?way=fastapi")):
        lease, headers = f"/v1/leases/a-lease-of-asking-{way}{query}", {"content-type": "application/json"}
        answer = await client.put(lease, content=body.replace(b"%s", way.encode()), headers=headers)
        await client.delete(lease)
        found.append(alike(answer, way))
    return found[0] != found[1]


@pytest.mark.parametrize("body", BODIES)
async def test_a_direct_route_answers_as_fastapi_does(client: httpx.AsyncClient, body: str) -> None:
    assert not await differs(client, BODIES[body])


async def test_a_direct_route_that_is_less_strict_is_noticed(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    read = models.Acquire.model_validate_json
    monkeypatch.setattr(models.Acquire, "model_validate_json", lambda body: read(body, strict=False))
    assert await differs(client, BODIES["text for a number"])


async def nothing(*asked: Any) -> None:
    """Serve nothing."""


def test_a_route_that_asks_for_more_is_refused_when_it_is_made() -> None:
    routes = APIRouter()

    async def ask(gateway: Host, client: Client, color: str) -> None:
        """Ask for what may be a query, which is known, and for a body, which is not."""

    async def ask_more(gateway: Host, client: Client, paint: dict[str, str]) -> None:
        """Ask for a body of another name."""

    routes.get("/known")(ask)
    Direct(nothing, routes.routes, {})
    routes.post("/more")(ask_more)
    with pytest.raises(TypeError, match="/more asks for paint, which a direct route does not know"):
        Direct(nothing, routes.routes, {})


async def test_a_gateway_below_another_application_is_resolved_by_fastapi(locks: Holdfast) -> None:
    above = FastAPI()
    above.mount("/locks", gateway_app(locks))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(above), base_url="http://localhost:7420") as client:
        lease, body = "/locks/v1/leases/a-lease-below-another", {"names": ["asking:below"]}
        assert (await client.put(lease, json=body)).status_code == 201
        assert (await client.post(f"{lease}/keepalive", json={})).json()["state"] == "held"
        assert (await client.put(lease, json={"names": []})).status_code == 422
        assert (await client.delete(lease)).status_code == 200
