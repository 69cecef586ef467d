"""The experiment of the lost updates, without its processes: what storage refuses, what counts as lost, and what must not be."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench import report  # noqa: E402  (after its place is known)
from bench.updates import __main__ as command  # noqa: E402 (after its place is known)
from bench.updates.experiment import AIMED, NOBODY, RANDOM, WAYS, Outcome, complaints  # noqa: E402 (after its place is known)
from bench.updates.storage import Refused, Register  # noqa: E402 (after its place is known)

FENCED, BARE, PEER = "holdfast, fence", "holdfast", "pottery"


@pytest.fixture
def register(tmp_path: Path) -> Register:
    return Register(str(tmp_path / "register"))


def test_without_a_fence_the_last_write_stands(register: Register) -> None:
    late, seen = register.read(), register.read()
    register.write([*seen, 2])
    register.write([*late, 1])
    assert register.read() == [1]


def test_a_late_write_is_refused_even_if_the_next_holder_has_only_read(register: Register) -> None:
    late = register.read(5)
    seen = register.read(6)
    with pytest.raises(Refused):
        register.write([*late, 1], 5)
    with pytest.raises(Refused):
        register.read(5)
    register.write([*seen, 2], 6)
    assert register.read(6) == [2]


def outcomes(**changes: Outcome) -> list[Outcome]:
    """As they have to be, but for these."""
    fine = [
        Outcome(way, condition, 100, refused=3, pauses=int(condition != NOBODY), lost=7 if way != FENCED and condition == AIMED else 0)
        for way in (FENCED, BARE, PEER)
        for condition in (NOBODY, RANDOM, AIMED)
    ]
    return fine + list(changes.values())


def test_every_way_has_its_row_and_its_bar() -> None:
    found = command.results([Outcome(way.name, condition, 10) for way in WAYS for condition in (NOBODY, RANDOM, AIMED)], {})
    assert [row[0] for row in command.rows(found)[1:]] == [way.name for way in WAYS]
    for drawn in command.charts(found).values():  # (with nothing lost at all)
        assert len(ElementTree.fromstring(drawn).findall("{http://www.w3.org/2000/svg}rect")) == len(WAYS)


def test_a_cell_says_what_was_lost_of_what() -> None:
    it = Outcome(BARE, AIMED, 1000, lost=25)
    assert command.rows(command.results([it, replace(it, way=PEER, error="gone")], {}))[1:] == [
        [BARE, "25 of 1,000 (2.5 %)", "0", "0"],
        [PEER, "(gone)", "0", "0"],
    ]


def test_the_page_is_what_its_results_make_it() -> None:
    page, found = (ROOT / "docs/reliability.md").read_text(), json.loads((ROOT / "docs/lost-updates/results.json").read_text())
    assert report.filled(page, lambda what: command.block(what, found)) == page  # nobody has changed a figure by hand
    assert complaints([Outcome(**it) for it in found["outcomes"]]) == []
    for name, drawn in command.charts(found).items():
        assert (ROOT / "docs/lost-updates" / name).read_text() == drawn
