"""Clients in three languages hold one lock in turn, whatever is killed and stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients.storm import LANGUAGES, LEVEL_1, Storm, planted

from holdfast.embedded import Nodes
from holdfast.testing.windows import fences_back, overlaps

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


# How many sections are long, so that somebody holds the lock when the harm is done.
LONG = {"rests": 0.1, "stops_a_process": 0.1, "restarts_a_majority": 0.6}
# What is wrong, in which file, and the harm that shows it.
NODE = {
    "the prefix is left out": (("index.js", "this.prefix + name", "name"), "rests"),
    "a grant is good from the arrival of its answer": (
        ("claim.js", "vote.base = request.good", "vote.base = performance.now() + request.good - request.sent"),
        "stops_a_process",
    ),
    "there is no guard": (("node.js", "this.wake = this.guard.meets(", "this.wake = -this.guard.meets("), "restarts_a_majority"),
}
ONE = {
    "there is no guard": (("return self.guard.meets(", "return -self.guard.meets("), "restarts_a_majority"),
}


@pytest.mark.parametrize("plant, harm", NODE.values(), ids=NODE)
def test_the_storm_finds_a_fault_of_the_client_for_node(plant: tuple[str, str, str], harm: str, servers: Nodes, tmp_path: Path) -> None:
    found(Storm(servers, tmp_path, client=planted(tmp_path, plant), long=LONG[harm]), "node", harm)


@pytest.mark.parametrize("plant, harm", ONE.values(), ids=ONE)
def test_the_storm_finds_a_fault_of_level_1(plant: tuple[str, str], harm: str, servers: Nodes, tmp_path: Path) -> None:
    text = LEVEL_1.read_text()
    assert plant[0] in text
    copy = tmp_path / "clients/level1/level1.py"
    copy.parent.mkdir(parents=True)
    copy.write_text(text.replace(*plant).replace("Path(__file__).parent.parent.parent", f"Path({str(LEVEL_1.parent.parent.parent)!r})"))
    found(Storm(servers, tmp_path, level1=copy, long=LONG[harm]), "level1", harm)


def found(storm: Storm, language: str, harm: str) -> None:
    """Two believe that they hold the lock, or fences go back."""
    harms = {"stops_a_process": lambda: storm.stops_a_process(language)}.get(harm, getattr(storm, harm))
    storm.rages(60, [harms], enough=lambda: any(overlaps(storm.windows())))
    assert any(overlaps(storm.windows()))
