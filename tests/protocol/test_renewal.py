"""The schedule of a claim, where no conversation shows it (`tests/protocol/claim`): its place among others."""

from __future__ import annotations

from math import inf

import pytest

from holdfast.protocol.renewal import AHEAD, Renewal

TTL = 9.0
QUORUM = 3
PATIENCE = 1.0


def renewal(ttl: float = TTL, place: float = 0.0) -> Renewal:
    return Renewal(ttl, QUORUM, True, place)


def test_nothing_is_due_before_it_begins() -> None:
    it = renewal()
    assert (it.due, it.doubt, it.extending, it.wake(PATIENCE)) == (inf, False, False, inf)
    assert not it.beats(1e9)


@pytest.mark.parametrize("ttl, ahead", [(TTL, AHEAD), (0.3, 0.01), (0.06, 0.002)])
def test_a_renewal_may_leave_a_little_early(ttl: float, ahead: float) -> None:
    for early, leaves in ((ahead * 0.99, True), (ahead * 1.01, False)):
        it = renewal(ttl=ttl)
        it.holds(ttl, 0.0)
        due = it.due
        assert it.leaves(due - early, PATIENCE) is leaves
        assert it.due == (pytest.approx(due + ttl / 3) if leaves else due)


@pytest.mark.parametrize("place", [0.0, 0.25, 0.5, 0.999])
def test_each_comes_to_its_place_by_asking_sooner_twice_and_keeps_it(place: float) -> None:
    # Rule C21.
    early = TTL / 6 * place
    it = renewal(place=place)
    it.holds(TTL, 0.0)
    waiting = renewal(place=place)
    waiting.waits(0.0)
    for turn, due in enumerate((3.0 - early, *[3.0 * k - 2 * early for k in range(2, 9)])):
        assert it.due == waiting.due == pytest.approx(due)
        # Late by a while, or early with others: it makes no difference to the next turn.
        assert it.leaves(it.due + (0.9 if turn % 3 else -0.09), PATIENCE)
        assert waiting.beats(waiting.due + (0.9 if turn % 3 else 0.0))
        assert TTL / 6 < it.due - due <= TTL / 3 + 1e-9


@pytest.mark.parametrize("place", [0.0, 0.7])
def test_what_was_in_doubt_goes_back_to_its_place(place: float) -> None:
    it = renewal(place=place)
    it.holds(TTL, 0.0)
    own = 6.0 - 2 * TTL / 6 * place
    now = it.due
    it.leaves(now, PATIENCE)
    it.doubts(now := now + PATIENCE, PATIENCE)
    it.leaves(now, PATIENCE)
    it.confirms(now, 12.0)
    it.leaves(it.due, PATIENCE)
    assert (it.due - own) / (TTL / 3) == pytest.approx(round((it.due - own) / (TTL / 3)))


def test_what_was_stopped_for_long_asks_once_and_then_in_its_turn() -> None:
    it = renewal(place=0.5)
    it.waits(0.0)
    assert it.beats(1e6)
    assert 1e6 < it.due <= 1e6 + TTL / 3
    assert (it.due - 4.5) / (TTL / 3) == pytest.approx(round((it.due - 4.5) / (TTL / 3)))


def test_an_extension_that_asks_for_a_moment_in_the_past_wants_nothing() -> None:
    it = renewal()
    it.holds(TTL, 0.0)
    it.extends(-5.0, 1.0)
    assert it.confirms(1.0, 0.0) == (True, True)


def test_a_renewal_beside_an_extension_that_is_still_unconfirmed_counts_no_grants_again() -> None:
    it = renewal()
    it.holds(TTL, 0.0)
    it.extends(20.0, 1.0)
    assert [it.hears() for _ in range(QUORUM)] == [False, False, True]
    assert it.confirms(1.0, 19.9) == (True, False)
    assert it.leaves(3.0, PATIENCE)
    assert it.hears() is True


@pytest.mark.parametrize("wanted, due", [(True, 2.0), (False, inf)])
def test_a_renewal_that_is_hurried_is_due_at_once_if_there_is_one(wanted: bool, due: float) -> None:
    it = renewal()
    it.wanted = wanted
    it.hurries(2.0)
    assert it.due == due
