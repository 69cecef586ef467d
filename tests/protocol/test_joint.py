"""Several names under one ticket, as conversations: held when all are, lost when one is, and in nobody's way until then.

At the end a search: goals over names that overlap, among simulated nodes, without faults and with them.
"""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.conversation import BEAT, FOREIGN, OTHER, RENEWAL, UNTIL, P, Together, denied, good_until, granted, kept, usual
from protocol.nodes import take_turns, walk
from seeds import FROZEN

from holdfast.errors import ConfigError, LockBusy, NoQuorum
from holdfast.protocol.claim import State
from holdfast.protocol.joint import Several
from holdfast.protocol.nodes import Standing
from holdfast.protocol.ticket import TOKEN

WRONGTYPE = Exception("WRONGTYPE Operation against a key holding the wrong kind of value")
EVERYWHERE = "release to 0 1 2"


@pytest.fixture(params=["short path", "vote by vote"])
def yes(request: pytest.FixtureRequest) -> object:
    """What a free node answers: the two ways that a claim may take."""
    return usual() if request.param == "short path" else granted()


def asked(*names: str, **how: object) -> Together:
    """A goal that has asked every node for its names, and has no answer."""
    talk = Together(*(names or ("a", "b")), **how)  # type: ignore[arg-type]  # (options of several types)
    talk.sends(("request to " if how.get("patient", True) else "try to ") + " ".join(map(str, range(talk.node_set.size))))
    talk.waits()
    return talk


def held(**how: object) -> Together:
    """Two names that are held since 0.1."""
    talk = asked(**how)
    for node in range(3):
        talk.answers(node, granted(), at=0.1)
    talk.held(until=min(UNTIL, talk.joint.limit))
    return talk


# ---------------------------------------------------------------- acquiring


def test_every_name_is_asked_for_at_once_under_one_ticket() -> None:
    # Rule N1.
    talk = asked("a", "b", "c")
    joint = talk.joint
    tokens = {it.token for it in joint.claims}
    assert len(tokens) == 3 and all(TOKEN.fullmatch(it) and it.startswith(b"%016d:" % P) for it in tokens)
    assert (joint.state, joint.began, joint.since, joint.until, joint.reason) == (State.WAITING, 0.0, 0.0, 0.0, "")
    assert (joint.refusal, joint.setback) == (None, None)
    assert (joint.contended, joint.doubt, joint.done, joint.freed, joint.counting(0.0), joint.settled) == (False, False, False, 0, 0, True)


def test_one_name_alone_is_a_whole() -> None:
    talk = asked("a", max_hold=5.0)
    talk["a"].answers(0, granted(), at=0.1)
    talk["a"].answers(1, granted(), at=0.2)
    joint = talk.joint
    assert (joint.state, joint.since, joint.began, joint.limit, joint.until) == (State.HELD, 0.2, 0.0, 5.2, 5.2)
    assert isinstance(joint.verdict(0.3), NoQuorum)


@pytest.mark.parametrize("last", ["a", "b", "c"])
def test_it_is_held_when_every_name_has_its_quorum(yes: object, last: str) -> None:
    # Rule N2.
    talk = asked("a", "b", "c")
    for name in "abc":
        for node in (0, 1):
            if name != last:
                assert not talk[name].answers(node, yes, at=0.1)
    talk.waits()
    assert not talk[last].answers(1, yes, at=0.2)
    talk.waits()
    assert talk[last].answers(2, yes, at=0.3)
    talk.held(until=UNTIL)
    joint = talk.joint
    assert (talk.news, joint.since, joint.limit, joint.contended) == (3, 0.3, inf, False)
    assert joint.counting(0.3) == 2
    for name in "abc":  # the rest is only counted
        assert not talk[name].answers(0 if name == last else 2, yes, at=0.4)
    assert joint.counting(0.4) == 3


def test_it_is_held_for_as_long_as_each_of_its_names() -> None:
    talk = asked()
    talk["a"].answers(0, granted(), at=0.1)
    talk["a"].answers(1, granted())
    for node in (0, 1):
        talk["b"].answers(node, denied())
    talk.wakes(BEAT)
    talk.sends("a: request to 0 1", "b: request to 0 1")
    talk["b"].answers(0, granted(), at=3.1)
    talk["b"].answers(1, granted())
    assert [it.until for it in talk.joint.claims] == pytest.approx([UNTIL, good_until(3.0)])
    talk.held(until=UNTIL)
    talk.wakes(RENEWAL)  # a was due for it before it was held
    talk.sends("a: request to 0 1 2")
    talk["a"].tick(UNTIL)
    talk.lost("expired")


