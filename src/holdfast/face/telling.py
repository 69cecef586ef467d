"""Who hears of events: the user's observer, and the log.

Knows events and loggers. Must not know where events come from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import events
from ..events import Event

if TYPE_CHECKING:
    import logging

Observer = Callable[[Event], object]


_DEBUG = 10  # logging.DEBUG


def _logger(name: str) -> logging.Logger:
    import logging  # (not when holdfast is imported: short programs should not pay for it)

    return logging.getLogger(f"holdfast.{name}".rstrip("."))


class Teller:
    """Hands each event to the log and to the user's observer, whose errors are logged and hurt nobody."""

    __slots__ = ("observer",)

    def __init__(self, observer: Observer | None) -> None:
        self.observer = observer

    @property
    def wants_all(self) -> bool:
        """Does anybody listen to the events of locks that go well?"""
        return self.observer is not None or _logger("lease").isEnabledFor(_DEBUG)

    def __call__(self, event: Event) -> None:
        log(event)
        if self.observer is not None:
            guarded(self.observer, event)


def guarded(stranger: Callable[..., object], *arguments: object) -> object:
    """Call a user's function; what it raises is logged, and None returned."""
    try:
        return stranger(*arguments)
    except Exception:
        _logger("").exception("%r raised", stranger)
        return None


def log(event: Event) -> None:
    """One line for each event, at the level that it deserves."""
    node, lease = _logger("node"), _logger("lease")
    match event:
        case events.NodeDown():
            node.warning("%s is down: %s", event.node, event.cause)
        case events.NodeGuarded():
            node.warning("%s is left alone for %.1f s: %s", event.node, event.left, event.cause)
        case events.NodeUp():
            node.info("%s is up", event.node)
        case events.Warned():
            node.warning("%s: %s", event.node, event.warning)
        case events.Doubt():
            lease.warning("a renewal of %r was not confirmed; %.2f s are left (fence %d)", event.name, event.remaining, event.fence)
        case events.Opened():
            lease.warning("%r runs without its lock (fail_open): %s", event.name, event.error)
        case events.Forced():
            lease.warning("%r was taken from %s on %d nodes: %s", event.name, event.holder or "nobody", event.nodes, event.reason)
        case events.Lost():
            lease.error("%r is lost: %s (fence %d)", event.name, event.reason, event.fence)
        case _:
            lease.debug("%s", event)
