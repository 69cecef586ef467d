"""One node's vote: each thing that can happen to it, by the rule that says so."""

from __future__ import annotations

import copy
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from holdfast.protocol.answer import LASTING, NO_KEY, Denied, Granted
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


def test_at_first_nothing_is_known() -> None:
    vote = Vote()
    assert fields(vote) == {
        "granted": False, "fence": 0, "bound": -inf, "lower": False, "owed": 0, "unheard": False, "wrote": 0,
        "ceding": False, "burnt": False, "sent": -inf, "last": -inf, "since": inf, "denied": False, "holder": None,
        "left": NO_KEY, "told": 0.0, "expiry": inf, "watched": None, "error": None,
    }  # fmt: skip
    assert not vote.counts(-1.0)
    assert not vote.covers(0.0, -1.0)
    assert not vote.against
    assert not vote.no_lock


# ---------------------------------------------------------------- what is under way


def test_a_node_owes_what_it_was_asked() -> None:
    vote = Vote()
    vote.asked()
    vote.asked()
    assert vote.owed == 2
    vote.heard()
    assert vote.owed == 1


def test_an_error_moves_no_bound(vote: Vote) -> None:
    """Rule C4."""
    before, error = fields(vote), Exception("OOM")
    vote.failed(error)
    assert changed(vote, before) == {"error": error}
    vote.answered(2.0, 10.9)
    assert (vote.error, vote.sent, vote.base, vote.bound) == (None, 2.0, 10.9, 9.9)
    vote.failed(error)
    vote.relents()
    assert vote.error is None


def test_a_fence_is_written_back_once(vote: Vote) -> None:
    """Rule F9."""
    before = fields(vote)
    vote.written_to(T + 5)
    assert changed(vote, before) == {"wrote": T + 5}


# ---------------------------------------------------------------- grants


def test_a_grant_counts_until_its_bound(vote: Vote) -> None:
    """Rule C2."""
    assert vote.counts(9.89)
    assert not vote.counts(9.9)
    assert (vote.granted, vote.fence, vote.lower, vote.bound, vote.last) == (True, T, False, 9.9, 1.0)


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


@pytest.mark.parametrize(
    "unusual",
    [
        lambda vote: vote.lapses(),
        lambda vote: vote.cedes(),
        lambda vote: vote.burns(),
        lambda vote: vote.taken(),
    ],
    ids=["its bound has passed", "it was ceded", "it is burnt", "an operator took it"],
)
def test_what_is_not_usual_is_read_in_full(vote: Vote, unusual: Callable[[Vote], object]) -> None:
    unusual(vote)
    before = fields(vote)
    assert not vote.keeps(T, 2.0, 12.0)
    assert fields(vote) == before


@pytest.mark.parametrize("fence", [T - 1, T + 1])
def test_another_fence_is_not_usual(vote: Vote, fence: int) -> None:
    before = fields(vote)
    assert not vote.keeps(fence, 2.0, 12.0)
    assert fields(vote) == before


def test_what_is_granted_again_may_be_shorter(vote: Vote) -> None:
    vote.answered(2.0, 5.0)
    assert vote.grants(Granted(T + 1, False, True), True, 2.5) is True
    assert (vote.bound, vote.fence) == (5.0, T + 1)


def test_a_grant_after_a_lapse_does_not_take_the_old_bound(vote: Vote) -> None:
    vote.lapses()
    assert not vote.granted
    vote.answered(2.0, 5.0)
    assert vote.grants(Granted(T, False, False), False, 10.0) is True
    assert vote.bound == 5.0


def test_a_pushed_grant_has_the_bound_of_the_last_answered_request(vote: Vote) -> None:
    """Rule C3."""
    vote.answered(3.0, 11.9)
    vote.denies(Denied(5000, 1, None), 3.5)
    vote.grants_by_push(T + 1, 4.0)
    assert (vote.granted, vote.fence, vote.bound, vote.last, vote.denied) == (True, T + 1, 11.9, 3.0, False)


def test_a_pushed_grant_before_the_first_answer_counts_for_nothing(vote: Vote) -> None:
    vote.written_to(T + 5)
    vote.disconnected()
    before = fields(vote)
    vote.grants_by_push(T + 1, 4.0)
    assert changed(vote, before) == {"granted": False, "fence": 0, "bound": 0.0}
    fresh = Vote()
    fresh.grants_by_push(T, 4.0)
    assert not fresh.counts(4.0)


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


