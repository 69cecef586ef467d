"""Where the argument ends: what may give when an assumption does, and what may not. Knowing this is worth a test, too."""

from __future__ import annotations

import pytest
from swarm.scenes import LastMoment

from holdfast.testing.world import DriftingClock, Violation

pytestmark = pytest.mark.guards

EXCLUSION = {"counted", "majority", "exclusion"}


@pytest.mark.parametrize("by, gives", [(0.002, False), (0.3, True)], ids=["less than the drift", "more than the drift"])
def test_a_clock_that_is_set_forward_may_cost_exclusion_and_never_the_fence(
    by: float, gives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B14: on the nodes that make the quorum, while the lease is held to its last moment."""
    step = DriftingClock.step
    monkeypatch.setattr(DriftingClock, "step", lambda clock, seconds: step(clock, by))
    broken = set()
    for seed in range(12):
        try:
            LastMoment(seed).run()
        except Violation as violation:
            broken.add(str(violation).partition(":")[0])
    assert bool(broken) is gives
    assert broken <= EXCLUSION, "the fence holds in any case"
