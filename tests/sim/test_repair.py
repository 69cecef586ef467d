"""Rolling restarts of nodes without persistence, in the simulator: the law of repair; and planted faults, which break it.

The law. When all nodes are restarted one after another, each after the guard of the one before, nothing is forgotten that once, fill, rate,
latch and barrier keep: if `repair()` is called after each restart, or if each register is read often enough between two restarts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from proof import patches
from sim.conftest import Town
from sim.face import Holdfast

from holdfast.engine.crew import Crew
from holdfast.errors import NotAllArrived
from holdfast.events import Warned
from holdfast.face import once, repair
from holdfast.recipes import repair as recipes

Build = Callable[..., Town]
OPTIONS: dict[str, Any] = {"ttl": 2.0, "max_ttl": 2.0, "node_timeout": 0.5, "outage": 1000.0}
GUARD = 4.0
MONTH = 30 * 86400.0
ORDERS = range(6)
READS = 12  # of each register between two restarts: a reader may hear of the others first
SEEDS = range(4)


class Shop:
    """What a program keeps on the nodes, and how much of it is still there."""

    def __init__(self, town: Town) -> None:
        self.town, self.client = town, Holdfast(town.world, town.nodes, town.laws, **OPTIONS)
        self.runs = self.computed = 0
        client = self.client
        self.quota = client.rate("quota", 3, MONTH, burst=3)
        self.window = client.rate("window", 2, MONTH, algorithm="fixed window")
        self.filling, self.open = client.latch("filling", 3, wait=0), client.latch("open", 2, wait=0)
        self.barrier = client.barrier("barrier", 1, wait=0)
        self.value = client.fill("value", MONTH, self.compute)

    async def compute(self) -> int:
        self.computed += 1
        return self.computed

    async def ship(self) -> int:
        self.runs += 1
        return self.runs

    async def orders(self) -> None:
        for order in ORDERS:
            await self.client.once(f"order:{order}", keep=MONTH).run(self.ship)

    async def begin(self) -> None:
        """Everything is used once, while all nodes are there."""
        await self.client.ready()
        await self.orders()
        for _ in range(3):
            assert await self.quota.take()
        for _ in range(2):
            assert await self.window.take()
        for it in "ab":
            await self.filling.arrive(it)
            await self.open.arrive(it)
        for _ in range(4):
            await self.barrier.wait("me")
        assert (await self.value.get()).computed
        await self.town.world.sleep(1.0)

    async def read(self) -> None:
        """Readers come, each in its own time."""
        for _ in range(READS):
            await self.orders()
            assert not await self.quota.take()
            assert not await self.window.take()
            assert await self.filling.arrived() == 2
            assert await self.open.is_open()
            assert not (await self.value.get()).computed
            await self.town.world.sleep(0.6)

    async def kept(self) -> list[str]:
        """What has been forgotten."""
        await self.orders()
        forgotten = [] if self.runs == len(ORDERS) else ["once"]
        if await self.quota.take():
            forgotten.append("rate")
        if await self.window.take():
            forgotten.append("window")
        if await self.filling.arrived() < 2:
            forgotten.append("latch")
        if not await self.open.is_open():
            forgotten.append("open latch")
        if (await self.value.get()).computed:
            forgotten.append("fill")
        try:
            if await self.client.barrier("barrier", 1, wait=0).wait("me") != 4:
                forgotten.append("barrier")
        except NotAllArrived:
            forgotten.append("barrier")
        return forgotten

    async def restart(self, between: Callable[[], Awaitable[object]]) -> None:
        """All nodes, one after another, as docs/operations.md has it."""
        for node in self.town.nodes:
            node.restart()
            await self.town.world.sleep(GUARD + 1.5)
            await self.client.ready()
            await between()
            await self.town.world.sleep(OPTIONS["ttl"])


async def nothing() -> None:
    pass


def rolling(build: Build, seed: int, nodes: int, how: str) -> tuple[Shop, list[str]]:
    """A rolling restart; what it has made the nodes forget. `how`: what is done after each restart."""
    town = build(nodes, seed, guard=GUARD)
    shop = Shop(town)
    between: Mapping[str, Callable[[], Awaitable[object]]] = {
        "repair": lambda: shop.client.repair(pause=0),
        "read": shop.read,
        "nothing": nothing,
    }
    found: list[str] = []

    async def story() -> None:
        await shop.begin()
        await shop.restart(between[how])
        found.extend(await shop.kept())

    town.world.do(story())
    return shop, found


@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_rolling_restart_with_repair_forgets_nothing(town: Build, seed: int, nodes: int) -> None:
    assert rolling(town, seed, nodes, "repair")[1] == []


@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_rolling_restart_with_readers_forgets_nothing_that_they_read(town: Build, seed: int, nodes: int) -> None:
    assert [it for it in rolling(town, seed, nodes, "read")[1] if it != "barrier"] == []


@pytest.mark.parametrize("nodes", [3, 5])
def test_without_either_a_rolling_restart_forgets_everything(town: Build, nodes: int) -> None:
    shop, forgotten = rolling(town, 0, nodes, "nothing")
    assert forgotten == ["once", "rate", "window", "latch", "open latch", "fill", "barrier"]
    told = [it for it in shop.client.driver.told if isinstance(it, Warned)]
    assert len(told) == nodes
