"""The schedule of a claim: when it asks all nodes again, when it doubts, and what confirms what."""

from __future__ import annotations

from math import inf

import pytest

from holdfast.protocol.renewal import AHEAD, Renewal

TTL = 9.0
QUORUM = 3
PATIENCE = 1.0


def renewal(wanted: bool = True, ttl: float = TTL, place: float = 0.0) -> Renewal:
    return Renewal(ttl, QUORUM, wanted, place)


def held(until: float = 9.0, now: float = 0.0, wanted: bool = True) -> Renewal:
    it = renewal(wanted)
    it.holds(until, now)
    return it


def sent(at: float = 3.0) -> Renewal:
    """One whose renewal left at this moment."""
    it = held()
    assert it.leaves(at, PATIENCE)
    return it


# ------------------------------------------------ when to ask


def test_nothing_is_due_before_it_begins() -> None:
    it = renewal()
    assert (it.due, it.doubt, it.extending, it.wake(PATIENCE)) == (inf, False, False, inf)
    assert not it.beats(1e9)


def test_a_waiter_asks_every_third_of_its_ttl() -> None:
    it = renewal()
    it.waits(1.0)
    assert it.due == 4.0
    assert not it.beats(3.999)
    assert it.beats(4.0)
    assert not it.beats(6.999)
    assert it.beats(7.5)
    assert it.due == 10.0, "what leaves late moves nothing that comes after it"


def test_the_first_renewal_is_due_when_two_thirds_are_left() -> None:
    assert held(until=8.9).due == pytest.approx(2.9)


@pytest.mark.parametrize("left, due", [(8.1, inf), (8.09, 5.0)])
def test_what_is_not_renewed_is_renewed_once_if_it_waited_for_its_lease(left: float, due: float) -> None:
    assert held(until=5.0 + left, now=5.0, wanted=False).due == due


def test_the_one_renewal_is_not_followed_by_another() -> None:
    it = held(until=5.0, now=5.0, wanted=False)
    assert it.leaves(5.0, PATIENCE)
    assert it.due == inf
    assert not it.leaves(1e9, PATIENCE)


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


def test_in_doubt_it_is_repeated_as_often_as_nodes_may_take() -> None:
    it = sent(3.0)
    assert it.wake(PATIENCE) == 4.0
    assert not it.doubts(3.999, PATIENCE)
    assert it.doubts(4.0, PATIENCE)
    assert (it.doubt, it.due) == (True, 4.0)
    assert it.leaves(4.0, PATIENCE)
    assert (it.due, it.wake(PATIENCE)) == (5.0, 5.0)
    assert not it.doubts(5.0, PATIENCE), "it is told once"


def test_what_is_not_renewed_is_not_repeated_in_doubt() -> None:
    it = held(until=5.0, now=5.0, wanted=False)
    it.leaves(5.0, PATIENCE)
    assert it.doubts(6.0, PATIENCE)
    assert it.due == inf


def test_nothing_is_asked_after_it_was_stopped() -> None:
    it = held()
    it.stops()
    assert (it.due, it.wanted) == (inf, False)
    assert not it.leaves(3.0, PATIENCE)


# ------------------------------------------------ what is confirmed


def test_a_renewal_is_confirmed_by_what_was_sent_with_it_or_later() -> None:
    it = sent(3.0)
    assert it.confirms(2.999, 9.0) == (False, False)
    assert it.confirms(3.0, 9.0) == (True, False)
    assert it.wake(PATIENCE) == it.due


def test_a_confirmation_ends_the_doubt() -> None:
    it = sent(3.0)
    it.doubts(4.0, PATIENCE)
    it.leaves(4.0, PATIENCE)
    assert it.confirms(3.0, 9.0) == (True, False), "the first of the two counts"
    assert not it.doubt


def test_a_quorum_of_grants_is_needed_before_anything_can_be_confirmed() -> None:
    it = sent(3.0)
    assert [it.hears() for _ in range(5)] == [False, False, True, True, True]
    it.confirms(3.0, 9.0)
    assert it.hears() is None


