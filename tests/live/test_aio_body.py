"""A body and its lease: cancelled when the lease is lost, as `asyncio.timeout` cancels, and left as it was (B-46).

A step of an async generator that holds a lock is such a body, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

import pytest
from live.test_aio_kit import SOON, calm, connected, ended, forced, idle, lose, some, true, turns

from holdfast.aio import Lease, current
from holdfast.embedded import Nodes
from holdfast.errors import LockLost


def me() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


E = TypeVar("E", bound=BaseException)


async def raised(kind: type[E], work: Coroutine[Any, Any, Any]) -> E:
    """What this work, done by the current task, raises."""
    with pytest.raises(kind) as told:
        await work
    return told.value


@calm
async def test_a_body_is_cancelled_and_the_block_raises_lock_lost(nodes: Nodes) -> None:
    async with await connected(nodes) as locks:
        told: list[Lease] = []
        events: list[asyncio.Event] = []

        async def works() -> None:
            async with locks.lock(some("told"), on_lost=told.append) as lease:
                events.append(lease.lost)
                forced(nodes, lease)
                await asyncio.sleep(SOON)
                raise AssertionError("it ran on")

        error = await raised(LockLost, works())
        assert isinstance(error.__cause__, asyncio.CancelledError)
        assert events[0].is_set()
        assert me().cancelling() == 0
        await turns(3)
        (lease,) = told
        assert (error.reason, error.fence) == ("forced", lease.fence)
        assert await lease.release() == 0  # the block has said it; once


@calm
async def test_a_block_whose_coroutine_is_thrown_away_releases(nodes: Nodes) -> None:
    """Then nothing can be awaited: Python ends a coroutine that does with RuntimeError."""

    @types.coroutine
    def up_to(mark: object, work: Coroutine[Any, Any, Any]) -> Generator[Any, None, None]:
        while (asked := work.send(None)) is not mark:
            yield asked

    @types.coroutine
    def show(mark: object) -> Generator[Any, None, None]:
        yield mark

    async with await connected(nodes) as locks:
        name, held = some("thrown"), object()

        async def works() -> None:
            async with locks.lock(name):
                await show(held)

        work = works()
        await up_to(held, work)
        assert await locks.is_locked(name)
        # What another task says in this turn has what this one says wait for the end of it.
        other = asyncio.create_task(locks.lock(f"{name}.other").try_acquire())
        await asyncio.sleep(0)
        work.close()
        lease = await other
        assert lease is not None
        await lease.release()
        await true(lambda: idle(locks))
        assert not await locks.is_locked(name)


@pytest.mark.parametrize("first", ["loss", "cancel"])
@pytest.mark.parametrize("apart", [0, 3])
@calm
async def test_lost_and_cancelled_from_outside_in_either_order(nodes: Nodes, first: str, apart: int) -> None:
    """Who is cancelled by others, too, is cancelled; as a block with `asyncio.timeout` would be."""
    async with await connected(nodes) as locks:
        counts: list[int] = []

        async def works() -> None:
            try:
                async with locks.lock(some("both")) as lease:
                    leases.append(lease)
                    await asyncio.sleep(SOON)
            finally:
                counts.append(me().cancelling())

        leases: list[Lease] = []
        task = asyncio.create_task(works())
        await true(lambda: leases)
        await turns(1)
        for what in ("loss", "cancel") if first == "loss" else ("cancel", "loss"):
            if what == "loss":
                lose(leases[0])
            else:
                task.cancel()
            await turns(apart)
        await asyncio.wait([task])
        if apart and first == "loss":  # the block was left before anybody else cancelled
            assert isinstance(task.exception(), LockLost)
            assert counts == [0]
        else:
            assert task.cancelled()
            assert counts == [1]  # (the one from outside)
        assert idle(locks)


@pytest.mark.parametrize("moment", ["awaited", "not awaited"])
@calm
async def test_a_time_out_and_a_loss_at_the_same_moment(nodes: Nodes, moment: str) -> None:
    """A loss when the block is being cancelled anyhow, and the body ends without awaiting once more: nothing is swallowed."""
    async with await connected(nodes) as locks:
        lock, reached = locks.lock(some("same")), []

        async def works() -> None:
            with contextlib.suppress(ValueError):
                async with lock as lease:
                    task = me()
                    task.cancel()
                    lose(lease)
                    if moment == "awaited":
                        with contextlib.suppress(asyncio.CancelledError):
                            await asyncio.sleep(SOON)
                    raise ValueError
            reached.append(me().cancelling())
            await asyncio.sleep(SOON)

        task = asyncio.create_task(works())
        await turns(5)
        await true(lambda: task.done() or reached)
        if moment == "awaited":  # the body itself has swallowed both
            assert reached == [1]
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert idle(locks)


@pytest.mark.parametrize("error", [None, ValueError, asyncio.CancelledError])
@calm
async def test_a_body_that_ends_without_awaiting_gets_no_stray_cancellation(nodes: Nodes, error: type[BaseException] | None) -> None:
    async with await connected(nodes) as locks:

        async def works() -> None:
            async with locks.lock(some("stray")) as lease:
                lose(lease)
                if error is not None:
                    raise error

        if error is ValueError:
            assert "lost (forced)" in (await raised(ValueError, works())).__notes__[0]
        else:
            await raised(LockLost, works())
        assert me().cancelling() == 0
        await turns(5)
        assert me().cancelling() == 0
        assert idle(locks)


@calm
async def test_inside_somebody_elses_cancellation(nodes: Nodes) -> None:
    """A lock that is used while the task cleans up after a cancellation: that one is not ours to take back."""
    async with await connected(nodes) as locks:
        seen: list[int] = []

        async def works() -> None:
            try:
                await asyncio.sleep(SOON)
            except asyncio.CancelledError:
                with contextlib.suppress(LockLost):
                    async with locks.lock(some("cleaning")) as lease:
                        lose(lease)
                        await asyncio.sleep(SOON)
                seen.append(me().cancelling())
                raise

        task = asyncio.create_task(works())
        await turns(1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() and seen == [1]


# ------------------------------------------------ steps of generators


@calm
async def test_a_step_is_cancelled_when_the_lease_is_lost_in_it(nodes: Nodes) -> None:
    async with await connected(nodes) as locks:
        steps = []

        @locks.lock(some("step"))
        async def streams() -> Any:
            yield 1
            lose(current())
            try:
                await asyncio.sleep(SOON)
            except asyncio.CancelledError:
                steps.append("cancelled")
                raise

        stream = streams()
        await anext(stream)
        error = await raised(LockLost, anext(stream))
        assert isinstance(error.__cause__, asyncio.CancelledError)
        assert steps == ["cancelled"]
        assert me().cancelling() == 0
        await turns(3)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def swallows() -> None:
    """It is cancelled, and goes on."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(SOON)


