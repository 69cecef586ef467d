"""What users register is called aside from the engine: whatever it raises, and however long it takes, no renewal waits for it."""

from __future__ import annotations

import inspect
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.programs import run
from live.test_threads_driver import ONLY_LINUX, connected, io_thread_of, things, until
from proof import patches
from proof.books import word

from holdfast import Holdfast, LeaseState, events
from holdfast.clock import clock
from holdfast.drivers import callbacks as aside
from holdfast.drivers import threads
from holdfast.drivers.callbacks import ThreadCalls
from holdfast.drivers.threads.io_thread import IOThread
from holdfast.embedded import Nodes
from holdfast.engine.engine import Engine
from holdfast.engine.upkeep import Upkeep
from holdfast.errors import HoldfastError, LockLost, Misuse

TTL = 0.6
SHORT: dict[str, Any] = {"ttl": 0.2, "renew": False}  # a lease that is lost soon


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(Nodes(3)) as cluster:
        yield cluster


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


def queues(client: Holdfast) -> tuple[ThreadCalls, ...]:
    return io_thread_of(client).aside.all


# ------------------------------------------------ nothing that a user registers stops a renewal


@pytest.mark.parametrize("raised", [ZeroDivisionError("a handler's"), SystemExit(1), KeyboardInterrupt()], ids=lambda it: type(it).__name__)
def test_a_log_handler_that_raises_ends_no_lease(three: Cluster, raised: BaseException, capfd: pytest.CaptureFixture[str]) -> None:
    def raises(record: logging.LogRecord) -> None:
        raise raised

    lost: list[Any] = []
    with connected(three, ttl=TTL) as client, handled(raises):
        kept = client.lock("kept").acquire()
        io_thread = io_thread_of(client)
        leases = [client.lock(f"lost{i}", **SHORT, on_lost=lost.append).acquire() for i in range(3)]
        until(lambda: len(lost) == 3)
        assert sorted(it.name for it in lost) == [it.name for it in leases]
        assert all(it.lost.is_set() for it in leases)
        time.sleep(1.5 * TTL)
        kept.check()
        assert io_thread_of(client) is io_thread and io_thread.failure is None
        kept.release()
    assert "a log handler raised" in capfd.readouterr().err


def test_an_observer_that_blocks_loses_no_lease(three: Cluster, hung: Hung) -> None:
    lost: list[Any] = []
    with connected(three, ttl=TTL, observer=hung) as client:
        assert hung.called.wait(15)
        with client.lock("kept", wait=5) as lease:
            gone = client.lock("lost", **SHORT, on_lost=lost.append).acquire()
            time.sleep(2.5 * TTL)
            lease.check()
            assert lost == [gone], "on_lost does not wait for an observer"
        hung.go_on.set()


