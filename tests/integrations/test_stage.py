"""What finds overlaps finds them."""

from __future__ import annotations

import pytest
from integrations.stage import Entry, overlaps

pytestmark = pytest.mark.slow


def record(*lines: str) -> list[Entry]:
    return [Entry(float(at), 1, line.split()) for at, line in enumerate(lines)]


def test_an_overlap_is_found() -> None:
    found = overlaps(record("enter a", "enter a", "leave a", "leave a"))
    assert [(before.at, after.at) for before, after in found] == [(0.0, 1.0)]


def test_the_section_of_a_killed_process_ends_there() -> None:
    entries = [Entry(1.0, 7, ["enter", "a"]), Entry(3.0, 8, ["enter", "a"]), Entry(4.0, 8, ["leave", "a"])]
    assert overlaps(entries, {7: 2.0}) == []
    assert len(overlaps(entries, {7: 3.5})) == 1, "the next one came before"
    assert len(overlaps(entries, {8: 2.0})) == 1, "another process was killed"
