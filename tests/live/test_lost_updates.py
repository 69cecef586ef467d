"""With a fence no update is lost, whoever is stopped; without one some are; and a storage that is shown no fences is found out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.stories, pytest.mark.timeout(240)]


def experiment(*options: str) -> tuple[int, str]:
    """Its exit status, and what it printed. (Two pauses just before a write, for each way to lock: 12 s on an idle machine.)"""
    command = [sys.executable, "-W", "error", "-m", "bench.updates", "--quick", *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
    return ended.returncode, ended.stdout + ended.stderr


def test_nothing_is_lost_with_a_fence_and_something_is_without() -> None:
    status, told = experiment()
    assert status == 0, told  # which also says that late writes were refused, and that without a fence something was lost
    assert told.endswith("With a fence nothing is lost, whoever is stopped and when.\n"), told
