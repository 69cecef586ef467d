"""A short run of the harness: `./task nemesis gateway` is the long one."""

from __future__ import annotations

from pathlib import Path

from nemesis.arena import judged
from serve.kills import Arena


def test_nobody_overlaps(tmp_path: Path) -> None:
    arena = Arena(tmp_path, seed="11")
    try:
        for fault in ("gateway killed", "gateway drained", "balancer restarted", "client killed"):
            arena.harm(fault)
    finally:
        arena.close()
    found = judged([*arena.lives()], late=Arena.late)
    assert found.lives >= 4
    assert found.overlaps == 0, arena.lives()
