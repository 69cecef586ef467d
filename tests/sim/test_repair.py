"""Rolling restarts of nodes without persistence, in the simulator: the law of repair.

The law. When all nodes are restarted one after another, each after the guard of the one before, nothing is forgotten that once, fill, rate,
latch and barrier keep: if `repair()` is called after each restart, or if each register is read often enough between two restarts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from proof.books import word
from sim.conftest import Build, Town
from sim.face import Holdfast

from holdfast.errors import NotAllArrived

pytestmark = pytest.mark.worlds

OPTIONS: dict[str, Any] = {"ttl": 2.0, "max_ttl": 2.0, "node_timeout": 0.5, "outage": 1000.0}
GUARD = 4.0
MONTH = 30 * 86400.0
ORDERS = range(6)
READS = 12  # of each register between two restarts: a reader may hear of the others first
SEEDS = range(4)


class Shop:
    """What a program keeps on the nodes, and how much of it is still there."""

    def __init__(self, town: Town) -> None:
        self.told = list[Any]()
        self.town, self.client = town, Holdfast(town.world, town.nodes, observer=self.told.append, **OPTIONS)
        self.runs = self.computed = 0
        self.forgotten: set[str] = set()
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

    async def look(self) -> None:
        """A reader comes for everything. What has been forgotten goes into `forgotten`."""
        await self.orders()
        gone = {
            "once": self.runs > len(ORDERS),
            "rate": bool(await self.quota.take()),
            "window": bool(await self.window.take()),
            "latch": await self.filling.arrived() < 2,
            "open latch": not await self.open.is_open(),
            "fill": (await self.value.get()).computed,
        }
        self.forgotten |= {name for name, it in gone.items() if it}

    async def read(self) -> None:
        """Readers come, each in its own time."""
        for _ in range(READS):
            await self.look()
            await self.town.world.sleep(0.6)

    async def end(self) -> None:
        """One more reader; and a party to the barrier, which nobody only reads."""
        await self.look()
        try:
            if await self.client.barrier("barrier", 1, wait=0).wait("me") != 4:
                self.forgotten.add("barrier")
        except NotAllArrived:
            self.forgotten.add("barrier")

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


def rolling(build: Build, seed: int, nodes: int, how: str) -> Shop:
    """A rolling restart. `how`: what is done after each restart."""
    town = build(nodes, seed, guard=GUARD)
    shop = Shop(town)
    between: Mapping[str, Callable[[], Awaitable[object]]] = {
        "repair": lambda: shop.client.repair(pause=0),
        "read": shop.read,
        "nothing": nothing,
    }

    async def story() -> None:
        await shop.begin()
        await shop.restart(between[how])
        await shop.end()

    town.world.do(story())
    return shop


BOTH = pytest.mark.parametrize("nodes", [3, 5])
ALL = {"once", "rate", "window", "latch", "open latch", "fill", "barrier"}


@BOTH
@pytest.mark.parametrize("seed", SEEDS)
def test_a_rolling_restart_with_repair_forgets_nothing(town: Build, seed: int, nodes: int) -> None:
    assert rolling(town, seed, nodes, "repair").forgotten == set()


@BOTH
@pytest.mark.parametrize("seed", SEEDS)
def test_a_rolling_restart_with_readers_forgets_nothing_that_they_read(town: Build, seed: int, nodes: int) -> None:
    assert rolling(town, seed, nodes, "read").forgotten <= {"barrier"}


@BOTH
def test_without_either_a_rolling_restart_forgets_everything(town: Build, nodes: int) -> None:
    shop = rolling(town, 0, nodes, "nothing")
    assert shop.forgotten == ALL
    told = [it.node for it in shop.told if word(it) == "warned"]
    assert sorted(told) == [it.url for it in shop.town.nodes], "each is warned of once"
