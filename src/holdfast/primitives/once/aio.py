"""The description of what is done once, and how a task does it.

Knows how a task carries out a plan, and that it runs a coroutine while it holds the lock. Decides
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ...drivers.aio.run import run
from ...errors import LockBusy, LockLost, Overtaken
from ...face.aio.decorators import P, Through, W
from ...face.aio.lock import Lock
from ...face.decorators import Current, Kind, finished, named
from ...face.terms import LockTerms
from . import plan as once
from .plan import Result, Turn, begin, runs

R = TypeVar("R")
Body = Callable[P, Coroutine[Any, Any, R]]  # what is run


class Once(once.Once):
    __slots__ = ()
    _lock: Callable[[LockTerms], Lock]

    async def run(self, function: Body[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        deed = runs(function, Kind.COROUTINE, self._terms, args, kwargs)
        with self._surrounded() as call:
            turn: Turn = await run(begin(deed), *self._drivers)
            while not await run(turn.read(), *self._drivers):
                try:
                    async with self._lock(turn.terms) as lease:
                        if not await run(turn.look(lease), *self._drivers):
                            with Current(lease):
                                outcome = finished(function, await function(*args, **kwargs))
                            await run(turn.keep(lease, outcome), *self._drivers)
                except Overtaken:
                    continue
                except LockLost as lost:
                    await run(turn.last(lost), *self._drivers)
                break
            result: R = turn.value
            call.returns(turn.how)
            await run(turn.served(), *self._drivers)
            return result

    async def result(self) -> Result:
        turn: Turn = await run(begin(self._terms), *self._drivers)
        if not await run(turn.read(True), *self._drivers) and turn.partly:
            try:
                async with self._lock(turn.brief) as lease:
                    await run(turn.look(lease), *self._drivers)
            except Overtaken:
                await run(turn.read(True), *self._drivers)
            except (LockBusy, LockLost):
                pass
        return turn.result

    async def forget(self) -> bool:
        turn: Turn = await run(begin(self._terms), *self._drivers)
        try:
            async with self._lock(turn.alone) as lease:
                await run(turn.forget(lease), *self._drivers)
        except LockLost as lost:
            await run(turn.last(lost), *self._drivers)
        return turn.had

    def __call__(self, function: Callable[P, W]) -> Callable[P, W]:
        """Decorate a coroutine function, so that each call runs once and returns the result.

        The key is a template, as with `locked`.
        """
        return Through(named(self.key, lambda key: self._filled(key).run), "once")(function)
