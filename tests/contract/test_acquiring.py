"""Getting a lock: exclusion, order, how long one waits, and what is said to whoever does not get it."""

from __future__ import annotations

import asyncio
import random
import statistics
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face

from holdfast.errors import LockBusy, NoQuorum
from holdfast.protocol.timing import Timing

TICK = 0.3  # seconds by which a busy machine may be late


async def test_b11_a_body_runs_with_the_lock_and_never_without(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)

    async def body(lease: Any) -> list[str]:
        assert lease.held
        assert five.holders(name).count(lease.token) >= 3
        with pytest.raises(LockBusy):
            await face.within(client.lock(name, wait=0), never)
        return ["body"]

    async def never(lease: Any) -> None:
        raise AssertionError("ran without the lock")

    assert await face.within(client.lock(name), body) == ["body"]
    await face.until(lambda: five.holders(name) == [None] * 5)
    lease = await face.try_acquire(client.lock(name))
    assert await face.try_acquire(client.lock(name, wait=20)) is None  # whatever its `wait` says
    await face.release(lease)


async def test_b05_one_at_a_time_among_users_of_a_client_and_between_clients(face: Face, five: Cluster, name: str) -> None:
    locks = [(await face.connected(five)).lock(name) for _ in range(3)]
    inside, fences, dice = [0], [], random.Random(name)

    async def body(lease: Any) -> None:
        inside[0] += 1
        assert inside[0] == 1
        fences.append(lease.fence)
        await face.sleep(dice.random() / 300)
        inside[0] -= 1

    async def user(lock: Any) -> None:
        for _ in range(5):
            await face.within(lock, body)

    await asyncio.gather(*[user(lock) for lock in locks for _ in range(4)])
    assert len(fences) == 60
    assert all(earlier < later for earlier, later in pairwise(fences)), "B-51: fences strictly increase"
    await face.until(lambda: five.holders(name) == [None] * 5)


async def test_the_timing_of_a_lock_reaches_the_claim_as_it_was_made(face: Face, five: Cluster, name: str) -> None:
    """It is one value, which no layer takes apart: an option that one of them forgot would be missing from the claim."""
    client = await face.connected(five)
    lock = client.lock(name, ttl=7, wait=3, renew=False, max_hold=5)
    lease = await face.acquire(lock)
    assert lease._claim.timing is lock._terms.timing
    assert lease._claim.timing == Timing(ttl=7, wait=3, renew=False, max_hold=5)
    await face.release(lease)
    tried = await face.try_acquire(lock)
    assert tried._claim.timing == Timing(ttl=7, wait=0, renew=False, max_hold=5)
    await face.release(tried)


async def test_waiters_are_served_in_the_order_in_which_they_came(face: Face, five: Cluster, name: str) -> None:
    clients = [await face.connected(five) for _ in range(2)]
    holder = await face.acquire(clients[0].lock(name))
    served: list[int] = []
    tickets: list[str] = []

    async def user(number: int) -> None:
        lease = await face.acquire(clients[number % 2].lock(name))
        served.append(number)
        tickets.append(lease.token[:16])
        assert lease.contended
        assert lease.waited > 0
        await face.release(lease)

    users = []
    for number in range(6):
        users.append(asyncio.create_task(user(number)))
        await face.until(lambda: min(five.waiters(name)) == number + 1)  # noqa: B023 (called within this turn of the loop)
        await face.sleep(0.05)  # two clients' clocks differ by some of the milliseconds that asking the nodes for theirs took
    await face.release(holder)
    await asyncio.gather(*users)
    assert tickets == sorted(tickets)
    assert served == list(range(6))


async def test_b36_wait_0_is_exactly_one_try(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three)
    lease = await face.acquire(client.lock(name, wait=0))  # and can succeed
    await face.until(lambda: lease.votes == 3)
    before, began = three.calls(), face.now()
    with pytest.raises(LockBusy):
        await face.acquire(client.lock(name, wait=0))
    assert face.now() - began < TICK
    assert lease.held and three.holders(name) == [lease.token] * 3, "B-04: it keeps what it has"
    await face.sleep(0.1)
    asked = [now - then for now, then in zip(three.calls(), before, strict=True)]
    assert asked == [2, 2, 2], "B-42: one request and one release, and nothing after it"
    assert three.waiters(name) == [0, 0, 0], "a try does not queue"
    await face.release(lease)


async def test_b37_waiting_ends_when_it_was_to_end_and_says_who_has_it(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five, ttl=7)
    lease = await face.acquire(client.lock(name))
    began = face.now()
    with pytest.raises(LockBusy) as caught:
        await face.acquire(client.lock(name, wait=timedelta(milliseconds=300)))
    elapsed, error = face.now() - began, caught.value
    assert 0.3 <= elapsed < 0.3 + TICK
    assert 0.28 < error.waited <= elapsed
    assert (error.name, error.holder) == (name, lease.token)
    assert error.ttl_left is not None
    assert 4 < error.ttl_left <= 7
    assert isinstance(error, TimeoutError)
    await face.until(lambda: five.waiters(name) == [0] * 5)
    await face.release(lease)


