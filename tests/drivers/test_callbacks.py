"""Queues of calls, and the threads that make them: what is put there is made, in order, whatever it raises; or it is counted."""

from __future__ import annotations

import io
import logging
import sys
import threading
import types
from collections.abc import Callable

import pytest

from holdfast import events
from holdfast.clock import clock
from holdfast.drivers import callbacks as aside
from holdfast.drivers import forks
from holdfast.drivers.callbacks import Callbacks, ThreadCalls
from holdfast.engine.recorder import Recorder
from holdfast.events import Event

SOON = 5.0


class Listeners:
    """An observer, and a log that takes what is no debugging."""

    def __init__(self, observer: Callable[[Event], object] | None = None) -> None:
        self.observers = () if observer is None else (observer,)
        self.lines: list[Event] = []

    def logs(self, event: Event) -> bool:
        return not isinstance(event, events.Renewed)

    def log(self, event: Event) -> None:
        self.lines.append(event)


def threads(most: int, complain: aside.Complain, _: bool = True) -> ThreadCalls:
    return ThreadCalls(most, complain)


def down(count: int) -> list[Event]:
    return [events.NodeEvent(state="up", node=str(number)) for number in range(count)]


def made(calls: ThreadCalls) -> None:
    """Wait until all of them are."""
    calls.wait(SOON)
    assert not calls.waiting


def complained(_: object, error: BaseException) -> None:
    raise AssertionError("nothing was raised") from error


# ------------------------------------------------ one queue


def test_calls_are_made_in_order_on_one_thread_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "IDLE", 60.0)
    made_by: list[tuple[int, int]] = []
    calls = threads(100, complained)
    for number in range(50):
        assert calls.put([((lambda it: made_by.append((it, threading.get_ident()))), number)]) == 0
    made(calls)
    assert [number for number, _ in made_by] == list(range(50))
    assert len({thread for _, thread in made_by}) == 1
    assert made_by[0][1] != threading.get_ident()
    calls.end()
    assert calls._running.acquire(timeout=SOON), "it waits for more"


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_whatever_a_call_raises_the_next_one_is_made(kind: type[BaseException]) -> None:
    def raises(_: object) -> None:
        raise kind

    told: list[tuple[object, type[BaseException]]] = []
    after: list[int] = []
    calls = threads(100, lambda function, error: told.append((function, type(error))))
    calls.put([(raises, 0), (after.append, 1)])
    made(calls)
    assert (told, after) == ([(raises, kind)], [1])
    calls.end()


def test_calls_above_the_most_are_dropped_the_newest_first() -> None:
    go_on, after = threading.Event(), list[int]()
    calls = threads(3, complained)
    calls.add((lambda _: go_on.wait(SOON), None))
    while calls.waiting:  # until it is being made
        go_on.wait(0.001)
    assert calls.put([(after.append, number) for number in range(2)]) == 0
    assert calls.put([(after.append, number) for number in range(2, 5)]) == 2
    assert calls.put([(after.append, 5)]) == 1
    go_on.set()
    made(calls)
    assert after == [0, 1, 2]
    calls.end()


def test_a_call_does_not_wait_for_itself() -> None:
    took: list[float] = []

    def waits(_: object) -> None:
        began = clock()
        calls.wait(1.0)
        took.append(clock() - began)

    calls = threads(100, complained)
    calls.put([(waits, None)])
    made(calls)
    assert took[0] < 0.9
    calls.end()


def test_waiting_for_calls_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, waited = threading.Event(), list[float]()
    gate = types.SimpleNamespace(acquire=lambda _, seconds: waited.append(seconds), release=lambda: None)
    calls = threads(100, complained)
    calls.put([(lambda _: go_on.wait(SOON), None)])
    with monkeypatch.context() as patched:
        patched.setattr(aside, "shut_gate", lambda: gate)
        calls.wait(0.1)
        calls.wait(-0.1)
    assert waited == [0.1, 0.0]
    go_on.set()
    made(calls)
    calls.end()


