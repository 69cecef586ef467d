"""The record: what is told of which claim, what is counted, and what is said only once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from proof.books import word

from holdfast import events
from holdfast.engine.recorder import REMEMBERED, Recorder, Stats, total
from holdfast.errors import LockBusy
from holdfast.protocol.claim import Claim, State
from holdfast.protocol.exclusive import Exclusive
from holdfast.protocol.joint import JointRequest
from holdfast.protocol.nodes import NodeSet
from holdfast.protocol.ticket import Tickets
from holdfast.protocol.timing import Timing

EPOCH = 1_700_000_000.0  # the wall clock when the clock that claims go by was at 0


def a_record(telling: bool = True) -> Recorder:
    record = Recorder()
    record.telling, record.epoch = telling, EPOCH
    return record


def a_claim(state: State = State.WAITING, since: float = 0.0, **facts: Any) -> Claim:
    """A claim that began at 10."""
    claim = Claim(Exclusive("jobs", ttl=9.0, horizon=1), Timing(9.0), 5, Tickets(b"a" * 32), NodeSet(["n0", "n1"], 1.0, 9.0, 1))
    claim.state, claim.began, claim.since = state, 10.0, since
    for name, fact in facts.items():
        setattr(claim, name, fact)
    return claim


def when(seconds: float) -> datetime:
    return datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC) + timedelta(seconds=seconds)


def counted(record: Recorder) -> dict[str, int]:
    """What was counted, by name."""
    stats = record.stats([], 0.0)
    return {name: count for name, count in stats._asdict().items() if count and name != "waited"}


def test_of_locks_that_go_well_nothing_is_told_unless_somebody_listens() -> None:
    record = a_record(telling=False)
    held = a_claim(State.HELD, since=11.0, fence=7, notes=[events.Renewed, events.Doubt])
    record.happened(events.Attempt, held, 10.0)
    record.news(held, 11.0)
    record.notes(held, 14.0)
    record.news(a_claim(State.OVER, refusal=LockBusy("jobs", 1.0, None, None)), 12.0)
    record.news(a_claim(State.LOST, since=11.0, reason="gap"), 15.0)
    assert [word(it) for it in record.events] == ["Doubt", "lost"]  # trouble
    assert counted(record) == {"attempts": 1, "acquired": 1, "renewed": 1, "doubts": 1, "refused": 1, "busy": 1, "lost": 1}


@pytest.mark.parametrize("holders, told", [([None, None], None), ([None, b"b\xff", b"c"], "b\\xff"), ([b""], None)])
def test_whoever_stands_in_line_is_told_behind_whom(holders: list[bytes | None], told: str | None) -> None:
    record, claim = a_record(), a_claim(notes=(events.Queued,))
    claim.votes = [type("Vote", (), {"holder": it}) for it in holders]  # type: ignore[misc]  # (the mistake)
    claim.place = 2
    record.notes(claim, 11.0)
    (queued,) = record.events
    assert isinstance(queued, events.Queued) and (queued.holder, queued.waited, queued.place) == (told, 1.0, 3)
    record.notes(claim, 12.0)  # they were told once
    assert (claim.notes, len(record.events)) == ((), 1)


def test_what_was_noted_is_told_in_order_with_what_is_left_of_the_lease() -> None:
    record = a_record()
    record.notes(a_claim(State.HELD, since=11.0, fence=7, until=19.0, left=1.5, notes=(events.Doubt, events.Renewed)), 14.0)
    told = [(type(it), it.fence, it.remaining, it.waited) for it in record.events]  # type: ignore[attr-defined]  # (events of that kind)
    assert told == [(events.Doubt, 7, 5.0, 1.0), (events.Renewed, 7, 5.0, 1.0)]
    assert [it.left for it in record.events if isinstance(it, events.Renewed)] == [1.5]


def test_a_lock_that_somebody_else_had_is_told_and_counted() -> None:
    record = a_record()
    for contended in (True, False, True):
        claim = a_claim(State.HELD, since=11.0, fence=7)
        claim.contended = contended
        record.news(claim, 11.0)
    assert [it.contended for it in record.events if isinstance(it, events.Acquired)] == [True, False, True]
    record.news(a_claim(State.OVER, refusal=LockBusy("jobs", 1.0, None, None)), 12.0)
    record.ended(a_claim(State.OVER), State.WAITING, 14.0)
    record.ended(a_claim(State.OVER, since=11.0), State.HELD, 99.0)
    stats = record.stats([], 0.0)
    assert (stats.acquired, stats.contended, stats.refused) == (3, 2, 2)
    assert stats.waited == pytest.approx(3 * 1.0 + 2.0 + 4.0)


def test_a_claim_that_stays_was_left_and_not_released() -> None:
    record = a_record()
    claim = a_claim(State.OVER, since=11.0, fence=7, until=19.5, stays=True)
    record.ended(claim, State.HELD, 12.0)
    known: dict[str, Any] = {"name": "jobs", "token": claim.token.decode(), "names": ("jobs",), "want": 5}
    left = events.Ended(how="left", **known, waited=1.0, fence=7, fences={"jobs": 7}, remaining=7.5, held=1.0)
    assert (record.events, counted(record)) == ([left], {"left": 1})


@pytest.mark.parametrize("reason, how", [("closed", "left"), ("expired", "lost"), ("forced", "lost")])
def test_a_claim_that_stays_and_whose_client_is_closed_was_left(reason: str, how: str) -> None:
    record = a_record()
    claim = a_claim(State.LOST, since=11.0, fence=7, until=19.5, reason=reason, stays=True)
    record.news(claim, 12.0)
    record.ended(claim, State.HELD, 12.0)
    assert [word(it) for it in record.events] == [how]


def test_the_oldest_warnings_are_forgotten_so_that_their_number_is_bounded() -> None:
    record = a_record()
    for number in range(REMEMBERED + 1):
        record.warn("n0", f"name {number}", 3.0, "key", f"name {number}")
    record.events.clear()
    record.warn("n0", "name 1", 3.0, "key", "name 1")
    assert record.events == []
    record.warn("n0", "name 0", 3.0, "key", "name 0")
    assert len(record.events) == 1
    assert len(record._warned) == REMEMBERED


def test_the_kinds_of_warnings_are_known_for_each_node_whether_told_again_or_not() -> None:
    record = a_record()
    for about, topic in (("clock", None), ("key", "key a"), ("key", "key b"), ("clock", None)):
        record.warn("n0", "it is wet", 3.0, about, topic)
    record.warn("n1", "it is wet", 3.0, "eviction", "eviction allkeys-lru")
    assert len(record.events) == 4
    assert [record.kinds_of(node) for node in ("n0", "n1", "n2")] == [("clock", "key"), ("eviction",), ()]


def test_what_a_caller_did_is_stamped_when_it_is_noted() -> None:
    record = a_record()
    record.epoch = 1_700_000_000.0
    opened = events.Opened(name="a", token="", waited=1.0, error=ValueError())
    record.note_at(5.0, opened)
    assert record.events == [opened]
    assert record.events[0].at == datetime.fromtimestamp(1_700_000_005, UTC)
    assert record.counts[events.Opened] == 1


def test_the_figures() -> None:
    record = a_record(telling=False)
    for many, kind in enumerate((events.Attempt, events.Acquired, "released", "lost", events.Renewed, events.Doubt), 2):
        for _ in range(many):
            record.counts[kind] += 1
    record.ended(a_claim(State.OVER), State.WAITING, 11.0)
    record.note(events.NodeEvent(state="down", node="n0", cause=ConnectionError("gone")))
    record.note(events.Opened(name="a", token="", waited=1.0, error=ValueError()))
    record.note(events.Forced(name="a", holder=None, nodes=3, reason="stuck"))
    record.dropped = 8
    states = [State.HELD, State.WAITING, State.HELD, State.OVER, State.LOST, State.WAITING, State.WAITING]
    wants = [a_claim(state, began=10.0 + number) for number, state in enumerate(states)]
    stats = record.stats(iter(wants), 20.0)
    figures = {"held": 2, "waiting": 3, "attempts": 2, "acquired": 3, "refused": 1, "released": 4, "lost": 5, "renewed": 6, "doubts": 7}
    more = {"opened": 1, "forced": 1, "gave_up": 1, "longest_wait": 9.0}
    assert stats == Stats(**figures, down=1, dropped=8, waited=1.0, **more)  # type: ignore[arg-type]  # (options of several types)
    with pytest.raises(AttributeError):
        stats.held = 0  # type: ignore[misc]  # (the mistake)


def test_the_figures_of_several_sets_are_added_up() -> None:
    names = list(Stats._fields)
    one, other = (Stats(**{name: factor * (number + 1) for number, name in enumerate(names)}) for factor in (1, 100))
    sums = {name: 101 * (number + 1) for number, name in enumerate(names)}
    assert total([one, other]) == Stats(**{**sums, "longest_wait": other.longest_wait})
    assert total([]) == Stats(**dict.fromkeys(names, 0))


# ------------------------------------------------ several claims, one acquisition


def a_joint(*names: str, state: State = State.WAITING, since: float = 0.0, needed: int | None = None, **facts: Any) -> JointRequest:
    """The claims of several names, or of some slots, which began at 10."""
    claims = []
    for number, name in enumerate(names):
        recipe = Exclusive(name, ttl=9.0, horizon=1, slot=None if needed is None else number)
        claims.append(Claim(recipe, Timing(9.0), 5, Tickets(b"a" * 32), NodeSet(["n0", "n1"], 1.0, 9.0, 1)))
    joint = JointRequest(claims[:needed], None if needed is None else lambda: claims[needed:])
    for claim in claims:
        claim.state, claim.began, claim.since = state, 10.0, since
        for name, fact in facts.items():
            setattr(claim, name, fact)
    joint.began = 10.0
    joint._over = False
    return joint


def test_each_change_of_several_names_is_told_once() -> None:
    record = a_record()
    joint = a_joint("b", "a", state=State.HELD, since=11.0, until=19.0)
    record.happened(events.Attempt, joint, 10.0)
    joint.claims[0].fence, joint.claims[1].fence = 7, 9
    for claim in joint.claims:
        record.news(claim, 11.0)
    for claim in joint.claims:
        claim.state, claim.reason = State.LOST, "gap"
    for claim in joint.claims:
        record.news(claim, 15.0)
    attempt, acquired, lost = record.events
    assert isinstance(attempt, events.Attempt) and isinstance(acquired, events.Acquired) and word(lost) == "lost"
    for event in (attempt, acquired, lost):
        assert (event.name, event.names, event.want, event.kind) == ("b,a", ("b", "a"), 5, "exclusive")
    assert (acquired.fence, acquired.fences) == (9, {"b": 7, "a": 9})
    assert (lost.reason, lost.held) == ("gap", 4.0)
    assert counted(record) == {"attempts": 1, "acquired": 1, "lost": 1}


def test_the_end_of_several_names_is_told_once() -> None:
    record, error = a_record(), LockBusy("jobs", 1.0, None, None)
    refused = a_joint("a", "b", state=State.OVER, refusal=error)
    for claim in refused.claims:
        record.news(claim, 12.0)
    record.ended(refused, State.OVER, 12.0)
    released, gave_up = a_joint("a", "b", state=State.OVER, since=11.0), a_joint("a", "b", state=State.OVER)
    record.ended(released, State.HELD, 14.0)
    record.ended(gave_up, State.WAITING, 15.0)
    for claim in (*released.claims, *gave_up.claims):  # nodes confirm it
        record.news(claim, 16.0)
    assert [word(it) for it in record.events] == ["Refused", "released", "Refused"]
    assert counted(record) == {"refused": 2, "released": 1, "busy": 1, "gave_up": 1}
    assert record.stats([], 0.0).waited == pytest.approx(2.0 + 5.0)


def test_who_asks_for_permits_waits_when_too_few_are_left() -> None:
    record = a_record()
    joint = a_joint("s", "s", "s", needed=1)
    first = joint.claims[0]
    for claim, places in ((first, 4), (None, 2), (None, 3)):
        one = claim or next(it for it in joint.claims if not it.queued)
        one.queued, one.place, one.notes = True, places, (events.Queued,)
        one.votes = [type("Vote", (), {"holder": b"x%d" % places})]  # type: ignore[list-item]  # (a stand-in)
        joint.denied(11.0)
        record.notes(one, 11.0)
        assert len(record.events) == (places == 3), "while another slot may be free, nobody waits"
    first.notes = (events.Queued,)
    record.notes(first, 12.0)
    [queued] = record.events
    assert isinstance(queued, events.Queued) and (queued.holder, queued.place) == ("x4", 3)


def test_a_renewal_of_several_names_is_told_when_all_have_it() -> None:
    record = a_record()
    joint = a_joint("a", "b", state=State.HELD, since=11.0)
    one, other = joint.claims
    told = []
    for claim, note, until in [
        (one, events.Doubt, 18.0),
        (other, events.Doubt, 18.0),
        (one, events.Renewed, 20.0),
        (one, events.Renewed, 21.0),
        (other, events.Renewed, 19.0),
        (other, events.Doubt, 19.0),
    ]:
        claim.notes, claim.until, claim.left = (note,), until, until - 17.0
        record.notes(claim, 14.0)
        told.append([type(it) for it in record.events])
        record.events = []
    assert told == [[events.Doubt], [], [], [], [events.Renewed], [events.Doubt]]
    assert counted(record) == {"renewed": 1, "doubts": 2}


def test_what_a_renewal_of_several_names_says_is_of_the_one_that_was_nearest_to_its_end() -> None:
    record = a_record()
    joint = a_joint("a", "b", state=State.HELD, since=11.0)
    for claim, left, until in zip(joint.claims, (3.0, 2.0), (21.0, 20.0), strict=True):
        claim.notes, claim.left, claim.until = (events.Renewed,), left, until
        record.notes(claim, 14.0)
    [renewed] = record.events
    assert isinstance(renewed, events.Renewed) and (renewed.left, renewed.remaining) == (2.0, 6.0)


def test_of_several_names_that_are_over_without_a_refusal_their_end_is_recorded_and_not_the_news() -> None:
    record = a_record()
    joint = a_joint("a", "b", state=State.OVER)
    record.news(joint.claims[0], 12.0)
    assert record.events == []
    record.ended(joint, State.WAITING, 12.0)
    assert [type(it) for it in record.events] == [events.Refused]
