"""Signal handlers that raise in the middle of holdfast's work on an event loop; and other loops than asyncio's."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
import trio

from holdfast.aio import Holdfast
from holdfast.drivers.aio.driver import Driver
from holdfast.drivers.aio.timer import Timer
from holdfast.embedded import Nodes
from holdfast.errors import HoldfastError, LockLost, Misuse
from holdfast.face.aio.lease import Lease


class TimeIsUp(Exception):
    """What a time limit raises."""


def ring(number: int, frame: FrameType | None) -> None:
    raise TimeIsUp


class Bell:
    """A handler that is an object, takes what it is given as one tuple, and removes itself first."""

    def __call__(self, *told: object) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        raise TimeIsUp


def strikes(*_: object) -> None:
    signal.raise_signal(signal.SIGALRM)


HANDLERS = {"a function": ring, "an object": Bell(), "a lambda": lambda *_: ring(0, None)}


@pytest.fixture
def handled() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
async def test_a_handler_that_raises_in_the_engine_is_no_bug_of_ours(
    nodes: Nodes, handled: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, handler: Any
) -> None:
    """A real signal comes while the engine begins a claim."""
    signal.signal(signal.SIGALRM, handler)
    async with Holdfast(*nodes.urls) as locks:
        held = await locks.lock("signals:held", ttl=5).acquire()
        waiting = asyncio.create_task(locks.lock("signals:held", ttl=5).acquire())
        await asyncio.sleep(0.05)
        engine = locks._driver().engine
        begin = engine.begin

        def begins(*arguments: Any) -> None:
            strikes()
            begin(*arguments)

        monkeypatch.setattr(engine, "begin", begins)
        with pytest.raises(TimeIsUp):
            await locks.lock("signals:new").acquire()
        assert not held.held
        with pytest.raises(LockLost):
            held.check()
        with pytest.raises(HoldfastError, match=r"TimeIsUp interrupted holdfast .* try again"):
            await waiting
        async with locks.lock("signals:new") as lease:  # the client goes on
            assert lease.held
    told = [it.getMessage() for it in caplog.records if it.name == "holdfast"]
    assert not [it for it in told if "report" in it]
    assert [it for it in told if "a signal handler raised TimeIsUp" in it and "loop.add_signal_handler()" in it]


@pytest.mark.parametrize("part, place", [(Timer, "_look"), (Driver, "_flush")])
async def test_a_handler_that_raises_in_a_turn_of_the_loop_leaves_nobody_waiting(
    nodes: Nodes, handled: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: type, place: str
) -> None:
    """Else a timer would never be set again, or nothing be sent any more."""
    signal.signal(signal.SIGALRM, ring)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)  # asyncio tells of TimeIsUp
    async with Holdfast(*nodes.urls) as locks:
        lease = await locks.lock("signals:turn", ttl=1.5).acquire()
        with monkeypatch.context() as patch:
            patch.setattr(part, place, strikes)
            async with asyncio.timeout(20):
                await lease.lost.wait()
        async with asyncio.timeout(20), locks.lock("signals:turn") as later:
            await asyncio.sleep(0.5)
            assert later.held
    assert not [it for it in caplog.records if "report" in it.getMessage()]


def test_a_lease_that_was_never_made_whole_dies_in_peace() -> None:
    """A signal handler may raise, or memory run out, between its making and its first line."""
    lease = Lease.__new__(Lease)
    del lease
    gc.collect()  # (what a finalizer raises, pytest takes for a failure)


# ------------------------------------------------ loops of others


def test_under_trio_an_error_says_what_to_use() -> None:
    async def main() -> None:
        locks = Holdfast("redis://127.0.0.1:1")
        for use in (
            locks.lock("x").acquire,
            locks.lock("x").try_acquire,
            locks.lock("x").__aenter__,
            locks.ready,
            locks.close,
            locks.rate("r", 1, 1).take,
            lambda: locks.inspect("x"),
        ):
            with pytest.raises(Misuse, match="trio"):
                await use()
        with pytest.raises(Misuse, match="asyncio"):
            locks.nodes()

    trio.run(main)


def test_without_a_loop_an_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the program has loaded a trio before 0.24, which does not say whether it runs."""
    monkeypatch.delattr("trio.lowlevel.in_trio_run")
    locks = Holdfast("redis://127.0.0.1:1")
    with pytest.raises(Misuse, match=r"no running event loop.*asyncio\.run\(\)"):
        locks.nodes()
    coroutine = locks.lock("x").acquire()
    with pytest.raises(Misuse, match="no running event loop"):
        coroutine.send(None)
