"""The claim, as conversations: given these answers in this order, it says that, is held until then, or is lost for this reason.

In the order of docs/protocol.md, section 6. A test's name carries the numbers of the behaviours (B) and scenarios (S) that it shows at this
level; "Rule C5." is a rule of that page. At the end two searches: the short path against the
long one, and claims with simulated nodes under faults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proof import patches
from protocol.conversation import (
    BEAT,
    FOREIGN,
    HORIZON,
    INBOX,
    OTHER,
    RENEWAL,
    TTL,
    UNTIL,
    Conversation,
    Mute,
    P,
    denied,
    good_until,
    granted,
    kept,
    node_set,
    usual,
)
from protocol.nodes import walk
from seeds import FROZEN

from holdfast.errors import ConfigError, LockBusy, NoQuorum, NotAcquired, Overtaken, message_of
from holdfast.protocol.claim import Claim, State
from holdfast.protocol.command import RELEASE, SHARED, WRITER
from holdfast.protocol.nodes import Standing
from holdfast.protocol.ticket import GOLDEN, Tickets
from holdfast.protocol.timing import Timing

Held = Callable[..., Conversation]
READONLY = Exception("READONLY You can't write against a read only replica.")
WRONGTYPE = Exception("WRONGTYPE Operation against a key holding the wrong kind of value")


@pytest.fixture(params=["short path", "vote by vote"])
def held(request: pytest.FixtureRequest) -> Held:
    """A conversation that has come to a lock held since 0.1, on all nodes that are up; the claim may have got there in two ways."""

    def start(nodes: int = 3, **how: object) -> Conversation:
        talk = Conversation(nodes, **how)  # type: ignore[arg-type]  # (options of several types)
        talk.sends(("request to " if how.get("patient", True) else "try to ") + " ".join(map(str, talk.node_set.up)))
        for node in talk.node_set.up:
            talk.answers(node, usual() if request.param == "short path" else granted(), at=0.1)
        talk.held()
        return talk

    return start


def everywhere(talk: Conversation) -> str:
    return " ".join(map(str, range(talk.node_set.size)))


def renewal(talk: Conversation, replies: Mapping[int, object]) -> None:
    """Every node is asked anew when the claim wants to, and these answer 0.1 s later, in this order."""
    talk.wakes()
    talk.sends(f"request to {everywhere(talk)}")
    for node, reply in replies.items():
        talk.answers(node, reply, at=talk.now + 0.1 if node == next(iter(replies)) else None)


# ---------------------------------------------------------------- acquiring


def test_before_anything_is_answered_nothing_is_known() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    claim = talk.claim
    assert (claim.state, claim.fence, claim.until, claim.limit, claim.since, claim.counted) == (State.WAITING, 0, 0.0, inf, 0.0, 0)
    assert (claim.ticket, claim.ttl, claim.patient, claim.contended, claim.doubt, claim.reason) == (P, TTL, True, False, False, "")
    assert claim.token.startswith(b"%016d:" % P)
    assert claim.counting(0.0) == 0


class Unfolding(Claim):
    """Another thread unfolds the votes as soon as somebody has looked at those that are not kept apart."""

    @property  # type: ignore[override]  # (a slot of the class)
    def as_usual(self) -> list[int] | None:
        nodes: list[int] | None = Claim.as_usual.__get__(self)  # type: ignore[attr-defined]  # (a slot)
        Claim.as_usual.__set__(self, None)  # type: ignore[attr-defined]  # (a slot)
        return nodes

    @as_usual.setter
    def as_usual(self, nodes: list[int] | None) -> None:
        Claim.as_usual.__set__(self, nodes)  # type: ignore[attr-defined]  # (a slot)


def counted_meanwhile() -> int:
    talk = Conversation()
    claim = Unfolding(talk.claim.recipe, Timing(TTL), P, talk.claim.tickets, talk.claim._node_set)
    claim.begin(0.0)
    claim.as_usual = [0, 1]
    return claim.counting(0.2)


def test_what_counts_can_be_asked_while_another_thread_unfolds_the_votes() -> None:
    assert counted_meanwhile() == 2


def test_votes_that_are_looked_at_twice_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    patches.method(monkeypatch, Claim, "counting", "return len(nodes)", "return len(self.as_usual)")
    with pytest.raises(TypeError):
        counted_meanwhile()


def test_times_are_counted_from_the_beginning() -> None:
    talk = Conversation(begins=1000.0, patient=False)
    talk.sends("try to 0 1 2")
    assert talk.claim.wake == 1000 + TTL / 3
    talk.answers(0, denied(), at=1000.25)
    talk.answers(1, denied())
    talk.sends("release to 0 1 2")
    assert talk.refused(LockBusy).waited == 0.25
    talk = Conversation(begins=1000.0, max_hold=20.0)
    talk.sends("request to 0 1 2")
    talk.answers(0, usual(), at=1000.25)
    talk.answers(1, usual())
    talk.held(P, until=1000 + UNTIL)
    assert (talk.claim.began, talk.claim.since, talk.claim.limit) == (1000.0, 1000.25, 1020.25)
    talk.wakes(1000 + RENEWAL)
    talk.sends("request to 0 1 2")


def test_answers_as_usual_are_only_counted() -> None:
    """No vote is kept apart for them: that is what the usual case owes its speed to."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    for node in (2, 0, 1):
        talk.answers(node, usual())
    assert talk.claim.as_usual == [2, 0, 1]
    assert not talk.claim.votes
    talk.wakes()
    talk.sends("request to 0 1 2")
    assert talk.claim.as_usual is None
    assert len(talk.claim.votes) == 3


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("reply", [usual(), granted()], ids=["short path", "vote by vote"])
def test_B16_it_is_held_as_soon_as_a_quorum_has_granted(nodes: int, reply: object) -> None:
    """Rule C1: a majority."""
    # Rule C5.
    talk = Conversation(nodes)
    talk.sends(f"request to {everywhere(talk)}")
    for node in range(nodes // 2):
        talk.answers(node, reply, at=0.1)
        talk.waits()
    talk.answers(nodes // 2, reply, at=0.2)
    talk.held(P, until=UNTIL)
    assert talk.claim.since == 0.2
    for node in range(nodes // 2 + 1, nodes):  # the rest is only counted
        assert not talk.answers(node, reply, at=0.3)
    talk.held(P, until=UNTIL)
    assert talk.claim.counting(0.3) == nodes
    assert talk.claim.counting(UNTIL) == 0
    assert not talk.claim.contended


def test_B16_a_minority_that_is_down_is_not_asked_and_not_needed() -> None:
    talk = Conversation(3, standing={1: Standing.DOWN})
    talk.sends("request to 0 2")
    talk.answers(0, usual(), at=0.1)
    talk.answers(2, usual(), at=0.1)
    talk.held(P, until=UNTIL)


@pytest.mark.parametrize("reply", [usual(), granted()], ids=["short path", "vote by vote"])
def test_B20_a_lease_is_good_from_the_sending_of_its_request(reply: object) -> None:
    """Rule C2: validity does not count from the answer, and drift is taken off."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, reply, at=5.0)
    talk.answers(1, reply, at=6.0)
    talk.held(P, until=9 - 0.09 - 0.002)


@pytest.mark.parametrize("first", [0.1, UNTIL])
@pytest.mark.parametrize("reply", [usual(), granted()], ids=["short path", "vote by vote"])
def test_B20_S01_what_is_granted_too_late_is_no_grant(reply: object, first: float) -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, reply, at=first)
    talk.answers(1, reply, at=UNTIL)
    talk.waits()
    assert talk.claim.counting(UNTIL) == 0
    talk.tick(UNTIL)  # (its heartbeat, which came as late as that)
    talk.sends("request to 0 1")
    talk.answers(0, kept(), at=9.0)
    talk.answers(1, kept())
    talk.held(P, until=good_until(UNTIL))


def test_the_deadline_is_what_a_quorum_is_good_for() -> None:
    """The q-th largest bound of those that count, not the largest and not the least."""
    talk = Conversation(5, standing={3: Standing.CONNECTING, 4: Standing.CONNECTING})
    talk.sends("request to 0 1 2")
    talk.joins(3, at=1.0)
    talk.sends("request to 3")
    talk.joins(4, at=2.0)
    talk.sends("request to 4")
    for node in (0, 3, 4):
        talk.answers(node, granted(), at=2.1)
    talk.held(until=UNTIL)
    talk.answers(1, granted(), at=2.2)
    talk.held(until=UNTIL)
    talk.breaks(0, at=2.3)  # it counts on
    talk.held(until=UNTIL)


def test_the_deadline_is_also_by_those_that_have_another_fence() -> None:
    talk = Conversation(3, standing={1: Standing.CONNECTING, 2: Standing.CONNECTING})
    talk.sends("request to 0")
    for node in (1, 2):
        talk.joins(node, at=1.0)
        talk.sends(f"request to {node}")
    talk.answers(1, granted(), at=1.1)
    talk.answers(0, granted(P + 5))
    talk.sends(f"request to 1 proposing {P + 5}")
    talk.answers(2, granted())
    talk.held(P, until=good_until(1.0))  # 0 counts, but only until 8.9


# ---------------------------------------------------------------- one fence


def test_B51_a_quorum_must_have_granted_the_same_fence() -> None:
    """Rule F8: T is not the largest fence that was seen."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(P + 5), at=0.1)
    talk.answers(1, granted(P), at=0.1)
    talk.waits()
    talk.sends(f"request to 1 proposing {P + 5}")
    talk.answers(1, kept(P + 5), at=0.2)
    talk.held(P + 5, until=UNTIL)


def test_a_fence_that_others_agree_on_is_taken_though_one_has_more() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(P + 5), at=0.1)
    talk.answers(1, granted(P))
    talk.sends(f"request to 1 proposing {P + 5}")
    talk.answers(2, granted(P))
    talk.held(P, until=UNTIL)


def test_a_fence_is_written_back_once_to_those_that_have_less() -> None:
    # Rule F9.
    talk = Conversation(5)
    talk.sends("request to 0 1 2 3 4")
    talk.answers(0, granted(P + 5), at=0.1)
    talk.answers(1, granted(P))
    talk.answers(2, granted(P + 1))
    talk.sends(f"request to 1 2 proposing {P + 5}")
    talk.answers(3, granted(P + 2))
    talk.sends(f"request to 3 proposing {P + 5}")  # not to 1 and 2 again
    talk.answers(1, kept(P + 6))  # (it was asked by somebody else in between)
    talk.sends(f"request to 0 2 3 proposing {P + 6}")
    talk.answers(4, granted(P + 6))
    talk.waits()
    talk.wakes(BEAT)  # heartbeats propose it, too
    talk.sends(f"request to 1 4 proposing {P + 6}")
    talk.answers(2, kept(P + 5), at=3.1)
    talk.answers(2, kept(P + 6))
    talk.held(P + 6)
    talk.wakes()  # and so do renewals
    talk.sends(f"request to 0 1 2 4 proposing {P + 6}")  # (3 owes two)


def test_a_fence_is_not_written_back_before_a_quorum_counts() -> None:
    talk = Conversation(5)
    talk.sends("request to 0 1 2 3 4")
    talk.answers(0, granted(P + 5), at=0.1)
    assert not talk.answers(1, granted(P))
    talk.waits()


def test_a_node_that_was_lost_is_written_to_anew() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(P + 5), at=0.1)
    talk.answers(1, granted(P))
    talk.sends(f"request to 1 proposing {P + 5}")
    talk.answers(1, denied(), at=0.2)
    talk.grants(1, P + 1, at=0.3)
    talk.sends(f"request to 1 proposing {P + 5}")
    talk.takes(1, at=0.4)
    talk.grants(1, P + 2, at=0.5)
    talk.sends(f"request to 1 proposing {P + 5}")


def test_what_was_being_written_to_a_broken_connection_is_said_after_the_reconnect() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(P + 5), at=0.1)
    talk.answers(1, granted(P))
    talk.sends(f"request to 1 proposing {P + 5}")
    assert not talk.breaks(1, at=0.2)  # nobody is there to be written to
    talk.joins(1, at=0.3)
    talk.sends(f"request to 1 proposing {P + 5}")
    talk.answers(1, kept(P + 5), at=0.4)
    talk.held(P + 5, until=UNTIL)


def test_a_try_writes_back_as_a_try() -> None:
    talk = Conversation(patient=False)
    talk.sends("try to 0 1 2")
    talk.answers(0, granted(P + 5), at=0.1)
    talk.answers(1, granted(P))
    talk.sends(f"try to 1 proposing {P + 5}")
    talk.answers(1, kept(P + 5), at=0.2)
    talk.held(P + 5, until=UNTIL)


# ---------------------------------------------------------------- waiting


def test_heartbeats_go_to_every_node_that_owes_nothing() -> None:
    """Rule T3: a silent connection is broken in the end (that is the connection's business; until then it is not asked again)."""
    # Rule Q12.
    talk = Conversation(4)
    talk.sends("request to 0 1 2 3")
    talk.answers(0, denied(), at=0.1)
    talk.answers(1, granted())
    talk.breaks(3)
    talk.wakes(BEAT)
    talk.sends("request to 0 1")  # 2 has not answered, 3 is not there
    talk.answers(2, denied(), at=4.0)
    talk.answers(1, kept())
    talk.wakes(2 * BEAT)
    talk.sends("request to 1 2")  # now 0 has not
    talk.answers(0, denied(), at=6.1)
    talk.wakes(3 * BEAT)
    talk.sends("request to 0")
    talk.waits()


def test_an_error_is_an_answer_and_the_node_is_asked_again_at_the_heartbeat() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, READONLY, at=0.1)
    talk.wakes(BEAT)
    talk.sends("request to 0")


def test_whoever_waits_in_line_says_so_once() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    assert talk.answers(0, denied(), at=0.1), "observers are told at once"
    talk.answers(1, denied())
    assert talk.notes == ["Queued"]
    assert talk.claim.contended


def test_whoever_waits_in_line_knows_its_place_at_the_node_that_said_so_first() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(place=2), at=0.1)
    talk.answers(1, denied(place=1))
    assert talk.claim.place == 2


def test_a_confirmed_renewal_says_what_was_left_before_it(held: Held) -> None:
    talk = held()
    renewal(talk, {0: kept(), 1: kept()})
    confirmed = talk.now
    assert talk.claim.left == pytest.approx(UNTIL - confirmed)
    assert talk.claim.until > UNTIL


@pytest.mark.parametrize("reason", ["expired", "slow", "max_hold", "forced", "closed"])
def test_a_lease_whose_owner_is_gone_and_whose_time_is_over_was_dropped(held: Held, reason: str) -> None:
    talk = held(patience=1.0, **({"max_hold": 5.0} if reason == "max_hold" else {}))
    talk.claim.abandon()
    if reason == "forced":
        talk.takes(0, at=1.0)
        talk.takes(1)
    elif reason == "closed":
        talk.close(at=1.0)
    else:
        talk.close(at={"expired": UNTIL + 0.5, "slow": UNTIL + 1.5, "max_hold": 5.5}[reason])
    talk.lost(reason if reason in ("forced", "closed") else "dropped")


def test_the_number_of_an_acquisition_stays_when_its_ticket_does_not() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.claim.moved(-60.0, 0.1)
    assert (talk.claim.want, talk.claim.ticket) == (P, P - 60_000_000)


def test_an_inquiry_does_not_keep_it_from_being_told_that_it_waits_in_line() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.inquires(0, at=0.2)
    talk.sends("cede to 0")
    assert talk.claim.contended
    talk.answers(0, denied(), at=0.3)
    assert talk.notes == ["Queued"]


def test_whoever_comes_after_a_holder_was_not_in_its_way(held: Held) -> None:
    talk = held()
    talk.inquires(0, at=1.0)
    assert not talk.claim.contended


@pytest.mark.parametrize("left", [0, 1, 500])
def test_B38_S27_first_in_line_asks_again_when_the_holders_key_has_run_out(left: int) -> None:
    # Rule Q13.
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(2000, place=0), at=0.1)
    talk.answers(1, denied(left, place=0), at=0.2)
    talk.answers(2, denied(3, place=1))  # second in line: somebody else will ask
    talk.tick(0.2 + left / 1000)
    talk.sends()
    talk.wakes(0.2 + left / 1000 + 0.001)
    talk.sends("request to 1")
    talk.answers(1, denied(9000, place=1))
    talk.tick(talk.now)
    talk.sends()  # once for each denial that tells it that it is first
    talk.wakes(0.1 + 2.0 + 0.001)
    talk.sends("request to 0")
    talk.wakes(BEAT)
    talk.sends("request to 1 2")
    talk.wakes(2 * BEAT)
    talk.sends()


@pytest.mark.parametrize("left", [-1, -2])
def test_a_key_that_does_not_run_out_is_not_waited_for(left: int) -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(left, place=0), at=0.1)
    talk.tick(0.2)
    talk.sends()
    talk.wakes(BEAT)
    talk.sends("request to 0")


def test_what_was_granted_in_the_meantime_is_not_asked_for_when_the_holders_key_runs_out() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(500, place=0), at=0.1)
    talk.grants(0, P + 1, at=0.2)
    talk.wakes(0.601)
    talk.sends()
    talk.wakes(BEAT)
    talk.sends("request to 0")


def test_a_node_that_owes_an_answer_will_say_whether_the_holders_key_has_run_out() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(2950, place=0), at=0.1)
    talk.wakes(BEAT)
    talk.sends("request to 0")
    talk.wakes(3.051)
    talk.sends()
    talk.wakes(2 * BEAT)
    talk.sends()


def test_a_broken_connection_takes_the_holders_expiry_with_it() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(500, place=0), at=0.1)
    talk.breaks(0, at=0.2)
    talk.joins(0, at=0.3)
    talk.sends("request to 0")
    talk.answers(0, denied(9000, place=3), at=0.4)
    talk.tick(0.601)
    talk.sends()
    talk.wakes(BEAT)
    talk.sends("request to 0")


# ---------------------------------------------------------------- holders of another kind


def foreign(left: int = 5000, place: int = 0, holder: bytes = FOREIGN) -> list[object]:
    """A client that hands nothing on when it leaves has it."""
    return denied(left, place, holder)


def watching(**how: object) -> Conversation:
    """A foreign holder on node 0 is being watched since 0.2."""
    talk = Conversation(**how)  # type: ignore[arg-type]  # (options of several types)
    talk.sends("request to 0 1 2")
    talk.answers(0, foreign(), at=0.1)
    talk.sends("request watching to 0")
    assert not talk.answers(0, foreign(4900), at=0.2)
    return talk


def test_the_first_in_line_has_a_foreign_holder_watched_once() -> None:
    # Rule Q14.
    talk = watching()
    for node in (1, 2):
        talk.answers(node, denied(place=1))
    talk.wakes(BEAT)
    talk.sends("request to 0 1 2")
    talk.answers(0, foreign(2000), at=3.1)
    talk.sends()
    talk.answers(1, foreign(2000, holder=b"else"))  # on every node where it is first in line
    talk.sends("request watching to 1")


