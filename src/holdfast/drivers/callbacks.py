"""Calls what users register, aside from the engine: `on_lost` functions, observers, and the log
with its handlers.

Knows queues of calls, and threads. Must not know locks, nodes, or what an event says.

The engine renews leases, so it never calls any of these itself. It only puts calls into a queue.
`on_lost`, each observer and the log have a queue and a thread each. One that blocks delays neither
a renewal nor the others. A thread starts with the first call and ends when it has been idle. So a
client that registers nothing has no such thread.
"""

from __future__ import annotations

import sys
from _thread import LockType
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ..engine.recorder import Recorder
from ..events import Event
from ..log import logger
from .forks import FORKS
from .greenlets import allocate_lock, get_ident, shut_gate, start_new_thread

# Seconds after which a thread without calls ends: a process that forks should have no thread.
IDLE = 1.0
# Events that may wait for a slow observer, or for a slow log handler.
MOST = 10_000
ENDLESS = sys.maxsize

Call = tuple[Callable[[Any], object], Any]  # a function and its argument
Complain = Callable[[Callable[[Any], object], BaseException], None]


class Listeners(Protocol):
    """The observers and the log, as a client has them."""

    @property
    def observers(self) -> Sequence[Callable[[Event], object]]:
        """The functions that the user wants called with every event."""

    def logs(self, event: Event) -> bool:
        """Does the log take events of this level? Must not block: the engine asks this."""

    def log(self, event: Event) -> object:
        """Write the event to the log."""


class Calls(ABC):
    """Calls that wait to be made, one after another, in the order in which they were put here.

    Args:
        most: How many may wait. Calls above that are dropped, the newest first.
        complain: Told which function raised what.
    """

    __slots__ = ("_complain", "most", "waiting")

    PASSED: tuple[type[BaseException], ...] = ()  # exceptions that are not for us to catch

    def __init__(self, most: int, complain: Complain) -> None:
        self.most, self._complain = most, complain
        self.waiting: deque[Call] = deque()

    def put(self, calls: Sequence[Call]) -> int:
        """Have these calls made, and return at once.

        Returns:
            How many were dropped because too many wait already.
        """
        kept = calls[: max(0, self.most - len(self.waiting))]
        if kept:
            self.waiting.extend(kept)
            self._wake()
        return len(calls) - len(kept)

    def add(self, call: Call) -> None:
        """Have this call made, however many wait. For what is said once."""
        self.waiting.append(call)
        self._wake()

    def _make(self, function: Callable[[Any], object], argument: object) -> object:
        """Make one call. Whatever it raises is complained of, and ends nothing."""
        try:
            return function(argument)
        except self.PASSED:
            raise
        except BaseException as error:
            self._complain(function, error)
            return None

    @abstractmethod
    def _wake(self) -> None:
        """There are calls to make."""


class ThreadCalls(Calls):
    """Calls that are made on a thread of their own, or on a greenlet."""

    def __init__(self, most: int, complain: Complain) -> None:
        super().__init__(most, complain)
        self._born = len(FORKS)
        self._running, self._bell = allocate_lock(), shut_gate()
        self._asleep = self._ending = self._stranded = False
        self._ident = 0

    def _wake(self) -> None:
        # In this order: the thread says that it sleeps, then looks whether a call was put here
        # meanwhile.
        if self._asleep:
            self._ring()
        elif not self._running.locked():
            try:
                start_new_thread(self.run, ())
            except RuntimeError:
                # The interpreter is ending, or the process may have no more threads. The next call
                # tries again; at the latest the client's own thread makes these calls, when it has
                # nothing else to do any more.
                self._stranded = True

    def _ring(self) -> None:
        try:
            self._bell.release()
        except RuntimeError:
            # It has rung already.
            pass

    @property
    def _foreign(self) -> bool:
        """Is this the child of a fork, and are the calls its parent's?"""
        return len(FORKS) != self._born

    def run(self) -> None:
        """Make calls until there have been none for a while.

        Returns at once if another thread does so.
        """
        while self.waiting and not self._foreign and self._running.acquire(False):
            try:
                self._ident = get_ident()
                self._work()
            finally:
                self._ident = 0
                self._asleep = False
                self._running.release()

    def _work(self) -> None:
        while True:
            while self.waiting:
                # One expression: a variable of this frame would keep the last lease alive while the
                # thread sleeps.
                self._make(*self.waiting.popleft())
                if self._foreign:
                    return
            self._asleep = True
            if not self.waiting and (self._ending or not self._bell.acquire(True, IDLE)):
                return
            self._asleep = False

    def finish(self) -> None:
        """Make the calls here for which no thread could be started."""
        if self._stranded:
            self._ending = True
            self.run()

    def end(self) -> None:
        """The client is closed: the thread ends as soon as no call waits."""
        self._ending = True
        self._ring()

    def wait(self, within: float) -> None:
        """Wait until the calls that were put here so far have been made, for at most `within`
        seconds.

        Returns at once when one of these calls asks for it: it would wait for itself.
        """
        if self._foreign or get_ident() == self._ident:
            return
        if not self.waiting and (self._asleep or not self._running.locked()):
            return
        gate = shut_gate()
        self.waiting.append((_open, gate))
        self._wake()
        gate.acquire(True, max(0.0, within))


