"""Ctrl-C and whatever else a signal's handler raises, anywhere at all, in the main thread."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.programs import run
from nemesis.processes import until

from holdfast import Holdfast, Misuse

HITS = 5000

# Interrupts itself, after some microseconds, again and again. Says what it found: nothing of this may hang, overlap, or stay.
SOURCE = """
import json, random, warnings, weakref
from holdfast.clock import clock

class Interrupt(BaseException):
    pass

def interrupt(*_):
    raise Interrupt

hits, dice, prefix, TTL = int(sys.argv[1]), random.Random(sys.argv[2]), sys.argv[2] + ":", 1.0
lost, overlaps, turns, wrong, names = [], [], [0, 0], [], set()
warnings.simplefilter("ignore", ResourceWarning)
sys.unraisablehook = lambda what: None  # an interrupt within a finalizer is one that nobody gets
signal.signal(signal.SIGALRM, interrupt)

client = Holdfast(ttl=TTL, prefix=prefix, observer=lambda event: lost.append(event.name) if getattr(event, "how", "") == "lost" else None)
rival = Holdfast(ttl=TTL, prefix=prefix)
client.ready()
rival.ready()
SHARED = [client.lock(f"shared{i}", wait=0.05) for i in range(4)]
inside, fences, over = {}, {}, threading.Event()

def compete():
    other = random.Random(0)
    while not over.is_set():
        try:
            with rival.lock(f"shared{other.randrange(4)}", wait=0.02) as lease:
                user = inside.get(lease.name, lambda: None)()
                if user is not None and user.held and lease.held:
                    overlaps.append(lease.name)
                turns[0] += 1
        except NotAcquired:
            pass
        time.sleep(0.001)

def body(lease):
    inside[lease.name] = weakref.ref(lease)
    lease.check()
    if lease.fence <= fences.get(lease.name, 0):
        overlaps.append(lease.name)
    fences[lease.name] = lease.fence
    turns[1] += 1

def use(lock):
    match dice.randrange(7):
        case 0:
            with lock:
                pass
        case 1:
            with lock as lease:
                body(lease)
        case 2:
            lease = lock.acquire()
            try:
                body(lease)
            finally:
                lease.release()
        case 3:
            lease = lock.try_acquire()
            if lease is not None:
                try:
                    body(lease)
                finally:
                    lease.release()
        case 4:
            with lock, client.lock("inner" + lock.name, wait=0.05) as lease:
                names.add(lease.name)
                body(lease)
        case 5:
            lock(lambda: body(current()))()
        case 6:
            for lease in lock(steps)():
                body(lease)

def steps():
    yield current()

hit = serial = 0
took = []
for _ in range(60):
    began = clock()
    use(SHARED[0])
    took.append(clock() - began)
span = sorted(took)[30] * 1.2  # as long as it takes here and now
thread = threading.Thread(target=compete)
thread.start()
while hit < hits:
    try:
        signal.setitimer(signal.ITIMER_REAL, dice.uniform(1e-6, span))
        if dice.random() < 0.5:
            lock = dice.choice(SHARED)
        else:
            serial += 1
            lock = client.lock(f"temporary{serial}", wait=0.05)
        names.add(lock.name)
        use(lock)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        hit += 1
    except NotAcquired:
        pass
    except HoldfastError as error:
        wrong.append(repr(error))
    finally:
        while True:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
                break
            except Interrupt:
                hit += 1
over.set()
thread.join()
lock = None
gc.collect()
io_thread = client._driver.io_thread
end = clock() + TTL + 1
while io_thread.engine.live and clock() < end:  # nobody owns any of these: they end with their leases at the latest
    time.sleep(0.01)
for lock in SHARED:  # and life goes on
    with client.lock(lock.name, wait=10) as lease:
        body(lease)
# (The I/O thread notes at its next turn what callers have released.)
while (io_thread.engine.live or io_thread._pending_calls) and clock() < end + 1:
    time.sleep(0.001)
say(json.dumps({
    "names": sorted(names), "left behind": len(lost), "live": len(io_thread.engine.live), "pending_calls": len(io_thread._pending_calls),
    "overlaps": overlaps, "wrong": wrong, "turns": turns,
    "same io_thread": io_thread.failure is None,
    "threads": len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 3,
    "entered": [len(lock._entered) for lock in SHARED],
}))
client.close()
rival.close()
"""


def test_b35_thousands_of_interrupts_anywhere(three: Cluster) -> None:
    status, out, errors = run(SOURCE, three, HITS, "seed", patience=200.0)
    assert status == 0, errors
    found = json.loads(out)
    names = found.pop("names")
    assert (found["overlaps"], found["wrong"], found["live"], found["pending_calls"]) == ([], [], 0, 0)
    assert found["same io_thread"]
    # The main one, two I/O threads, and of the client that has an observer: the observer's and the log's.
    assert 3 <= found["threads"] <= 5
    assert min(found["turns"]) > 50
    assert sum(found["entered"]) <= 4
    assert found["left behind"] < HITS / 50
    for node in range(3):
        assert [it for it in names if three.ask(node, "EXISTS", f"seed:{it}")] == []


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