async def hurries() -> None:
    """It has not heard yet that it is cancelled."""


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("goes_on", [swallows, hurries])
def test_a_step_that_goes_on_when_the_lease_is_lost(nodes: Nodes, goes_on: Callable[[], Awaitable[None]], ends: bool) -> None:
    """Its consumer gets LockLost and not its value, and nothing of the cancellation."""

    async def main() -> None:
        async with await connected(nodes) as locks:
            closed = []

            @locks.lock(some("on"))
            async def streams() -> Any:
                yield 1
                lose(current())
                await goes_on()
                try:
                    if not ends:
                        yield 2
                        raise AssertionError("it ran on")
                finally:
                    closed.append(current().held)

            stream = streams()
            await anext(stream)
            assert (await raised(LockLost, anext(stream))).reason == "forced"
            assert me().cancelling() == 0
            await turns(3)  # (a cancellation that is still to come would strike here)
            assert closed == [False]

    ended(main)


@calm
async def test_who_takes_a_step_is_cancelled_and_not_who_began(nodes: Nodes) -> None:
    async with await connected(nodes) as locks:

        @locks.lock(some("tasks"))
        async def streams() -> Any:
            yield current()
            yield current()
            await asyncio.sleep(SOON)

        stream = streams()
        lease = await anext(stream)

        async def steps() -> None:
            await anext(stream)
            await anext(stream)

        task = asyncio.create_task(steps())
        await true(lambda: stream.ag_running and lease._body is task)
        lose(lease)
        await asyncio.wait([task], timeout=SOON)
        assert isinstance(task.exception(), LockLost)
        assert me().cancelling() == 0
        await turns(3)
