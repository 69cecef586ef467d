"""What users register is called aside from the engine: whatever it raises, and however long it takes, no renewal waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.programs import run
from live.kit import connected, io_thread_of
from nemesis.processes import until
from proof.books import word

from holdfast import Holdfast, events
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
    """A user's function that blocks until it is let go, and says that it was called."""

    def __init__(self) -> None:
        self.called, self.go_on = threading.Event(), threading.Event()

    def __call__(self, what: object) -> None:
        self.called.set()
        assert self.go_on.wait(30)


@pytest.fixture
def hung() -> Iterator[Hung]:
    it = Hung()
    yield it
    it.go_on.set()


# ------------------------------------------------ nothing that a user registers stops a renewal


@pytest.mark.parametrize("what", ["observer", "on_lost", "log handler"])
def test_what_blocks_loses_no_lease_and_delays_nothing_else(
    three: Cluster, hung: Hung, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    heard: list[events.Event] = []
    lost: list[Any] = []
    observer, on_lost = (hung if what == "observer" else heard.append), (hung if what == "on_lost" else lost.append)
    with connected(three, ttl=TTL, observer=observer) as client, handled(hung) if what == "log handler" else nullcontext():
        with client.lock("kept", wait=5) as lease:
            gone = client.lock("lost", **SHORT, on_lost=on_lost).acquire()
            assert hung.called.wait(15)
            time.sleep(2.5 * TTL)
            lease.check()
            if what != "on_lost":
                assert lost == [gone]
            if what != "observer":
                until(lambda: [it for it in heard if word(it) == "lost" and it.token == gone.token])
            if what != "log handler":
                until(lambda: [it for it in caplog.records if "'lost' is lost" in it.message])
        hung.go_on.set()


# ------------------------------------------------ what callbacks may do


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


def test_close_does_not_wait_for_ever_for_a_callback(three: Cluster, hung: Hung) -> None:
    client = Holdfast(*three.urls, observer=hung, node_timeout=0.3)
    client.ready()
    lease = client.lock("hung", on_lost=hung).acquire()
    began = time.monotonic()
    client.close()
    assert 0.3 <= time.monotonic() - began < 10
    assert not lease.held
    assert three.holders("hung") == [None] * 3, "it was given back"
    hung.go_on.set()


def test_a_callback_may_close_its_client(three: Cluster) -> None:
    closed: list[float] = []

    def on_lost(lease: Any) -> None:
        began = time.monotonic()
        client.close()
        closed.append(time.monotonic() - began)

    with connected(three, node_timeout=3, ttl=10) as client:
        lease = client.lock("closing", **SHORT, on_lost=on_lost).acquire()
        until(lambda: closed)
        assert closed[0] < 3, "it does not wait for itself"
        until(lambda: not io_thread_of(client)._running.locked())
        assert not lease.held


def test_callbacks_are_told_when_the_interpreter_ends(three: Cluster) -> None:
    source = """
    locks = Holdfast(observer=lambda event: say(event.how) if type(event).__name__ == "Ended" else None)
    lease = locks.lock("exit", on_lost=lambda lease: say("on_lost", lease.name)).acquire()
    """
    status, out, errors = run(source, three)
    assert (status, sorted(out.split("\n"))) == (0, ["", "lost", "on_lost exit"]), errors
    assert "'exit' is lost: closed" in errors


# ------------------------------------------------ threads come and go


def test_the_interpreter_does_not_wait_for_ever_for_a_callback(three: Cluster) -> None:
    source = """
    locks = Holdfast(observer=lambda event: time.sleep(60), node_timeout=0.3)
    lease = locks.lock("exit", on_lost=lambda lease: time.sleep(60)).acquire()
    """
    began = time.monotonic()
    status, _, errors = run(source, three)
    assert status == 0, errors
    assert time.monotonic() - began < 30


def test_a_child_of_a_fork_has_threads_of_its_own(three: Cluster) -> None:
    source = """
    def observer(event):
        if type(event).__name__ == "Acquired":
            say(os.getpid() == parent, event.name)

    parent = os.getpid()
    locks = Holdfast(observer=observer)
    with locks.lock("parent"):
        pass
    while locks._driver.io_thread.aside.events[0].waiting:
        time.sleep(0.01)
    child = os.fork()
    if child == 0:
        with locks.lock("child"):
            pass
        locks.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    """
    status, out, errors = run(source, three)
    assert (status, out) == (0, "True parent\nFalse child\n"), errors
