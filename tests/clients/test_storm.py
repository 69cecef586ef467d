"""Clients in three languages hold one lock in turn, whatever is killed and stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients.storm import LANGUAGES, Storm
from windows import fences_back, overlaps

from holdfast.embedded import Nodes

SECTIONS = 200
HARMS = 20


@pytest.fixture
def servers() -> Iterator[Nodes]:
    with Nodes(5, tcp=True) as nodes:
        yield nodes


def test_three_languages_hold_one_lock_in_turn(servers: Nodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storm = Storm(servers, tmp_path)
    harms = [storm.kills_a_process, storm.stops_a_process, storm.kills_a_node, storm.freezes_a_node, storm.restarts_a_majority, storm.rests]
    storm.rages(120, harms, enough=lambda: storm.harmed >= HARMS and len(storm.windows()) >= SECTIONS)
    windows = storm.windows()
    shares = Counter(it.token.partition("-")[0] for it in windows)
    register = storm.register
    with capsys.disabled():
        print(
            f"\nstorm: {len(windows)} sections ({shares['python']} of Python, {shares['node']} of Node, {shares['level1']} of level 1), "
            f"{storm.harmed} faults, {len(list(overlaps(windows)))} overlaps, {register.lost} lost updates of {register.written} "
            f"({register.refused} refused)"
        )
    assert list(overlaps(windows)) == []
    assert list(fences_back(windows)) == []
    assert register.lost == 0
    assert len(windows) >= SECTIONS
    assert register.written >= SECTIONS / 2
    for language in LANGUAGES:
        # Who only polls gets the lock when nobody waits.
        assert shares[language] >= len(windows) / (50 if language == "level1" else 10), shares
