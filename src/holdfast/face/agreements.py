"""What a client has agreed on with all others: how many permits a semaphore has. Shared by both faces.

Knows which rounds that takes, and for how long an answer is good. Must not know who waits for them.
"""

from __future__ import annotations

from collections.abc import Callable

from ..clock import clock
from ..engine.settings import Settings
from ..recipes.semaphore import Slots
from .plans import Plan

MOST = 10_000  # semaphores that are remembered: a template can name any number of them


class Agreements:
    """Of one client. What the nodes keep for `max_ttl` is said again after a third of that: so whoever says something else meets it."""

    __slots__ = ("_clock", "_good")

    def __init__(self, clock: Callable[[], float] = clock) -> None:
        self._clock = clock
        self._good: dict[str, tuple[int, float]] = {}  # by semaphore: its permits, and until when that need not be said again

    def due(self, slots: Slots, settings: Settings) -> Plan[None] | None:
        """What is to be asked of its nodes before this semaphore is used; None: it was asked just now."""
        permits, until = self._good.get(slots.label, (0, 0.0))
        return None if permits == slots.permits and self._clock() < until else self._agree(slots, settings)

    def _agree(self, slots: Slots, settings: Settings) -> Plan[None]:
        from .looking import agree

        began = self._clock()
        yield from agree(settings, slots)
        self._good.pop(slots.label, None)
        self._good[slots.label] = slots.permits, began + settings.max_ttl / 3
        if len(self._good) > MOST:
            self._forget_one()

    def _forget_one(self) -> None:
        """Forget the oldest. A semaphore that is used again is then asked about once more."""
        try:
            self._good.pop(next(iter(self._good)), None)
        except RuntimeError:
            # Another thread has changed it at this very moment, and forgets one itself, or the next call does.
            pass
