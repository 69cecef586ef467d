"""The survey that all who look share, and the snapshot that the page makes of it. In virtual time, and on real nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from serve.page.kit import commands
from serve.serving import client_of

from holdfast.aio import Holdfast
from holdfast.embedded import Nodes
from holdfast.serve.surveys import OLD, SHARE, Surveys
from holdfast.testing.simulation import Simulation


def simulated(main: Any) -> None:
    """Run a function with a client in virtual time."""
    simulation = Simulation(3)

    async def whole() -> None:
        async with simulation.client() as locks:
            await main(simulation, locks)

    simulation.run(whole())


def test_all_who_ask_share_a_survey_and_there_is_one_a_second() -> None:
    async def main(simulation: Simulation, locks: Holdfast) -> None:
        shared, loop = Surveys(locks), asyncio.get_running_loop()
        async with locks.lock("a"):
            assert shared.next() is shared.next()
            await shared.next()
            assert (shared.rows.keys(), shared.number, shared.why) == ({"a"}, 1, "")
            began = loop.time()
            for _ in range(3):
                await shared.next()
            # The first of them has waited for what was left of the first second.
            assert 2.5 < loop.time() - began < 3.5
        await shared.next()
        assert (shared.rows, shared.number) == ({}, 5)
        shared.next().cancel()

    simulated(main)


def test_what_nobody_has_asked_for_is_not_shown_later() -> None:
    async def main(simulation: Simulation, locks: Holdfast) -> None:
        shared = Surveys(locks)
        async with locks.lock("a"):
            await shared.next()
        for _ in range(3):
            await asyncio.sleep(OLD - 2)
            await shared.next()
            assert shared.complete_at is not None
        await asyncio.sleep(OLD + 1)
        task = shared.next()
        await asyncio.sleep(0)
        assert shared.complete_at is None
        await task
        assert shared.complete_at is not None

    simulated(main)


def test_without_a_majority_it_says_why_and_keeps_what_it_knew() -> None:
    async def main(simulation: Simulation, locks: Holdfast) -> None:
        shared = Surveys(locks)
        async with locks.lock("a"):
            await shared.next()
            for node in simulation.nodes[:2]:
                node.stop()
            at = shared.complete_at
            for _ in range(3):
                await shared.next()
            assert "nodes are usable" in shared.why
            assert (shared.rows.keys(), shared.complete_at) == ({"a"}, at)

    simulated(main)


async def busy(nodes: Nodes, seconds: float) -> float:
    """The share of the time in which steps of surveys were under way."""
    from holdfast.operations.survey import plan as base

    loop, asked = asyncio.get_running_loop(), 0.0
    step = base.Search._step

    async with Holdfast(*nodes.urls) as locks:
        leases = [await locks.lock(f"share:{it}").acquire() for it in range(300)]

        def timed(self: Any) -> Any:
            nonlocal asked
            plan = step(self)
            began = loop.time()
            yield from plan
            asked += loop.time() - began

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(base.Search, "_step", timed)
            shared = Surveys(locks)
            began = loop.time()
            while loop.time() < began + seconds:
                await shared.next()
            share = asked / (loop.time() - began)
        await asyncio.gather(*[it.release() for it in leases])
    return share


async def test_it_takes_two_per_cent_of_the_nodes_time(nodes: Nodes) -> None:
    # The first step needs no rest before it: one pass of several, on a machine that may be busy.
    assert await busy(nodes, 6.0) <= 2.5 * SHARE


async def test_with_no_viewer_no_command_reaches_the_nodes() -> None:
    with Nodes(3) as own:
        async with Holdfast(*own.urls) as locks:
            shared = Surveys(locks)
            await shared.next()
            await asyncio.sleep(1.5)
            before = commands(own)
            await asyncio.sleep(2.5)
            assert commands(own) == before
            await shared.next()
            assert commands(own) > before


async def complete(client: httpx.AsyncClient) -> httpx.Response:
    """The first snapshot that has everything."""
    async with asyncio.timeout(30):
        while True:
            answer = await client.get("/ui/snapshot")
            if answer.json()["complete_at"] is not None:
                return answer
            await asyncio.sleep(0.1)


async def test_a_snapshot_is_sent_once(locks: Holdfast) -> None:
    async with client_of(locks, grafana_url="https://grafana.example") as client:
        lease = await locks.lock("snapshot:a", note="a note").acquire()
        first = await complete(client)
        said = first.json()
        (row,) = (it for it in said["locks"] if it["name"] == "snapshot:a")
        assert (row["fence"], row["note"], row["state"]) == (lease.fence, "a note", "held")
        assert lease.token not in first.text
        assert ({it["state"] for it in said["nodes"]}, said["spare"], said["grafana_url"]) == ({"up"}, 2, "https://grafana.example")
        assert (first.headers["content-encoding"], said["interval_ms"] >= 1000) == ("gzip", True)
        again = await client.get("/ui/snapshot", headers={"if-none-match": first.headers["etag"]})
        # (Nothing new: unless the next survey has ended meanwhile, on a busy machine.)
        assert again.status_code == 304 or again.json()["complete_at"] > said["complete_at"]
        assert int(again.headers["holdfast-now"]) >= int(first.headers["holdfast-now"]) >= said["complete_at"]
        await lease.release()
        async with asyncio.timeout(30):
            while any(it["name"] == "snapshot:a" for it in (await client.get("/ui/snapshot")).json()["locks"]):
                await asyncio.sleep(0.1)
