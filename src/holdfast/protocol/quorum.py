"""The arithmetic of quorums and of validity: every count of nodes and every comparison of bounds.

The functions are about one list of nodes. A `Quorum` is about all lists that a client has: one, or
while the list is changed, the old and the new one.

Knows numbers. Must not know claims, nodes or clocks. `tests/protocol/test_quorum.py` has its dumb
twin.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from typing import TypeVar

V = TypeVar("V")
R = TypeVar("R")

# Seconds: the longest ttl whose leases count in full although no node has a mark (rule G14).
UNMARKED = 10.0


def majority(nodes: int) -> int:
    """Return q, the least number of nodes of which any two sets share a node (rule C1)."""
    return nodes // 2 + 1


def drift(ttl: float) -> float:
    """Return by how much two clocks that measure `ttl` seconds may differ, in seconds.

    One clock is here, the other on a node. They differ in rate and rounding. This is Redlock's
    allowance.
    """
    return ttl / 100 + 0.002


def bound(sent: float, ttl: float) -> float:
    """Return the time until which one node's grant counts (rule C2).

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
    """Return the value that `quorum` of the values reach; -inf if there are too few."""
    return sorted(values)[-quorum] if len(values) >= quorum else -inf


def agreed(quorum: int, fences: Sequence[int]) -> int:
    """Return the fence that `quorum` nodes have granted alike (rule F8); 0 if there is none.

    There is never a second one, because two majorities share a node.
    """
    for fence in fences[: len(fences) - quorum + 1]:
        if fences.count(fence) >= quorum:
            return fence
    return 0


class Quorum:
    """Which nodes decide together: a majority of each list (rule C1).

    A node that is in several lists counts in each. So two clients that have one list in common
    never decide at the same time. Two that have none in common might.

    Args:
        lists: The numbers of the nodes of each list. Every node is in one of them at least.

    Attributes:
        nodes: All of them.
        least: No fewer nodes than these decide.
        lists: How many there are.
        plain: Whether there is one list, of which `least` nodes decide.
    """

    def __init__(self, *lists: Iterable[int]) -> None:
        self._lists = [(frozenset(it), majority(len(frozenset(it)))) for it in lists]
        self.nodes = frozenset[int]().union(*(it for it, _ in self._lists))
        self.least = max(least for _, least in self._lists)
        self.lists = len(self._lists)
        self.plain = self.lists == 1

    def met(self, nodes: Collection[int]) -> bool:
        """Return whether these nodes decide."""
        if len(nodes) < self.least or self.plain:
            return len(nodes) >= self.least
        return all(len(it.intersection(nodes)) >= least for it, least in self._lists)

    def reached_by(self, values: Mapping[int, float]) -> float:
        """Return the value that a quorum of the nodes reach; -inf if there are too few."""
        return min(self.each(reached_by, values))

    def agreed(self, fences: Mapping[int, int]) -> int:
        """Return the fence that a quorum of the nodes have granted alike (rule F8), or 0."""
        found = set(self.each(agreed, fences))
        return found.pop() if len(found) == 1 else 0

    def met_by_some(self, nodes: Collection[int]) -> bool:
        """Return whether these nodes decide for some client: it may have one of the lists only."""
        return any(len(it.intersection(nodes)) >= least for it, least in self._lists)

    def each(self, decide: Callable[[int, Sequence[V]], R], values: Mapping[int, V]) -> list[R]:
        """Decide for each list, by what there is of its nodes."""
        return [decide(least, [values[node] for node in it if node in values]) for it, least in self._lists]
