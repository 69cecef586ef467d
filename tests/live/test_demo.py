"""The demonstration keeps its promise, notices when it is broken, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from nemesis.processes import ran

PATIENCE = 150.0  # seconds; on an idle machine it takes 17

pytestmark = [pytest.mark.stories, pytest.mark.timeout(PATIENCE + 30)]


def cells(output: str, title: str) -> list[str]:
    """The table's row with this title."""
    rows = [line for line in output.splitlines() if line.startswith(title) and ":" not in line]
    assert len(rows) == 1, output
    return [cell for cell in rows[0].split("  ") if cell]


def test_the_promise_holds(tmp_path: Path) -> None:
    status, output, wrong = ran("-u", "examples/demo/run.py", "--quick", within=PATIENCE, TMPDIR=str(tmp_path))
    assert (status, wrong) == (0, ""), output + wrong
    assert output.splitlines()[-1].startswith("The promise held: "), output
    assert output.count("\n201 - {") == 3, output
    assert output.count("\n400 - {") == 2, output
    exact, bare, single, quorum = (cells(output, title) for title in ("1. five", "2. no lock", "3. SET NX", "4. holdfast"))
    assert [it.strip() for it in exact[1:4]] == ["as promised", "5", "3 (3)"]
    assert [it.strip() for it in quorum[1:4]] == ["as promised", "75", "9 (9)"]
    assert "killed" in quorum[-1]
    assert "frozen" in quorum[-1]
    for wrong in (bare, single):
        assert wrong[1].strip().startswith("too many in "), output
        assert int(wrong[3].split()[0]) > 9, output
    assert "killed" in single[-1]
    assert list(tmp_path.iterdir()) == []
