"""Several gateways: a lease lives in one of them, and every one of them answers for it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shlex
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from serve import serving as serving_kit
from serve.serving import Serving, gateway_app, listening, serving, url_of, write_tokens

from holdfast import ConfigError
from holdfast.aio import Holdfast
from holdfast.embedded import Nodes
from holdfast.serve import Gateway, Problem
from holdfast.serve.options import Options
from holdfast.serve.peers import ELECTION, Peers

ID = "a-lease-of-several-gateways"


@contextlib.asynccontextmanager
async def gateway_of(nodes: Nodes, max_ttl: float = 30, **options: Any) -> AsyncIterator[Serving]:
    """A gateway with a client of its own, which the others can find."""
    locks, at = Holdfast(*nodes.urls, ttl=max_ttl / 3, max_ttl=max_ttl), listening()
    try:
        async with serving(gateway_app(locks, advertise=url_of(at), **options), at) as live:
            await found(live.gateway)
            yield live
    finally:
        await locks.close(leave=True)


async def found(gateway: Gateway) -> None:
    """Wait until the others can find a gateway."""
    await until(lambda: gateway.findable)


async def until(what: Callable[[], Any], patience: float = 20.0) -> None:
    async with asyncio.timeout(patience):
        while not what():
            await asyncio.sleep(0.01)


@pytest.fixture
async def pair(nodes: Nodes) -> AsyncIterator[tuple[Serving, Serving]]:
    async with gateway_of(nodes) as one, gateway_of(nodes) as two:
        yield one, two


def client_of(live: Serving) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=live.url, timeout=20)


async def held(live: Serving, name: str, lease: str = ID, **more: Any) -> str:
    """Acquire a lease there. Returns its whole id."""
    async with client_of(live) as client:
        said = (await client.put(f"/v1/leases/{lease}", json={"names": [name], **more})).json()
        assert said["state"] == "held", said
        return str(said["id"])


async def kind_of(answer: httpx.Response) -> str:
    return str(answer.json()["type"]).removeprefix("/problems/")


async def test_every_gateway_answers_for_a_lease(pair: tuple[Serving, Serving], locks: Holdfast) -> None:
    one, two = pair
    lease = await held(one, "peers:all")
    assert lease.startswith(f"{one.gateway.name}.")
    async with client_of(two) as client:
        again = await client.put(f"/v1/leases/{lease}", json={"names": ["peers:all"]})
        assert (again.status_code, again.json()["id"]) == (200, lease)
        assert again.headers["fencing-token"].startswith('"peers:all";fence="')
        kept = await client.post(f"/v1/leases/{lease}/keepalive", json={"ttl_ms": 20_000})
        assert kept.json()["valid_ms"] > 19_000
        shown = await client.get(f"/v1/leases/{lease}", headers={"accept": "text/plain"})
        assert dict(it.split("=", 1) for it in shlex.split(shown.text))["state"] == "held"
        other = await client.put(f"/v1/leases/{lease}", json={"names": ["peers:other"]})
        assert await kind_of(other) == "lease-mismatch"
        ended = await client.delete(f"/v1/leases/{lease}", params={"confirm": "true"})
        assert ended.json()["confirmed"] >= 3
        assert await kind_of(await client.get(f"/v1/leases/{lease}")) == "released"
    assert not await locks.is_locked("peers:all")
    assert len(two.gateway.leases) == 0


async def test_keepalives_of_many_leases_reach_all_gateways(pair: tuple[Serving, Serving]) -> None:
    one, two = pair
    leases = [await held(live, f"peers:many:{at}", f"{ID}-{at}") for at, live in enumerate([one, two, one])]
    lost = "gabcdefg." + ID
    async with client_of(two) as client:
        answer = await client.post("/v1/keepalive", json={"leases": [leases[0], lost, leases[1], "x" * 20, leases[2]]})
        beats = answer.json()["leases"]
    assert [it["id"] for it in beats] == [leases[0], lost, leases[1], "x" * 20, leases[2]]
    assert [it["state"] for it in beats] == ["held", "gateway-gone", "held", "unknown", "held"]
    assert all(it["valid_ms"] > 9_000 for it in beats if it["state"] == "held")


async def test_events_are_passed_on(pair: tuple[Serving, Serving], locks: Holdfast) -> None:
    one, two = pair
    lease = await held(one, "peers:events")
    seen: list[str] = []
    async with client_of(two) as client, client.stream("GET", f"/v1/leases/{lease}/events") as stream:
        async for line in stream.aiter_lines():
            if line.startswith("event: "):
                seen.append(line.removeprefix("event: "))
                if seen == ["held"]:
                    await locks.force_release("peers:events", "a test")
    assert seen == ["held", "lost"]


async def test_work_that_is_done_once_ends_through_another_gateway(pair: tuple[Serving, Serving]) -> None:
    one, two = pair
    async with client_of(one) as first, client_of(two) as second:
        lease = (await first.put("/v1/once/peers:once", json={"keep_ms": 60_000, "lease": ID})).json()["id"]
        again = await second.put("/v1/once/peers:once", json={"keep_ms": 60_000, "lease": lease})
        assert (again.status_code, again.json()["id"]) == (201, lease)
        done = await second.put("/v1/once/peers:once/result", json={"lease": lease, "value": [1]})
        assert done.json() == {"done": True, "value": [1]}


async def test_a_client_that_leaves_ends_its_wait_at_the_other_gateway(pair: tuple[Serving, Serving], locks: Holdfast) -> None:
    one, two = pair
    holds = await locks.lock("peers:leaves").acquire()
    asked = {"names": ["peers:leaves"], "linger_ms": 500}
    async with client_of(one) as client:
        lease = (await client.put(f"/v1/leases/{ID}", json={**asked, "wait_ms": 20})).json()["id"]
    async with client_of(two) as client:
        with contextlib.suppress(httpx.ReadTimeout):
            await client.put(f"/v1/leases/{lease}", json={**asked, "wait_ms": 30_000}, timeout=1.0)
    assert one.gateway.leases.waiting == 1
    await until(lambda: one.gateway.leases.waiting == 0)
    await holds.release()


async def test_a_gateway_that_ended(own_nodes: Nodes) -> None:
    most = 6.0
    async with gateway_of(own_nodes, most) as two, client_of(two) as client:
        locks: Holdfast = two.gateway.locks
        own = await held(two, "peers:own", f"{ID}-own", ttl_ms=6_000)
        async with gateway_of(own_nodes, most) as one:
            lease = await held(one, "peers:ended", ttl_ms=2_000)
            name = one.gateway.name
            assert (await client.post(f"/v1/leases/{lease}/keepalive", json={})).status_code == 200
            # Somebody whose gateways have no TLS cannot be an earlier one of those that have it.
            theirs = Peers(locks, "gstrange", "https://10.0.0.7")
            with pytest.raises(Problem, match="has ended"):
                await theirs.find(name)
        # What its clients believe stands, so they are told to go on trying.
        answer = await client.post(f"/v1/leases/{lease}/keepalive", json={})
        assert (answer.status_code, await kind_of(answer), answer.headers["retry-after"]) == (503, "gateway-unreachable", "1")
        beats = (await client.post("/v1/keepalive", json={"leases": [lease, own]})).json()["leases"]
        assert [it["state"] for it in beats] == ["in-doubt", "held"]
        # Its entry runs out, after the longest of its leases.
        await gone(locks, name)
        answer = await client.post(f"/v1/leases/{lease}/keepalive", json={})
        assert (answer.status_code, await kind_of(answer)) == (410, "gateway-gone")


async def gone(locks: Holdfast, name: str) -> None:
    """Wait until nobody leads the election of a gateway."""
    async with asyncio.timeout(20):
        while await locks.election(ELECTION + name).leader():
            await asyncio.sleep(0.05)


async def test_a_gateway_in_the_place_of_another_says_that_it_ended(pair: tuple[Serving, Serving], locks: Holdfast) -> None:
    one, two = pair
    # An earlier gateway had the address of the first one.
    async with locks.election(f"{ELECTION}gearlier", one.url):
        async with client_of(two) as client:
            answer = await client.get(f"/v1/leases/gearlier.{ID}")
            assert (answer.status_code, await kind_of(answer)) == (410, "gateway-gone")
        assert one.gateway.peers is not None
        assert "gearlier" not in one.gateway.peers._known


async def test_nothing_is_granted_before_others_can_find_it(locks: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Peers, "announce", lambda peers: asyncio.sleep(0))
    async with serving_kit.client_of(locks, advertise="http://127.0.0.1:7421") as client:
        assert await kind_of(await client.put(f"/v1/leases/{ID}", json={"names": ["peers:early"]})) == "no-quorum"
        assert (await client.get("/readyz")).status_code == 503
        await serving_kit.gateway_of(client).stop()


async def test_an_entry_that_was_taken_away_is_there_again(pair: tuple[Serving, Serving], locks: Holdfast) -> None:
    name = pair[0].gateway.name
    before = await locks.election(ELECTION + name).leader()
    await locks.force_release(f"{ELECTION}{name}[election]", "a test")
    async with asyncio.timeout(20):
        while (now := await locks.election(ELECTION + name).leader()).term == before.term or not now:
            await asyncio.sleep(0.05)
    assert now.value == pair[0].url


async def test_clients_cannot_announce_gateways(pair: tuple[Serving, Serving]) -> None:
    asked = {"names": [f"{ELECTION}gabcdefg"], "kind": "election", "value": "http://thief.example"}
    async with client_of(pair[0]) as client:
        answer = await client.put(f"/v1/leases/{ID}", json=asked)
        assert (answer.status_code, await kind_of(answer)) == (403, "forbidden")
        # Nor by the name of the lock that its leader holds.
        answer = await client.put(f"/v1/leases/{ID}", json={"names": [f"{ELECTION}gabcdefg[election]"]})
        assert (answer.status_code, await kind_of(answer)) == (422, "invalid")


async def test_who_somebody_is_goes_along(nodes: Nodes, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    write_tokens(tokens, ann='"lock:peers:*"', ben='"lock:peers:*"')
    async with gateway_of(nodes, tokens=str(tokens)) as one, gateway_of(nodes, tokens=str(tokens)) as two:
        async with httpx.AsyncClient() as client:

            async def asked(live: Serving, method: str, path: str, token: str, json: Any) -> httpx.Response:
                headers = {"authorization": f"Bearer {token}"}
                return await client.request(method, f"{live.url}/v1/leases/{path}", json=json, headers=headers)

            lease = (await asked(one, "PUT", ID, "ann", {"names": ["peers:whose"]})).json()["id"]
            kept = [(await asked(two, "POST", f"{lease}/keepalive", it, {})).status_code for it in ("ann", "ben", "eve")]
    assert kept == [200, 404, 401]


async def test_the_same_request_through_any_gateway_is_the_same_lease(pair: tuple[Serving, Serving], locks: Holdfast) -> None:
    """Each request is sent twice, at random through another gateway, and answers are thrown away."""
    chance = random.Random(7)
    async with client_of(pair[0]) as first, client_of(pair[1]) as second:

        async def twice(method: str, path: str, json: Any) -> httpx.Response:
            through = [chance.choice([first, second]) for _ in range(2)]
            answers = await asyncio.gather(*[it.request(method, path, json=json) for it in through])
            return chance.choice(answers)

        for at in range(20):
            asked = {"names": ["peers:twice"], "ttl_ms": 1_000, "wait_ms": 10_000, "linger_ms": 500}
            # The first answer says which gateway it is. From then on, all of them know.
            said = (await chance.choice([first, second]).put(f"/v1/leases/{ID}-{at}", json=asked)).json()
            assert said["state"] == "held", said
            lease = said["id"]
            fences = {(await twice("PUT", f"/v1/leases/{lease}", asked)).json()["fence"] for _ in range(3)}
            fences.add((await twice("POST", f"/v1/leases/{lease}/keepalive", {})).json()["fence"])
            assert fences == {said["fence"]}
            holding = [it for live in pair for it in live.gateway.leases]
            assert [it.id for it in holding] == [lease]
            if chance.random() < 0.7:
                answer = await twice("DELETE", f"/v1/leases/{lease}", None)
                assert answer.json()["state"] == "released"
            else:
                # Nobody keeps it. The next one gets it within a ttl.
                await until(lambda: not [it for live in pair for it in live.gateway.leases if _alive(it)], 5.0)


def _alive(hold: Any) -> bool:
    hold.check()
    return bool(hold.state != "over")


async def test_a_lost_first_answer_delays_others_by_a_ttl_at_most(pair: tuple[Serving, Serving]) -> None:
    asked = {"names": ["peers:lost answer"], "ttl_ms": 1_000, "wait_ms": 10_000}
    async with client_of(pair[0]) as first, client_of(pair[1]) as second:
        before = (await first.put(f"/v1/leases/{ID}", json=asked)).json()
        # The client has not heard it, so it does not know which gateway it is.
        after = (await second.put(f"/v1/leases/{ID}", json=asked)).json()
    assert (after["state"], after["contended"]) == ("held", True)
    assert after["fence"] > before["fence"]
    assert after["waited_ms"] < 5_000


@pytest.mark.parametrize(
    "wrong", ["", "10.0.0.7:7420", "ftp://a", "http://", "http://a/b", "http://a?b", "http://u:p@a", "http://a:0", "http://a:x"]
)
def test_addresses_that_cannot_work(wrong: str) -> None:
    with pytest.raises(ConfigError, match="advertise is an address"):
        Options(advertise=wrong)


def test_its_own_address_is_a_name_of_a_gateway() -> None:
    assert "gateway-1.example" in Options(advertise="https://gateway-1.example:7420").names
    assert "[::2]" in Options(advertise="https://[::2]:7420").names


async def test_authorities_that_cannot_be_read(locks: Holdfast) -> None:
    with pytest.raises(ConfigError, match="authorities of other gateways"):
        gateway_app(locks, advertise="https://10.0.0.7", peer_ca="/nonexistent")
    with pytest.raises(ConfigError, match="needs advertise"):
        Options(peer_ca="/authorities")


@pytest.mark.parametrize("key", ["100%25", "a/b c", "%2F"])
async def test_a_name_in_a_path_is_decoded_once(pair: tuple[Serving, Serving], key: str) -> None:
    path = f"/v1/once/{quote('peers:' + key, '')}"
    async with client_of(pair[0]) as first, client_of(pair[1]) as second:
        lease = (await first.put(path, json={"keep_ms": 60_000})).json()["id"]
        kept = await second.put(f"{path}/result", json={"lease": lease, "value": 1})
        assert (kept.status_code, kept.json()) == (200, {"done": True, "value": 1})
