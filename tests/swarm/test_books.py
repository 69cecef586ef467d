"""Whatever happens in a world, the events of acquisitions and the counts of each client go together."""

from __future__ import annotations

from typing import Any

import pytest
from proof import patches
from proof.books import wrongs
from swarm.explore import explore
from swarm.stage import Stage

from holdfast.engine.engine import Engine
from holdfast.engine.recorder import Recorder

pytestmark = pytest.mark.worlds

# Worlds with faults of every kind, several names, and read-write locks.
SEEDS = [*[(seed, {"wild": True}) for seed in (0, 3, 4)], *[(seed, {"shared": True}) for seed in (1, 2)]]


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


def balance(seed: int, which: dict[str, Any]) -> None:
    """Live this world, and look through every client's books."""
    stage = listening(explore(seed, quick=True, records=False, **which))
    stage.run()
    acquired = 0
    for driver in stage.drivers:
        # A process that was killed may not have come to hand these on.
        heard = [*driver.told, *driver.engine.record.events]
        assert wrongs(heard, driver.stats()) == [], driver
        acquired += driver.stats().acquired
    assert acquired > 10


@pytest.mark.parametrize("seed, which", SEEDS)
def test_books_balance(seed: int, which: dict[str, Any]) -> None:
    balance(seed, which)


def test_a_loss_that_is_told_for_each_name_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    patches.method(monkeypatch, Recorder, "news", "want.told = state", "want.told = WAITING")
    with pytest.raises(AssertionError, match=r"went aq?h+[rd]*e+"):
        balance(*SEEDS[1])


def test_a_release_that_nobody_counts_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    patches.method(monkeypatch, Engine, "end", "self.record.ended(want, before, now)", "None")
    with pytest.raises(AssertionError, match="neither held nor over"):
        balance(*SEEDS[0])
