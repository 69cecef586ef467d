"""The arithmetic of quorums and of validity: every count of nodes and every comparison of bounds is here.

Knows numbers. Must not know claims, nodes or clocks. `tests/core/test_quorum.py` has its dumb twin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf


def majority(nodes: int) -> int:
    """The least number of nodes of which any two sets meet: q."""
    return nodes // 2 + 1


def drift(ttl: float) -> float:
    """How far clocks that measure `ttl` seconds, here and on a node, may differ in rate and rounding (Redlock's allowance)."""
    return ttl / 100 + 0.002


def bound(sent: float, ttl: float) -> float:
    """Until when a grant counts: from the moment its request was *sent*, since it cannot have been executed before."""
    return sent + ttl - drift(ttl)


def reached_by(quorum: int, values: Sequence[float]) -> float:
    """The largest value that `quorum` of the values reach: the quorum-th largest; -inf if there are too few."""
    return sorted(values)[-quorum] if len(values) >= quorum else -inf


def agreed(quorum: int, fences: Sequence[int]) -> int:
    """The fence that `quorum` nodes have granted alike; 0 if there is none. (Two majorities meet: there is never a second.)"""
    for fence in fences[: len(fences) - quorum + 1]:
        if fences.count(fence) >= quorum:
            return fence
    return 0


def uncertain(nodes: int, quorum: int, sure: int) -> bool:
    """Might another have held a majority, if only `sure` nodes certainly had our token all the time?"""
    return nodes - sure >= quorum


def unanimous(quorum: int, votes: Sequence[bool]) -> bool:
    """Did all who answered say yes, and a quorum of them? (What a mere quorum allows may be N / q times what each node does.)"""
    return len(votes) >= quorum and all(votes)


def hopeless(quorum: int, able: Iterable[bool]) -> bool:
    """Are fewer than `quorum` nodes still able to grant? (Not "have `quorum` refused": with even N that never comes.)"""
    return sum(able) < quorum