@pytest.mark.parametrize("told", ["in an answer", "by an inquiry"])
def test_a_name_that_is_complete_makes_way_until_the_whole_is_held(yes: object, told: str) -> None:
    """Without this, two that have a name each wait for one another for ever."""
    # Rule N3.
    talk = asked()
    talk["a"].answers(0, yes, at=0.1)
    if told == "in an answer":
        talk["a"].answers(1, granted(lower=True))
    else:
        talk["a"].answers(1, yes)
        talk["a"].inquires(1, at=0.2)
    talk.sends("a: cede to 1")
    for node in (0, 1):  # b is complete in vain
        talk["b"].answers(node, yes, at=0.3)
    talk.waits()
    talk["a"].answers(1, denied())
    talk.waits()
    talk["a"].grants(1, P + 3, at=0.5)  # the lower one has been served
    talk.sends("a: request to 0 proposing " + str(P + 3))
    talk["a"].answers(2, granted(P + 3))
    talk.held(until=UNTIL)
    assert (talk["a"].claim.fence, talk["b"].claim.fence) == (P + 3, P)
    assert talk.joint.contended


def test_a_name_of_a_whole_that_is_held_makes_way_for_nobody() -> None:
    talk = held()
    for name in "ab":
        talk[name].inquires(0, at=1.0)
    talk.sends()
    assert not talk.joint.contended


def test_a_name_whose_grants_have_run_out_is_not_complete(yes: object) -> None:
    talk = asked()
    for node in (0, 1):
        talk["a"].answers(node, yes, at=0.1)
        talk["b"].answers(node, denied())
    talk.wakes(BEAT)
    talk.sends("a: request to 0 1", "b: request to 0 1")
    talk["b"].answers(0, granted(), at=UNTIL)
    talk["b"].answers(1, granted())  # a was granted until now
    talk.waits()
    assert talk.joint.counting(UNTIL) == 0
    talk["a"].answers(0, kept(), at=9.0)
    talk["a"].answers(1, kept())
    talk.held(until=good_until(3.0))


def test_a_grant_that_had_run_out_before_the_whole_was_held_is_no_gap_of_it() -> None:
    """It is forgotten when the name is looked at, though another one's grant was the reason to look."""
    talk = asked()
    a, b = talk["a"], talk["b"]
    for node in range(3):
        a.answers(node, granted(), at=0.1)
        b.answers(node, denied())
    talk.wakes(BEAT)
    talk.sends("request to 0 1 2")
    for node in (0, 1):
        a.answers(node, kept(), at=3.1)
        b.answers(node, denied())
    a.takes(0, at=3.2)
    a.grants(0, P, at=3.3)  # since later than its last answered request: no witness of a gap
    b.grants(0, P, at=9.0)
    b.grants(1, P)
    talk.held(until=good_until(3.0))
    a.answers(2, denied(), at=9.1)
    talk.held()


def test_a_fence_is_written_back_for_each_name() -> None:
    talk = asked()
    a, b = talk["a"], talk["b"]
    a.answers(0, granted(P + 5), at=0.1)
    a.answers(1, granted())
    talk.sends(f"a: request to 1 proposing {P + 5}")
    b.answers(0, granted())
    b.answers(1, granted())
    talk.waits()
    a.answers(1, kept(P + 5), at=0.2)
    talk.held(until=UNTIL)
    assert [it.fence for it in talk.joint.claims] == [P + 5, P]


def test_a_name_that_starts_over_keeps_its_place_and_the_others_theirs() -> None:
    talk = asked()
    a, b = talk["a"], talk["b"]
    for node in (0, 1):
        b.answers(node, granted(), at=0.1)
    a.answers(0, granted(lower=True))
    talk.sends("a: cede to 0")
    token = b.token
    talk.breaks(0, at=0.2)
    talk.sends("a: request to 1 2", "a: release old to 0 1 2")
    assert (a.claim.ticket, b.claim.token) == (P, token)
    a.answers(1, granted(), at=0.3)  # about the token before
    talk.waits()
    for node in (1, 2):
        while a.ledgers[node] and a.ledgers[node][0].token != a.claim.token:
            a.ledgers[node].popleft()
        a.answers(node, granted(), at=0.4)
    talk.held(until=good_until(0.0))
    talk.joins(0, at=0.5)
    talk.sends()


