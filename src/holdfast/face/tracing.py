"""Calls the user's `around` object in the caller's thread or task, where a call begins and ends.

Knows that object, and in which words calls end. Must not know locks, nodes or clocks.

Observers are called later, and elsewhere. A tracer needs the context of the caller, so it is called
here, directly. It must not block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from ..errors import outcome_of
from ..log import logger


class Scope(Protocol):
    """What `begin` returns: it hears of the end of that call."""

    def end(self, outcome: str, facts: Mapping[str, Any]) -> object:
        """Take note that the call has ended.

        Args:
            outcome: How, in one word.
            facts: What is known by then, such as "fence" or "error".
        """


class Around(Protocol):
    """What a client takes as `around=`."""

    def begin(self, kind: str, names: tuple[str, ...]) -> Scope | None:
        """Take note that a call begins.

        Args:
            kind: "exclusive", "read", "write", "permit", "election", "once", "fill", "rate",
                "latch" or "barrier".
            names: The names that the call is about.

        Returns:
            What hears of the end. None: nothing does.
        """


class ObservedCall:
    """One call of a user's, from where it begins to where it ends.

    Args:
        around: The user's object. None: nobody is called.
        kind: As in `Around.begin`.
        names: As in `Around.begin`.
    """

    def __init__(self, around: Around | None, kind: str, names: tuple[str, ...]) -> None:
        self._scope: Scope | None = None if around is None else _guarded(around.begin, kind, names)
        self._outcome = "done"
        self._facts: Mapping[str, Any] = {}

    def returns(self, outcome: str, **facts: Any) -> None:
        """Note how the call ends, if it raises nothing from here on."""
        self._outcome = outcome
        self._facts = facts

    def end(self, outcome: str, facts: Mapping[str, Any]) -> None:
        """Tell the user's object that the call has ended. Only the first time counts."""
        scope = self._scope
        self._scope = None
        if scope is not None:
            _guarded(scope.end, outcome, facts)

    def failed(self, error: BaseException) -> None:
        """Tell the user's object that the call raises this."""
        self.end(outcome_of(error), {"error": error})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.end(self._outcome, self._facts)
        else:
            self.failed(error)


def _guarded(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function of the user's. What it raises is logged, and harms no lock."""
    try:
        return function(*arguments)
    except Exception as error:
        logger().error("%r raised", function, exc_info=error, extra={"holdfast": {"event": "raised"}})
        return None
