"""Worlds in which replicas are promoted and old primaries go on, and what they find. More: `./task sim --promoted --seeds 0..300`."""

from __future__ import annotations

import pytest
from sim.planting import HOLDS, breaks_no_law, is_found
from swarm.explore import PROMOTED, explore

from holdfast.wire import connection as connection

pytestmark = pytest.mark.worlds

EACH = 3  # seeds of each kind of world


@pytest.mark.parametrize("which", range(len(PROMOTED)), ids=lambda it: PROMOTED[it].name)
def test_no_law_is_broken(which: int) -> None:
    seeds = range(which, EACH * len(PROMOTED), len(PROMOTED))
    breaks_no_law("promoted", ((it, explore(it, promoted=True)) for it in seeds))


def test_a_bound_that_is_too_short_is_found() -> None:
    """Addresses say that old primaries stop at once, which they do not."""
    is_found(HOLDS, (explore(seed, promoted=True, failover=0.0) for seed in range(0, 5 * len(PROMOTED), len(PROMOTED))))
