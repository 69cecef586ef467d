"""Who hears of events: the user's observer, and the log.

Knows events and loggers. Must not know where events come from, or on which thread they are handed on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import events
from ..errors import readable
from ..events import Event

if TYPE_CHECKING:
    import logging

Observer = Callable[[Event], object]

_DEBUG, _INFO, _WARNING, _ERROR = 10, 20, 30, 40  # as in `logging`
LONGEST_REASON = 1024  # characters of an operator's reason for taking a lock away


def _logger(name: str) -> logging.Logger:
    import logging  # (not when holdfast is imported: short programs should not pay for it)

    return logging.getLogger(f"holdfast.{name}")


class Teller:
    """The observer and the loggers of a client. The drivers call `log` and `observer` aside from the engine."""

    __slots__ = ("_loggers", "observer")

    def __init__(self, observer: Observer | None) -> None:
        self.observer = observer
        self._loggers = {name: _logger(name) for name in ("lease", "node")}

    @property
    def wants_all(self) -> bool:
        """Does anybody listen to the events of locks that go well?"""
        return self.observer is not None or self._loggers["lease"].isEnabledFor(_DEBUG)

    def logs(self, event: Event) -> bool:
        """Does the log take events of this level?

        The engine asks this, so it takes no lock: `isEnabledFor` would wait for a thread that configures `logging`.
        """
        name, level = _weight(event)
        return level >= self._loggers[name].getEffectiveLevel()

    def log(self, event: Event) -> None:
        """Write one line for the event, at the level that it deserves."""
        name, level = _weight(event)
        text, arguments = _line(event)
        self._loggers[name].log(level, text, *arguments)


def _weight(event: Event) -> tuple[str, int]:
    """The logger that an event belongs to, and its level."""
    match event:
        case events.NodeUp():
            return "node", _INFO
        case events.NodeEvent():
            return "node", _WARNING
        case events.Lost():
            return "lease", _ERROR
        case events.Doubt() | events.HeldLong() | events.Opened() | events.Forced() | events.Discarded():
            return "lease", _WARNING
        case _:
            return "lease", _DEBUG


def _line(event: Event) -> tuple[str, tuple[Any, ...]]:
    """The text of an event, and what is filled in."""
    match event:
        case events.NodeDown():
            return "%s is down: %s", (event.node, event.cause)
        case events.NodeGuarded():
            return "%s is left alone for %.1f s: %s", (event.node, event.left, event.cause)
        case events.NodeUp():
            return "%s is up", (event.node,)
        case events.Warned():
            return "%s: %s", (event.node, event.warning)
        case events.Doubt():
            told = "a renewal of %r was not confirmed; %.2f s are left (fence %d)"
            return told, (event.name, event.remaining, event.fence)
        case events.HeldLong():
            told = "%r has been held for %.0f s (fence %d): its work may hang. `max_hold` would end such a lease"
            return told, (event.name, event.held, event.fence)
        case events.Opened():
            return "%r runs without its lock (fail_open): %s", (event.name, event.error)
        case events.Forced():
            holder = "nobody" if event.holder is None else readable(event.holder) or "''"
            told = "%r was taken from %s on %d nodes: %s"
            return told, (event.name, holder, event.nodes, readable(event.reason, LONGEST_REASON))
        case events.Lost():
            return "%r is lost: %s (fence %d)", (event.name, event.reason, event.fence)
        case _:
            return "%s", (event,)
