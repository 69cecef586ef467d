"""Queues of calls that are made on an event loop: aside from whoever puts them there, a slice a turn, whatever they raise."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from proof import patches

from holdfast.drivers.aio import callbacks as turns
from holdfast.drivers.aio.callbacks import LoopCalls
from holdfast.drivers.callbacks import Complain


def complained(_: object, error: BaseException) -> None:
    raise AssertionError("nothing was raised") from error


def queue(
    most: int = 100, complain: Complain = complained, in_turn: bool = True, clock: Callable[[], float] = lambda: 0.0
) -> LoopCalls:
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


async def calls_are_made_in_another_turn_in_order() -> None:
    after: list[int] = []
    calls = queue(most=2)
    assert calls.put([(after.append, number) for number in range(3)]) == 1
    assert after == [] and not calls.idle
    await turned()
    assert after == [0, 1] and calls.idle


async def a_long_queue_lets_the_loop_turn() -> None:
    after: list[int] = []
    calls = queue(clock=Steps(turns.SLICE / 4))
    calls.put([(after.append, number) for number in range(40)])
    await asyncio.sleep(0)
    assert 0 < len(after) < 10
    await turned(40)
    assert after == list(range(40))


async def one_coroutine_after_another() -> None:
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


async def coroutines_beside_each_other() -> None:
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


async def whatever_a_call_raises_the_next_one_is_made() -> None:
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


async def the_end_cancels_what_runs_and_drops_what_waits() -> None:
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


async def a_call_that_asks_for_the_end_is_not_cancelled_but_what_waits_is_dropped_when_it_is() -> None:
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


STORIES = [
    calls_are_made_in_another_turn_in_order,
    a_long_queue_lets_the_loop_turn,
    one_coroutine_after_another,
    coroutines_beside_each_other,
    whatever_a_call_raises_the_next_one_is_made,
    the_end_cancels_what_runs_and_drops_what_waits,
    a_call_that_asks_for_the_end_is_not_cancelled_but_what_waits_is_dropped_when_it_is,
]


@pytest.mark.parametrize("story", STORIES)
def test_calls(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(story())  # type: ignore[arg-type]  # (a coroutine)


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


Planted = tuple[str, str, str, Callable[..., object], dict[str, Any]]
FAULTS: dict[str, Planted] = {
    "calls are made at once": (
        "_wake", "self._loop.call_soon(self._work)", "self._work()",
        test_calls, {"story": calls_are_made_in_another_turn_in_order},
    ),
    "a long queue keeps the loop": (
        "_work", "if self._clock() >= end", "if False",
        test_calls, {"story": a_long_queue_lets_the_loop_turn},
    ),
    "coroutines overtake each other": (
        "_begin", "if self._in_turn", "if False",
        test_calls, {"story": one_coroutine_after_another},
    ),
    "coroutines wait for each other": (
        "_begin", "if self._in_turn", "if True",
        test_calls, {"story": coroutines_beside_each_other},
    ),
    "the end cancels nothing": (
        "end", "self.busy.cancel()", "pass",
        test_calls, {"story": the_end_cancels_what_runs_and_drops_what_waits},
    ),
    "the end cancels who asks for it": (
        "end", " or self.busy is asyncio.current_task()", "",
        test_calls, {"story": a_call_that_asks_for_the_end_is_not_cancelled_but_what_waits_is_dropped_when_it_is},
    ),
    "calls are made after the end": (
        "_ended", "if self._ending and task.cancelled()", "if False",
        test_calls, {"story": a_call_that_asks_for_the_end_is_not_cancelled_but_what_waits_is_dropped_when_it_is},
    ),
    "an end of the program ends the queue": (
        "_work", "if self.waiting:\n            self._wake()", "pass",
        test_a_call_may_end_the_loop_and_the_next_one_is_made_when_it_goes_on, {"kind": SystemExit, "waits": False},
    ),
    "a closed loop is asked": (
        "_wake", " and not self._loop.is_closed()", "",
        test_a_loop_that_is_closed_is_asked_nothing, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, text, other, test, given = FAULTS[fault]
    patches.method(monkeypatch, LoopCalls, name, text, other)
    with pytest.raises((AssertionError, RuntimeError)):
        test(**given)


def test_a_program_that_wants_to_end_is_seen_if_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopCalls, "PASSED", ())
    monkeypatch.setattr(sys.modules[__name__], "complained", lambda *_: None)
    with pytest.raises(pytest.fail.Exception):
        test_a_call_may_end_the_loop_and_the_next_one_is_made_when_it_goes_on(SystemExit, False)
