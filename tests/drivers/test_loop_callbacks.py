"""Queues of calls that are made on an event loop: aside from whoever puts them there, a slice a turn, whatever they raise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from holdfast.drivers.aio import callbacks as turns
from holdfast.drivers.aio.callbacks import LoopCalls
from holdfast.drivers.callbacks import Complain


def complained(_: object, error: BaseException) -> None:
    raise AssertionError("nothing was raised") from error


def queue(most: int = 100, complain: Complain = complained, in_turn: bool = True, clock: Callable[[], float] = lambda: 0.0) -> LoopCalls:
    return LoopCalls(most, complain, in_turn, loop=asyncio.get_running_loop(), tasks=set(), clock=clock)


async def turned(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Steps:
    """A clock that goes on by so much whenever somebody looks."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


async def test_calls_are_made_in_another_turn_in_order() -> None:
    after: list[int] = []
    calls = queue(most=2)
    assert calls.put([(after.append, number) for number in range(3)]) == 1
    assert after == [] and not calls.idle
    await turned()
    assert after == [0, 1] and calls.idle


async def test_a_long_queue_lets_the_loop_turn() -> None:
    after: list[int] = []
    calls = queue(clock=Steps(turns.SLICE / 4))
    calls.put([(after.append, number) for number in range(40)])
    await asyncio.sleep(0)
    assert after == [0, 1, 2, 3]
    await turned(40)
    assert after == list(range(40))


async def test_one_coroutine_after_another() -> None:
    after: list[str] = []
    gates = [asyncio.Event(), asyncio.Event()]

    async def waits(number: int) -> None:
        after.append(f"begins {number}")
        await gates[number].wait()
        after.append(f"ends {number}")

    calls = queue()
    calls.put([(waits, 0), (waits, 1), (after.append, "plain")])
    await turned()
    assert after == ["begins 0"]
    gates[0].set()
    await turned()
    assert after == ["begins 0", "ends 0", "begins 1"]
    gates[1].set()
    await turned()
    assert after == ["begins 0", "ends 0", "begins 1", "ends 1", "plain"]


async def test_coroutines_beside_each_other() -> None:
    after: list[int] = []
    go_on = asyncio.Event()

    async def waits(number: int) -> None:
        after.append(number)
        await go_on.wait()

    calls = queue(in_turn=False)
    calls.put([(waits, number) for number in range(3)])
    await turned()
    assert after == [0, 1, 2]
    assert len(calls._tasks) == 3
    go_on.set()
    await turned()
    assert calls._tasks == set()


async def test_whatever_a_call_raises_the_next_one_is_made() -> None:
    told: list[str] = []
    after: list[int] = []

    def plain(kind: type[BaseException]) -> None:
        raise kind

    async def coroutine(kind: type[BaseException]) -> None:
        raise kind

    calls = queue(complain=lambda function, error: told.append(f"{function.__name__} {type(error).__name__}"))
    for kind in (ValueError, GeneratorExit, asyncio.CancelledError):
        calls.put([(plain, kind), (coroutine, kind)])
    calls.put([(after.append, 1)])
    await turned(20)
    assert told == ["plain ValueError", "coroutine ValueError", "plain GeneratorExit", "coroutine GeneratorExit", "plain CancelledError"]
    assert after == [1]


async def test_the_end_cancels_what_runs_and_drops_what_waits() -> None:
    after: list[int] = []

    async def hangs(_: object) -> None:
        await asyncio.Event().wait()

    calls = queue()
    assert calls.end() == 0
    calls.put([(hangs, 0), (after.append, 1), (after.append, 2)])
    await turned()
    running = calls.busy
    assert running is not None
    assert calls.end() == 2
    await turned()
    assert running.cancelled() and calls.idle and after == []


async def test_a_call_that_asks_for_the_end_is_not_cancelled_but_what_waits_is_dropped_when_it_is() -> None:
    after: list[object] = []

    async def ends(_: object) -> None:
        after.append(calls.end())
        await asyncio.Event().wait()

    calls = queue()
    calls.put([(ends, 0), (after.append, 1)])
    await turned()
    assert after == [0] and calls.busy is not None
    calls.busy.cancel()  # the loop ends
    await turned()
    assert after == [0] and calls.idle


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("waits", [False, True])
def test_a_call_may_end_the_loop_and_the_next_one_is_made_when_it_goes_on(kind: type[BaseException], waits: bool) -> None:
    after: list[int] = []

    def plain(_: object) -> None:
        raise kind

    async def coroutine(_: object) -> None:
        await asyncio.sleep(0)
        raise kind

    async def begin() -> None:
        queue().put([(coroutine if waits else plain, 0), (after.append, 1)])
        await turned()

    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(begin())
        with pytest.raises(kind):
            loop.run_until_complete(task)
        loop.run_until_complete(task)
        assert after == [1]
    finally:
        loop.close()


def test_a_loop_that_is_closed_is_asked_nothing() -> None:
    calls: list[LoopCalls] = []

    async def make() -> None:
        calls.append(queue())

    asyncio.run(make())
    calls[0].put([(print, 1)])
    assert not calls[0].idle
