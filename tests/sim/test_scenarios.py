"""Stories in virtual time, told as a user would write them: what the protocol promises, to the millisecond."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from proof.misuse import misuse
from sim.face import Holdfast
from sim.planting import lua
from swarm.faults import promote

from holdfast.errors import LockBusy, LockLost, NoQuorum
from holdfast.face.lease import LeaseState
from holdfast.testing.world import Violation
from holdfast.wire.resp import pack

Build = Callable[..., Any]  # a Town, of sim.conftest

TRIP = 0.004  # seconds: there and back, at most


def test_one_after_the_other(town: Build) -> None:
    place = town()
    one, two = place.client(), place.client()
    told: list[str] = []

    async def user(locks: Any, name: str, delay: float) -> None:
        await place.world.sleep(delay)
        async with locks.lock("x") as lease:
            assert lease.state is LeaseState.HELD
            told.append(f"{name} in")
            await place.world.sleep(5.0)
            told.append(f"{name} out")
        assert lease.state is LeaseState.RELEASED
        with misuse("not_held"):
            lease.check()

    for locks, name, delay in [(one, "a", 0.0), (two, "b", 0.1), (one, "c", 0.2), (two, "d", 0.3)]:
        locks.process.run(user(locks, name, delay))
    place.world.run(60.0)
    assert told == ["a in", "a out", "b in", "b out", "c in", "c out", "d in", "d out"]


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


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5])
def test_a_free_lock_costs_one_trip(town: Build, nodes: int) -> None:
    place = town(nodes)
    locks = place.client()
    began = place.world.now
    lease = place.world.do(locks.lock("x").acquire())
    assert place.world.now - began < TRIP
    assert lease.votes > nodes // 2
    assert sum(place.laws.requests.values()) == nodes


@pytest.mark.parametrize("trouble", ["frozen", "gone", "half open"])
def test_a_minority_in_trouble_costs_nothing(town: Build, trouble: str) -> None:
    place = town(5)
    locks = place.client()
    for node in place.nodes[:2]:
        if trouble == "frozen":
            node.freeze(60.0)
        elif trouble == "gone":
            node.vanish(60.0)
        else:
            for link in node.links:
                link.mute = True
    for _ in range(20):
        began = place.world.now
        lease = place.world.do(locks.lock("x").acquire())
        assert place.world.now - began < TRIP
        place.world.do(lease.release())
        place.world.run(place.world.now + 0.5)


def test_a_dead_holder_is_followed_when_its_lease_has_run_out(town: Build) -> None:
    place = town()
    one, two = place.client(), place.client()
    place.world.do(one.lock("x", ttl=3.0).acquire())
    waiter = two.process.run(two.lock("x", ttl=3.0).acquire())
    place.world.run(place.world.now + 10.0)
    one.process.crash()
    began = place.world.now
    place.world.run(began + 3.0 + 2 * TRIP)
    assert waiter.result().held
    assert place.world.now - began > 2.0 - 2 * TRIP


def test_a_stopped_holder_finds_out_before_it_can_do_harm(town: Build) -> None:
    place = town()
    one, two = place.client(), place.client()
    told: list[tuple[float, int]] = []
    lease = place.world.do(one.lock("x", ttl=2.0, on_lost=lambda lease: told.append((place.world.now, lease.fence))).acquire())
    waiter = two.process.run(two.lock("x", ttl=2.0).acquire())
    place.world.run(place.world.now + 1.0)
    one.process.pause(5.0)
    place.world.run(place.world.now + 4.9)
    assert waiter.result().held
    assert told == []
    place.world.run(place.world.now + 0.2)
    assert [fence for _, fence in told] == [lease.fence]
    assert lease.state is LeaseState.LOST
    assert lease.lost.is_set()
    with pytest.raises(LockLost, match="slow"):
        place.world.do(lease.release())


def test_busy_is_not_unknown(town: Build) -> None:
    place = town()
    one, two = place.client(), place.client()
    lease = place.world.do(one.lock("x").acquire())
    began = place.world.now
    assert place.world.do(two.lock("x").try_acquire()) is None
    assert place.world.now - began < TRIP
    with pytest.raises(LockBusy) as busy:
        place.world.do(two.lock("x", wait=1.5).acquire())
    assert busy.value.holder == lease.token
    assert place.world.now == pytest.approx(began + 1.5, abs=2 * TRIP)
    for node in place.nodes[1:]:
        node.stop()
    with pytest.raises(NoQuorum):
        place.world.do(two.lock("y", wait=1.5).acquire())


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


def test_an_extension_holds_longer_and_says_if_it_cannot_be_known(town: Build) -> None:
    place = town()
    locks = place.client()
    lease = place.world.do(locks.lock("x", ttl=2.0, renew=False).acquire())
    assert place.world.do(lease.extend(20.0)) == pytest.approx(20 * 0.99, abs=0.01)
    for node in place.nodes[1:]:
        node.vanish(60.0)
    with pytest.raises(NoQuorum):
        place.world.do(lease.extend(25.0))
    assert lease.state is LeaseState.DOUBT
    assert lease.remaining > 15


def test_forced_off_the_holder_hears_of_it_in_one_trip(town: Build) -> None:
    place = town()
    locks = place.client()
    lease = place.world.do(locks.lock("x").acquire())
    place.world.run(place.world.now + 1.0)
    for node in place.nodes:
        place.laws.takes_away(node, b"x")
        node.tell(pack(b"DEL", b"x"))
        node.tell(pack(b"PUBLISH", lease.token[17:49].encode(), b"x %b 0 x" % lease.token.encode()))
    place.world.run(place.world.now + TRIP)
    assert (lease.state, lease._lost) == (LeaseState.LOST, "forced")


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


def test_a_majority_is_a_loss_also_where_an_answer_is_lost(town: Build) -> None:
    """Two of three nodes lose the key at once. One of them grants it anew in an answer that never comes: the next answer is as usual."""
    place = town()
    locks = place.client()
    lease = place.world.do(locks.lock("x", ttl=3.0).acquire())
    place.world.run(place.world.now + 0.5)
    for node in place.nodes[1:]:
        place.laws.takes_away(node, b"x")
        node.tell(pack(b"DEL", b"x"))
    for link in place.nodes[2].links:
        link.mute = True
    with pytest.MonkeyPatch.context() as unwatched:
        unwatched.setattr(place.world, "looks", [])  # the laws see it, too
        place.world.run(place.world.now + 5.0)
    assert [node.holder(b"x").decode() for node in place.nodes] in ([lease.token] * 3, [""] * 3)
    assert lease.state is LeaseState.LOST


def test_a_majority_that_another_had_is_a_loss_also_where_an_answer_is_lost(town: Build) -> None:
    """The same after a long hold; and another holds the lock in between."""
    place = town()
    one, two = place.client(), place.client()
    lease = place.world.do(one.lock("x", ttl=3.0).acquire())
    place.world.run(place.world.now + 20.5)
    assert lease.state is LeaseState.HELD
    waiter = two.process.run(two.lock("x", ttl=3.0).acquire())
    place.world.run(place.world.now + 0.1)
    for node in place.nodes[1:]:
        place.laws.takes_away(node, b"x")
        node.tell(pack(b"DEL", b"x"))
        promote(node, lease._terms.recipes[0])
    place.world.run(place.world.now + 0.1)
    place.world.do(waiter.result().release())
    place.world.run(place.world.now + 0.1)
    for link in place.nodes[2].links:
        link.mute = True
    with pytest.MonkeyPatch.context() as unwatched:
        unwatched.setattr(place.world, "looks", [])  # the laws see it, too
        place.world.run(place.world.now + 5.0)
    assert lease.state is LeaseState.LOST


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


def restarts_with_old_data(place: Any) -> None:
    """The node forgets its last moments: another claim's grant. Before, it had kept the record of a long lease."""
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


