"""Nodes whose clocks are set while locks are held. (Clients' own: tests/contract/test_holding.py.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from proof.books import word
from sim.face import Holdfast

from holdfast.engine.health import Health
from holdfast.errors import LockLost
from holdfast.protocol.claim import Claim
from holdfast.testing.world import Violation
from holdfast.wire.connection import ConnectionState

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


def fences_by_a_clock_that_is_ahead(place: Any, used: bool) -> tuple[int, int]:
    """Node 0 is constantly a minute ahead, and node 2 away. A's fence is of node 0's clock floor, written back to node 1, which restarts.

    When its guard is over, node 2 is back, and node 0 goes away: B's fence is of a ticket. Returns the fences of both. `used`: can A
    have the lock at all, with a node whose clock is right and one whose clock is not?
    """
    ahead, restarted, away = place.nodes
    ahead.clock.step(60.0)
    away.stop()
    one, two = (Holdfast(place.world, place.nodes, owner=owner) for owner in "ab")
    trying = one.process.run(one.lock("x", wait=60.0).acquire())
    place.world.run(place.world.now + 2.0)
    assert trying.done() is used
    if not used:
        cause = one.nodes()[0].cause
        assert "its clock is 60 s ahead of what most nodes say" in str(cause)
        away.start()  # (it may have forgotten what nobody can have had)
    place.world.run(place.world.now + 60.0, trying.done)
    lease = trying.result()
    place.world.do(lease.release())
    restarted.restart()
    if used:
        away.start()
    place.world.run(place.world.now + 34.0)
    ahead.stop()
    return lease.fence, place.world.do(two.lock("x", wait=15.0).acquire()).fence


def test_fences_grow_though_the_clock_of_one_node_is_far_ahead(town: Build) -> None:
    # Rule F4.
    first, second = fences_by_a_clock_that_is_ahead(town(3), used=False)
    assert first < second


def test_a_node_whose_clock_is_far_ahead_repeats_fences_if_it_is_used(town: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that is what the rule is there for."""
    monkeypatch.setattr(Health, "_judge_clocks", lambda *_: None)
    monkeypatch.setattr(Claim, "latest", lambda *_: 2**53)
    with pytest.raises(Violation, match=r"^fence: "):
        fences_by_a_clock_that_is_ahead(town(3), used=True)


def test_a_fence_of_a_node_whose_clock_is_far_ahead_is_not_written_back(town: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nobody has found out that its clock is."""
    monkeypatch.setattr(Health, "_judge_clocks", lambda *_: None)
    place = town(3)
    place.nodes[0].clock.step(60.0)
    told: list[Any] = []
    locks = place.client(observer=told.append)
    lease = place.world.do(locks.lock("x", wait=5.0).acquire())
    place.world.run(place.world.now + 1.0)
    assert lease.held and lease.votes == 2
    assert sum(word(it) == "warned" and "its fence of 'x' is" in it.warning for it in told) == 1


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
