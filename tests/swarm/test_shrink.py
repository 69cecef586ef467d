"""A failing world becomes small, and still fails by the same law.

(With planted faults, in the swarm's first worlds.)
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from sim.test_planted import PLANTED
from swarm.campaign import live
from swarm.explore import explore, plan_of
from swarm.shrink import Case, Shrinking

from holdfast.protocol.ticket import Tickets
from holdfast.testing.faults import Weather

pytestmark = pytest.mark.stories

# Seeds in which to look for a failing world.
WITHIN = 60
RUNS = 200  # tries
# Faults.
FEW = 4


@pytest.mark.parametrize("name", ["no guard", "no agreement on the fence", "quorum of 2 in 5", "the gap rule is off"])
def test_a_failing_world_shrinks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # In step: worlds stay as they are when claims get other places in the period of renewals.
    monkeypatch.setattr(Tickets, "place", lambda tickets, ticket: 0.0)
    known = PLANTED[name].fault(monkeypatch)
    failing = (
        seed
        for seed in range(WITHIN)
        if live(explore(seed, wild=True, records=False, **known)).law in PLANTED[name].laws
    )
    # How few faults are left is its history's, too: one of three worlds becomes small.
    for seed in itertools.islice(failing, 3):
        plan = plan_of(seed, wild=True)
        assert plan is not None
        shrinking = Shrinking(seed, plan, RUNS, **known)
        whole = shrinking.smallest
        case = shrinking.run()
        if len(case.only) <= FEW:
            small(shrinking, whole, case, plan, known)
            return
    pytest.fail("none of three failing worlds becomes small", pytrace=False)


def small(shrinking: Shrinking, whole: Case, case: Case, plan: Weather, known: dict[str, Any]) -> None:
    """Look whether this case is a small one, and still fails."""
    assert shrinking.runs <= RUNS
    assert set(case.only) <= set(whole.only)
    assert (case.plan.clients, case.plan.names, case.plan.each) <= (plan.clients, plan.names, plan.each)
    assert case.plan.seconds < plan.seconds / 2, (
        "how small it becomes is its history's, which each script that connections load changes"
    )
    again = live(case.stage(**known))
    assert again.law == shrinking.law
    assert "seconds=" in case.changes(plan)


def test_the_budget_of_runs_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    known = PLANTED["quorum of 2 in 5"].fault(monkeypatch)
    plan = plan_of(0, wild=True)
    assert plan is not None
    shrinking = Shrinking(0, plan, 3, **known)
    assert shrinking.law
    shrinking.run()
    assert shrinking.runs == 3


def test_a_world_in_which_nothing_is_wrong_has_no_law_to_shrink_by() -> None:
    plan = plan_of(1, wild=True)
    assert plan is not None
    assert Shrinking(1, plan).law == ""
