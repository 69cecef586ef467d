"""Cancelled at every point at which it can be (B-32, B-33, B-34, S-08): nothing stays behind, and nobody keeps the cancellation to himself.

Each test cuts the same work after 0, 1, 2 ... turns of the loop, until it is faster than the cut, and looks each time what is left: no key
of ours on any node, the lock there for the next one, no task, no claim; and the task that was cancelled is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from contract.cluster import ask
from live.test_aio_kit import SOON, at_every_turn, calm, client, connected, cut, gone, idle, left, some, true, turns
from proof.misuse import misuse

from holdfast.aio import Holdfast, Lease, Lock
from holdfast.clock import clock
from holdfast.embedded import Nodes


async def there_at_once(lock: Lock) -> None:
    """What was cut has made way on every connection before anything else is said on it: for the same client it is free, now."""
    lease = await lock.try_acquire()
    assert lease is not None, "the lock was not free at once"
    await lease.release()


def only_me() -> bool:
    return asyncio.all_tasks() == {asyncio.current_task()}


async def acquire(lock: Lock) -> None:
    await (await lock.acquire()).release()


async def try_acquire(lock: Lock) -> None:
    lease = await lock.try_acquire()
    assert lease is not None
    await lease.release()


async def enter(lock: Lock) -> None:
    async with lock:
        pass


async def stay(lock: Lock) -> None:
    async with lock:
        await turns(3)


async def under_a_timeout(lock: Lock) -> None:
    async with asyncio.timeout(SOON), lock:
        await turns(1)


async def confirm(lock: Lock) -> None:
    assert await (await lock.acquire()).release(confirm=True) >= 3


USES = [acquire, try_acquire, enter, stay, under_a_timeout, confirm]


@pytest.mark.parametrize("use", USES)
@calm
async def test_the_uncontended_lock(nodes: Nodes, use: Callable[[Lock], Coroutine[Any, Any, None]]) -> None:
    async with await connected(nodes) as locks, await connected(nodes) as others:
        name = some(use.__name__)
        lock, other = locks.lock(name), others.lock(name, wait=SOON)

        async def once(k: int) -> str:
            outcome = await cut(use(lock), k)
            assert only_me()
            await there_at_once(lock)
            await acquire(other)
            await gone(nodes, name)
            assert idle(locks)
            return outcome

        assert await at_every_turn(once) > 2


@pytest.mark.parametrize("use", [acquire, stay])
@calm
async def test_waiting_in_the_queue(nodes: Nodes, use: Callable[[Lock], Coroutine[Any, Any, None]]) -> None:
    async with await connected(nodes) as locks, await connected(nodes) as others:
        name = some("queue")
        lock = locks.lock(name)
        held = await others.lock(name).acquire()
        for k in range(40):
            assert await cut(use(lock), k) == "cancelled"
            assert only_me() and idle(locks)
        await true(lambda: len(left(nodes, name)) == 5)  # the holder's key, and nobody in line
        assert held.held
        assert await locks.lock(name, wait=0).try_acquire() is None
        await held.release()
        await true(lambda: left(nodes, name) == [])
        await there_at_once(lock)


@pytest.mark.parametrize("use", [acquire, stay])
@calm
async def test_at_the_moment_of_being_served(nodes: Nodes, use: Callable[[Lock], Coroutine[Any, Any, None]]) -> None:
    """Granted by a push, and cancelled before, while, or after that is heard: the next in line gets it."""
    async with await connected(nodes) as locks, await connected(nodes) as others:
        name = some("served")
        lock, other = locks.lock(name), others.lock(name, wait=SOON)

        async def once(k: int) -> str:
            held = await other.acquire()
            waiting = asyncio.create_task(use(lock))
            await true(lambda: len(left(nodes, name)) == 15)  # holder and waiter stand everywhere
            last = asyncio.create_task(other.acquire())
            await held.release()
            outcome = await cut(waiting, k)
            await (await asyncio.wait_for(last, SOON)).release()
            await gone(nodes, name)
            assert only_me() and idle(locks) and idle(others)
            return outcome

        assert await at_every_turn(once) > 0
        await there_at_once(lock)


@pytest.mark.parametrize("use", [acquire, try_acquire, stay])
@calm
async def test_while_connecting(nodes: Nodes, use: Callable[[Lock], Coroutine[Any, Any, None]]) -> None:
    """A client that has just been made: its first lock is cut while it dials, introduces itself, loads scripts, asks."""
    name = some("connecting")
    for k in [*range(24), *range(24, 150, 7)]:
        async with client(nodes) as locks:
            assert await cut(use(locks.lock(name)), k) in ("cancelled", "done")
            await there_at_once(locks.lock(name))  # (connected by now)
            assert idle(locks)
        assert only_me()
        await gone(nodes, name)


@calm
async def test_ready_and_close(nodes: Nodes) -> None:
    """A cancelled `ready` does no harm. A cancelled `close` has closed all the same, and what it had to say still arrives."""
    name, most = some("close"), 60

    async def close(locks: Holdfast) -> None:
        await locks.close()

    for k in range(most):
        locks = client(nodes)
        assert await cut(locks.ready(), k) in ("cancelled", "done")
        leases = [await locks.lock(f"{name}{i}").acquire() for i in range(3)]
        waiting = asyncio.create_task(locks.lock(f"{name}0").acquire())
        await turns(1)
        outcome = await cut(close(locks), k % 20)
        if outcome == "done" or k % 20:  # (a task that is cancelled before its first step has done nothing)
            with misuse("closed"):
                await waiting
            assert not any(it.held for it in leases)
            with misuse("closed"):
                await locks.lock(name).acquire()
        await locks.close()
        await asyncio.wait([waiting])
        assert waiting.exception() is not None
        assert only_me()
        await gone(nodes, *[f"{name}{i}" for i in range(3)])


@pytest.mark.parametrize("confirm", [False, True])
@pytest.mark.parametrize("chatter", [False, True])
@calm
async def test_a_release_is_said_or_can_be_said_again(nodes: Nodes, confirm: bool, chatter: bool) -> None:
    async with await connected(nodes) as locks:
        name, beside = some("release"), some("beside")

        async def once(k: int) -> str:
            lease = await locks.lock(name).acquire()
            if chatter:  # something is said in this turn before the release is
                other = asyncio.create_task(acquire(locks.lock(beside)))
            else:
                other = asyncio.create_task(asyncio.sleep(0))
            outcome = await cut(lease.release(confirm), k)
            if k == 0:  # it had not begun
                assert lease.held
            await lease.release()  # whatever became of the first one: twice is nothing
            await there_at_once(locks.lock(name))
            with misuse("not_held"):
                lease.check()
            await asyncio.wait([other])
            await gone(nodes, name)
            assert only_me() and idle(locks)
            return outcome

        await at_every_turn(once)


@calm
async def test_from_the_moment_of_a_hand_over_its_caller_has_the_ticket(nodes: Nodes) -> None:
    """It could be cancelled in between, and nobody would have the lock."""
    async with await connected(nodes) as locks:
        tickets = list[str]()

        async def chatters(beside: Lock) -> None:  # what each says leaves at the end of the turn
            while len(tickets) < 20:
                await acquire(beside)

        async def user(got: list[Lease]) -> None:
            async with locks.lock(some("hand over")) as lease:
                got.append(lease)
                tickets.append(await lease.hand_over())

        others = [asyncio.create_task(chatters(locks.lock(some("beside")))) for _ in range(8)]
        while len(tickets) < 20:
            got = list[Lease]()
            task = asyncio.create_task(user(got))
            while not got or got[0].held:
                await turns(1)
            assert not task.cancel()
            await (await locks.adopt(tickets[-1])).release()
        await asyncio.wait(others)


async def releases(lock: Lock, got: list[Lease]) -> None:
    got.append(await lock.acquire())
    await got[0].release()


async def confirms(lock: Lock, got: list[Lease]) -> None:
    got.append(await lock.acquire())
    await got[0].release(confirm=True)


async def leaves(lock: Lock, got: list[Lease]) -> None:
    async with lock as lease:
        got.append(lease)
        await turns(2)


async def leaves_the_inner_block(lock: Lock, got: list[Lease]) -> None:
    async with lock:
        await leaves(lock, got)


async def extends(lock: Lock, got: list[Lease]) -> None:
    async with lock as lease:
        got.append(lease)
        await lease.extend()


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("use", [releases, confirms, leaves, leaves_the_inner_block, extends])
@calm
async def test_who_may_join_and_believe_what_was_cut_while_it_was_left(
    nodes: Nodes, use: Callable[[Lock, list[Lease]], Coroutine[Any, Any, None]], reentrant: bool
) -> None:
    """The task that was cancelled enters again while it handles that: it really has the lock, and does not wait for itself."""
    if use is leaves_the_inner_block and not reentrant:
        return
    async with await connected(nodes) as locks, await connected(nodes) as others:

        async def once(k: int) -> str:
            name, got = some(use.__name__), list[Lease]()
            lock = locks.lock(name, reentrant=reentrant, wait=SOON)

            async def user() -> None:
                try:
                    await use(lock, got)
                except asyncio.CancelledError:
                    assert not [it for it in got if it.held], "it is believed"
                    async with lock as again:
                        await turns(3)
                        again.check()
                        assert [ask(url, "GET", again.name) for url in nodes.urls].count(again.token) >= 3
                    for lease in got:
                        with misuse("not_held"):
                            await lease.extend()
                        assert await lease.release() == 0
                    raise

            outcome = await cut(user(), k)
            await acquire(others.lock(name, wait=SOON))
            await gone(nodes, name)
            assert only_me() and idle(locks)
            return outcome

        assert await at_every_turn(once) > 2


@calm
async def test_a_release_has_left_when_it_returns(nodes: Nodes) -> None:
    """Whoever computes on afterwards, and keeps the loop from turning, keeps nobody from the lock."""
    async with await connected(nodes) as locks:
        name = some("left")
        lease = await locks.lock(name).acquire()
        other = asyncio.create_task(locks.lock(some("beside")).acquire())
        await turns(1)  # in this turn something was said already
        await lease.release()
        end = clock() + SOON
        while left(nodes, name):  # (without a turn of the loop)
            assert clock() < end
        await (await other).release()
