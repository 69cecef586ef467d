"""Decorated functions of task queues: what they do if their lock is busy, when a message that found
it busy comes back, and how they are interrupted if it is lost.

Knows the client for threads. Must not know frameworks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, partial, wraps
from math import ceil
from typing import Any

from .. import Holdfast, Lease, current
from ..errors import ConfigError, LockBusy

__all__ = ["Busy", "Single", "abortable", "attempt", "example", "patience"]

# Seconds that a message waits in the lock's own queue, before it goes away and comes back.
PATIENCE = 1.0
# Seconds that are booked at a time, and how many times they are at most: for ten minutes.
UNIT, MOST = 0.1, 6_000

Body = Callable[..., Any]


class Busy(Exception):
    """The lock of the function itself was not acquired, and not one that its body takes.

    Attributes:
        busy: The error of the lock.
    """

    def __init__(self, busy: Any) -> None:
        super().__init__(str(busy))
        self.busy = busy


def patience(busy: str, what: str) -> float:
    """Return how many seconds a message waits in the lock's own queue.

    Args:
        busy: What it does if the lock is busy: "later", "skip" or "raise".
        what: What this option is called.

    Raises:
        ConfigError: It is none of these.
    """
    if busy not in ("later", "skip", "raise"):
        raise ConfigError(f"{what} is 'later', 'skip' or 'raise', not {busy!r}")
    return PATIENCE if busy == "later" else 0.0


class Single:
    """A function that runs one at a time for each name, on behalf of messages.

    A message that finds the lock busy first waits in the lock's own queue for a moment. Then it
    books a turn on the nodes, where all processes book theirs one after the other, and comes back
    when those before it are likely to be done. So they do not all come back at once.

    Args:
        function: The function.
        name: The lock's name, a template.
        options: The options of the lock.
        wait: Seconds for which a message waits.
        pause: Seconds until a message comes back. None: when its turn is near.
    """

    def __init__(self, function: Body, name: str, options: Any, wait: float, pause: float | None) -> None:
        self._function, self._name, self._options, self._wait, self._pause = function, name, options, wait, pause
        # Refuses what cannot work, where it is written.
        self.known = example().locked(name, **options)(function)
        # How many seconds the function took lately in this process. 0: it is not known.
        self._usual = 0.0

    def call(
        self, locks: Holdfast, args: Any, kwargs: Any, message: bool, abortable: Any, *refusals: type[Exception]
    ) -> Any:
        """Call the function under its lock.

        Args:
            locks: The client.
            args: The function's arguments.
            kwargs: The function's named arguments.
            message: Whether a message wants it, which can come back.
            abortable: Makes a function and its options those of one that a loss interrupts, or
                None.
            refusals: As for `attempt`.

        Raises:
            Busy: As `attempt` does.
        """
        options = {"wait": self._wait if message else 0, **self._options}
        body, options = abortable(self._function, options) if abortable else (self._function, options)
        done = partial(self._took, locks)
        return attempt(body, locks.locked(self._name, **options), args, kwargs, *refusals, done=done)

    def _took(self, locks: Holdfast) -> None:
        """Note for how long the lock was held, if it still is."""
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


def attempt(
    function: Body,
    decorator: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *refusals: type[Exception],
    done: Callable[[], object] | None = None,
) -> Any:
    """Call a function under a decorator of a client.

    Args:
        function: The function.
        decorator: What `locked` or `once` returned.
        args: The function's arguments.
        kwargs: The function's named arguments.
        refusals: Other errors of the decorator's own lock that become Busy.
        done: Is called under the lock when the function is over.

    Returns:
        What the function returned.

    Raises:
        Busy: The decorator's own lock is busy, or one of `refusals` was raised before the function
            was called.
    """
    entered = False
    known: tuple[type[Exception], ...] = (LockBusy, *refusals)

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
    except known as error:
        if entered:
            raise
        raise Busy(error) from error


def abortable(
    function: Body, options: Any, interrupt: Callable[[], object], interruption: type[BaseException]
) -> tuple[Body, Any]:
    """Make a function that is interrupted if its lock is lost.

    Args:
        function: The function.
        options: Those of its lock.
        interrupt: Interrupts the function, from another thread.
        interruption: What the function sees then. It is replaced by LockLost where that is why.

    Returns:
        The function and the options to lock it with.
    """
    running, guard, told = True, threading.Lock(), options.get("on_lost")

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
            # LockLost, if that is why.
            current().check()
            raise

    def lost(lease: Lease) -> None:
        with guard:
            if running:
                interrupt()
        if told is not None:
            told(lease)

    return body, {**options, "on_lost": lost}


@cache
def example() -> Holdfast:
    """Return a client that sends nothing, to check options where they are written."""
    return Holdfast("redis://nowhere")
