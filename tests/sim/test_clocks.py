"""Nodes whose clocks are set while locks are held. (Clients' own: tests/contract/test_holding.py.)"""

from __future__ import annotations

import pytest
from sim.conftest import Build
from sim.face import Holdfast

from holdfast.errors import LockLost
from holdfast.testing.world import Violation
from holdfast.wire.connection import ConnectionState


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


def test_fences_go_back_if_all_clocks_are_set_back_and_every_node_restarts(town: Build) -> None:
    """Where safety ends: each node restarts empty when the guard of the one before is over."""
    place = town(3)
    one = place.client()
    place.world.do(place.world.do(one.lock("x").acquire()).release())
    for node in place.nodes:
        node.clock.step(-150.0)
    for node in place.nodes:
        node.restart()
        place.world.run(place.world.now + 33.0)
    with pytest.raises(Violation, match="fence"):
        place.world.do(place.client().lock("x", wait=5).acquire())


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
        assert lease.votes == nodes - stepped, "and is not used until it is set back"
        place.world.do(lease.release())
    else:
        with pytest.raises(LockLost):
            place.world.do(lease.release())


def test_fences_grow_though_the_clock_of_one_node_is_far_ahead(town: Build) -> None:
    """Node 0 is constantly a minute ahead, and node 2 away: nobody has the lock by a node whose clock is right and one whose clock is not.

    Else that one's fence would be of node 0's clock floor, and the next one's, without node 0, of a ticket.
    """
    # Rule F4.
    place = town(3)
    ahead, restarted, away = place.nodes
    ahead.clock.step(60.0)
    away.stop()
    one, two = (Holdfast(place.world, place.nodes, owner=owner) for owner in "ab")
    trying = one.process.run(one.lock("x", wait=60.0).acquire())
    place.world.run(place.world.now + 2.0)
    assert not trying.done()
    assert "its clock is 60 s ahead of what most nodes say" in str(one.nodes()[0].cause)
    away.start()  # (it may have forgotten what nobody can have had)
    [lease] = place.ends([trying])
    place.world.do(lease.release())
    restarted.restart()
    place.world.run(place.world.now + 34.0)
    ahead.stop()
    assert lease.fence < place.world.do(two.lock("x", wait=15.0).acquire()).fence


@pytest.mark.parametrize("off", [0.0, -12.5, 12.5])
@pytest.mark.parametrize("seconds", [1.0, 18.0, 25.0, 60.0])
def test_a_process_that_is_stopped_while_it_connects_learns_each_clock_all_the_same(town: Build, seconds: float, off: float) -> None:
    """It reads late what the nodes have said: that makes no clock wrong, and none right. Rule F4."""
    place = town(3)
    place.nodes[0].clock.step(off)
    locks = Holdfast(place.world, place.nodes)
    locks.process.run(locks.driver.ready(90.0))
    connections = locks.driver.engine.connections
    place.world.run(place.world.now + 5.0, lambda: all(it.state is ConnectionState.GREETING and not it.out for it in connections))
    assert {it.state for it in connections} == {ConnectionState.GREETING}
    locks.process.pause(seconds)
    place.world.run(place.world.now + seconds + 0.5)
    assert [it.state for it in locks.nodes()] == ["down" if off else "up", "up", "up"]
    assert ("its clock is" in str(locks.nodes()[0].cause)) is bool(off)
    place.world.do(place.world.do(locks.lock("x").acquire()).release())
