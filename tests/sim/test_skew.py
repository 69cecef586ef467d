"""Worlds in which some clocks are wrong all the time, and what they find. More: `./task sim --skewed --seeds 0..500`."""

from __future__ import annotations

import pytest
from swarm.explore import SKEWED, explore

from holdfast.engine.health import Health
from holdfast.protocol.claim import Claim
from holdfast.testing.timeline import timeline
from holdfast.testing.world import Violation

pytestmark = pytest.mark.stories

EACH = 3  # seeds of each kind of world


@pytest.mark.parametrize("which", range(len(SKEWED)), ids=lambda it: SKEWED[it].name)
def test_no_law_is_broken(which: int) -> None:
    count = 0
    for seed in range(which, EACH * len(SKEWED), len(SKEWED)):
        stage = explore(seed, skewed=True)
        try:
            stage.run()
        except Violation as violation:
            pytest.fail("\n".join([f"seed {seed} --skewed ({stage.name}): {violation}", *timeline(stage.world, 30)]), pytrace=False)
        count += not stage.void
    assert count, "what these worlds are aimed at never happens"


WITHIN = 10  # worlds


def test_nodes_whose_clocks_are_wrong_are_found_out_if_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is their vote refused, nor what they grant looked at."""
    monkeypatch.setattr(Health, "_judge_clocks", lambda *_: None)
    monkeypatch.setattr(Claim, "latest", lambda *_: 2**53)
    found = []
    for turn in range(39, 39 + WITHIN):
        for which in (0, 1):
            try:
                explore(which + turn * len(SKEWED), skewed=True).run()
            except Violation as violation:
                found.append(str(violation).partition(":")[0])
                if found[-1] == "fence":
                    return
    pytest.fail(f"not found in {WITHIN} worlds; other laws that were broken: {found}", pytrace=False)
