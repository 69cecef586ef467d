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
from proof.books import word

from holdfast.errors import LockBusy, LockLost, NoQuorum
from holdfast.protocol.exclusive import keys_of
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


async def test_b01_no_lease_is_endless_and_two_who_say_nothing_exclude_each_other(face: Face, five: Cluster, name: str) -> None:
    """`ttl=None` is the client's own, and never "for ever"."""
    client, other = await face.connected(five), await face.connected(five)
    lease = await face.acquire(client.lock(name, ttl=None))
    assert await face.try_acquire(other.lock(name, ttl=None)) is None
    await face.until(lambda: lease.votes == 5)
    assert all(0 < left <= 10_000 for left in five.everywhere("PTTL", name))
    assert await face.try_acquire(client.lock(name, ttl=None)) is None
    await face.release(lease)


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


async def test_b04_who_has_it_and_tries_again_keeps_what_he_has(face: Face, five: Cluster, name: str) -> None:
    """On the very same description."""
    client = await face.connected(five)
    lock = client.lock(name, wait=0)
    lease = await face.acquire(lock)
    token = lease.token
    for _ in range(3):
        assert await face.try_acquire(lock) is None
        with pytest.raises(LockBusy):
            await face.acquire(lock)
    assert (lease.token, lease.held) == (token, True)
    assert set(five.holders(name)) <= {token, None}
    assert await face.release(lease, confirm=True) >= 3
    await face.until(lambda: five.holders(name) == [None] * 5)


