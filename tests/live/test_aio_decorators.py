"""Decorated coroutines and async generators in asyncio: whom a loss cancels, and whom never; how they end with their loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from live.test_aio_body import me, raised
from live.test_aio_kit import SOON, calm, connected, ended, eye, lose, some, true, turns

from holdfast.aio import current
from holdfast.embedded import Nodes
from holdfast.errors import LockLost

__all__ = ["eye"]


# ------------------------------------------------ generators


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


@calm
async def test_between_two_steps_nobody_is_cancelled(nodes: Nodes) -> None:
    """What runs there is the consumer, who may be anybody, and may never come back: the next step says it."""
    async with await connected(nodes) as locks:
        closed = []

        @locks.lock(some("between"))
        async def streams() -> Any:
            try:
                yield current()
                raise AssertionError("it ran on")
            finally:
                await turns(1)
                closed.append(current().held)

        stream = streams()
        lease = await anext(stream)
        lose(lease)
        await turns(3)
        assert lease.lost.is_set()
        assert (await raised(LockLost, stream.asend("x"))).reason == "forced"
        assert closed == [False]
        assert me().cancelling() == 0
