"""A short run of the harness: `./task nemesis gateway` is the long one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from cli.kit import Life
from serve.kills import LATE, Arena, judged


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