def test_an_on_lost_that_blocks_loses_no_lease_and_delays_no_event(three: Cluster, hung: Hung, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[events.Event] = []
    with connected(three, ttl=TTL, observer=heard.append) as client, client.lock("kept", wait=5) as lease:
        gone = client.lock("lost", **SHORT, on_lost=hung).acquire()
        assert hung.called.wait(15)
        time.sleep(2.5 * TTL)
        lease.check()
        until(lambda: [it for it in heard if word(it) == "lost" and it.token == gone.token])
        until(lambda: [it for it in caplog.records if "'lost' is lost" in it.message])
        hung.go_on.set()


def test_a_log_handler_that_blocks_loses_no_lease(three: Cluster, hung: Hung) -> None:
    lost: list[Any] = []
    heard: list[events.Event] = []
    with connected(three, ttl=TTL, observer=heard.append) as client, handled(hung), client.lock("kept", wait=5) as lease:
        gone = client.lock("lost", **SHORT, on_lost=lost.append).acquire()
        assert hung.called.wait(15)
        time.sleep(2.5 * TTL)
        lease.check()
        assert lost == [gone], "on_lost does not wait for the log"
        assert [it for it in heard if word(it) == "lost"], "nor does the observer"
        hung.go_on.set()


def test_the_engine_does_not_wait_for_a_thread_that_configures_logging(three: Cluster) -> None:
    """Such a thread holds the lock of `logging` while it makes handlers, which may take its time."""
    with connected(three, ttl=TTL) as client, client.lock("kept", wait=5) as lease:
        lock: Any = logging._lock  # type: ignore[attr-defined]  # (private, and without a type)
        logging.getLogger("holdfast.lease").setLevel(logging.ERROR)  # (this also forgets what levels were found to be)
        with lock:
            gone = client.lock("lost", **SHORT).acquire()
            time.sleep(2.5 * TTL)
            lease.check()
            assert gone.lost.is_set()
        logging.getLogger("holdfast.lease").setLevel(logging.NOTSET)


@pytest.mark.parametrize("method", ["tick", "received"])
def test_a_failing_engine_tells_its_leases_whatever_the_log_does(
    three: Cluster, monkeypatch: pytest.MonkeyPatch, hung: Hung, method: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("planted")

    lost: list[Any] = []
    with connected(three, ttl=TTL) as client, handled(hung):
        lease = client.lock("bug", on_lost=lost.append).acquire()
        event = lease.lost
        with monkeypatch.context() as patch:
            patch.setattr(Upkeep if method == "received" else Engine, method, broken)
            assert event.wait(TTL + 5)
            until(lambda: lost == [lease])
        assert lease.state is LeaseState.LOST
        assert hung.called.wait(15)
        hung.go_on.set()


# ------------------------------------------------ in which order, and how many


def test_all_leases_are_marked_before_any_callback_runs(three: Cluster) -> None:
    seen: list[bool] = []
    client = Holdfast(*three.urls, fresh=three.fresh)
    client.ready()
    leases: list[Any] = []
    marks: list[threading.Event] = []

    def on_lost(lease: Any) -> None:
        seen.append(all(it.is_set() for it in marks))

    leases += [client.lock(f"all{i}", on_lost=on_lost).acquire() for i in range(50)]
    marks += [it.lost for it in leases]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        client.close()  # loses all of them at the same moment
    finally:
        sys.setswitchinterval(before)
    assert seen == [True] * 50


def test_an_observer_hears_of_events_in_their_order_one_at_a_time(three: Cluster) -> None:
    heard: list[events.Event] = []
    inside: list[None] = []

    def observer(event: events.Event) -> None:
        assert not inside
        inside.append(None)
        time.sleep(0.0005)
        heard.append(event)
        inside.pop()

    with connected(three, observer=observer) as client:
        lock = client.lock("order")
        for _ in range(100):
            lock.acquire().release()
    kinds = [word(it) for it in heard if isinstance(it, events.LockEvent)]
    assert kinds == ["Attempt", "Acquired", "released"] * 100
    assert all(a.at <= b.at for a, b in pairwise(it for it in heard if isinstance(it, events.LockEvent)))


def test_events_for_a_slow_observer_are_bounded_and_losses_are_not(
    three: Cluster, hung: Hung, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[events.Event] = []
    lost: list[Any] = []

    def observer(event: events.Event) -> None:
        hung(event)
        heard.append(event)

    def on_lost(lease: Any) -> None:
        hung(lease)
        lost.append(lease)

    with connected(three, observer=observer) as client:
        # Only this queue: lines for the log that are dropped would be counted, too.
        queues(client)[1].most = 10
        leases = [client.lock(f"many{i}", **SHORT, on_lost=on_lost).acquire() for i in range(30)]
        until(lambda: all(it.lost.is_set() for it in leases))
        until(lambda: client.stats().lost == 30)
        told = len(queues(client)[1].waiting)
        assert told == 10
        # Of all that happened, ten events wait, and one may be being told.
        total, dropped = sum(io_thread_of(client).engine.record.counts.values()), client.stats().dropped
        assert total - 11 <= dropped <= total - 10
        hung.go_on.set()
        until(lambda: len(lost) == 30)
        until(lambda: len(heard) == total - dropped)
        assert lost == leases
        with client.lock("later", wait=5):
            pass
        until(lambda: word(heard[-1]) == "released")
        assert client.stats().dropped == dropped
    assert [it.levelno for it in caplog.records if "events are dropped" in it.message] == [logging.WARNING]


def test_lines_for_a_slow_log_are_bounded_and_counted(three: Cluster, monkeypatch: pytest.MonkeyPatch, hung: Hung) -> None:
    monkeypatch.setattr(aside, "MOST", 5)
    with connected(three) as client, handled(hung):
        leases = [client.lock(f"lines{i}", **SHORT).acquire() for i in range(20)]
        until(lambda: client.stats().lost == len(leases))
        assert 20 - 6 <= client.stats().dropped <= 20 - 5  # one may be being written
        hung.go_on.set()


# ------------------------------------------------ what callbacks may do


def test_what_a_callback_may_do(three: Cluster) -> None:
    """Anything: it has a thread of its own, so it may wait for its client, too."""
    tried: dict[str, Any] = {}
    with connected(three) as client:
        other = client.lock("other").acquire()

        def on_lost(lease: Any) -> None:
            tried["again"] = client.lock("callback", wait=15).acquire()
            tried["extend"] = other.extend()
            tried["inspect"] = client.inspect("other").state
            tried["release"] = other.release(confirm=True)
            tried["state"] = lease.state
            with pytest.raises(LockLost):
                lease.release()
            tried["end"] = True

        lease = client.lock("callback", **SHORT, on_lost=on_lost).acquire()
        until(lambda: "end" in tried)
        assert tried["again"].fence > lease.fence
        assert (tried["extend"] > 0, tried["inspect"], tried["release"] >= 2) == (True, "held", True)
        assert tried["state"] is LeaseState.LOST
        tried["again"].release()


def test_an_observer_may_wait_for_a_lock_of_its_client(three: Cluster) -> None:
    taken: list[Any] = []

    def observer(event: events.Event) -> None:
        if word(event) == "lost" and not taken:
            taken.append(client.lock("observed", wait=15).acquire())

    with connected(three, observer=observer) as client:
        lease = client.lock("observed", **SHORT).acquire()
        until(lambda: taken)
        assert taken[0].fence > lease.fence
        taken[0].release()


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


def test_a_callback_that_wants_to_end_its_thread_ends_nothing(three: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    ended: list[Any] = []

    def ends(what: Any) -> None:
        ended.append(what)
        sys.exit("lost")

    with connected(three, ttl=TTL) as client:
        kept = client.lock("kept").acquire()
        leases = [client.lock(f"ends{i}", **SHORT, on_lost=ends).acquire() for i in range(2)]
        until(lambda: len(ended) == 2)
        assert sorted(it.name for it in ended) == [it.name for it in leases]
        with client.lock("another", wait=5):
            assert kept.held
        kept.release()
    assert sum("belongs to holdfast" in it.message for it in caplog.records) == 2
    with connected(three, observer=ends) as client, client.lock("kept", wait=5) as lease:
        assert lease.held


# ------------------------------------------------ the end


def test_close_returns_when_callbacks_were_told(three: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[events.Event] = []
    lost: list[Any] = []

    def observer(event: events.Event) -> None:
        time.sleep(0.002)
        heard.append(event)

    def on_lost(lease: Any) -> None:
        time.sleep(0.05)
        lost.append(lease)
        raise ZeroDivisionError("at the end")

    with connected(three, observer=observer) as client:
        leases = [client.lock(f"end{i}", on_lost=on_lost).acquire() for i in range(5)]
    assert lost == leases
    assert [word(it) for it in heard].count("lost") == 5
    assert sum("is lost: closed" in it.message for it in caplog.records) == 5
    assert sum(it.exc_info is not None and "at the end" in str(it.exc_info[1]) for it in caplog.records) == 5
    until(lambda: not any(it._running.locked() for it in queues(client)), within=5)


def test_close_does_not_wait_for_ever_for_a_callback(three: Cluster, hung: Hung) -> None:
    client = Holdfast(*three.urls, fresh=three.fresh, observer=hung, node_timeout=0.3)
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


def test_callbacks_are_told_even_if_no_thread_can_be_started_any_more(three: Cluster) -> None:
    """From Python 3.12 on, no thread can be started once the interpreter has begun to end."""
    source = """
    from holdfast.drivers import callbacks

    def refuse(*_):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    locks = Holdfast()
    lease = locks.lock("exit", on_lost=lambda lease: say("on_lost", lease.name, threading.get_ident() != main)).acquire()
    main = threading.get_ident()
    callbacks.start_new_thread = refuse
    """
    status, out, errors = run(source, three)
    assert (status, out) == (0, "on_lost exit True\n"), errors
    assert "'exit' is lost: closed" in errors


def test_the_interpreter_does_not_wait_for_ever_for_a_callback(three: Cluster) -> None:
    source = """
    locks = Holdfast(observer=lambda event: time.sleep(60), node_timeout=0.3)
    lease = locks.lock("exit", on_lost=lambda lease: time.sleep(60)).acquire()
    """
    began = time.monotonic()
    status, _, errors = run(source, three)
    assert status == 0, errors
    assert time.monotonic() - began < 30


# ------------------------------------------------ threads come and go


@ONLY_LINUX
def test_a_client_that_registers_nothing_has_no_thread_for_it(three: Cluster) -> None:
    logging.getLogger("holdfast").setLevel(logging.WARNING)
    try:
        before = things()[0]
        with connected(three) as client:
            for _ in range(10):
                client.lock("quiet").acquire().release()
            assert things()[0] == before + 1, "the I/O thread"
            assert not any(it._running.locked() for it in queues(client))
    finally:
        logging.getLogger("holdfast").setLevel(logging.NOTSET)


def test_a_thread_without_calls_ends_and_another_one_begins(three: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "IDLE", 0.1)
    heard: list[events.Event] = []
    with connected(three, observer=heard.append) as client:
        observers = queues(client)[1]
        for _ in range(3):
            until(lambda: not observers._running.locked())
            heard.clear()
            client.lock("idle").acquire().release()
            until(lambda: "released" in map(word, heard))


def test_calls_that_come_while_a_thread_ends_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is about to end and somebody who puts a call there must not miss each other."""
    monkeypatch.setattr(aside, "IDLE", 1e-6)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    made: list[int] = []
    calls = ThreadCalls(1, lambda function, error: None)
    try:
        for number in range(2000):
            calls.put([(made.append, number)])
            # Without a pause: the next call comes while the thread that made this one ends.
            limit = clock() + 5
            while len(made) <= number:
                assert clock() < limit, f"call {number} was not made"
    finally:
        sys.setswitchinterval(before)
    assert made == list(range(2000))


def test_a_call_that_comes_just_before_a_thread_has_ended_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds a thread that runs, and starts none."""
    monkeypatch.setattr(aside, "IDLE", 1e-6)
    made: list[str] = []
    calls = ThreadCalls(1, lambda function, error: None)
    running, late = calls._running, ["late"]

    class Running:
        acquire, locked = running.acquire, running.locked

        def release(self) -> None:
            if late:
                calls.put([(made.append, late.pop())])
            running.release()

    calls._running = Running()  # type: ignore[assignment]  # (a lock with an occasion)
    calls.put([(made.append, "first")])
    limit = clock() + 5
    while made != ["first", "late"]:
        assert clock() < limit, made


def test_a_lease_that_was_told_is_not_kept(three: Cluster) -> None:
    import gc
    import weakref

    told: list[weakref.ref[Any]] = []
    with connected(three) as client:
        lease = client.lock("kept", **SHORT, on_lost=lambda it: told.append(weakref.ref(it))).acquire()
        until(lambda: told)
        del lease
        gc.collect()
        until(lambda: told[0]() is None, within=5)
        assert queues(client)[0]._running.locked(), "while its thread still sleeps"


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


def test_a_fork_within_a_callback_makes_no_call_of_the_parent_s(three: Cluster) -> None:
    source = """
    def on_lost(lease):
        if not children:
            time.sleep(0.5)  # others are lost meanwhile, and wait for their calls
            children.append(os.fork())
        os.write(1, f"{os.getpid() == parent} {lease.name}\\n".encode())

    parent, children = os.getpid(), []
    locks = Holdfast()
    leases = [locks.lock(f"fork{i}", ttl=0.2, renew=False, on_lost=on_lost).acquire() for i in range(3)]
    time.sleep(1.5)
    os.kill(children[0], signal.SIGKILL)
    os.waitpid(children[0], 0)
    """
    status, out, errors = run(source, three)
    assert status == 0, errors
    assert sorted(out.split("\n")) == ["", "False fork0", "True fork0", "True fork1", "True fork2"], errors


# ------------------------------------------------ faults that are seen

FAULTS: dict[str, tuple[type, str, str, str, Callable[..., object]]] = {
    "the engine writes to the log itself": (
        aside.Callbacks, "tell",
        "self.lines.put([(listeners.log, it) for it in events if listeners.logs(it)])",
        "len([listeners.log(it) for it in events if listeners.logs(it)]) * 0",
        test_a_log_handler_that_raises_ends_no_lease,
    ),
    "a callback runs before the next lease is marked": (
        IOThread, "_tell",
        "self.aside.losses.put(_told_lost(lost))",
        "[(self.aside.losses.put(_told_lost([it])), __import__('time').sleep(0.01)) for it in lost]",
        test_all_leases_are_marked_before_any_callback_runs,
    ),
    "a thread that ends looks at its queue no more": (
        ThreadCalls, "run", "while self.waiting and not", "if self.waiting and not",
        test_a_call_that_comes_just_before_a_thread_has_ended_is_made,
    ),
    "close waits for no callback": (
        threads.Driver, "_await_end", "calls.wait(until - self.clock())", "pass", test_close_returns_when_callbacks_were_told,
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(
    three: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], fault: str
) -> None:
    kind, name, text, other, test = FAULTS[fault]
    patches.method(monkeypatch, kind, name, text, other)
    fixtures = {"three": three, "monkeypatch": monkeypatch, "caplog": caplog, "capfd": capfd, "raised": ZeroDivisionError("a handler's")}
    with pytest.raises((AssertionError, HoldfastError)):
        test(**{it: fixtures[it] for it in inspect.signature(test).parameters})