def test_a_denial_says_who_has_it(vote: Vote) -> None:
    vote.inquires()
    vote.written_to(T + 5)
    vote.denies(Denied(5000, 1, b"value"), 2.0)
    found = fields(vote)
    assert {name: found[name] for name in NO_GRANT} == {**NO_GRANT, "denied": True}
    assert (vote.left, vote.told, vote.holder) == (5000, 2.0, b"value")
    assert vote.against


def test_an_operator_takes_it(vote: Vote) -> None:
    vote.written_to(T + 5)
    vote.taken()
    found = fields(vote)
    assert {name: found[name] for name in NO_GRANT} == {**NO_GRANT, "denied": True}


def test_an_inquiry_counts_only_where_the_node_grants(vote: Vote) -> None:
    """Rule Q7."""
    vote.inquires()
    assert vote.lower
    assert vote.against
    other = Vote()
    other.inquires()
    assert not other.lower


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


# ---------------------------------------------------------------- series


def test_a_series_begins_with_its_first_grant_and_ends_with_a_break(vote: Vote) -> None:
    """Rules C12 and C13."""
    assert vote.since == 1.5
    vote.answered(2.0, 10.9)
    vote.grants(Granted(T + 9, False, False), False, 2.5)
    assert vote.since == 1.5, "it goes on"
    vote.breaks()
    assert (vote.since, vote.granted) == (inf, True)
    vote.grants(Granted(T + 10, False, True), True, 3.5)
    assert vote.since == 3.5


@pytest.mark.parametrize("moment, now, covers", [(1.5, 9.0, True), (1.49, 9.0, False), (1.5, 9.9, False)])
def test_which_moments_are_certain(vote: Vote, moment: float, now: float, covers: bool) -> None:
    """Rule C12."""
    assert vote.covers(moment, now) is covers
    vote.lapses()
    assert not vote.covers(moment, now)


@pytest.mark.parametrize(
    "fence, largest, owed, raised",
    [
        (T, T, None, False),
        (T + 1, T, None, True),
        (T + 1, T + 1, None, False),
        (T + 2, T + 1, None, True),
        (T - 1, 0, None, False),
        (T, T, 1, False),
        (T + 1, T, 1, True),
        (T + 1, T + 1, 1, True),
        (T + 1, T, 0, True),
        (T + 1, T + 1, 0, False),
    ],
)
def test_a_fence_shows_a_grant_that_was_not_heard(vote: Vote, fence: int, largest: int, owed: int | None, raised: bool) -> None:
    """Rule C14. `owed`: so many answers when a connection broke, and none while another one lasted; None if none broke."""
    if owed is not None:
        vote.owed = owed
        vote.disconnected()
        vote.disconnected()
    assert vote.raised(fence, largest) is raised


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


def test_the_end_of_a_holders_key_is_told_once() -> None:
    """Rule Q13: 1 ms after it."""
    vote = Vote()
    assert not vote.expired(1e9)
    vote.expects_expiry(500, 2.0)
    assert vote.expiry == pytest.approx(2.501)
    assert not vote.expired(2.5)
    assert vote.expired(vote.expiry)
    assert vote.expiry == inf
    assert not vote.expired(3.0)


def test_a_value_is_watched_until_it_changes() -> None:
    """Rule Q14."""
    vote = Vote()
    vote.watches(b"value")
    assert vote.watched == b"value"
    vote.changed()
    assert vote.watched is None


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


# ---------------------------------------------------------------- what it is worth


def test_which_nodes_may_grant_a_try(vote: Vote) -> None:
    """Rule Q15."""
    assert vote.may_grant(False), "it has"
    assert Vote().may_grant(True)
    assert not Vote().may_grant(False)
    denied = Vote()
    denied.answered(1.0, 9.9)
    denied.denies(Denied(LASTING, 1, None), 1.5)
    assert not denied.may_grant(True)
    failed = Vote()
    failed.failed(Exception("OOM"))
    assert not failed.may_grant(True)


@pytest.mark.parametrize("text, no_lock", [("WRONGTYPE Operation", True), ("ERR user_script: WRONGTYPE", True), ("OOM", False)])
def test_a_key_of_another_type_is_no_lock(text: str, no_lock: bool) -> None:
    vote = Vote()
    vote.failed(Exception(text))
    assert vote.no_lock is no_lock
