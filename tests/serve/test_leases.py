from __future__ import annotations

import asyncio
import contextlib
import itertools
import shlex
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from serve.serving import Serving, client_of, gateway_app, gateway_of, serving

from holdfast.aio import Holdfast
from holdfast.fencing.http import fences_in
from holdfast.serve import Gateway

numbers = itertools.count()


def new(name: str = "") -> str:
    return f"{name}lease-of-a-test-{next(numbers):06}"


@pytest.fixture
async def gateway(client: httpx.AsyncClient) -> Gateway:
    return gateway_of(client)


@pytest.fixture
async def live(locks: Holdfast) -> AsyncIterator[Serving]:
    """A gateway behind a real server, whose connections can break."""
    async with serving(gateway_app(locks)) as live:
        yield live


async def put(client: httpx.AsyncClient, lease: str, name: str, **more: Any) -> httpx.Response:
    return await client.put(f"/v1/leases/{lease}", json={"names": [name], **more})


async def test_acquire_keep_and_release(client: httpx.AsyncClient, locks: Holdfast) -> None:
    lease = new()
    answer = await put(client, lease, "leases:one", ttl_ms=10_000, label="import 4711")
    said = answer.json()
    assert (answer.status_code, said["state"], said["kind"]) == (201, "held", "exclusive")
    assert 9_000 < said["valid_ms"] <= 9_898
    assert (said["ttl_ms"], said["keepalive_ms"], said["votes"] >= 3) == (10_000, 3_333, True)
    assert fences_in(answer.headers["fencing-token"]) == said["fences"] == {"leases:one": said["fence"]}
    assert (await locks.inspect("leases:one")).note == "local: import 4711"
    for either in (lease, said["id"]):
        kept = await client.post(f"/v1/leases/{either}/keepalive", json={"ttl_ms": 20_000})
        assert kept.status_code == 200
        assert kept.json()["valid_ms"] > 19_000
    for _ in range(2):
        answer = await client.request("DELETE", f"/v1/leases/{lease}", params={"confirm": "true"})
        assert (answer.json()["state"], answer.json()["confirmed"] >= 3) == ("released", True)
    assert not await locks.is_locked("leases:one")
    gone = await client.post(f"/v1/leases/{lease}/keepalive", json={})
    assert (gone.status_code, gone.json()["type"]) == (410, "/problems/released")


async def test_the_gateway_renews_nothing(client: httpx.AsyncClient, locks: Holdfast) -> None:
    lease = new()
    assert (await put(client, lease, "leases:left alone", ttl_ms=500)).status_code == 201
    began = time.monotonic()
    # Nobody has said who it is, so the nodes do not keep a note of it.
    assert (await locks.inspect("leases:left alone")).note is None
    other = await locks.lock("leases:left alone", wait=5).acquire()
    assert 0.3 < time.monotonic() - began < 2
    await other.release()
    answer = await client.get(f"/v1/leases/{lease}")
    assert (answer.status_code, answer.json()["type"], answer.json()["reason"]) == (410, "/problems/lost", "expired")


async def test_the_same_request_is_the_same_lease(client: httpx.AsyncClient, gateway: Gateway) -> None:
    lease = new()
    answers = await asyncio.gather(*[put(client, lease, "leases:same") for _ in range(5)])
    assert sorted(it.status_code for it in answers) == [200, 200, 200, 200, 201]
    assert len({it.json()["fence"] for it in answers}) == 1
    other = await put(client, lease, "leases:another")
    assert (other.status_code, other.json()["type"]) == (409, "/problems/lease-mismatch")
    assert len(gateway.leases) == 1


async def test_a_busy_lock(client: httpx.AsyncClient, locks: Holdfast) -> None:
    held = await locks.lock("leases:busy", note="somebody").acquire()
    lease = new()
    answer = await put(client, lease, "leases:busy")
    said = answer.json()
    assert (answer.status_code, said["type"], said["holder"]["note"]) == (409, "/problems/busy", "somebody")
    assert int(answer.headers["retry-after"]) >= 1
    # The gateway's own client holds it, but to clients of the gateway that is another one.
    assert said["detail"].startswith("'leases:busy' is held by another client (somebody) for up to ")
    assert said["detail"].endswith("Send `wait_ms` to wait for it, or come back later.")
    await held.release()
    # A failed try is forgotten: the same id may try again.
    assert (await put(client, lease, "leases:busy")).status_code == 201