def test_the_first_in_line_has_readers_watched() -> None:
    # Rule Q14. The release of a read lock hands on in the queue of read-write locks only.
    talk = Conversation()
    talk.sends("request to 0 1 2")
    for node in range(3):
        talk.answers(node, foreign(2000, holder=SHARED), at=0.1)
        talk.sends(f"request watching to {node}")
    for node in range(3):
        talk.answers(node, foreign(1900, holder=SHARED), at=0.2)
    talk.sends()
    for node in (0, 1):
        talk.changes(node, at=1.0)  # the last reader has gone
        talk.sends(f"request watching to {node}")
    for node in (0, 1):
        talk.answers(node, granted(), at=1.1)
    talk.held()


@pytest.mark.parametrize("value", [FOREIGN, b""], ids=["a value", "an empty value"])
def test_S11_a_value_without_an_expiry_is_a_holder_that_is_watched_and_looked_at_every_third_of_a_ttl(value: bytes) -> None:
    talk = Conversation(outage=1.0)
    talk.sends("request to 0 1 2")
    for node in range(3):
        talk.answers(node, foreign(-1, holder=value), at=0.1)
        talk.sends(f"request watching to {node}")
    assert talk.unfit == [0, 1, 2], "operators are warned"
    for node in range(3):
        talk.answers(node, foreign(-1, holder=value), at=0.2)
    for beat in range(1, 5):
        talk.wakes(beat * BEAT)  # no earlier: there is no expiry to wait for
        talk.sends("request to 0 1 2")
        for node in range(3):
            talk.answers(node, foreign(-1, holder=value), at=beat * BEAT + 0.1)
        talk.waits()
    for node in (0, 1):
        talk.changes(node, at=13.0)  # its owner has removed it
        talk.sends(f"request watching to {node}")
    for node in (0, 1):
        talk.answers(node, granted(), at=13.1)
    talk.held()


def test_another_foreign_holder_is_watched_anew() -> None:
    talk = watching()
    talk.wakes(BEAT)
    talk.sends("request to 0")
    talk.answers(0, foreign(9000, holder=b"else"), at=3.1)
    talk.sends("request watching to 0")
    assert not talk.answers(0, foreign(9000, holder=b"a third"))  # that was a watching question: it is watched already
    talk.tick(2 * BEAT)
    talk.sends("request to 0")
    assert not talk.answers(0, foreign(9000, holder=b"a third"), at=6.1)


@pytest.mark.parametrize(
    "reply",
    [
        foreign(place=1),
        foreign(place=-1),
        denied(place=0),
        denied(place=0, holder=None),
        foreign(-1, place=1),
        denied(-1, place=0),
        denied(-2, place=0, holder=None),
        denied(-2, place=0),
    ],
    ids=["second in line", "not in line", "ours", "nobody", "second behind what lasts", "ours that lasts", "no key", "of no key"],
)
def test_others_do_not_watch_and_ours_are_not_watched(reply: object) -> None:
    """Ours hand the lock on when they leave; and the first in line asks as soon as something happens."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, reply, at=0.1)
    talk.sends()
    assert not talk.changes(0, at=0.2)


@pytest.mark.parametrize("patient", [True, False])
def test_a_try_and_a_holder_watch_nobody(patient: bool) -> None:
    talk = Conversation(patient=patient)
    talk.sends("request to 0 1 2" if patient else "try to 0 1 2")
    if patient:
        for node in (0, 1):
            talk.answers(node, granted(), at=0.1)
        talk.held()
        talk.answers(2, foreign())
    else:
        talk.answers(0, foreign(), at=0.1)
    talk.sends()


class Looked(Claim):
    """Another thread looks at the claim as soon as its state changes."""

    __slots__ = ()

    @property  # type: ignore[override]  # (a slot of the class)
    def state(self) -> State:
        state: State = Claim.state.__get__(self)  # type: ignore[attr-defined]  # (a slot)
        return state

    @state.setter
    def state(self, state: State) -> None:
        Claim.state.__set__(self, state)  # type: ignore[attr-defined]  # (a slot)
        seen.append((state, self.reason))


seen: list[tuple[State, str]] = []


def test_whoever_sees_that_it_is_lost_is_told_why(held: Held) -> None:
    talk = held()
    talk.claim.__class__ = Looked
    seen.clear()
    talk.close(at=2.0)
    assert seen == [(State.LOST, "closed")]


def test_a_change_is_a_reason_to_ask_and_to_watch_again() -> None:
    talk = watching()
    assert talk.changes(0, at=0.3)
    talk.sends("request watching to 0")
    talk.answers(0, foreign(9000), at=0.4)  # it has only made its lease longer
    talk.sends()
    talk.changes(0, at=0.5)
    talk.sends("request watching to 0")
    talk.answers(0, granted(), at=0.6)
    talk.answers(1, granted())
    talk.held()
    assert not talk.changes(0, at=0.7)


def test_a_change_tells_of_what_is_watched_only() -> None:
    talk = watching()
    assert not talk.changes(1, at=0.3)  # a node that was not asked to tell (another claim has watched the same key)
    assert talk.changes(0)
    talk.sends("request watching to 0")
    assert not talk.changes(0)  # once: whoever asks again will hear


def test_a_change_before_anything_was_answered_is_nobodys() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    assert not talk.changes(0, at=0.1)
    talk.answers(0, usual())
    assert not talk.changes(0)


def test_a_change_is_nothing_to_whoever_has_ended() -> None:
    talk = watching()
    talk.release(at=0.3)
    talk.sends("release to 0 1 2")
    assert not talk.changes(0, at=0.4)


def test_a_broken_connection_watches_nobody() -> None:
    talk = watching()
    talk.breaks(0, at=0.3)
    assert not talk.changes(0)
    talk.joins(0, at=0.4)
    talk.sends("request to 0")
    talk.answers(0, foreign(4000), at=0.5)  # the same one as before
    talk.sends("request watching to 0")
    talk.breaks(0, at=0.6)
    talk.joins(0)
    talk.sends("request to 0")
    talk.answers(0, foreign(4000))
    talk.sends("request watching to 0")


def test_a_token_that_starts_over_watches_anew() -> None:
    talk = watching()
    talk.answers(1, granted(lower=True))
    talk.sends("cede to 1")
    talk.breaks(1, at=0.3)
    talk.sends("request to 0 2", "release old to 0 1 2")
    assert not talk.changes(0)
    talk.answers(0, foreign(4000), at=0.4)
    talk.sends("request watching to 0")


# ---------------------------------------------------------------- a node whose keys are gone


def test_a_holder_asks_a_node_that_was_flushed_at_once(held: Held) -> None:
    # Rule C15.
    talk = held()
    assert talk.flushes(1, at=0.5)
    talk.sends("request to 1")
    assert not talk.flushes(1, at=0.6), "the answer that is owed will tell"
    assert talk.flushes(2)
    talk.sends("request to 2")
    talk.answers(1, granted(), at=0.7)
    talk.answers(2, kept(), at=0.7)  # another database's keys were gone
    talk.held(until=good_until(0.5))
    talk.wakes(RENEWAL)  # as planned
    talk.sends("request to 0 1 2")
    assert not talk.flushes(0)


def test_a_holder_is_told_within_a_trip_that_a_majority_was_flushed(held: Held) -> None:
    talk = held()
    talk.flushes(0, at=0.5)
    talk.sends("request to 0")
    talk.flushes(1)
    talk.sends("request to 1")
    talk.answers(0, granted(), at=0.6)
    talk.held()
    talk.answers(1, granted())
    talk.lost("gap")


def test_a_node_that_was_flushed_and_is_somebody_elses_is_no_vote_of_ours(held: Held) -> None:
    talk = held()
    talk.flushes(0, at=0.5)
    talk.sends("request to 0")
    talk.answers(0, denied(), at=0.6)
    talk.held()
    assert talk.claim.counting(0.6) == 2


def test_a_lease_that_is_not_renewed_is_not_made_longer_by_a_flush(held: Held) -> None:
    talk = held(renew=False)
    for node in range(3):
        talk.flushes(node, at=4.0 + node)
        talk.sends(f"request to {node} for {UNTIL - 4.0 - node}")
        talk.answers(node, kept())
    talk.held(until=UNTIL)
    talk.lost_at(UNTIL)


def test_a_lease_that_is_about_to_end_asks_for_a_millisecond_at_least(held: Held) -> None:
    talk = held(renew=False)
    talk.flushes(0, at=UNTIL - 0.0001)
    talk.sends("request to 0 for 0.001")


def test_a_lease_that_has_run_out_is_lost_when_it_hears_of_a_flush(held: Held) -> None:
    talk = held()
    talk.flushes(0, at=UNTIL)
    talk.lost("slow")


def test_a_burnt_node_is_not_asked_when_it_was_flushed() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(lower=True), at=0.1)
    talk.sends("cede to 0")
    talk.answers(1, granted())
    talk.answers(2, granted())
    talk.held()
    talk.breaks(0)
    talk.joins(0)
    talk.sends("release to 0")
    assert not talk.flushes(0)


@pytest.mark.parametrize("standing", [Standing.GUARDED, Standing.CONNECTING, Standing.DOWN])
def test_a_node_that_cannot_be_spoken_to_is_not_asked_when_it_was_flushed(held: Held, standing: Standing) -> None:
    talk = held()
    talk.breaks(0, standing=standing)
    assert not talk.flushes(0, at=0.5)
    talk.joins(0, at=0.6)
    assert talk.flushes(0), "no answer is owed"
    talk.sends("request to 0")


@pytest.mark.parametrize("state", ["asked", "waits", "released"])
def test_only_holders_ask_at_once_and_whoever_watches(state: str) -> None:
    """So holders ask first: a waiter that took a flushed node might have the lock before its holder knows."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    if state == "waits":
        talk.answers(0, denied(), at=0.1)
    elif state == "released":
        talk.release()
        talk.sends("release to 0 1 2")
    assert not talk.flushes(0)
    talk = watching()
    assert talk.flushes(0, at=0.3)
    talk.sends("request watching to 0")


# ---------------------------------------------------------------- pushed grants


def test_a_pushed_grant_is_good_from_the_sending_of_the_last_answered_request() -> None:
    """Rule C3: a push does not count from its arrival."""
    talk = Conversation(1)
    talk.sends("request to 0")
    talk.answers(0, denied(), at=0.1)
    talk.wakes(BEAT)
    talk.sends("request to 0")  # not answered: it may never have arrived
    talk.grants(0, P + 1, at=5.0)
    talk.held(P + 1, until=UNTIL)


def test_a_request_that_is_denied_moves_the_bound_of_a_later_push() -> None:
    talk = Conversation(1)
    talk.sends("request to 0")
    talk.answers(0, denied(), at=0.1)
    talk.wakes(BEAT)
    talk.sends("request to 0")
    talk.answers(0, denied(), at=3.1)
    talk.grants(0, P + 1, at=5.0)
    talk.held(P + 1, until=good_until(BEAT))


def test_a_request_that_fails_moves_no_bound() -> None:
    """Rule C4: only an answer moves the bound."""
    talk = Conversation(1)
    talk.sends("request to 0")
    talk.answers(0, denied(), at=0.1)
    talk.wakes(BEAT)
    talk.sends("request to 0")
    talk.answers(0, READONLY, at=3.1)
    talk.grants(0, P + 1, at=5.0)
    talk.held(P + 1, until=UNTIL)


def test_a_push_that_is_read_too_late_is_no_grant() -> None:
    talk = Conversation(1)
    talk.sends("request to 0")
    talk.answers(0, denied(), at=0.1)
    talk.grants(0, P + 1, at=UNTIL)
    talk.waits()


def test_a_push_before_the_first_answer_has_no_bound() -> None:
    talk = Conversation(1)
    talk.sends("request to 0")
    assert not talk.grants(0, P, at=0.1)
    talk.waits()
    talk.answers(0, kept(P), at=0.2)
    talk.held(P, until=UNTIL)


def test_a_push_before_the_first_answer_on_a_new_connection_has_no_bound() -> None:
    talk = Conversation(1)
    talk.sends("request to 0")
    talk.answers(0, denied(), at=0.1)
    talk.breaks(0, at=0.2)
    talk.joins(0, at=0.3)
    talk.sends("request to 0")
    assert not talk.grants(0, P, at=0.4)
    talk.waits()
    talk.answers(0, kept(P), at=0.5)
    talk.held(P, until=good_until(0.3))


def test_a_push_of_an_unknown_kind_is_nothing() -> None:
    """What a newer script may say one day must not count as a grant, nor as a loss."""
    talk = Conversation(1)
    talk.sends("request to 0")
    talk.answers(0, denied(), at=0.1)
    assert not talk.claim.pushed(0, b"z", P + 1, 0.2)
    talk.grants(0, P + 1, at=0.3)
    talk.held(P + 1)
    assert not talk.claim.pushed(0, b"z", P + 1, 0.4)
    talk.held(P + 1)


def test_a_waiter_that_heeds_news_gives_up_when_enough_nodes_have_some() -> None:
    talk = Conversation(5, news_needed=2)
    talk.sends("request to 0 1 2 3 4")
    assert not talk.hears(1, at=0.1)
    assert not talk.hears(1, at=0.2), "the same node says nothing new"
    talk.waits()
    assert talk.hears(4, at=0.3)
    talk.sends("release to 0 1 2 3 4")
    assert talk.refused(Overtaken).waited == 0.3
    assert not talk.hears(2, at=0.4), "it is over"


def test_news_are_nothing_to_who_does_not_heed_them_or_holds_the_lock(held: Held) -> None:
    talk = Conversation(3)
    talk.sends("request to 0 1 2")
    assert not any(talk.hears(node, at=0.1) for node in range(3))
    talk.waits()
    talk = held(news_needed=1)
    assert not any(talk.hears(node, at=0.2) for node in range(3))
    talk.held()


def test_an_operator_takes_a_waiters_grant_away() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.takes(0, at=0.2)
    talk.answers(1, granted())
    talk.waits()
    talk.answers(2, granted())
    talk.held(P, until=UNTIL)
    assert talk.claim.counting(0.2) == 2


# ---------------------------------------------------------------- inquiry and cede


def test_a_waiter_makes_way_as_soon_as_it_hears_of_a_lower_ticket() -> None:
    """Rule Q8: it does not wait for all nodes to answer."""
    talk = Conversation(5)
    talk.sends("request to 0 1 2 3 4")
    talk.answers(0, granted(lower=True), at=0.1)  # told with the grant
    talk.sends("cede to 0")
    talk.answers(1, granted(), at=0.2)
    talk.inquires(1, at=0.3)  # told afterwards
    talk.sends("cede to 1")
    talk.waits()


def test_an_inquiry_at_a_node_that_has_not_granted_is_nothing() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(), at=0.1)
    talk.inquires(0, at=0.2)
    talk.sends()
    talk.grants(0, P + 1, at=0.3)  # granted since: nobody lower is there
    talk.sends()


def test_a_grant_that_has_run_out_is_not_ceded() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.inquires(0, at=UNTIL)
    talk.sends()


def test_a_holder_does_not_make_way(held: Held) -> None:
    talk = held()
    talk.inquires(0, at=0.2)
    talk.sends()
    renewal(talk, {0: kept(lower=True), 1: kept(lower=True)})
    talk.held(P, until=good_until(RENEWAL))
    talk.sends()


def test_the_vote_that_makes_it_held_is_not_ceded() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.answers(1, granted(lower=True), at=0.1)
    talk.held(P)
    talk.sends()


def test_votes_with_two_fences_are_ceded_and_not_written_to() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(P + 5), at=0.1)
    talk.answers(1, granted(lower=True))
    talk.sends("cede to 1")
    talk.waits()


def test_a_try_does_not_make_way() -> None:
    talk = Conversation(patient=False)
    talk.sends("try to 0 1 2")
    talk.answers(0, granted(lower=True), at=0.1)
    talk.inquires(0)
    talk.waits()
    talk.sends()


def test_nothing_counts_from_a_cede_to_its_answer() -> None:
    """Rule Q9."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.wakes(BEAT)
    talk.sends("request to 0")
    talk.inquires(0, at=3.1)
    talk.sends("cede to 0")
    assert talk.claim.counting(3.1) == 0
    assert not talk.answers(0, kept(lower=True), at=3.2)  # of the heartbeat: said before the cede arrived
    for push in (talk.takes, talk.inquires, lambda node: talk.grants(node, P + 1)):
        assert not push(0)
        assert talk.claim.counting(3.2) == 0
    talk.answers(1, granted())
    talk.waits()
    assert talk.claim.counting(3.2) == 1
    talk.wakes(2 * BEAT)
    talk.sends("request to 1")  # the cede is not answered, so 0 is not asked


def test_a_cede_that_was_followed_is_answered_with_a_denial() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(lower=True), at=0.1)
    talk.sends("cede to 0")
    talk.answers(0, denied(), at=0.2)
    talk.answers(1, granted())
    talk.waits()
    talk.grants(0, P, at=0.5)  # the lower one is through; the cede was a request, too
    talk.held(P, until=UNTIL)
    talk.breaks(1, at=0.6)
    talk.held(P, until=UNTIL)


@pytest.mark.parametrize("reply", [kept(), granted()], ids=["nobody lower was there any more", "it came back at once"])
def test_what_the_answer_to_a_cede_grants_counts(reply: object) -> None:
    talk = Conversation(1)
    talk.sends("request to 0")
    talk.answers(0, denied(), at=0.1)
    talk.wakes(BEAT)
    talk.sends("request to 0")
    talk.answers(0, granted(lower=True), at=3.1)
    talk.held(P)  # N = 1: one grant is all
    talk = Conversation(3)
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(lower=True), at=0.5)
    talk.sends("cede to 0")
    talk.answers(0, reply, at=0.6)
    talk.answers(1, granted())
    talk.held(P, until=UNTIL)
    assert talk.claim.votes[0].bound == pytest.approx(good_until(0.5))  # it was a request as well


def test_a_cede_is_followed_by_another_if_another_lower_ticket_comes() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(lower=True), at=0.1)
    talk.sends("cede to 0")
    talk.answers(0, kept(), at=0.2)
    talk.inquires(0, at=0.3)
    talk.sends("cede to 0")


def test_nobody_is_ceded_to_through_a_broken_connection() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.breaks(0, at=0.2)
    talk.inquires(0)  # (nothing can arrive on it; but would it?)
    talk.sends()


# ---------------------------------------------------------------- a cede that is never answered


def test_a_waiter_whose_cede_was_cut_starts_over() -> None:
    """Rules Q10 and Q11."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(P + 5, lower=True), at=0.1)
    talk.sends("cede to 0")
    talk.breaks(0, at=0.2)
    talk.sends("request to 1 2", "release old to 0 1 2")  # in this order: the new one stands in line before the old one leaves
    claim = talk.claim
    assert claim.token != talk.token
    assert claim.token[:50] == talk.token[:50], "the same ticket and inbox, and so the same place in line"
    assert claim.routed == talk.token  # the engine has to learn the new one
    assert not talk.answers(1, granted())  # still about the old one
    talk.waits()
    assert claim.counting(0.2) == 0
    assert not talk.grants(1, P)  # nothing has been answered to the new one
    talk.answers(1, kept(), at=0.4)
    talk.joins(0, at=0.5)
    talk.sends("request to 0")
    talk.answers(0, granted(), at=0.6)
    talk.held(P, until=good_until(0.2))
    talk.release(at=0.7)
    talk.sends("release to 0 1 2")


