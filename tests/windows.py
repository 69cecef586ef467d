"""What the laws of two holders say of a history that is over, such as that of real servers.

Knows windows. Must not know where they come from.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from holdfast.testing.windows import Fences, HeldWindow


def overlaps(windows: Iterable[HeldWindow]) -> Iterator[tuple[HeldWindow, HeldWindow]]:
    """All pairs, earlier one first, in which somebody began to hold what another one held."""
    open_: dict[Hashable, list[HeldWindow]] = {}
    for window in sorted(windows, key=_begins):
        others = [it for it in open_.get(window.name, ()) if window.begins < it.ends]
        open_[window.name] = others
        yield from ((it, window) for it in others if window.within(it))
        others.append(window)


def fences_back(windows: Iterable[HeldWindow]) -> Iterator[tuple[HeldWindow, HeldWindow]]:
    """All pairs, earlier one first, in which the later one's fence is not higher."""
    fences = Fences()
    for window in sorted(windows, key=_begins):
        if (earlier := fences.passed(window)) is not None:
            yield earlier, window


def _begins(window: HeldWindow) -> float:
    return window.begins
