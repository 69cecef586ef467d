"""Coroutines and async generators under a lock, for asyncio.

Knows how a coroutine and an async generator are run. Decides nothing but that.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, overload

from ...errors import LockBusy
from .. import decorators as decorating
from ..decorators import Choice, Current, Function, Kind, LockOf, finished, outlived
from .lease import Lease

P = ParamSpec("P")
R = TypeVar("R")
I = TypeVar("I", bound=AsyncIterable[Any])  # noqa: E741 (what an async generator function is said to return)
W = TypeVar("W", bound=Coroutine[Any, Any, Any] | AsyncIterable[Any])

current: Callable[[], Lease] = decorating.current


def _coroutine(function: Function, lock_of: LockOf, skip: bool) -> Function:
    async def decorated(*args: Any, **kwargs: Any) -> Any:
        lease = None
        try:
            async with lock_of(*args, **kwargs) as lease:
                with Current(lease):
                    return finished(function, await function(*args, **kwargs))
        except LockBusy:
            # Or it is another lock, in the function's body.
            if lease is not None or not skip:
                raise
            return None

    return decorated


def _generator(function: Function, lock_of: LockOf, skip: bool) -> Function:
    async def decorated(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        lease = None
        try:
            async with lock_of(*args, **kwargs) as lease:
                body = function(*args, **kwargs)
                step = _first(body)
                while True:
                    # If the lease is lost meanwhile, the task that takes this step is cancelled.
                    lease._enter(None)
                    with Current(lease):
                        try:
                            value = await step
                        except StopAsyncIteration:
                            return
                        finally:
                            # An exception in it and this frame would keep each other alive.
                            step = None
                    # Else the body yields though it is cancelled.
                    if lease._pause():
                        try:
                            sent = yield value
                        except BaseException as error:
                            # The body decides what becomes of it, also of GeneratorExit.
                            step = body.athrow(error)
                            continue
                        if not outlived(lease):
                            step = body.asend(sent)
                            continue
                    with Current(lease):
                        await body.aclose()
                    # Leaving the block raises LockLost.
                    return
        except LockBusy:
            if lease is not None or not skip:
                raise

    return decorated


def _first(body: AsyncGenerator[Any, Any]) -> Any:
    """Return the first step of a body, which is hidden from the event loop.

    When a loop ends, it closes all generators that it knows, in any order and all at once. So it
    might close the body before or while the generator around it does, which would then leave the
    lock before the body has ended.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, lambda body: None)
    try:
        return body.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)


class Locked(decorating.Decorator):
    """A decorator of coroutine functions and async generator functions.

    Each call waits for its lock, and holds it until it is over.
    """

    _runs = {Kind.COROUTINE: _coroutine, Kind.ASYNC_GENERATOR: _generator}  # noqa: RUF012 (nobody changes it)
    _otherwise = "it is one for asyncio; use `from holdfast import Holdfast`, or make it an `async def`"


def _through(function: Function, call_of: LockOf, skip: bool) -> Function:
    async def decorated(*args: Any, **kwargs: Any) -> Any:
        return await call_of(*args, **kwargs)(function, *args, **kwargs)

    return decorated


class Through(decorating.Decorator):
    """A decorator of coroutine functions: each call goes through a once, a rate or a fill.

    Args:
        choice: Chooses what is called for each call, with the function and its arguments.
        what: What that is of.
    """

    _runs = {Kind.COROUTINE: _through}  # noqa: RUF012 (nobody changes it)

    def __init__(self, choice: Choice, what: str) -> None:
        super().__init__(choice)
        self._noted = what
        self._otherwise = (
            f"a {what} for asyncio decorates coroutine functions; plain functions need `from holdfast import Holdfast`"
        )


class Skipping(Locked):
    """As `Locked`. If the lock is busy, a coroutine returns None, and a generator is empty."""

    @overload  # type: ignore[override]  # (what it makes may return None, and so is no longer of the type it was)
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(self, function: Callable[P, I]) -> Callable[P, I]: ...
    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate this function."""
        return super().__call__(function)
