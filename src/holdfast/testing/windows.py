"""Windows: from when until when somebody believes that he holds a lock, and with which fence; what may never be true of two of them.

Knows times on one clock, names and fences. Must not know claims, nodes, faults, or whether the history is a simulated or a real one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from math import inf


@dataclass(eq=False, slots=True)
class Window:
    """One holder's. `begins`: when it learnt that it holds the lock; `ends`: until when it may believe so (inf: not known yet)."""

    name: Hashable
    token: str
    fence: int
    begins: float
    ends: float = inf

    def within(self, other: Window) -> bool:
        """Does it begin while another holder has the same lock? (P-S1 forbids it.)"""
        return self.name == other.name and other.begins <= self.begins < other.ends


class Fences:
    """The fences of each name, in the order in which windows begin."""

    def __init__(self) -> None:
        self._highest: dict[Hashable, Window] = {}

    def __contains__(self, name: object) -> bool:
        """Has anybody held it?"""
        return name in self._highest

    def passed(self, window: Window) -> Window | None:
        """The earlier holder, if any, whose fence is not below this one's. (P-S2 forbids it.) To be asked once for each, in order."""
        highest = self._highest.get(window.name)
        if highest is not None and window.fence <= highest.fence:
            return highest
        self._highest[window.name] = window
        return None


def overlaps(windows: Iterable[Window]) -> Iterator[tuple[Window, Window]]:
    """All pairs, earlier one first, in which somebody began to hold what another one held."""
    open_: dict[Hashable, list[Window]] = {}
    for window in sorted(windows, key=_begins):
        others = open_[window.name] = [it for it in open_.get(window.name, ()) if window.begins < it.ends]
        yield from ((it, window) for it in others if window.within(it))
        others.append(window)


def fences_back(windows: Iterable[Window]) -> Iterator[tuple[Window, Window]]:
    """All pairs, earlier one first, in which the later one's fence is not higher."""
    fences = Fences()
    for window in sorted(windows, key=_begins):
        if (earlier := fences.passed(window)) is not None:
            yield earlier, window


def _begins(window: Window) -> float:
    return window.begins
