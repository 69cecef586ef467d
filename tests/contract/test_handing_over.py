"""A lease that is handed over: its ticket is adopted once, and nobody else holds the lock in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face
from contract.test_leaving import complete
from proof.misuse import misuse

from holdfast import LeaseState
from holdfast.errors import ConfigError, LockLost, NoQuorum

TTL = 1.5
LONG = 20.0  # seconds: of a lease that no test outlives
TICK = 0.3  # seconds by which a busy machine may be late


async def hand_over(face: Face, lease: Any, ttl: float | None = None) -> str:
    ticket: str = await face.call(lease.hand_over, ttl)
    return ticket


async def adopt(face: Face, locks: Any, ticket: str, **options: Any) -> Any:
    return await face.call(locks.adopt, ticket, **options)


async def test_a_lease_is_handed_over_and_adopted(face: Face, five: Cluster, name: str) -> None:
    """Rule H1: the giver is out before the adopter is in, and the name is taken all the time."""
    here, there, stranger = [await face.connected(five) for _ in range(3)]
    given = await face.acquire(here.lock(name, ttl=TTL))
    await complete(face, given)
    ticket = await hand_over(face, given, LONG)
    assert (given.state, given.held, given.remaining) == (LeaseState.HANDED_OVER, False, 0.0)
    assert "HANDED_OVER" in repr(given)
    with misuse("not_held", match="was handed over before"):
        given.check()
    with misuse("not_held"):
        await face.extend(given)
    assert await face.call(stranger.lock(name).try_acquire) is None
    await face.sleep(TTL)
    assert await face.call(stranger.lock(name).try_acquire) is None, "it lasts as long as the ticket"
    lease = await adopt(face, there, ticket, ttl=TTL)
    assert (lease.state, lease.fence, lease.name) == (LeaseState.HELD, given.fence, name)
    assert lease.token != given.token
    assert await face.release(given) == 0, "to release what was handed over has no effect"
    await face.close(here)
    await face.sleep(TTL + TICK)
    assert lease.held and await face.call(stranger.lock(name).try_acquire) is None, "and is renewed"
    await face.release(lease, confirm=True)
    after = await face.acquire(stranger.lock(name, wait=5))
    assert after.fence > lease.fence
    await face.release(after)


async def test_the_block_that_has_handed_its_lease_over_may_end(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five)
    tickets = []

    async def body(lease: Any) -> None:
        tickets.append(await hand_over(face, lease))

    await face.within(locks.lock(name, ttl=LONG), body)
    lease = await adopt(face, locks, tickets[0])
    assert lease.held
    again = await hand_over(face, lease)
    second = await adopt(face, locks, again)
    assert second.fence == lease.fence, "it may go on to a third owner"
    await face.release(second)


async def test_a_ticket_is_adopted_once(face: Face, five: Cluster, name: str) -> None:
    locks = [await face.connected(five) for _ in range(4)]
    given = await face.acquire(locks[0].lock(name, ttl=LONG))
    ticket = await hand_over(face, given)
    told = await asyncio.gather(*[adopt(face, it, ticket) for it in locks], return_exceptions=True)
    mine = [it for it in told if not isinstance(it, BaseException)]
    assert len(mine) == 1 and mine[0].held
    assert [it.reason for it in told if isinstance(it, LockLost)] == ["ticket"] * 3
    await face.release(mine[0], confirm=True)
    with pytest.raises(LockLost, match="adopted before, or was not adopted in time") as lost:
        await adopt(face, locks[1], ticket)
    assert (lost.value.reason, lost.value.fence) == ("ticket", given.fence)
    free = await face.acquire(locks[2].lock(name, wait=5))
    await face.release(free)


async def test_a_ticket_that_nobody_adopts_ends_with_its_ttl(face: Face, five: Cluster, name: str) -> None:
    here, there = await face.connected(five), await face.connected(five)
    given = await face.acquire(here.lock(name, ttl=LONG))
    await face.call(given.release)
    given = await face.acquire(here.lock(name, ttl=0.5))
    waiter = asyncio.create_task(face.acquire(there.lock(name, wait=15, ttl=LONG)))
    await face.until(lambda: min(five.waiters(name)) == 1)
    began = face.now()
    ticket = await hand_over(face, given, TTL)
    lease = await waiter
    assert TTL - TICK <= face.now() - began <= TTL + 2 * TICK
    with pytest.raises(LockLost):
        await adopt(face, here, ticket)
    assert lease.held, "who has it since is not disturbed"
    await face.release(lease)


async def test_without_a_majority_nothing_is_handed_over_or_adopted(face: Face, name: str) -> None:
    async with face.nodes(3) as nodes:
        here, there = await face.connected(nodes, ttl=LONG), await face.connected(nodes, node_timeout=0.3)
        given = await face.acquire(here.lock(name))
        other = await face.acquire(here.lock(f"{name}.b"))
        await complete(face, given, 3)
        ticket = await hand_over(face, given)
        for node in (0, 1):
            await nodes.freeze(node)
        with pytest.raises(NoQuorum):
            await adopt(face, there, ticket)
        with pytest.raises(NoQuorum):
            await hand_over(face, other)
        assert other.held and other.state is not LeaseState.HANDED_OVER
        for node in (0, 1):
            await nodes.thaw(node)
        await face.ready(there)
        lease = await adopt(face, there, ticket)
        assert lease.fence == given.fence, "it was taken back where it had been executed"
        await face.release(lease)
        await face.release(other)


async def test_only_the_lease_of_one_exclusive_lock_can_be_handed_over(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five)
    for it in (locks.lock(f"{name}.a", f"{name}.b"), locks.semaphore(name, 2), locks.rwlock(name).write()):
        lease = await face.acquire(it)
        with misuse("other", match="only that of one exclusive lock can"):
            await hand_over(face, lease)
        await face.release(lease)
    with pytest.raises(ConfigError, match="a ticket is the text"):
        await adopt(face, locks, "invoice:42")


async def test_what_is_entered_twice_is_not_handed_over(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five)
    lock = locks.lock(name, reentrant=True, ttl=LONG)

    def script() -> Any:
        outer_block, inner_block = face.block(lock), face.block(lock)
        yield outer_block.enter
        inner = yield inner_block.enter
        with misuse("other", match="entered more than once here"):
            yield inner.hand_over
        yield inner_block.leave
        yield outer_block.leave

    await face.user(locks, script())
