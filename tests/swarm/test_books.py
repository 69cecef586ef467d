"""Whatever happens in a world, the events of acquisitions and the counts of each client go together."""

from __future__ import annotations

from typing import Any

import pytest
from proof.books import wrongs
from swarm.explore import explore
from swarm.stage import Stage

pytestmark = pytest.mark.worlds

# Worlds with faults of every kind, several names, and read-write locks.
SEEDS = [(0, "swarm"), (3, "swarm"), (4, "swarm"), (1, "shared"), (2, "shared")]


def listening(stage: Stage) -> Stage:
    """The same world, in which every client has an observer."""
    client = stage.client

    def another(haste: float = 0.0) -> Any:
        driver = client(haste)
        driver.engine.record.telling = True
        return driver

    stage.client = another  # type: ignore[method-assign]  # (a fake in its place)
    for driver in stage.drivers:
        driver.engine.record.telling = True
    return stage


@pytest.mark.parametrize("seed, kind", SEEDS)
def test_books_balance(seed: int, kind: str) -> None:
    stage = listening(explore(seed, kind=kind, quick=True, records=False))
    stage.run()
    acquired = 0
    for driver in stage.drivers:
        # A process that was killed may not have come to hand these on.
        heard = [*stage.told[driver], *driver.engine.record.events]
        assert wrongs(heard, driver.driver.stats()) == [], driver
        acquired += driver.driver.stats().acquired
    assert acquired > 10