def test_grants_are_counted_from_the_first_of_what_is_unconfirmed() -> None:
    it = sent(3.0)
    assert [it.hears(), it.hears()] == [False, False]
    it.extends(12.0, 3.5)
    it.leaves(6.0, PATIENCE)
    assert it.hears() is True
    it.confirms(6.0, 12.0)
    it.extends(20.0, 7.0)
    assert it.hears() is False, "the next one begins again"


# ------------------------------------------------ extensions


def test_an_extension_is_confirmed_when_the_lease_lasts_as_long_as_it_asked() -> None:
    it = held()
    it.extends(20.0, 1.0)
    assert it.extending
    assert it.confirms(1.0, 19.9) == (True, False), "it keeps the lease, and was not what was asked for"
    assert it.confirms(0.9, 20.0) == (False, False)
    assert it.confirms(1.0, 20.0) == (False, True)
    assert not it.extending


def test_an_extension_wants_what_the_one_before_it_wanted_unless_that_is_over() -> None:
    it = held()
    it.extends(20.0, 1.0)
    it.extends(10.0, 2.0)
    assert it.confirms(2.0, 19.0) == (True, False)
    assert it.confirms(2.0, 20.0) == (False, True)
    it.extends(10.0, 3.0)
    assert it.confirms(3.0, 10.0) == (True, True)


def test_an_extension_that_asks_for_a_moment_in_the_past_wants_nothing() -> None:
    it = held()
    it.extends(-5.0, 1.0)
    assert it.confirms(1.0, 0.0) == (True, True)


def test_the_caller_of_an_extension_waits_as_long_as_nodes_may_take() -> None:
    it = held()
    assert it.gives_up(1e9, PATIENCE) == inf
    it.extends(20.0, 1.0)
    assert it.wake(PATIENCE) == 2.0
    assert it.gives_up(1.999, PATIENCE) == inf
    assert it.gives_up(2.0, PATIENCE) == 1.0
    assert not it.extending


def test_a_later_extension_does_not_prolong_the_wait_of_the_first() -> None:
    it = held()
    it.due = inf
    for now in (1.0, 1.4, 1.8):
        it.extends(20.0, now)
        assert it.wake(PATIENCE) == 2.0
        assert it.gives_up(now, PATIENCE) == inf
    assert it.confirms(1.4, 20.0) == (True, False), "only the latest is what has to be confirmed"
    assert it.gives_up(2.0, PATIENCE) == 1.0
    assert not it.extending
    assert it.gives_up(1e9, PATIENCE) == inf
    it.extends(20.0, 3.0)
    assert it.wake(PATIENCE) == 4.0
    assert it.confirms(3.0, 20.0) == (True, True)
    it.extends(20.0, 5.0)
    assert it.gives_up(5.999, PATIENCE) == inf


def test_in_doubt_only_an_extension_has_a_time_of_its_own() -> None:
    it = sent(3.0)
    it.doubts(4.0, PATIENCE)
    it.leaves(4.0, PATIENCE)
    it.extends(20.0, 4.5)
    it.due = inf
    assert it.wake(PATIENCE) == 5.5
    it.gives_up(5.5, PATIENCE)
    assert it.wake(PATIENCE) == inf


def test_a_renewal_beside_an_extension_that_is_still_unconfirmed_counts_no_grants_again() -> None:
    it = held()
    it.extends(20.0, 1.0)
    assert [it.hears() for _ in range(QUORUM)] == [False, False, True]
    assert it.confirms(1.0, 19.9) == (True, False)
    assert it.leaves(3.0, PATIENCE)
    assert it.hears() is True


@pytest.mark.parametrize("wanted, due", [(True, 2.0), (False, inf)])
def test_a_renewal_that_is_hurried_is_due_at_once_if_there_is_one(wanted: bool, due: float) -> None:
    it = held(wanted=wanted)
    it.hurries(2.0)
    assert it.due == due
