"""Who hears of events: the user's observers, and the log.

Knows events and loggers. Must not know where events come from, or on which thread they are handed
on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from .. import checks, events
from ..errors import ConfigError, message_of, readable, shortened
from ..events import Event
from ..log import loaded, logger

if TYPE_CHECKING:
    import logging

Observer = Callable[[Event], object]

_DEBUG, _INFO, _WARNING, _ERROR = 10, 20, 30, 40  # as in `logging`
# The next line about a node that was down for longer says for how long.
_LONG_DOWN = 60.0  # seconds
LONGEST_REASON = 1024  # characters of an operator's reason for taking a lock away


def checked(observer: object) -> tuple[Observer, ...]:
    """Return the observers of a client, in order.

    Args:
        observer: What its user said: None, a function of one argument, or several in a sequence.

    Raises:
        ConfigError: One of them cannot be called.
    """
    given: list[Any] = [observer]
    if observer is None:
        given = []
    elif isinstance(observer, Collection) and not isinstance(observer, str | bytes | bytearray):
        # What can be called is one observer, whatever else it is.
        given = [observer] if callable(observer) else list(observer)
    for it in given:
        if not callable(it):
            accepted = "a function of one argument, the event, or a list of such functions"
            raise ConfigError(f"observer is {accepted}; not {checks.shown(it)}")
    return tuple(given)


class Observers:
    """The observers and the loggers of a client.

    The drivers call `log` and the observers aside from the engine.

    Args:
        observer: One observer, several in a sequence, or None.
        around: An object for tracing. If it can be called, it is an observer, too.

    Raises:
        ConfigError: One of them cannot be called.
    """

    def __init__(self, observer: Observer | Collection[Observer] | None = None, around: object = None) -> None:
        self.observers = checked(observer)
        if callable(around) and not any(it is around for it in self.observers):
            self.observers += (around,)
        self._loggers: dict[str, logging.Logger] = {}
        if loaded():
            self._load()

    def _load(self) -> None:
        self._loggers = {name: logger(name) for name in ("lease", "node")}

    @property
    def wants_all(self) -> bool:
        """Does anybody listen to the events of locks that go well?"""
        return bool(self.observers) or (bool(self._loggers) and self._loggers["lease"].isEnabledFor(_DEBUG))

    def logs(self, event: Event) -> bool:
        """Does the log take events of this level?

        The engine asks this, so it takes no lock: `isEnabledFor` would wait for a thread that
        configures `logging`.
        """
        name, level = _weight(event)
        if not self._loggers:
            # Whether a log that was loaded meanwhile takes it, `log` asks: here it would take a lock.
            return level >= _WARNING or loaded()
        return level >= self._loggers[name].getEffectiveLevel()

    def log(self, event: Event) -> None:
        """Write one line for the event, at the level that it deserves."""
        if not self._loggers:
            self._load()
        name, level = _weight(event)
        text, arguments = _line(event)
        arguments = tuple(shortened(it) if isinstance(it, str) else it for it in arguments)
        self._loggers[name].log(level, text, *arguments, extra={"holdfast": structured(event)})


def structured(event: Event) -> dict[str, Any]:
    """Return an event's facts for programs that read the log, in values that JSON has.

    The time is left out, because each log record has one.
    """
    word, facts = _logged(event)
    told: dict[str, Any] = {"event": word}
    for name, value in facts.items():
        if isinstance(value, BaseException):
            told[name] = shortened(readable(message_of(value), LONGEST_REASON))
        elif isinstance(value, tuple):
            told[name] = list(value)
        elif name != "at":
            told["lock" if name == "name" else name] = shortened(value) if isinstance(value, str) else value
    return told


# The name in the log of what happened, and the facts that only such an event has: by how a lease
# ended, the state of a node, or the kind of a call. Searches and alerts depend on them.
_NAMES = {
    "released": "Released held",
    "lost": "Lost reason held why",
    "left": "Left remaining held",
    "discarded": "Discarded remaining acquired",
    "up": "NodeUp down",
    "down": "NodeDown cause",
    "guarded": "NodeGuarded left cause down",
    "refuses": "NodeRefuses cause",
    "warned": "Warned warning about",
    "rate": "Allowed key_given allowed retry_after waited",
    **dict.fromkeys(("once", "fill"), "Served kind how took"),
    **dict.fromkeys(("latch", "barrier"), "Gathered kind waited complete"),
}


def _logged(event: Event) -> tuple[str, dict[str, Any]]:
    """Return an event's name and facts in the log."""
    facts = event.facts()
    what: str
    common: tuple[str, ...]
    match event:
        case events.Ended():
            what, common = event.how, events.LeaseEvent.fields
        case events.NodeEvent():
            what, common = event.state, ("at", "node")
        case events.Called():
            what, common = event.kind, ("at", "name")
            facts |= {"allowed": event.how == "allowed", "complete": event.how == "complete", "waited": event.took}
        case _:
            return type(event).__name__, facts
    word, *own = _NAMES[what].split()
    return word, {name: facts[name] for name in (*common, *own)}


def _weight(event: Event) -> tuple[str, int]:
    """The logger that an event belongs to, and its level."""
    match event:
        case events.NodeEvent(state="up"):
            return "node", _INFO
        case events.NodeEvent():
            return "node", _WARNING
        case events.Ended(how="lost"):
            return "lease", _ERROR
        case events.Doubt() | events.Opened() | events.Forced() | events.Ended(how="discarded"):
            return "lease", _WARNING
        case _:
            return "lease", _DEBUG


def _after(down: float, text: str, arguments: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The line about a node, with how long it was down if that was long."""
    if down < _LONG_DOWN:
        return text, arguments
    return f"{text} (it could not be used for %.0f s)", (*arguments, down)


def _line(event: Event) -> tuple[str, tuple[Any, ...]]:
    """The text of an event, and what is filled in."""
    match event:
        case events.NodeEvent(state="down"):
            return "%s is down: %s", (event.node, message_of(event.cause))
        case events.NodeEvent(state="refuses"):
            return "%s refuses writes: %s", (event.node, message_of(event.cause))
        case events.NodeEvent(state="guarded"):
            told = "%s is left alone for %.1f s: %s"
            return _after(event.down, told, (event.node, event.left, event.cause))
        case events.NodeEvent(state="up"):
            return _after(event.down, "%s is up", (event.node,))
        case events.NodeEvent(state="warned"):
            return "%s: %s", (event.node, event.warning)
        case events.Doubt():
            told = "a renewal of %r was not confirmed; %.2f s are left (fence %d)%s"
            return told, (event.name, event.remaining, event.fence, event.why and f": {event.why}")
        case events.Opened():
            return "%r runs without its lock (fail_open): %s", (event.name, message_of(event.error))
        case events.Forced():
            holder = "nobody" if event.holder is None else readable(event.holder) or "''"
            told = "%r was taken from %s on %d nodes: %s"
            return told, (event.name, holder, event.nodes, readable(event.reason, LONGEST_REASON))
        case events.Ended(how="lost"):
            why = event.why and f": {event.why}"
            return "%r is lost: %s (fence %d)%s", (event.name, event.reason, event.fence, why)
        case events.Ended(how="discarded"):
            return "%s", (str(event),)
        case _:
            word, facts = _logged(event)
            return "%s", (f"{word}({', '.join(f'{name}={value!r}' for name, value in facts.items())})",)