async def test_b05_who_lost_it_gives_back_nothing_of_the_next_one_s_on_the_same_description(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    lock = client.lock(name, ttl=1.5, renew=False)
    first = await face.acquire(lock)
    second = await face.acquire(lock)  # when the first has run out
    with pytest.raises(LockLost):
        await face.release(first)
    assert second.held
    assert five.holders(name).count(second.token) >= 3
    assert await face.release(second, confirm=True) >= 3


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


async def test_s09_a_crowd_is_served_one_by_one(face: Face, five: Cluster, name: str) -> None:
    client, inside = face.client(five), [0]

    async def body(lease: Any) -> None:
        inside[0] += 1
        assert inside[0] == 1
        await face.sleep(0)
        inside[0] -= 1

    before = sum(five.calls())
    await asyncio.gather(*[face.within(client.lock(name), body) for _ in range(100)])
    assert (sum(five.calls()) - before) / 100 / 5 < 4, "commands a node and hand-over"


async def test_s29_a_node_that_missed_who_came_is_put_in_order_by_the_heartbeat(face: Face, three: Cluster, name: str) -> None:
    client, other = await face.connected(three, ttl=1.2), await face.connected(three, ttl=1.2)
    holder = await face.acquire(client.lock(name, ttl=20))
    served: list[str] = []
    inside = [0]

    async def user(locks: Any) -> None:
        lease = await face.acquire(locks.lock(name))
        inside[0] += 1
        assert inside[0] == 1
        served.append(lease.token)
        await face.sleep(0.01)
        lease.check()
        inside[0] -= 1
        await face.release(lease)

    users = []
    for number, locks in enumerate((client, other, client)):
        users.append(asyncio.create_task(user(locks)))
        await face.until(lambda: min(three.waiters(name)) == number + 1)  # noqa: B023 (called within this turn of the loop)
    queue = keys_of(name.encode())[2].decode()
    line = three.ask(0, "ZRANGE", queue, 0, -1)
    for token in line[:2]:  # one node knows only of the last
        assert three.ask(2, "ZREM", queue, token) == 1
    await face.until(lambda: three.ask(2, "ZRANGE", queue, 0, -1) == line, within=5)
    assert line == sorted(line)
    for node, token in ((1, line[0]), (2, line[0]), (2, line[1])):
        assert three.ask(node, "ZREM", queue, token) == 1
    await face.release(holder)  # now each node hands itself to another one: two of them must be talked out of it
    await asyncio.wait_for(asyncio.gather(*users), 15)
    assert sorted(served) == line
    await face.until(lambda: three.holders(name) == [None] * 3)


async def test_b37_a_wait_ends_in_time_however_often_it_is_woken(face: Face, five: Cluster, name: str) -> None:
    """Another program's key is always about to expire, and never does. Each time, the first waiter asks again."""
    client = await face.connected(five)
    # On a busy machine the key may expire before it is set again. Then the test tries again with a longer life.
    for life in (0.06, 0.24, 0.96):
        wait = 10 * life
        before, began = five.calls(), face.now()
        latest, longest = began, 0.0
        waiter = None
        while waiter is None or not waiter.done():
            five.everywhere("SET", name, "a foreign one", "PX", round(life * 1000))
            longest, latest = max(longest, face.now() - latest), face.now()
            waiter = waiter or asyncio.create_task(face.acquire(client.lock(name, wait=wait)))
            await face.sleep(0.01)
        if longest < life / 2 or waiter.exception() is not None:
            break
        await face.release(await waiter)
    with pytest.raises(LockBusy) as caught:
        await waiter
    assert wait <= face.now() - began < wait + 2 * TICK
    assert caught.value.holder == "a foreign one"
    woken = [now - then for now, then in zip(five.calls(), before, strict=True)]
    assert max(woken) > 4, "it was never woken: this test tests nothing"
    five.everywhere("DEL", name)


async def test_b36_wait_0_is_exactly_one_try(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three)
    lease = await face.acquire(client.lock(name, wait=0))  # and can succeed
    await face.until(lambda: lease.votes == 3)
    before, began = three.calls(), face.now()
    with pytest.raises(LockBusy):
        await face.acquire(client.lock(name, wait=0))
    assert face.now() - began < TICK
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


async def test_b39_waiting_longer_than_a_node_may_owe_an_answer(face: Face, five: Cluster, name: str) -> None:
    heard: list[Any] = []
    client = await face.connected(five, node_timeout=0.05, observer=heard.append)
    lease = await face.acquire(client.lock(name))
    waiter = asyncio.create_task(face.acquire(client.lock(name, wait=20)))
    await face.sleep(0.3)
    await face.release(lease)
    await face.release(await waiter)
    assert not [it for it in heard if word(it) == "down"]


async def test_b37_the_last_look_is_at_the_deadline(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    assert five.everywhere("SET", name, "somebody else's", "NX", "PX", 350) == ["OK"] * 5
    lease = await face.acquire(client.lock(name, wait=0.6))  # a poller that sleeps would look too early, or too late
    assert 0.2 < lease.waited < 0.6
    waiter = asyncio.create_task(face.acquire(client.lock(name, wait=0.6)))
    await face.until(lambda: min(five.waiters(name)) == 1)
    await face.sleep(0.2)
    await face.release(lease)
    second = await waiter
    assert second.fence > lease.fence
    await face.release(second)


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


@pytest.mark.parametrize("plain", ["ü/ 日本\n:\0*?", "{tag}:x", "100%d", "a{b"])
async def test_names_are_literal_and_the_prefix_is_not_part_of_them(face: Face, five: Cluster, name: str, plain: str) -> None:
    client = await face.connected(five, prefix=f"{name}/")
    lease = await face.acquire(client.lock(plain))
    assert lease.name == client.lock(plain).name == plain
    await face.until(lambda: five.holders(f"{name}/{plain}") == [lease.token] * 5)
    other = face.client(five)
    assert await face.try_acquire(other.lock(f"{name}/{plain}")) is None
    free = await face.try_acquire(other.lock(plain))
    await face.release(free)
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


async def test_a_call_after_a_long_outage_has_the_lock_as_soon_as_the_nodes_are_back(face: Face, three: Cluster, name: str) -> None:
    """Also that of a client that was idle, and a try. Until then each call gives them its own `outage` to come back."""
    clients = [await face.connected(three, ttl=2, outage=1, node_timeout=0.5, restart_guard=None) for _ in range(4)]
    await three.kill(0, 1, 2)
    busy, began, failed = clients[0], face.now(), 0
    while face.now() < began + 2.5:
        with pytest.raises(NoQuorum, match=r"; no majority for \d+\.\d s"):
            await face.acquire(busy.lock(name, wait=30 * (failed < 2)))
        failed += 1
    assert failed <= 3, "two waits of 1 s, and a try of 0.5 s"
    await three.restart(0, 1, 2)
    for client, wait in zip(clients, (5, 5, 0, 0), strict=True):
        began = face.now()
        await face.release(await face.acquire(client.lock(name, wait=wait)))
        assert face.now() - began < 0.5


async def test_an_outage_that_is_interrupted_begins_anew(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three, ttl=0.6, outage=1.2, node_timeout=0.1)
    lease = await face.acquire(client.lock(name, ttl=20))
    waiter = asyncio.create_task(face.acquire(client.lock(name)))
    for _ in range(2):
        await three.freeze(1, 2)
        await face.until(lambda: [it.state for it in client.nodes()].count("down") == 2)
        await face.sleep(0.5)
        await three.thaw(1, 2)
        await face.until(lambda: [it.state for it in client.nodes()].count("up") == 3)
        await face.sleep(0.1)  # and the waiter hears from them
    await face.release(lease)
    await face.release(await waiter)


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


@pytest.mark.parametrize("count", [2, 4])
async def test_s04_split_votes_are_settled(face: Face, name: str, count: int) -> None:
    async with face.nodes(count) as nodes:
        clients = [await face.connected(nodes) for _ in range(3)]
        inside, got = [0], [0]

        async def body(lease: Any) -> None:
            inside[0] += 1
            assert inside[0] == 1
            got[0] += 1
            await face.sleep(0)
            inside[0] -= 1

        async def user(client: Any) -> None:
            for _ in range(10):
                await face.within(client.lock(name), body)

        await asyncio.wait_for(asyncio.gather(*map(user, clients)), 20)
        assert got == [30]
        holder = await face.acquire(clients[0].lock(name))
        assert await face.try_acquire(clients[1].lock(name)) is None
        with pytest.raises(LockBusy):
            await face.acquire(clients[2].lock(name, wait=0))
        await face.release(holder)
        tries = [face.try_acquire(client.lock(f"{name}/tries")) for client in clients]  # may defeat each other; nobody hangs
        for lease in await asyncio.wait_for(asyncio.gather(*tries), 10):
            if lease is not None:
                await face.release(lease)


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


async def test_b27_a_straggler_speaks_for_its_own_attempt_only(face: Face, three: Cluster, name: str) -> None:
    """What a hung node was sent for a lease that is over does nothing to the next one's, which came later on the same description."""
    client = await face.connected(three, ttl=30, node_timeout=10)
    lock = client.lock(name)
    await three.freeze(2)
    first = await face.acquire(lock)
    await face.release(first)
    second = await face.acquire(lock)
    await three.thaw(2)  # executes: take it, give it back, take it
    await face.until(lambda: three.holders(name) == [second.token] * 3, within=5)
    await face.until(lambda: second.votes == 3)
    assert second.held
    assert second.fence > first.fence
    await face.release(second)
    await face.until(lambda: three.holders(name) == [None] * 3, within=5)
