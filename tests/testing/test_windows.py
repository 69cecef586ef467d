"""What may not be true of two windows, and what may."""

from __future__ import annotations

import random
from math import inf

import pytest
from windows import fences_back, overlaps

from holdfast.testing.windows import Fences, HeldWindow


def pairs(found: object) -> list[str]:
    return [earlier.token + later.token for earlier, later in found]  # type: ignore[attr-defined]  # (events with tokens)


@pytest.mark.parametrize(
    "begins, ends, meets",
    [(0.0, 1.0, False), (1.0, 3.0, True), (1.9, 5.0, True), (2.0, 3.0, False), (2.1, inf, False)],
    ids=["over when the other begins", "at the same moment", "just before its end", "at its end", "after it"],
)
def test_two_holders(begins: float, ends: float, meets: bool) -> None:
    one, two = HeldWindow("a", "1", 1, 1.0, 2.0), HeldWindow("a", "2", 2, begins, ends)
    assert pairs(overlaps([one, two])) == (["12"] if meets else [])
    assert pairs(overlaps([one, HeldWindow("b", "2", 2, begins, ends)])) == [], "another name"


def test_a_window_that_is_empty_meets_nobody() -> None:
    """It was over before its client learnt that it had begun."""
    assert pairs(overlaps([HeldWindow("a", "1", 1, 1.0, 0.5), HeldWindow("a", "2", 2, 1.0, 2.0), HeldWindow("a", "3", 3, 2.0, 2.0)])) == []


def test_the_sweep_finds_what_looking_at_all_pairs_finds() -> None:
    dice = random.Random(5)
    for _ in range(200):
        windows = [HeldWindow(dice.choice("ab"), str(i), i, begins := dice.random(), begins + dice.random() / 4) for i in range(12)]
        order = sorted(windows, key=lambda it: it.begins)
        slow = [(one, two) for i, two in enumerate(order) for one in order[:i] if two.within(one)]
        assert set(overlaps(windows)) == set(slow)


def test_fences_grow_with_every_holder_of_a_name() -> None:
    history = [("a", 5), ("b", 5), ("a", 6), ("a", 6), ("a", 4)]
    windows = [HeldWindow(name, str(number), fence, float(number)) for number, (name, fence) in enumerate(history, 1)]
    assert pairs(fences_back(reversed(windows))) == ["34", "35"]
    assert pairs(fences_back(windows[:3])) == []


def test_readers_hold_it_together_and_nobody_else() -> None:
    read, other = HeldWindow("a", "1", 1, 1.0, 2.0, shared=True), HeldWindow("a", "2", 2, 1.5, 2.5, shared=True)
    write = HeldWindow("a", "3", 3, 1.7, 3.0)
    assert pairs(overlaps([read, other])) == []
    assert pairs(overlaps([read, other, write])) == ["13", "23"]
    late = HeldWindow("a", "4", 4, 2.9, 4.0, shared=True)
    assert pairs(overlaps([write, late])) == ["34"]


def test_a_readers_fence_is_above_writers_and_a_writers_above_all() -> None:
    """Two readers may have the same one, or a later one a lower one."""
    history = [(5, False), (6, True), (6, True), (8, True), (7, True), (8, False), (9, False), (9, True), (10, True), (10, False)]
    windows = [HeldWindow("a", str(number), fence, float(number), shared=shared) for number, (fence, shared) in enumerate(history)]
    assert pairs(fences_back(windows)) == ["35", "67", "89"]


def test_a_fence_that_a_downgrade_has_raised_counts() -> None:
    fences = Fences()
    assert fences.passed(HeldWindow("a", "w", 5, 0.0)) is None
    fences.note(HeldWindow("a", "r", 6, 0.0, shared=True))
    fences.note(HeldWindow("a", "r", 6, 0.0, shared=True))
    assert fences.passed(HeldWindow("a", "x", 6, 1.0, shared=True)) is None
    assert fences.passed(HeldWindow("a", "y", 6, 2.0)) is not None
    assert fences.passed(HeldWindow("a", "z", 7, 2.0)) is None
