"""Every kind of problem is produced by a request, and every answer has the form that the schema says."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import httpx
import pytest
from serve.serving import gateway_app

from holdfast import Misuse, NoQuorum
from holdfast.aio import Holdfast
from holdfast.serve import Gateway, models
from holdfast.serve.identity import TokenFile
from holdfast.serve.load import Lag
from holdfast.serve.problems import KINDS

ID = "/v1/leases/a-lease-of-problems"

# Requests that need nothing prepared, and the problems that they meet.
PLAIN: list[tuple[str, str, str, dict[str, Any]]] = [
    ("malformed", "PUT", ID, {"content": b"{"}),
    ("not-found", "GET", "/v2/leases", {}),
    ("not-allowed", "PATCH", "/v1/nodes", {"json": {}}),
    ("unknown-lease", "GET", ID, {}),
    ("free", "DELETE", "/v1/locks/problems:free", {"json": {"reason": "x"}, "headers": {"if-match": "*"}}),
    ("needs-if-match", "DELETE", "/v1/locks/problems:free", {"json": {"reason": "x"}}),
    ("too-large", "PUT", ID, {"content": b" " * 70_000}),
    ("name-too-long", "GET", f"/v1/locks/{'x' * 600}", {}),
    ("not-json", "PUT", ID, {"content": b"{}", "headers": {"content-type": "text/plain"}}),
    ("misdirected", "GET", "/v1/nodes", {"headers": {"host": "evil.example"}}),
    ("invalid", "PUT", ID, {"json": {"names": []}}),
    ("forbidden", "PUT", ID, {"json": {"names": ["x"]}, "headers": {"origin": "http://evil.example"}}),
]
# Problems that need a story, each told by a test of its own.
STORIES = {"busy", "lease-mismatch", "kind-mismatch", "lost", "released", "not-the-holder", "too-many", "rate-limited"}
STORIES |= {"no-result", "unauthenticated", "fault", "no-quorum", "in-doubt", "draining", "overloaded"}
# Those of several gateways are in test_peers.
OF_SEVERAL = {"gateway-gone", "gateway-unreachable"}


def test_every_kind_is_produced() -> None:
    assert {it[0] for it in PLAIN} | STORIES | OF_SEVERAL == set(KINDS)


def checked(answer: httpx.Response) -> dict[str, Any]:
    """The problem, which has the form that every problem has."""
    assert answer.headers["content-type"] == "application/problem+json"
    said: dict[str, Any] = answer.json()
    document = models.ProblemDocument.model_validate(said)
    kind = document.type.removeprefix("/problems/")
    assert (document.status, document.title) == (answer.status_code, KINDS[kind][1])
    assert document.detail
    return said


@pytest.mark.parametrize("kind,method,path,more", PLAIN, ids=[it[0] for it in PLAIN])
async def test_a_plain_problem(client: httpx.AsyncClient, kind: str, method: str, path: str, more: dict[str, Any]) -> None:
    headers = {"content-type": "application/json", **more.pop("headers", {})}
    said = checked(await client.request(method, path, headers=headers, **more))
    assert said["type"] == f"/problems/{kind}"


async def test_the_others(locks: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    application = gateway_app(locks, allow_force=True, max_waiters=1)
    gateway: Gateway = application.state.gateway
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)
    seen: set[str] = set()

    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:

        async def problem(method: str, path: str, json: Any = None, **headers: str) -> None:
            seen.add(checked(await client.request(method, path, json=json, headers=headers))["type"].removeprefix("/problems/"))

        held = {"names": ["problems:held"]}
        assert (await client.put(ID, json=held)).status_code == 201
        await problem("PUT", f"{ID}-2", held)
        await problem("PUT", ID, {"names": ["problems:other"]})
        await problem("POST", f"{ID}/publish", {"value": "x"})
        await problem("DELETE", "/v1/locks/problems:held", {"reason": "x"}, **{"if-match": '"somebody"'})
        assert (await client.put(f"{ID}-3", json={**held, "wait_ms": 10})).status_code == 202
        await problem("PUT", f"{ID}-4", {**held, "wait_ms": 10})
        await client.delete(f"{ID}-3")

        async def unfit() -> float:
            return math.nan

        with contextlib.suppress(Misuse):
            await locks.once("problems:unfit", keep=60).run(unfit)
        await problem("PUT", "/v1/once/problems:unfit", {"keep_ms": 60_000})
        asked = {"limit": 1, "period_ms": 60_000}
        await client.post("/v1/rates/problems/take", json=asked)
        await problem("POST", "/v1/rates/problems/take", asked)

        with monkeypatch.context() as planted:
            planted.setattr(Lag, "late", property(lambda lag: 100.0))
            await problem("GET", "/v1/locks")
        with monkeypatch.context() as planted:
            planted.setattr(type(locks), "nodes", lambda locks: 1 / 0)
            await problem("GET", "/v1/nodes")

        async def unsure(*arguments: object) -> float:
            raise NoQuorum("problems:held", 1.0, {}, 3)

        hold = next(iter(gateway.leases))
        with monkeypatch.context() as planted:
            planted.setattr(type(hold.lease), "extend", unsure)
            await problem("POST", f"{ID}/keepalive", {})
        with monkeypatch.context() as planted:
            planted.setattr(type(locks), "inspect", unsure)
            await problem("GET", "/v1/locks/x")

        await locks.force_release("problems:held", "a test")
        assert hold.lease is not None
        await hold.lease.lost.wait()
        await problem("GET", ID)
        await client.put(f"{ID}-5", json=held)
        await client.delete(f"{ID}-5")
        await problem("GET", f"{ID}-5")
        gateway.drain()
        await problem("PUT", f"{ID}-6", held)
        gateway.clients = TokenFile()
        await problem("GET", "/v1/nodes")
    assert seen == STORIES