def test_a_lone_nodes_cut_cede_does_not_leave_the_waiter_stuck() -> None:
    """Rule Q11: with N = 1 it would get stuck. Two nodes stand for one: alone, a grant is the lock."""
    talk = Conversation(2)
    talk.sends("request to 0 1")
    talk.answers(0, granted(lower=True), at=0.1)
    talk.sends("cede to 0")
    talk.breaks(1, at=0.2)
    talk.breaks(0, at=0.2)
    talk.sends("release old to 0 1")  # nobody is there to be asked
    for node in (0, 1):
        talk.joins(node, at=0.3)
        talk.sends(f"request to {node}")
        talk.answers(node, granted())
    talk.held(P, until=good_until(0.3))


def test_an_error_instead_of_the_answer_to_a_cede_is_the_same() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(lower=True), at=0.1)
    talk.sends("cede to 0")
    talk.answers(0, READONLY, at=0.2)
    talk.sends("request to 0 1 2", "release old to 0 1 2")
    talk.answers(0, granted(), at=0.3)
    talk.waits()
    assert talk.claim.counting(0.3) == 1


def test_an_error_instead_of_another_answer_is_not_the_same() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.wakes(BEAT)
    talk.sends("request to 0")
    talk.inquires(0, at=3.1)
    talk.sends("cede to 0")
    talk.answers(0, READONLY, at=3.2)  # that was the heartbeat
    talk.sends()
    talk.answers(0, kept(), at=3.3)
    assert talk.claim.counting(3.3) == 1
    talk.answers(1, READONLY)
    talk.sends()
    assert talk.claim.token is talk.token


def test_whoever_starts_over_proposes_what_it_had_come_to() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(P + 5), at=0.1)
    talk.answers(1, granted())
    talk.sends(f"request to 1 proposing {P + 5}")
    talk.inquires(0)
    talk.sends(f"cede to 0 proposing {P + 5}")
    talk.breaks(0)
    talk.sends(f"request to 1 2 proposing {P + 5}", "release old to 0 1 2")


def held_with_a_cede_unanswered() -> Conversation:
    """Node 0 is being ceded, and the other two are enough."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(lower=True), at=0.1)
    talk.sends("cede to 0")
    talk.answers(1, granted())
    talk.answers(2, granted())
    talk.held(P, until=UNTIL)
    assert talk.claim.counting(0.1) == 2
    return talk


@pytest.mark.parametrize("cut", ["connection", "error"])
def test_a_holder_never_counts_again_a_node_whose_cede_was_cut(cut: str) -> None:
    """Rule Q10."""
    talk = held_with_a_cede_unanswered()
    if cut == "connection":
        talk.breaks(0, at=0.2)
        talk.joins(0, at=0.3)
        talk.sends("release to 0")  # it may have granted again since
    else:
        talk.answers(0, READONLY, at=0.2)
    talk.held(P, until=UNTIL)
    assert talk.grants(0, P + 1, at=0.4)
    talk.sends("release to 0")  # whenever it does
    assert not talk.inquires(0)
    assert not talk.takes(0)
    talk.extend(at=1.0)
    talk.sends("request to 1 2")
    talk.answers(1, kept(), at=1.1)
    talk.answers(2, kept())
    talk.held(P, until=good_until(1.0))
    talk.wakes(RENEWAL)
    talk.sends("request to 1 2")  # no renewals there
    talk.answers(1, kept(), at=3.0)
    assert talk.claim.counting(3.0) == 2
    talk.lost_at(good_until(1.0))  # 0 would make it more, and does not


@pytest.mark.parametrize("reply", [kept(), granted(P + 1)])
def test_what_a_burnt_node_still_answers_is_given_back(reply: object) -> None:
    talk = held_with_a_cede_unanswered()
    talk.tick(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.answers(0, READONLY, at=3.0)
    assert talk.answers(0, reply)
    talk.sends("release to 0")
    assert talk.claim.counting(3.0) == 2
    talk.answers(1, kept())
    talk.held(P, until=UNTIL)


def test_what_a_burnt_node_denies_is_nothing() -> None:
    talk = held_with_a_cede_unanswered()
    talk.tick(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.answers(0, READONLY, at=3.0)
    assert not talk.answers(0, denied())
    talk.held(P, until=UNTIL)


def test_a_holder_counts_a_node_again_once_its_cede_is_answered() -> None:
    talk = held_with_a_cede_unanswered()
    talk.tick(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(), at=3.0)
    talk.answers(0, granted(P + 1))
    talk.answers(1, kept())
    talk.held(P, until=good_until(RENEWAL))
    assert talk.claim.counting(3.0) == 3


@pytest.mark.parametrize("ttl, ahead", [(9.0, 0.1), (3.0, 0.1), (0.3, 0.01)])
def test_a_renewal_may_leave_a_little_before_it_is_due(ttl: float, ahead: float) -> None:
    for sooner, renewed in ((ahead * 0.99, True), (ahead * 1.01, False)):
        talk = Conversation(ttl=ttl)
        talk.sends("request to 0 1 2")
        for node in range(3):
            talk.answers(node, usual())
        talk.tick(talk.claim.wake - sooner)
        talk.sends(*["request to 0 1 2"] * renewed)


# ---------------------------------------------------------------- connections


def test_what_a_broken_connection_granted_counts_on() -> None:
    # Rule C11.
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.breaks(0, at=0.2)
    talk.answers(1, granted(), at=0.3)
    talk.held(P, until=UNTIL)
    talk.breaks(1, at=0.4)
    talk.held(P, until=UNTIL)


def test_a_node_that_comes_back_is_asked_at_once_by_who_waits() -> None:
    # Rule C16.
    talk = Conversation(standing={2: Standing.CONNECTING})
    talk.sends("request to 0 1")
    talk.breaks(0, at=0.1)
    talk.joins(0, at=0.2)
    talk.sends("request to 0")
    talk.joins(2, at=0.3)
    talk.sends("request to 2")
    talk.answers(0, granted(), at=0.4)
    talk.answers(2, granted())
    talk.held(P, until=good_until(0.2))


def test_what_a_broken_connection_owed_is_not_owed_by_the_next() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.breaks(0, at=0.1)
    talk.joins(0, at=0.2)
    talk.sends("request to 0")
    talk.answers(0, denied(), at=0.3)
    talk.wakes(BEAT)
    talk.sends("request to 0")


def test_a_try_tries_again_on_a_new_connection() -> None:
    talk = Conversation(patient=False)
    talk.sends("try to 0 1 2")
    talk.breaks(0, at=0.1, standing=Standing.CONNECTING)
    talk.joins(0, at=0.2)
    talk.sends("try to 0")
    talk.answers(0, granted(), at=0.3)
    talk.answers(1, granted())
    talk.held(P, until=UNTIL)


def test_a_node_that_comes_back_is_asked_by_a_holder_at_its_next_renewal(held: Held) -> None:
    talk = held()
    talk.breaks(2, at=0.2)
    assert not talk.joins(2, at=0.3)
    renewal(talk, {2: kept(), 0: kept()})
    talk.held(P, until=good_until(RENEWAL))


def test_a_node_that_comes_back_without_its_data_is_asked_by_a_holder_at_once(held: Held) -> None:
    # Rule C15.
    talk = held()
    for node in (0, 1):
        talk.breaks(node, at=0.2)
    for node in (0, 1):
        assert talk.joins(node, at=0.3, restarted=True)
        talk.sends(f"request to {node}")
    talk.answers(0, granted(P + 1), at=0.4)
    talk.held(P)
    talk.answers(1, granted(P + 1))
    talk.lost("gap")


def test_a_lease_that_is_not_renewed_asks_an_empty_node_for_no_more_than_it_has(held: Held) -> None:
    talk = held(renew=False)
    talk.breaks(0, at=1.0)
    talk.joins(0, at=2.0, restarted=True)
    talk.sends(f"request to 0 for {UNTIL - 2.0:g}")


def test_a_burnt_node_that_comes_back_empty_stays_burnt() -> None:
    talk = held_with_a_cede_unanswered()
    talk.breaks(0, at=0.5)
    talk.joins(0, at=0.6, restarted=True)
    talk.sends("release to 0")


def test_whoever_has_begun_without_any_node_asks_them_as_they_come() -> None:
    talk = Conversation(standing=dict.fromkeys(range(3), Standing.CONNECTING))
    talk.sends()
    for node in (2, 1):
        talk.joins(node, at=1.0)
        talk.sends(f"request to {node}")
        talk.answers(node, granted())
    talk.held(P, until=good_until(1.0))
    talk.release()
    talk.sends("release to 1 2")  # 0 has never heard of it


# ---------------------------------------------------------------- tries


@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_B36_S04_a_try_is_decided_as_soon_as_it_can_be(nodes: int) -> None:
    """Rule Q15: fewer than q can still grant, and not "q cannot": with even N half of the nodes is enough to refuse.

    If fewer than q have a connection, they have `node_timeout` to come back (rule C17).
    """
    quorum = nodes // 2 + 1
    for replies in product([granted(), denied(), READONLY, "broken"], repeat=nodes):
        talk = Conversation(nodes, patient=False)
        talk.sends(f"try to {everywhere(talk)}")
        can, does = nodes, 0
        for node, reply in enumerate(replies):
            if reply == "broken":
                talk.breaks(node)
            else:
                talk.answers(node, reply)
            can -= reply != granted()
            does += reply == granted()
            if does == quorum:
                talk.held(P, until=UNTIL)
                break
            if can < quorum:
                if nodes - replies[: node + 1].count("broken") < quorum:
                    talk.waits()
                    talk.wakes(1.0)
                talk.refused(NotAcquired)
                talk.sends(f"release to {everywhere(talk)}")
                break
            talk.waits()
        else:
            raise AssertionError("it is decided in the end")


def test_B36_a_try_that_nobody_answers_ends_after_a_third_of_its_ttl() -> None:
    talk = Conversation(patient=False)
    talk.sends("try to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.tick(2.9)
    talk.waits()
    talk.wakes(TTL / 3)
    talk.sends("release to 0 1 2")
    talk.refused(NoQuorum)


@pytest.mark.parametrize("deadline, end", [(1.0, 1.0), (5.0, 3.0)])
def test_a_tries_deadline_is_kept_if_it_is_the_sooner_end(deadline: float, end: float) -> None:
    talk = Conversation(patient=False, deadline=deadline)
    talk.sends("try to 0 1 2")
    talk.wakes(end)
    talk.sends("release to 0 1 2")
    talk.refused(NoQuorum)


def test_a_try_does_not_stand_in_line() -> None:
    talk = Conversation(patient=False)
    talk.sends("try to 0 1 2")
    talk.answers(0, denied(500, place=0), at=0.1)
    assert talk.notes == []
    assert talk.claim.contended
    assert talk.claim.wake == TTL / 3


def test_a_try_that_lost_a_vote_cannot_have_it_again() -> None:
    talk = Conversation(patient=False)
    talk.sends("try to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.answers(2, denied())
    talk.takes(0, at=0.2)
    talk.sends("release to 0 1 2")
    assert talk.refused(LockBusy).holder == OTHER.decode()


def test_a_node_that_is_being_dialled_may_still_grant_a_try() -> None:
    talk = Conversation(patient=False, standing={1: Standing.CONNECTING, 2: Standing.DOWN})
    talk.sends("try to 0")
    talk.waits()
    talk.stands(1, Standing.DOWN, at=0.5, cause=ConnectionError("refused"))
    talk.waits()  # it may be back at once
    talk.wakes(1.5)
    talk.sends("release to 0")
    assert str(talk.refused(NoQuorum).causes["node1"]) == "refused"


def test_a_node_in_its_guard_can_grant_no_try() -> None:
    """Rule G1 (the guard is the connection's; a claim only never counts on such a node)."""
    talk = Conversation(patient=False, standing={1: Standing.GUARDED, 2: Standing.GUARDED})
    talk.sends("try to 0", "release to 0")
    error = talk.refused(NoQuorum)
    assert talk.news
    assert str(error.causes["node1"]).startswith("guarded, 8.2 s left")


def test_a_try_is_not_refused_while_a_quorum_may_grant_though_the_others_are_in_their_guard() -> None:
    talk = Conversation(5, patient=False, standing={1: Standing.GUARDED, 2: Standing.CONNECTING, 3: Standing.GUARDED})
    talk.sends("try to 0 4")
    talk.waits()
    talk.joins(2, at=0.1)
    talk.sends("try to 2")
    for node in (0, 2, 4):
        talk.answers(node, granted(), at=0.2)
    talk.held(P, until=UNTIL)


# ---------------------------------------------------------------- verdicts


def test_busy_is_who_most_nodes_say_it_is() -> None:
    talk = Conversation(5, patient=False)
    talk.sends("try to 0 1 2 3 4")
    talk.answers(0, denied(7000, holder=b"somebody"), at=0.5)
    talk.answers(1, denied(1500), at=0.5)
    talk.answers(2, denied(1500))
    talk.sends("release to 0 1 2 3 4")
    error = talk.refused(LockBusy)
    assert (error.name, error.waited, error.holder, error.ttl_left) == ("jobs", 0.5, OTHER.decode(), 1.5)


@pytest.mark.parametrize(
    "left, holder, who, ttl_left",
    [
        (-1, b"\xff\x00", "\\xff\x00", None),
        (0, b"x", "x", 0.0),
        (0, b"", "", 0.0),
        (5000, b"x" * 65, "x" * 64, 5.0),
        (-2, None, None, None),
    ],
)
def test_busy_tells_what_is_known(left: int, holder: bytes | None, who: str | None, ttl_left: float | None) -> None:
    talk = Conversation(4, patient=False)
    talk.sends("try to 0 1 2 3")
    talk.answers(0, granted(), at=0.5)
    talk.answers(1, granted())
    talk.answers(2, denied(left, holder=holder))
    talk.answers(3, denied(left, holder=holder))
    talk.sends("release to 0 1 2 3")
    error = talk.refused(LockBusy)
    assert (error.holder, error.ttl_left) == (who, ttl_left)


MINE = b"1600000000000000:" + INBOX + b":00000001"  # of the same client
WAIT_LONGER = "Wait longer (`wait=`), or come back later"
GONE = "If the program that wrote it is gone, call force_release('jobs', reason"
LEFT = "for up to 5.0 s more unless renewed"


@pytest.mark.parametrize(
    "left, holder, who, advice",
    [
        (5000, OTHER, f"holdfast client bbbbbbbb {LEFT}", f"{WAIT_LONGER}."),
        (5000, OTHER + b":w", f"holdfast client bbbbbbbb {LEFT}", f"{WAIT_LONGER}."),
        (5000, MINE, f"this client itself {LEFT}", f"{WAIT_LONGER}."),
        (5000, b"shared", f"readers of the read-write lock of this name {LEFT}", f"{WAIT_LONGER}."),
        (5000, b"job\x1b[2J\n\xff", rf"another program, which wrote 'job\x1b[2J\n\\xff' {LEFT}", f"{WAIT_LONGER}."),
        (-1, b"worker", "another program, which wrote 'worker', without an expiry", f"{GONE}, only='worker')."),
        (
            -1,
            b"\n" * 64,
            "another program, which wrote '" + r"\n" * 39 + r"\..., without an expiry",
            f"{GONE}, only=locked_by('jobs')).",
        ),
        (-1, b"", "another program, which wrote '', without an expiry", f"{GONE})."),
        (-1, OTHER, "holdfast client bbbbbbbb, without an expiry", f"{GONE}, only='{OTHER.decode()}')."),
        (-2, None, "another client", f"{WAIT_LONGER}."),
    ],
    ids=["ours", "a writer", "our own", "readers", "control characters", "lasts", "long", "empty", "ours that lasts", "unknown"],
)
def test_busy_says_in_words_who_has_it_and_what_to_do(left: int, holder: bytes | None, who: str, advice: str) -> None:
    talk = Conversation(1, patient=False)
    talk.sends("try to 0")
    talk.answers(0, denied(left, holder=holder, place=-1), at=0.5)
    talk.sends("release to 0")
    assert message_of(talk.refused(LockBusy)) == f"'jobs' is held by {who} (waited 0.500 s). {advice}"


def test_B37_a_wait_ends_at_its_deadline_and_not_before() -> None:
    talk = Conversation(deadline=2.0)
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(), at=0.1)
    talk.answers(1, denied())
    talk.tick(1.999)
    talk.waits()
    talk.wakes(2.0)
    talk.sends("release to 0 1 2")
    error = talk.refused(LockBusy)
    assert talk.news
    assert (error.waited, error.holder) == (2.0, OTHER.decode())


def test_a_vote_that_has_to_be_ceded_says_that_somebody_is_in_the_way() -> None:
    talk = Conversation(deadline=2.0)
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(lower=True), at=0.1)
    talk.sends("cede to 0")
    talk.answers(1, READONLY)
    talk.answers(2, granted())
    talk.wakes(2.0)
    talk.sends("release to 0 1 2")
    error = talk.refused(LockBusy)
    assert (error.holder, error.ttl_left) == (None, None)


def test_a_try_with_a_lower_ticket_behind_it_is_told_that_somebody_is_in_the_way() -> None:
    talk = Conversation(patient=False)
    talk.sends("try to 0 1 2")
    talk.answers(0, granted(lower=True), at=0.1)
    talk.answers(1, granted(P + 5))
    talk.sends(f"try to 0 proposing {P + 5}")
    talk.wakes(TTL / 3)
    talk.sends("release to 0 1 2")
    talk.refused(LockBusy)


def test_B18_B53_no_quorum_tells_why_node_by_node() -> None:
    talk = Conversation(7, deadline=2.0, standing={2: Standing.DOWN, 3: Standing.GUARDED})
    talk.sends("request to 0 1 4 5 6")
    talk.answers(0, denied(), at=0.1)
    talk.answers(1, READONLY)
    talk.answers(5, denied())
    talk.breaks(5)
    talk.answers(6, granted())
    talk.wakes(2.0)
    talk.sends("release to 0 1 4 5 6")
    error = talk.refused(NoQuorum)
    assert (error.name, error.waited) == ("jobs", 2.0)
    assert {node: str(cause) for node, cause in error.causes.items()} == {
        "node1": str(READONLY),
        "node2": "refused",
        "node3": "guarded, 6.2 s left: it started recently and may have forgotten locks",
        "node4": "no answer yet",
        "node5": "gone",
    }
    assert str(error).startswith("could not acquire 'jobs': fewer than 4 nodes are usable")


def test_a_quorum_that_has_granted_is_not_busy() -> None:
    """Everybody has answered, nobody is in the way, and yet the fences were not agreed on in time."""
    talk = Conversation(deadline=2.0)
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(P + 5), at=0.1)
    talk.answers(1, granted())
    talk.sends(f"request to 1 proposing {P + 5}")
    talk.wakes(2.0)
    talk.sends("release to 0 1 2")
    talk.refused(NoQuorum)