def test_a_child_of_a_fork_makes_no_call_of_its_parent_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "FORKS", [])
    after: list[int] = []
    calls = threads(100, complained)
    calls.waiting.extend([(lambda _: aside.FORKS.append(None), None), (after.append, 1)])
    calls.run()
    assert after == [] and len(calls.waiting) == 1
    calls.run()
    calls.wait(SOON)  # returns at once
    assert after == []
    assert aside.FORKS is not forks.FORKS


def test_where_no_thread_can_be_started_calls_are_made_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    after: list[int] = []
    calls = threads(100, complained)
    calls.finish()  # has nothing to do
    monkeypatch.setattr(aside, "IDLE", 60.0)
    for number, ends in enumerate((calls.finish, lambda: calls.wait(SOON))):
        with monkeypatch.context() as patch:
            patch.setattr(aside, "start_new_thread", refuse)
            calls.put([(after.append, number)])
        assert after == list(range(number))
        ends()
        assert after == list(range(number + 1))


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


# ------------------------------------------------ all queues of an engine


def test_events_go_to_the_observer_and_to_the_log_if_it_takes_them() -> None:
    heard: list[Event] = []
    listeners, record = Listeners(heard.append), Recorder()
    told = Callbacks(listeners, record, threads)
    them = [*down(3), events.Renewed(name="n", token="t", waited=0.0, fence=1, remaining=1.0)]
    told.tell(them)
    for calls in told.all:
        made(calls)
        calls.end()
    assert (heard, listeners.lines, record.dropped) == (them, them[:3], 0)


def test_dropped_events_are_counted_and_the_log_says_so_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(aside, "MOST", 4)
    go_on, lost = threading.Event(), list[int]()
    record = Recorder()
    told = Callbacks(Listeners(lambda _: go_on.wait(SOON)), record, threads)
    told.tell(down(1))
    while told.events[0].waiting:
        go_on.wait(0.001)
    # Its line, too, is off the queue: what follows fills each queue exactly.
    made(told.lines)
    for number in range(1, 4):
        told.tell(down(4))
        made(told.lines)
        assert record.dropped == 4 * (number - 1)
    assert told.losses.put([(lost.append, number) for number in range(100)]) == 0
    made(told.losses)
    assert lost == list(range(100)), "losses are never dropped"
    go_on.set()
    for calls in told.all:
        made(calls)
        calls.end()
    assert [it.levelno for it in caplog.records] == [logging.WARNING]
    assert "4 of them wait" in caplog.records[0].message


def test_what_a_callback_raises_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def raises(kind: type[BaseException]) -> None:
        raise kind("a callback's")

    told = Callbacks(Listeners(), Recorder(), threads)
    told.losses.put([(raises, ZeroDivisionError), (raises, SystemExit)])
    told.failed(KeyError("a bug"))
    told.interrupted(TimeoutError())
    for calls in told.all:
        made(calls)
        calls.end()
    logged = {it.exc_info[0]: it for it in caplog.records if it.exc_info}
    assert {it.name for it in caplog.records} == {"holdfast"}
    assert sorted(vars(it)["holdfast"]["event"] for it in caplog.records) == ["failed", "interrupted", "raised", "raised"]
    assert "raises" in logged[ZeroDivisionError].message
    assert "belongs to holdfast" in logged[SystemExit].message
    assert logged[KeyError].levelno == logging.CRITICAL


class Closed(io.StringIO):
    """A stderr that is no good."""

    def write(self, _: str) -> int:
        raise SystemExit("closed")


@pytest.mark.parametrize("stderr", [Closed(), io.StringIO(), None])
def test_a_log_that_raises_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stderr: io.StringIO | None
) -> None:
    def raises(_: object) -> None:
        raise ZeroDivisionError("a handler's")

    after: list[int] = []
    told = Callbacks(Listeners(), Recorder(), threads)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        told.lines.put([(raises, 0), (after.append, 1)])
        made(told.lines)
    told.lines.end()
    assert (after, capsys.readouterr().out) == ([1], "")
    if type(stderr) is io.StringIO:
        assert "a log handler raised" in stderr.getvalue()
        assert "ZeroDivisionError" in stderr.getvalue()
