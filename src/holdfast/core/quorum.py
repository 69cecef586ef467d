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
    """Return the time until which one node's grant counts.

    This is the arithmetic of the proposal of 2014 ("A proposal for more reliable locks using
    Redis"), which counts from one start for all nodes:

        MIN_VALIDITY = TTL - (T2 - T1) - CLOCK_DRIFT

    T1 is the time before the first node is asked, T2 the time when the last answer has come. So
    from T2 on, the lock is valid until T2 + MIN_VALIDITY = T1 + TTL - CLOCK_DRIFT. With `sent` as
    T1, that is what is returned here. holdfast computes it for each node, from when the request to
    this node was sent, and takes the value that a majority of the nodes reaches (`reached_by`).
    No request is sent before T1, so this is never earlier than the proposal's end.

    A node cannot have executed a request before it was sent, so its key expires no earlier than
    this, even if its clock runs faster by as much as `drift` allows.

    Args:
        sent: When the request was sent to the node, in seconds of the monotonic clock: T1.
        ttl: The expiry of the key on the node, in seconds: TTL.

    Returns:
        A time of the same clock, in seconds.
    """
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
