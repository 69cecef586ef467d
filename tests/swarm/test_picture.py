"""A world as a picture: what happened is on it, where it happened, and nothing that did not."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter

import pytest
from swarm.campaign import Outcome, live
from swarm.explore import explore
from swarm.picture import KINDS, holds, picture, troubles, window
from swarm.stage import Stage

from holdfast.testing.network import Node
from holdfast.testing.timeline import kind_of, said
from holdfast.testing.world import World

pytestmark = pytest.mark.worlds

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def lived() -> tuple[Stage, Outcome]:
    """A world with restarts, waiters and cedes."""
    stage = explore(2)
    return stage, live(stage)


def titles(drawing: str) -> list[str]:
    return [it.text or "" for it in ET.fromstring(drawing).iter(f"{SVG}title")]


def test_holds_are_as_many_as_were_seen(lived: tuple[Stage, Outcome]) -> None:
    stage, outcome = lived
    found = list(holds(stage.world))
    assert len(found) >= outcome.seen["held"]
    assert all(it.begins <= it.ends for it in found)
    fences = [int(it.text.split()[1]) for it in sorted(found, key=lambda it: it.begins)]
    assert fences == sorted(set(fences))


def test_everything_that_was_sent_in_a_window_is_drawn(lived: tuple[Stage, Outcome]) -> None:
    stage, outcome = lived
    begins = 2.0
    ends = 2.5
    drawing = picture(stage, outcome, begins, ends)
    sent = [
        it
        for it in stage.world.flights
        if begins <= (it.leaves if it.lands is None else it.lands) and it.leaves <= ends
    ]
    assert len(sent) > 20
    # The title of a fault can name both as well, but begins with its moment.
    lines = [it.partition(": ")[0] for it in titles(drawing) if it.startswith(("client ", "node ")) and " to " in it]
    assert Counter(lines) == Counter(f"{it.sender} to {it.receiver}" for it in sent)
    assert "never arrived" in drawing
    assert drawing.count("<svg") == 1
    root = ET.fromstring(drawing)
    wide = int(root.attrib["width"])
    high = int(root.attrib["height"])
    for line in root.iter(f"{SVG}line"):
        assert all(
            0 <= float(line.attrib[it]) <= most for it, most in (("x1", wide), ("x2", wide), ("y1", high), ("y2", high))
        )


def test_all_kinds_of_words_are_told_apart(lived: tuple[Stage, Outcome]) -> None:
    stage, _ = lived
    kinds = {(isinstance(it.sender, Node), kind_of(it)) for it in stage.world.flights}
    assert kinds == {(False, it) for it in ("ask", "make", "give", "other")} | {
        (True, it) for it in ("yes", "no", "push", "other")
    }
    assert {kind for _, kind in kinds} == KINDS.keys()
    # A renewal is a request as well.
    renewals = [it for it in stage.world.flights if any(words.startswith("keep ") for words in said(it.data))]
    assert renewals
    assert {kind_of(it) for it in renewals} <= {"ask", "make"}


def test_faults_are_marked(lived: tuple[Stage, Outcome]) -> None:
    stage, outcome = lived
    found = list(troubles(stage.world))
    assert any("breaks" in it.title for it in found)
    assert any(it.kind == "down" and it.ends > it.begins for it in found)
    when = next(it.begins for it in found if "breaks" in it.title)
    assert any("breaks" in it for it in titles(picture(stage, outcome, when - 0.1, when + 0.1)))


def test_a_violation_is_marked_at_the_end_of_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.protocol.quorum.majority", lambda nodes: 1)
    stage = explore(2)
    outcome = live(stage)
    begins, ends = window(stage.world, failed=True)
    assert ends == outcome.seconds
    drawing = picture(stage, outcome, begins, ends)
    assert "majority, at" in drawing
    assert 'class="broken"' in drawing
    assert window(World(0), failed=False) == (0.0, 0.0)
