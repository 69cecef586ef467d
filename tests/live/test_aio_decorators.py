"""Decorated coroutines and async generators in asyncio: whom a loss cancels, and whom never; how they end with their loop."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from live.test_aio_body import me, raised
from live.test_aio_kit import SOON, Eye, at_every_turn, calm, client, connected, ended, eye, idle, lose, some, true, turns

from holdfast.aio import current
from holdfast.embedded import Nodes
from holdfast.errors import LockLost

__all__ = ["eye"]

# ------------------------------------------------ coroutines


@calm
async def test_cancelled_from_outside_at_every_turn_nothing_is_left(nodes: Nodes, eye: Eye) -> None:
    async with await connected(nodes) as locks:
        name = some("cut")

        @locks.lock(name)
        async def works() -> None:
            await turns(3)

        @locks.lock(name)
        async def streams() -> Any:
            await turns(1)
            yield 1
            await turns(1)
            yield 2

        async def reads() -> None:
            async with contextlib.aclosing(streams()) as stream:
                async for _ in stream:
                    await turns(1)

        async def nothing_left(outcome: str) -> None:
            await eye.gone(name)
            assert idle(locks)

        for make in (works, reads):
            assert await at_every_turn(make, nothing_left) > 3


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


# ------------------------------------------------ loops


@calm
async def test_a_loop_knows_the_generator_and_not_its_body(nodes: Nodes, eye: Eye) -> None:
    """At its end a loop closes all that it knows, at once: the lock would be left while the body still ends."""
    async with await connected(nodes) as locks:
        known, ends, name = list[Any](), list[str](), some("known")

        @locks.lock(name)
        async def streams() -> Any:
            try:
                yield 1
            finally:
                ends.append("begun")
                await asyncio.sleep(0.05)
                ends.append(f"done, held: {current().held}")

        firstiter, finalizer = sys.get_asyncgen_hooks()

        def notes(generator: Any) -> None:
            known.append(generator)
            firstiter(generator)

        sys.set_asyncgen_hooks(notes, finalizer)
        try:
            stream = streams()
            await anext(stream)
            assert sys.get_asyncgen_hooks() == (notes, finalizer)
        finally:
            sys.set_asyncgen_hooks(firstiter, finalizer)
        assert known == [stream]
        await asyncio.gather(*[it.aclose() for it in known])
        assert ends == ["begun", "done, held: True"]
        await eye.gone(name)


def test_a_generator_that_is_left_over_when_its_loop_ends(nodes: Nodes, eye: Eye) -> None:
    """Dropped, or still in somebody's hands: it is closed, once, and the lock is free."""
    locks, names, kept, ends = client(nodes), [some("left") for _ in range(2)], list[Any](), list[str]()

    def streaming(name: str) -> Any:
        @locks.lock(name)
        async def streams() -> Any:
            try:
                yield current()
            finally:
                ends.append(name)

        return streams()

    async def main() -> None:
        kept.append(streaming(names[0]))
        await anext(kept[0])
        async for _ in streaming(names[1]):
            break

    ended(main)
    assert sorted(ends) == sorted(names)
    assert eye.left(*names) == []
