"""Decorated functions of task queues: what they do if their lock is busy, when a message that found
it busy comes back, how they are interrupted if it is lost, and which messages are not sent twice.

Knows the client for threads. Must not know frameworks.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial, wraps
from math import ceil
from typing import Any

from .. import Holdfast, Lease, current
from ..checks import seconds
from ..errors import ConfigError, HoldfastError, LockBusy, LockLost, Misuse, NoQuorum, message_of
from ..kit import digest, named

__all__ = ["BUSY", "UNIQUE", "Busy", "Delivery", "Single", "UniqueCalls", "abortable", "attempt", "chosen", "example"]

LOGGER = "holdfast.unique"

# What a message does if the lock is busy.
BUSY = ("later", "skip", "raise")
# Seconds that a message waits in the lock's own queue, before it goes away and comes back.
PATIENCE = 1.0
# Seconds that are booked at a time, and how many times they are at most: for ten minutes.
UNIT, MOST = 0.1, 6_000
# Seconds for which a message is known that is not sent twice.
SHORTEST, LONGEST = 1.0, 1e8

Body = Callable[..., Any]

# The options of messages that are not sent twice, with their defaults. See docs/celery.md.
UNIQUE: dict[str, Any] = {
    "unique": True,
    "unique_until": "finished",
    "unique_on_failure": "free",
    "unique_keep": 3600.0,
    "unique_busy": "first",
}


class Busy(Exception):
    """The lock of the function itself was not acquired, and not one that its body takes.

    Attributes:
        busy: The error of the lock.
    """

    def __init__(self, busy: Any) -> None:
        super().__init__(str(busy))
        self.busy = busy


def chosen(what: str, given: object, *valid: str) -> None:
    """Refuse an option that is none of these."""
    if given not in valid:
        raise ConfigError(f"{what} is {', '.join(map(repr, valid[:-1]))} or {valid[-1]!r}, not {given!r}")


class Single:
    """A function that runs one at a time for each name, on behalf of messages.

    A message that finds the lock busy first waits in the lock's own queue for a moment. Then it
    books a turn on the nodes, where all processes book theirs one after the other, and comes back
    when those before it are likely to be done. So they do not all come back at once.

    Args:
        function: The function.
        name: The lock's name, a template.
        options: The options of the lock.
        busy: What a message does if the lock is busy, one of `BUSY`.
        pause: Seconds until a message comes back. None: when its turn is near.

    Raises:
        ConfigError: An option of the lock cannot work.
    """

    def __init__(self, function: Body, name: str, options: Any, busy: str, pause: float | None) -> None:
        self._function, self._name, self._options, self._busy, self._pause = function, name, options, busy, pause
        # Refuses what cannot work, where it is written.
        self.known = example().locked(name, **options)(function)
        # How many seconds the function took lately in this process. 0: it is not known.
        self._usual = 0.0

    def call(self, locks: Holdfast, args: Any, kwargs: Any, message: bool, abortable: Any) -> Any:
        """Call the function under its lock.

        Args:
            locks: The client.
            args: The function's arguments.
            kwargs: The function's named arguments.
            message: Whether a message wants it, which can come back.
            abortable: Makes a function and its options those of one that a loss interrupts, or
                None.

        Raises:
            Busy: As `attempt` does.
        """
        options = {"wait": PATIENCE if message and self._busy == "later" else 0, **self._options}
        body, options = abortable(self._function, options) if abortable else (self._function, options)
        done = partial(self._took, locks)
        return attempt(body, locks.locked(self._name, **options), args, kwargs, done)

    def _took(self, locks: Holdfast) -> None:
        """Note for how long the lock was held, if it still is."""
        # The function may have released it.
        with contextlib.suppress(Misuse):
            mine = current().fence
            for held in [it.held_for for it in locks.leases() if it.fence == mine]:
                self._usual = (self._usual + held) / 2 if self._usual else held

    def back(self, locks: Holdfast, name: str) -> float:
        """Return in how many seconds a message is to come back that found this lock busy."""
        if self._pause is not None:
            return self._pause
        line = locks.rate("holdfast.turns", round(1 / UNIT), 1, key=name, burst=MOST, fail_open=True)
        # The holder has not ended within `PATIENCE`.
        usual = self._usual or 2 * PATIENCE
        booked = line.take(max(1, min(MOST, ceil(usual / UNIT))))
        # It has some patience left when it is back.
        return max(UNIT, (booked.reset_after or usual) - PATIENCE / 2)


class UniqueCalls:
    """Messages of which only one at a time is under way for each name, from where they are sent.

    While a message is in a queue, the nodes keep its id (`once`). When its work begins, a lock
    takes the place of that record. The worker renews it, so the name is free one ttl after a worker
    has died.

    Args:
        function: The function that the messages are for.
        label: What the framework calls it.
        given: Options, by their names in `UNIQUE`.

    Raises:
        ConfigError: An option cannot work.
    """

    def __init__(self, function: Body, label: str, given: Mapping[str, Any]) -> None:
        name, until, failure, keep, busy = {**UNIQUE, **given}.values()
        chosen("unique_on_failure", failure, "free", "keep")
        chosen("unique_busy", busy, "first", "raise")
        self.by_time = not isinstance(until, str)
        if not self.by_time:
            chosen("unique_until", until, "started", "finished")
        what, keep = ("unique_until", until) if self.by_time else ("unique_keep", keep)
        self._keep = seconds(keep, what, least=SHORTEST, most=LONGEST)
        self.until, self.keeps, self._first = until, failure == "keep", busy == "first"

        def by_arguments(*args: Any, **kwargs: Any) -> str:
            return f"{label}:{digest(function, '', args, kwargs).decode()}"

        self._name_of = named(by_arguments if name is True else name, str)(function)

    def record(self, locks: Holdfast, name: str) -> Any:
        """Return the description of the record of a message that is in a queue."""
        return locks.once(f"unique:{name}", keep=self._keep, wait=PATIENCE)

    def send(
        self,
        locks: Holdfast,
        args: Any,
        kwargs: Any,
        publish: Callable[[str], tuple[Any, str]],
        known: Callable[[str], Any] | None,
    ) -> Any:
        """Send a message, unless one of its name is under way.

        Args:
            locks: The client.
            args: The function's arguments.
            kwargs: The function's named arguments.
            publish: Sends a message that carries this name, and returns what the sender gets, and
                the message's id.
            known: From the id of the message that is under way to what the sender gets. None: the
                sender needs a message of its own.

        Returns:
            What the sender gets.

        Raises:
            LockBusy: A message is under way, and the sender is to know or needs one of its own, or
                its id is not known.
            NoQuorum: Too few nodes answered. Nothing was sent.
        """
        name, sent, first = self._name_of(*args, **kwargs), list[Any](), None

        def sending() -> str:
            # A worker has the lock before the record is gone.
            running = locks.inspect(f"unique:{name}")
            if running.holder is not None:
                raise Busy(running.note)
            result, identity = publish(name)
            sent.append(result)
            return identity

        try:
            first = self.record(locks, name).run(sending)
        except Busy as running:
            first = running.busy
        except (LockBusy, LockLost, NoQuorum) as error:
            if not sent:
                raise
            _warn(name, error)
        if sent:
            return sent[0]
        if first is not None and self._first and known is not None:
            return known(first)
        raise LockBusy(name, 0.0, first, None, who=f"the message {first}", advice="Send it when that is done.")


class Delivery:
    """A message of a `UniqueCalls` in the hands of a worker. Trouble with the nodes is logged.

    Args:
        unique: What its messages are.
        locks: The client.
        name: The name that the message carries.
        identity: The message's id.
    """

    def __init__(self, unique: UniqueCalls, locks: Holdfast, name: str, identity: str) -> None:
        self._unique, self.name, self._id = unique, name, identity
        self._record = unique.record(locks, name)
        self._lock = locks.lock(f"unique:{name}", wait=PATIENCE, note=identity)
        self._lease: Lease | None = None
        self._again = False
        # Whether the work has failed, or was not to be done any more.
        self.failed = False

    def begin(self) -> None:
        """Note that the work begins."""
        if self._unique.until == "finished":
            with self._told():
                self._lease = self._lock.acquire()
        if not self._unique.by_time:
            # The sender may not have kept it yet: wait for that, or keep it first.
            self._free(lambda: self._record.run(lambda: self._id))

    def again(self) -> None:
        """Note that the message goes back to its queue. Call this before it is sent."""
        self._again = True
        with self._told():
            self._record.run(lambda: self._id)

    def end(self) -> None:
        """Note that the work is over."""
        if self.failed and self._unique.keeps and self._unique.until != "started":
            self.again()
        elif not self._again and (self.failed or not self._unique.by_time):
            self._free(lambda: self._record.result().value)
        if self._lease is not None:
            with self._told():
                self._lease.release()

    def _free(self, kept: Callable[[], object]) -> None:
        with self._told():
            # Another message may be in the queue since the record of this one has ended.
            if kept() == self._id:
                self._record.forget()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except HoldfastError as error:
            _warn(self.name, error)


def _warn(name: str, error: HoldfastError) -> None:
    logging.getLogger(LOGGER).warning("a duplicate of %r may be sent, or refused: %s", name, message_of(error))


def attempt(
    function: Body,
    decorator: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    done: Callable[[], object] | None = None,
) -> Any:
    """Call a function under a decorator of a client.

    Args:
        function: The function.
        decorator: What `locked` or `once` returned.
        args: The function's arguments.
        kwargs: The function's named arguments.
        done: Is called under the lock when the function is over.

    Returns:
        What the function returned.

    Raises:
        Busy: The decorator's own lock is busy, or too few nodes answered.
    """
    entered = False

    @wraps(function)
    def body(*args: Any, **kwargs: Any) -> Any:
        nonlocal entered
        entered = True
        try:
            return function(*args, **kwargs)
        finally:
            if done is not None:
                done()

    try:
        return decorator(body)(*args, **kwargs)
    except (LockBusy, NoQuorum) as error:
        if entered:
            raise
        raise Busy(error) from error


def abortable(
    function: Body, options: Any, interrupt: Callable[[int], object], interruption: type[BaseException]
) -> tuple[Body, Any]:
    """Make a function that is interrupted if its lock is lost. Call it in the function's thread.

    Args:
        function: The function.
        options: Those of its lock.
        interrupt: Interrupts this thread, whose number it gets, from another one.
        interruption: What the function sees then. It is replaced by LockLost where that is why.

    Returns:
        The function and the options to lock it with.
    """
    running, guard, told = True, threading.Lock(), options.get("on_lost")
    thread = threading.get_ident()

    @wraps(function)
    def body(*args: Any, **kwargs: Any) -> Any:
        nonlocal running
        try:
            try:
                return function(*args, **kwargs)
            finally:
                with guard:
                    running = False
        except interruption:
            # LockLost, if that is why. The function may have released it.
            with contextlib.suppress(Misuse):
                current().check()
            raise

    def lost(lease: Lease) -> None:
        with guard:
            if running:
                interrupt(thread)
        if told is not None:
            told(lease)

    return body, {**options, "on_lost": lost}


@cache
def example() -> Holdfast:
    """Return a client that sends nothing, to check options where they are written."""
    return Holdfast("redis://nowhere")
