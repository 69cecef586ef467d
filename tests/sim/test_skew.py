"""Worlds in which some clocks are wrong all the time, and what they find. More: `./task sim --skewed --seeds 0..500`."""

from __future__ import annotations

import pytest
from sim.planting import breaks_no_law, is_found
from swarm.explore import SKEWED, explore

from holdfast.engine.health import Health
from holdfast.protocol.claim import Claim

pytestmark = pytest.mark.stories

EACH = 3  # seeds of each kind of world


@pytest.mark.parametrize("which", range(len(SKEWED)), ids=lambda it: SKEWED[it].name)
def test_no_law_is_broken(which: int) -> None:
    seeds = range(which, EACH * len(SKEWED), len(SKEWED))
    breaks_no_law("skewed", ((it, explore(it, skewed=True)) for it in seeds))


WITHIN = 10  # worlds of each of two kinds


def test_nodes_whose_clocks_are_wrong_are_found_out_if_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is their vote refused, nor what they grant looked at."""
    monkeypatch.setattr(Health, "_judge_clocks", lambda *_: None)
    monkeypatch.setattr(Claim, "latest", lambda *_: 2**53)
    seeds = (which + turn * len(SKEWED) for turn in range(5, 5 + WITHIN) for which in (0, 1))
    is_found(("fence", "counted"), (explore(it, skewed=True) for it in seeds))