def test_a_cede_that_is_never_answered_takes_a_node_from_one_name_only() -> None:
    talk = asked()
    a, b = talk["a"], talk["b"]
    a.answers(0, granted(lower=True), at=0.1)
    talk.sends("a: cede to 0")
    for node in (1, 2):
        a.answers(node, granted())
    for node in range(3):
        b.answers(node, granted())
    talk.held(until=UNTIL)
    talk.breaks(0, at=0.2)
    talk.joins(0, at=0.3)
    talk.sends("a: release to 0")
    talk.wakes(RENEWAL)
    talk.sends("a: request to 1 2", "b: request to 0 1 2")


# ---------------------------------------------------------------- in vain


@pytest.mark.parametrize("busy, free", ["ab", "ba"])
def test_a_try_keeps_nothing_of_a_failure(yes: object, busy: str, free: str) -> None:
    talk = asked(patient=False)
    for node in range(3):
        talk[free].answers(node, yes, at=0.1)
    talk[busy].answers(0, denied())
    talk.waits()
    talk[busy].answers(2, denied(), at=0.2)
    talk.sends(EVERYWHERE)
    error = talk.refused(LockBusy)
    assert (error.name, error.holder, error.waited) == (busy, OTHER.decode(), 0.2)
    assert talk.news == 2


def test_a_try_makes_no_way(yes: object) -> None:
    talk = asked(patient=False)
    for node in (0, 1):
        talk["a"].answers(node, yes, at=0.1)
    talk["a"].inquires(0, at=0.2)
    talk.sends()
    for node in (0, 1):
        talk["b"].answers(node, yes)
    talk.held(until=UNTIL)


@pytest.mark.parametrize("busy, free", ["ab", "ba"])
def test_who_waited_in_vain_is_told_which_name_was_busy(yes: object, busy: str, free: str) -> None:
    talk = asked(deadline=2.0)
    for node in range(3):
        talk[free].answers(node, yes, at=0.1)
        talk[busy].answers(node, denied(5000, holder=OTHER))
    talk.wakes(2.0)
    talk.sends(EVERYWHERE)
    error = talk.refused(LockBusy)
    assert (error.name, error.waited, error.ttl_left) == (busy, 2.0, pytest.approx(3.1))


@pytest.mark.parametrize("silent, free", ["ab", "ba"])
@pytest.mark.parametrize("answers", [0, 1])
def test_who_waited_in_vain_is_told_which_name_nobody_spoke_about(yes: object, silent: str, free: str, answers: int) -> None:
    """Also where all that has been said about it was as usual: its votes were not kept apart until then."""
    talk = asked(deadline=2.0)
    for node in range(3):
        talk[free].answers(node, yes, at=0.1)
    for node in range(answers):
        talk[silent].answers(node, yes)
    talk.wakes(2.0)
    talk.sends(EVERYWHERE)
    error = talk.refused(NoQuorum)
    assert (error.name, error.waited, len(error.causes)) == (silent, 2.0, 3 - answers)


def test_a_majority_that_is_away_when_a_try_begins_has_time_to_come_back() -> None:
    # Rule C17.
    talk = Together("a", "b", standing={1: Standing.DOWN, 2: Standing.DOWN}, since=-20.0, patient=False)
    talk.sends("try to 0")
    talk.answers(0, granted(), at=0.1)
    talk.wakes(1.0)
    talk.sends("release to 0")
    error = talk.refused(NoQuorum)
    assert (error.name, set(error.causes)) == ("a", {"node1", "node2"})
    assert talk.news >= 1
    assert not talk.joint.stirred


def test_an_outage_ends_waiting_for_all_of_it() -> None:
    talk = asked("a", "b", "c")
    talk.answers(0, denied(), at=0.1)
    for node in (1, 2):
        talk.breaks(node, at=1.0)
    talk.wakes(BEAT)
    talk.sends("request to 0")
    for node in (6.0, 9.0):
        talk.wakes(node)
    talk.wakes(10.0)
    talk.sends(EVERYWHERE)
    assert talk.refused(NoQuorum).name == "a"


