"""A lease that is left: it is neither renewed nor released, by nobody, and its lock runs out by itself.

Also the leases that a client lists, and how long its end waits for nodes that do not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Asyncio, Face
from proof.books import word
from proof.misuse import misuse

from holdfast import LeaseState
from holdfast.errors import LockLost
from holdfast.events import Ended
from holdfast.typing import LeaseInfo

TICK = 0.3  # seconds by which a busy machine may be late
LONG = 20.0  # seconds: of a lease that no test outlives, so that what is free was released
TTL = 1.5
# What may be held, each with its number of keys. A slot's key has its number in its name.
HELD: dict[str, Callable[[Any, str], Any]] = {
    "a lock": lambda locks, name: locks.lock(name, ttl=LONG),
    "several names": lambda locks, name: locks.lock(f"{name}.a", f"{name}.b", ttl=LONG),
    "permits": lambda locks, name: locks.semaphore(name, 3, count=2, ttl=LONG),
    "a reader": lambda locks, name: locks.rwlock(name).read(ttl=LONG),
    "a writer": lambda locks, name: locks.rwlock(name).write(ttl=LONG),
    "an office": lambda locks, name: locks.election(name, "here:1", ttl=LONG),
    "without renewal": lambda locks, name: locks.lock(name, ttl=LONG, renew=False),
}


def keys(nodes: Cluster, lease: Any) -> list[list[Any]]:
    """What stands in the keys of a lease, name by name, on every node."""
    return [nodes.holders(name) for name in lease.fences]


async def complete(face: Face, lease: Any, nodes: int = 5) -> None:
    """All nodes count, so that no grant of it is under way."""
    await face.until(lambda: lease.votes == nodes)


async def everybody_heard(face: Face, locks: Any) -> None:
    """Whatever the client has said by now has reached the nodes: on each connection, a question behind it was answered."""
    await face.call(locks.locked_by, "nobody")
    await face.sleep(0.05)


# ------------------------------------------------ leave


@pytest.mark.parametrize("what", HELD)
async def test_what_is_left_stays_on_the_nodes(face: Face, five: Cluster, name: str, what: str) -> None:
    """By its holder, or by its client that is closed: work that goes on under it is told, as by `close()`."""
    locks, other = await face.connected(five), await face.connected(five)
    lease = await face.acquire(HELD[what](locks, name))
    at_the_end = await face.acquire(HELD[what](other, f"{name}/2"))
    for each in (lease, at_the_end):
        await complete(face, each)
    before = keys(five, lease), keys(five, at_the_end)
    lease.leave()
    assert (lease.state, lease.held, lease.remaining, lease.votes) == (LeaseState.RELEASED, False, 0.0, 0)
    assert lease.until == -inf
    with misuse("not_held", match="released or left before"):
        lease.check()
    with misuse("not_held"):
        await face.extend(lease)
    lease.leave()  # idempotent
    assert await face.release(lease) == await face.release(lease, confirm=True) == 0
    await face.close(locks)
    await face.call(other.close, True)
    await face.close(other)  # idempotent
    assert (keys(five, lease), keys(five, at_the_end)) == before, "not by a release, and not by close()"
    assert not lease.lost.is_set()
    assert at_the_end.state is LeaseState.LOST
    with pytest.raises(LockLost) as caught:
        await face.release(at_the_end)
    assert caught.value.reason == "closed"


async def test_leaving_in_a_block(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five)
    leases = []

    async def body(lease: Any) -> None:
        leases.append(lease)
        await complete(face, lease)
        lease.leave()
        assert not lease.held

    await face.within(locks.lock(name, ttl=LONG), body)
    await everybody_heard(face, locks)
    assert five.holders(name) == [leases[0].token] * 5, "the end of the block has not released it"


async def test_what_is_entered_twice_is_left_when_the_last_one_leaves(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five)
    lock = locks.lock(name, ttl=TTL, reentrant=True)

    def script() -> Any:
        outer_block, inner_block = face.block(lock), face.block(lock)
        outer = yield outer_block.enter
        inner = yield inner_block.enter
        yield inner.leave
        assert (inner.state, outer.state) == (LeaseState.RELEASED, LeaseState.HELD)
        yield inner_block.leave
        return outer, outer_block

    # The block that is still open is kept, too: it is what the lease is renewed for.
    outer, _open = await face.user(locks, script())
    await face.sleep(TTL * 1.2)
    assert outer.held, "somebody is still inside: it is renewed"
    await complete(face, outer)
    left = face.now()
    await face.release(outer)
    assert five.holders(name) == [outer.token] * 5, "one of them has said that it must not be released"
    second = await face.acquire(locks.lock(name, wait=3 * TTL))
    assert face.now() - left > TTL / 2
    await face.release(second)


async def test_a_lost_lease_cannot_be_left(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five)
    lease = await face.acquire(locks.lock(name, ttl=0.2, renew=False))
    await face.until(lambda: lease.state is LeaseState.LOST)
    with pytest.raises(LockLost) as caught:
        lease.leave()
    assert caught.value.reason == "expired"
    lease.leave()  # raised once


async def test_a_leader_that_leaves_is_seen_until_its_term_runs_out(face: Face, five: Cluster, name: str) -> None:
    locks, other = await face.connected(five), await face.connected(five)
    leadership = await face.acquire(locks.election(name, "here:1", ttl=TTL))
    standby = other.election(name, "there:2", ttl=TTL)
    leadership.leave()
    leader = await face.call(standby.leader)
    assert (leader.value, leader.term) == ("here:1", leadership.term), "it has not resigned"
    second = await asyncio.wait_for(face.acquire(standby), 20)
    assert second.term > leadership.term
    await face.release(second)


async def test_observers_hear_that_it_was_left(face: Face, five: Cluster, name: str) -> None:
    heard: list[Any] = []
    locks = await face.connected(five, observer=heard.append)
    left = await face.acquire(locks.lock(name, ttl=LONG))
    left.leave()
    at_the_end = await face.acquire(locks.lock(f"{name}/2", ttl=LONG))
    await face.call(locks.close, True)
    ends = [it for it in heard if isinstance(it, Ended)]
    assert [(word(it), it.token) for it in ends] == [("left", left.token), ("left", at_the_end.token)]
    assert all(LONG / 2 < it.remaining <= LONG for it in ends)


# ------------------------------------------------ close(leave=True)


async def test_a_block_is_told_that_its_client_was_closed(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five)
    told: list[Any] = []
    closing: list[Any] = []
    went_on: list[Face] = []

    async def body(lease: Any) -> None:
        await complete(face, lease)
        told.append(lease.token)
        closing.append(asyncio.create_task(face.call(locks.close, True)))
        await face.sleep(0.5)
        went_on.append(face)

    with pytest.raises(LockLost, match="closed"):
        await face.within(locks.lock(name, ttl=LONG, on_lost=told.append), body)
    await closing[0]
    assert len(told) == 2, "and on_lost was called"
    assert isinstance(face, Asyncio) is (not went_on), "asyncio: the body was cancelled"
    assert five.holders(name) == [told[0]] * 5


# ------------------------------------------------ leases()


async def test_a_client_lists_what_it_holds(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five)
    assert locks.leases() == ()
    kinds = {
        "exclusive": locks.lock(f"{name}.a", f"{name}.b"),
        "read": locks.rwlock(f"{name}.r").read(),
        "write": locks.rwlock(f"{name}.w").write(),
        "permit": locks.semaphore(f"{name}.s", 3, count=2),
        "election": locks.election(f"{name}.e"),
    }
    held = {}
    for kind, lock in kinds.items():
        held[kind] = await face.acquire(lock)
        await complete(face, held[kind])
    waiter = asyncio.create_task(face.acquire(locks.lock(f"{name}.a", wait=30)))
    await face.until(lambda: locks.stats().waiting == 1)
    found = locks.leases()
    assert [(it.kind, it.names) for it in found] == [(kind, it.names) for kind, it in kinds.items()], "the oldest first"
    for info in found:
        lease = held[info.kind]
        assert isinstance(info, LeaseInfo)
        assert (info.name, info.fence, info.state, info.votes) == (lease.name, max(lease.fences.values()), LeaseState.HELD, 5)
        assert 0 < info.remaining <= 10
        assert 0 <= info.held_for < 60
    held.pop("permit").leave()
    await face.release(held.pop("exclusive"))
    held["waited"] = await waiter
    left = sorted(it.kind for it in locks.leases())
    assert left == ["election", "exclusive", "read", "write"]
    for lease in held.values():
        await face.release(lease)
    await face.until(lambda: locks.leases() == ())


async def test_what_runs_once_and_what_is_computed_is_listed_too(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five)
    found: list[str] = []

    def work() -> int:
        found.extend(it.kind for it in locks.leases())
        return 1

    does = face.function(work)
    await face.call(locks.once(name, keep=5).run, does)
    await face.call(locks.fill(name, 5, does).get)
    assert found == ["once", "fill"]


async def test_what_is_entered_twice_is_one_lease(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five)
    lock = locks.lock(name, reentrant=True)

    def script() -> Any:
        outer_block, inner_block = face.block(lock), face.block(lock)
        outer = yield outer_block.enter
        yield inner_block.enter
        twice = locks.leases()
        yield outer.release
        once = locks.leases()
        yield inner_block.leave
        yield outer_block.leave
        return twice, once

    for found in await face.user(locks, script()):
        assert [it.name for it in found] == [name]


async def test_until_when_a_lease_is_held(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five)
    lease = await face.acquire(locks.lock(name, ttl=0.9))
    until = lease.until
    assert 0 < until - face.now() <= 0.9
    assert lease.remaining == pytest.approx(until - face.now(), abs=TICK)
    await face.until(lambda: lease.until > until)
    await face.release(lease)
    assert lease.until == -inf


# ------------------------------------------------ the end beside nodes that do not answer


@pytest.mark.parametrize("leave", [False, True])
async def test_the_end_waits_for_a_majority_and_the_others_hear_of_it(face: Face, own_five: Cluster, name: str, leave: bool) -> None:
    nodes = own_five
    locks = await face.connected(nodes, node_timeout=5.0, max_ttl=100, ttl=60)
    lease = await face.acquire(locks.lock(name))
    await complete(face, lease)
    await face.sleep(0.1)  # until nothing is owed
    await nodes.freeze(4)
    began = face.now()
    await face.call(locks.close, leave)
    assert face.now() - began < 1.0, "it would be node_timeout, 5 s"
    await nodes.thaw(4)
    if leave:
        await face.sleep(0.1)
        assert nodes.holders(name) == [lease.token] * 5
    else:
        await face.until(lambda: nodes.holders(name) == [None] * 5, within=5)


async def test_the_end_waits_for_a_majority_that_is_slow(face: Face, own_five: Cluster, name: str) -> None:
    nodes = own_five
    locks = await face.connected(nodes, node_timeout=5.0, max_ttl=100, ttl=60)
    lease = await face.acquire(locks.lock(name))
    await complete(face, lease)
    await nodes.freeze(2, 3, 4)
    closed = asyncio.create_task(face.close(locks))
    await face.sleep(0.5)
    assert not closed.done(), "two of five have confirmed"
    await nodes.thaw(2)
    await asyncio.wait_for(closed, 3)
    assert [nodes.ask(node, "GET", name) for node in range(3)] == [None] * 3
    await nodes.thaw(3, 4)