@pytest.mark.parametrize("nodes", [2, 4])
def test_S04_a_try_with_even_N_is_told_that_it_is_busy(nodes: int) -> None:
    """Half of the nodes deny, which is enough to refuse; the others are well, and only have not answered yet."""
    talk = Conversation(nodes, patient=False)
    talk.sends(f"try to {everywhere(talk)}")
    for node in range(nodes // 2):
        talk.answers(node, denied(), at=0.1)
    talk.sends(f"release to {everywhere(talk)}")
    assert talk.refused(LockBusy).holder == OTHER.decode()


def test_B16_a_try_with_one_node_down_is_told_that_it_is_busy() -> None:
    talk = Conversation(3, patient=False, standing={2: Standing.DOWN})
    talk.sends("try to 0 1")
    talk.answers(0, [*denied(), 0], at=0.1)
    talk.sends("release to 0 1")
    talk.refused(LockBusy)


def test_a_denial_does_not_make_up_for_a_quorum_that_cannot_answer() -> None:
    talk = Conversation(3, patient=False, standing={1: Standing.DOWN})
    talk.sends("try to 0 2")
    talk.answers(2, READONLY, at=0.1)
    talk.sends("release to 0 2")
    talk.refused(NoQuorum)
    talk = Conversation(5, patient=False, standing={1: Standing.GUARDED, 2: Standing.DOWN})
    talk.sends("try to 0 3 4")
    talk.answers(3, READONLY, at=0.1)
    talk.sends("release to 0 3 4")
    talk.refused(NoQuorum)
    talk = Conversation(5, deadline=1.0, standing={1: Standing.GUARDED, 2: Standing.GUARDED, 3: Standing.DOWN})
    talk.sends("request to 0 4")
    talk.answers(0, denied(), at=0.1)
    talk.wakes(1.0)
    talk.sends("release to 0 4")
    talk.refused(NoQuorum)


def test_whoever_was_pushed_aside_or_let_in_was_told_who_is_in_the_way() -> None:
    """A vote that an operator took away is against us, and one that was granted after a denial is not any more."""
    talk = Conversation(deadline=2.0)
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.takes(0, at=0.2)
    talk.wakes(2.0)
    talk.sends("release to 0 1 2")
    talk.refused(LockBusy)
    talk = Conversation(deadline=2.0)
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(), at=0.1)
    talk.grants(0, P + 1, at=0.2)
    talk.wakes(2.0)
    talk.sends("release to 0 1 2")
    talk.refused(NoQuorum)


@pytest.mark.parametrize("left, ttl_left", [(5000, 3.1), (1000, 0.0)])
def test_what_is_left_of_the_holders_lease_is_told_as_of_now(left: int, ttl_left: float) -> None:
    talk = Conversation(deadline=2.0)
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(left), at=0.1)
    talk.answers(1, denied(left))
    talk.wakes(2.0)
    talk.sends("release to 0 1 2")
    assert talk.refused(LockBusy).ttl_left == pytest.approx(ttl_left)


# ---------------------------------------------------------------- outages, and names that are no locks


def test_B18_waiting_has_an_end_when_a_majority_is_away() -> None:
    # Rule C17.
    talk = Conversation(standing={1: Standing.DOWN, 2: Standing.DOWN}, outage=5.0)
    talk.sends("request to 0")
    talk.answers(0, granted(), at=0.1)
    talk.wakes(BEAT)
    talk.sends("request to 0")
    talk.wakes(5.0)
    talk.sends("release to 0")
    assert set(talk.refused(NoQuorum).causes) == {"node1", "node2"}


@pytest.mark.parametrize(
    "patient, outage, ends", [(True, 2.0, 2.0), (True, 0.0, 1.0), (False, 2.0, 1.0)], ids=["a wait", "a short outage", "a try"]
)
def test_however_long_a_majority_was_away_each_claim_gives_it_time_to_come_back(patient: bool, outage: float, ends: float) -> None:
    """`outage` seconds, or `node_timeout` if that is longer. A try gives it `node_timeout`."""
    how, away = "request" if patient else "try", {1: Standing.DOWN, 2: Standing.DOWN}
    talk = Conversation(patient=patient, standing=away, outage=outage, since=-30.0)
    talk.sends(f"{how} to 0")
    talk.waits()
    talk.wakes(ends)
    talk.sends("release to 0")
    assert f"(waited {ends:.3f} s; no majority for {30 + ends:.1f} s)" in str(talk.refused(NoQuorum))
    talk = Conversation(patient=patient, standing=away, outage=outage, since=-30.0)
    talk.sends(f"{how} to 0")
    talk.answers(0, granted(), at=0.1)
    talk.joins(2, at=0.9)
    talk.sends(f"{how} to 2")
    talk.answers(2, granted())
    talk.held(P, until=UNTIL)


def test_an_outage_that_begins_during_a_wait_counts_from_then_on() -> None:
    talk = Conversation(outage=2.0)
    talk.sends("request to 0 1 2")
    talk.breaks(1, at=0.5)
    talk.waits()
    talk.breaks(2, at=0.7)
    assert talk.claim.armed == pytest.approx(2.7), "the engine was told"
    talk.wakes(2.7)
    talk.sends("release to 0 1 2")
    talk.refused(NoQuorum)


@pytest.mark.parametrize("patient", [True, False])
def test_a_node_that_never_will_and_one_that_is_down_are_an_outage(patient: bool) -> None:
    talk = Conversation(standing={0: Standing.CONNECTING}, patient=patient)
    talk.sends("request to 1 2" if patient else "try to 1 2")
    talk.stands(0, Standing.DOWN, at=0.1, cause=ConfigError("no"))
    talk.breaks(1, at=0.2)
    talk.waits()
    talk.tick(9.2 if patient else 1.2)
    talk.refused(NoQuorum)
    talk.sends("release to 1 2")


def test_an_outage_that_ends_is_forgotten() -> None:
    talk = Conversation(standing={1: Standing.DOWN, 2: Standing.DOWN}, outage=5.0)
    talk.sends("request to 0")
    talk.joins(1, at=2.0)
    talk.sends("request to 1")
    talk.tick(5.0)
    talk.sends()  # (both owe an answer)
    talk.waits()
    talk.breaks(1, at=6.0)
    talk.tick(10.9)
    talk.waits()
    talk.wakes(11.0)
    talk.sends("release to 0 1")
    talk.refused(NoQuorum)


@pytest.mark.parametrize("standing", [Standing.CONNECTING, Standing.GUARDED])
def test_waiting_for_a_guard_to_end_or_a_connection_to_be_made_is_no_outage(standing: object) -> None:
    talk = Conversation(standing={1: standing, 2: Standing.DOWN}, outage=5.0)  # type: ignore[dict-item]  # (typed as an object)
    talk.sends("request to 0")
    for beat in range(1, 10):
        talk.wakes(beat * BEAT)
        talk.sends()
    talk.waits()


def test_S12_one_node_that_refuses_is_a_vote_less() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, READONLY, at=0.1)
    talk.answers(1, granted())
    talk.answers(2, granted())
    talk.held(P, until=UNTIL)


def test_S12_a_majority_that_refuses_is_an_outage_and_never_busy() -> None:
    talk = Conversation(outage=5.0)
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(), at=0.1)
    talk.answers(1, READONLY)
    talk.answers(2, "OK", at=0.2)
    talk.wakes(BEAT)
    talk.sends("request to 0 1 2")
    talk.answers(1, READONLY, at=3.1)
    talk.wakes(5.2)
    talk.sends("release to 0 1 2")
    error = talk.refused(NoQuorum)
    assert {node: str(cause) for node, cause in error.causes.items()} == {"node1": str(READONLY), "node2": "unexpected answer 'OK'"}


def test_S12_nodes_that_have_come_to_their_senses_are_no_outage() -> None:
    talk = Conversation(outage=5.0)
    talk.sends("request to 0 1 2")
    talk.answers(1, READONLY, at=0.1)
    talk.answers(2, READONLY)
    talk.wakes(BEAT)
    talk.sends("request to 1 2")
    talk.answers(1, denied(), at=3.1)
    talk.tick(5.1)
    talk.waits()
    talk.wakes(2 * BEAT)
    talk.sends("request to 1")
    talk.answers(1, READONLY, at=6.1)  # from now on it counts anew
    talk.wakes(3 * BEAT)
    talk.sends("request to 1")
    talk.wakes(11.1)
    talk.sends("release to 0 1 2")
    talk.refused(NoQuorum)


RUBBISH: list[object] = [
    *(None, b"OK", b"17e14", b"01700000000000000", [P, 0], [0, 5000, 0, 7], [-P, 0, 1], [0, 5000, 0, None, -1]),  # (the first are vectors)
    *(0, -1, 1.7, "OK", b"0000000000000000", {}),  # neither list nor fence
    *([], [P], [P, 0, b"1"], [P, None, 1], [0, 5000, 0, None, b"1"]),  # too short, or no numbers
    *([0, 5000, 0, "somebody"], [1.7e15, 0, 1]),  # a holder that is none, or a fence that no node can count
    *(True, [True, 0, 1], [P, False, True]),  # booleans of RESP3, which Python takes for numbers
    *(b"", b"-1700000000000000", b"9999999999999999", [b"%016d" % P, 0, 1]),
]


@pytest.mark.parametrize("reply", RUBBISH, ids=repr)
def test_an_answer_that_our_scripts_never_give_is_an_error(reply: object) -> None:
    talk = Conversation(1, outage=1.5)
    talk.sends("request to 0")
    talk.answers(0, reply, at=0.1)
    talk.waits()
    talk.wakes(1.6)
    talk.sends("release to 0")
    assert str(talk.refused(NoQuorum).causes["node0"]) == f"unexpected answer {reply!r}"


@pytest.mark.parametrize("reply", RUBBISH, ids=repr)
def test_an_answer_that_our_scripts_never_give_changes_nothing_for_a_holder(held: Held, reply: object) -> None:
    talk = held()
    renewal(talk, {0: reply, 1: reply, 2: reply})
    talk.held(P, until=UNTIL)
    assert talk.claim.counting(talk.now) == 3


def test_an_answer_to_a_cede_that_our_scripts_never_give_is_no_answer_to_it() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(lower=True), at=0.1)
    talk.sends("cede to 0")
    talk.answers(0, [P], at=0.2)
    talk.sends("request to 0 1 2", "release old to 0 1 2")


def test_a_denial_may_say_nothing_of_the_holder() -> None:
    """An answer is cut at its first nothing (Lua's nil)."""
    talk = Conversation(1, patient=False)
    talk.sends("try to 0")
    talk.answers(0, [0, -2, -1], at=0.1)
    talk.sends("release to 0")
    assert talk.refused(LockBusy).holder is None


def test_an_error_and_a_node_that_is_down_are_an_outage_together() -> None:
    talk = Conversation(standing={2: Standing.DOWN}, outage=2.0)
    talk.sends("request to 0 1")
    talk.answers(1, READONLY, at=0.1)
    talk.wakes(2.1)
    talk.sends("release to 0 1")
    talk.refused(NoQuorum)


def test_an_error_goes_with_its_connection() -> None:
    talk = Conversation(outage=2.0)
    talk.sends("request to 0 1 2")
    talk.answers(1, READONLY, at=0.1)
    talk.answers(2, READONLY)
    talk.breaks(1, standing=Standing.CONNECTING)
    talk.tick(2.1)
    talk.waits()


@pytest.mark.parametrize("patient", [True, False], ids=["wait", "try"])
def test_nodes_that_never_worked_and_never_will_end_the_wait_at_once(patient: bool) -> None:
    talk = Conversation(patient=patient, standing={0: Standing.CONNECTING, 1: Standing.CONNECTING, 2: Standing.CONNECTING})
    for node, cause in ((0, ConfigError("it refuses our password")), (2, ConfigError("it is a replica"))):
        talk.waits()
        talk.stands(node, Standing.DOWN, at=0.1, cause=cause)
    told = "these nodes cannot be used:\n  node0: it refuses our password\n  node2: it is a replica"
    assert message_of(talk.refused(ConfigError)) == told


@pytest.mark.parametrize("patient", [True, False], ids=["wait", "try"])
def test_B28_S11_a_key_of_another_type_on_a_majority_is_an_error(patient: bool) -> None:
    talk = Conversation(patient=patient)
    talk.sends("request to 0 1 2" if patient else "try to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.answers(1, WRONGTYPE)
    talk.waits()
    talk.answers(2, WRONGTYPE)
    talk.sends("release to 0 1 2")
    error = talk.refused(ConfigError)
    assert talk.news
    assert "'jobs' cannot be locked" in str(error)
    assert "node1, node2" in str(error)
    assert "node0" not in str(error)


def test_S11_a_key_of_another_type_is_noticed_on_redis_6_2_too() -> None:
    """Before Redis 7 the error of a script begins with words of its own."""
    wrapped = Exception(f"ERR Error running script (call to f_0d0b5c3917b2e942d35ec704380f086f13b4b285): @user_script:41: {WRONGTYPE}")
    talk = Conversation(1)
    talk.sends("request to 0")
    talk.answers(0, wrapped, at=0.1)
    talk.sends("release to 0")
    talk.refused(ConfigError)


@pytest.mark.parametrize("deadline", [2.0, inf], ids=["waits for a while", "tries once"])
def test_S11_what_waits_in_vain_for_a_value_without_an_expiry_is_busy(deadline: float) -> None:
    talk = Conversation(patient=deadline < inf, deadline=deadline)
    talk.sends("request to 0 1 2" if deadline < inf else "try to 0 1 2")
    talk.answers(0, foreign(-1, place=1), at=0.1)
    talk.answers(1, foreign(-1, place=1))
    if deadline < inf:
        talk.waits()
        talk.wakes(deadline)
    talk.sends("release to 0 1 2")
    error = talk.refused(LockBusy)
    assert (error.holder, error.ttl_left) == (FOREIGN.decode(), None)


def test_S11_a_key_that_is_no_lock_on_a_minority_is_a_vote_less() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    assert talk.answers(0, WRONGTYPE, at=0.1), "somebody has to be warned"
    assert talk.unfit == [0]
    talk.answers(1, granted())
    talk.answers(2, granted())
    talk.held(P, until=UNTIL)
    assert talk.unfit == [0]


@pytest.mark.parametrize("reply", [WRONGTYPE, denied(-1)], ids=["another type", "no expiry"])
def test_S11_a_key_that_is_no_lock_is_told_of_also_by_the_last_that_answers(held: Held, reply: object) -> None:
    talk = held(standing={2: Standing.CONNECTING})
    talk.joins(2, at=0.2)
    talk.wakes(RENEWAL)
    talk.sends("request to 0 1 2")
    assert talk.answers(2, reply, at=3.0)
    assert talk.unfit == [2]
    talk.held()
    for node in (0, 1):
        talk.answers(node, kept())
    assert talk.unfit == [2]


@pytest.mark.parametrize("reply", [READONLY, denied(-2), denied(0)], ids=["an error", "no key", "a lock"])
def test_S11_what_may_be_a_lock_is_not_told_of(reply: object) -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, reply, at=0.1)
    talk.answers(1, granted())
    assert talk.unfit == []


def test_S11_a_value_without_an_expiry_is_not_counted_as_another_type() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(-1), at=0.1)
    talk.answers(1, WRONGTYPE)
    talk.waits()
    talk.answers(2, WRONGTYPE)
    talk.sends("release to 0 1 2")
    assert "node1, node2" in str(talk.refused(ConfigError))


OTHER_TYPE = (
    "the key of 'jobs' holds data of another type than a lock's (a string): this node grants the lock to nobody. "
    "Choose another name, or remove that key."
)
LASTS = r"'jobs' is held there by 'a\x1bb', a value without an expiry: it stays until it is removed. "


@pytest.mark.parametrize(
    "reply, told",
    [(WRONGTYPE, OTHER_TYPE), (foreign(-1, holder=b"a\x1bb"), rf"{LASTS}{GONE}, only='a\x1bb').")],
    ids=["another type", "no expiry"],
)
def test_S11_a_warning_says_what_to_do(reply: object, told: str) -> None:
    talk = Conversation(patient=False)
    talk.sends("try to 0 1 2")
    assert talk.answers(1, reply, at=0.1), "somebody has to be warned"
    assert talk.unfit == [1]
    assert talk.claim.warning(1) == told


def test_another_clients_lock_is_waited_for() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    for node in range(3):
        talk.answers(node, denied(5000, holder=b"redlock-py"), at=0.1)
    talk.waits()


# ---------------------------------------------------------------- giving back


def test_B32_S08_whoever_stops_waiting_takes_everything_back() -> None:
    talk = Conversation(4, standing={3: Standing.DOWN})
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.breaks(1)
    talk.release(at=0.2)
    talk.sends("release to 0 1 2")  # also there where no answer came from, and where it can only be said later
    assert talk.claim.state is State.OVER
    assert talk.claim.done
    assert not talk.news, "the caller knows"


def test_a_release_is_said_again_after_a_reconnect_and_a_request_is_not() -> None:
    talk = Conversation()
    ((_, request),) = talk.said
    talk.sends("request to 0 1 2")
    talk.release()
    ((_, release),) = talk.said
    talk.sends("release to 0 1 2")
    assert (request.again, release.again) == (False, True)