def test_a_name_that_cannot_be_locked_spoils_the_whole(yes: object) -> None:
    talk = asked("a", "b", "c")
    for node in range(3):
        for name in "ac":
            talk[name].answers(node, yes, at=0.1)
    talk["b"].answers(0, WRONGTYPE)
    assert talk["b"].unfit == [0]
    talk["b"].answers(1, WRONGTYPE)
    talk.sends(EVERYWHERE)
    assert "'b' cannot be locked" in str(talk.refused(ConfigError))


def test_a_foreign_holder_of_one_name_is_watched() -> None:
    talk = asked()
    talk["b"].answers(0, denied(place=0, holder=FOREIGN), at=0.1)
    talk.sends("b: request watching to 0")


def test_giving_up_gives_everything_back(yes: object) -> None:
    talk = asked()
    for node in range(3):
        talk["a"].answers(node, yes, at=0.1)
    talk.release(at=0.2)
    talk.sends(EVERYWHERE)
    assert (talk.joint.state, talk.joint.refusal, talk.joint.done, talk.news) == (State.OVER, None, True, 0)


# ---------------------------------------------------------------- held


@pytest.mark.parametrize("one, other", ["ab", "ba"])
@pytest.mark.parametrize("reason", ["gap", "forced", "expired", "slow", "max_hold"])
def test_what_is_lost_for_one_name_is_lost_for_all_and_for_the_same_reason(one: str, other: str, reason: str) -> None:
    # Rule N4.
    talk = held(max_hold=5.0) if reason == "max_hold" else held()
    if reason == "gap":
        talk.wakes()
        talk.sends("request to 0 1 2")
        for node in range(3):
            talk[other].answers(node, kept(), at=3.0)
        for node in (0, 1):
            talk[one].answers(node, denied())
    elif reason == "forced":
        for node in (0, 1):
            talk[one].takes(node, at=1.0)
    elif reason == "max_hold":
        assert talk.joint.limit == 5.1
        talk.wakes(RENEWAL)
        talk.sends("request to 0 1 2")
        talk.wakes(RENEWAL + 1.0)  # in doubt
        talk.sends("request to 0 1 2")
        talk.wakes()
        talk.wakes(5.1)
    else:
        talk[one].tick(UNTIL if reason == "expired" else UNTIL + 5.0)
    talk.lost(reason)
    assert talk.news == 4  # twice that it was held, and twice that it is lost


def test_closing_takes_all_of_it() -> None:
    talk = held()
    talk.close(at=1.0)
    talk.lost("closed")


def test_closing_ends_waiting_for_all_of_it() -> None:
    talk = asked()
    talk.answers(0, denied(), at=0.1)
    talk.close(at=1.0)
    talk.sends(EVERYWHERE)
    assert (talk.joint.state, talk.joint.refusal, talk.news) == (State.OVER, None, 2)


def test_what_is_lost_is_lost_once() -> None:
    talk = held()
    for node in (0, 1):
        talk["a"].takes(node, at=1.0)
    talk.lost("forced")
    talk.close(at=2.0)
    talk.release(at=3.0)
    assert not talk.extend(at=4.0)
    talk.sends()
    assert talk.joint.reason == "forced"


def test_nobody_is_left_to_renew_it() -> None:
    talk = held()
    talk.joint.abandon()
    assert [it._renewal.due for it in talk.joint.claims] == [inf, inf]
    talk["a"].wakes(RENEWAL)
    talk["b"].wakes(RENEWAL)
    talk.sends()
    talk.wakes(UNTIL)
    talk.lost("dropped")


def test_it_waits_as_soon_as_one_name_is_denied() -> None:
    talk = asked()
    assert not talk.joint.waits()
    talk["a"].answers(0, granted(), at=0.1)
    assert not talk.joint.waits()
    talk["b"].answers(0, denied())
    assert talk.joint.waits()


def test_of_slots_it_waits_when_too_few_are_left() -> None:
    talk = Together("a", "b", "c", needed=1)
    talk.sends("request to 0 1 2")
    talk["a"].answers(0, denied(), at=0.1)
    assert not talk.joint.waits(), "the others are asked for"
    talk.sends("b: request to 0 1 2", "c: request to 0 1 2")
    talk["b"].answers(0, denied())
    assert not talk.joint.waits()
    talk["c"].answers(0, denied())
    assert talk.joint.waits()