async def test_b03_half_a_second_is_half_a_second(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    lease = await face.acquire(client.lock(name, ttl=0.5, renew=False))
    for _ in range(2):
        assert 0 < lease.remaining <= 0.5
        left = five.everywhere("PTTL", name)
        assert max(left) <= 500
        assert sum(it > 0 for it in left) >= 3
        await face.extend(lease)
    await face.release(lease)


# ------------------------------------------------ too few nodes


async def test_s12_no_quorum_says_what_is_wrong_at_each_node(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three, node_timeout=0.2)
    await three.kill(0, 2)
    await face.until(lambda: [it.state for it in client.nodes()] == ["down", "up", "down"])
    began = face.now()
    for wants in (face.acquire(client.lock(name, wait=0)), face.try_acquire(client.lock(name))):  # both raise: nobody can know
        with pytest.raises(NoQuorum) as caught:
            await wants
        assert caught.value.name == name
        for dead in (0, 2):
            assert isinstance(caught.value.causes[three.urls[dead]], OSError)
            assert three.urls[dead] in str(caught.value)
    assert 0.4 <= face.now() - began < 0.4 + 2 * TICK
    await face.until(lambda: three.ask(1, "EXISTS", name) == 0, within=2)  # B-17: nothing is left where it was asked


async def test_b18_the_first_lock_of_a_client_whose_nodes_are_dead(face: Face, three: Cluster, name: str) -> None:
    await three.kill(0, 1, 2)
    client, began = face.client(three), face.now()
    with pytest.raises(NoQuorum) as caught:
        await face.acquire(client.lock(name, wait=0))
    assert face.now() - began < 1 + TICK
    assert sum(isinstance(it, ConnectionRefusedError) for it in caught.value.causes.values()) >= 2


async def test_waiting_ends_when_a_majority_is_away_for_longer_than_outage(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three, ttl=0.6, outage=0.4, node_timeout=0.1)
    lease = await face.acquire(client.lock(name, ttl=20))
    waiters = [asyncio.create_task(face.acquire(client.lock(name, wait=wait))) for wait in (None, 60)]
    await face.until(lambda: min(three.waiters(name)) == 2)
    await three.kill(0)  # a minority is no outage
    await face.sleep(0.45)
    assert not any(it.done() for it in waiters)
    began = face.now()
    await three.freeze(1)  # dead or silent: both are away
    for waiter in waiters:
        with pytest.raises(NoQuorum) as caught:
            await waiter
        assert 0.3 < face.now() - began < 10
        assert set(caught.value.causes) == set(three.urls[:2])
    assert lease.held  # it has still been granted for ten seconds
    await face.release(lease)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
async def test_b16_a_majority_suffices_and_less_does_not(face: Face, name: str, count: int) -> None:
    async with face.nodes(count) as nodes:
        client = await face.connected(nodes, outage=0.1)
        spare = (count - 1) // 2
        await nodes.kill(*range(spare))
        lease = await face.acquire(client.lock(name, wait=10))
        await face.extend(lease)
        assert lease.votes == count - spare
        assert await face.release(lease, confirm=True) >= count // 2 + 1
        await nodes.kill(spare)
        with pytest.raises(NoQuorum):
            await face.acquire(client.lock(name, wait=10))


@pytest.mark.parametrize("harm", ["freeze", "kill"])
async def test_s02_a_hung_or_dead_minority_costs_nothing(face: Face, name: str, harm: str) -> None:
    async def rounds(client: Any, count: int = 25) -> float:
        took = []
        for _ in range(count):
            began = face.now()
            await face.release(await face.acquire(client.lock(name)))
            took.append(face.now() - began)
        return statistics.median(took)

    async with face.nodes(5) as nodes:
        client = await face.connected(nodes)
        await rounds(client, 5)
        healthy = await rounds(client)
        await getattr(nodes, harm)(1, 3)
        began = face.now()
        await face.release(await face.acquire(client.lock(name)))
        assert face.now() - began < 0.5, "not even the first one waits: a node may owe an answer for 1 s"
        harmed = await rounds(client)
        assert harmed < 10 * healthy + 0.05, "a node may owe an answer for 1 s: nobody waits for it"
        cold = face.client(nodes)  # S-03: one that has never spoken to them
        began = face.now()
        lease = await face.acquire(cold.lock(name))
        assert abs(lease.fence / 1e6 - face.wall()) < 10, "its own clock, before any node has told the time"
        assert await face.try_acquire(client.lock(name)) is None
        await face.extend(lease)
        assert await face.release(lease, confirm=True) >= 3
        assert face.now() - began < 0.5
        if harm == "freeze":
            await nodes.thaw(1, 3)


async def test_s06_what_a_hung_node_executes_late_is_taken_back(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three, ttl=30, node_timeout=0.3)
    await three.freeze(2)
    await face.release(await face.acquire(client.lock(name)))
    await three.thaw(2)  # before it counts as broken: it executes what it was sent
    await face.until(lambda: three.ask(2, "EXISTS", name) == 0, within=5)
    await three.freeze(2)
    lease = await face.acquire(client.lock(name))
    await face.until(lambda: client.nodes()[2].state == "down")
    await face.release(lease)
    await three.thaw(2)  # what was sent died with the connection
    await face.until(lambda: client.nodes()[2].state == "up")
    await face.until(lambda: three.holders(name) == [None] * 3, within=5)
