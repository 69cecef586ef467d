"""Where the claim does something else than PROTOCOL.md or SEMANTICS.md says: each test fails until it is mended, or the text is.

Not collected by itself: `pytest tests/core/findings_claim.py`. A test that has come to pass moves to test_claim.py.
"""

from __future__ import annotations

import pytest
from core.conversation import RENEWAL, TTL, UNTIL, Conversation, P, denied, good_until, granted, kept, usual

from holdfast.core.claim import HELD, LOST
from holdfast.core.reach import DOWN
from holdfast.errors import ConfigError, LockBusy, NoQuorum


def held(nodes: int = 3, **how: object) -> Conversation:
    talk = Conversation(nodes, **how)  # type: ignore[arg-type]
    talk.said = []
    for node in range(nodes):
        talk.answers(node, usual(), at=0.1)
    talk.held(P, until=min(UNTIL, talk.claim.limit))
    return talk


# ---------------------------------------------------------------- safety


def test_01_an_answer_that_lowers_a_bound_lowers_the_deadline() -> None:
    """Section 5: "D = the q-th largest bound of the nodes that count; later answers move it on".

    An extension for 30 s reaches nodes 0 and 1; 2 is away, and comes back. All three are renewed for 9 s: 1 and 2 confirm, and then 0
    answers that it had lost the key (by hand: a minority, taken back in silence). Now 0 and 2 are good until 11.8 only, but the claim, and
    `Lease.check`, say 30.7 until somebody makes it look again: `_granted` returns early because the new bound is below `until`.
    A process that is stopped now and wakes at 12 to 30 s believes that it holds what another may hold.
    """
    talk = held()
    talk.breaks(2, at=1.0)
    talk.extend(30.0)
    talk.sends("request to 0 1 for 30")
    talk.answers(0, kept(), at=1.1)
    talk.answers(1, kept())
    talk.held(P, until=good_until(1.0, 30.0) if talk.claim.until > UNTIL else UNTIL)
    talk.joins(2, at=1.5)
    talk.wakes(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.answers(1, kept(), at=3.0)
    talk.answers(2, kept())
    talk.held(P, until=good_until(1.0, 30.0))
    talk.answers(0, granted(P + 1))
    talk.held(P, until=good_until(RENEWAL))


def test_02_a_grant_anew_on_a_new_connection_has_not_the_bound_of_the_old_one() -> None:
    """Section 6, "Why S1": a counted node holds the token until its bound.

    As above, nodes 0 and 1 are good until 30.7 and 2 until 8.9. A renewal (for 9 s) is on its way to 0 when the connection breaks; the key
    there is deleted by hand and taken by another client; the renewal is executed late, and queues; the other client releases, and 0
    pushes "g" on the new connection: granted until 12 or so. The push breaks the series, but the vote goes on counting until 30.7.
    """
    talk = held()
    talk.breaks(2, at=1.0)
    talk.extend(30.0)
    talk.sends("request to 0 1 for 30")
    talk.answers(0, kept(), at=1.1)
    talk.answers(1, kept())
    talk.wakes(RENEWAL)
    talk.sends("request to 0 1")
    talk.breaks(0, at=3.0)
    talk.joins(0, at=3.1)
    talk.joins(2)
    talk.grants(0, P + 9, at=3.5)
    talk.held(P, until=UNTIL)


def test_03_a_push_of_an_unknown_kind_is_no_grant() -> None:
    """Section 5 knows "g", "i" and "x". What else a newer script may once say must not count as a grant (nor as a loss)."""
    talk = Conversation(1)
    talk.sends("request to 0")
    talk.answers(0, denied(), at=0.1)
    assert not talk.claim.pushed(0, b"z", P + 1, 0.2)
    talk.waits()


# ---------------------------------------------------------------- what the caller is told


@pytest.mark.parametrize("nodes", [2, 4])
def test_04_a_try_with_even_N_is_told_that_the_lock_is_busy(nodes: int) -> None:
    """SEMANTICS 2: busy is LockBusy from acquire(wait=0), and None from try_acquire; NoQuorum is raised by both.

    Half of the nodes deny, which is enough to refuse; the others are well, but have not answered yet, so that fewer than q "spoke".
    """
    talk = Conversation(nodes, patient=False)
    talk.said = []
    for node in range(nodes // 2):
        talk.answers(node, denied(), at=0.1)
    talk.said = []
    talk.refused(LockBusy)


def test_05_B16_a_try_with_one_node_down_is_told_that_the_lock_is_busy() -> None:
    """As before: with one of three down, *every* try of a lock that somebody holds is a NoQuorum, and try_acquire raises."""
    talk = Conversation(3, patient=False, standing={2: DOWN})
    talk.sends("try to 0 1")
    talk.answers(0, denied(), at=0.1)
    if talk.claim.refusal is None:
        talk.answers(1, denied())
    talk.said = []
    talk.refused(LockBusy)


def test_06_what_is_left_of_the_holders_lease_is_told_as_of_now() -> None:
    """LockBusy.ttl_left: "seconds until that lease ends unless it is renewed"; told as of the answer, up to ttl/3 ago."""
    talk = Conversation(deadline=2.0)
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(5000), at=0.1)
    talk.answers(1, denied(5000))
    talk.wakes(2.0)
    talk.said = []
    assert talk.refused(LockBusy).ttl_left == pytest.approx(3.1)


@pytest.mark.parametrize("what", ["forced", "closed", "gap"])
def test_07_a_loss_before_max_hold_is_told_with_its_own_reason(what: str) -> None:
    """SEMANTICS 9. Whenever `until` is cut short by max_hold, every loss is told as "max_hold"."""
    talk = held(max_hold=5.0)
    if what == "forced":
        talk.takes(0, at=1.0)
        talk.takes(1)
    elif what == "gap":
        talk.wakes(RENEWAL)
        talk.sends("request to 0 1 2")
        talk.answers(0, denied())
        talk.answers(1, denied())
    else:
        talk.close(at=1.0)
    talk.lost(what)


def test_08_an_extension_in_doubt_is_answered_within_node_timeout() -> None:
    """SEMANTICS 7: "waits for a majority, at most node_timeout". In doubt already, nothing ends the wait but the loss of the lease."""
    talk = held(patience=1.0)
    for node in range(3):
        talk.breaks(node, at=1.0)
    talk.wakes(RENEWAL)
    talk.wakes(RENEWAL + 1.0)
    assert talk.claim.doubt
    assert talk.extend(at=4.0)
    while talk.now < 5.0:
        talk.wakes()
        talk.said = []
        if talk.news:
            break
    assert talk.claim.state is HELD
    assert isinstance(talk.claim.refusal, NoQuorum)


def test_09_an_extension_has_node_timeout_for_itself() -> None:
    """The same clock: asked 0.1 s before an older renewal comes into doubt, an extension fails after 0.1 s, whatever would come."""
    talk = held(patience=1.0)
    talk.wakes(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.extend(at=3.8)
    talk.sends("request to 0 1 2")
    talk.wakes(RENEWAL + 1.0)
    talk.said = []
    assert not talk.news
    assert talk.claim.refusal is None


def test_10_an_extension_is_not_confirmed_by_a_renewal_that_came_after_it() -> None:
    """SEMANTICS 7: "at least ttl from now". The nodes refuse the extension (BUSY, OOM, …) and take the renewal after it."""
    talk = held(patience=1.0)
    talk.extend(30.0, at=2.8)
    talk.sends("request to 0 1 2 for 30")
    talk.wakes(RENEWAL)
    talk.sends("request to 0 1 2")
    for node in range(3):
        talk.answers(node, Exception("BUSY"), at=3.0)
    for node in range(3):
        talk.answers(node, kept())
        assert talk.claim.until > 30 or not talk.news, "confirmed, and good for 9 s instead of 30"


def test_11_an_extension_is_not_confirmed_by_a_renewal_of_the_same_moment() -> None:
    """As before, where clocks are coarse, or simulated: what confirms it is `last >= asked`, whatever was asked for."""
    talk = held()
    talk.wakes(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.extend(30.0)
    talk.sends("request to 0 1 2 for 30")
    talk.answers(0, kept(), at=3.0)
    talk.answers(1, kept())
    assert not talk.news


def test_12_an_extension_that_fails_tells_why() -> None:
    """SEMANTICS 34: nodes with their causes. A silent node has none, since it had answered before; `waited` is since the acquisition."""
    talk = held(patience=1.0)
    talk.extend(at=2.0)
    talk.sends("request to 0 1 2")
    talk.answers(0, kept(), at=2.1)
    talk.wakes(3.0) if talk.claim.wake == 3.0 else talk.wakes()
    while talk.claim.refusal is None:
        talk.said = []
        talk.wakes()
    talk.said = []
    error = talk.claim.refusal
    assert isinstance(error, NoQuorum)
    assert set(error.causes) == {"node1", "node2"}
    assert error.waited < 2.0


def test_13_S11_a_key_of_another_type_is_noticed_on_redis_6_2() -> None:
    """SEMANTICS 29. Before Redis 7 a script's error does not begin with WRONGTYPE (seen on 6.2.14): waiting ends as an outage."""
    wrapped = Exception(
        "ERR Error running script (call to f_0d0b5c3917b2e942d35ec704380f086f13b4b285): @user_script:41: "
        "WRONGTYPE Operation against a key holding the wrong kind of value"
    )
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, wrapped, at=0.1)
    talk.answers(1, wrapped)
    talk.said = []
    talk.refused(ConfigError)


def test_14_closing_a_lease_that_has_run_out_tells_its_holder() -> None:
    """SEMANTICS 23: close() ends everything. HELD, but past its deadline and not yet ticked, is neither released nor lost by it."""
    talk = held()
    talk.close(at=UNTIL + 0.5)
    assert talk.claim.state is LOST
    assert talk.news


# ---------------------------------------------------------------- earlier wakes, and notes, of which nobody is told


def test_15_B38_S27_whoever_gets_first_in_line_says_that_it_wants_to_be_woken_earlier() -> None:
    """`answered` "returns whether there is something to do: …, or an earlier wake": False here, so the crew's timer stays at ttl/3.

    With 0.5 s left of a dead holder's lease the waiter asks at 3.0 and not at 0.6.
    """
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(500, place=0), at=0.1)
    assert talk.claim.wake == pytest.approx(0.601)
    assert talk.claim.armed == pytest.approx(0.601)


def test_16_an_outage_that_begins_says_when_it_wants_to_be_woken() -> None:
    """The same for `broke`: an outage shorter than ttl/3 is noticed at the next heartbeat."""
    talk = Conversation(outage=0.5)
    talk.sends("request to 0 1 2")
    talk.breaks(0, at=0.1)
    talk.breaks(1)
    assert talk.claim.armed == pytest.approx(0.6)


def test_17_standing_in_line_is_told_when_it_begins() -> None:
    """The same for the event Queued: told only when something else makes the crew act, up to ttl/3 later."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    assert talk.answers(0, denied(), at=0.1)
    assert talk.notes == ["Queued"]


def test_18_standing_in_line_is_told_also_after_an_inquiry() -> None:
    """An inquiry sets `contended`, and whoever is contended is not told Queued any more."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.inquires(0, at=0.2)
    talk.sends("cede to 0")
    talk.answers(0, denied(), at=0.3)
    assert talk.notes == ["Queued"]


def test_19_somebody_who_waits_behind_a_holder_was_not_in_its_way() -> None:
    """Lease.contended: "was somebody else in the way?" """
    talk = held()
    talk.inquires(0, at=1.0)
    assert not talk.claim.contended


# ---------------------------------------------------------------- small


def test_20_a_lease_whose_owner_went_away_in_doubt_is_not_asked_for_at_a_node_that_comes_back() -> None:
    """SEMANTICS 12: dropped: renewal stops. `joined` in doubt renews it all the same."""
    talk = held(patience=1.0)
    for node in range(3):
        talk.breaks(node, at=1.0)
    talk.wakes(RENEWAL)
    talk.wakes(RENEWAL + 1.0)
    talk.claim.abandon()
    talk.joins(0, at=4.0)
    talk.sends()


def test_21_lost_comes_first_on_the_short_path_too() -> None:
    """An answer as usual after the deadline is only counted; the loss waits for the tick. (Nothing depends on it.)"""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, usual(), at=0.1)
    talk.answers(1, usual())
    talk.held()
    talk.answers(2, usual(), at=UNTIL)
    talk.said = []
    assert talk.claim.state is LOST


assert TTL == 9.0