def test_it_is_renewed_when_every_name_is_and_as_well_as_the_worst() -> None:
    joint = held().joint
    one, other = joint.claims
    one.left, other.left = 3.0, 2.0
    assert [joint.renewed(it) for it in (one, one, other)] == [None, None, 2.0]
    one.left = 1.0
    assert [joint.renewed(it) for it in (other, one)] == [None, 1.0]


def test_its_number_is_that_of_its_first_name() -> None:
    talk = asked()
    assert (talk.joint.want, {it.want for it in talk.joint.claims}) == (P, {P})


def test_what_stays_ends_without_a_release_of_any_name() -> None:
    talk = held()
    assert not talk.joint.stays
    talk.joint.stay()
    assert talk.joint.stays
    talk.release(at=1.0, heard=True)
    talk.sends()
    assert (talk.joint.state, talk.joint.done, talk.joint.settled, talk.joint.freed) == (State.OVER, True, True, 0)


def test_it_is_in_doubt_as_soon_as_one_name_is() -> None:
    talk = held()
    talk.wakes(RENEWAL)
    talk.sends("request to 0 1 2")
    for node in (0, 1):
        talk["a"].answers(node, kept(), at=3.0)
    assert not talk.joint.doubt
    talk.wakes(RENEWAL + 1.0)
    talk.sends("b: request to 0 1 2")
    assert talk.joint.doubt
    assert ([it.doubt for it in talk.joint.claims], talk.joint.until) == ([False, True], pytest.approx(UNTIL))
    for node in (0, 1):
        talk["b"].answers(node, kept(), at=4.0)
    assert not talk.joint.doubt
    talk.held(until=good_until(RENEWAL))


# ---------------------------------------------------------------- extensions


@pytest.mark.parametrize("last, first", ["ab", "ba"])
def test_an_extension_is_confirmed_when_it_is_for_every_name(last: str, first: str) -> None:
    talk = held()
    assert talk.extend(20.0, at=1.0)
    talk.sends("request to 0 1 2 for 20")
    assert not talk.joint.settled
    for name, news in ((first, 2), (last, 3)):
        for node in (0, 1):
            assert talk.news == 2  # (that it is held)
            talk[name].answers(node, kept(), at=1.1)
        assert talk.news == news
    assert talk.joint.settled and talk.joint.setback is None
    talk.held(until=good_until(1.0, 20.0))


def test_an_extension_may_move_the_end_for_every_name() -> None:
    talk = held(max_hold=5.0)
    assert talk.extend(20.0, at=1.0, hold=15.0)
    talk.sends("request to 0 1 2 for 20")
    for name in "ab":
        for node in (0, 1):
            talk[name].answers(node, kept(), at=1.1)
    talk.held(until=16.0)


def test_an_extension_raises_every_name_s_fences() -> None:
    talk = held()
    assert talk.extend(20.0, at=1.0, fence=P + 7)
    talk.sends(f"request to 0 1 2 proposing {P + 7} for 20")
    for name in "ab":
        for node in (0, 1):
            talk[name].answers(node, kept(P + 7 * (name == "a" or node)), at=1.1)
    assert [talk.joint.counting(1.1, it) for it in (0, P, P + 7)] == [3, 3, 1]


@pytest.mark.parametrize("last, first", ["ab", "ba"])
def test_an_extension_that_one_name_does_not_get_is_none(last: str, first: str) -> None:
    talk = held()
    talk.extend(5.0, at=1.0)
    talk.sends("request to 0 1 2 for 5")
    for node in range(3):
        talk[first].answers(node, kept(), at=1.1)
    assert talk.news == 2
    talk.wakes(2.0)
    talk.sends(f"{last}: request to 0 1 2")  # (and it is in doubt)
    assert talk.news == 3
    setback = talk.joint.setback
    assert isinstance(setback, NoQuorum) and setback.name == last and "extend" in str(setback)
    talk.held(until=UNTIL)
    for node in range(3):  # the next one succeeds, and nothing is left of it
        talk[last].answers(node, kept(), at=2.1)
        talk[last].answers(node, kept())
    talk.extend(9.0, at=2.2)
    talk.sends("request to 0 1 2 for 9")
    for node in (0, 1):
        talk.answers(node, kept(), at=2.3)
    assert (talk.joint.setback, talk.joint.settled) == (None, True)


