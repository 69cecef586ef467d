from __future__ import annotations

import httpx

from holdfast.aio import Holdfast


async def test_nodes(client: httpx.AsyncClient, locks: Holdfast) -> None:
    await locks.ready()
    said = (await client.get("/v1/nodes")).json()
    assert (said["majority"], said["up"]) == (3, 5)
    assert {it["state"] for it in said["nodes"]} == {"up"}


async def test_a_survey_goes_on_where_it_stopped(client: httpx.AsyncClient, locks: Holdfast) -> None:
    leases = [await locks.lock(f"serve-survey:{at}", note=f"note {at}").acquire() for at in range(7)]
    names: list[str] = []
    after: str | None = ""
    while after is not None:
        said = (await client.get("/v1/locks", params={"pattern": "serve-survey:*", "limit": 3, "after": after})).json()
        assert said["complete"]
        names += [it["name"] for it in said["locks"]]
        after = said["next"]
    assert names == [f"serve-survey:{at}" for at in range(7)]
    for it in leases:
        await it.release()


async def test_one_lock_is_shown_and_taken_away(client: httpx.AsyncClient, locks: Holdfast) -> None:
    lease = await locks.lock("serve/one lock").acquire()
    said = (await client.get("/v1/locks/serve%2Fone%20lock")).json()
    assert (said["state"], said["holder"], said["fence"]) == ("held", lease.token, lease.fence)

    async def take(match: str | None, body: dict[str, str]) -> httpx.Response:
        headers = {} if match is None else {"if-match": match}
        return await client.request("DELETE", "/v1/locks/serve%2Fone%20lock", json=body, headers=headers)

    why = {"reason": "a test"}
    assert (await take(None, why)).json()["type"] == "/problems/needs-if-match"
    assert (await take("*", {})).json()["type"] == "/problems/invalid"
    assert (await take('"somebody"', why)).json()["holder"]["token"] == lease.token
    taken = await take(f'"{lease.token}"', why)
    assert (taken.status_code, taken.json()["nodes"] >= 3) == (200, True)
    assert (await take("*", why)).json()["type"] == "/problems/free"
    await lease.lost.wait()


async def test_no_other_name(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/nodes", headers={"host": "evil.example"})
    assert (answer.status_code, answer.json()["type"]) == (421, "/problems/misdirected")
    assert answer.headers["x-request-id"] == answer.json()["instance"]
