"""The arithmetic of quorums beside its dumb twin: the same questions answered by counting everything there is to count."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.protocol import quorum

unhurried = settings(deadline=None)  # others may have the machine

NODES = range(1, 10)

# ---------------------------------------------------------------- the dumb twin


def dumb_majority(nodes: int) -> int:
    """The first size at which any two sets of nodes have one in common."""
    for size in range(1, nodes + 1):
        sets = [set(it) for it in combinations(range(nodes), size)]
        if all(one & other for one in sets for other in sets):
            return size
    raise AssertionError("all nodes meet themselves")


def dumb_decide(lists: Sequence[Sequence[int]], nodes: Collection[int]) -> bool:
    """Is there a majority of each list, and all of them are among these nodes?"""
    return all(any(set(it) <= set(nodes) for it in combinations(one, dumb_majority(len(one)))) for one in lists)


# ---------------------------------------------------------------- both


@pytest.mark.parametrize("nodes", NODES)
def test_B16_a_majority_is_the_least_that_always_meets(nodes: int) -> None:
    # Rule C1.
    assert quorum.majority(nodes) == dumb_majority(nodes)


def test_B16_majorities_as_one_knows_them() -> None:
    assert [quorum.majority(nodes) for nodes in NODES] == [1, 2, 2, 3, 3, 4, 4, 5, 5]


# ---------------------------------------------------------------- two lists

lists = st.lists(st.sets(st.integers(0, 4), min_size=1, max_size=5).map(sorted), min_size=1, max_size=2)


@unhurried
@given(lists, st.data())
def test_nodes_decide_that_are_a_majority_of_each_list(lists: list[list[int]], data: st.DataObject) -> None:
    named = sorted({node for one in lists for node in one})
    nodes = data.draw(st.sets(st.sampled_from(named)))
    decides = quorum.Quorum(*lists)
    assert decides.met(nodes) == dumb_decide(lists, nodes)
    assert not dumb_decide(lists, data.draw(st.sets(st.sampled_from(named), max_size=decides.least - 1)))
    assert decides.met_by_some(nodes) == any(dumb_decide([one], nodes) for one in lists)


@unhurried
@given(lists, st.data())
def test_what_is_reached_and_agreed_is_so_on_nodes_that_decide(lists: list[list[int]], data: st.DataObject) -> None:
    named = sorted({node for one in lists for node in one})
    values = data.draw(st.dictionaries(st.sampled_from(named), st.integers(1, 3)))
    decides, sets = quorum.Quorum(*lists), [set(it) for n in range(len(named) + 1) for it in combinations(named, n)]
    able = [it for it in sets if it <= values.keys() and dumb_decide(lists, it)]
    assert decides.reached_by(values) == max((min(values[node] for node in it) for it in able), default=-inf)
    assert decides.agreed(values) == next((values[min(it)] for it in able if len({values[n] for n in it}) == 1), 0)


# ---------------------------------------------------------------- validity


def test_drift_is_a_hundredth_and_two_milliseconds() -> None:
    assert quorum.drift(10.0) == pytest.approx(0.102)
    assert quorum.drift(0.05) == pytest.approx(0.0025)


@unhurried
@given(st.floats(0, 1e9), st.floats(0.05, 86400))
def test_B20_a_grant_is_good_for_less_than_its_ttl_from_its_sending(sent: float, ttl: float) -> None:
    # Rule C2.
    until = quorum.bound(sent, ttl)
    assert until == pytest.approx(sent + ttl * 0.99 - 0.002)
    assert until < sent + ttl
    assert until >= sent + ttl * 0.9  # the shortest lease has use, too


def min_validity(ttl: float, t1: float, t2: float, clock_drift: float) -> float:
    """The formula of the proposal of 2014, as it is written there."""
    return ttl - (t2 - t1) - clock_drift


@unhurried
@given(st.lists(st.floats(0, 5), min_size=1, max_size=7), st.floats(0.05, 86400), st.floats(0, 1e6), st.floats(0, 20))
def test_a_lease_ends_no_earlier_than_by_the_formula_of_2014(asked: list[float], ttl: float, t1: float, took: float) -> None:
    """Each node was asked some time after T1. The proposal counts from T2, when the last one had answered."""
    t2 = t1 + max(asked) + took
    ends = t2 + min_validity(ttl, t1, t2, quorum.drift(ttl))
    assert quorum.bound(t1, ttl) == pytest.approx(ends, abs=1e-6)
    lease = quorum.reached_by(quorum.majority(len(asked)), [quorum.bound(t1 + after, ttl) for after in asked])
    assert lease >= ends - 1e-6
