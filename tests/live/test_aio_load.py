"""Many at once: how often a client writes, what a claim costs in futures, tasks and timers, and that the order is kept."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from typing import Any

import pytest
from live.test_aio_kit import SOON, Eye, calm, connected, driver_of, eye, idle, some, true
from proof.books import word

from holdfast import events
from holdfast.aio import Holdfast, Lease
from holdfast.embedded import Nodes

__all__ = ["eye"]


class Turns:
    """Counts the turns of the running loop, and what is written to each node in each of them."""

    def __init__(self, locks: Holdfast) -> None:
        self.turn, self.writes, self.sizes = 0, Counter[tuple[int, int]](), Counter[int]()
        loop: Any = asyncio.get_running_loop()
        once = loop._run_once

        def counted() -> None:
            self.turn += 1
            once()

        loop._run_once = counted
        for link in driver_of(locks).sockets.links:
            self._count(link)

    def _count(self, link: Any) -> None:
        write = link.transport.write

        def counted(data: bytes) -> None:
            self.writes[link.node, self.turn] += 1
            self.sizes[link.node] += data.count(b"EVALSHA")
            write(data)

        link.transport.write = counted


@calm
async def test_one_write_a_node_and_turn(nodes: Nodes) -> None:
    """What is said first in a turn leaves at once, the rest of that turn in one more write; so a lone task waits for nothing."""
    async with await connected(nodes) as locks:
        seen = Turns(locks)
        lone = await locks.lock(some("lone")).acquire()
        assert set(seen.writes.values()) == {1}
        assert len(seen.writes) == 5
        await lone.release()
        await asyncio.sleep(0.05)  # a turn in which nothing else happens
        seen.writes.clear()
        thrown = locks.lock(some("lone")).acquire()
        thrown.send(None)
        assert len(seen.writes) == 5  # it has left before anybody awaits
        thrown.close()
        await asyncio.sleep(0)
        seen.writes.clear()
        seen.sizes.clear()

        async def works() -> None:
            async with locks.lock(some("writes")):
                await asyncio.sleep(0)

        for _ in range(3):
            await asyncio.gather(*[works() for _ in range(100)])
        assert max(seen.writes.values()) <= 2
        assert set(seen.sizes) == set(range(5))
        await true(lambda: set(seen.sizes.values()) == {600})
        for node in range(5):
            written = sum(count for (at, _), count in seen.writes.items() if at == node)
            assert written < 200, f"{written} writes for 600 commands"


@calm
async def test_what_a_claim_costs(nodes: Nodes) -> None:
    """One future a claim, no task of our own while 300 wait, one timer for all of them."""
    async with await connected(nodes) as locks, await connected(nodes) as others:
        loop: Any = asyncio.get_running_loop()
        name, futures = some("cost"), [0]
        make = loop.create_future

        def counted() -> asyncio.Future[Any]:
            futures[0] += 1
            made: asyncio.Future[Any] = make()
            return made

        held = await others.lock(name).acquire()
        loop.create_future = counted
        waiting = [asyncio.create_task(locks.lock(name).acquire()) for _ in range(300)]
        await true(lambda: len(driver_of(locks).engine.live) == 300)
        loop.create_future = make
        assert futures[0] < 300 + 200  # (and those of `true`, which sleeps)
        assert asyncio.all_tasks() == {asyncio.current_task(), *waiting}
        driver = driver_of(locks)
        assert sum(not it.cancelled() and it._callback == driver._tick for it in loop._scheduled) == 1
        assert len(loop._scheduled) < 100  # nor cancelled ones in heaps
        loop.create_future, futures[0] = counted, 0
        leases = [await locks.lock(some("cost")).acquire() for _ in range(100)]
        loop.create_future = make
        assert futures[0] == 100
        for lease in leases:
            await lease.release()
        waiting += [asyncio.create_task(locks.lock(name, ttl=3 - i / 10).acquire()) for i in range(25)]  # each to be looked after sooner
        await true(lambda: len(driver.engine.live) == 325)
        assert sum(not it.cancelled() and it._callback == driver._tick for it in loop._scheduled) <= 1
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        await held.release()
        await true(lambda: idle(locks))


@calm
async def test_200_waiters_are_served_in_the_order_in_which_they_came(nodes: Nodes, eye: Eye) -> None:
    async with await connected(nodes) as locks, await connected(nodes) as others:
        name, served, fences, inside = some("fifo"), [], [], [0]
        held = await others.lock(name).acquire()

        async def waits(number: int) -> None:
            async with locks.lock(name) as lease:
                inside[0] += 1
                assert inside[0] == 1
                served.append(number)
                fences.append(lease.fence)
                await asyncio.sleep(0)
                inside[0] -= 1

        tasks = [asyncio.create_task(waits(number)) for number in range(200)]
        await true(lambda: len(eye.asks([0], [("ZCARD", f"{{{name}}}:queue")])[0]) and eye.ask(0, "ZCARD", f"{{{name}}}:queue") == 200)
        await held.release()
        async with asyncio.timeout(3 * SOON):
            await asyncio.gather(*tasks)
        assert served == list(range(200))
        assert fences == sorted(set(fences))
        await eye.gone(name)
        assert idle(locks)


@calm
async def test_1000_tasks_with_names_of_their_own(nodes: Nodes, eye: Eye) -> None:
    async with await connected(nodes) as locks:
        names, inside, most = [some("own") for _ in range(1000)], [0], [0]

        async def works(name: str) -> None:
            async with locks.lock(name) as lease:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                await asyncio.sleep(0.01)
                lease.check()
                inside[0] -= 1

        async with asyncio.timeout(3 * SOON):
            await asyncio.gather(*map(works, names))
        assert most[0] > 1 and inside[0] == 0
        await eye.gone(*names)
        assert idle(locks)


@calm
async def test_b48_1000_leases_that_are_held_and_renewed(nodes: Nodes, eye: Eye) -> None:
    """Renewed for as long as they are held, by no task and one timer, and not one of them is in doubt."""
    heard = Counter[str]()

    def observer(event: events.Event) -> None:
        heard[word(event)] += 1

    async with await connected(nodes, ttl=4, observer=observer) as locks:
        loop: Any = asyncio.get_running_loop()
        names = [some("held") for _ in range(1000)]
        lost: list[Lease] = []
        leases = await asyncio.gather(*[locks.lock(name, on_lost=lost.append).acquire() for name in names])
        began = [lease._want.until for lease in leases]
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await asyncio.sleep(2.2)  # each renewed at least once
        assert sum(not it.cancelled() and it._callback == driver_of(locks)._tick for it in loop._scheduled) <= 1
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert lost == [] and all(it.held for it in leases)
        assert all(it._want.until > before for it, before in zip(leases, began, strict=True))
        assert heard["Renewed"] >= 1000
        assert not heard["Doubt"] and not heard["down"] and not heard["lost"]
        await asyncio.gather(*[it.release() for it in leases])
        await eye.gone(*names)
        assert idle(locks)


@calm
async def test_memory_is_given_back(nodes: Nodes) -> None:
    """Ten thousand locks leave no more behind than one: nothing in tables, and no garbage that only the collector finds."""
    async with await connected(nodes) as locks:
        lock = locks.lock(some("memory"))
        for _ in range(20):
            async with lock:
                pass
        gc.collect()
        gc.disable()
        try:
            for _ in range(300):
                async with lock:
                    pass
            await true(lambda: idle(locks))
            found = gc.collect()
        finally:
            gc.enable()
        assert found < 100
        driver = driver_of(locks)
        assert len(driver.engine._timers) < 300
        assert lock._entered == {}


@pytest.mark.parametrize("count", [1, 3])
@calm
async def test_fewer_nodes(count: int) -> None:
    with Nodes(count) as nodes:
        async with await connected(nodes) as locks, await connected(nodes) as others:
            name, inside = some("few"), [0]

            async def works(who: Holdfast) -> None:
                for _ in range(10):
                    async with who.lock(name):
                        inside[0] += 1
                        assert inside[0] == 1
                        await asyncio.sleep(0)
                        inside[0] -= 1

            await asyncio.gather(*[works(it) for it in (locks, others) for _ in range(5)])
            assert idle(locks) and idle(others)