def test_a_loss_is_told_though_an_extension_is_awaited() -> None:
    """Of what is lost nobody awaits anything any longer."""
    talk = held()
    talk.extend(9.0, at=1.0)
    talk.sends("request to 0 1 2 for 9")
    for node in (0, 1):
        talk["a"].takes(node, at=1.1)
    talk.lost("forced")
    assert talk.joint.settled
    assert talk.news == 4


def test_whoever_awaits_an_extension_is_told_that_another_has_ended_it() -> None:
    talk = held()
    talk.extend(9.0, at=1.0)
    talk.sends("request to 0 1 2 for 9")
    talk.release(at=1.1, heard=True)
    talk.sends(EVERYWHERE)
    for node in (0, 1):
        talk.answers(node, kept(), at=1.2)
        talk.answers(node, 1)
    assert (talk.joint.settled, talk.joint.freed) == (True, 2)
    assert talk.news == 3


@pytest.mark.parametrize("what", ["extend", "release"])
@pytest.mark.parametrize("late", [0.0, 2.0])
def test_what_comes_after_the_first_name_has_run_out_finds_all_lost(what: str, late: float) -> None:
    """And nothing was asked, or given back, before that was seen: b runs out first."""
    talk = held()
    talk.wakes(RENEWAL)
    talk.sends("request to 0 1 2")
    for node in (0, 1):
        talk["a"].answers(node, kept(), at=3.0)
    assert talk["b"].claim.until == pytest.approx(UNTIL) == talk.joint.until
    now = talk["b"].claim.until + late
    if what == "extend":
        assert talk.extend(at=now) is False
    else:
        talk.release(at=now)
    talk.lost("slow" if late else "expired")


# ---------------------------------------------------------------- releases


def test_a_release_is_heard_when_every_name_is_free_on_a_quorum() -> None:
    talk = held()
    talk.release(at=1.0, heard=True)
    talk.sends(EVERYWHERE)
    joint = talk.joint
    assert (joint.state, joint.done, joint.settled, joint.freed) == (State.OVER, False, False, 0)
    for node in (0, 1):
        talk["a"].answers(node, 1, at=1.1)
    assert (joint.freed, joint.settled, joint.done, talk.news) == (0, False, False, 2)
    talk["b"].answers(0, 1)
    assert (joint.freed, joint.settled) == (1, False)
    talk["b"].answers(1, 1)
    assert (joint.freed, joint.settled, joint.done, talk.news) == (2, True, True, 3)


def test_a_release_that_cannot_be_confirmed_counts_what_is_sure_of_every_name() -> None:
    talk = held()
    talk.release(at=1.0, heard=True)
    talk.sends(EVERYWHERE)
    talk["a"].answers(0, 1, at=1.1)
    talk["a"].answers(1, 1)
    talk["b"].answers(0, 1)
    talk.breaks(1, at=1.2)
    assert not talk.joint.settled
    talk.breaks(2)
    assert (talk.joint.freed, talk.joint.settled, talk.joint.done, talk.news) == (1, True, True, 3)


def test_a_release_that_nobody_can_hear_is_over_at_once() -> None:
    talk = held()
    for node in range(3):
        talk.breaks(node, at=0.5)
    talk.release(at=1.0, heard=True)
    talk.sends(EVERYWHERE)
    assert (talk.joint.settled, talk.joint.done, talk.joint.freed) == (True, True, 0)


# ---------------------------------------------------------------- a search


@settings(max_examples=300, derandomize=FROZEN, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(2, 5), st.integers(2, 4))
def test_without_faults_everybody_is_served_in_turn_before_any_time_passes(seed: int, nodes: int, clients: int, names: int) -> None:
    """P-S1, P-L1 and P-L3 of several names: no two have one, nobody waits but for a holder or an earlier one, nothing is left."""
    take_turns(seed, nodes, clients, "abcd"[:names])


def test_equal_tickets_of_two_engines_are_no_deadlock() -> None:
    """Tokens decide between them, and alike for every name."""
    worlds = [take_turns(seed, 3, 2, "ab") for seed in range(100)]
    pairs = [(one, other) for one, other in (world.clients for world in worlds) if one.names == other.names == {"a", "b"}]
    assert sum(one.claims[0].ticket == other.claims[0].ticket for one, other in pairs) > 5, "there were such"


@settings(max_examples=150, derandomize=FROZEN, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 1500), st.integers(1, 5), st.integers(2, 4), st.booleans())
def test_all_or_nothing_whatever_breaks_and_whoever_waits_gets_it(seed: int, steps: int, nodes: int, clients: int, faults: bool) -> None:
    walk(seed, nodes, clients, steps, faults, "abc")


