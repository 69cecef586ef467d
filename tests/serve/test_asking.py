"""What a request may say, and in which forms: in JSON, in a form, or in its address."""

from __future__ import annotations

import httpx
import pytest
from serve.serving import gateway_app
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast.aio import Holdfast

LEASE = "/v1/leases/a-lease-of-asking"
JSON = {"content-type": "application/json"}
# Bodies, good and bad, and what is said of each.
BODIES: dict[str, tuple[bytes, str]] = {
    "good": (b'{"names": ["asking"], "ttl_ms": 5000}', ""),
    "a whole number with a point": (b'{"names": ["asking"], "ttl_ms": 5000.0}', ""),
    "no whole number": (b'{"names": ["asking"], "ttl_ms": 5000.5}', "invalid"),
    "too large a number": (b'{"names": ["asking"], "ttl_ms": 1e400}', "invalid"),
    "a truth for a number": (b'{"names": ["asking"], "ttl_ms": true}', "invalid"),
    "no JSON": (b"{", "malformed"),
    "nothing": (b"", "invalid"),
    "no object": (b"[]", "invalid"),
    "null": (b"null", "invalid"),
    "unknown field": (b'{"names": ["asking"], "tll_ms": 5000}', "invalid"),
    "text for a number": (b'{"names": ["asking"], "ttl_ms": "5000"}', "invalid"),
    "a number that is no text": (b'{"names": [1]}', "invalid"),
    "no number": (b'{"names": ["asking"], "ttl_ms": NaN}', "malformed"),
    "too little": (b'{"names": ["asking"], "ttl_ms": 1}', "invalid"),
    "a member twice": (b'{"names": ["asking"], "ttl_ms": 1, "ttl_ms": 5000}', "malformed"),
    "no UTF-8": (b'{"names": ["\xff"]}', "malformed"),
    "UTF-16": ('{"names": ["asking"]}'.encode("utf-16"), "malformed"),
    "a lone surrogate": (b'{"names": ["\\ud800"]}', "invalid"),
    "too deep": (b'{"names": ' + b"[" * 20_000, "malformed"),
}


async def kind(client: httpx.AsyncClient, body: bytes, query: str = "", **headers: str) -> str:
    answer = await client.put(LEASE + query, content=body, headers={**JSON, **headers})
    await client.delete(LEASE)
    return "" if answer.status_code == 201 else str(answer.json()["type"]).removeprefix("/problems/")


@pytest.mark.parametrize("body", BODIES)
async def test_bodies(client: httpx.AsyncClient, body: str) -> None:
    assert await kind(client, BODIES[body][0]) == BODIES[body][1]


async def test_a_typing_error_in_a_parameter_is_no_default(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/locks", params={"patern": "x"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/patern")
    assert (await client.get("/v1/locks?limit=3&limit=4")).json()["type"] == "/problems/malformed"
    assert (await client.get("/v1/locks?pattern=%ff")).json()["type"] == "/problems/malformed"


async def test_what_is_not_utf_8_is_no_name(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/locks/a%ff")).json()["type"] == "/problems/malformed"
    # As a character of its own, it may be in a name.
    assert (await client.get("/v1/locks/a%ef%bf%bd")).json()["name"] == "a\ufffd"


async def test_a_gateway_below_another_application(locks: Holdfast) -> None:
    above = Starlette(routes=[Mount("/locks", gateway_app(locks))])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(above), base_url="http://localhost:7420") as client:
        lease, body = "/locks/v1/leases/a-lease-below-another", {"names": ["asking:below"]}
        assert (await client.put(lease, json=body)).status_code == 201
        assert (await client.post(f"{lease}/keepalive", json={})).json()["state"] == "held"
        assert (await client.put(lease, json={"names": []})).status_code == 422
        assert (await client.delete(lease)).status_code == 200
