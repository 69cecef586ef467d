"""What users register with asyncio is called aside from the engine: whatever it raises, or awaits, no renewal waits for it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from itertools import pairwise
from typing import Any

import pytest
from live.test_aio_kit import SOON, Complaints, Eye, calm, client, connected, driver_of, eye, some, true, turns
from live.test_threads_callbacks import handled
from proof import patches
from proof.books import word

from holdfast import LeaseState, events
from holdfast.aio import Holdfast, Lease
from holdfast.clock import clock
from holdfast.drivers import callbacks as aside
from holdfast.drivers.aio import callbacks as turns_of_a_loop
from holdfast.drivers.aio import driver as aio
from holdfast.embedded import Nodes
from holdfast.errors import HoldfastError

__all__ = ["eye"]

TTL = 0.6
SHORT: dict[str, Any] = {"ttl": 0.2, "renew": False}  # a lease that is lost soon


async def keep(locks: Holdfast, seconds: float = 2.5 * TTL) -> None:
    """Hold a lock for longer than one lease lasts."""
    async with locks.lock(some("kept"), wait=SOON) as lease:
        await asyncio.sleep(seconds)
        lease.check()


# ------------------------------------------------ nothing that a user registers stops a renewal


@calm
async def test_a_log_handler_that_raises_ends_no_lease(nodes: Nodes, capfd: pytest.CaptureFixture[str]) -> None:
    def raises(record: logging.LogRecord) -> None:
        raise ZeroDivisionError("a handler's")

    lost: list[Lease] = []
    async with await connected(nodes, ttl=TTL) as locks:
        with handled(raises):
            driver = driver_of(locks)
            leases = [await locks.lock(some("lost"), **SHORT, on_lost=lost.append).acquire() for _ in range(3)]
            await keep(locks)
            assert lost == leases
            assert driver_of(locks) is driver
    assert "a log handler raised" in capfd.readouterr().err


@calm
async def test_an_observer_that_takes_its_time_loses_no_lease(nodes: Nodes) -> None:
    """A coroutine function is an observer, too: its events come one after another, and nothing else waits for it."""
    heard: list[events.Event] = []
    lost: list[Lease] = []
    go_on = asyncio.Event()

    async def observer(event: events.Event) -> None:
        await go_on.wait()
        heard.append(event)
        await asyncio.sleep(0)

    async with await connected(nodes, ttl=TTL, observer=observer) as locks:
        gone = await locks.lock(some("lost"), **SHORT, on_lost=lost.append).acquire()
        await keep(locks)
        assert (lost, heard) == ([gone], [])
        go_on.set()
        await true(lambda: heard and word(heard[-1]) == "released")
        assert [it for it in heard if word(it) == "lost"] != []
        assert all(a.at <= b.at for a, b in pairwise(it for it in heard if isinstance(it, events.LockEvent)))


@calm
async def test_an_on_lost_that_takes_its_time_delays_nothing(nodes: Nodes) -> None:
    """Not the next `on_lost` either: each coroutine has a task of its own."""
    begun: list[Lease] = []
    go_on = asyncio.Event()

    async def on_lost(lease: Lease) -> None:
        begun.append(lease)
        await go_on.wait()

    async with await connected(nodes, ttl=TTL) as locks:
        leases = [await locks.lock(some("lost"), **SHORT, on_lost=on_lost).acquire() for _ in range(3)]
        await keep(locks)
        assert begun == leases
        go_on.set()
        await true(lambda: not driver_of(locks).strangers)


@pytest.mark.parametrize("kind", [ZeroDivisionError, asyncio.CancelledError, GeneratorExit])
@calm
async def test_whatever_an_observer_raises_ends_nothing(nodes: Nodes, caplog: pytest.LogCaptureFixture, kind: type[BaseException]) -> None:
    def plain(event: events.Event) -> None:
        raise kind("an observer's")

    async def coroutine(event: events.Event) -> None:
        await asyncio.sleep(0)
        raise kind("an observer's")

    for observer in (plain, coroutine):
        caplog.clear()
        async with await connected(nodes, ttl=TTL, observer=observer) as locks:
            driver = driver_of(locks)
            gone = await locks.lock(some("lost"), **SHORT, on_lost=observer).acquire()
            await keep(locks, 0.4)
            assert gone.state is LeaseState.LOST
            assert driver_of(locks) is driver
        told = [it for it in caplog.records if "raised" in it.message]
        # A coroutine that ends with CancelledError was cancelled, which is no error of anybody's.
        assert bool(told) is not (observer is coroutine and kind is asyncio.CancelledError)


@calm
async def test_an_observer_that_cancels_its_own_task_misses_one_event(nodes: Nodes) -> None:
    heard: list[events.Event] = []

    async def observer(event: events.Event) -> None:
        if isinstance(event, events.Acquired):
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        heard.append(event)

    async with await connected(nodes, observer=observer) as locks:
        async with locks.lock(some("cancels")):
            pass
    assert [word(it) for it in heard if isinstance(it, events.LockEvent)] == ["Attempt", "released"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_a_callback_may_end_the_program(nodes: Nodes, kind: type[BaseException]) -> None:
    """With these two a program ends, wherever on the loop they are raised. What is left is told while the loop ends."""
    told: list[str] = []

    def on_lost(lease: Lease) -> None:
        told.append(lease._lost)
        if len(told) == 1:
            raise kind

    async def main() -> None:
        async with await connected(nodes) as locks:
            held.append(await locks.lock(some("ends"), **SHORT, on_lost=on_lost).acquire())
            held.append(await locks.lock(some("ends"), on_lost=on_lost).acquire())
            await asyncio.sleep(SOON)

    held: list[Lease] = []
    with pytest.raises(kind):
        asyncio.run(main())
    assert told == ["expired", "closed"]


@calm
async def test_an_engine_that_fails_tells_its_leases_whatever_the_log_does(nodes: Nodes) -> None:
    def raises(record: logging.LogRecord) -> None:
        assert lost == [lease], "leases first"
        raise ZeroDivisionError("a handler's")

    def broken(*arguments: Any) -> Any:
        raise ZeroDivisionError("a bug")

    lost: list[Lease] = []
    async with await connected(nodes, ttl=TTL) as locks:
        with handled(raises):
            lease = await locks.lock(some("bug"), on_lost=lost.append).acquire()
            event = lease.lost
            engine: Any = driver_of(locks).engine
            engine.tick = broken
            await asyncio.wait_for(event.wait(), SOON)
            await true(lambda: lost)
            assert lease.state is LeaseState.LOST
            await turns(3)


# ------------------------------------------------ in which order, and how many


@calm
async def test_all_leases_are_marked_before_any_callback_runs(nodes: Nodes) -> None:
    seen: list[bool] = []

    def on_lost(lease: Lease) -> None:
        seen.append(all(it.is_set() for it in marks))

    locks = await connected(nodes)
    leases = [await locks.lock(some("all"), on_lost=on_lost).acquire() for _ in range(20)]
    marks = [it.lost for it in leases]
    await locks.close()
    assert seen == [True] * 20


@calm
async def test_events_for_a_slow_observer_are_bounded_and_losses_are_not(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[events.Event] = []
    lost: list[Lease] = []
    go_on = asyncio.Event()

    async def observer(event: events.Event) -> None:
        await go_on.wait()
        heard.append(event)

    async with await connected(nodes, observer=observer) as locks:
        # Only this queue: lines for the log that are dropped would be counted, too.
        driver_of(locks).aside.events[0].most = 10
        leases = [await locks.lock(some("many"), **SHORT, on_lost=lost.append).acquire() for _ in range(30)]
        await true(lambda: len(lost) == 30)
        # Each once. A loop that was busy for longer than a lease finds several that are over, in any order.
        assert sorted(lost, key=leases.index) == leases
        total, dropped = sum(driver_of(locks).engine.record.counts.values()), locks.stats().dropped
        assert total - 11 <= dropped <= total - 10  # ten wait, and one may be being told
        go_on.set()
        await true(lambda: len(heard) == total - dropped)
        async with locks.lock(some("later")):
            pass
        await true(lambda: word(heard[-1]) == "released")
        assert locks.stats().dropped == dropped
    assert [it.levelno for it in caplog.records if "events are dropped" in it.message] == [logging.WARNING]


@calm
async def test_a_long_queue_lets_the_loop_turn(nodes: Nodes) -> None:
    """An observer that takes a millisecond, with a second's worth of events before it, delays nobody by that second."""
    heard: list[events.Event] = []

    def observer(event: events.Event) -> None:
        time.sleep(0.001)
        heard.append(event)

    async with await connected(nodes, observer=observer) as locks:
        await true(lambda: not driver_of(locks).aside.events[0].waiting)
        driver_of(locks).aside.tell([events.NodeEvent(state="up", node=str(it)) for it in range(1000)])
        worst, turned, began = 0.0, 0, clock()
        while driver_of(locks).aside.events[0].waiting:
            before = clock()
            await asyncio.sleep(0)
            worst, turned = max(worst, clock() - before), turned + 1
        assert turned > 50, f"{turned} turns in {clock() - began} s, the longest of {worst} s"
        assert [it.node for it in heard if word(it) == "up"][-1000:] == [str(it) for it in range(1000)]
    assert turns_of_a_loop.SLICE < 0.02