# ---------------------------------------------------------------- some of many


def some(needed: int, **how: object) -> Together:
    """Those of three slots that are asked for first have asked every node."""
    talk = Together("a", "b", "c", needed=needed, **how)  # type: ignore[arg-type]  # (options of several types)
    talk.sends("request to 0 1 2" if how.get("patient", True) else "try to 0 1 2")
    return talk


def test_no_more_is_asked_for_than_is_needed(yes: object) -> None:
    # Rule P1.
    talk = some(1)
    assert list(talk.parts) == ["a"]
    talk["a"].answers(0, yes, at=0.1)
    talk["a"].answers(1, yes)
    talk.held(until=UNTIL)
    assert list(talk.parts) == ["a"] and talk.news == 1
    talk["a"].answers(2, denied(), at=0.2)  # too late to be of interest
    assert list(talk.parts) == ["a"]


def test_all_others_are_asked_for_as_soon_as_one_is_denied() -> None:
    talk = some(1)
    talk["a"].answers(1, denied(), at=0.1)
    talk.sends("b: request to 0 1 2", "c: request to 0 1 2")
    assert [it.recipe.label for it in talk.joint.claims] == ["a", "b", "c"] and not talk.joint.stirred
    assert len({it.ticket for it in talk.joint.claims}) == 1
    talk["b"].answers(1, denied(), at=0.2)  # there are no more
    talk.waits()
    for node in (0, 1):
        talk["c"].answers(node, granted(), at=0.3)
    talk.sends("a: release to 0 1 2", "b: release to 0 1 2")
    assert (talk.joint.state, talk.news, talk.joint.began, talk.joint.since) == (State.HELD, 1, 0.0, 0.3)
    assert [it.recipe.label for it in talk.joint.claims] == ["c"]
    assert talk.joint.until == pytest.approx(good_until(0.1))  # it was asked for then
    talk["a"].answers(0, granted(), at=0.4)  # given back already
    talk.release(at=0.5)
    talk.sends("c: release to 0 1 2")
    assert (talk.joint.state, talk.joint.done) == (State.OVER, True)


def test_what_is_granted_besides_is_given_back() -> None:
    # Rule P3.
    talk = some(2)
    talk["a"].answers(0, granted(), at=0.1)
    talk["a"].answers(1, granted())
    talk["b"].answers(0, denied())
    talk.sends("c: request to 0 1 2")
    talk.waits()
    talk["b"].answers(1, granted(), at=0.2)
    talk["b"].grants(0, P)
    assert [it.recipe.label for it in talk.joint.claims] == ["a", "b"] and talk.joint.state is State.HELD
    talk.sends("c: release to 0 1 2")
    assert talk.news == 2


def test_some_make_way_like_any_who_wait() -> None:
    # Rule P4.
    talk = some(2)
    talk["a"].answers(0, granted(), at=0.1)
    talk["a"].answers(1, granted(lower=True))
    talk.sends("a: cede to 1")


def test_a_try_asks_for_all_others_too_and_ends_with_the_last() -> None:
    talk = some(1, patient=False)
    talk["a"].answers(0, denied(), at=0.1)
    talk.sends("b: try to 0 1 2", "c: try to 0 1 2")
    talk["a"].answers(1, denied())
    talk.sends("a: release to 0 1 2")
    assert (talk.joint.state, talk.news) == (State.WAITING, 0)
    assert [it.recipe.label for it in talk.joint.claims] == ["b", "c"]
    for node in (0, 1):
        talk["c"].answers(node, denied(), at=0.2)
    talk.sends("c: release to 0 1 2")
    assert talk.joint.state is State.WAITING
    for node in (0, 1):
        talk["b"].answers(node, denied(), at=0.3)
    talk.sends("b: release to 0 1 2")
    assert (talk.joint.state, talk.joint.done, talk.news) == (State.OVER, True, 1)
    assert isinstance(talk.joint.refusal, LockBusy)


def test_a_try_of_more_than_are_left_is_over() -> None:
    # Rule P6.
    talk = some(2, patient=False)
    talk["a"].answers(0, denied(), at=0.1)
    talk.sends("c: try to 0 1 2")
    talk["a"].answers(1, denied())
    talk.sends("a: release to 0 1 2")
    talk["b"].answers(0, denied())
    talk["b"].answers(1, denied())
    talk.sends("b: release to 0 1 2", "c: release to 0 1 2")
    assert (talk.joint.state, talk.news) == (State.OVER, 2)
    assert len(talk.joint.claims) == 2


