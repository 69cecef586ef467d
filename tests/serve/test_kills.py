"""A short run of the harness, and the faults that it must find: `./task serve-kills` is the long one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from cli.kit import Life
from serve import kills
from serve.kills import FAULTS, LATE, PLANTED, Arena, campaign, judged, planted


def test_nobody_overlaps(tmp_path: Path) -> None:
    arena = Arena(tmp_path)
    chance = random.Random(11)
    try:
        for fault in ("gateway killed", "balancer restarted", "client killed"):
            arena.harm(fault, chance)
    finally:
        arena.close()
    found = judged(arena.lives(), False)
    assert found[0] >= 4
    assert found[1] == 0, found


def test_a_gateway_that_releases_at_its_end_is_found(tmp_path: Path) -> None:
    name = "a gateway releases at its end"
    source, clients = planted(tmp_path, name)
    found = campaign(tmp_path, [PLANTED[name][3]], 3, 11, source, clients)
    # Its client asks soon, and then ends its command. So an overlap may be as short as one on a busy machine.
    assert sum(found[PLANTED[name][3]][1:]) > 0


@pytest.mark.parametrize("stopped,lasted,fences,expected", [
    (False, -1.0, (1, 2), (0, 0)),
    (False, 1.0, (1, 2), (1, 0)),
    (False, LATE / 2, (1, 2), (0, 1)),
    (True, 1.0, (1, 2), (0, 1)),
    (True, 1.0, (2, 1), (1, 0)),
])
def test_what_counts(stopped: bool, lasted: float, fences: tuple[int, int], expected: tuple[int, int]) -> None:
    lives = [Life(100.0, 110.0 + lasted, fences[0]), Life(110.0, 120.0, fences[1])]
    assert judged(lives, stopped)[1:] == expected


def test_every_plant_names_a_fault() -> None:
    assert {it[3] for it in PLANTED.values()} <= set(FAULTS)
    assert set(FAULTS) >= kills.STOPPED
