"""Every kind of problem is produced by a request. Of those that need a story, only the ones are here that no other test tells.

Every answer to `serve.serving.client_of` is checked to have the form that the schema says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from serve.serving import client_of, gateway_app, gateway_of, well_formed, write_tokens

from holdfast import NoQuorum
from holdfast.aio import Holdfast
from holdfast.serve.problems import Problem

ID = "/v1/leases/a-lease-of-problems"

# Requests that need nothing prepared but options of the gateway, and the problems that they meet.
PLAIN: list[tuple[str, str, str, dict[str, Any], dict[str, Any]]] = [
    ("malformed", "PUT", ID, {"content": b"{"}, {}),
    ("not-found", "GET", "/v2/leases", {}, {}),
    ("not-allowed", "PATCH", "/v1/nodes", {"json": {}}, {}),
    ("unknown-lease", "GET", ID, {}, {}),
    ("free", "DELETE", "/v1/locks/problems:free", {"json": {"reason": "x"}, "headers": {"if-match": "*"}}, {}),
    ("needs-if-match", "DELETE", "/v1/locks/problems:free", {"json": {"reason": "x"}}, {}),
    ("too-large", "PUT", ID, {"content": b" " * 70_000}, {}),
    ("name-too-long", "GET", f"/v1/locks/{'x' * 513}", {}, {}),
    ("not-json", "PUT", ID, {"content": b"{}", "headers": {"content-type": "text/plain"}}, {}),
    ("misdirected", "GET", "/v1/nodes", {"headers": {"host": "evil.example"}}, {}),
    ("invalid", "PUT", ID, {"json": {"names": []}}, {}),
    ("forbidden", "PUT", ID, {"json": {"names": ["x"]}, "headers": {"origin": "http://evil.example"}}, {}),
    ("unauthenticated", "GET", "/v1/nodes", {}, {"tokens": "none"}),
    ("too-many", "GET", "/v1/nodes", {}, {"max_requests": 1}),
    ("overloaded", "GET", "/v1/nodes", {}, {"max_lag": -1.0}),
]


@pytest.mark.parametrize("kind,method,path,more,options", PLAIN, ids=[it[0] for it in PLAIN])
async def test_a_plain_problem(
    locks: Holdfast,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    method: str,
    path: str,
    more: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """In JSON, and in lines for a shell: what refuses it early does so in the form that the client reads."""
    write_tokens(tmp_path / "none")
    monkeypatch.chdir(tmp_path)
    headers = {"content-type": "application/json", **more.get("headers", {})}
    async with client_of(locks, allow_force=True, **options) as client:
        await client.get("/v1/leases")
        answer = await client.request(method, path, **{**more, "headers": headers})
        assert answer.json()["type"] == f"/problems/{kind}"
        answer = await client.request(method, path, **{**more, "headers": {**headers, "accept": "text/plain"}})
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert f"state={kind}\n" in answer.text


async def test_faults_and_doubts(locks: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unsure(*arguments: object) -> float:
        raise NoQuorum("problems:held", 1.0, {}, 3)

    hooks: Any = {"response": [well_formed]}
    transport = httpx.ASGITransport(gateway_app(locks), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", event_hooks=hooks) as client:
        await client.put(ID, json={"names": ["problems:held"]})
        gateway = gateway_of(client)
        (hold,) = gateway.leases
        monkeypatch.setattr(type(locks), "nodes", lambda locks: 1 / 0)
        monkeypatch.setattr(type(hold.lease), "extend", unsure)
        monkeypatch.setattr(type(locks), "inspect", unsure)
        asked = [("GET", "/v1/nodes"), ("POST", f"{ID}/keepalive"), ("GET", "/v1/locks/x")]
        answers = [await client.request(method, path, json={} if method == "POST" else None) for method, path in asked]
        await client.delete(ID)
        gateway.drain()
        answers.append(await client.put(f"{ID}-2", json={"names": ["problems:held"]}))
    assert [it.json()["type"] for it in answers] == [f"/problems/{it}" for it in ("fault", "in-doubt", "no-quorum", "draining")]


@pytest.mark.parametrize("after,said", [(0.0, "1"), (1.2, "2"), (59.5, "60"), (61.0, "60"), (None, None)])
def test_when_to_come_back(after: float | None, said: str | None) -> None:
    assert Problem("busy", "It is held.", after=after).headers().get("retry-after") == said
