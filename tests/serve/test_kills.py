"""A short run of the harness: `./task nemesis gateway` is the long one."""

from __future__ import annotations

import random
from pathlib import Path

from serve.kills import Arena, judged


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
