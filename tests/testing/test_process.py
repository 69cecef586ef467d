"""Processes of a simulated world: paused, crashed and cut off, while others go on."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import LockLost, Misuse, StaleFence
from holdfast.aio import Holdfast
from holdfast.errors import ConfigError, NoQuorum
from holdfast.face.aio.lease import Lease
from holdfast.fencing import Seen
from holdfast.testing.process import Process
from holdfast.testing.simulation import Crashed, Simulation, Stuck

pytestmark = pytest.mark.worlds

Body = Callable[[Lease], Awaitable[object]]


async def holding(simulation: Simulation, body: Body, **options: Any) -> None:
    """One process: a client of its own, and a lock."""
    async with simulation.client(ttl=2.0, **options) as locks, locks.lock("x") as lease:
        await body(lease)


async def sleeping(lease: Lease) -> None:
    await asyncio.sleep(1.0)


def test_a_paused_holder_writes_late_and_is_refused_by_its_fence() -> None:
    simulation, written = Simulation(), list[str]()
    seen = Seen(keep=None)

    def writer(name: str) -> Body:
        async def write(lease: Lease) -> None:
            await asyncio.sleep(0.2)  # it reads
            async with seen.aguard(lease):
                written.append(name)

        return write

    async def main() -> None:
        late = simulation.process(holding(simulation, writer("late")))
        await asyncio.sleep(0.1)
        late.pause()
        assert late.paused
        await asyncio.sleep(0.2)
        await simulation.process(holding(simulation, writer("other")))
        late.resume()
        assert not late.paused
        with pytest.raises((StaleFence, LockLost)) as raised:
            await late
        assert raised.type is StaleFence

    simulation.run(main())
    assert written == ["other"]


def test_a_pause_may_end_by_itself() -> None:
    simulation, slept = Simulation(), list[float]()

    async def sleeps(lease: Lease) -> None:
        await asyncio.sleep(0.3)
        slept.append(simulation.now)

    async def main() -> None:
        process = simulation.process(holding(simulation, sleeps))
        await asyncio.sleep(0.1)
        process.pause(0.5)
        process.pause(0.7)  # the longer one counts
        process.pause(0.2)
        await process

    simulation.run(main())
    assert slept == [pytest.approx(0.8, abs=0.01)]


def test_nothing_of_a_paused_process_runs_and_everything_of_others_does() -> None:
    simulation, ran = Simulation(), dict[str, int]()

    async def counts(name: str) -> None:
        async def child() -> None:
            for _ in range(10):
                await asyncio.sleep(0.1)
                ran[name] = ran.get(name, 0) + 1

        async with asyncio.TaskGroup() as group:
            group.create_task(child())
            asyncio.get_running_loop().call_later(0.35, lambda: ran.update({f"{name} timer": 1}))

    async def main() -> None:
        one, two = simulation.process(counts("one")), simulation.process(counts("two"))
        await asyncio.sleep(0.25)
        one.pause()
        await two
        assert ran == {"one": 2, "two": 10, "two timer": 1}
        one.resume()
        await one
        assert ran == {"one": 10, "one timer": 1, "two": 10, "two timer": 1}

    simulation.run(main())


def test_a_crashed_holder_releases_nothing_and_none_of_its_code_runs() -> None:
    simulation, ran = Simulation(), list[str]()

    async def held(lease: Lease) -> None:
        try:
            ran.append("held")
            await asyncio.sleep(1.0)
            ran.append("went on")
        finally:
            ran.append("the end")

    async def main() -> None:
        process = simulation.process(holding(simulation, held), "holder")
        await asyncio.sleep(0.5)
        process.crash()
        process.crash()  # again: nothing happens
        assert process.crashed
        began = simulation.now
        async with simulation.client(ttl=2.0) as locks:
            assert await locks.lock("x").try_acquire() is None, "it is not released"
            async with locks.lock("x"):
                assert 1.0 < simulation.now - began < 2.1, "it ends with its ttl"
        with pytest.raises(Crashed, match="'holder' was crashed"):
            await process
        assert ran == ["held"]
        for harm in (process.pause, lambda: process.cut_off(1)):
            with pytest.raises(Misuse, match="crashed already"):
                harm()

    simulation.run(main())
    gc.collect()
    assert ran == ["held", "the end"]


def test_what_was_sent_before_a_crash_still_arrives() -> None:
    """A process that dies after it has released has released."""
    simulation = Simulation()

    released = asyncio.Event()

    async def user() -> None:
        async with simulation.client() as locks:
            async with locks.lock("x"):
                pass
            released.set()
            await asyncio.sleep(60)

    async def main() -> None:
        process = simulation.process(user())
        await released.wait()
        assert any(node.holder(b"x") for node in simulation.nodes), "the release is under way"
        process.crash()
        async with simulation.client() as locks:
            began = simulation.now
            async with locks.lock("x"):
                assert simulation.now < began + 0.1

    simulation.run(main())


def test_a_process_that_is_cut_off_loses_its_lock_and_others_do_not_notice() -> None:
    simulation, lost = Simulation(), list[float]()

    async def holds(lease: Lease) -> None:
        try:
            await asyncio.sleep(60.0)
        finally:
            lost.append(simulation.now)

    async def other() -> None:
        async with simulation.client() as locks, locks.lock("y") as lease:
            await asyncio.sleep(10.0)
            assert lease.held
            assert lease.votes == 3

    async def main() -> None:
        process, beside = simulation.process(holding(simulation, holds)), simulation.process(other())
        await asyncio.sleep(0.5)
        process.cut_off(5)
        with pytest.raises(LockLost):
            await process
        await beside
        await simulation.process(holding(simulation, sleeping))

    simulation.run(main())
    assert lost == [pytest.approx(2.0, abs=0.6)]


def test_a_process_may_be_cut_off_from_a_minority() -> None:
    simulation = Simulation()

    async def holds(lease: Lease) -> None:
        await asyncio.sleep(10.0)
        assert lease.held
        assert lease.votes == 2

    async def main() -> None:
        process = simulation.process(holding(simulation, holds))
        await asyncio.sleep(0.5)
        process.cut_off(60, simulation.nodes[:1])
        await process

    simulation.run(main())


def test_a_cut_ends_and_the_client_connects_again() -> None:
    simulation = Simulation()

    async def main() -> None:
        async def user() -> None:
            async with simulation.client(ttl=2.0, node_timeout=0.3) as locks:
                await locks.ready()
                await asyncio.sleep(3.0)
                async with locks.lock("x", wait=30) as lease:
                    await asyncio.sleep(3.0)
                    assert lease.votes == 3

        process = simulation.process(user())
        await asyncio.sleep(0.5)
        process.cut_off(2.0)
        await process

    simulation.run(main())


def test_ready_hears_every_node_that_answers_before_it_says_up() -> None:
    """It used to wait for as many answers as nodes were up: one of a node that refuses writes stood for the slowest one."""
    simulation = Simulation()

    async def main() -> None:
        async with simulation.client() as locks:
            simulation.nodes[0].server.refuse[b"SET"] = b"OOM it is full"
            assert [it.state for it in await locks.ready()] == ["refusing", "up", "up"]
            simulation.nodes[1].server.refuse[b"SET"] = b"OOM it is full"
            simulation.nodes[1].lag = 0.5
            with pytest.raises(NoQuorum):
                await locks.ready(2)

    simulation.run(main())


def test_the_timeline_tells_what_happened_to_a_process() -> None:
    simulation = Simulation()

    async def main() -> None:
        process = simulation.process(asyncio.sleep(3), "worker")
        process.pause(1)
        process.resume()
        process.cut_off(1, simulation.nodes[:1])
        process.crash()

    simulation.run(main())
    for what in ("is paused for 1.000 s", "is resumed", "cannot reach node 0 for 1.000 s", "is crashed"):
        assert f"process 'worker' {what}" in simulation.timeline()


# ------------------------------------------------ results


def test_a_process_is_awaited_for_its_result_or_its_error() -> None:
    simulation = Simulation()

    async def fails() -> None:
        await asyncio.sleep(1)
        raise ValueError("wrong")

    async def main() -> str:
        failing = simulation.process(fails())
        answer = await simulation.process(asyncio.sleep(1, "done"))
        with pytest.raises(ValueError, match="wrong"):
            await failing
        return answer

    assert simulation.run(main()) == "done"


def test_an_error_that_nobody_awaits_is_raised_by_the_run() -> None:
    simulation = Simulation()

    async def fails() -> None:
        raise ValueError("wrong")

    async def main() -> None:
        simulation.process(fails())
        await asyncio.sleep(1)

    with pytest.raises(ValueError, match="wrong"):
        simulation.run(main())


def test_what_still_runs_at_the_end_is_cancelled_and_what_is_paused_is_crashed() -> None:
    simulation, ended = Simulation(), list[str]()

    async def sleeps(name: str) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            ended.append(name)
            raise

    async def main() -> None:
        simulation.process(sleeps("runs"))
        paused = simulation.process(sleeps("paused"))
        await asyncio.sleep(1)
        paused.pause()

    simulation.run(main())
    assert ended == ["runs"]


# ------------------------------------------------ misuse


def test_a_process_is_started_within_a_run() -> None:
    simulation = Simulation()
    with pytest.raises(Misuse, match=r"simulation\.run"):
        simulation.process(asyncio.sleep(1))

    async def main() -> None:
        with pytest.raises(Misuse, match=r"simulation\.run"):
            Simulation().process(asyncio.sleep(1))

    simulation.run(main())


def test_a_process_cannot_crash_itself() -> None:
    simulation = Simulation()
    processes: list[Process[None]] = []

    async def suicidal() -> None:
        with pytest.raises(Misuse, match="from outside"):
            processes[0].crash()

    async def main() -> None:
        processes.append(simulation.process(suicidal()))
        await processes[0]

    simulation.run(main())


def test_a_client_belongs_to_one_process() -> None:
    simulation = Simulation()

    async def uses(locks: Holdfast) -> None:
        async with locks.lock("x"):
            pass

    async def main() -> None:
        async with simulation.client() as locks:
            await simulation.process(uses(locks), "a")
            with pytest.raises(Misuse, match=r"process 'a'.*process 'b'"):
                await simulation.process(uses(locks), "b")
            with pytest.raises(Misuse, match="and the code outside all processes uses it"):
                await uses(locks)

    simulation.run(main())


@pytest.mark.parametrize("seconds", [-1, "1", True, float("nan")])
def test_seconds_are_checked(seconds: Any) -> None:
    simulation = Simulation()

    async def main() -> None:
        process = simulation.process(asyncio.sleep(1))
        for harm in (process.pause, process.cut_off):
            with pytest.raises(ConfigError, match="seconds"):
                harm(seconds)

    simulation.run(main())


# ------------------------------------------------ deadlocks


def test_a_paused_process_that_nobody_resumes_is_told() -> None:
    simulation = Simulation()

    async def main() -> None:
        process = simulation.process(holding(simulation, sleeping), "worker")
        await asyncio.sleep(0.5)
        process.pause()
        await process

    with pytest.raises(Stuck, match=r"(?s)nothing is left to happen.*process 'worker' is paused"):
        simulation.run(main())


def test_a_pause_that_ends_by_itself_is_no_deadlock() -> None:
    simulation = Simulation()

    async def main() -> None:
        process = simulation.process(holding(simulation, sleeping))
        process.pause(1000)
        async with simulation.client() as locks, locks.lock("y"):
            await process

    simulation.run(main())
    assert 1001 < simulation.now < 1003
