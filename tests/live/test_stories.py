"""Programs that tell a story, and judge themselves whether it went as it is told: each says so in its last line, and exits with 0."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from nemesis.processes import WITH_TESTS, ran

ROOT = Path(__file__).parents[2]
PATIENCE = 280.0  # seconds; on an idle machine none takes more than 25

pytestmark = [pytest.mark.stories, pytest.mark.timeout(PATIENCE + 30)]


class Story(NamedTuple):
    """What is run, and what it says at its end. `needs_linux`: it measures processes by /proc."""

    words: tuple[str, ...]
    last: str
    needs_linux: bool = False


STORIES = {
    "demo": Story(("-u", "examples/demo/run.py", "--quick"), "The promise held: with holdfast exactly 3 items in every round"),
    "failover": Story(("examples/failover/run.py",), "As told: two holders, then one."),
    "lost updates": Story(("-m", "bench.updates", "--quick"), "With a fence nothing is lost, whoever is stopped and when."),
    "soak": Story(("-m", "soak", "--minutes", "0.14"), "Everything is back where it was.", needs_linux=True),
    "walkthrough": Story(("examples/walkthrough.py",), "Everything happened as told."),
}


@pytest.mark.parametrize("name", STORIES)
def test_it_goes_as_it_is_told(name: str, tmp_path: Path) -> None:
    story = STORIES[name]
    if story.needs_linux and sys.platform != "linux":
        pytest.skip("processes are measured by /proc")
    status, told, wrong = ran(*story.words, within=PATIENCE, TMPDIR=str(tmp_path), PYTHONPATH=WITH_TESTS)
    assert status == 0, told + wrong
    assert told.splitlines()[-1].startswith(story.last), told
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"
    if name == "failover":
        page = (ROOT / "docs/choosing.md").read_text()
        assert without_numbers(told) in without_numbers(page), "the documentation shows something else"


def without_numbers(text: str) -> str:
    """Without fences and seconds, which differ each time."""
    return re.sub(r"\d+", "", text)


MOST = "bytes of a connection"  # in which servers differ by five times: the page tells the largest
EXACT = ("connections", "commands of an acquire")  # the rest depends on the server's allocator, or on when a renewal is due


def test_the_sizes_are_as_the_page_about_nodes_tells_them() -> None:
    measured = json.loads(ran("docs/sizes.py", "--json", within=PATIENCE)[1])
    rows = re.findall(r"^\| ([a-z ]+) \| (\d+) \|$", (ROOT / "docs/nodes.md").read_text(), re.MULTILINE)
    figures = {what: float(size) for what, size in rows}
    assert measured.keys() == figures.keys()
    for what, size in figures.items():
        if what == MOST:
            assert size / 20 < measured[what] < size * 1.3
            continue
        assert measured[what] == pytest.approx(size, rel=0.0 if what.startswith(EXACT) else 0.4), what