def test_a_node_that_restarts_with_old_data_goes_by_the_clock_floor_after_its_guard(town: Build) -> None:
    # Rule F3.
    restarts_with_old_data(town(1))


def test_a_record_that_outlasts_the_guard_is_found(town: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    # A renewal takes the short path of the script, or the long way.
    long_way = ("request", "text(math.min(left + K, 2 * K))", "text(left + K)")
    short_path = ("request", "string.format('%.0f', math.min(left + K, 2 * K))", "string.format('%.0f', left + K)")
    longer = lua(long_way, short_path)(monkeypatch)
    with pytest.raises(Violation, match=r"^fence: "):
        restarts_with_old_data(town(1, **longer))


def test_minorities_one_after_another_are_taken_back(town: Build) -> None:
    place = town()
    locks = place.client()
    lease = place.world.do(locks.lock("x", ttl=3.0).acquire())
    for node in place.nodes:
        place.laws.takes_away(node, b"x")
        node.tell(pack(b"DEL", b"x"))
        promote(node, lease._terms.recipes[0])
        place.world.run(place.world.now + 3.0)
        assert lease.state is LeaseState.HELD


def test_a_crash_of_all_nodes_is_a_loss_and_nobody_gets_the_lock_too_early(town: Build) -> None:
    place = town()
    one, two = place.client(), place.client()
    lease = place.world.do(one.lock("x").acquire())
    for node in place.nodes:
        node.restart()
    crashed = place.world.now
    waiter = two.process.run(two.lock("x").acquire())
    place.world.run(crashed + 31.0)
    assert lease.state is LeaseState.LOST
    assert not waiter.done()
    assert {it.state for it in two.nodes()} == {"guarded"}
    place.world.run(crashed + 33.5)
    assert waiter.result().fence > lease.fence


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("known", [False, True])
def test_replicas_that_are_promoted_grant_nothing_before_the_leases_of_their_primaries_have_ended(
    town: Build, nodes: int, known: bool
) -> None:
    """A majority fails over to replicas that had not received the lock; the first holder does not notice, as it asks nobody."""
    place = town(nodes)
    one, two = place.client(), place.client()
    if known:
        place.world.do(two.lock("other").acquire())
    lease = place.world.do(one.lock("x", ttl=30, renew=False).acquire())
    for node in place.nodes:
        node.promote()
    failed = place.world.now
    fresh = two if known else Holdfast(place.world, place.nodes)
    waiter = fresh.process.run(fresh.lock("x").acquire())
    place.world.run(failed + 29.0)
    assert lease.state is LeaseState.HELD and not waiter.done()
    assert {it.state for it in fresh.nodes()} == {"guarded"}
    assert all("was promoted lately" in str(it.cause) for it in fresh.nodes())
    place.world.run(failed + 34.0)
    assert waiter.result().fence > lease.fence
    later = place.client()
    began = place.world.now
    assert place.world.do(later.lock("another").acquire()).held
    assert place.world.now - began < 4 * TRIP, "the nodes have notes of their promotions"


def test_closing_gives_everything_back(town: Build) -> None:
    place = town()
    one, two = place.client(), place.client()
    lease = place.world.do(one.lock("x").acquire())
    waiter = two.process.run(two.lock("x").acquire())
    place.world.run(place.world.now + 0.1)
    place.world.do(one.close())
    place.world.run(place.world.now + TRIP)
    assert lease.state is LeaseState.LOST
    assert waiter.result().held
