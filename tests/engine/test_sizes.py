"""What a client notes of its semaphores' sizes: when, for how long, and of which difference it warns."""

from __future__ import annotations

import pytest
from proof import patches

from holdfast.core.reach import Reach
from holdfast.core.round import Round
from holdfast.engine import sizes
from holdfast.engine.sizes import Sizes
from holdfast.recipes.semaphore import Slots


def pool(permits: int = 3, name: str = "pool") -> Slots:
    return Slots(name, permits, 1, 10.0, horizon=16_000)


def due(notes: Sizes) -> list[tuple[str, int]]:
    """What is to be noted now."""
    return [(slots.label, len(slots)) for slots, _ in notes.questions()]


def test_a_size_is_noted_when_permits_are_wanted_and_again_after_a_third_of_the_time() -> None:
    notes = Sizes(30.0)
    assert due(notes) == []
    notes.wanted(pool(), 100.0)
    notes.wanted(pool(), 100.1)
    notes.wanted(pool(4, "other"), 100.1)
    slots, data = next(iter(notes.questions()))
    assert data == slots.tells(30.0)
    assert due(notes) == []
    notes.wanted(pool(), 109.9)
    assert due(notes) == []
    notes.wanted(pool(), 110.0)
    assert due(notes) == [("pool", 3)]


def test_another_size_is_noted_at_once() -> None:
    notes = Sizes(30.0)
    notes.wanted(pool(3), 100.0)
    notes.wanted(pool(4), 100.0)
    assert due(notes) == [("pool", 3), ("pool", 4)]


def remembered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Which of five semaphores are noted again, of a client that remembers two."""
    monkeypatch.setattr(sizes, "MOST", 2)
    notes = Sizes(30.0)
    for name in "abcbd":
        notes.wanted(pool(3, name), 100.0)
    due(notes)
    for name in "abcd":
        notes.wanted(pool(3, name), 101.0)
    return due(notes)


def test_a_client_does_not_remember_every_semaphore_that_a_template_has_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ("a", 3) in remembered(monkeypatch)
    patches.method(monkeypatch, Sizes, "wanted", "if len(self._noted) > MOST:", "if False:")
    assert remembered(monkeypatch) == [], "and would it remember all, this test would tell"


@pytest.mark.parametrize(
    "answers, node",
    [
        ({}, None),
        ({0: None, 1: b"3", 2: b"3"}, None),
        ({2: b"4", 1: b"3", 0: b"5"}, 0),
        ({0: b"3", 2: b"4"}, 2),
        ({0: b"no number", 1: 4, 2: b"44444"}, None),
    ],
)
def test_the_first_node_that_tells_of_another_size_is_enough(answers: dict[int, object], node: int | None) -> None:
    notes = Sizes(30.0)
    round_ = Round({}, Reach(["n0", "n1", "n2"], 1.0, 10.0, 16_000), deadline=1.0)
    round_.answers.update(answers)
    notes.asked[round_] = pool()
    found = notes.difference(round_)
    assert (None if found is None else found[0]) == node
    assert notes.asked == {}
