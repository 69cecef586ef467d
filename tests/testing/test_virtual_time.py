"""A simulated history does not depend on the machine's time, even if every look at a clock is an hour later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "virtual_time.py"


def history(*arguments: str) -> tuple[int, str, str]:
    """How a run of the program ends, what it tells, and what it complains of."""
    command = [sys.executable, str(PROGRAM), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_history_is_the_same_whatever_the_machines_clocks_say() -> None:
    code, told, wrong = history("whole")
    assert code == 0, wrong
    for what in ("Acquired", "Doubt", "lost", "discarded", "Forced", "Opened", "NoQuorum", "Found(", "Allowance("):
        assert what in told, "the story no longer has this, so the test cannot see which clock it looks at"
    code, other, wrong = history("broken")
    assert code == 0, wrong
    assert other == told


def test_another_clock_tells_another_history() -> None:
    """That holdfast has not looked is not all: what it tells would be otherwise, too."""
    fault = ("holdfast.primitives.fill.plan:InMapping", "look", "(yield Do(lambda it: it.wall()))", "__import__('time').time()")
    assert history("whole", *fault)[1] != history("whole")[1]
