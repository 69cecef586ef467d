"""Decorated functions of task queues: what they do if their lock is busy, and how they are
interrupted if it is lost.

Knows the client for threads. Must not know frameworks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from .. import Holdfast, Lease, current
from ..errors import LockBusy

__all__ = ["Busy", "abortable", "attempt", "example"]

Body = Callable[..., Any]


class Busy(Exception):
    """The lock of the function itself was not acquired, and not one that its body takes.

    Attributes:
        busy: The error of the lock.
    """

    def __init__(self, busy: Any) -> None:
        super().__init__(str(busy))
        self.busy = busy


def attempt(
    function: Body, decorator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *refusals: type[Exception]
) -> Any:
    """Call a function under a decorator of a client.

    Args:
        function: The function.
        decorator: What `locked` or `once` returned.
        args: The function's arguments.
        kwargs: The function's named arguments.
        refusals: Other errors of the decorator's own lock that become Busy.

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
        return function(*args, **kwargs)

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
