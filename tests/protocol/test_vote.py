"""One node's vote, where no conversation shows it (`tests/protocol/claim`): what is forgotten with a grant, and its short ways."""

from __future__ import annotations

import copy
from math import inf
from typing import Any

import pytest

from holdfast.protocol.answer import Granted
from holdfast.protocol.vote import Vote

T = 1_700_000_000_000_000
NO_GRANT = {"granted": False, "fence": 0, "lower": False, "bound": 0.0, "wrote": 0, "denied": False}


def fields(vote: Vote) -> dict[str, Any]:
    return {name: getattr(vote, name) for name in Vote.__annotations__ if name != "base"}


def changed(vote: Vote, before: dict[str, Any]) -> dict[str, Any]:
    """What is other than before."""
    return {name: value for name, value in fields(vote).items() if value != before[name]}


@pytest.fixture
def vote() -> Vote:
    """One that has answered the first request, which was sent at 1, by a grant, and counts until 9.9."""
    vote = Vote()
    vote.asked()
    vote.heard()
    vote.answered(1.0, 9.9)
    vote.grants(Granted(T, False, True), True, 1.5)
    return vote


def test_an_error_moves_no_bound(vote: Vote) -> None:
    """Rule C4."""
    before, error = fields(vote), Exception("OOM")
    vote.failed(error)
    assert changed(vote, before) == {"error": error}
    vote.relents()
    assert vote.error is None


# ---------------------------------------------------------------- grants


def test_a_renewal_does_not_shorten_what_was_granted(vote: Vote) -> None:
    vote.answered(2.0, 5.0)
    assert vote.grants(Granted(T, True, False), False, 2.5) is False
    assert (vote.bound, vote.last, vote.lower) == (9.9, 2.0, True)
    vote.answered(3.0, 12.0)
    assert vote.grants(Granted(T, False, False), False, 3.5) is False
    assert (vote.bound, vote.last, vote.lower) == (12.0, 3.0, False)


@pytest.mark.parametrize("base", [5.0, 12.0], ids=["a shorter lease", "a longer lease"])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("error", [None, Exception("OOM")])
def test_the_usual_answer_to_a_renewal_says_the_same_in_one_step(vote: Vote, base: float, lower: bool, error: Exception | None) -> None:
    vote.lower = lower
    vote.error = error
    vote.unheard = True
    twin = copy.copy(vote)
    twin.answered(2.0, base)
    twin.grants(Granted(T, False, False), False, 2.5)
    assert vote.keeps(T, 2.0, base)
    assert fields(vote) == fields(twin)
    assert not vote.unheard


def test_what_was_only_counted_is_taken_over() -> None:
    vote = Vote()
    vote.asked()
    vote.granted_as_usual(T, 9.9, 1.0)
    other = Vote()
    other.answered(1.0, 9.9)
    other.grants(Granted(T, False, True), True, -inf)
    assert fields(vote) == fields(other)
    assert vote.base == other.base


# ---------------------------------------------------------------- no grant


def test_a_fence_that_no_clock_allows_takes_the_vote_away(vote: Vote) -> None:
    """Rule F5."""
    error = Exception("ahead")
    vote.written_to(T + 5)
    vote.refused(error)
    found = fields(vote)
    assert {name: found[name] for name in NO_GRANT} == NO_GRANT
    assert (vote.since, vote.error) == (inf, error)


# ---------------------------------------------------------------- ceding


def test_nothing_counts_from_a_cede_to_its_answer(vote: Vote) -> None:
    """Rule Q9."""
    vote.inquires()
    vote.written_to(T + 5)
    vote.cedes()
    found = fields(vote)
    assert {name: found[name] for name in NO_GRANT} == NO_GRANT
    assert (vote.ceding, vote.since, vote.last) == (True, inf, -inf)
    assert vote.against
    vote.answered(2.0, 10.9)
    assert not vote.ceding


def test_a_burnt_node_never_counts_again(vote: Vote) -> None:
    """Rule Q10."""
    before = fields(vote)
    vote.burns()
    assert changed(vote, before) == {"burnt": True, "granted": False, "since": inf}


# ---------------------------------------------------------------- connections


def test_what_a_broken_connection_granted_counts_on(vote: Vote) -> None:
    """Rule C11."""
    vote.asked()
    vote.expects_expiry(500, 2.0)
    vote.watches(b"value")
    vote.written_to(T + 5)
    vote.failed(Exception("OOM"))
    before = fields(vote)
    vote.disconnected()
    assert changed(vote, before) == {
        "owed": 0, "unheard": True, "sent": -inf, "wrote": 0, "expiry": inf, "error": None, "watched": None,
    }  # fmt: skip
    assert vote.counts(9.0)


def test_what_a_broken_connection_owed_may_have_been_granted() -> None:
    """Rule C13: so the next grant is not the first."""
    vote = Vote()
    vote.disconnected()
    assert vote.last == -inf
    vote.asked()
    vote.disconnected()
    assert vote.last == 0.0


# ---------------------------------------------------------------- holders


def test_a_writer_that_turns_reader() -> None:
    """Rule D2: what was asked for the writer is not listened to."""
    vote = Vote()
    vote.asked()
    vote.turned_reader()
    assert (vote.owed, vote.fence) == (0, 0)
    vote.answered(1.0, 9.9)
    vote.grants(Granted(T, False, True), True, 1.5)
    vote.asked()
    vote.turned_reader()
    assert (vote.owed, vote.fence) == (0, T + 1)
