"""When a caller of a rate asks again, and how far ahead it may: the arithmetic of one call."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import NoQuorum
from holdfast.operations.repair.commands import SPARE
from holdfast.primitives.rate.commands import SECOND, TURN, RateAnswer
from holdfast.primitives.rate.plan import EARLY, REMEMBERED, RateTerms, differ

LEAD = 10.0  # seconds: as far ahead somebody who comes reserves a turn
WHY = NoQuorum("x", 0.0, {}, 2)


def terms(wait: float | None, *pairs: tuple[int, float], orderly: bool = True, most: int = 1, **more: Any) -> RateTerms:
    """A rate of these limits, one of a call a second unless others are given, whose algorithm grants turns in order."""
    pairs = pairs or ((1, 1.0),)
    algorithm: Any = SimpleNamespace(orderly=orderly, most=most)
    return RateTerms("x", None, pairs, wait, False, tuple(b"%d/%d" % (calls, period) for calls, period in pairs), algorithm, (), **more)


def ahead(wait: float | None, waited: float, called: bool) -> float:
    """Seconds by which nodes may count the call ahead of its time."""
    return (TURN - terms(wait).turn(waited, called)) / 1_000_000


def test_a_call_whose_turn_was_reserved_may_be_counted_a_moment_ahead_at_the_end_of_its_wait_too() -> None:
    assert ahead(None, 9.0, False) == EARLY
    assert ahead(10.0, 0.0, False) == EARLY
    assert ahead(10.0, 10.0 - EARLY / 2, False) == pytest.approx(EARLY / 2), "it waits no longer than that"
    assert ahead(10.0, 10.0, False) == 0
    assert ahead(10.0, 10.0, True) == EARLY, "clocks of nodes differ: it would miss the turn that it has waited for"


def test_a_caller_that_has_waited_reserves_further_ahead_and_so_asks_again_later() -> None:
    assert terms(None).pause(0.0, LEAD) == LEAD, "its turn can be reserved"
    assert terms(None).pause(0.0, LEAD + 30.0) == 15.0, "half of the way to where it can"
    assert terms(None).pause(0.0, LEAD + 1.0) == LEAD / 2
    assert terms(None, orderly=False).pause(0.0, LEAD + 30.0) == LEAD + 30.0, "nobody reserves turns there"
    assert terms(None).pause(6.0, LEAD + 6.0) == LEAD + 6.0, "by then it could"
    assert terms(None).pause(40.0, LEAD + 41.0) == 20.0, "the longer it has waited, the rarer it asks"
    ahead = [(None, 0.0, LEAD), (None, 5.0, LEAD + 5.0), (99.0, 5.0, LEAD + 5.0), (3.0, 1.0, 2.0), (3.0, 4.0, 0.0)]
    assert [terms(wait).patience(waited) for wait, waited, _ in ahead] == [seconds * SECOND for _, _, seconds in ahead]
    assert terms(None, (1, 90.0), (1, 20.0)).patience(0.0) == 20 * SECOND, "a period, if that is longer"


# ------------------------------------------------ a process that counts by itself


def test_a_process_grants_its_share_and_says_when_it_has_another_call() -> None:
    """One of two: ten calls in 10 s flow back one in 2 s here, and two of a burst of four are its own."""
    rate = terms(None, (10, 10.0), most=4, processes=2)
    told = [rate.by_itself(cost, now, WHY) for cost, now in ((1, 100.0), (1, 100.0), (1, 101.0), (1, 102.0), (3, 105.0), (3, 106.0))]
    assert [it.retry_after for it in told] == [0, 0, 1, 0, 1, 0]
    assert all(it.allowed is (it.retry_after == 0) and it.cause is WHY for it in told)
    several = terms(None, (10, 10.0), (100, 1000.0), most=10, processes=2)
    assert [several.by_itself(5, now, WHY).retry_after for now in (100.0, 110.0, 118.0)] == [0, 0, 2], "each limit has a share of its own"


def test_a_process_remembers_the_keys_that_it_has_counted_last() -> None:
    alone = OrderedDict.fromkeys((b"%d/1" % it for it in range(REMEMBERED)), 0.0)
    for calls in (1, REMEMBERED):
        terms(None, (calls, 1.0), processes=1, alone=alone).by_itself(1, 100.0, WHY)
    assert (len(alone), list(alone)[:2], list(alone)[-2:]) == (REMEMBERED, [b"2/1", b"3/1"], [b"1/1", b"%d/1" % REMEMBERED])


# ------------------------------------------------ who has forgotten calls


def test_it_is_worth_a_look_if_nodes_differ_by_more_than_flows_back_soon_or_if_one_has_refused() -> None:
    """(Then the others were not asked.)"""

    def looks(*owed: int, guard: float | None = None, refused: bool = False) -> bool:
        return differ([RateAnswer(not refused, False, 0, it, 0, (), 0) for it in owed], guard)

    assert looks(SPARE + 1, 0) and looks(SPARE + 1, 1, refused=True) and looks(5 * SECOND + 1, 0, guard=5.0)
    assert not any((looks(), looks(SPARE, 0, refused=True), looks(SPARE + 1, 1), looks(5 * SECOND, 0, guard=5.0, refused=True)))
