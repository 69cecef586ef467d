from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
from serve.serving import gateway_app, serving

from holdfast.aio import Holdfast


async def begin(client: httpx.AsyncClient, key: str, **more: Any) -> httpx.Response:
    return await client.put(f"/v1/once/{key}", json={"keep_ms": 60_000, **more})


async def finish(client: httpx.AsyncClient, key: str, lease: str, value: object) -> httpx.Response:
    return await client.put(f"/v1/once/{key}/result", json={"lease": lease, "value": value})


async def test_whoever_waits_for_work_in_vain_is_told_so_as_documented(client: httpx.AsyncClient) -> None:
    first = await begin(client, "once:slow")
    waits = await begin(client, "once:slow", wait_ms=50)
    assert (waits.status_code, waits.json()["state"]) == (202, "waiting")
    again = await begin(client, "once:slow", lease=first.json()["id"])
    assert (again.status_code, again.json()["state"]) == (201, "held")
    kept = await finish(client, "once:slow", first.json()["id"], 1)
    known = await begin(client, "once:slow")
    # Whoever waited asks again by the id of the answer.
    result = await begin(client, "once:slow", lease=waits.json()["id"], wait_ms=5_000)
    assert (result.status_code, result.json()) == (200, {"done": True, "value": 1})
    documented = (await client.get("/openapi.json")).json()["paths"]["/v1/once/{key}"]["put"]["responses"]
    assert {str(it.status_code) for it in (first, waits, again, kept, known, result)} <= documented.keys()


async def test_work_is_done_once(client: httpx.AsyncClient, locks: Holdfast) -> None:
    first = await begin(client, "once:work", label="import")
    assert (first.status_code, first.json()["state"]) == (201, "held")
    lease = first.json()["id"]
    assert (await begin(client, "once:work")).json()["type"] == "/problems/busy"
    waiting = asyncio.create_task(begin(client, "once:work", wait_ms=5_000))
    assert (await client.post(f"/v1/leases/{lease}/keepalive", json={})).json()["valid_ms"] > 9_000
    for _ in range(2):
        kept = await finish(client, "once:work", lease, {"rows": 3})
        assert (kept.status_code, kept.json()) == (200, {"done": True, "value": {"rows": 3}}), kept.text
    for answer in (await waiting, await begin(client, "once:work")):
        assert (answer.status_code, answer.json()) == (200, {"done": True, "value": {"rows": 3}})
    assert (await locks.once("once:work", keep=60).result()).value == {"rows": 3}


async def test_another_does_work_that_was_given_up(client: httpx.AsyncClient) -> None:
    lease = (await begin(client, "once:up")).json()["id"]
    assert (await client.delete(f"/v1/leases/{lease}")).json()["state"] == "released"
    again = await begin(client, "once:up", wait_ms=5_000)
    assert again.status_code == 201
    late = await finish(client, "once:up", lease, "late")
    assert (late.status_code, late.json()["type"]) == (410, "/problems/released")
    assert (await finish(client, "once:up", again.json()["id"], "in time")).json()["value"] == "in time"


async def test_another_does_work_whose_lease_was_lost(client: httpx.AsyncClient) -> None:
    lease = (await begin(client, "once:lost", ttl_ms=300)).json()["id"]
    again = await begin(client, "once:lost", wait_ms=5_000)
    assert again.status_code == 201
    late = await finish(client, "once:lost", lease, "late")
    assert (late.status_code, late.json()["type"]) == (410, "/problems/lost")
    await client.delete(f"/v1/leases/{again.json()['id']}")


async def test_the_same_beginning_is_the_same_work(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*[begin(client, "once:same", lease="a-lease-of-this-test") for _ in range(3)])
    assert len({it.json()["id"] for it in answers}) == 1
    assert [it.status_code for it in answers] == [201] * 3, "200 means that it is done"
    other = await client.put("/v1/leases/another-kind-of-lease", json={"names": ["once:other"]})
    answer = await finish(client, "once:other", other.json()["id"], 1)
    assert answer.json()["type"] == "/problems/kind-mismatch"


async def test_a_rate(client: httpx.AsyncClient) -> None:
    asked = {"limit": 2, "period_ms": 60_000, "key": "somebody"}
    answers = [await client.post("/v1/rates/rates:mail/take", json=asked) for _ in range(3)]
    assert [it.status_code for it in answers] == [200, 200, 429]
    assert answers[0].json()["remaining"] == 1
    said = answers[2].json()
    assert (said["type"], 0 < said["retry_after_ms"] <= 60_000) == ("/problems/rate-limited", True)
    assert 0 < int(answers[2].headers["retry-after"]) <= 60


async def test_who_leads(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/elections/elections:one")).json()["value"] is None
    lease = "a-candidate-of-this-test"
    asked = {"names": ["elections:one"], "kind": "election", "value": "http://one"}
    assert (await client.put(f"/v1/leases/{lease}", json=asked)).status_code == 201
    said = (await client.get("/v1/elections/elections:one")).json()
    assert (said["value"], said["certain"]) == ("http://one", True)


async def test_a_leader_is_followed(locks: Holdfast) -> None:
    values: list[str | None] = []
    async with serving(gateway_app(locks)) as live, httpx.AsyncClient(base_url=live.url, timeout=10) as client:
        lease = await locks.election("elections:followed", "one").campaign()
        async with client.stream("GET", "/v1/elections/elections:followed/events") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: {") and "value" in line:
                    values.append(json.loads(line.removeprefix("data: "))["value"])
                    if values == ["one"]:
                        await lease.publish("two")
                    if values == ["one", "two"]:
                        await lease.resign()
                    if values[-1] is None:
                        # The gateway ends its streams itself when it drains.
                        live.gateway.drain()
                if line == "event: draining":
                    break
    assert values == ["one", "two", None]


async def test_health(client: httpx.AsyncClient, locks: Holdfast) -> None:
    assert (await client.get("/healthz")).json()["ok"]
    await locks.ready()
    assert (await client.get("/readyz")).status_code == 200
    for at in range(3):
        await client.put(f"/v1/leases/a-lease-of-health-{at}", json={"names": ["health"], "wait_ms": 10 * at})
    text = (await client.get("/metrics")).text
    told = dict(it.rsplit(" ", 1) for it in text.splitlines() if it.startswith("holdfast_gateway"))
    assert [told[f'holdfast_gateway_leases{{state="{it}"}}'] for it in ("held", "waiting")] == ["1.0", "2.0"]
    assert [told[f'holdfast_gateway_responses_total{{status="{it}"}}'] for it in (200, 201, 202)] == ["2.0", "1.0", "2.0"]
