"""Windows: from when until when somebody believes that he holds a lock, and with which fence; what
may never be true of two of them.

Knows times on one clock, names and fences. Must not know claims, nodes, faults, or whether the
history is a simulated or a real one.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf


@dataclass(eq=False, slots=True)
class HeldWindow:
    """One holder's.

    `begins`: when it learnt that it holds the lock; `ends`: until when it may believe so (inf: not
    known yet).

    `shared`: it only reads, and may hold the lock together with others who do.
    """

    name: Hashable
    token: str
    fence: int
    begins: float
    ends: float = inf
    shared: bool = False

    def within(self, other: HeldWindow) -> bool:
        """Does it begin while another holder has the same lock? (P-S1 forbids it.)"""
        return (
            self.name == other.name and other.begins <= self.begins < other.ends and not (self.shared and other.shared)
        )


class Fences:
    """The fences of each name, in the order in which windows begin.

    A reader's is above every writer's, a writer's above everybody's.
    """

    def __init__(self) -> None:
        # The highest of those that had the lock alone,.
        self._alone: dict[Hashable, HeldWindow] = {}
        # And of those that shared it.
        self._shared: dict[Hashable, HeldWindow] = {}

    def __contains__(self, name: object) -> bool:
        """Has anybody held it?"""
        return name in self._alone or name in self._shared

    def passed(self, window: HeldWindow) -> HeldWindow | None:
        """The earlier holder, if any, whose fence is not below this one's.

        (P-S2 forbids it.) To be asked once for each, in order.
        """
        for earlier in (self._alone.get(window.name), None if window.shared else self._shared.get(window.name)):
            if earlier is not None and window.fence <= earlier.fence:
                return earlier
        self.note(window)
        return None

    def note(self, window: HeldWindow) -> None:
        """It has this fence by now."""
        highest = self._shared if window.shared else self._alone
        if window.name not in highest or highest[window.name].fence < window.fence:
            highest[window.name] = window
