"""The figures of the page that compares are those that the bench measured, rounded."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.guards

DOCS = Path(__file__).parents[1] / "docs"
# Each row's name on the page, and the contender of the bench.
CONTENDERS = {
    "holdfast": "holdfast",
    "redis-py `Lock`": "redis-py Lock",
    "redis-py, five locks in turn": "redis-py in turn",
    "pottery": "pottery",
    "redlock-py": "redlock-py",
    "redlock-ng": "redlock-ng",
    "python-redis-lock": "python-redis-lock",
}
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


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of a table, without its heading and its rule."""
    table = page[page.index(heading) :].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def wrong(page: str, measured: dict[str, Any]) -> list[str]:
    """The cells that are not what was measured, to the digits that they show."""
    found = []
    for heading, columns in TABLES.items():
        for name, *cells in rows(page, heading):
            if name not in CONTENDERS:
                continue
            for cell, (scenario, case, measure, unit) in zip(cells, columns, strict=True):
                figures = measured[scenario]["figures"][case].get(CONTENDERS[name])
                shown = re.sub(r"[^0-9.]", "", cell)
                if not shown:
                    if figures is not None:
                        found.append(f"{heading} {name}: {cell!r}, and it was measured")
                    continue
                digits = len(shown.partition(".")[2])
                if figures is None or round(figures[measure][0] / unit, digits) != float(shown):
                    found.append(f"{heading} {name}: {cell!r}, not {figures and figures[measure][0] / unit}")
    return found


@pytest.fixture
def page() -> str:
    return (DOCS / "compared.md").read_text()


@pytest.fixture
def measured() -> dict[str, Any]:
    scenarios: dict[str, Any] = json.loads((DOCS / "performance.json").read_text())["scenarios"]
    return scenarios


def test_figures_are_those_that_were_measured(page: str, measured: dict[str, Any]) -> None:
    assert wrong(page, measured) == []
