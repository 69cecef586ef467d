"""The figures of the page that compares are those that the bench measured, rounded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.guards

DOCS = Path(__file__).parents[1] / "docs"
# Contenders that the bench calls otherwise than the page does.
CONTENDERS = {"redis-py `Lock`": "redis-py Lock", "redis-py, five locks in turn": "redis-py in turn"}
# Each table, by its heading row, and where the figures of its columns are: scenario, case, measure
# and by how much the measure is divided.
TABLES = {
    "| | 1 node | 5 nodes |": [
        ("pair", "pair, 1 node", "p50", 1.0),
        ("pair", "pair, 5 nodes", "p50", 1.0),
    ],
    "| | Time from a release": [
        ("handover", "64 waiters in four", "p50", 1000.0),
        ("handover", "64 waiters in four", "rate", 1.0),
        ("handover", "64 waiters in four", "longest", 1.0),
    ],
    "| | Median |": [("faults", "one node frozen", "p50", 1000.0)],
}


@pytest.mark.parametrize("heading", TABLES)
def test_figures_are_those_that_were_measured(heading: str) -> None:
    """To the digits that they show."""
    page, measured = (DOCS / "compared.md").read_text(), json.loads((DOCS / "performance.json").read_text())["scenarios"]
    rows = page[page.index(heading) :].partition("\n\n")[0].splitlines()[2:]
    for name, *cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in rows):
        for cell, (scenario, case, measure, unit) in zip(cells, TABLES[heading], strict=True):
            figures = measured[scenario]["figures"][case].get(CONTENDERS.get(name, name))
            shown = "" if cell.startswith("not done") else re.sub(r"[^0-9.]", "", cell)
            digits = len(shown.partition(".")[2])
            assert shown == (f"{figures[measure][0] / unit:.{digits}f}" if figures else ""), f"{name}: {cell}"
