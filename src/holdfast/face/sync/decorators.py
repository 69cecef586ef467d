"""Functions and generators under a lock, for threads.

Knows how a plain function and a generator are run. Decides nothing but that.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, ParamSpec, TypeVar, overload

from ...errors import LockBusy
from .. import decorators as decorating
from ..decorators import Choice, Current, Function, Kind, LockOf, finished, outlived
from .lease import Lease

P = ParamSpec("P")
R = TypeVar("R")
I = TypeVar("I", bound=Iterator[Any])  # noqa: E741 (what a generator function is said to return)
Y = TypeVar("Y")
S = TypeVar("S")

current: Callable[[], Lease] = decorating.current


def _function(function: Function, lock_of: LockOf, skip: bool) -> Function:
    def decorated(*args: Any, **kwargs: Any) -> Any:
        lease = None
        try:
            with lock_of(*args, **kwargs) as lease:
                with Current(lease):
                    return finished(function, function(*args, **kwargs))
        except LockBusy:
            # Or it is another lock, in the function's body.
            if lease is not None or not skip:
                raise
            return None

    return decorated


def _generator(function: Function, lock_of: LockOf, skip: bool) -> Function:
    def decorated(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        lease = None
        try:
            with lock_of(*args, **kwargs) as lease:
                body = function(*args, **kwargs)
                step: Any = partial(next, body)
                # Not `yield from`: between its steps, the body's lease is not the current one.
                while True:
                    with Current(lease):
                        try:
                            value = step()
                        except StopIteration as end:
                            return end.value
                        finally:
                            # An exception in it and this frame would keep each other alive.
                            step = None
                    try:
                        sent = yield value
                    except BaseException as error:
                        # The body decides what becomes of it, also of GeneratorExit.
                        step = partial(body.throw, error)
                        continue
                    if outlived(lease):
                        with Current(lease):
                            body.close()
                        # Leaving the block raises LockLost.
                        return None
                    step = partial(body.send, sent)
        except LockBusy:
            if lease is not None or not skip:
                raise
            return None

    return decorated


class Locked(decorating.Decorator):
    """A decorator of functions and generator functions.

    Each call waits for its lock, and holds it until it is over.
    """

    _runs = {Kind.FUNCTION: _function, Kind.GENERATOR: _generator}  # noqa: RUF012 (nobody changes it)
    _otherwise = "it is one for threads; use `from holdfast.aio import Holdfast`"


def _through(function: Function, call_of: LockOf, skip: bool) -> Function:
    def decorated(*args: Any, **kwargs: Any) -> Any:
        return call_of(*args, **kwargs)(function, *args, **kwargs)

    return decorated


class Through(decorating.Decorator):
    """A decorator of plain functions: each call goes through a once, a rate or a fill.

    Args:
        choice: Chooses what is called for each call, with the function and its arguments.
        what: What that is of.
    """

    _runs = {Kind.FUNCTION: _through}  # noqa: RUF012 (nobody changes it)

    def __init__(self, choice: Choice, what: str) -> None:
        super().__init__(choice)
        self._noted = what
        self._otherwise = (
            f"a {what} for threads decorates plain functions; coroutines need `from holdfast.aio import Holdfast`"
        )


class Skipping(Locked):
    """As `Locked`. If the lock is busy, a function returns None, and a generator is empty."""

    @overload  # type: ignore[override]  # (what it makes may return None, and so is no longer of the type it was)
    def __call__(self, function: Callable[P, Generator[Y, S, R]]) -> Callable[P, Generator[Y, S, R | None]]: ...
    @overload
    def __call__(self, function: Callable[P, I]) -> Callable[P, I]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Callable[P, R | None]: ...
    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate this function."""
        return super().__call__(function)
