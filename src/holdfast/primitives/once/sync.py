"""The description of what is done once, and how a thread does it.

Knows how a thread carries out a plan, and that it runs a function while it holds the lock. Decides
nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from ...drivers.threads.run import run
from ...errors import LockBusy, LockLost, Overtaken
from ...face.decorators import Current, Kind, finished, named
from ...face.sync.decorators import P, R, Through
from ...face.sync.lock import Lock
from ...face.terms import LockTerms
from . import plan as once
from .plan import Result, Turn, begin, runs

Body = Callable[P, R]  # what is run


class Once(once.Once):
    __slots__ = ()
    _lock: Callable[[LockTerms], Lock]

    def run(self, function: Body[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        deed = runs(function, Kind.FUNCTION, self._terms, args, kwargs)
        with self._surrounded() as call:
            turn: Turn = run(begin(deed), *self._drivers)
            while not run(turn.read(), *self._drivers):
                try:
                    with self._lock(turn.terms) as lease:
                        if not run(turn.look(lease), *self._drivers):
                            with Current(lease):
                                outcome = finished(function, function(*args, **kwargs))
                            run(turn.keep(lease, outcome), *self._drivers)
                except Overtaken:
                    continue
                except LockLost as lost:
                    run(turn.last(lost), *self._drivers)
                break
            result: R = turn.value
            call.returns(turn.how)
            run(turn.served(), *self._drivers)
            return result

    def result(self) -> Result:
        turn: Turn = run(begin(self._terms), *self._drivers)
        if not run(turn.read(True), *self._drivers) and turn.partly:
            try:
                with self._lock(turn.brief) as lease:
                    run(turn.look(lease), *self._drivers)
            except Overtaken:
                run(turn.read(True), *self._drivers)
            except (LockBusy, LockLost):
                pass
        return turn.result

    def forget(self) -> bool:
        turn: Turn = run(begin(self._terms), *self._drivers)
        try:
            with self._lock(turn.alone) as lease:
                run(turn.forget(lease), *self._drivers)
        except LockLost as lost:
            run(turn.last(lost), *self._drivers)
        return turn.had

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function, so that each call runs once for its key and returns the result.

        The key is a template, as with `locked`.
        """
        return Through(named(self.key, lambda key: self._filled(key).run), "once")(function)
