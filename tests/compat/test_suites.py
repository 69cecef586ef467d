"""The harness notices what it is there for: lists that are not true any more, and sections that overlap."""

from __future__ import annotations

from compat.foreign import Outcome, complaints, overlapping
from compat.suites import PATCHED, SUITES, Suite
from compat.suites import complaints as of_a_suite

SUITE = Suite("redis", "tests/test_lock.py", 2, 3, different={"T::odd": PATCHED})


def test_a_suite_that_is_as_it_is_listed_is_fine() -> None:
    assert of_a_suite(SUITE, {"T::a": True, "T::b[1]": True, "T::b[2]": True, "T::odd": False}) == []


def test_few_tests_are_listed() -> None:
    assert sum(len(it.different) for it in SUITES.values()) <= 23


def test_sections_that_overlap_are_counted() -> None:
    assert overlapping([(0, 10), (10, 20), (30, 40)]) == 0
    assert overlapping([(30, 40), (0, 35), (5, 6)]) == 2


def test_a_storm_in_which_somebody_starves_or_overlaps_is_complained_about() -> None:
    assert complaints("it", Outcome(100, {"ours": 50, "it": 50}, 0)) == []
    assert complaints("it", Outcome(100, {"ours": 50, "it": 50}, 1))
    assert complaints("it", Outcome(100, {"ours": 5, "it": 95}, 0))
    assert complaints("it", Outcome(100, {"ours": 95, "it": 5}, 0))
    assert complaints("it", Outcome(0, {"ours": 0}, 0))