async def test_a_waiter_keeps_its_place_and_gets_most_of_a_ttl(client: httpx.AsyncClient, locks: Holdfast) -> None:
    held = await locks.lock("leases:line").acquire()
    first, second, left = new(), new(), new()
    for lease, place in ((first, 1), (second, 2), (left, 3)):
        answer = await put(client, lease, "leases:line", wait_ms=200)
        said = answer.json()
        assert (answer.status_code, said["state"], said["place"]) == (202, "waiting", place)
        assert said["holder"]["left_ms"] > 0
    said = (await client.delete(f"/v1/leases/{left}")).json()
    assert (said["state"], said["confirmed"]) == ("released", 0)
    # For long enough that most of the ttl since the last heartbeat would be over.
    again = asyncio.create_task(put(client, first, "leases:line", wait_ms=5_000))
    behind = asyncio.create_task(put(client, second, "leases:line", wait_ms=5_000))
    await asyncio.sleep(2.5)
    await held.release()
    said = (await again).json()
    assert said["state"] == "held"
    assert said["valid_ms"] > 9_800 * 5 / 6
    assert not behind.done()
    await client.delete(f"/v1/leases/{first}")
    assert (await behind).json()["state"] == "held"


async def test_a_lease_that_is_over_does_not_grow_with_each_request(
    client: httpx.AsyncClient, locks: Holdfast, gateway: Gateway
) -> None:
    """An error that is raised again and again gets longer each time, and refers to all that it passed."""
    lease = new()
    assert (await put(client, lease, "leases:over", ttl_ms=10_000)).status_code == 201
    (hold,) = gateway.leases
    await locks.force_release("leases:over", "a test")
    for _ in range(3):
        assert (await client.post(f"/v1/leases/{lease}/keepalive", json={})).status_code == 410
    assert hold.problem is not None
    assert hold.problem.__traceback__ is hold.problem.__context__ is None


@pytest.mark.parametrize("gone", [True, False], ids=["for ever", "for a while"])
async def test_a_grant_that_nobody_listens_to_lives_for_its_linger(live: Serving, locks: Holdfast, gone: bool) -> None:
    held = await locks.lock("leases:unheard").acquire()
    lease, wanted = new(), {"names": ["leases:unheard"], "wait_ms": 30_000, "linger_ms": 1_000}
    async with httpx.AsyncClient(base_url=live.url) as client:
        with contextlib.suppress(httpx.ReadTimeout):
            await client.put(f"/v1/leases/{lease}", json=wanted, timeout=0.3)
    await asyncio.sleep(0.1)
    began = time.monotonic()
    await held.release()
    if not gone:
        async with httpx.AsyncClient(base_url=live.url) as client:
            async with asyncio.timeout(5):
                while not [it for it in live.gateway.leases if it.state == "held"]:
                    await asyncio.sleep(0.01)
            assert (await client.get(f"/v1/leases/{lease}")).json()["state"] == "held"
            await asyncio.sleep(1.5)
            assert (await client.put(f"/v1/leases/{lease}", json=wanted)).status_code == 200
            assert (await client.delete(f"/v1/leases/{lease}")).status_code == 200
    other = await locks.lock("leases:unheard", wait=20).acquire()
    # A whole ttl would be 10 seconds.
    assert time.monotonic() - began < 5
    await other.release()


async def test_a_lease_that_is_taken_away_says_so_at_once(client: httpx.AsyncClient, locks: Holdfast) -> None:
    lease = new()
    await put(client, lease, "leases:forced")
    watching = asyncio.create_task(client.get(f"/v1/leases/{lease}", params={"wait_ms": 10_000}))
    await asyncio.sleep(0.1)
    began = time.monotonic()
    await locks.force_release("leases:forced", "a test")
    said = (await watching).json()
    assert (said["type"], said["reason"]) == ("/problems/lost", "forced")
    assert time.monotonic() - began < 2
    # Lost stays lost, whatever is asked.
    for method, path in (("POST", "/keepalive"), ("DELETE", ""), ("GET", "")):
        answer = await client.request(method, f"/v1/leases/{lease}{path}", json={} if method == "POST" else None)
        assert (answer.status_code, answer.json()["reason"]) == (410, "forced")
    assert (await put(client, lease, "leases:forced")).status_code == 410


@pytest.mark.parametrize(
    "kind,more", [("read", {}), ("write", {}), ("permit", {"permits": 3, "count": 2}), ("election", {"value": "http://me"})]
)
async def test_all_kinds(client: httpx.AsyncClient, kind: str, more: dict[str, Any]) -> None:
    lease = new()
    answer = await put(client, lease, f"leases:{kind}", kind=kind, **more)
    assert (answer.status_code, answer.json()["kind"]) == (201, kind), answer.text
    assert (await client.post(f"/v1/leases/{lease}/keepalive", json={})).json()["valid_ms"] > 9_000
    if kind == "permit":
        assert len(answer.json()["slots"]) == len(answer.json()["fences"]) == 2
    published = await client.post(f"/v1/leases/{lease}/publish", json={"value": "http://you"})
    assert published.status_code == (200 if kind == "election" else 409)
    assert (await client.delete(f"/v1/leases/{lease}")).status_code == 200


