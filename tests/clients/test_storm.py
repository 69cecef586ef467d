"""Clients in two languages hold one lock in turn, whatever is killed and stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients.storm import LANGUAGES, Storm, planted

from holdfast.embedded import Nodes
from holdfast.testing.windows import fences_back, overlaps

SECTIONS = 200
HARMS = 20


@pytest.fixture
def servers() -> Iterator[Nodes]:
    with Nodes(5, tcp=True) as nodes:
        yield nodes


def test_two_languages_hold_one_lock_in_turn(servers: Nodes, tmp_path: Path) -> None:
    storm = Storm(servers, tmp_path)
    harms = [storm.kills_a_process, storm.stops_a_process, storm.kills_a_node, storm.freezes_a_node, storm.rests]
    storm.rages(90, harms, enough=lambda: storm.harmed >= HARMS and len(storm.windows()) >= SECTIONS)
    windows = storm.windows()
    assert list(overlaps(windows)) == []
    assert list(fences_back(windows)) == []
    shares = Counter(it.token.partition("-")[0] for it in windows)
    print(f"{shares} sections, {storm.harmed} harms, 0 overlaps")
    assert len(windows) >= SECTIONS
    for language in LANGUAGES:
        assert shares[language] >= len(windows) / 10, shares


PLANTS = {
    "the prefix is left out": ("index.js", "this.prefix + name", "name"),
    "a grant is good from the arrival of its answer": (
        "claim.js",
        "const bound = vote.sent + ttl",
        "const bound = performance.now() + ttl",
    ),
}


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_the_storm_finds(plant: tuple[str, str, str], servers: Nodes, tmp_path: Path) -> None:
    storm = Storm(servers, tmp_path, client=planted(tmp_path, plant))
    storm.rages(40, [lambda: storm.stops_a_process("node")], enough=lambda: any(overlaps(storm.windows())))
    assert any(overlaps(storm.windows()))
