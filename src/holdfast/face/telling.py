"""Who hears of events: the user's observer, and the log.

Knows events and loggers. Must not know where events come from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from .. import events
from ..events import Event

Observer = Callable[[Event], object]

_node = logging.getLogger("holdfast.node")
_lease = logging.getLogger("holdfast.lease")


class Teller:
    """Hands each event to the log and to the user's observer, whose errors are logged and hurt nobody."""

    __slots__ = ("observer",)

    def __init__(self, observer: Observer | None) -> None:
        self.observer = observer

    @property
    def wants_all(self) -> bool:
        """Does anybody listen to the events of locks that go well?"""
        return self.observer is not None or _lease.isEnabledFor(logging.DEBUG)

    def __call__(self, event: Event) -> None:
        log(event)
        if self.observer is not None:
            guarded(self.observer, event)


def guarded(stranger: Callable[..., object], *arguments: object) -> object:
    """Call a user's function; what it raises is logged, and None returned."""
    try:
        return stranger(*arguments)
    except Exception:
        logging.getLogger("holdfast").exception("%r raised", stranger)
        return None


def log(event: Event) -> None:
    """One line for each event, at the level that it deserves."""
    match event:
        case events.NodeDown():
            _node.warning("%s is down: %s", event.node, event.cause)
        case events.NodeGuarded():
            _node.warning("%s started lately and may have forgotten leases: it is left alone for %.1f s", event.node, event.left)
        case events.NodeUp():
            _node.info("%s is up", event.node)
        case events.Warned():
            _node.warning("%s: %s", event.node, event.warning)
        case events.Doubt():
            _lease.warning("a renewal of %r was not confirmed; %.2f s are left (fence %d)", event.name, event.remaining, event.fence)
        case events.Lost():
            _lease.error("%r is lost: %s (fence %d)", event.name, event.reason, event.fence)
        case _:
            _lease.debug("%s", event)