async def test_several_names(client: httpx.AsyncClient, locks: Holdfast) -> None:
    lease = new()
    said = (await client.put(f"/v1/leases/{lease}", json={"names": ["leases:a", "leases:b"]})).json()
    assert (set(said["fences"]), said["fence"]) == ({"leases:a", "leases:b"}, None)
    await client.delete(f"/v1/leases/{lease}")
    assert not await locks.is_locked("leases:a")


async def test_many_keepalives_in_one(client: httpx.AsyncClient, locks: Holdfast) -> None:
    leases = [new() for _ in range(20)]
    for at, lease in enumerate(leases):
        await put(client, lease, f"leases:many:{at}")
    await locks.force_release("leases:many:3", "a test")
    await client.delete(f"/v1/leases/{leases[4]}")
    answer = await client.post("/v1/keepalive", json={"leases": [*leases, "x" * 20]})
    beats = answer.json()["leases"]
    states = [it["state"] for it in beats]
    assert states == ["held"] * 3 + ["lost", "released"] + ["held"] * 15 + ["unknown"]
    assert all(it["valid_ms"] > 9_000 if it["state"] == "held" else it["valid_ms"] == 0 for it in beats)


async def test_text_for_shells(client: httpx.AsyncClient) -> None:
    lease = new()
    answer = await client.put(f"/v1/leases/{lease}", json={"names": ["leases:te'xt"]}, headers={"accept": "text/plain"})
    found = dict(it.split("=", 1) for it in shlex.split(answer.text))
    assert (found["state"], found["ttl_ms"], found["contended"]) == ("held", "10000", "false")
    assert int(found["valid_ms"]) > 9_000
    answer = await client.get("/v1/leases/" + "y" * 20, headers={"accept": "text/plain"})
    assert "state=unknown-lease" in answer.text


async def test_events_are_hints(live: Serving, locks: Holdfast) -> None:
    lease = new()
    held = await locks.lock("leases:events").acquire()
    async with httpx.AsyncClient(base_url=live.url, timeout=10) as client:
        await put(client, lease, "leases:events", wait_ms=20, linger_ms=5_000)
        seen: list[str] = []
        async with client.stream("GET", f"/v1/leases/{lease}/events") as stream:
            async for line in stream.aiter_lines():
                assert "valid_ms" not in line
                if line.startswith("event: "):
                    seen.append(line.removeprefix("event: "))
                    if seen == ["waiting"]:
                        await held.release()
                    if seen[-1] == "held":
                        await locks.force_release("leases:events", "a test")
        assert seen == ["waiting", "held", "lost"]


@pytest.mark.parametrize("of", ["", "_in_all"])
async def test_limits(locks: Holdfast, of: str) -> None:
    async with client_of(locks, **{f"max_leases{of}": 2, f"max_waiters{of}": 1}) as client:
        held = await locks.lock("leases:limits").acquire()
        first = new()
        assert (await put(client, first, "leases:limits", wait_ms=10)).status_code == 202
        answer = await put(client, new(), "leases:limits", wait_ms=10)
        assert (answer.status_code, answer.json()["what"]) == (429, "waiters")
        await client.delete(f"/v1/leases/{first}")
        for at in range(2):
            assert (await put(client, new(), f"leases:limits:{at}")).status_code == 201
        answer = await put(client, new(), "leases:limits:2")
        assert (answer.status_code, answer.json()["what"]) == (429, "leases")
        await held.release()


async def test_what_is_refused(client: httpx.AsyncClient) -> None:
    async def problem(body: dict[str, Any], lease: str | None = None) -> tuple[int, str]:
        answer = await client.put(f"/v1/leases/{lease or new()}", json=body)
        return answer.status_code, answer.json()["detail"]

    for body, why in [
        ({"names": ["a"], "ttl_ms": 40_000}, "max_ttl"),
        ({"names": []}, "/names: "),
        ({"names": ["a", "b"], "kind": "read"}, "one name"),
        ({"names": ["gpus[slot 3]"]}, "slot"),
        ({"names": ["a"], "permits": 3}, "permits"),
        ({"names": ["a", "a"]}, "twice"),
    ]:
        status, detail = await problem(body)
        assert (status, why in detail) == (422, True), detail
    assert (await problem({"names": ["a"]}, "short"))[0] == 422
    assert (await problem({"names": ["ü" * 256 + "x"]}))[0] == 414
    assert (await put(client, new(), "ü" * 256)).status_code == 201