def test_after_the_release_nothing_is_heard_any_more(held: Held) -> None:
    # Rule C10.
    talk = held()
    talk.tick(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.release(at=3.0)
    talk.sends("release to 0 1 2")
    for happens in (
        lambda: talk.answers(0, kept()),
        lambda: talk.answers(1, denied()),
        lambda: talk.breaks(0),
        lambda: talk.joins(0),
        lambda: talk.tick(UNTIL),
        lambda: talk.extend(),
    ):
        assert not happens()
    talk.release()
    talk.close()
    talk.sends()
    assert talk.claim.state is State.OVER


def test_an_answer_that_comes_after_the_end_does_not_make_it_held() -> None:
    """Rule T1 (what was asked before the release is answered before it, and is given back by it)."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, usual(), at=0.1)
    talk.release(at=0.2)
    talk.sends("release to 0 1 2")
    assert not talk.answers(1, usual(), at=0.3)
    assert not talk.answers(2, usual())
    assert talk.claim.state is State.OVER


def test_S25_a_release_is_certain_where_it_was_confirmed(held: Held) -> None:
    talk = held(5)
    talk.release(at=0.2, heard=True)
    talk.sends("release to 0 1 2 3 4")
    assert not talk.claim.done
    for node in (0, 1):
        assert not talk.answers(node, 1, at=0.3)
    assert not talk.answers(2, READONLY)  # nobody knows
    assert talk.answers(3, 0)  # it was not there any more: certain as well
    assert talk.news
    assert talk.claim.freed == 3
    assert talk.claim.done
    assert not talk.answers(4, 1)
    assert talk.claim.freed == 3


def test_S25_a_release_with_a_majority_down_returns_as_soon_as_nobody_else_can_confirm(held: Held) -> None:
    talk = held()
    talk.breaks(0, at=0.2)
    talk.release(at=0.3, heard=True)
    talk.sends("release to 0 1 2")
    assert not talk.answers(1, 1, at=0.4)
    assert talk.breaks(2)
    assert talk.news
    assert talk.claim.freed == 1
    assert not talk.breaks(1)


def test_S25_a_release_waits_for_no_node_that_was_never_asked() -> None:
    """Node 2 came back after the lock was held, and is asked at the next renewal only."""
    talk = Conversation(3, standing={2: Standing.DOWN})
    talk.sends("request to 0 1")
    for node in (0, 1):
        talk.answers(node, granted(), at=0.1)
    talk.held()
    talk.joins(2, at=0.2)
    talk.release(at=0.3, heard=True)
    talk.sends("release to 0 1")
    assert not talk.answers(0, 1, at=0.4)
    assert talk.breaks(1)
    assert (talk.news, talk.claim.freed) == (True, 1), "nobody else can confirm it"


def test_S25_a_release_with_all_nodes_down_waits_for_nothing(held: Held) -> None:
    talk = held(1)
    talk.breaks(0, at=0.2)
    talk.release(at=0.3, heard=True)
    talk.sends("release to 0")
    assert talk.news
    assert talk.claim.done
    assert talk.claim.freed == 0


def test_whoever_stops_waiting_can_wait_for_that_too() -> None:
    talk = Conversation(2)
    talk.sends("request to 0 1")
    talk.release(heard=True)
    talk.sends("release to 0 1")
    assert not talk.answers(0, granted())  # the request's answer is not the release's
    assert not talk.answers(0, 1)
    talk.answers(1, usual())
    assert talk.answers(1, 0)
    assert talk.claim.freed == 2


# ---------------------------------------------------------------- its keys stay


@pytest.mark.parametrize("heard", [False, True])
def test_a_claim_that_stays_ends_without_a_release(held: Held, heard: bool) -> None:
    # Rule C20.
    talk = held()
    talk.claim.stay()
    talk.held()
    talk.tick(RENEWAL)
    talk.sends("request to 0 1 2")  # until its end, nothing is different
    talk.release(at=3.0, heard=heard)
    talk.sends()
    assert (talk.claim.state, talk.claim.done, talk.claim.freed, talk.claim.stays) == (State.OVER, True, 0, True)
    assert talk.news is heard, "who waits is told at once: no node will confirm anything"
    for happens in (lambda: talk.answers(0, kept()), lambda: talk.joins(1), lambda: talk.tick(UNTIL)):
        assert not happens()
    talk.release()
    talk.sends()


@pytest.mark.parametrize("end", ["closed", "forced", "expired"])
def test_a_claim_that_stays_is_not_released_however_it_ends(held: Held, end: str) -> None:
    # Rule C20.
    talk = held(renew=False)
    talk.claim.stay()
    if end == "closed":
        talk.close(at=1.0)
    elif end == "forced":
        talk.takes(0, at=1.0)
        talk.takes(1)
    else:
        talk.tick(UNTIL)
    assert (talk.claim.state, talk.claim.reason, talk.claim.done) == (State.LOST, end, True)
    talk.sends()


def test_only_what_is_held_can_stay() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.claim.stay()
    talk.release(at=0.1)
    talk.sends("release to 0 1 2")
    talk.claim.stay()
    assert not talk.claim.stays


# ---------------------------------------------------------------- held: renewal, and its end


def test_it_is_renewed_every_third_of_its_ttl(held: Held) -> None:
    # Rule C8.
    talk = held()
    talk.wakes(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.answers(0, kept(), at=3.0)
    talk.held(P, until=UNTIL)  # one is not enough
    assert talk.notes == []
    talk.answers(2, kept())
    talk.held(P, until=good_until(RENEWAL))
    assert talk.notes == ["Renewed"]
    talk.answers(1, kept())
    assert talk.notes == ["Renewed"]
    talk.tick(RENEWAL + 1.5)  # it is confirmed, and not repeated
    talk.sends()
    talk.tick(RENEWAL + TTL / 3 - 0.11)
    talk.sends()
    talk.wakes(RENEWAL + TTL / 3)
    talk.sends("request to 0 1 2")
    for node in range(3):
        talk.answers(node, kept(), at=6.0)
    talk.held(P, until=good_until(RENEWAL + TTL / 3))
    assert talk.notes == ["Renewed", "Renewed"]
    assert not talk.claim.doubt


@pytest.mark.parametrize("place", [0.5, 0.75])
def test_it_comes_to_its_place_in_the_period_in_two_steps(place: float) -> None:
    """Rule C21: each of the first two heartbeats, and of the first two renewals, is sooner by as much."""
    talk = Conversation(inbox=b"%08x" % ((int(place * 2**32) - P * GOLDEN) % 2**32) + b"a" * 24)
    sooner = TTL / 6 * place
    talk.sends("request to 0 1 2")
    for node in range(3):
        talk.answers(node, denied(), at=0.1)
    for beat in (BEAT - sooner, 2 * BEAT - 2 * sooner, 3 * BEAT - 2 * sooner):
        talk.tick(beat - 0.11)
        talk.sends()
        talk.wakes(beat)
        talk.sends("request to 0 1 2")
        for node in range(3):
            talk.answers(node, denied(), at=beat + 0.1)
    talk.grants(0, P, at=beat + 0.2)
    talk.grants(1, P)
    talk.held(P, until=good_until(beat))
    for turn in (beat + RENEWAL - sooner, beat + RENEWAL + BEAT - 2 * sooner, beat + RENEWAL + 2 * BEAT - 2 * sooner):
        talk.tick(turn - 0.11)
        talk.sends()
        talk.wakes(turn)
        talk.sends("request to 0 1 2")
        for node in range(3):
            talk.answers(node, kept(), at=turn + 0.1)


def test_a_lock_that_was_tried_is_renewed_like_one_that_was_waited_for(held: Held) -> None:
    talk = held(patient=False)
    renewal(talk, {0: kept(), 1: kept()})
    talk.held(P, until=good_until(RENEWAL))


def test_a_renewal_takes_back_a_node_in_its_turn(held: Held) -> None:
    """Rule F1: a grant raises F."""
    # Rule F10.
    talk = held()
    renewal(talk, {0: denied(5000, place=0), 1: kept(), 2: kept()})
    talk.held(P)
    assert talk.claim.counting(talk.now) == 2
    talk.grants(0, P + 1, at=4.0)
    talk.sends()
    assert talk.claim.counting(4.0) == 3
    talk.held(P)  # whatever the node has now: T stays


def test_nodes_that_owe_two_answers_are_not_renewed(held: Held) -> None:
    talk = held()
    for nodes in ("0 1 2", "0 1 2", "0 1", "0 1"):
        talk.wakes()
        talk.sends(f"request to {nodes}")
        talk.answers(0, kept(), at=talk.now + 0.1)
        talk.answers(1, kept())
    talk.answers(2, kept())
    talk.wakes()
    talk.sends("request to 0 1 2")


def test_S17_B45_B46_a_holder_whose_nodes_are_gone_holds_to_its_deadline(held: Held) -> None:
    talk = held()
    for node in range(3):
        talk.breaks(node, at=1.0)
    talk.held(P, until=UNTIL)
    while talk.claim.wake < talk.claim.until:
        talk.wakes()
        talk.held(P, until=UNTIL)
    talk.wakes()
    talk.lost("expired")
    assert talk.now == talk.claim.until


def test_S19_a_minority_that_denies_does_not_shorten_it_below_what_a_quorum_has(held: Held) -> None:
    talk = held(5)
    renewal(talk, {0: kept(), 1: kept(), 2: kept()})
    talk.held(P, until=good_until(RENEWAL))
    talk.takes(0, at=4.0)
    talk.held(P, until=UNTIL)  # the third of those that count was not renewed
    talk.answers(3, kept(), at=5.0)
    talk.held(P, until=good_until(RENEWAL))


INPUTS: Mapping[str, Callable[[Conversation], object]] = {
    "answered": lambda talk: talk.answers(1, kept()),
    "answered with an error": lambda talk: talk.answers(1, READONLY),
    "granted": lambda talk: talk.grants(1, P + 1),
    "inquired": lambda talk: talk.inquires(1),
    "taken": lambda talk: talk.takes(1),
    "broke": lambda talk: talk.breaks(1),
    "joined": lambda talk: talk.joins(1),
    "tick": lambda talk: talk.tick(talk.now),
    "extend": lambda talk: talk.extend(),
    "release": lambda talk: talk.release(),
}
READ = ("answered", "answered with an error", "granted", "inquired", "taken")


@pytest.mark.parametrize("what", INPUTS)
def test_B22_S18_lost_comes_first_with_the_deadline_as_it_was(held: Held, what: str) -> None:
    """Rule C6: a renewal that is read late."""
    talk = held(patience=2.0)
    talk.tick(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.answers(0, kept(), at=3.0)  # one more such answer in time, and the lease would be good until 11.8
    talk.pause(UNTIL)
    INPUTS[what](talk)
    talk.lost("slow" if what in READ else "expired")
    assert talk.news


@pytest.mark.parametrize("what", ["broke", "joined", "tick", "extend", "release"])
@pytest.mark.parametrize("after, reason", [(1.0, "expired"), (1.001, "slow")])
def test_S14_S16_whoever_looks_much_too_late_was_slow(held: Held, what: str, after: float, reason: str) -> None:
    talk = held(patience=1.0)
    talk.pause(talk.claim.until + after)
    INPUTS[what](talk)
    talk.lost(reason)


def test_S18_an_answer_as_usual_does_not_save_what_has_run_out() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, usual(), at=0.1)
    talk.answers(1, usual())
    talk.held()
    talk.answers(2, usual(), at=UNTIL)
    talk.lost("slow")


@pytest.mark.parametrize("what", INPUTS)
def test_just_before_its_deadline_it_is_not_lost(held: Held, what: str) -> None:
    talk = held(patience=100.0)
    talk.tick(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.pause(UNTIL - 0.001)
    INPUTS[what](talk)
    talk.said = []
    assert talk.claim.state is (State.OVER if what == "release" else State.HELD)


def test_once_lost_it_is_lost_for_good(held: Held) -> None:
    talk = held()
    talk.tick(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.close(at=3.0)
    talk.lost("closed")
    for happens in (
        lambda: talk.answers(0, kept()),
        lambda: talk.answers(1, kept()),
        lambda: talk.breaks(2),
        lambda: talk.joins(2),
        lambda: talk.tick(4.0),
        lambda: talk.extend(),
    ):
        assert not happens()
    talk.release()
    talk.close()
    talk.sends()
    assert (talk.claim.state, talk.claim.reason) == (State.LOST, "closed")


def test_an_answer_that_lowers_a_bound_lowers_the_deadline(held: Held) -> None:
    """An extension reached 0 and 1. Then 0 loses the key and is taken back: with 2, which was away, it is good for the ttl only."""
    talk = held()
    talk.breaks(2, at=1.0)
    talk.extend(30.0)
    talk.sends("request to 0 1 for 30")
    talk.answers(0, kept(), at=1.1)
    talk.answers(1, kept())
    talk.joins(2, at=1.5)
    renewal(talk, {1: kept(), 2: kept()})
    talk.held(P, until=good_until(1.0, 30.0))
    talk.answers(0, granted(P + 1))
    talk.held(P, until=good_until(RENEWAL))
    assert talk.claim.wake <= talk.claim.until


def test_a_push_on_a_new_connection_takes_the_bound_of_the_old_one_away(held: Held) -> None:
    """It was granted anew, by a request that was executed late, for nobody knows how long."""
    talk = held()
    talk.breaks(2, at=1.0)
    talk.extend(30.0)
    talk.sends("request to 0 1 for 30")
    talk.answers(0, kept(), at=1.1)
    talk.answers(1, kept())
    talk.breaks(0, at=3.0)
    talk.joins(0, at=3.1)
    talk.grants(0, P + 9, at=3.5)
    talk.held(P, until=UNTIL)
    assert talk.claim.counting(3.5) == 2


def test_what_is_over_asks_nobody_who_comes_back(held: Held) -> None:
    """Releases that are still to be said are the connection's business."""
    talk = held(patience=1.0)
    for node in range(3):
        talk.breaks(node, at=1.0)
    talk.wakes(RENEWAL)
    talk.wakes(RENEWAL + 1.0)
    assert talk.claim.doubt
    talk.takes(0)
    talk.takes(1)
    talk.lost("forced")
    assert not talk.joins(0, at=5.0)
    talk = held_with_a_cede_unanswered()
    talk.breaks(0, at=0.2)
    talk.release()
    talk.sends("release to 0 1 2")
    assert not talk.joins(0, at=0.3)


# ---------------------------------------------------------------- held: gaps


def test_S19_a_minority_that_lost_the_key_is_taken_back_in_silence(held: Held) -> None:
    """One node after another, too, if there is a round between."""
    talk = held()
    again = {0: kept(P + 1), 1: kept(), 2: kept()}
    renewal(talk, {0: granted(P + 1), 1: kept(), 2: kept()})
    renewal(talk, again)
    renewal(talk, {0: kept(P + 1), 1: granted(P + 1), 2: kept()})
    renewal(talk, again)
    talk.held(P)


def test_a_second_node_that_fails_soon_after_the_first_ones_return_is_a_gap(held: Held) -> None:
    talk = held()
    renewal(talk, {0: granted(P + 1), 1: kept(), 2: kept()})
    renewal(talk, {0: kept(P + 1), 1: granted(P + 1)})
    talk.lost("gap")


@pytest.mark.parametrize("reply", [granted(P + 1), denied(), granted(P), usual()])
def test_B47_S19_a_majority_that_lost_the_key_is_a_loss_though_nobody_took_it(held: Held, reply: object) -> None:
    """Rule C12: the gap rule."""
    talk = held()
    renewal(talk, {0: granted(P + 1), 2: kept()})
    talk.held(P)
    talk.answers(1, reply)
    talk.lost("gap")


@pytest.mark.parametrize("fence, missing, noticed", [(P + 1, True, True), (P, True, False), (P + HORIZON * 500, False, True)])
def test_a_grant_anew_whose_answer_went_missing_shows_by_its_fence(held: Held, fence: int, missing: bool, noticed: bool) -> None:
    """Two of three nodes lose the key; 1 says so, and 2 says it on a connection that breaks: the next answer there is fresh 0.

    Or a command of a connection that broke long ago is executed only now.
    """
    # Rule C14.
    talk = held()
    renewal(talk, {0: kept(), 1: granted(P + 1)} | ({} if missing else {2: kept()}))
    talk.held(P)
    if missing:
        talk.breaks(2)
        talk.joins(2)
    renewal(talk, {0: kept(), 1: kept(P + 1), 2: kept(fence)})
    talk.lost("gap") if noticed else talk.held(P)


def test_what_was_proposed_on_the_connection_before_explains_no_rise() -> None:
    """Rule C14: the node may have granted the token again with the fence that was written back."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(P + 5), at=0.1)
    talk.answers(1, granted())
    talk.sends(f"request to 1 proposing {P + 5}")
    talk.answers(2, granted(P + 5))
    talk.held(P + 5)
    talk.breaks(1, at=0.2)
    talk.joins(1)
    talk.wakes(RENEWAL)
    talk.sends(f"request to 0 1 2 proposing {P + 5}")
    talk.answers(0, kept(P + 5), at=3.0)
    talk.answers(1, kept(P + 5))
    talk.wakes()
    talk.sends(f"request to 0 1 2 proposing {P + 5}")
    talk.answers(0, denied())  # only 2 had it for certain when 0 was last renewed
    talk.lost("gap")


def test_what_was_proposed_explains_a_rise_where_no_answer_was_lost() -> None:
    """Rule C14: on a new connection, too, after one that owed nothing."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(1, granted(), at=0.1)
    talk.breaks(1)
    talk.answers(0, granted(P + 5))
    talk.answers(2, granted(P + 5))
    talk.held(P + 5)
    talk.joins(1)
    talk.wakes(RENEWAL)
    talk.sends(f"request to 0 1 2 proposing {P + 5}")
    talk.answers(0, kept(P + 5), at=3.0)
    talk.answers(1, kept(P + 5))
    talk.wakes()
    talk.sends(f"request to 0 1 2 proposing {P + 5}")
    talk.answers(0, denied())  # 1 had it for certain all the time
    talk.held(P + 5)


def test_a_denial_raises_nothing_that_a_holder_proposes(held: Held) -> None:
    """And what a broken connection owed is not owed by the next, also if that is the renewal of a lease."""
    talk = held(5)
    renewal(talk, {0: [*denied(), P + 9], 1: kept(), 2: kept(), 3: kept()})
    talk.breaks(4, at=5.0)
    talk.joins(4)
    renewal(talk, {1: kept(), 2: kept(), 4: kept()})
    talk.held(P, until=good_until(RENEWAL + TTL / 3))


def test_a_fence_that_its_owner_raises_is_no_gap(held: Held) -> None:
    """Rule O8."""
    talk = held()
    talk.expects(P + 7)
    renewal(talk, {0: kept(P + 7), 1: kept(P + 7), 2: kept(P + 7)})
    talk.held(P)


# ---- fences that no clock allows

MOST = P + HORIZON * 1500  # when it begins: half the horizon for either clock, and half for what was proposed


@pytest.mark.parametrize("kind", ["granted now", "granted before", "pushed"])
@pytest.mark.parametrize("above", [0, 1, 2**53 - 1 - MOST - 1_000_000, 2**60])
def test_a_fence_that_no_clock_allows_is_neither_counted_nor_written_back(kind: str, above: int) -> None:
    # Rule F5.
    talk = Conversation(3)
    talk.sends("request to 0 1 2")
    talk.answers(0, usual(), at=0.1)
    fence = MOST + 1_000_000 + above  # (a second has passed)
    if kind == "pushed":
        talk.answers(1, denied(), at=0.2)
        talk.grants(1, fence, at=1.0)
    else:
        talk.answers(1, granted(fence) if kind == "granted now" else kept(fence), at=1.0)
    assert talk.absurd == ([1] if above else [])
    if not above:
        talk.sends(f"request to 0 proposing {fence}")
        talk.answers(0, kept(fence), at=1.1)
        talk.held(fence)
        return
    talk.sends()
    ahead = (fence - P) / 1e6 - 1.0
    assert message_of(talk.claim.votes[1].error) == (
        f"its fence of 'jobs' is {fence}, {ahead:.0f} s ahead of the clocks, and is not used. "
        "Check the node's clock. If it is right, force_release() repairs the fence."
    )
    talk.answers(2, usual(), at=1.1)
    talk.held(P)
    talk.sends()


def test_a_fence_may_be_as_late_as_it_is() -> None:
    """Who has waited for long hears of fences that are later than its ticket."""
    talk = Conversation(1)
    talk.sends("request to 0")
    talk.answers(0, denied(place=1), at=0.1)
    late = P + 3_600_000_000
    for beat in range(1, 1200):
        talk.tick(BEAT * beat)
        talk.sends("request to 0")
        talk.answers(0, denied(place=1))
    talk.grants(0, late, at=3598.0)
    talk.held(late)


def test_a_majority_whose_fences_no_clock_allows_is_an_outage_that_tells_why() -> None:
    talk = Conversation(3, outage=2.0)
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(MOST * 2), at=0.1)
    talk.answers(1, granted(MOST * 3), at=0.1)
    talk.waits()
    talk.answers(2, usual(), at=0.1)
    talk.wakes(2.1)
    talk.sends("release to 0 1 2")
    causes = talk.refused(NoQuorum).causes
    assert all("force_release() repairs the fence" in str(causes[node]) for node in ("node0", "node1"))
    assert talk.absurd == [0, 1]


def test_a_try_is_over_when_too_few_fences_are_left_that_clocks_allow() -> None:
    talk = Conversation(3, patient=False)
    talk.sends("try to 0 1 2")
    talk.answers(0, granted(MOST * 2), at=0.1)
    talk.waits()
    talk.answers(1, granted(MOST * 2), at=0.1)
    talk.sends("release to 0 1 2")
    talk.refused(NoQuorum)


