"""A short soak ends as it began."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from nemesis.processes import WITH_TESTS, ran

pytestmark = [
    pytest.mark.stories,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are measured by /proc"),
]


def test_everything_is_back_where_it_was(tmp_path: Path) -> None:
    """On an idle machine it takes 20 s."""
    file = tmp_path / "found.json"
    status, *told = ran("-m", "soak", "--minutes", "0.14", "--json", file, within=280, PYTHONPATH=WITH_TESTS)
    assert status == 0, told
    found = json.loads(file.read_text())
    assert found["complaints"] == []
    assert found["names"] > 1000, told
    assert found["faults"]["nodes killed"] >= 2, told
    assert found["faults"]["workers killed"] >= 2, told
