"""The description of what is done once, and how a thread does it.

Knows how a thread carries out a plan, and that it runs a function while it holds the lock. Decides
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...engine.plans import Plan
from ...errors import LockBusy, LockLost, Overtaken
from ...face.decorators import Current, Kind, finished, named
from ...face.sync.decorators import P, R, Single
from ...face.sync.lock import Lock
from ...face.terms import LockTerms
from . import plan as once
from .plan import OnceTerms, Result, Turn, begin, runs

Body = Callable[P, R]  # what is run


class Once(once.Once):
    __doc__ = once.Once.__doc__
    __slots__ = ("_do", "_lock")

    def __init__(self, options: OnceTerms, lock: Callable[[LockTerms], Lock], do: Callable[[Plan[Any]], Any]) -> None:
        super().__init__(options)
        self._lock, self._do = lock, do

    def _with(self, options: OnceTerms) -> Once:
        return Once(options, self._lock, self._do)

    def run(self, function: Body[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        deed = runs(function, Kind.FUNCTION, self._deed, args, kwargs)
        with self._surrounded() as call:
            turn: Turn = self._do(begin(deed))
            while not self._do(turn.read()):
                try:
                    with self._lock(turn.terms) as lease:
                        if not self._do(turn.look(lease)):
                            with Current(lease):
                                outcome = finished(function, function(*args, **kwargs))
                            self._do(turn.keep(lease, outcome))
                except Overtaken:
                    continue
                except LockLost as lost:
                    self._do(turn.last(lost))
                break
            result: R = turn.value
            call.returns(turn.how)
            self._do(turn.served())
            return result

    def result(self) -> Result:
        turn: Turn = self._do(begin(self._deed))
        if not self._do(turn.read(True)) and turn.partly:
            try:
                with self._lock(turn.brief) as lease:
                    self._do(turn.look(lease))
            except Overtaken:
                self._do(turn.read(True))
            except (LockBusy, LockLost):
                pass
        return turn.result

    def forget(self) -> bool:
        turn: Turn = self._do(begin(self._deed))
        try:
            with self._lock(turn.alone) as lease:
                self._do(turn.forget(lease))
        except LockLost as lost:
            self._do(turn.last(lost))
        return turn.had

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function, so that each call runs once for its key and returns the result.

        The key is a template, as with `locked`.
        """
        return Single(named(self.key, lambda key: self._with(replace(self._deed, key=key, filled=self.key))))(function)
