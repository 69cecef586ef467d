"""The driver for threads when two callers, or a caller and the I/O thread, meet in between two steps.

Callers are greenlets, so each stops exactly where a test has it stop.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import pytest
from drivers.bench import TTL, Call, Lease, closing
from drivers.on_threads import ThreadsBench

from holdfast.drivers.threads.sockets import WakeupPipe
from holdfast.errors import HoldfastError, is_closed
from holdfast.protocol.command import NEWS
from holdfast.protocol.timing import Timing


@pytest.fixture
def bench() -> Iterator[ThreadsBench]:
    """A driver that is connected to three nodes."""
    with closing(ThreadsBench()) as bench:
        yield bench


def closed(bench: ThreadsBench) -> None:
    """A caller has closed the client, and the I/O thread has ended."""
    bench.over(bench._call(Call(), bench.driver.close))


def is_pipe(file: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(file).st_mode)
    except OSError:
        return False


# ------------------------------------------------ the scenarios


def test_a_caller_that_rings_late_writes_into_nobody_s_file(bench: ThreadsBench) -> None:
    """The client is closed between a caller's look at the bell's number and its write."""
    clapper, write, late = bench.driver.io_thread.sockets.bell.clapper, os.write, [True]
    written: list[bool] = []

    def stops(file: int, data: bytes) -> int:
        if file != clapper:
            return write(file, data)
        while late:
            bench.rests()
        written.append(is_pipe(file))
        return write(file, data) if written[-1] else 0

    with mock.patch.object(os, "write", stops):
        call = bench._call(Call(), lambda: bench.driver.steer(lambda engine, now: None))
    assert not call.done, "it is about to write"
    closed(bench)
    late.clear()
    bench.callers()
    call.result()
    assert written == [True], "the number was the bell's until then"
    assert not is_pipe(clapper), "and is closed as soon as nobody rings"


def test_one_of_several_callers_wakes_the_io_thread(bench: ThreadsBench) -> None:
    clapper, write, rings, done = bench.driver.io_thread.sockets.bell.clapper, os.write, list[int](), list[int]()

    def rung(file: int, data: bytes) -> int:
        rings.append(file)
        return write(file, data)

    with mock.patch.object(os, "write", rung):
        for times in (1, 2):
            for number in range(3):
                bench.driver.steer(lambda engine, now, number=number: done.append(number))
            assert rings == [clapper] * times
            bench.turn()
            assert done == [0, 1, 2] * times


def test_without_descriptors_nobody_is_woken() -> None:
    bell = WakeupPipe()
    with mock.patch.object(os, "pipe", side_effect=OSError):
        assert not bell.hang()
    bell.ring()  # (the I/O thread looks at short intervals)


class Counting(ThreadsBench):
    """Counts the threads that a driver has started."""

    started = 0

    def _start(self, *what: Any) -> None:
        self.started += 1
        super()._start(*what)


def test_a_node_whose_place_is_known_is_dialled_without_another_thread() -> None:
    with closing(Counting()) as bench:
        assert bench.started == 1, "the I/O thread"


def test_a_node_that_goes_on_and_on_leaves_the_others_their_turn(bench: ThreadsBench) -> None:
    one, other = bench.wires[:2]
    assert one and other
    read, left, chatter = other.recv_into, list[int](), b">2\r\n$10\r\ninvalidate\r\n*1\r\n$5\r\nother\r\n"
    bench.says(0, chatter * 12_000)
    bench.says(1, chatter)
    with mock.patch.object(other, "recv_into", lambda buffer: left.append(len(one.unread)) or read(buffer)):
        bench.turn()
    assert left[0] > 0
    bench.settle()
    assert not one.unread


def idle(bench: ThreadsBench) -> None:
    """The I/O thread has ended for want of work: `close` tells it nothing."""
    bench.passes(11.0)
    assert bench.driver.io_thread.unused and bench.driver.io_thread.failure is None


def test_an_io_thread_ends_when_there_is_nothing_to_keep_and_starts_again(bench: ThreadsBench) -> None:
    io_thread, kept = bench.driver.io_thread, bench.acquired()
    bench.passes(11.0)
    assert not io_thread.unused, "it keeps a lease"
    bench._call(Call(), lambda: bench.driver.release(kept.lease._pending, False))
    idle(bench)
    assert (io_thread.sockets.bell.file, io_thread.sockets.bell.clapper, io_thread.sockets.by_file) == (-1, -1, {})
    again = bench.acquire()
    bench.passes(1.0)
    again.result()
    assert bench.driver.io_thread is io_thread and not io_thread.unused


def test_an_io_thread_is_not_idle_while_somebody_waits_for_news(bench: ThreadsBench) -> None:
    watch = bench.engine.listen(bench.time())
    waits = bench._call(Call(), lambda: bench.driver.sleep(50.0, watch=watch))
    bench.passes(15.0)
    assert not bench.driver.io_thread.unused and not waits.done
    assert bench.ends == [], "its connections were closed, and nothing would tell it"
    bench.says(0, bench.tells(NEWS, watch.token))
    bench.settle()
    waits.result()


def test_news_that_come_as_somebody_turns_to_wait_are_not_missed(bench: ThreadsBench) -> None:
    """After the waiter has looked, and before the I/O thread knows that it waits."""
    watch = bench.engine.listen(bench.time())
    watch.news = True
    waits = bench._call(Call(), lambda: bench.driver._attend(watch, bench.time() + 50.0, None))
    bench.settle()
    waits.result()


def test_whoever_is_told_to_stop_waiting_does_so_soon(bench: ThreadsBench) -> None:
    """For a lock, for news, and for time to pass."""
    bench.silent |= {0, 1, 2}
    stop, driver, watch = threading.Event(), bench.driver, bench.engine.listen(bench.time())
    waits = [bench._call(Call(), partial(driver.sleep, 9.0, stop, it)) for it in (None, watch)]
    waits.append(bench._call(Call(), partial(driver.acquire, Lease(), bench.recipes("a"), Timing(TTL), stop)))
    bench.passes(0.5)
    assert [it.done for it in waits] == [False] * 3
    stop.set()
    bench.passes(0.1)
    assert [it.done for it in waits] == [True] * 3


def between_look_and_ask(bench: ThreadsBench, meanwhile: Callable[[], None]) -> Call:
    """A caller acquires. When it has seen that the client is open, another thread does this. No node answers."""
    io_thread, first = bench.driver.io_thread, [True]
    ask = io_thread.ask

    def asks(what: object) -> None:
        if first:
            first.clear()
            meanwhile()
        ask(what)

    bench.silent |= {0, 1, 2}
    with mock.patch.object(io_thread, "ask", asks):
        call = bench.acquire()
    bench.passes(1.0)
    return call


def test_nobody_waits_on_a_client_that_was_closed_while_its_io_thread_was_idle(bench: ThreadsBench) -> None:
    """The caller starts the I/O thread which `close` did not have to end. It asks for nothing, and ends."""
    idle(bench)
    call = between_look_and_ask(bench, bench.driver.close)
    assert is_closed(call.error)
    assert not bench.engine.live


def test_nor_if_it_was_opened_again_at_once(bench: ThreadsBench) -> None:
    """Nobody would close the I/O thread of the time before, which would hold the lease."""
    idle(bench)

    def again() -> None:
        bench.driver.close()
        bench.driver.reopen()

    io_thread = bench.driver.io_thread
    call = between_look_and_ask(bench, again)
    assert is_closed(call.error)
    assert io_thread is not bench.driver.io_thread
    assert not io_thread.engine.live


def fails(engine: object, now: float) -> None:
    raise ZeroDivisionError("a bug in the engine")


def test_a_bug_is_told_to_everybody_while_a_lease_is_being_given_back(bench: ThreadsBench) -> None:
    """The I/O thread knows that lease twice: as one that is held, and as a release that waits for its turn."""
    one, two = bench.acquired("one"), bench.acquired("two")
    failed = bench.driver.io_thread.aside.failed = mock.Mock()
    bench.driver.steer(fails)
    release = bench._call(Call(), lambda: bench.driver.release(two.lease._pending, False))
    bench.settle()
    release.result()
    assert (one.lease.fell, failed.call_count) == (1, 1)


def test_nobody_who_fails_then_keeps_others_from_being_told(bench: ThreadsBench) -> None:
    one, two, three = bench.acquired("one"), bench.acquired("two"), bench.acquired("three")
    failed = bench.driver.io_thread.aside.failed = mock.Mock()
    waits = bench.acquire("one")
    bench.settle()
    bench.driver.steer(fails)
    with mock.patch.object(two.lease, "_told_lost", side_effect=OSError), pytest.raises(OSError):
        bench.settle()
    assert (one.lease.fell, three.lease.fell, failed.call_count) == (1, 1, 1)
    bench.callers()
    assert isinstance(waits.error, HoldfastError)


def test_nor_does_somebody_who_asks_meanwhile(bench: ThreadsBench) -> None:
    io_thread, one = bench.driver.io_thread, bench.acquired("one")
    io_thread.aside.failed = mock.Mock()

    class Asks:
        """When the I/O thread looks at it, another thread asks."""

        @property
        def __class__(self) -> Any:
            io_thread.asked.append(fails)
            return object

    bench.driver.steer(fails)
    io_thread.asked.append(Asks())
    bench.settle()
    assert one.lease.fell == 1


def test_two_who_open_a_client_again_share_one_io_thread(bench: ThreadsBench) -> None:
    """Nobody would close the other one, nor release its leases."""
    driver = bench.driver
    closed(bench)
    new, others, io_threads = driver._new, [True], list[Any]()

    def news() -> Any:
        if others:
            others.clear()
            driver.reopen()
            io_threads.append(driver.io_thread)
        return new()

    driver._new = news
    driver.reopen()
    assert io_threads == [driver.io_thread]


def test_one_who_comes_late_to_open_it_changes_nothing(bench: ThreadsBench) -> None:
    """Another thread opens the client between its look at the client and at the I/O thread that was closed."""
    driver = bench.driver
    closed(bench)
    looks, io_threads = [True], list[Any]()

    # (The driver is a copy of the shipped one, so that mypy cannot know its class.)
    class Late(type(driver)):  # type: ignore[misc]
        @property
        def closed(self) -> bool:
            was: bool = vars(self)["closed"]
            if looks:
                looks.clear()
                self.reopen()
                io_threads.append(self._io_thread)
            return was

        @closed.setter
        def closed(self, to: bool) -> None:
            vars(self)["closed"] = to

    driver.__class__ = Late
    driver.reopen()
    assert io_threads == [driver.io_thread]


def test_a_caller_of_a_client_that_was_closed_and_opened_again_hears_of_the_close(bench: ThreadsBench) -> None:
    driver, io_thread = bench.driver, bench.driver.io_thread
    bench.silent |= {0, 1, 2}
    call = bench.acquire()
    bench.turn()
    driver.closing()
    for _ in range(100):
        bench.time.now += 0.05
        bench.turn()
    assert io_thread.gone and not call.done
    driver.reopen()
    bench.callers()
    assert is_closed(call.error)
    # In the child of a fork, the one that was closed is the parent's.
    with mock.patch.object(io_thread, "_process", -1):
        assert "forked" in str(io_thread.silence("just now"))


def test_a_second_thread_that_closes_waits_for_nothing_once_it_is_over(bench: ThreadsBench) -> None:
    """All of the other one's `close` comes between its look at the I/O thread and its request."""
    io_thread, late = bench.driver.io_thread, [True]

    class Closers(list[Any]):
        def append(self, gate: object) -> None:
            while late:
                bench.rests()
            super().append(gate)

    io_thread.closers = Closers()
    second = bench._call(Call(), bench.driver.close)
    io_thread.closers = []
    closed(bench)
    assert io_thread.over and not second.done
    late.clear()
    bench.settle()
    second.result()


