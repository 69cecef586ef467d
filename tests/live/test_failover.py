"""The failover race ends as it is told, and the example notices when it does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nemesis.processes import ran

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(180)


def test_two_holders_after_a_failover_and_one_on_independent_masters() -> None:
    status, told, _ = ran(ROOT / "examples/failover/run.py", within=150)
    assert status == 0, told
    assert "the replica has not heard of the lock" in told
    assert told.count("TWO HOLDERS") == 1
    assert told.count("ONE HOLDER AT A TIME") == 1
    assert without_fences(told) in without_fences((ROOT / "docs/choosing.md").read_text()), "the documentation shows something else"
    assert told.index("TWO HOLDERS") < told.index("Three independent masters") < told.index("ONE HOLDER AT A TIME")


def without_fences(text: str) -> str:
    return re.sub(r"fence \d+", "fence", text)
