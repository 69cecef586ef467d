"""What the page about nodes says that a node has to bear is what it bears."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from nemesis.processes import ran

pytestmark = pytest.mark.stories

ROOT = Path(__file__).parents[2]
MOST = "bytes of a connection"  # in which servers differ by five times: the page tells the largest
EXACT = ("connections", "commands of an acquire")  # the rest depends on the server's allocator, or on when a renewal is due


def told(page: str) -> dict[str, float]:
    """The table's figures."""
    return {what: float(size) for what, size in re.findall(r"^\| ([a-z ]+) \| (\d+) \|$", page, re.MULTILINE)}


@pytest.mark.timeout(180)
def test_the_sizes_are_as_the_page_about_nodes_tells_them() -> None:
    measured = json.loads(ran("docs/sizes.py", "--json", within=150)[1])
    figures = told((ROOT / "docs/nodes.md").read_text())
    assert measured.keys() == figures.keys()
    for what, size in figures.items():
        if what == MOST:
            assert size / 20 < measured[what] < size * 1.3
            continue
        assert measured[what] == pytest.approx(size, rel=0.0 if what.startswith(EXACT) else 0.4), what