def test_nor_does_one_whose_request_is_not_read_any_more(bench: ThreadsBench) -> None:
    """It comes after the I/O thread's last look at its deque."""
    engine, calls = bench.engine, list[Call]()
    farewell = engine.farewell

    def ends(now: float) -> float:
        end: float = farewell(now)
        if end <= now and not calls:
            calls.append(Call())
            bench._call(calls[0], bench.driver.close)
        return end

    engine.farewell = ends
    first = bench._call(Call(), bench.driver.close)
    bench.settle()
    for it in (first, *calls):
        it.result()
    assert len(calls) == 1


def test_a_io_thread_that_does_not_answer_blames_what_can_run_on_its_thread(bench: ThreadsBench) -> None:
    """Callbacks have threads of their own. The garbage collector runs finalizers on any thread."""
    told = str(bench.driver.io_thread.silence("just now"))
    assert "did not respond for 6.0 s just now" in told
    assert "CPU time" in told and "`__del__`" in told
    assert "on_lost" not in told and "observer" not in told


def test_nobody_waits_for_ever_for_an_io_thread_that_is_blocked(bench: ThreadsBench, caplog: pytest.LogCaptureFixture) -> None:
    lease = bench.acquired().lease
    ask = bench._call(Call(), lambda: bench.driver.ask({0: b"*1\r\n$4\r\nPING\r\n"}))
    release = bench._call(Call(), lambda: bench.driver.release(lease._pending, True))
    for _ in range(100):
        bench.time.now += 0.1
        bench.callers()
    assert ask.done and "did not respond for 6.0 s" in str(ask.error)
    assert release.done and release.error is None
    assert "the release of 'a' has not been sent for 6.0 s" in caplog.text


def test_nothing_is_asked_for_a_caller_that_was_interrupted_before_the_io_thread_began(bench: ThreadsBench) -> None:
    call = bench.acquire()
    bench._callers[-1].throw(ValueError("a signal handler raised this"))
    assert isinstance(call.error, ValueError)
    bench.settle()
    assert [it.of("request") for it in bench.nodes] == [[], [], []]