def test_others_that_are_hopeless_when_they_are_asked_for() -> None:
    talk = some(1, patient=False)
    for node in (1, 2):
        talk.node_set.note(node, Standing.DOWN, 0.1)
    talk["a"].answers(0, denied(), at=0.2)
    talk.sends("b: try to 0", "c: try to 0")
    talk.wakes(1.2)
    assert isinstance(talk.joint.refusal, NoQuorum) and talk.joint.state is State.OVER
    assert len(talk.joint.claims) == 1
    talk.sends("a: release to 0 1 2", "b: release to 0", "c: release to 0")


def test_who_waited_in_vain_for_some_gives_all_back() -> None:
    talk = some(1, deadline=2.0)
    talk["a"].answers(0, denied(), at=0.1)
    talk.sends("b: request to 0 1 2", "c: request to 0 1 2")
    talk.wakes(2.0)
    talk.sends("release to 0 1 2")
    assert isinstance(talk.joint.refusal, LockBusy) and (talk.joint.state, talk.news) == (State.OVER, 1)
    assert len(talk.joint.claims) == 1, "observers are told of one refusal"


def test_who_gives_up_waiting_for_some_gives_all_back() -> None:
    talk = some(1)
    talk["a"].answers(0, denied(), at=0.1)
    talk.sends("b: request to 0 1 2", "c: request to 0 1 2")
    talk.release(at=0.2)
    talk.sends("release to 0 1 2")
    assert (talk.joint.state, len(talk.joint.claims)) == (State.OVER, 1)


def test_a_slot_whose_key_is_no_lock_is_told_of() -> None:
    talk = some(1)
    talk["a"].answers(0, denied(), at=0.1)
    talk.sends("b: request to 0 1 2", "c: request to 0 1 2")
    talk["b"].answers(0, WRONGTYPE)
    talk["b"].answers(1, WRONGTYPE)
    talk.sends("release to 0 1 2")
    assert isinstance(talk.joint.refusal, ConfigError) and talk.joint.state is State.OVER


def test_what_is_over_already_comes_to_nothing_once() -> None:
    talk = Together("a", "b")
    a, b = talk.joint.claims
    b.release(0.1)
    a.refuse(LockBusy("a", 0.2, None, None), 0.2)
    assert (a.state, b.state, b.refusal, talk.joint.refusal) == (State.OVER, State.OVER, None, a.refusal)


def test_what_is_held_together_began_with_its_first_part() -> None:
    talk = held()
    assert Several([talk.joint]).began == Several(talk.joint.claims).began == 0.0


def test_what_is_in_vain_for_the_first_of_the_others_is_so_for_all() -> None:
    talk = some(1)
    for node in (1, 2):
        talk.node_set.worked[node] = False
        talk.node_set.note(node, Standing.DOWN, 0.1, ConfigError("it is a replica"))
    talk["a"].answers(0, denied(), at=0.2)
    talk.sends("a: release to 0 1 2", "b: request to 0", "b: release to 0", "c: release to ")
    assert isinstance(talk.joint.refusal, ConfigError) and talk.joint.state is State.OVER


@settings(max_examples=150, derandomize=FROZEN, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(2, 6), st.integers(1, 5))
def test_without_faults_no_slot_idles_while_somebody_waits(seed: int, nodes: int, clients: int, slots: int) -> None:
    take_turns(seed, nodes, clients, "abcde"[:slots], some=True)


@settings(max_examples=120, derandomize=FROZEN, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 1500), st.integers(1, 5), st.integers(2, 4), st.integers(1, 4), st.booleans())
def test_a_slot_has_one_holder_whatever_breaks(seed: int, steps: int, nodes: int, clients: int, slots: int, faults: bool) -> None:
    # Rule P2.
    walk(seed, nodes, clients, steps, faults, "abcd"[:slots], some=True)


def test_the_reason_of_one_part_is_that_of_all() -> None:
    reason = Several.why.fget  # type: ignore[attr-defined]  # (a property, on the class)
    assert reason(SimpleNamespace(parts=[SimpleNamespace(why=""), SimpleNamespace(why="node 2: full")])) == "node 2: full"
