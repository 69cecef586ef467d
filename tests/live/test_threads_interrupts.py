"""Ctrl-C and whatever else a signal's handler raises, anywhere at all, in the main thread."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from contract.cluster import Cluster
from nemesis.processes import until

from holdfast import Holdfast, Misuse


class Interrupt(BaseException):
    """What a handler raises."""


@contextmanager
def alarmed(handler: Callable[..., object]) -> Iterator[None]:
    """This handler strikes in the main thread, a tenth of a second after the block has begun."""
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def interrupt(*_: object) -> None:
    raise Interrupt


def test_b35_an_interrupted_wait_leaves_nothing_in_line(three: Cluster) -> None:
    with Holdfast(*three.urls) as client:
        client.ready()
        threads = threading.active_count()
        holder = client.lock("busy").acquire()
        for wants in (client.lock("busy").acquire, client.lock("busy", wait=30).__enter__):
            began = time.monotonic()
            with pytest.raises(Interrupt), alarmed(interrupt):
                wants()
            assert time.monotonic() - began < 5
            until(lambda: three.waiters("busy") == [0, 0, 0])
        assert holder.held
        holder.release()
        with client.lock("busy", wait=5):
            assert threading.active_count() == threads


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_signal_handler_acquires_the_lock_that_its_thread_waits_for(three: Cluster, reentrant: bool) -> None:
    """The handler gets it, as with `threading.Lock`: the call that it interrupts cannot return before."""
    with Holdfast(*three.urls) as client:
        holder, order = client.lock("asked twice").acquire(), list[str]()

        def handler(*_: object) -> None:
            threading.Timer(0.1, holder.release).start()
            # Shorter than it takes until a lock that its caller does not come for is released.
            with client.lock("asked twice", wait=8, ttl=30, reentrant=reentrant) as lease:
                order.append(f"handler {lease.held}")

        with alarmed(handler), client.lock("asked twice", wait=20, ttl=30, reentrant=reentrant) as lease:
            order.append(f"body {lease.held}")
        assert order == ["handler True", "body True"]


def test_a_signal_handler_strikes_anywhere_in_an_acquire(three: Cluster) -> None:
    """It gets the lock, or hears at once that its own thread has it, and the call that it interrupted goes on."""
    passed, ends, misses = set[tuple[Any, int]](), list[str](), 0

    def trace(frame: Any, event: str, _: object) -> Any:
        if "holdfast" not in frame.f_globals.get("__name__", ""):
            return None
        frame.f_trace_opcodes = True
        # How many instructions a call takes depends on when the nodes answer: so each is one that was not there before.
        if event == "opcode" and (place := (frame.f_code, frame.f_lasti)) not in passed:
            passed.add(place)
            if len(passed) % 5 == 0:
                sys.settrace(None)
                try:
                    with client.lock("anywhere", wait=20) as lease:
                        ends.append(lease.state.name)
                except Misuse:
                    ends.append("itself")
        return trace

    with Holdfast(*three.urls) as client:
        client.ready()
        while misses < 5:
            before = len(ends)
            sys.settrace(trace)
            try:
                with client.lock("anywhere", wait=20) as lease:
                    sys.settrace(None)
                    assert lease.held, f"interrupted at {ends[-1:]}"
            finally:
                sys.settrace(None)
            misses += len(ends) == before
        assert len(ends) > 50 and set(ends) == {"HELD", "itself"}


def test_what_a_caller_does_not_come_for_is_released(three: Cluster) -> None:
    """A handler keeps its thread from taking up the lock that it was granted: another thread gets it."""
    with Holdfast(*three.urls) as client:
        holder, order = client.lock("not taken", ttl=1).acquire(), list[str]()

        def other() -> None:
            with client.lock("not taken", ttl=1, wait=20):
                order.append("thread")

        def handler(*_: object) -> None:
            holder.release()
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            order.append("handler")

        with alarmed(handler), client.lock("not taken", ttl=1, wait=20) as lease:
            order.append(f"body {lease.held}")
        assert order == ["thread", "handler", "body True"]