def test_a_fence_that_an_operator_has_repaired_counts() -> None:
    talk = Conversation(3)
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(MOST * 2), at=0.1)
    talk.answers(1, usual(), at=0.1)
    talk.takes(0, at=0.2)
    talk.grants(0, P + HORIZON * 1000 + 1, at=0.3)
    talk.sends(f"request to 1 proposing {P + HORIZON * 1000 + 1}")
    talk.answers(1, kept(P + HORIZON * 1000 + 1), at=0.4)
    talk.held(P + HORIZON * 1000 + 1)


def test_a_holder_whose_node_grants_anew_with_a_fence_that_no_clock_allows_loses_that_vote(held: Held) -> None:
    talk = held()
    renewal(talk, {0: kept(), 1: granted(MOST * 2), 2: kept()})
    talk.held(P)
    assert talk.absurd == [1]
    assert talk.claim.counting(talk.now) == 2
    renewal(talk, {0: granted(P + 1)})
    talk.lost("gap")


def test_a_node_with_a_fence_that_no_clock_allows_vouches_only_from_its_next_grant_on(held: Held) -> None:
    """Rule C13: it granted the token again, so another may have had it in between."""
    talk = held()
    renewal(talk, {0: kept(), 1: granted(MOST * 2), 2: kept()})
    renewal(talk, {1: kept(), 2: denied()})
    talk.lost("gap")


def test_a_holder_counts_a_node_whose_record_was_damaged_while_it_has_the_token(held: Held) -> None:
    talk = held()
    renewal(talk, {0: kept(), 1: kept(MOST * 2), 2: kept()})
    talk.held(P)
    assert talk.absurd == []
    assert talk.claim.counting(talk.now) == 3


def test_a_holder_does_not_begin_to_count_a_node_whose_fence_no_clock_allows() -> None:
    talk = Conversation(3)
    talk.sends("request to 0 1 2")
    for node in (0, 1):
        talk.answers(node, usual(), at=0.1)
    talk.answers(2, kept(MOST * 2), at=0.2)
    assert talk.absurd == [2]
    assert talk.claim.counting(talk.now) == 2
    renewal(talk, {0: kept(), 2: kept(MOST * 2)})
    talk.held(P, until=UNTIL)


@pytest.mark.parametrize("above", [0, 1])
def test_a_waiter_gives_up_a_node_whose_record_was_damaged(above: int) -> None:
    """Rule F5: only a lease that is held goes on counting it. The limit is by the time since the claim began."""
    talk = Conversation(begins=5.0)
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=5.5)
    talk.answers(1, granted(P + 1))
    talk.sends(f"request to 0 proposing {P + 1}")
    talk.answers(0, kept(MOST + 1_000_000 + above), at=6.0)
    talk.sends(*() if above else (f"request to 1 proposing {MOST + 1_000_000}",))


@pytest.mark.parametrize("fence", [P, P + 5])
@pytest.mark.parametrize("patient", [True, False])
def test_T_is_above_every_fence_that_a_denial_told(patient: bool, fence: int) -> None:
    """Rule F11: the node that tells it is no vote of ours, and one of ours may have lost its record."""
    talk, word = Conversation(patient=patient), "request" if patient else "try"
    talk.sends(f"{word} to 0 1 2")
    talk.answers(0, [*denied(), P + 5], at=0.1)
    talk.answers(1, granted(fence))
    talk.answers(2, granted(fence))
    talk.sends(f"{word} to 1 2 proposing {P + 6}")
    talk.answers(1, kept(P + 6))
    talk.answers(2, kept(P + 6))
    talk.held(P + 6)


def test_what_denials_told_stays_until_it_is_held() -> None:
    """Rule F11: when another tells less, at the next heartbeat, and after a correction of the clock (F6)."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, [*denied(), P + 5], at=0.1)
    talk.answers(1, [*denied(), P + 3])
    talk.wakes(BEAT)
    talk.sends(f"request to 0 1 proposing {P + 6}")
    talk.answers(2, granted())
    assert talk.moves(-1.0, at=BEAT + 0.1)
    talk.sends(f"request to 0 1 2 proposing {P + 6}", "release old to 0 1 2")
    for node in (0, 1):
        talk.answers(node, kept(P + 6))  # about the old token
    talk.answers(1, granted(P + 6))
    talk.answers(2, granted(P + 6))
    talk.held(P + 6)
    talk.answers(0, [*denied(), P + 9])
    assert not talk.moves(5.0)  # a holder keeps its ticket, and T
    talk.wakes()
    talk.sends(f"request to 0 1 2 proposing {P + 6}")


def test_a_fence_that_no_clock_allows_raises_nothing_by_a_denial() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, [*denied(), MOST + 1_000_000], at=1.0)
    talk.answers(1, granted())
    talk.answers(2, granted())
    talk.held(P)


def test_a_fence_that_only_a_wrong_clock_allowed_raises_nothing_once_that_is_corrected() -> None:
    """Rule F11: a node far ahead has told it, and was met first (F6)."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, [*denied(), P + 5], at=0.1)
    talk.moves(-3600.0)
    talk.sends(f"request to 0 1 2 proposing {P - 3_600_000_000}", "release old to 0 1 2")


# ---- a ticket of a clock that was wrong


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
@pytest.mark.parametrize("patient", [True, False])
def test_a_ticket_of_a_clock_that_was_wrong_is_given_up_for_one_of_the_right_clock(seconds: float, patient: bool) -> None:
    talk = Conversation(3, patient=patient, standing={2: Standing.CONNECTING})
    word, moved = "request" if patient else "try", P + int(seconds * 1e6)
    talk.sends(f"{word} to 0 1")
    talk.answers(0, usual(), at=0.1)
    assert talk.moves(seconds, at=0.2)
    talk.sends(f"{word} to 0 1 proposing {moved}", "release old to 0 1")
    assert talk.claim.ticket == moved == int(talk.claim.token[:16])
    talk.answers(1, usual())  # to what was asked before
    for node in (0, 1):
        talk.answers(node, b"%016d" % moved, at=0.3)
    talk.held(moved)
    assert not talk.moves(5.0)
    talk.sends()


def test_who_has_asked_nobody_only_changes_its_ticket() -> None:
    talk = Conversation(3, standing=dict.fromkeys(range(3), Standing.CONNECTING))
    talk.sends()
    assert talk.moves(-100.0, at=0.1)
    talk.sends()
    for node in (0, 1):
        talk.joins(node)
        talk.sends(f"request to {node} proposing {P - 100_000_000}")


@pytest.mark.parametrize("nodes, fatal", [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_S19_as_many_as_could_make_somebody_else_a_holder_are_a_gap(held: Held, nodes: int, fatal: int) -> None:
    """With even N half of the nodes is not enough for anybody else."""
    talk = held(nodes)
    talk.wakes(RENEWAL)
    talk.sends(f"request to {everywhere(talk)}")
    for node in range(fatal):
        talk.held(P)
        talk.answers(node, granted(P + 1), at=3.0)
    talk.lost("gap")


@pytest.mark.parametrize("nodes, fatal", [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4)])
def test_S20_it_is_lost_when_an_operator_has_left_it_less_than_a_quorum(held: Held, nodes: int, fatal: int) -> None:
    talk = held(nodes)
    for node in range(fatal):
        talk.held(P)
        talk.takes(node, at=1.0)
    talk.lost("forced")


def test_a_second_grant_without_a_loss_that_was_told_is_a_loss_that_was_not(held: Held) -> None:
    talk = held()
    talk.grants(0, P + 1, at=1.0)
    talk.held(P)
    talk.grants(1, P + 1, at=1.1)
    talk.lost("gap")


def test_S04_a_denial_leaves_too_few_of_two(held: Held) -> None:
    talk = held(2)
    renewal(talk, {0: denied()})
    talk.lost("gap")  # one vote is no majority of two


def test_the_first_grant_of_a_node_is_no_break() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, usual(), at=0.1)
    talk.answers(1, usual(), at=0.1)
    talk.held(P)
    talk.takes(0, at=0.2)
    talk.lost("forced")  # 2 is not known to have had it
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, usual(), at=0.1)
    talk.answers(1, usual(), at=0.1)
    talk.answers(2, granted(P + 3), at=0.2)
    talk.held(P)


def test_the_first_grant_of_a_node_that_is_pushed_is_no_break() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.answers(1, granted(), at=0.1)
    talk.answers(2, denied(), at=0.2)
    talk.grants(2, P + 3, at=1.0)
    talk.held(P)
    assert talk.claim.counting(1.0) == 3


def test_a_denial_by_a_node_that_never_granted_is_no_break() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.answers(1, granted(), at=0.1)
    talk.answers(2, denied(), at=0.2)
    renewal(talk, {0: kept(), 1: kept(), 2: denied()})
    talk.held(P)


def test_a_node_that_granted_with_a_fence_of_T_at_most_had_it_all_the_time() -> None:
    """No later token can have been agreed there; with a higher fence one may have been, until its grant arrived."""
    # Rule C13.
    for fence in (P, P + 3):
        talk = Conversation()
        talk.sends("request to 0 1 2")
        talk.answers(0, granted(), at=0.1)
        talk.answers(1, granted(), at=0.1)
        talk.answers(2, granted(fence), at=1.0)
        renewal(talk, {0: denied()})
        if fence == P:
            talk.held(P)
        else:
            talk.lost("gap")


def test_a_node_that_joins_a_lease_vouches_from_its_first_answer_on() -> None:
    """Rule C13: it was asked after the lease had begun."""
    talk = Conversation(standing={2: Standing.DOWN})
    talk.sends("request to 0 1")
    talk.answers(0, granted(), at=0.1)
    talk.answers(1, granted())
    talk.joins(2, at=0.2)
    talk.wakes(RENEWAL)
    talk.sends("request to 0 1 2")
    for node in range(3):
        talk.answers(node, kept(), at=3.0)
    renewal(talk, {0: denied()})
    talk.lost("gap")


@pytest.mark.parametrize("owed", [True, False])
def test_a_grant_is_not_the_first_if_a_broken_connection_owed_an_answer(owed: bool) -> None:
    """Rule C13: that answer may have been a grant, and the node may have lost the token since."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    if not owed:
        talk.answers(2, denied(), at=0.1)
    talk.breaks(2, at=0.1)
    talk.joins(2, at=0.2)
    talk.sends("request to 2")
    talk.answers(0, granted(), at=0.3)
    talk.answers(1, granted())
    talk.answers(2, granted(), at=1.0)
    talk.takes(0, at=1.1)
    talk.lost("forced") if owed else talk.held(P)


def test_a_waiters_grant_that_ran_out_begins_a_series_again() -> None:
    """Rule C13: between its bound and its next grant nothing is known of the node."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.wakes(BEAT)
    talk.sends("request to 0")
    for node in (1, 2):
        talk.breaks(node, at=8.0)
        talk.joins(node)
        talk.sends(f"request to {node}")
    talk.tick(UNTIL)
    talk.answers(1, granted(), at=9.1)
    talk.answers(2, granted())
    talk.answers(0, kept(), at=9.2)
    assert talk.claim.counting(9.2) == 3
    talk.takes(1, at=9.3)
    talk.lost("forced")


def test_a_series_covers_what_was_granted_after_its_beginning() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.answers(1, granted(), at=0.1)
    talk.answers(2, granted(P + 3), at=RENEWAL)  # at the very moment at which the next request leaves
    renewal(talk, {0: kept(), 1: kept()})
    talk.takes(0, at=4.0)
    talk.held(P)


def test_every_node_that_counts_when_it_becomes_held_vouches_from_then_on() -> None:
    """Also one with another fence than T. What comes later with more than T vouches from its arrival."""
    talk = Conversation(5)
    talk.sends("request to 0 1 2 3 4")
    talk.answers(0, granted(P + 9), at=0.1)
    talk.answers(1, granted())
    talk.answers(2, granted())
    talk.sends(f"request to 1 2 proposing {P + 9}")
    talk.answers(3, granted())
    talk.held(P)
    talk.takes(1, at=0.2)
    talk.held(P)
    talk.answers(4, granted(P + 9), at=0.3)
    talk.takes(2, at=0.4)  # 0 and 3 vouch, and 4 only from 0.3 on
    talk.lost("forced")


def test_a_fence_is_judged_at_the_grant_and_not_when_it_was_written_back() -> None:
    talk = Conversation(5)
    talk.sends("request to 0 1 2 3 4")
    talk.answers(0, granted(), at=0.1)
    talk.answers(1, granted())
    talk.answers(4, granted(P + 9))
    talk.sends(f"request to 0 1 proposing {P + 9}")
    talk.answers(0, kept(P + 9))
    talk.answers(2, granted())
    talk.sends(f"request to 2 proposing {P + 9}")
    talk.answers(3, granted())
    talk.held(P)
    talk.takes(1, at=0.2)  # 2, 3, and 0, which has P + 9 only because we wrote it
    talk.held(P)


def test_a_series_that_broke_while_waiting_is_whole_when_the_lease_begins() -> None:
    """Rule C13: node 0 had the token when the lease began at 0.5, and has had it since."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    talk.takes(0, at=0.2)
    talk.grants(0, P + 1, at=0.3)
    talk.answers(1, granted(P + 5), at=0.4)
    talk.sends(f"request to 0 proposing {P + 5}")
    talk.answers(0, kept(P + 5), at=0.5)
    talk.held(P + 5)
    talk.answers(2, granted(P + 5), at=0.6)
    talk.takes(1, at=0.7)
    talk.held(P + 5)


@pytest.mark.parametrize("reply", [kept(), granted()], ids=["held before", "granted now"])
def test_a_node_that_only_a_renewal_won_vouches_from_its_answer_on(reply: object) -> None:
    """Rule C13: whatever its fence is, nobody knows that it had the token before."""
    talk = Conversation(standing={2: Standing.DOWN})
    talk.sends("request to 0 1")
    talk.answers(0, granted(), at=0.1)
    talk.answers(1, granted(), at=0.1)
    talk.joins(2, at=0.3)
    renewal(talk, {2: reply, 0: kept()})
    talk.answers(1, granted(P + 1))
    talk.lost("gap")


@pytest.mark.parametrize(
    "reply", [kept(), granted(P), granted(P + 7), None], ids=["not followed", "came back", "came back with more", "silent"]
)
def test_a_cede_ends_a_series_and_its_answer_may_begin_another(reply: list[object] | None) -> None:
    talk = held_with_a_cede_unanswered()
    if reply is not None:
        talk.answers(0, reply, at=1.0)
    talk.takes(1, at=1.1)
    if reply in (kept(), granted(P)):
        talk.held(P)
    else:
        talk.lost("forced")


def test_a_burnt_node_vouches_for_nothing() -> None:
    talk = held_with_a_cede_unanswered()
    talk.breaks(0, at=0.2)
    talk.takes(1, at=0.3)
    talk.lost("forced")


def test_a_node_that_counted_when_the_lease_began_and_broke_vouches_from_its_answer_on() -> None:
    """Rule C13: though a request of before the lease brings the new grant, with T, which was written back."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, granted())
    talk.answers(1, granted(P + 1))
    talk.sends(f"request to 0 proposing {P + 1}")
    talk.answers(2, granted(P + 1), at=0.2)
    talk.held(P + 1)
    talk.answers(0, granted(P + 1), at=0.3)  # 0 and 2 have lost it at 0.2
    talk.wakes(RENEWAL)
    talk.sends(f"request to 0 1 2 proposing {P + 1}")
    talk.answers(1, kept(P + 1), at=3.0)
    talk.answers(2, granted(P + 2))
    talk.lost("gap")


def test_a_pushed_grant_of_before_the_lease_vouches_for_all_of_it() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(), at=0.1)
    talk.answers(2, denied(), at=0.1)
    talk.answers(1, granted(), at=0.2)
    talk.grants(0, P + 4, at=1.0)
    talk.sends(f"request to 1 proposing {P + 4}")
    talk.grants(2, P, at=2.0)
    talk.held(P)
    talk.takes(2, at=2.5)  # 0 and 1 had it when the lease began
    talk.held(P)
    talk.takes(1, at=2.6)
    talk.lost("forced")


def test_a_pushed_grant_begins_a_series() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(), at=0.1)
    talk.answers(1, granted(), at=0.1)
    talk.answers(2, granted(), at=0.1)
    talk.grants(0, P + 4, at=1.0)
    renewal(talk, {1: kept(), 2: kept()})
    talk.takes(1, at=4.0)  # renewed at 2.9; 2 has it since 0, and 0 since 1.0
    talk.held(P)


def test_a_broken_connection_is_no_break(held: Held) -> None:
    talk = held()
    talk.breaks(0, at=0.2)
    talk.joins(0, at=0.3)
    renewal(talk, {0: kept(), 1: kept(), 2: kept()})
    talk.breaks(0, at=3.1)
    talk.takes(1, at=3.2)
    talk.held(P)
    talk.takes(2, at=3.3)
    talk.lost("forced")


def test_a_push_on_a_new_connection_that_has_no_bound_yet_breaks_a_series_all_the_same(held: Held) -> None:
    talk = held()
    talk.breaks(0, at=0.2)
    talk.joins(0, at=0.3)
    talk.takes(0, at=0.4)
    talk.held(P)
    talk.takes(1, at=0.5)
    talk.lost("forced")
    talk = held()
    talk.breaks(0, at=0.2)
    talk.joins(0, at=0.3)
    talk.grants(0, P + 1, at=0.4)
    talk.held(P)
    talk.takes(1, at=0.5)
    talk.lost("forced")


def test_what_was_granted_anew_on_a_new_connection_begins_a_series_with_its_answer(held: Held) -> None:
    talk = held()
    talk.breaks(0, at=0.2)
    talk.joins(0, at=0.3)
    talk.grants(0, P + 1, at=0.4)
    renewal(talk, {0: kept(P + 1), 1: kept(), 2: kept()})  # 0 had lost it, though it says that it did not since
    talk.takes(1, at=4.0)  # renewed at 2.9, and 0 is known to have it since 3.0
    talk.lost("forced")


def test_a_push_without_a_bound_begins_no_series(held: Held) -> None:
    talk = held()
    talk.breaks(0, at=0.2)
    talk.joins(0, at=0.3)
    talk.grants(0, P + 1, at=0.4)
    renewal(talk, {0: denied(), 1: kept(), 2: kept()})
    talk.held(P, until=good_until(RENEWAL))


def test_a_grant_that_ran_out_may_have_been_a_break_until_the_node_speaks(held: Held) -> None:
    """When its bound passes the others do not vouch for all of its time: the series stays open."""
    for reply in (kept(), denied()):
        talk = held()
        renewal(talk, {0: granted(P + 1), 1: kept()})  # 2 is silent: it was asked at 0 for the last time
        while talk.claim.votes[2].granted:
            talk.wakes()
            talk.said = []
            for node in (0, 1):
                while talk.ledgers[node]:
                    talk.answers(node, kept(P + 1 - node))
        assert talk.now >= UNTIL
        talk.held(P)
        talk.answers(2, reply, at=talk.now + 0.1)
        if reply == kept():
            talk.held(P)
            assert talk.claim.counting(talk.now) == 3
        else:
            talk.lost("gap")