# ------------------------------------------------ the end


@calm
async def test_close_returns_when_callbacks_were_told(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[events.Event] = []
    lost: list[Lease] = []

    async def observer(event: events.Event) -> None:
        await asyncio.sleep(0.002)
        heard.append(event)

    async with await connected(nodes, observer=observer) as locks:
        leases = [await locks.lock(some("end"), on_lost=lost.append).acquire() for _ in range(5)]
    assert lost == leases
    assert [word(it) for it in heard].count("lost") == 5
    assert sum("is lost: closed" in it.message for it in caplog.records) == 5


def test_close_does_not_wait_for_ever_for_an_observer(nodes: Nodes, eye: Eye) -> None:
    cancelled: list[bool] = []
    name = some("hung")

    async def observer(event: events.Event) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def main() -> None:
        locks = await connected(nodes, observer=observer, node_timeout=0.3)
        held.append(await locks.lock(name).acquire())
        began = clock()
        await locks.close()
        assert 0.3 <= clock() - began < SOON
        assert locks.stats().dropped > 0
        assert eye.left(name) == []

    held: list[Lease] = []
    with Complaints() as complaints:
        asyncio.run(main())
    assert complaints.heard == []
    assert cancelled != []


@calm
async def test_an_observer_may_close_its_client(nodes: Nodes) -> None:
    closed: list[float] = []

    async def observer(event: events.Event) -> None:
        if isinstance(event, events.Acquired):
            began = clock()
            await locks.close()
            closed.append(clock() - began)

    locks = client(nodes, observer=observer, node_timeout=3, ttl=10)
    lease = await locks.lock(some("closing")).acquire()
    await true(lambda: closed)
    assert closed[0] < 3, "it does not wait for itself"
    assert not lease.held
    await turns(3)


@calm
async def test_a_client_that_registers_nothing_asks_nothing_of_the_loop(nodes: Nodes) -> None:
    logging.getLogger("holdfast").setLevel(logging.WARNING)
    try:
        async with await connected(nodes) as locks:
            queues = driver_of(locks).aside.all
            for _ in range(10):
                async with locks.lock(some("quiet")):
                    pass
                assert not any(it._due or it.waiting for it in queues)
            assert asyncio.all_tasks() == {asyncio.current_task()}
    finally:
        logging.getLogger("holdfast").setLevel(logging.NOTSET)


# ------------------------------------------------ faults that are seen

FAULTS: dict[str, tuple[type, str, str, str, Any]] = {
    "the engine writes to the log itself": (
        aside.Callbacks, "tell",
        "self.lines.put([(listeners.log, it) for it in events if listeners.logs(it)])",
        "len([listeners.log(it) for it in events if listeners.logs(it)]) * 0",
        test_a_log_handler_that_raises_ends_no_lease,
    ),
    "a callback runs before the next lease is marked": (
        aio.Driver, "_work",
        "self.aside.losses.put(_told_lost(lost))",
        "[call(lease) for it in lost for call, lease in _told_lost([it])]",
        test_all_leases_are_marked_before_any_callback_runs,
    ),
    "close waits for no callback": (aio.Driver, "close", "await self._told()", "pass", test_close_returns_when_callbacks_were_told),
    "an observer that closes its client waits for itself": (
        aio.Driver, "_told", "until = -inf if itself else ", "until = ", test_an_observer_may_close_its_client,
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], fault: str
) -> None:
    kind, name, text, other, test = FAULTS[fault]
    patches.method(monkeypatch, kind, name, text, other)
    fixtures = {"nodes": nodes, "caplog": caplog, "capfd": capfd}
    with pytest.raises((AssertionError, HoldfastError)):
        test(**{it: fixtures[it] for it in inspect.signature(test).parameters})
