"""A rolling restart of three real servers without persistence: what is forgotten, and what repair does about it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.embedded import Nodes

MONTH = 30 * 86400.0
# (A busy machine answers later than within the usual 50 ms for such a ttl.)
OPTIONS: dict[str, Any] = {"ttl": 0.5, "max_ttl": 0.5, "node_timeout": 0.5}


@pytest.fixture
def three() -> Iterator[Nodes]:
    with Nodes(3) as nodes:
        yield nodes


class Shop:
    """What a program keeps on the nodes."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes, self.runs = nodes, 0
        self.client = Holdfast(*nodes.urls, **OPTIONS)
        self.latch = self.client.latch("latch", 3)
        self.quota = self.client.rate("quota", 2, MONTH)

    def ship(self) -> int:
        self.runs += 1
        return self.runs

    def orders(self) -> None:
        for order in range(20):
            self.client.once(f"order:{order}", keep=MONTH).run(self.ship)

    def begin(self) -> None:
        self.client.ready()
        self.orders()
        for it in "ab":
            self.latch.arrive(it)
        assert self.quota.take(2)
        assert self.runs == 20

    def forgotten(self) -> list[str]:
        self.orders()
        gone = {"once": self.runs > 20, "latch": self.latch.arrived() < 2, "rate": bool(self.quota.take())}
        return [name for name, it in gone.items() if it]


def until_all_are_up(client: Holdfast) -> None:
    """As docs/operations.md has it: a node is back when it is up for everybody."""
    end = time.monotonic() + 30
    while [it.state for it in client.nodes()] != ["up"] * 3:
        assert time.monotonic() < end, client.nodes()
        time.sleep(0.05)


@pytest.mark.parametrize("repairs", [True, False])
def test_a_rolling_restart_forgets_nothing_if_nodes_are_repaired(three: Nodes, repairs: bool) -> None:
    shop = Shop(three)
    with shop.client as client:
        shop.begin()
        for node in range(3):
            three.kill(node)
            time.sleep(0.2)
            three.restart(node)
            time.sleep(0.5)
            until_all_are_up(client)
            if repairs:
                repaired = client.repair(pause=0.001)
                assert (repaired.found, repaired.lacking, repaired.left_out) == (22, 0, ())
                # A client that has noticed the gap in the latch by itself may have been faster there.
                assert repaired.mended in (21, 22)
                assert all(it.repaired for it in client.nodes())
        assert shop.forgotten() == ([] if repairs else ["once", "latch", "rate"])