def test_a_grant_that_ran_out_while_others_vouched_for_it_is_done_with(held: Held) -> None:
    """Later, when they would not any more, its denial is no break."""
    talk = held(5)
    fences = [P, P, P, P]

    def round_(**fresh: int) -> None:
        talk.wakes()
        talk.said = []
        for node in range(4):
            while talk.ledgers[node]:
                anew = fresh.pop(f"node{node}", None)
                if anew:
                    fences[node] = anew
                talk.answers(node, granted(anew) if anew else kept(fences[node]), at=talk.now + 0.01)
                talk.held(P)

    while talk.now < UNTIL:  # 4 is silent
        round_()
    round_(node0=P + 1)
    round_()
    round_(node1=P + 1)
    assert not talk.said
    talk.answers(4, denied(), at=talk.now + 0.01)
    talk.held(P)


# ---------------------------------------------------------------- held: extensions


def test_B23_an_extension_makes_it_last_from_now_and_does_not_add_up(held: Held) -> None:
    talk = held()
    for now in (1.0, 2.0, 2.5):
        assert talk.extend(at=now)
        talk.sends("request to 0 1 2")
        assert not talk.news
        talk.answers(0, kept(), at=now + 0.1)
        assert not talk.news
        talk.answers(2, kept())
        assert talk.news, "a quorum has confirmed"
        assert talk.claim.setback is None
        talk.held(P, until=good_until(now))
        talk.answers(1, kept())
        assert not talk.news


def test_an_extension_may_be_longer_than_the_ttl_and_is_not_shortened_by_renewals(held: Held) -> None:
    talk = held()
    talk.extend(30.0, at=1.0)
    talk.sends("request to 0 1 2 for 30")
    for node in range(3):
        talk.answers(node, kept(), at=1.1)
    talk.held(P, until=good_until(1.0, 30.0))
    renewal(talk, {0: kept(), 1: kept(), 2: kept()})  # with the lock's own ttl again
    talk.held(P, until=good_until(1.0, 30.0))
    talk.extend(2.0)
    talk.sends("request to 0 1 2 for 2")
    talk.answers(0, kept())
    talk.answers(1, kept())
    assert talk.news
    talk.held(P, until=good_until(1.0, 30.0))


def test_an_extension_may_raise_the_nodes_fences(held: Held) -> None:
    """For a name that moves from one set of nodes to another: what it was agreed with stays, and later claims get more than this."""
    talk = held()
    talk.extend(at=1.0, fence=P + 500)
    talk.sends(f"request to 0 1 2 proposing {P + 500}")
    talk.answers(0, kept(P + 500), at=1.1)
    assert talk.claim.counting(1.1, P + 500) == 1
    assert not talk.news
    talk.answers(2, kept(P + 500))
    assert talk.news
    talk.answers(1, kept(P))  # (which no node says)
    assert [talk.claim.counting(1.1, it) for it in (0, P, P + 1, P + 500, P + 501)] == [3, 3, 2, 2, 0]
    talk.held(P, until=good_until(1.0))
    talk.wakes(RENEWAL)
    talk.sends(f"request to 0 1 2 proposing {P + 500}")  # no gap: it is ours that raised them
    for node in range(3):
        talk.answers(node, kept(P + 500), at=RENEWAL + 0.1)
    talk.held(P, until=good_until(RENEWAL))
    talk.extend(at=5.0, fence=P + 3)  # never lowered
    talk.sends(f"request to 0 1 2 proposing {P + 500}")


def test_a_node_that_grants_anew_with_a_raised_fence_has_lost_the_key(held: Held) -> None:
    talk = held()
    talk.extend(at=1.0, fence=P + 500)
    talk.sends(f"request to 0 1 2 proposing {P + 500}")
    for node in range(3):
        talk.answers(node, kept(P + 500), at=1.1)
    talk.wakes(RENEWAL)
    talk.sends(f"request to 0 1 2 proposing {P + 500}")
    talk.answers(0, granted(P + 501), at=RENEWAL)
    talk.held(P, until=talk.claim.until)  # one of three: a minority
    talk.answers(1, granted(P + 501))
    assert talk.claim.reason == "gap"


def test_how_many_count_with_a_fence_on_the_short_path() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(0, usual(), at=0.1)
    talk.answers(1, usual())
    assert talk.claim.as_usual is not None
    assert [talk.claim.counting(0.2, it) for it in (0, P, P + 1)] == [2, 2, 0]


def test_a_node_that_was_lost_has_no_longer_what_an_extension_gave_it(held: Held) -> None:
    talk = held()
    talk.extend(30.0, at=1.0)
    talk.sends("request to 0 1 2 for 30")
    talk.answers(0, kept(), at=1.1)
    talk.answers(1, kept())
    renewal(talk, {2: kept()})
    talk.answers(2, kept())
    assert talk.claim.votes[2].bound == pytest.approx(good_until(1.0, 30.0))
    talk.answers(0, granted(P + 1))
    assert talk.claim.votes[0].bound == pytest.approx(good_until(RENEWAL))


def test_an_extension_that_is_not_confirmed_in_time_leaves_the_lease_in_doubt(held: Held) -> None:
    talk = held(patience=1.0)
    talk.extend(at=1.0)
    talk.sends("request to 0 1 2")
    assert talk.claim.wake == 2.0
    talk.answers(0, kept(), at=1.5)
    talk.wakes(2.0)
    talk.sends("request to 0 1 2")  # at once again
    assert talk.news
    error = talk.claim.setback
    assert isinstance(error, NoQuorum)
    assert str(error).startswith("could not extend 'jobs'")
    talk.held(P, until=UNTIL)
    assert talk.claim.doubt
    assert talk.notes == ["Doubt"]
    talk.answers(1, kept(), at=2.5)
    assert not talk.news, "nobody waits for it any more"
    assert not talk.claim.doubt
    talk.held(P, until=good_until(1.0))