C = TypeVar("C", bound=Calls)


class Callbacks(Generic[C]):
    """The queues of one engine.

    Args:
        listeners: The observers and the log.
        record: The engine's. Counts the events that are dropped.
        calls: Makes a queue. Its last argument: whether a call that takes its time delays the next
            one.
    """

    def __init__(self, listeners: Listeners, record: Recorder, calls: Callable[[int, Complain, bool], C]) -> None:
        self._listeners, self._record = listeners, record
        self.losses = calls(ENDLESS, self._complain, False)
        # One for each observer.
        self.events = tuple([calls(MOST, self._complain, True) for _ in listeners.observers])
        self.lines = calls(MOST, _print, True)
        self._warned = False

    @property
    def all(self) -> tuple[C, ...]:
        """All queues. The log comes last: calls of the others may have something to say to it."""
        return self.losses, *self.events, self.lines

    def tell(self, events: Sequence[Event]) -> None:
        """Put events into the queues of the log and of observers. Only the engine calls this."""
        listeners = self._listeners
        dropped = self.lines.put([(listeners.log, it) for it in events if listeners.logs(it)])
        for observer, calls in zip(listeners.observers, self.events, strict=True):
            dropped += calls.put([(observer, it) for it in events])
        if dropped:
            self._record.dropped += dropped
            if not self._warned:
                self._warned = True
                self.lines.add((_warn, self.lines.most))

    def failed(self, error: BaseException) -> None:
        """Write to the log that the engine failed."""
        self.lines.add((_fail, error))

    def interrupted(self, error: BaseException) -> None:
        """Write to the log that a signal handler raised this in the middle of the engine's work."""
        self.lines.add((_interrupted, error))

    def _complain(self, function: Callable[[Any], object], error: BaseException) -> None:
        self.lines.put([(_report, (function, error))])


def _open(gate: LockType) -> None:
    gate.release()


# What follows writes to the log. Handlers are the user's, so it runs where the log's calls are
# made.


def _about(event: str) -> dict[str, dict[str, str]]:
    """Return what a log record that no event has caused says in a form for programs."""
    return {"holdfast": {"event": event}}


def _report(what: tuple[Callable[[Any], object], BaseException]) -> None:
    function, error = what
    if isinstance(error, Exception):
        logger().error("%r raised", function, exc_info=error, extra=_about("raised"))
    else:
        told = "%r raised %s, which ends nothing: the thread or task that it was called on belongs to holdfast"
        name = type(error).__name__
        logger().error(told, function, name, exc_info=error, extra=_about("raised"))


def _warn(most: int) -> None:
    told = (
        "events are dropped: an observer or a log handler is so slow that %d of them wait. "
        "`stats().dropped` counts what is dropped; this is said once. "
        "Have the observer put events into a queue of its own"
    )
    logger().warning(told, most, extra=_about("dropping"))


def _fail(error: BaseException) -> None:
    told = "holdfast's engine failed: leases are lost, please report this"
    logger().critical(told, exc_info=error, extra=_about("failed"))


def _interrupted(error: BaseException) -> None:
    logger().warning(
        "a signal handler raised %s while holdfast was at work: the leases of this event loop are lost. "
        "Install it with loop.add_signal_handler(), which waits until the loop is free, "
        "or have it set a flag instead of raising",
        type(error).__name__,
        extra=_about("interrupted"),
    )


def _print(function: Callable[[Any], object], error: BaseException) -> None:
    """Print the error of a log handler to stderr, as `logging` itself does with most of them."""
    import logging
    import traceback

    if logging.raiseExceptions and sys.stderr is not None:
        try:
            print("holdfast: a log handler raised, and its record may be lost:", file=sys.stderr)
            traceback.print_exception(error, file=sys.stderr)
        except BaseException:
            # Stderr is closed, or it is an object of the user's that raises, too.
            pass
