"""When a caller of a rate asks again, and how far ahead it may: the arithmetic of one call."""

from __future__ import annotations

import pytest

from holdfast.primitives.rate.commands import TURN
from holdfast.primitives.rate.plan import EARLY, LEAD, RateTerms


class Orderly:
    """An algorithm that grants turns in order."""

    orderly = True


def terms(wait: float | None) -> RateTerms:
    return RateTerms("x", None, ((1, LEAD),), wait, False, (), Orderly(), ())  # type: ignore[arg-type]  # (all that is asked of it)


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
    assert terms(None).pause(6.0, LEAD + 6.0) == LEAD + 6.0, "by then it could"
    assert terms(None).pause(40.0, LEAD + 41.0) == 20.0, "the longer it has waited, the rarer it asks"
