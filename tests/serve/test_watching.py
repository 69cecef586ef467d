"""When the watcher works, and what share of the nodes' time it takes. In virtual time, and on real nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from serve.page.kit import commands

from holdfast.aio import Holdfast
from holdfast.embedded import Nodes
from holdfast.serve import watching
from holdfast.serve.scene import Viewer
from holdfast.serve.watching import LINGER, SHARE, Watcher
from holdfast.testing.simulation import Simulation


def simulated(main: Any) -> None:
    """Run a function with a client in virtual time."""
    simulation = Simulation(3)

    async def whole() -> None:
        async with simulation.client() as locks:
            await main(simulation, locks)

    simulation.run(whole())


def watcher_of(locks: Holdfast) -> Watcher:
    return Watcher(locks, lambda found: [it.state for it in found])


def rows(viewer: Viewer, watcher: Watcher) -> dict[str, Any]:
    """All rows that a viewer is told of now."""
    found: dict[str, Any] = {}
    while (news := viewer.take(watcher.scene)) is not None:
        if news[0] == "snapshot":
            found.update(news[1]["rows"])
        elif news[0] == "rows":
            found.update(news[1])
    return found


def test_it_sees_changes_while_somebody_looks_and_ten_seconds_longer() -> None:
    async def main(simulation: Simulation, locks: Holdfast) -> None:
        watcher = watcher_of(locks)
        assert not watcher.working
        viewer = watcher.join()
        async with locks.lock("a"):
            await asyncio.sleep(3)
            assert set(rows(viewer, watcher)) == {"a"}
        await asyncio.sleep(3)
        assert rows(viewer, watcher) == {"a": None}
        assert watcher.scene.news("nodes") == ["up"] * 3
        watcher.leave(viewer)
        await asyncio.sleep(LINGER - 1)
        assert watcher.working
        # Another one comes, and the time begins again when it leaves.
        again = watcher.join()
        watcher.leave(again)
        await asyncio.sleep(LINGER - 1)
        assert watcher.working
        watcher.leave(again)
        await asyncio.sleep(LINGER + 1)
        assert not watcher.working
        third = watcher.join()
        async with locks.lock("b"):
            await asyncio.sleep(3)
            assert "b" in rows(third, watcher)
        await watcher.close()
        assert not watcher.working

    simulated(main)


def test_without_a_majority_it_says_why_and_goes_on() -> None:
    async def main(simulation: Simulation, locks: Holdfast) -> None:
        watcher = watcher_of(locks)
        watcher.join()
        await asyncio.sleep(3)
        assert watcher.scene.progress()["why"] == ""
        for node in simulation.nodes[:2]:
            node.stop()
        await asyncio.sleep(20)
        assert "nodes are usable" in watcher.scene.progress()["why"]
        await watcher.close()

    simulated(main)


async def busy(nodes: Nodes, seconds: float) -> float:
    """The share of the time in which steps of the watcher's surveys were under way."""
    from holdfast.base import survey as base

    loop, asked = asyncio.get_running_loop(), 0.0
    step = base.Search._step

    async with Holdfast(*nodes.urls, fresh=nodes.run_ids) as locks:
        leases = [await locks.lock(f"share:{it}").acquire() for it in range(300)]

        def timed(self: Any) -> Any:
            nonlocal asked
            plan = step(self)
            began = loop.time()
            yield from plan
            asked += loop.time() - began

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(base.Search, "_step", timed)
            watcher = watcher_of(locks)
            watcher.join()
            began = loop.time()
            await asyncio.sleep(seconds)
            share = asked / (loop.time() - began)
            await watcher.close()
        await asyncio.gather(*[it.release() for it in leases])
    return share


async def test_it_takes_two_per_cent_of_the_nodes_time(nodes: Nodes) -> None:
    # The first step needs no rest before it: one pass of several, on a machine that may be busy.
    assert await busy(nodes, 6.0) <= 2.5 * SHARE


async def test_planted_a_survey_without_a_pause_is_found(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "SHARE", 0.0)
    monkeypatch.setattr(watching, "EVERY", 0.0)
    assert await busy(nodes, 2.0) > 2.5 * SHARE


@pytest.mark.parametrize("lingers", [False, True], ids=["", "planted: it goes on for ever"])
async def test_with_no_viewer_no_command_reaches_the_nodes(monkeypatch: pytest.MonkeyPatch, lingers: bool) -> None:
    monkeypatch.setattr(watching, "LINGER", 60.0 if lingers else 0.5)
    with Nodes(3) as own:
        async with Holdfast(*own.urls, fresh=own.run_ids) as locks:
            watcher = watcher_of(locks)
            viewer = watcher.join()
            await locks.ready()
            async with asyncio.timeout(20):
                while watcher.scene.progress()["complete_at"] is None:
                    await asyncio.sleep(0.05)
            watcher.leave(viewer)
            await asyncio.sleep(1.5)
            before = commands(own)
            await asyncio.sleep(2.5)
            assert (commands(own) > before) is lingers
            await watcher.close()


async def test_a_fault_of_its_own_is_said(locks: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    def fails(found: object) -> Any:
        raise RuntimeError("planted")

    watcher = Watcher(locks, fails)
    watcher.join()
    await asyncio.sleep(0.1)
    assert "the watcher of the page has ended" in caplog.text
    await watcher.close()
