"""The record: what is told of which claim, what is counted, and what is said only once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import events
from holdfast.core.claim import HELD, LOST, OVER, WAITING, Claim, State
from holdfast.core.reach import Reach
from holdfast.core.ticket import Mint
from holdfast.engine.record import REMEMBERED, Record, Stats, total
from holdfast.errors import LockBusy
from holdfast.recipes.exclusive import Exclusive

EPOCH = 1_700_000_000.0  # the wall clock when the clock that claims go by was at 0


def a_record(telling: bool = True) -> Record:
    record = Record()
    record.telling, record.epoch = telling, EPOCH
    return record


def a_claim(state: State = WAITING, since: float = 0.0, **facts: Any) -> Claim:
    """A claim that began at 10."""
    claim = Claim(Exclusive("jobs", ttl=9.0, horizon=1), 9.0, 5, Mint(b"a" * 32), Reach(["n0", "n1"], 1.0, 9.0, 1))
    claim.state, claim.began, claim.since = state, 10.0, since
    for name, fact in facts.items():
        setattr(claim, name, fact)
    return claim


def when(seconds: float) -> datetime:
    return datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC) + timedelta(seconds=seconds)


def counted(record: Record) -> dict[str, int]:
    """What was counted, by name."""
    stats = record.stats([])
    return {name: count for name, count in stats._asdict().items() if count and name != "waited"}


def test_in_the_beginning_nothing_has_happened() -> None:
    record = Record()
    assert (record.events, record.telling, record.epoch, record.dropped, counted(record)) == ([], False, 0.0, 0, {})


def test_what_is_told_of_a_claim() -> None:
    record, claim = a_record(), a_claim()
    record.happened(events.Attempt, claim, 10.5)
    (told,) = record.events
    assert told == events.Attempt(name="jobs", token=claim.token.decode(), waited=0.5)
    assert told.at == when(10.5) == record.at(10.5)
    claim.since = 12.0
    record.happened(events.Released, claim, 30.0, fence=7)
    assert record.events[1] == events.Released(name="jobs", token=claim.token.decode(), waited=2.0, fence=7)
    assert counted(record) == {"attempts": 1, "released": 1}


def test_of_locks_that_go_well_nothing_is_told_unless_somebody_listens() -> None:
    record = a_record(telling=False)
    held = a_claim(HELD, since=11.0, fence=7, notes=[events.Renewed, events.Doubt])
    record.happened(events.Attempt, held, 10.0)
    record.news(held, 11.0)
    record.notes(held, 14.0)
    record.news(a_claim(OVER, refusal=LockBusy("jobs", 1.0, None, None)), 12.0)
    record.news(a_claim(LOST, since=11.0, reason="gap"), 15.0)
    assert [type(it) for it in record.events] == [events.Doubt, events.Lost]  # trouble
    assert counted(record) == {"attempts": 1, "acquired": 1, "renewed": 1, "doubts": 1, "refused": 1, "lost": 1}


@pytest.mark.parametrize("holders, told", [([None, None], None), ([None, b"b\xff", b"c"], "b\\xff"), ([b""], None)])
def test_whoever_stands_in_line_is_told_behind_whom(holders: list[bytes | None], told: str | None) -> None:
    record, claim = a_record(), a_claim(notes=(events.Queued,))
    claim.votes = [type("Vote", (), {"holder": it}) for it in holders]  # type: ignore[misc]
    record.notes(claim, 11.0)
    (queued,) = record.events
    assert isinstance(queued, events.Queued) and (queued.holder, queued.waited) == (told, 1.0)
    record.notes(claim, 12.0)  # they were told once
    assert (claim.notes, len(record.events)) == ((), 1)


def test_what_was_noted_is_told_in_order_with_what_is_left_of_the_lease() -> None:
    record = a_record()
    record.notes(a_claim(HELD, since=11.0, fence=7, until=19.0, notes=(events.Doubt, events.Renewed)), 14.0)
    told = [(type(it), it.fence, it.remaining, it.waited) for it in record.events]  # type: ignore[attr-defined]
    assert told == [(events.Doubt, 7, 5.0, 1.0), (events.Renewed, 7, 5.0, 1.0)]


def test_news_of_a_new_state_are_told() -> None:
    record, error = a_record(), LockBusy("jobs", 1.0, None, None)
    record.news(a_claim(HELD, since=11.0, fence=7), 11.0)
    record.news(a_claim(OVER, refusal=error), 12.0)
    record.news(a_claim(LOST, since=11.0, fence=7, reason="gap"), 15.0)
    acquired, refused, lost = record.events
    assert isinstance(acquired, events.Acquired) and (acquired.fence, acquired.waited) == (7, 1.0)
    assert isinstance(refused, events.Refused) and (refused.error, refused.waited) == (error, 2.0)
    assert isinstance(lost, events.Lost) and (lost.fence, lost.reason, lost.waited) == (7, "gap", 1.0)


def test_a_lock_that_somebody_else_had_is_told_and_counted() -> None:
    record = a_record()
    for contended in (True, False, True):
        claim = a_claim(HELD, since=11.0, fence=7)
        claim.contended = contended
        record.news(claim, 11.0)
    assert [it.contended for it in record.events if isinstance(it, events.Acquired)] == [True, False, True]
    record.news(a_claim(OVER, refusal=LockBusy("jobs", 1.0, None, None)), 12.0)
    record.ended(a_claim(OVER), WAITING, 14.0)
    record.ended(a_claim(OVER, since=11.0), HELD, 99.0)
    stats = record.stats([])
    assert (stats.acquired, stats.contended, stats.refused) == (3, 2, 2)
    assert stats.waited == pytest.approx(3 * 1.0 + 2.0 + 4.0)


def test_a_lease_that_is_held_for_long_is_told_of_once_and_though_nobody_listens() -> None:
    record = a_record(telling=False)
    record.long = 600.0
    claim = a_claim(HELD, since=11.0, fence=7, until=620.0)
    for now in (14.0, 610.9, 611.0, 614.0, 9000.0):
        claim.notes = (events.Renewed,)
        record.notes(claim, now)
    [told] = record.events
    assert told == events.HeldLong(name="jobs", token=claim.token.decode(), waited=1.0, fence=7, held=600.0)
    assert counted(record) == {"renewed": 5}
    never = a_record()
    claim.notes = (events.Renewed,)
    never.notes(claim, 1e9)
    assert [type(it) for it in never.events] == [events.Renewed], "by default, nobody is warned"


@pytest.mark.parametrize("end", ["released", "lost"])
def test_a_lease_that_has_ended_is_forgotten(end: str) -> None:
    record = a_record(telling=False)
    record.long = 600.0
    claim = a_claim(HELD, since=11.0, fence=7, until=620.0, notes=(events.Renewed,))
    record.notes(claim, 700.0)
    if end == "lost":
        claim.state = LOST
        record.news(claim, 701.0)
    else:
        claim.state = OVER
        record.ended(claim, HELD, 701.0)
    assert not record._told_long


def test_news_of_no_new_state_are_not() -> None:
    """An extension or a release was confirmed, or the client is being closed."""
    record = a_record()
    record.news(a_claim(HELD, since=11.0), 12.0)
    record.news(a_claim(OVER, since=11.0), 12.0)
    record.news(a_claim(WAITING), 12.0)
    assert (record.events, counted(record)) == ([], {})


@pytest.mark.parametrize("before", list(State))
@pytest.mark.parametrize("after", list(State))
def test_what_its_caller_has_ended(before: State, after: State) -> None:
    record = a_record()
    record.ended(a_claim(after, since=11.0 if before is HELD else 0.0, fence=7), before, 12.0)
    if after is OVER and before is HELD:
        (released,) = record.events
        assert isinstance(released, events.Released) and released.fence == 7
    elif after is OVER and before is WAITING:
        (refused,) = record.events
        assert isinstance(refused, events.Refused) and refused.error is None
    else:
        assert record.events == []


def test_what_is_no_claims_news_is_told_and_counted() -> None:
    record = a_record(telling=False)
    down = events.NodeDown(at=when(1.0), node="n0", cause=ConnectionError("gone"))
    record.note(down)
    record.note(events.NodeUp(at=when(2.0), node="n0"))
    assert record.events[0] is down
    assert counted(record) == {"down": 1}


def test_a_warning_is_told_once_for_each_node() -> None:
    record = a_record(telling=False)
    for node, warning in [("n0", "it is wet"), ("n0", "it is wet"), ("n1", "it is wet"), ("n0", "it is cold"), ("n1", "it is wet")]:
        record.warn(node, warning, 3.0)
    assert [(it.node, it.warning) for it in record.events] == [  # type: ignore[attr-defined]
        ("n0", "it is wet"),
        ("n1", "it is wet"),
        ("n0", "it is cold"),
    ]
    assert {(type(it), it.at) for it in record.events} == {(events.Warned, when(3.0))}


def test_the_oldest_warnings_are_forgotten_so_that_their_number_is_bounded() -> None:
    record = a_record()
    for number in range(REMEMBERED + 1):
        record.warn("n0", f"name {number}", 3.0)
    record.events.clear()
    record.warn("n0", "name 1", 3.0)
    assert record.events == []
    record.warn("n0", "name 0", 3.0)
    assert len(record.events) == 1
    assert len(record._warned) == REMEMBERED


def test_a_warning_about_one_thing_is_told_once_whatever_its_words() -> None:
    record = a_record()
    for node, warning in [("n0", "10 s late"), ("n0", "11 s late"), ("n1", "11 s late")]:
        record.warn(node, warning, 3.0, "clock")
    record.warn("n0", "12 s", 3.0)
    assert [it.warning for it in record.events] == ["10 s late", "11 s late", "12 s"]  # type: ignore[attr-defined]


def test_what_a_caller_did_is_stamped_when_it_is_noted() -> None:
    record = a_record()
    record.epoch = 1_700_000_000.0
    opened = events.Opened(name="a", token="", waited=1.0, error=ValueError())
    record.note_at(5.0, opened)
    assert record.events == [opened]
    assert record.events[0].at == datetime.fromtimestamp(1_700_000_005, UTC)
    assert record.counts[events.Opened] == 1


def test_the_figures() -> None:
    record, claim = a_record(telling=False), a_claim()
    for many, kind in enumerate((events.Attempt, events.Acquired, events.Released, events.Lost, events.Renewed, events.Doubt), 2):
        for _ in range(many):
            record.counts[kind] += 1
    record.ended(a_claim(OVER), WAITING, 11.0)
    record.note(events.NodeDown(node="n0", cause=ConnectionError("gone")))
    record.dropped = 8
    stats = record.stats(iter([HELD, WAITING, HELD, OVER, LOST, claim.state, WAITING]))
    figures = {"held": 2, "waiting": 3, "attempts": 2, "acquired": 3, "refused": 1, "released": 4, "lost": 5, "renewed": 6, "doubts": 7}
    assert stats == Stats(**figures, down=1, dropped=8, waited=1.0)
    with pytest.raises(AttributeError):
        stats.held = 0  # type: ignore[misc]


def test_the_figures_of_several_sets_are_added_up() -> None:
    names = list(Stats._fields)
    one, other = (Stats(**{name: factor * (number + 1) for number, name in enumerate(names)}) for factor in (1, 100))
    assert total([one, other]) == Stats(**{name: 101 * (number + 1) for number, name in enumerate(names)})
    assert total([]) == Stats(**dict.fromkeys(names, 0))
