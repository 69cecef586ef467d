"""Fences in memory: the same refusals, one inside at a time, and forgetting that lets nobody in."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proof.misuse import misuse

from holdfast import ConfigError, Misuse, StaleFence
from holdfast.fencing import Seen, memory

pytestmark = pytest.mark.servers

DAY = 86400
NOW = 1_795_000_000


class Clock:
    """A clock to be set."""

    now = float(NOW)

    def __call__(self) -> float:
        return self.now


def passes(seen: Seen, fence: int, *, name: str = "a", read: bool = False) -> bool:
    try:
        with seen.guard({name: fence}, read=read):
            return True
    except StaleFence as refused:
        late = refused
    assert late.seen is not None and late.seen > fence
    return False


def test_a_late_holder_is_refused_and_everybody_else_is_not() -> None:
    # Rule X3.
    seen = Seen(keep=None)
    assert passes(seen, 5) and passes(seen, 5) and passes(seen, 7) and not passes(seen, 6)
    seen._full = 0
    assert passes(seen, 6, name="b") and not passes(seen, 6), "nothing is forgotten"


def test_readers_are_refused_below_writes_and_writers_below_everything() -> None:
    seen = Seen(keep=None)
    assert passes(seen, 5, read=True) and passes(seen, 3, read=True) and not passes(seen, 4) and passes(seen, 6)
    assert not passes(seen, 5, read=True) and passes(seen, 9, read=True) and passes(seen, 7, read=True) and not passes(seen, 8)


def test_several_names_are_held_all_or_none() -> None:
    seen = Seen(keep=None)
    assert passes(seen, 9, name="b")
    with pytest.raises(StaleFence, match="'b'"), seen.guard({"b": 8, "a": 8}):
        raise AssertionError
    with seen.guard({"b": 10, "a": 8}):
        pass
    assert passes(seen, 8), "nobody is left inside"


def test_an_open_lease_is_let_in_only_where_that_was_said() -> None:
    lease = SimpleNamespace(name="a", fence=None)
    with pytest.raises(Misuse, match="bears no fence"), Seen().guard(lease):
        raise AssertionError
    with Seen().guard(lease, unfenced=True):
        pass


def test_threads_are_inside_one_after_another() -> None:
    seen, entered, leave, order = Seen(keep=None), threading.Event(), threading.Event(), []

    def first() -> None:
        with seen.guard({"a": 5}):
            entered.set()
            leave.wait()
            order.append(5)

    def second() -> None:
        with seen.guard({"a": 6}):
            order.append(6)

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    entered.wait()
    threads[1].start()
    assert passes(seen, 1, name="b"), "another name is not in the way"
    leave.set()
    for thread in threads:
        thread.join()
    assert order == [5, 6] and not passes(seen, 5)


async def test_tasks_are_inside_one_after_another_and_one_that_is_cancelled_leaves_nothing() -> None:
    seen, leave, order = Seen(keep=None), asyncio.Event(), []

    async def writes(fence: int) -> None:
        async with seen.aguard({"a": fence}):
            await leave.wait()
            order.append(fence)

    tasks = [asyncio.ensure_future(writes(fence)) for fence in (5, 6, 7, 6)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    leave.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [5, 7]
    assert [type(it) for it in found] == [type(None), asyncio.CancelledError, type(None), StaleFence]
    assert [it.users for it in seen._records.values()] == [0]


async def test_one_is_for_threads_or_for_tasks() -> None:
    seen = Seen(keep=None)
    assert await asyncio.to_thread(passes, seen, 5)
    with pytest.raises(Misuse, match="for threads"):
        async with seen.aguard({"a": 6}):
            raise AssertionError


async def test_a_thread_s_guard_inside_of_a_loop_is_misuse() -> None:
    """Two tasks: the first waits for something inside, the second would wait for the first, and stop the loop."""
    seen, entered, gone = Seen(keep=None), asyncio.Event(), asyncio.Event()

    async def first() -> None:
        with seen.guard({"a": 5}):
            entered.set()
            await gone.wait()

    task = asyncio.ensure_future(first())
    await asyncio.sleep(0)
    try:
        with pytest.raises(Misuse, match=r"use `async with seen\.aguard"), seen.guard({"b": 6}):
            raise AssertionError
        with pytest.raises(Misuse, match=r"use `async with seen\.aguard"):
            await task
    finally:
        gone.set()
        await asyncio.gather(task, return_exceptions=True)


async def test_who_is_inside_would_wait_for_itself() -> None:
    seen = Seen(keep=None)

    def again() -> None:
        with seen.guard({"a": 5}):
            with misuse("self_deadlock", match="inside with 'a' already"), seen.guard({"b": 5, "a": 5}):
                raise AssertionError
        with seen.guard({"b": 5, "a": 5}):
            pass

    await asyncio.to_thread(again)
    tasks = Seen(keep=None)
    async with tasks.aguard({"a": 5}):
        with misuse("self_deadlock", match="inside with 'a' already"):
            async with tasks.aguard({"a": 5}):
                raise AssertionError
    async with tasks.aguard({"a": 5}):
        pass


def test_a_fence_that_is_older_than_what_is_remembered_is_refused() -> None:
    clock = Clock()
    seen = Seen(clock=clock)
    assert not passes(seen, (NOW - 7 * DAY) * 1_000_000 - 1)
    assert passes(seen, (NOW - 7 * DAY) * 1_000_000)


@pytest.mark.parametrize("ahead", [0, 3600], ids=["by our clock", "by one that is ahead"])
def test_what_is_forgotten_is_refused_still(monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    monkeypatch.setattr(memory, "_SWEEP", 1)
    clock = Clock()
    seen, fence = Seen(keep=DAY, clock=clock), (NOW + ahead) * 1_000_000
    assert passes(seen, fence)
    for hours in range(200):
        clock.now = NOW + hours * 3600
        assert passes(seen, round(clock.now) * 1_000_000, name=f"name {hours}")
        assert not passes(seen, fence - 1)
    assert len(seen) < 100 and all(it.seen != fence for it in seen._records.values()), "it was forgotten"


def test_a_lease_that_writes_now_and_then_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_SWEEP", 1)
    clock = Clock()
    seen = Seen(keep=DAY, clock=clock)
    for days in range(10):
        clock.now = NOW + 0.9 * days * DAY
        assert passes(seen, NOW * 1_000_000), "held for ten days"
        assert passes(seen, round(clock.now) * 1_000_000, name=f"name {days}")


STEPS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 20), st.booleans()), max_size=40)


@given(STEPS)
def test_with_forgetting_or_without_a_late_holder_never_passes(steps: list[tuple[str, int, int, bool]]) -> None:
    """One that forgets after ten seconds, and looks for what it may forget each time, beside one that remembers."""
    clock = Clock()
    forgets, remembers = Seen(keep=10, clock=clock), Seen(keep=None)
    for name, passed, age, read in steps:
        clock.now += passed
        forgets._full = 0
        fence = round(clock.now - age) * 1_000_000
        if passes(forgets, fence, name=name, read=read):
            assert passes(remembers, fence, name=name, read=read), "a late holder"


def test_keep_is_a_time() -> None:
    with pytest.raises(ConfigError, match="keep is 1 or more seconds"):
        Seen(keep=0)