def test_answers_to_what_was_asked_before_do_not_confirm_an_extension(held: Held) -> None:
    talk = held()
    talk.tick(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.extend(20.0, at=3.0)
    talk.sends("request to 0 1 2 for 20")
    talk.answers(0, kept(), at=3.1)
    talk.answers(1, kept())
    assert not talk.news
    talk.answers(0, kept(), at=3.2)
    talk.answers(1, kept())
    assert talk.news
    talk.held(P, until=good_until(3.0, 20.0))
    talk.wakes(RENEWAL + TTL / 3)
    talk.sends("request to 0 1")  # (2 owes two)


def test_an_extension_in_doubt_waits_no_longer_than_others(held: Held) -> None:
    talk = held(patience=1.0)
    for node in range(3):
        talk.breaks(node, at=1.0)
    talk.wakes(RENEWAL)
    talk.wakes(RENEWAL + 1.0)
    assert talk.claim.doubt
    assert talk.extend(at=4.0)
    assert talk.claim.setback is None
    talk.wakes(RENEWAL + 2.0)
    assert not talk.news
    talk.wakes(5.0)
    assert talk.news
    assert isinstance(talk.claim.setback, NoQuorum)
    talk.held(P, until=UNTIL)


def test_an_extension_has_its_own_time_whatever_is_already_late(held: Held) -> None:
    talk = held(patience=1.0)
    talk.wakes(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.extend(at=3.8)
    talk.sends("request to 0 1 2")
    talk.wakes(RENEWAL + 1.0)
    talk.sends()  # (they owe two)
    assert talk.claim.doubt
    assert not talk.news
    for node in (0, 1):
        talk.answers(node, kept(), at=4.0)
        assert not talk.news
    for node in (0, 1):
        talk.answers(node, kept())
    assert talk.news
    assert talk.claim.setback is None
    talk.held(P, until=good_until(3.8))


@pytest.mark.parametrize("asked", [2.8, RENEWAL], ids=["a renewal after it", "a renewal of the same moment"])
def test_an_extension_is_not_confirmed_by_a_renewal(held: Held, asked: float) -> None:
    talk = held(patience=1.0)
    if asked == RENEWAL:
        talk.wakes(RENEWAL)
        talk.sends("request to 0 1 2")
        assert talk.extend(30.0)
        talk.sends("request to 0 1 2 for 30")
        first, second = kept(), READONLY
    else:
        talk.extend(30.0, at=asked)
        talk.sends("request to 0 1 2 for 30")
        talk.wakes(RENEWAL)
        talk.sends("request to 0 1 2")
        first, second = READONLY, kept()
    for reply in (first, second):  # the nodes refuse the extension, and take the renewal
        for node in range(3):
            talk.answers(node, reply, at=3.0)
            assert not talk.news
    talk.held(P, until=good_until(RENEWAL))
    assert talk.notes == ["Renewed"]
    talk.tick(asked + 1.0)
    assert talk.news
    assert isinstance(talk.claim.setback, NoQuorum)
    talk.extend(10.0, at=4.0)  # and the next one wants no more than it says
    talk.sends("request to 0 1 2 for 10")
    talk.answers(0, kept(), at=4.1)
    talk.answers(1, kept())
    assert talk.news
    talk.held(P, until=good_until(4.0, 10.0))


def test_two_who_extend_are_both_told_when_both_have_what_they_want(held: Held) -> None:
    talk = held(patience=1.0)
    talk.extend(30.0, at=1.0)
    talk.sends("request to 0 1 2 for 30")
    talk.extend(5.0, at=1.1)
    talk.sends("request to 0 1 2 for 5")
    for node in range(3):
        talk.answers(node, kept(), at=1.2)
        assert not talk.news
    talk.answers(0, kept())
    assert not talk.news
    talk.answers(1, kept())
    assert talk.news
    talk.held(P, until=good_until(1.0, 30.0))
    talk.extend(4.0, at=1.5)  # and a later one starts afresh
    talk.sends("request to 0 1 2 for 4")
    talk.answers(2, kept())
    talk.answers(0, kept())
    assert not talk.news
    talk.answers(2, kept())
    assert talk.news


def test_a_shorter_extension_does_not_confirm_a_longer_one(held: Held) -> None:
    """Rule C18: the longer one is refused, and its caller waits no longer than node_timeout."""
    talk = held()
    talk.extend(30.0, at=1.0)
    talk.sends("request to 0 1 2 for 30")
    talk.tick(1.05)
    talk.extend(10.0, at=1.1)
    talk.sends("request to 0 1 2 for 10")
    for reply in (READONLY, kept()):
        for node in range(3):
            talk.answers(node, reply, at=1.2)
    talk.held(P, until=good_until(1.1, 10.0))
    talk.tick(2.0)
    talk.sends()  # what was granted confirms that the lease is renewed
    assert talk.claim.setback is not None


def test_an_extension_does_not_put_off_the_repetition_of_a_renewal(held: Held) -> None:
    talk = held(patience=1.0)
    talk.wakes(RENEWAL)
    talk.sends("request to 0 1 2")
    for node in range(3):
        talk.answers(node, READONLY, at=3.0)
    talk.extend(at=3.5)
    talk.sends("request to 0 1 2")
    talk.wakes(RENEWAL + 1.0)
    talk.sends("request to 0 1 2")  # rule C9


def test_an_extension_that_fails_tells_why(held: Held) -> None:
    talk = held(4, patience=1.0)
    talk.breaks(3, at=1.0)
    talk.extend(at=2.0)
    talk.sends("request to 0 1 2")
    talk.answers(0, kept(), at=2.1)
    talk.answers(1, READONLY)
    talk.wakes(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.wakes(3.0)
    talk.said = []
    error = talk.claim.setback
    assert isinstance(error, NoQuorum)
    assert error.waited == 1.0
    assert {node: str(cause) for node, cause in error.causes.items()} == {
        "node1": str(READONLY), "node2": "no answer yet", "node3": "gone"
    }  # fmt: skip


def test_B22_what_is_not_held_cannot_be_extended() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    assert not talk.extend(at=0.1)
    talk.sends()
    talk.waits()


def test_B22_a_lease_that_has_run_out_is_lost_and_not_extended(held: Held) -> None:
    talk = held()
    assert not talk.extend(at=UNTIL)
    talk.lost("expired")
    assert not talk.extend()


def test_an_extension_of_a_lease_that_is_lost_meanwhile_brings_news(held: Held) -> None:
    talk = held()
    talk.extend(at=1.0)
    talk.sends("request to 0 1 2")
    talk.takes(0, at=1.1)
    talk.takes(1)
    talk.lost("forced")
    assert talk.news
    assert talk.claim.setback is None


# ------------------------------------------------ from writer to reader


def writer(**how: Any) -> Conversation:
    """A writer on three nodes, held at once."""
    talk = Conversation(kind=WRITER, **how)
    talk.sends("request to 0 1 2")
    for node in range(3):
        talk.answers(node, usual())
    talk.held(P, until=UNTIL)
    return talk


def test_a_downgrade_asks_by_the_same_token_of_the_other_kind_and_is_held_all_the_time() -> None:
    # Rule D1.
    talk = writer()
    token = talk.claim.token
    assert token.endswith(b":w")
    assert talk.downgrade(at=1.0)
    assert talk.claim.token == token[:-1] + b"r"
    talk.sends(f"request to 0 1 2 proposing {P + 1}")
    talk.held(P, until=UNTIL)
    talk.answers(0, kept(P + 1), at=1.1)
    assert not talk.news
    talk.answers(1, kept(P + 1))
    assert talk.news
    talk.held(P + 1, until=good_until(1.0))
    talk.answers(2, denied())
    talk.held(P + 1, until=good_until(1.0))
    talk.release()
    talk.sends("release to 0 1 2")


def test_what_was_asked_for_the_writer_is_not_listened_to() -> None:
    talk = writer()
    talk.tick(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.downgrade(at=3.0)
    talk.sends(f"request to 0 1 2 proposing {P + 1}")
    for node in range(3):
        assert not talk.answers(node, kept(), at=3.1)
    assert not talk.news
    talk.held(P, until=UNTIL)
    for node in range(2):
        talk.answers(node, kept(P + 1), at=3.2)
    talk.held(P + 1, until=good_until(3.0))


def test_what_our_own_renewal_has_raised_to_the_agreed_fence_is_no_gap() -> None:
    """Two nodes agree on a fence above the ticket, and the third is below it: the first renewal raises it there."""
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(1, granted(P + 2), at=0.1)
    talk.answers(2, granted(P + 2), at=0.2)
    talk.held(P + 2)
    talk.answers(0, granted(P + 1), at=0.3)
    talk.wakes()
    talk.sends(f"request to 0 1 2 proposing {P + 2}")
    talk.answers(0, kept(P + 2), at=talk.now + 0.1)
    # It vouches for the time before, so that the loss of another one is no gap.
    talk.answers(1, denied())
    talk.answers(2, kept(P + 2))
    talk.held(P + 2)


def test_what_a_write_back_under_way_has_raised_is_no_gap() -> None:
    talk = Conversation(kind=WRITER)
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(P + 5), at=0.1)
    talk.answers(1, granted(P + 2))
    talk.sends(f"request to 1 proposing {P + 5}")
    talk.answers(2, granted(P + 2))
    talk.held(P + 2)
    talk.downgrade(at=0.2)
    talk.sends(f"request to 0 1 2 proposing {P + 3}")
    talk.answers(1, kept(P + 5), at=0.3)
    for node, fence in ((1, P + 6), (0, P + 6), (2, P + 3)):
        talk.answers(node, kept(fence), at=0.4)
        talk.held(P + 2 if node == 1 else P + 3)


def test_a_node_that_was_lost_before_it_heard_of_a_downgrade_is_a_gap_as_ever() -> None:
    talk = writer()
    talk.downgrade(at=1.0)
    talk.sends(f"request to 0 1 2 proposing {P + 1}")
    talk.answers(0, granted(P + 1), at=1.1)
    talk.held(P)
    talk.answers(1, granted(P + 1))
    assert talk.claim.reason == "gap"


def test_only_what_is_held_is_downgraded() -> None:
    talk = Conversation(kind=WRITER)
    talk.sends("request to 0 1 2")
    assert not talk.downgrade(at=0.5)
    talk.sends()
    talk = writer()
    assert not talk.downgrade(at=UNTIL)
    assert talk.claim.token.endswith(b":w")


def test_a_renewal_that_adds_nothing_to_an_extension_is_nothing_to_look_at(held: Held) -> None:
    talk = held()
    talk.extend(20.0, at=1.0)
    talk.sends("request to 0 1 2 for 20")
    for node in range(3):
        talk.answers(node, kept(), at=1.1)
    talk.wakes(RENEWAL)
    talk.sends("request to 0 1 2")
    assert [talk.answers(node, kept(), at=3.0) for node in (0, 1, 2)] == [False, True, False]  # the second one confirms it
    talk.held(P, until=good_until(1.0, 20.0))


# ---------------------------------------------------------------- held: doubt


def test_S17_B45_an_unconfirmed_renewal_is_repeated_sooner(held: Held) -> None:
    # Rule C9.
    talk = held(patience=1.0)
    talk.tick(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.answers(0, kept(), at=3.0)
    assert not talk.claim.doubt
    talk.wakes(RENEWAL + 1.0)
    assert talk.claim.doubt
    talk.sends("request to 0 1 2")
    talk.wakes(RENEWAL + 2.0)
    talk.sends("request to 0")  # the others owe two
    talk.breaks(1, at=5.0)
    talk.joins(1, at=5.1)
    talk.sends("request to 1")  # and who comes back is asked at once
    talk.held(P, until=UNTIL)
    assert talk.notes == ["Doubt"]
    talk.answers(1, kept(), at=5.2)
    assert not talk.claim.doubt
    assert talk.notes == ["Doubt", "Renewed"]
    talk.held(P, until=good_until(RENEWAL))  # 0 was renewed then, 1 at 5.1
    talk.answers(0, kept(), at=5.3)
    talk.held(P, until=good_until(RENEWAL + 1.0))
    assert talk.notes == ["Doubt", "Renewed"]


def test_a_short_lease_is_in_doubt_after_a_third_of_it(held: Held) -> None:
    talk = held(ttl=1.5, patience=1.0)
    asked = talk.claim.wake
    talk.tick(asked)
    talk.sends("request to 0 1 2")
    talk.tick(asked + 0.44)
    assert not talk.claim.doubt
    talk.tick(asked + 0.5)
    assert talk.claim.doubt
    talk.sends("request to 0 1 2")


def test_what_a_node_refused_is_over_when_it_takes_writes_again() -> None:
    # Rule C17.
    claim = Claim(Mute(), Timing(TTL), P, Tickets(b"a" * 32), node_set(3, {}))
    claim.begin(0.0)
    assert not claim.relented(0, 0.0), "it has said nothing"
    claim.answered(0, claim.sends[0][1], READONLY, 0.1)
    assert claim.votes[0].error is READONLY
    claim.sends.clear()
    assert claim.relented(0, 0.2) and claim.votes[0].error is None
    assert [(nodes, it.mode, it.sent) for nodes, it in claim.sends] == [((0,), b"w", 0.2)]
    claim.votes[0].failed(READONLY)
    assert not claim.relented(0, 0.3) and claim.votes[0].error is None, "it owes an answer"


def test_a_claim_that_is_declined_asks_nothing() -> None:
    claim, error = Claim(Mute(), Timing(TTL), P, Tickets(b"a" * 32), node_set(3, {})), ConfigError("no")
    claim.decline(error, 5.0)
    assert (claim.state, claim.refusal, claim.news, claim.began) == (State.OVER, error, True, 5.0)
    assert [nodes for nodes, _ in claim.sends if nodes] == []


def test_a_lease_can_be_in_doubt_more_than_once(held: Held) -> None:
    talk = held(patience=1.0)
    for times in (1, 2):
        talk.wakes()
        talk.sends("request to 0 1 2")
        talk.wakes()
        talk.sends("request to 0 1 2")
        assert talk.notes.count("Doubt") == times
        for node in range(3):
            talk.answers(node, kept(), at=talk.now + 0.1 * (not node))
            talk.answers(node, kept())
        assert not talk.claim.doubt


def test_a_holder_in_doubt_asks_as_a_waiter_though_it_tried(held: Held) -> None:
    talk = held(patient=False)
    talk.tick(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.breaks(0, at=3.0)
    talk.tick(RENEWAL + 1.0)
    talk.sends("request to 1 2")
    talk.joins(0, at=4.0)
    talk.sends("request to 0")


# ---------------------------------------------------------------- held: without renewal, for so long at most, by nobody


def test_a_lease_that_is_not_to_be_renewed_ends(held: Held) -> None:
    talk = held(renew=False)
    talk.wakes(UNTIL)
    talk.lost("expired")


def test_a_lease_that_is_not_to_be_renewed_is_renewed_once_if_it_was_waited_for() -> None:
    talk = Conversation(1, renew=False)
    talk.sends("request to 0")
    talk.answers(0, denied(), at=0.1)
    talk.grants(0, P + 1, at=2.0)
    talk.held(P + 1, until=UNTIL)
    talk.wakes(2.0)
    talk.sends(f"request to 0 proposing {P + 1}")
    talk.answers(0, kept(P + 1), at=2.1)
    talk.held(P + 1, until=good_until(2.0))
    talk.wakes(good_until(2.0))
    talk.lost("expired")


@pytest.mark.parametrize("since, again", [(0.808, False), (0.809, True)])
def test_waited_for_means_that_less_than_nine_tenths_are_left(since: float, again: bool) -> None:
    talk = Conversation(1, renew=False)
    talk.sends("request to 0")
    talk.answers(0, usual(), at=since)
    talk.held(P, until=UNTIL)
    assert talk.claim.wake == (since if again else UNTIL)


def test_the_one_renewal_of_a_lease_that_is_not_to_be_renewed_is_not_repeated() -> None:
    talk = Conversation(1, renew=False, patience=1.0)
    talk.sends("request to 0")
    talk.answers(0, usual(), at=2.0)
    talk.wakes(2.0)
    talk.sends("request to 0")
    talk.wakes(3.0)
    talk.sends()
    assert talk.claim.doubt
    talk.wakes(UNTIL)
    talk.lost("expired")


MISCONF = Exception("MISCONF Redis is configured to save")


@pytest.mark.parametrize("in_the_end", ["refused", "confirmed"])
def test_a_lease_that_nodes_refuse_to_renew_says_so_and_what_they_said(held: Held, in_the_end: str) -> None:
    talk = held(patience=1.0)
    told = f"node1: {MISCONF}; node2: {MISCONF}"
    while talk.claim.state is State.HELD and not (in_the_end == "confirmed" and talk.claim.doubt):
        talk.wakes()
        if talk.said and talk.claim.state is State.HELD:
            talk.sends("request to 0 1 2")
            for node, answer in enumerate((kept(), MISCONF, MISCONF)):
                talk.answers(node, answer)
            assert talk.claim.why == (told if talk.claim.doubt else "")
    if in_the_end == "refused":
        talk.lost("refused")
        assert talk.claim.why == told
    else:
        talk.wakes()
        talk.sends("request to 0 1 2")
        talk.answers(0, kept())
        talk.answers(1, kept())
        assert (talk.claim.doubt, talk.claim.why) == (False, "")


@pytest.mark.parametrize("down", [True, False])
def test_one_node_that_refuses_to_renew_is_why_it_is_lost_if_another_is_down(held: Held, down: bool) -> None:
    talk = held()
    talk.wakes(RENEWAL)
    talk.sends("request to 0 1 2")
    if down:
        talk.breaks(0, at=3.0)
    talk.answers(1, MISCONF, at=3.0)
    talk.tick(UNTIL)
    talk.lost("refused" if down else "expired")


def test_a_lease_that_is_not_renewed_can_be_extended(held: Held) -> None:
    talk = held(renew=False, patience=1.0)
    talk.extend(at=1.0)
    talk.sends("request to 0 1 2")
    talk.answers(0, kept(), at=1.1)
    talk.answers(1, kept())
    assert talk.news
    talk.held(P, until=good_until(1.0))
    talk.wakes(good_until(1.0))
    talk.lost("expired")


def test_a_lease_that_was_waited_for_is_renewed_when_a_third_of_it_is_gone() -> None:
    talk = Conversation(1)
    talk.sends("request to 0")
    talk.answers(0, denied(), at=0.1)
    talk.grants(0, P, at=4.0)
    talk.wakes(RENEWAL)  # long past: at once
    talk.sends("request to 0")


@pytest.mark.parametrize("limit", [5.0, 20.0])
def test_B24_S24_a_lease_ends_when_it_was_held_for_as_long_as_allowed(held: Held, limit: float) -> None:
    # Rule C18.
    talk = held(max_hold=limit)
    talk.held(P, until=min(UNTIL, 0.1 + limit))
    while talk.claim.wake < 0.1 + limit:
        renewal(talk, {0: kept(), 1: kept(), 2: kept()})
        assert talk.claim.until <= 0.1 + limit
    talk.wakes(0.1 + limit)
    talk.lost("max_hold")


def test_S24_a_lease_that_runs_out_before_it_was_held_for_as_long_as_allowed_has_expired(held: Held) -> None:
    talk = held(max_hold=20.0, renew=False)
    talk.wakes(UNTIL)
    talk.lost("expired")


def test_B48_S22_a_lease_whose_owner_is_gone_is_not_renewed_and_ends(held: Held) -> None:
    talk = held()
    talk.claim.abandon()
    talk.tick(RENEWAL)
    talk.sends()
    talk.wakes(UNTIL)
    talk.lost("dropped")


def test_B48_a_lease_whose_owner_goes_in_doubt_is_not_renewed(held: Held) -> None:
    talk = held(patience=1.0)
    talk.tick(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.claim.abandon()
    talk.tick(RENEWAL + 1.0)
    talk.sends()
    talk.wakes(UNTIL)
    talk.lost("dropped")


@pytest.mark.parametrize("reason", ["forced", "gap", "closed"])
def test_S24_what_is_lost_before_max_hold_is_lost_for_its_own_reason(held: Held, reason: str) -> None:
    talk = held(max_hold=5.0)
    if reason == "forced":
        talk.takes(0, at=1.0)
        talk.takes(1)
    elif reason == "gap":
        renewal(talk, {0: denied(), 1: denied()})
    else:
        talk.close(at=1.0)
    talk.lost(reason)


@pytest.mark.parametrize("what", INPUTS)
def test_S24_what_has_been_held_for_long_enough_was_not_slow(held: Held, what: str) -> None:
    talk = held(max_hold=5.0)
    talk.wakes(RENEWAL)
    talk.sends("request to 0 1 2")
    talk.pause(8.0)
    INPUTS[what](talk)
    talk.lost("max_hold")


def test_S24_an_extension_may_move_it_and_a_later_end_counts_when_it_is_confirmed(held: Held) -> None:
    talk = held(max_hold=5.0)
    talk.extend(20.0, at=1.0, hold=15.0)
    talk.sends("request to 0 1 2 for 20")
    talk.held(P, until=5.1)
    talk.answers(0, kept(), at=1.1)
    talk.answers(1, kept())
    talk.held(P, until=16.0)


def test_S24_an_earlier_end_counts_at_once(held: Held) -> None:
    talk = held()
    talk.extend(at=1.0, hold=2.0)
    talk.sends("request to 0 1 2")
    talk.held(P, until=3.0)
    talk.tick(3.0)
    talk.lost("max_hold")


def test_S24_an_extension_beyond_it_is_confirmed_and_cut(held: Held) -> None:
    talk = held(max_hold=5.0)
    talk.extend(20.0, at=1.0)
    talk.sends("request to 0 1 2 for 20")
    talk.answers(0, kept(), at=1.1)
    talk.answers(1, kept())
    assert talk.news
    talk.held(P, until=5.1)


def test_B48_a_lease_whose_owner_went_away_in_doubt_is_not_asked_for_at_a_node_that_comes_back(held: Held) -> None:
    talk = held(patience=1.0)
    for node in range(3):
        talk.breaks(node, at=1.0)
    talk.wakes(RENEWAL)
    talk.wakes(RENEWAL + 1.0)
    talk.claim.abandon()
    assert not talk.joins(0, at=4.0)


def test_closing_takes_the_lock_from_its_holder(held: Held) -> None:
    talk = held()
    talk.close(at=1.0)
    talk.lost("closed")
    assert talk.news


@pytest.mark.parametrize("after, reason", [(0.5, "expired"), (1.5, "slow")])
def test_closing_tells_the_holder_of_a_lease_that_has_run_out_before(held: Held, after: float, reason: str) -> None:
    talk = held(patience=1.0)
    talk.close(at=UNTIL + after)
    talk.lost(reason)
    assert talk.news


def test_closing_ends_waiting() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.close(at=1.0)
    talk.sends("release to 0 1 2")
    assert (talk.claim.state, talk.claim.refusal, talk.news) == (State.OVER, None, True)


# ---------------------------------------------------------------- in company


class Others:
    """The others of its ticket: whether they could be held, and what they have been told."""

    def __init__(self, talk: Conversation, ready: bool = True) -> None:
        self.ready, self.asked, self.told, self.denials, self.more = ready, list[float](), list[tuple[str, float]](), list[float](), False
        talk.claim.company = self

    def complete(self, claim: Claim, now: float) -> bool:
        self.asked.append(now)
        assert claim.state is State.WAITING
        return self.ready

    def denied(self, now: float) -> bool:
        self.denials.append(now)
        return self.more

    def ended(self, claim: Claim, now: float) -> None:
        assert claim.state in (State.LOST, State.OVER)
        self.told.append((claim.state.name, now))

    def verdict(self, now: float) -> Exception:
        return LookupError("another one was not to be had")


BOTH_WAYS = pytest.mark.parametrize("reply", [usual(), granted()], ids=["short path", "vote by vote"])


@BOTH_WAYS
def test_it_is_held_when_the_others_could_be(reply: object) -> None:
    talk = Conversation()
    others = Others(talk, ready=False)
    talk.sends("request to 0 1 2")
    talk.answers(0, reply, at=0.1)
    assert others.asked == []
    assert not talk.answers(1, reply, at=0.2)
    talk.waits()
    assert others.asked == [0.2]
    others.ready = True
    talk.inquires(2, at=0.3)  # whatever happens is a reason to look again
    talk.held(P, until=UNTIL)
    assert (talk.claim.since, others.told) == (0.3, [])


@BOTH_WAYS
def test_whether_it_could_be_held(reply: object) -> None:
    talk = Conversation()
    Others(talk, ready=False)
    talk.sends("request to 0 1 2")
    assert talk.claim.could_hold(0.0) == (0, 0.0)
    talk.answers(0, reply, at=0.1)
    assert talk.claim.could_hold(0.1) == (0, 0.0)
    talk.answers(1, reply)
    assert talk.claim.could_hold(0.1) == (P, pytest.approx(UNTIL))
    assert talk.claim.could_hold(UNTIL) == (0, 0.0)
    talk.waits()


def test_by_which_fence_and_until_when_it_could_be_held() -> None:
    talk = Conversation(standing={1: Standing.CONNECTING, 2: Standing.CONNECTING})
    Others(talk, ready=False)
    talk.sends("request to 0")
    talk.answers(0, granted(P + 5), at=0.1)
    for node in (1, 2):
        talk.joins(node, at=1.0)
        talk.sends(f"request to {node}")
    talk.answers(1, granted(), at=1.1)
    talk.sends(f"request to 1 proposing {P + 5}")
    assert talk.claim.could_hold(1.1) == (0, 0.0)  # they do not agree
    talk.answers(2, granted())
    talk.sends(f"request to 2 proposing {P + 5}")
    assert talk.claim.could_hold(1.1) == (P, pytest.approx(good_until(1.0)))
    talk.claim.hold(P, good_until(1.0), 1.1)
    talk.held(P, until=good_until(1.0))
    assert (talk.claim.news, talk.claim.since) == (True, 1.1)


@BOTH_WAYS
def test_it_makes_way_while_the_others_are_not_ready(reply: object) -> None:
    talk = Conversation()
    Others(talk, ready=False)
    talk.sends("request to 0 1 2")
    for node in range(3):
        talk.answers(node, reply, at=0.1)
    talk.inquires(1, at=0.2)
    talk.sends("cede to 1")


def test_the_others_are_told_of_its_end(held: Held) -> None:
    talk = held()
    others = Others(talk)
    talk.takes(0, at=1.0)
    talk.takes(1)
    talk.lost("forced")
    assert others.told == [("LOST", 1.0)]
    talk = Conversation(patient=False)
    others = Others(talk)
    talk.sends("try to 0 1 2")
    for node in (0, 1):
        talk.answers(node, denied(), at=0.1)
    talk.sends("release to 0 1 2")
    talk.refused(LockBusy)
    assert others.told == [("OVER", 0.1)]


def test_when_time_is_up_the_others_may_know_better_why() -> None:
    talk = Conversation(deadline=2.0)
    Others(talk)
    talk.sends("request to 0 1 2")
    talk.answers(0, denied(), at=0.1)
    talk.wakes(2.0)
    talk.sends("release to 0 1 2")
    talk.refused(LookupError)


def test_what_is_to_be_told_of_it_before_anything_was_unusual() -> None:
    talk = Conversation()
    talk.sends("request to 0 1 2")
    talk.answers(1, usual(), at=0.1)
    error = talk.claim.verdict(0.5)
    assert isinstance(error, NoQuorum) and (error.name, error.waited, set(error.causes)) == ("jobs", 0.5, {"node0", "node2"})
    talk.answers(0, usual(), at=0.6)
    talk.held(P, until=UNTIL)


@pytest.mark.parametrize("how", ["extension", "release"])
def test_who_awaits_something_of_it(held: Held, how: str) -> None:
    talk = held()
    assert talk.claim.claims == (talk.claim,)
    assert talk.claim.awaited is False
    if how == "extension":
        talk.extend(at=1.0)
        talk.sends("request to 0 1 2")
        assert talk.claim.awaited is True
        talk.takes(0)
        talk.takes(1)
        talk.lost("forced")
    else:
        talk.release(at=1.0, heard=True)
        talk.sends("release to 0 1 2")
        assert talk.claim.awaited is True
        talk.answers(0, 1, at=1.1)
        talk.answers(1, 1)
    assert talk.claim.awaited is False


# ---------------------------------------------------------------- two searches

HAPPENINGS: Mapping[str, Callable[[Conversation, int], object]] = {
    "granted": lambda talk, node: talk.answers(node, talk.yes),
    "granted with more": lambda talk, node: talk.answers(node, granted(P + 1 + node)),
    "lower": lambda talk, node: talk.answers(node, granted(lower=True)),
    "kept": lambda talk, node: talk.answers(node, kept()),
    "denied": lambda talk, node: talk.answers(node, denied(place=node)),
    "released": lambda talk, node: talk.answers(node, 1),
    "error": lambda talk, node: talk.answers(node, READONLY),
    "push": lambda talk, node: talk.grants(node, P + 2),
    "inquiry": lambda talk, node: talk.inquires(node),
    "taken": lambda talk, node: talk.takes(node),
    "breaks": lambda talk, node: talk.breaks(node),
    "joins": lambda talk, node: talk.joins(node),
    "tick": lambda talk, _: talk.tick(talk.now),
    "extend": lambda talk, node: talk.extend(5.0 * node + 5.0),
    "release": lambda talk, node: talk.release(heard=node > 0),
    "close": lambda talk, _: talk.close(),
}


@settings(max_examples=150, derandomize=FROZEN, deadline=None)
@given(
    st.integers(1, 5),
    st.booleans(),
    st.lists(
        st.tuples(
            st.one_of(st.just("granted"), st.sampled_from(sorted(HAPPENINGS))),
            st.integers(0, 4),
            st.sampled_from([0.0, 0.0, 0.01, 0.5, 3.0]),
        ),
        max_size=25,
    ),
)
def test_the_short_path_leads_where_the_long_one_does(nodes: int, patient: bool, happenings: list[tuple[str, int, float]]) -> None:
    """An answer as usual that is only counted, and the same one that is not as usual because it is a number, come to the same."""
    short, long = Conversation(nodes, patient=patient), Conversation(nodes, patient=patient)
    short.yes, long.yes = usual(), granted()
    short.said, long.said = [], []
    for what, node, seconds in happenings:
        seen = []
        for talk in (short, long):
            talk.now += seconds
            claim = talk.claim
            if claim.state is State.HELD and talk.now >= claim.until:
                talk.tick(talk.now)  # (that it is late is told by the clock before it is told by a voice)
            elif node < nodes and can_happen(talk, what, node):
                HAPPENINGS[what](talk, node)
            said = [talk._line(*it) for it in talk.said]
            talk.said = []
            count = claim.counting(talk.now) if claim.state in (State.WAITING, State.HELD) else None
            seen.append((claim.state, claim.fence, claim.until, claim.wake, claim.reason, claim.doubt, claim.freed, claim.done, count,
                         talk.news, talk.notes, repr(claim.refusal), said))  # fmt: skip
        assert seen[0] == seen[1]


def can_happen(talk: Conversation, what: str, node: int) -> bool:
    if what in ("granted", "granted with more", "lower", "kept", "denied", "released", "error"):
        owed = [it.mode for it in talk.ledgers[node] if it.owner is not None]
        return bool(owed) and (owed[0] == RELEASE) is (what == "released" or (what == "error" and owed[0] == RELEASE))
    if what in ("push", "inquiry", "taken"):
        return talk.claim.state in (State.WAITING, State.HELD) and talk.node_set.standing[node] is Standing.UP
    if what in ("breaks", "joins"):
        return (talk.node_set.standing[node] is Standing.UP) is (what == "breaks")
    return True


@settings(max_examples=200, derandomize=FROZEN, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 1500), st.integers(1, 5), st.integers(2, 3))
def test_B51_no_two_hold_it_whatever_breaks_and_whoever_waits_gets_it(seed: int, steps: int, nodes: int, clients: int) -> None:
    """S-05, S-06, S-08, S-28, S-29: P-S1 and P-S2 all the time, that every counted node holds the token, and P-L2 in the end."""
    walk(seed, nodes, clients, steps)


@settings(max_examples=50, derandomize=FROZEN, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 600), st.integers(1, 5), st.integers(2, 4))
def test_without_faults_whoever_waits_gets_it(seed: int, steps: int, nodes: int, clients: int) -> None:
    """P-L1."""
    walk(seed, nodes, clients, steps, faults=False)


def test_the_others_are_told_of_what_is_denied() -> None:
    talk = Conversation()
    others = Others(talk)
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(), at=0.1)
    assert others.denials == []
    assert talk.answers(1, denied(), at=0.2), "observers are told that it is queued"
    assert others.denials == [0.2]
    assert not talk.answers(2, denied(), at=0.3)
    talk.wakes(BEAT)
    talk.sends("request to 0 1 2")
    others.more = True
    assert talk.answers(2, denied(), at=3.1), "there is something to be done for the others"
