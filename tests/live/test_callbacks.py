"""What users register is called aside from the engine, on both faces: whatever it raises, and however long it takes, no renewal waits."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face, Script, Threads
from contract.programs import run
from live.kit import connected, io_thread_of
from nemesis.processes import until
from proof.books import word

from holdfast import events
from holdfast.errors import Misuse

TTL = 0.6
SHORT: dict[str, Any] = {"ttl": 0.2, "renew": False}  # a lease that is lost soon


class Handler(logging.Handler):
    """A user's log handler, which does with each record of holdfast's what it is told to do."""

    def __init__(self, does: Callable[[logging.LogRecord], object]) -> None:
        super().__init__()
        self.does = does

    def handle(self, record: logging.LogRecord) -> bool:  # (not `emit`, whose errors some handlers catch)
        self.does(record)
        return True


@contextmanager
def handled(does: Callable[[logging.LogRecord], object]) -> Iterator[None]:
    logger, handler = logging.getLogger("holdfast"), Handler(does)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class Hung:
    """A user's function, of the face's kind, that does not return until it is let go."""

    def __init__(self, face: Face) -> None:
        self.called, self._thread, self._task = False, threading.Event(), asyncio.Event()

        def waits(what: object) -> Script[None]:
            self.called = True
            yield lambda: self._thread.wait(30) if isinstance(face, Threads) else self._task.wait()

        self.function = face.function(waits)

    def let_go(self) -> None:
        self._thread.set()
        self._task.set()


# ------------------------------------------------ nothing that a user registers stops a renewal


@pytest.mark.parametrize("what", ["observer", "on_lost", "log handler"])
async def test_what_takes_its_time_loses_no_lease_and_delays_nothing_else(
    face: Face, three: Cluster, name: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    if what == "log handler" and not isinstance(face, Threads):
        return  # (it blocks the loop)
    heard: list[Any] = []
    lost: list[Any] = []
    hung = Hung(face)
    observer, on_lost = (hung.function if it == what else other for it, other in (("observer", heard.append), ("on_lost", lost.append)))
    client = await face.connected(three, ttl=TTL, observer=observer)
    with handled(hung.function) if what == "log handler" else nullcontext():
        kept = await face.acquire(client.lock(name, wait=5))
        gone = await face.acquire(client.lock(f"{name}.lost", **SHORT, on_lost=on_lost))
        await face.until(lambda: hung.called)
        await face.sleep(2.5 * TTL)
        kept.check()
        if what != "on_lost":
            assert lost == [gone]
        if what != "observer":
            await face.until(lambda: [it for it in heard if word(it) == "lost" and it.token == gone.token])
        if what != "log handler":
            await face.until(lambda: [it for it in caplog.records if ".lost' is lost" in it.message])
        hung.let_go()
    await face.release(kept)
    assert all(a.at <= b.at for a, b in pairwise(it for it in heard if isinstance(it, events.LockEvent)))


async def test_all_leases_are_marked_before_any_callback_runs(face: Face, three: Cluster, name: str) -> None:
    seen: list[bool] = []
    marks: list[Any] = []

    def on_lost(lease: Any) -> None:
        seen.append(all(it.is_set() for it in marks))

    client = await face.connected(three)
    leases = [await face.acquire(client.lock(f"{name}.{it}", on_lost=on_lost)) for it in range(50)]
    marks += [it.lost for it in leases]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        await face.close(client)  # loses all of them at the same moment
    finally:
        sys.setswitchinterval(before)
    assert seen == [True] * 50


# ------------------------------------------------ what callbacks may do


@pytest.mark.parametrize("what", ["observer", "on_lost"])
async def test_a_callback_may_close_its_client(face: Face, three: Cluster, name: str, what: str) -> None:
    closed: list[float] = []

    def closes(told: Any) -> Script[None]:
        if what == "on_lost" or word(told) == "lost":
            began = face.now()
            yield client.close
            closed.append(face.now() - began)

    function = face.function(closes)
    client = await face.connected(three, observer=function if what == "observer" else None, node_timeout=3, ttl=10)
    lease = await face.acquire(client.lock(name, **SHORT, on_lost=function if what == "on_lost" else None))
    await face.until(lambda: closed)
    assert closed[0] < 3, "it does not wait for itself"
    assert not lease.held
    if isinstance(face, Threads):
        await face.until(lambda: not io_thread_of(client)._running.locked())


def test_a_finalizer_on_the_client_s_own_thread_cannot_wait_for_the_client(three: Cluster) -> None:
    found: list[BaseException] = []
    with connected(three) as client:
        io_thread, other = io_thread_of(client), client.lock("other").acquire()

        def finalize(now: float) -> None:
            for waits in (client.lock("third").acquire, client.lock("third").try_acquire, other.extend):
                try:
                    waits()
                except Misuse as error:
                    found.append(error)
            other.release()

        io_thread.ask(finalize)
        until(lambda: len(found) == 3)
        assert all("hand the work to another thread" in str(it) for it in found)
        until(lambda: three.holders("other") == three.holders("third") == [None] * 3)


# ------------------------------------------------ the end


async def test_close_returns_when_callbacks_were_told(face: Face, three: Cluster, name: str, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[events.Event] = []
    lost: list[Any] = []

    def hears(event: events.Event) -> Script[None]:
        yield lambda: time.sleep(0.002) if isinstance(face, Threads) else asyncio.sleep(0.002)
        heard.append(event)

    def on_lost(lease: Any) -> None:
        time.sleep(0.05)
        lost.append(lease)
        raise ZeroDivisionError("at the end")

    client = await face.connected(three, observer=face.function(hears))
    leases = [await face.acquire(client.lock(f"{name}.{it}", on_lost=on_lost)) for it in range(5)]
    await face.close(client)
    assert lost == leases
    assert [word(it) for it in heard].count("lost") == 5
    assert sum("is lost: closed" in it.message for it in caplog.records) == 5
    assert sum(it.exc_info is not None and "at the end" in str(it.exc_info[1]) for it in caplog.records) == 5


async def test_close_does_not_wait_for_ever_for_a_callback(face: Face, three: Cluster, name: str) -> None:
    hung = Hung(face)
    client = await face.connected(three, observer=hung.function, node_timeout=0.3)
    lease = await face.acquire(client.lock(name, on_lost=hung.function))
    began = face.now()
    await face.close(client)
    assert 0.3 <= face.now() - began < 10
    assert not lease.held
    assert three.holders(name) == [None] * 3, "it was given back"
    hung.let_go()


def test_callbacks_are_told_when_the_interpreter_ends(three: Cluster) -> None:
    source = """
    locks = Holdfast(observer=lambda event: say(event.how) if type(event).__name__ == "Ended" else None)
    lease = locks.lock("exit", on_lost=lambda lease: say("on_lost", lease.name)).acquire()
    """
    status, out, errors = run(source, three)
    assert (status, sorted(out.split("\n"))) == (0, ["", "lost", "on_lost exit"]), errors
    assert "'exit' is lost: closed" in errors
