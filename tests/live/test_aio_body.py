"""A body and its lease: told in time when it is lost, cancelled as `asyncio.timeout` cancels, and left as it was (B-46, S-16)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from live.test_aio_kit import SOON, Eye, Tapped, calm, connected, driver_of, eye, idle, lose, some, true, turns
from proof.misuse import misuse

from holdfast.aio import Holdfast, Lease
from holdfast.clock import clock
from holdfast.drivers.aio.sockets import Link
from holdfast.embedded import Nodes
from holdfast.errors import LockLost
from holdfast.protocol.claim import Claim, State
from holdfast.scripts import REQUEST

__all__ = ["eye"]


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


def dropped(things: list[Any]) -> None:
    """Drop the last reference to a lease."""
    with pytest.warns(ResourceWarning, match="discarded without release"):
        things.clear()
    gc.collect()


# ------------------------------------------------ told


@calm
async def test_a_body_is_cancelled_and_the_block_raises_lock_lost(nodes: Nodes, eye: Eye) -> None:
    async with await connected(nodes) as locks:
        told: list[Lease] = []
        events: list[asyncio.Event] = []

        async def works() -> None:
            async with locks.lock(some("told"), on_lost=told.append) as lease:
                events.append(lease.lost)
                eye.forced(lease)
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
async def test_lost_before_its_caller_has_it(nodes: Nodes, eye: Eye) -> None:
    """Granted and lost in one turn of the loop: nobody hears of that lease, and it is acquired once more."""
    async with await connected(nodes) as locks:
        driver, told = driver_of(locks), list[Lease]()
        received, tokens = driver.received, list[bytes]()

        def loses(claim: Claim, now: float) -> None:
            claim.lose(now, "forced")
            driver.engine.act(claim, now)

        def unlucky(link: Link, data: Any) -> None:
            received(link, data)
            for claim in list(driver.engine.live.values()):
                if claim.state is State.HELD and not tokens:
                    tokens.append(claim.token)
                    driver.do(loses, claim, driver.clock())

        driver.received = unlucky  # type: ignore[method-assign]  # (a fake in its place)
        name = some("unlucky")
        async with locks.lock(name, on_lost=told.append) as lease:
            assert tokens and lease.token != tokens[0].decode()
            assert lease.held and not lease.lost.is_set()
            await turns(5)
            lease.check()
        assert told == []
        await eye.gone(name)


@calm
async def test_a_lease_from_acquire_never_cancels_anybody(nodes: Nodes, eye: Eye) -> None:
    async with await connected(nodes) as locks:
        lease = await locks.lock(some("acquired")).acquire()
        eye.forced(lease)
        await asyncio.wait_for(lease.lost.wait(), SOON)
        await turns(5)
        assert me().cancelling() == 0
        assert not lease.held and lease.remaining == 0.0 and lease.votes == 0
        with pytest.raises(LockLost):
            lease.check()
        with pytest.raises(LockLost):
            await lease.extend()
        with pytest.raises(LockLost):
            await lease.release()
        assert await lease.release() == 0
        with misuse("not_held"):
            lease.check()


@calm
async def test_s16_a_loop_that_is_blocked_for_longer_than_the_ttl(nodes: Nodes, eye: Eye) -> None:
    """On the first turn after that the body is told, whatever lies unread; and nothing is renewed any more."""
    async with await connected(nodes) as locks:
        name, said = some("blocked"), _Said(locks)
        told: list[Lease] = []
        counts = [0]

        async def works() -> None:
            async with locks.lock(name, ttl=0.4, on_lost=told.append):
                await asyncio.sleep(0.1)
                time.sleep(0.6)
                while counts[0] < 100:
                    await asyncio.sleep(0)
                    counts[0] += 1

        error = await raised(LockLost, works())
        assert error.reason in ("expired", "slow")
        assert counts[0] <= 2, f"told after {counts[0]} turns"
        await turns(3)
        (lease,) = told
        assert [what for at, what in said.of(lease) if at > lease._want.until and REQUEST.sha in what] == []
        await eye.gone(name)


class _Said:
    """What a client says to its first node, and when."""

    def __init__(self, locks: Holdfast) -> None:
        link = driver_of(locks).sockets.links[0]
        assert link is not None and link.transport is not None
        self._all: list[tuple[float, bytes]] = []
        write = link.transport.write

        def note(data: Any) -> None:
            self._all.append((clock(), bytes(data)))
            write(data)

        link.transport = Tapped(link.transport, write=note)  # type: ignore[assignment]  # (a fake in its place)

    def of(self, lease: Lease) -> list[tuple[float, bytes]]:
        """About this lease: each command by itself."""
        return [(at, it) for at, data in self._all for it in data.split(b"EVALSHA") if lease.token.encode() in it]


# ------------------------------------------------ cancelled as `asyncio.timeout` cancels


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


# ------------------------------------------------ on_lost


@calm
async def test_on_lost_is_called_also_if_the_release_finds_it_out(nodes: Nodes) -> None:
    async with await connected(nodes) as locks:
        heard: list[Any] = []
        lease = await locks.lock(some("found"), ttl=0.2, on_lost=heard.append).acquire()
        time.sleep(0.3)
        with pytest.raises(LockLost):
            await lease.release()
        await asyncio.sleep(0.05)
        assert heard == [lease]


# ------------------------------------------------ whose lease it is


@calm
async def test_b48_whoever_records_the_warning_does_not_keep_the_lease_alive(nodes: Nodes, eye: Eye) -> None:
    """A recorded warning holds its source, which is the lease: it is dropped all the same."""
    async with await connected(nodes) as locks:
        name = some("recorded")
        leases = [await locks.lock(name, ttl=1.0).acquire()]
        with pytest.warns(ResourceWarning, match="recorded") as seen:
            leases.clear()
        await eye.gone(name, within=4.0)
        assert len(seen) == 1


