"""Stories in virtual time, told as a user would write them: what the protocol promises, to the millisecond."""

from __future__ import annotations

import pytest
from sim.conftest import Build

from holdfast.errors import LockLost
from holdfast.face.lease import LeaseState
from holdfast.wire.resp import pack

TRIP = 0.004  # seconds: there and back, at most


def test_the_next_one_has_the_lock_one_trip_after_a_release(town: Build) -> None:
    place = town(5)
    one, two = place.client(), place.client()
    first = place.world.do(one.lock("x").acquire())
    waiter = two.process.run(two.lock("x").acquire())
    place.world.run(place.world.now + 2.0)
    asked = place.world.now
    place.world.do(first.release())
    place.world.run(asked + TRIP)
    second = waiter.result()
    assert second.contended
    assert second.fence > first.fence
    assert second.waited == pytest.approx(2.0, abs=0.1)


def test_a_lease_in_doubt_recovers_or_is_lost_at_its_deadline(town: Build) -> None:
    place = town()
    locks = place.client()
    lease = place.world.do(locks.lock("x", ttl=6.0).acquire())
    for node in place.nodes[1:]:
        node.vanish(4.5)
    place.world.run(place.world.now + 4.0)
    assert lease.state is LeaseState.DOUBT
    place.world.run(place.world.now + 3.0)
    assert lease.state is LeaseState.HELD
    for node in place.nodes[1:]:
        node.vanish(60.0)
    left = lease.remaining
    place.world.run(place.world.now + left - 0.001)
    assert lease.held
    place.world.run(place.world.now + 0.002)
    assert lease.state is LeaseState.LOST
    with pytest.raises(LockLost, match="expired"):
        lease.check()


@pytest.mark.parametrize("nodes, taken, kept", [(3, 1, True), (3, 2, False), (5, 2, True), (5, 3, False), (2, 1, True), (2, 2, False)])
def test_a_key_deleted_on_a_minority_is_taken_back_and_on_a_majority_is_a_loss(town: Build, nodes: int, taken: int, kept: bool) -> None:
    place = town(nodes)
    locks = place.client()
    lease = place.world.do(locks.lock("x", ttl=3.0).acquire())
    place.world.run(place.world.now + 1.5)
    for node in place.nodes[:taken]:
        place.laws.takes_away(node, b"x")
        node.tell(pack(b"DEL", b"x"))
    place.world.run(place.world.now + 1.5)
    assert lease.state is (LeaseState.HELD if kept else LeaseState.LOST)
    if kept:
        assert [node.holder(b"x").decode() for node in place.nodes] == [lease.token] * nodes
    else:
        with pytest.raises(LockLost, match="gap"):
            place.world.do(lease.release())


@pytest.mark.parametrize("ttl", [10.0, 30.0])
@pytest.mark.parametrize("nodes", [1, 3, 5])
def test_a_short_silence_of_all_nodes_costs_nobody_the_lock_however_old_the_lease(town: Build, nodes: int, ttl: float) -> None:
    """The answers to a renewal are lost with their connections, at any age of the lease; nobody else asks for the lock."""
    for age in (1, 2, 3, 4, 5, 6, 8):
        place = town(nodes, seed=age)
        locks = place.client()
        lease = place.world.do(locks.lock("x", ttl=ttl).acquire())
        place.world.run(place.world.now + age * ttl * 0.33 - 0.4)
        for node in place.nodes:
            for link in node.links:
                link.mute = True  # nodes hear what is said, and nobody hears them
        place.world.run(place.world.now + 1.3)
        for node in place.nodes:
            for link in list(node.links):
                link.cut()
        place.world.run(place.world.now + 2 * ttl)
        assert lease.held, f"{lease._lost}, {age * ttl * 0.33:.1f} s after it was acquired"


def test_a_node_that_restarts_with_old_data_goes_by_the_clock_floor_after_its_guard(town: Build) -> None:
    """The node forgets its last moments: another claim's grant. Before, it had kept the record of a long lease."""
    # Rule F3.
    place = town(1)
    node = place.nodes[0]
    node.keeps = True
    one, two = place.client(), place.client()
    old = place.world.do(one.lock("x", ttl=30.0).acquire())
    place.world.run(place.world.now + 51.0)
    for link in node.links:
        if link.client is two.simulated:
            link.deaf = link.mute = True
    waits = two.process.run(two.lock("x").acquire())  # its ticket is of now, and the node hears of it after its restart
    place.world.run(place.world.now + 0.1)
    place.world.do(old.release())
    last = place.world.do(one.lock("x").acquire())
    assert last.fence > old.fence
    node.restart(0.05)
    place.world.run(place.world.now + 34.0)
    assert waits.result().fence > last.fence
