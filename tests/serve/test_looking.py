from __future__ import annotations

from urllib.parse import quote, urlencode

import httpx
import pytest

from holdfast.aio import Holdfast
from holdfast.serve import looking
from holdfast.serve.problems import mark


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
    assert (said["state"], said["holder"], said["fence"]) == ("held", mark(lease.token), lease.fence)

    async def take(match: str | None, body: dict[str, str]) -> httpx.Response:
        headers = {} if match is None else {"if-match": match}
        return await client.request("DELETE", "/v1/locks/serve%2Fone%20lock", json=body, headers=headers)

    why = {"reason": "a test"}
    assert (await take(None, why)).json()["type"] == "/problems/needs-if-match"
    assert (await take("*", {})).json()["type"] == "/problems/invalid"
    assert (await take('"somebody"', why)).json()["type"] == "/problems/not-the-holder"
    taken = await take(f'"{lease.token}"', why)
    assert (taken.status_code, taken.json()["nodes"] >= 3) == (200, True)
    assert (await take("*", why)).json()["type"] == "/problems/free"
    await lease.lost.wait()


async def test_a_survey_that_takes_long_says_so(client: httpx.AsyncClient, locks: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "LONGEST_SURVEY", 0.0)
    async with locks.lock("serve-long:a"), locks.lock("serve-long:b"):
        said = (await client.get("/v1/locks?pattern=serve-long:*&limit=2")).json()
    assert (len(said["locks"]), said["complete"], said["next"]) == (1, False, None)


def named(*names: str) -> str:
    return "/v1/locks?" + urlencode([("names", it) for it in names])


async def test_several_locks_are_shown_as_each_alone(client: httpx.AsyncClient, locks: Holdfast) -> None:
    names = ["serve-these:b", "serve-these:free", "serve-these:a&c"]
    first, second = [await locks.lock(it).acquire() for it in names[::2]]
    answer = await client.get(named(*names, names[0]))
    assert answer.status_code == 200
    shown = answer.json()["locks"]
    assert [(it["name"], it["state"], it["holder"]) for it in shown] == [
        (names[0], "held", mark(first.token)), (names[1], "free", None), (names[2], "held", mark(second.token)),
    ]  # fmt: skip
    for it in shown:
        alone = (await client.get(f"/v1/locks/{quote(it['name'], '')}")).json()
        assert alone.keys() == it.keys()
        assert [alone[part] for part in ("name", "state", "holder", "owner", "fence")] == [
            it[part] for part in ("name", "state", "holder", "owner", "fence")
        ]
    for lease in (first, second):
        await lease.release()


async def test_questions_about_several_locks_that_cannot_be_answered(client: httpx.AsyncClient) -> None:
    assert (await client.get(named(*[f"these:{at}" for at in range(60)]))).status_code == 200
    many = await client.get(named(*[f"these:{at}" for at in range(61)]))
    assert (many.status_code, many.json()["type"]) == (400, "/problems/malformed")
    assert "at most 60 names, and this one for 61" in many.json()["detail"]
    both = await client.get(named("these:a") + "&pattern=x&limit=3")
    assert (both.status_code, "leave out limit, pattern" in both.json()["detail"]) == (400, True)
    assert (await client.get(named("these:a", "x" * 600))).json()["type"] == "/problems/name-too-long"
    assert (await client.get(named("these:a", ""))).json()["type"] == "/problems/invalid"
