"""The description of what is done once, and how a task does it.

Knows how a task carries out a plan, and that it runs a coroutine while it holds the lock. Decides
nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from ...engine.plans import Plan
from ...errors import LockBusy, LockLost, Overtaken
from ...face.aio.decorators import P, Single, W
from ...face.aio.lock import Lock
from ...face.decorators import Current, Kind, finished, named
from ...face.terms import LockTerms
from . import plan as once
from .plan import OnceTerms, Result, Turn, begin, runs

R = TypeVar("R")
Body = Callable[P, Coroutine[Any, Any, R]]  # what is run


class Once(once.Once):
    __doc__ = once.Once.__doc__
    __slots__ = ("_do", "_lock")

    def __init__(
        self, options: OnceTerms, lock: Callable[[LockTerms], Lock], do: Callable[[Plan[Any]], Awaitable[Any]]
    ) -> None:
        super().__init__(options)
        self._lock, self._do = lock, do

    def _with(self, options: OnceTerms) -> Once:
        return Once(options, self._lock, self._do)

    async def run(self, function: Body[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        deed = runs(function, Kind.COROUTINE, self._deed, args, kwargs)
        with self._surrounded() as call:
            turn: Turn = await self._do(begin(deed))
            while not await self._do(turn.read()):
                try:
                    async with self._lock(turn.terms) as lease:
                        if not await self._do(turn.look(lease)):
                            with Current(lease):
                                outcome = finished(function, await function(*args, **kwargs))
                            await self._do(turn.keep(lease, outcome))
                except Overtaken:
                    continue
                except LockLost as lost:
                    await self._do(turn.last(lost))
                break
            result: R = turn.value
            call.returns(turn.how)
            await self._do(turn.served())
            return result

    async def result(self) -> Result:
        turn: Turn = await self._do(begin(self._deed))
        if not await self._do(turn.read(True)) and turn.partly:
            try:
                async with self._lock(turn.brief) as lease:
                    await self._do(turn.look(lease))
            except Overtaken:
                await self._do(turn.read(True))
            except (LockBusy, LockLost):
                pass
        return turn.result

    async def forget(self) -> bool:
        turn: Turn = await self._do(begin(self._deed))
        try:
            async with self._lock(turn.alone) as lease:
                await self._do(turn.forget(lease))
        except LockLost as lost:
            await self._do(turn.last(lost))
        return turn.had

    def __call__(self, function: Callable[P, W]) -> Callable[P, W]:
        """Decorate a coroutine function, so that each call runs once and returns the result.

        The key is a template, as with `locked`.
        """
        return Single(named(self.key, lambda key: self._with(replace(self._deed, key=key, filled=self.key))))(function)
