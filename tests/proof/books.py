"""The books of acquisitions: whether the events that observers heard, and the counts of `stats()`, go together.

Knows events and counts. Must not know which driver made them, or what happened.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from holdfast.engine.recorder import Stats
from holdfast.events import Ended, Event, LockEvent, NodeEvent

# One acquisition, a letter for each event: it begins, waits or not, is refused or held, and ends once.
# A dot is any other event of its lease.
LETTERS = {
    "Attempt": "a", "Queued": "q", "Refused": "f", "Opened": "o", "Acquired": "h", "discarded": "x", "released": "e", "lost": "e",
    "left": "e",
}  # fmt: skip
LIFE = re.compile("aq?(fo?|h[.x]*(ex?)?)?")


TOLD = ("Attempt", "Acquired", "Refused", "released", "lost", "left", "Renewed", "Doubt")


def word(event: Event) -> str:
    """How a lease ended, the state of a node, or else the name of the event's class."""
    if isinstance(event, Ended):
        return event.how
    return event.state if isinstance(event, NodeEvent) else type(event).__name__


class Books:
    """The acquisitions of one client's shard, entered event by event, in order. An observer."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self._lives: dict[int, str] = {}
        self._what: dict[int, tuple[object, ...]] = {}
        self._mixed: set[int] = set()

    def __call__(self, event: Event) -> None:
        """Enter an event."""
        if not isinstance(event, LockEvent):
            return
        what = (event.kind, event.names)
        self.kinds[word(event)] += 1
        self._lives[event.want] = self._lives.get(event.want, "") + LETTERS.get(word(event), ".")
        if self._what.setdefault(event.want, what) != what:
            self._mixed.add(event.want)

    def wrongs(self, stats: Stats) -> list[str]:
        """What is wrong with all that was entered, and with the client's counts."""
        found = [f"{want} of {self._what[want]} went {life}" for want, life in self._lives.items() if not LIFE.fullmatch(life)]
        found += [f"{want} is of several kinds or names" for want in self._mixed]
        told = [self.kinds[it] for it in TOLD]
        counts = [stats.attempts, stats.acquired, stats.refused, stats.released, stats.lost, stats.left, stats.renewed, stats.doubts]
        if told != counts:
            found.append(f"told {told}, and counted {counts}")
        return found + unbalanced(stats)


def wrongs(heard: Iterable[Event], stats: Stats) -> list[str]:
    """What is wrong with the events of one client's shard, all of them in order, and its counts."""
    books = Books()
    for event in heard:
        books(event)
    return books.wrongs(stats)


def unbalanced(stats: Stats) -> list[str]:
    """What is wrong with the counts alone."""
    found = []
    if stats.attempts != stats.acquired + stats.refused + stats.waiting:
        found.append(f"attempts are not what came of them: {stats}")
    if stats.acquired != stats.released + stats.lost + stats.left + stats.held:
        found.append(f"what was acquired is neither held nor over: {stats}")
    if stats.refused < stats.busy + stats.no_quorum + stats.gave_up:
        found.append(f"more was refused for a reason than at all: {stats}")
    return found
