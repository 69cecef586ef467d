"""Worlds of a read-write lock. More: `./task sim --shared --seeds 0..500`."""

from __future__ import annotations

import pytest
from sim.planting import breaks_no_law
from swarm.explore import SHARED, explore

pytestmark = pytest.mark.stories

EACH = 3  # seeds of each kind of world; more, until what these worlds are aimed at has happened,
MOST = 10  # but no more than these
KEPT = (5,)  # a write-back was under way when a writer began its downgrade: what it raised looked like a gap


@pytest.mark.parametrize("which", range(len(SHARED)), ids=lambda it: SHARED[it].name)
def test_no_law_is_broken(which: int) -> None:
    seeds = range(which, MOST * len(SHARED), len(SHARED))
    breaks_no_law("shared", ((it, explore(it, shared=True, quick=it not in KEPT)) for it in seeds), EACH)
