"""Failovers by real Sentinels: nobody holds a lock while another does; without the guard, or if nobody asks again, two do."""

from __future__ import annotations

from pathlib import Path

import pytest
from failovers.campaign import BOUND, GUARD, SUITS, Outcome, Plan, run

from holdfast.testing.windows import HeldWindow

pytestmark = pytest.mark.stories


def test_two_at_once_and_fences_that_do_not_grow_are_found() -> None:
    windows = [HeldWindow(0, "a", 5, 1.0, 2.0), HeldWindow(0, "b", 4, 1.9, 3.0), HeldWindow(1, "c", 1, 1.5, 9.0)]
    outcome = Outcome(windows=windows)
    assert outcome.overlaps == ["b began 0.100 s before a ended"]
    assert outcome.backward == ["b got the fence 4 after a had 5"]


def test_a_failover_lets_nobody_in_beside_the_holder(tmp_path: Path) -> None:
    outcome = run(Plan(2, (1, 1), 2.0, 1), tmp_path)
    assert (outcome.overlaps, outcome.backward, outcome.wrong) == ([], [], [])
    assert outcome.failovers == 2
    assert outcome.windows


# Either fault lets two in at each failover, or nearly so.
@pytest.mark.parametrize("plant", [GUARD, BOUND])
def test_a_guard_that_is_missing_or_a_place_that_is_asked_for_once_is_found(plant: str, tmp_path: Path) -> None:
    ttl, lag = SUITS[plant]
    assert run(Plan(3, (1, 1, 1), ttl, lag, plant), tmp_path).overlaps
