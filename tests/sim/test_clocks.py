"""Nodes whose clocks are set while locks are held. (Clients' own: tests/live/test_clocks.py.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.errors import LockLost

Build = Callable[..., Any]  # a Town, of sim.conftest


def test_nodes_whose_clocks_are_set_back_keep_order_and_exclusion(town: Build) -> None:
    """By less than a quarter of G, which is 8 s."""
    place = town(5)
    one, two = place.client(), place.client()
    lease = place.world.do(one.lock("x").acquire())
    for node in place.nodes:
        node.clock.step(-7.9)
    place.world.run(place.world.now + 20.0)
    assert lease.held
    assert place.world.do(two.lock("x").try_acquire()) is None
    place.world.do(lease.release())
    later = place.world.do(two.lock("x", wait=5).acquire())
    assert later.waited < 1.0
    assert later.fence > lease.fence


@pytest.mark.parametrize("nodes, stepped, kept", [(5, 2, True), (3, 1, True), (5, 3, False), (1, 1, False)])
def test_a_node_whose_clock_is_set_forward_has_forgotten_its_locks(town: Build, nodes: int, stepped: int, kept: bool) -> None:
    place = town(nodes)
    locks, others = place.client(), place.client()
    lease = place.world.do(locks.lock("x").acquire())
    place.world.run(place.world.now + 1.0)
    for node in place.nodes[:stepped]:
        place.laws.takes_away(node, b"x")
        node.clock.step(60.0)
    if kept:
        assert place.world.do(others.lock("x").try_acquire()) is None
    place.world.run(place.world.now + 20.0)
    assert lease.held is kept
    if kept:
        assert lease.votes == nodes
        place.world.do(lease.release())
    else:
        with pytest.raises(LockLost):
            place.world.do(lease.release())
