"""What the scripts of the read-write lock do, on simulated and real servers; what each of their lines is for; and histories of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from scripts import rw_bench
from scripts.bench import GRAIN, INBOXES, LONG, NAME, SHORT, Denied, Granted, K, about, keys
from scripts.conftest import DIALECTS, REAL, kinds
from scripts.rw_bench import RWBench, rw_keys, simulated
from scripts.test_histories import Twins

from holdfast.scripts import FORCE_RELEASE, RW_FORCE_RELEASE
from holdfast.testing.values import VALKEY_9


@pytest.fixture(params=kinds(*DIALECTS, *REAL))
def rw(request: pytest.FixtureRequest, start: Callable[[str], str]) -> Iterator[RWBench]:
    """A server, empty: each kind in its turn."""
    dialect = DIALECTS.get(request.param)
    with closing(simulated(dialect) if dialect else rw_bench.real(start(request.param))) as made:
        yield made


# ------------------------------------------------ who may be there together


def test_readers_share(rw: RWBench) -> None:
    one, two = rw.reader(1), rw.reader(2)
    assert rw.request(one) == (int(one[:16]), 0, 1)
    assert rw.request(two, LONG // 2) == (int(two[:16]), 0, 1)
    seen = rw.see()
    assert (seen.holder, set(seen.readers), seen.queue) == (b"shared", {one, two}, {})
    assert about(seen.readers[one], LONG) and about(seen.readers[two], LONG // 2)
    assert about(seen.holder_left, LONG) and about(seen.readers_left, LONG), "as long as the longest lease"


def test_a_later_reader_s_longer_lease_makes_all_of_it_last(rw: RWBench) -> None:
    rw.request(rw.reader(1), LONG)
    rw.request(rw.reader(2), 2 * LONG)
    seen = rw.see()
    assert about(seen.holder_left, 2 * LONG) and about(seen.readers_left, 2 * LONG)


def test_a_writer_is_alone(rw: RWBench) -> None:
    writer, reader, other = rw.writer(1), rw.reader(2), rw.writer(3)
    assert rw.request(writer) == (int(writer[:16]), 0, 1)
    assert isinstance(rw.request(reader), Denied)
    denied = rw.request(other)
    assert isinstance(denied, Denied) and (denied.place, denied.holder) == (1, writer)
    assert rw.see().holder == writer and not rw.see().readers


def test_a_writer_waits_for_readers_and_is_told_of_the_one_that_stays_longest(rw: RWBench) -> None:
    one, two, writer = rw.reader(1), rw.reader(2), rw.writer(3)
    rw.request(one, 2 * LONG)
    rw.request(two, LONG)
    denied = rw.request(writer)
    assert isinstance(denied, Denied) and (denied.place, denied.holder) == (0, one)
    assert about(denied.pttl, 2 * LONG)


def test_who_comes_later_to_read_waits_behind_a_writer(rw: RWBench) -> None:
    # Rule W1.
    first, writer, late = rw.reader(1), rw.writer(2), rw.reader(3)
    rw.connect(INBOXES[0])
    rw.request(first)
    assert isinstance(rw.request(writer), Denied)
    assert isinstance(rw.request(late), Denied)
    assert isinstance(rw.request(rw.reader(4), mode="t"), Denied), "nor by only trying"
    rw.release(first)
    assert rw.see().holder == writer
    rw.release(writer)
    assert set(rw.see().readers) == {late}


def test_who_came_earlier_to_read_goes_first(rw: RWBench) -> None:
    first, writer, early = rw.reader(5), rw.writer(4), rw.reader(3)
    rw.request(first)
    rw.request(writer)
    assert isinstance(rw.request(early), Granted)
    assert set(rw.see().readers) == {first, early}


def test_all_readers_at_the_head_come_in_at_once_and_each_is_told(rw: RWBench) -> None:
    ears = [rw.connect(inbox) for inbox in INBOXES[:3]]
    writer = rw.writer(1)
    rw.request(writer)
    waiting = [rw.reader(2, INBOXES[0]), rw.reader(3, INBOXES[1]), rw.writer(4, INBOXES[2]), rw.reader(5, INBOXES[0])]
    for token in waiting:
        rw.request(token)
    assert rw.release(writer) == 1
    assert set(rw.see().readers) == set(waiting[:2]) and list(rw.see().queue) == waiting[2:]
    for ear, token in zip(ears[:2], waiting, strict=False):
        [(_, message)] = ear.heard()
        assert message == b"g %b %d %b" % (token, int(token[:16]), NAME)
    assert ears[2].heard() == []


def test_who_finds_the_writer_s_lease_over_brings_the_readers_behind_it_along(rw: RWBench) -> None:
    rw.connect(INBOXES[0])
    one, two = rw.reader(2), rw.reader(3)
    rw.request(rw.writer(1), SHORT)
    rw.request(one)
    rw.request(two)
    rw.lapse()
    assert isinstance(rw.request(one), Granted)
    assert set(rw.see().readers) == {one, two}


def test_whose_place_in_line_has_lapsed_gets_nothing(rw: RWBench) -> None:
    ear = rw.connect(INBOXES[1])
    holder, dead = rw.writer(1), rw.reader(2, INBOXES[1])
    rw.request(holder)
    rw.request(dead, SHORT)
    rw.request(rw.reader(3), LONG)
    rw.lapse()
    rw.release(holder)
    assert ear.heard() == []


def test_a_reader_to_whom_nobody_listens_does_not_keep_it(rw: RWBench) -> None:
    writer, deaf, heard = rw.writer(1), rw.reader(2, INBOXES[1]), rw.reader(3)
    rw.connect(INBOXES[0])
    for token in (writer, deaf, heard):
        rw.request(token)
    rw.release(writer)
    assert set(rw.see().readers) == {heard}
    alone = rw.writer(4, INBOXES[1])
    rw.request(alone)
    rw.release(heard)
    assert rw.see().holder is None


def test_what_publish_refuses_is_granted_all_the_same(rw: RWBench) -> None:
    writer, reader = rw.writer(1), rw.reader(2)
    rw.request(writer)
    rw.request(reader)
    with rw.mute():
        rw.release(writer)
    assert set(rw.see().readers) == {reader}


# ------------------------------------------------ leases


def test_readers_whose_lease_is_over_do_not_count(rw: RWBench) -> None:
    # Rule W4.
    dead, alive, writer = rw.reader(1), rw.reader(2), rw.writer(3)
    rw.request(dead, SHORT)
    rw.request(alive)
    rw.lapse()
    rw.request(writer)
    assert set(rw.see().readers) == {alive}
    rw.connect(INBOXES[0])
    rw.release(alive)
    assert rw.see().holder == writer


def test_one_dead_reader_keeps_nobody_out(rw: RWBench) -> None:
    dead, brief, writer = rw.reader(1), rw.reader(2), rw.writer(3)
    rw.request(dead, SHORT)
    rw.request(brief, LONG)
    rw.release(brief)
    rw.lapse()
    assert isinstance(rw.request(writer), Granted)
    assert rw.see().readers == {}


def test_the_last_reader_alive_frees_it(rw: RWBench) -> None:
    dead, brief = rw.reader(1), rw.reader(2)
    rw.request(dead, SHORT)
    rw.request(brief, LONG)
    rw.lapse()
    assert rw.release(brief) == 1
    assert rw.see().holder is None


def test_a_dead_writer_at_the_head_keeps_no_readers_out(rw: RWBench) -> None:
    staying, dead, late = rw.reader(1), rw.writer(2), rw.reader(3)
    rw.request(staying)
    rw.request(dead, SHORT)
    rw.lapse()
    assert isinstance(rw.request(late), Granted)


def test_a_renewal_prolongs_and_never_shortens(rw: RWBench) -> None:
    for token in (rw.reader(1), rw.writer(2)):
        granted = rw.request(token, LONG)
        assert isinstance(granted, Granted)
        assert rw.request(token, LONG // 2, P=granted.fence) == (granted.fence, 0, 0)
        assert about(rw.see().holder_left, LONG)
        assert all(about(it, LONG) for it in rw.see().readers.values())
        rw.request(token, 2 * LONG, P=granted.fence)
        assert about(rw.see().holder_left, 2 * LONG)
        if token.endswith(b"r"):
            assert about(rw.see().readers[token], 2 * LONG) and about(rw.see().readers_left, 2 * LONG)
        rw.release(token)


def test_the_place_in_line_lasts_and_a_late_request_does_not_shorten_it(rw: RWBench) -> None:
    waiter = rw.reader(2)
    rw.request(rw.writer(1), 4 * LONG)
    rw.request(waiter, 2 * LONG)
    rw.request(waiter, LONG)
    seen = rw.see()
    assert about(seen.queue[waiter].left, 2 * LONG)
    assert about(seen.queue_left, 2 * LONG) and about(seen.waiters_left, 2 * LONG)
    rw.request(waiter, 3 * LONG)
    assert about(rw.see().queue[waiter].left, 3 * LONG)


def test_a_grant_from_the_queue_lasts_no_longer_than_any_lease_may(rw: RWBench) -> None:
    writer, waiter = rw.writer(1), rw.reader(2)
    rw.connect(INBOXES[0])
    rw.request(writer)
    rw.request(waiter, 10 * K)
    rw.release(writer)
    assert about(rw.see().readers[waiter], 2 * K)
    assert about(rw.see().holder_left, 2 * K)


def test_readers_that_were_left_behind_when_the_key_was_taken_away_are_gone(rw: RWBench) -> None:
    old, new = rw.reader(1), rw.reader(2)
    rw.request(old)
    rw.operator.say("DEL", NAME)
    rw.request(new)
    assert set(rw.see().readers) == {new}


# ------------------------------------------------ leaving


def test_the_last_reader_frees_it(rw: RWBench) -> None:
    # Rule W2.
    one, two = rw.reader(1), rw.reader(2)
    rw.request(one)
    rw.request(two)
    assert rw.release(one) == 1
    assert (rw.see().holder, set(rw.see().readers)) == (b"shared", {two})
    assert rw.release(one) == 0
    assert rw.release(two) == 1
    assert rw.see().holder is None and rw.see().readers == {}


def test_who_waits_can_leave(rw: RWBench) -> None:
    holder, writer, reader = rw.reader(1), rw.writer(2), rw.reader(3)
    rw.connect(INBOXES[0])
    for token in (holder, writer, reader):
        rw.request(token)
    assert rw.release(writer) == 0
    assert set(rw.see().readers) == {holder, reader}, "whoever stood behind it goes on"


def test_a_foreign_holder_is_left_alone(rw: RWBench) -> None:
    rw.operator.say("SET", NAME, "foreign", "PX", LONG)
    for token in (rw.reader(1), rw.writer(2)):
        denied = rw.request(token)
        assert isinstance(denied, Denied) and denied.holder == b"foreign"
        assert rw.release(token) == 0
    assert rw.see().holder == b"foreign"


def forced(rw: RWBench, only: bytes) -> list[object]:
    """What the scripts of a forced release answer, in the order in which they are sent."""
    return [
        rw.operator.say("EVAL", FORCE_RELEASE.source, 4, *keys(NAME), K, only),
        rw.operator.say("EVAL", RW_FORCE_RELEASE.source, 6, *rw_keys(NAME), only, K),
    ]


@pytest.mark.parametrize("only", [b"", b"foreign"], ids=["whoever has it", "that one only"])
def test_whoever_waits_has_what_was_taken_from_a_foreign_holder(rw: RWBench, only: bytes) -> None:
    waiter = rw.writer(1)
    rw.eternal.add(NAME)
    rw.operator.say("SET", NAME, "foreign")
    rw.connect(INBOXES[0])
    denied = rw.request(waiter)
    assert isinstance(denied, Denied) and denied.holder == b"foreign"
    assert forced(rw, b"another") == [None, None]
    assert rw.see().holder == b"foreign"
    assert forced(rw, only) == [b"foreign", None]
    assert rw.see().holder == waiter


# ------------------------------------------------ trying


def test_a_try_takes_what_is_free_or_shared_and_waits_for_nothing(rw: RWBench) -> None:
    reader, another, writer = rw.reader(1), rw.reader(2), rw.writer(3)
    assert isinstance(rw.request(reader, mode="t"), Granted)
    assert isinstance(rw.request(another, mode="t"), Granted)
    assert isinstance(rw.request(writer, mode="t"), Denied)
    assert rw.see().queue == {}
    rw.release(reader)
    rw.release(another)
    assert isinstance(rw.request(writer, mode="t"), Granted)


def test_a_try_passes_only_the_dead(rw: RWBench) -> None:
    holder, dead, gone = rw.reader(1), rw.writer(2), rw.writer(3)
    rw.request(holder)
    rw.request(gone)
    rw.request(dead, SHORT)
    rw.operator.say("ZREM", rw_keys(NAME)[2], gone)
    rw.operator.say("HDEL", rw_keys(NAME)[3], gone)
    rw.lapse()
    assert list(rw.see().queue) == [dead]
    assert isinstance(rw.request(rw.reader(4), mode="t"), Granted)


def test_a_try_promotes_those_who_wait(rw: RWBench) -> None:
    rw.connect(INBOXES[0])
    holder, waiter, late = rw.writer(1), rw.writer(2), rw.reader(4)
    rw.request(holder)
    rw.request(waiter)
    rw.operator.say("DEL", NAME)
    assert isinstance(rw.request(rw.writer(3), mode="t"), Denied)
    assert rw.see().holder == waiter
    rw.request(late)
    rw.operator.say("DEL", NAME)
    assert rw.request(late, mode="t") == (int(late[:16]), 0, 1)


# ------------------------------------------------ making way


def test_a_newcomer_asks_those_in_its_way_with_higher_tickets(rw: RWBench) -> None:
    # Rule W5.
    ears = [rw.connect(inbox) for inbox in INBOXES[:3]]
    low, high, higher = rw.reader(1, INBOXES[0]), rw.reader(5, INBOXES[1]), rw.reader(6, INBOXES[2])
    for token in (low, high, higher):
        rw.request(token)
    writer = rw.writer(3)
    rw.request(writer)
    assert [[m for _, m in ear.heard()] for ear in ears] == [[], *[[b"i %b 0 %b" % (it, NAME)] for it in (high, higher)]]
    rw.request(writer)
    rw.request(rw.reader(4, INBOXES[0]))
    assert [ear.heard() for ear in ears] == [[], [], []], "asked once; and a reader that stands behind a writer asks nobody"


def test_a_reader_asks_a_writer(rw: RWBench) -> None:
    ear = rw.connect(INBOXES[1])
    writer = rw.writer(5, INBOXES[1])
    rw.request(writer)
    rw.request(rw.reader(3))
    assert [m for _, m in ear.heard()] == [b"i %b 0 %b" % (writer, NAME)]
    rw.request(rw.reader(6))
    assert ear.heard() == []


def test_a_foreigner_and_an_exclusive_holder_are_not_asked(rw: RWBench) -> None:
    ear = rw.connect(INBOXES[1])
    rw.operator.say("SET", NAME, rw.token(9, INBOXES[1]), "PX", LONG)
    assert isinstance(rw.request(rw.writer(1)), Denied)
    assert ear.heard() == []


def test_a_refused_inquiry_changes_nothing(rw: RWBench) -> None:
    rw.request(rw.reader(5))
    with rw.mute():
        assert isinstance(rw.request(rw.writer(1)), Denied)


def test_a_reader_cedes(rw: RWBench) -> None:
    ear = rw.connect(INBOXES[1])
    reader, stays, writer = rw.reader(5), rw.reader(1), rw.writer(3, INBOXES[1])
    for token in (reader, stays, writer):
        rw.request(token)
    assert rw.request(reader, P=int(reader[:16])) == (int(reader[:16]), 1, 0), "it is told that a lower ticket waits"
    denied = rw.request(reader, mode="c")
    assert isinstance(denied, Denied) and denied.place == 1
    assert set(rw.see().readers) == {stays}
    assert rw.release(stays) == 1
    assert rw.see().holder == writer and [m[:1] for _, m in ear.heard()] == [b"g"]


def test_a_writer_cedes(rw: RWBench) -> None:
    rw.connect(INBOXES[0])
    writer, reader = rw.writer(5), rw.reader(3)
    rw.request(writer)
    rw.request(reader)
    assert rw.request(writer) == (int(writer[:16]), 1, 0)
    assert isinstance(rw.request(writer, mode="c"), Denied)
    assert set(rw.see().readers) == {reader} and list(rw.see().queue) == [writer]


def test_who_cedes_to_nobody_keeps_it(rw: RWBench) -> None:
    for token in (rw.writer(1), rw.reader(1)):
        rw.request(token)
        assert rw.request(token, mode="c")[1:] == (0, 0)
        rw.release(token)


def test_who_cedes_to_the_deaf_gets_it_back(rw: RWBench) -> None:
    writer, deaf = rw.writer(5), rw.reader(3, INBOXES[3])
    rw.request(writer)
    rw.request(deaf)
    granted = rw.request(writer, mode="c")
    assert isinstance(granted, Granted) and granted.fresh == 1 and granted.fence > int(writer[:16])


# ------------------------------------------------ fences


def test_a_reader_is_above_every_writer_and_a_writer_above_everybody(rw: RWBench) -> None:
    # Rule W6.
    writer = rw.writer(50)
    first = rw.request(writer)
    assert isinstance(first, Granted)
    rw.release(writer)
    readers = [rw.reader(1), rw.reader(2)]
    fences = [rw.request(it)[0] for it in readers]
    assert fences == [first.fence + 1] * 2, "readers do not disturb one another"
    for it in readers:
        rw.release(it)
    writers = [rw.writer(3), rw.writer(4)]
    for number, it in enumerate(writers):
        assert rw.request(it)[0] == first.fence + 2 + number
        rw.release(it)


def test_a_writers_record_that_is_lost_raises_the_fence_of_no_reader_who_is_here(rw: RWBench) -> None:
    """An operator deletes it on a minority: to its clients, a rise would look like a grant to somebody else."""
    readers = [rw.reader(-2 * 10**10), rw.reader(-(10**10))]
    fences = [int(it[:16]) for it in readers]
    rw.operator.say("SET", rw_keys(NAME)[1], fences[0] - 1, "PX", LONG)
    assert [rw.request(it)[0] for it in readers] == fences, "below the clock floor, which nothing needs"
    rw.operator.say("DEL", rw_keys(NAME)[1])
    assert [rw.request(it)[0] for it in reversed(readers)] == fences[::-1]


def test_a_reader_s_fence_is_recorded_below_the_clock_floor_too(rw: RWBench) -> None:
    """A clock that is set back takes the floor with it, and the next writer would get the reader's fence."""
    reader = rw.reader(-(10**10))
    rw.operator.say("SET", rw_keys(NAME)[1], int(reader[:16]) - 1, "PX", LONG)
    fence = rw.request(reader)[0]
    assert rw.see().rfence == b"%d" % fence


def test_a_reader_s_proposal_counts_for_the_writer_after_it(rw: RWBench) -> None:
    reader, high = rw.reader(1), rw.base + 10**6
    rw.request(reader)
    assert rw.request(reader, P=high) == (high, 0, 0)
    rw.request(reader, P=5)
    rw.release(reader)
    assert rw.request(rw.writer(2))[0] == high + 1


def test_a_grant_from_the_queue_raises_too(rw: RWBench) -> None:
    rw.connect(INBOXES[0])
    writer, reader, last = rw.writer(50), rw.reader(2), rw.writer(3)
    first = rw.request(writer)[0]
    rw.request(reader)
    rw.request(last)
    rw.release(writer)
    assert rw.see().rfence == b"%d" % (first + 1)
    rw.release(reader)
    assert rw.see().fence == b"%d" % (first + 2)


def test_a_writer_s_renewal_raises_to_what_was_agreed(rw: RWBench) -> None:
    writer = rw.writer(1)
    fence = rw.request(writer)[0]
    assert rw.request(writer, P=fence + 7) == (fence + 7, 0, 0)
    assert rw.request(writer, P=fence) == (fence + 7, 0, 0)


def test_without_a_record_it_begins_at_the_clock_floor(rw: RWBench) -> None:
    for kind in (b":w", b":r"):
        rw.operator.say("FLUSHALL")
        low = b"%016d:%b:%08x%b" % (1_000_000, INBOXES[0], 1, kind)
        floor = rw.now() * 1000 - K * 500
        granted = rw.request(low)
        assert floor <= granted[0] <= floor + 5_000_000
        assert rw.request(low)[0] == granted[0], "and stays there while it is held"
        rw.place.pass_time(0.01)
        assert rw.request(low)[0] == granted[0]


def test_the_record_lasts_as_long_as_a_reader_that_stands_on_it(rw: RWBench) -> None:
    # Rule W7.
    reader = rw.reader(1)
    rw.request(reader, K // 2)
    assert about(rw.see().fence_left, K // 2 + K), "and as the horizon, for those who come later"
    rw.release(reader)
    rw.operator.say("SET", rw_keys(NAME)[1], rw.base - 5, "PX", LONG // 2)
    rw.request(rw.reader(2), LONG)
    assert about(rw.see().fence_left, 2 * K), "but not for longer than a guard"


def test_the_record_outlives_a_writers_lease(rw: RWBench) -> None:
    """By the usual path, by the other one, from the queue, and with renewals; the ticket is just above the clock floor, or long over."""
    rw.connect(INBOXES[0])
    for path in ("usual", "other", "queue"):
        for ago in (K // 2 - 500, 10 * K):
            rw.operator.say("FLUSHALL")
            writer, first = rw.writer((rw.now() - ago) * 1000 - rw.base), rw.reader(-rw.base + 1)
            if path != "usual":
                rw.operator.say("SET", NAME, "shared", "PX", LONG)  # (left behind by readers whose leases are over)
            if path == "queue":
                rw.request(first)
                rw.request(writer, 2 * K)
                rw.operator.say("DEL", *rw_keys(NAME)[1:2], rw_keys(NAME)[5])
                rw.release(first)
            else:
                rw.request(writer, 2 * K)
            seen = rw.see()
            assert seen.holder == writer
            assert seen.fence_left >= seen.holder_left - GRAIN > K, (path, ago)
            fence = int(seen.fence or 0)
            for left, kept in ((K // 2, K * 3 // 2), (2 * K, 2 * K)):
                rw.operator.say("PEXPIRE", NAME, left)
                rw.operator.say("PEXPIRE", rw_keys(NAME)[1], 1000)
                assert rw.request(writer, 1000, P=fence) == (fence, 0, 0)
                assert about(rw.see().fence_left, kept), "by the horizon longer than the lease, but not than a guard"
            rw.operator.say("SET", rw_keys(NAME)[1], fence - 10**9, "PX", LONG)
            assert rw.request(writer, 1000, P=fence - 10**8) == (fence - 10**8, 0, 0)
            assert rw.see().fence_left >= rw.see().holder_left - GRAIN > K


def test_what_a_reader_costs_where_nobody_writes(rw: RWBench) -> None:
    """The first one leaves a record that lasts: for those who come within the horizon it is as where somebody has just written."""
    first, second = rw.reader(1), rw.reader(2)
    rw.request(first)
    rw.release(first)
    usual = {"exists": 1, "time": 1, "get": 2, "pttl": 1, "set": 2, "zadd": 1, "pexpireat": 1}
    assert rw.cost(lambda: rw.client.say(*rw.words(second))) == usual
    assert rw.cost(lambda: rw.client.say(*rw.release_words(second))) == {"exists": 1, "get": 1, "time": 1, "zrange": 1, "del": 1}


def test_the_last_reader_whose_time_is_over_had_nothing_to_give_back(rw: RWBench) -> None:
    """(The key lasts as long as the lease of the one who has left.)"""
    long, short = rw.reader(1), rw.reader(2)
    rw.request(long)
    rw.request(short, 50)
    assert rw.release(long) == 1
    rw.place.pass_time(0.06)
    assert rw.release(short) == 0
    assert rw.see().holder is None


def test_records_last_until_the_clock_floor_is_above_them(rw: RWBench) -> None:
    ahead = rw.base // 1000 - rw.now()
    writer = rw.writer(1)
    for path in ("usual", "other"):
        if path == "other":
            rw.operator.say("SET", NAME, "shared", "PX", LONG)  # (left behind by readers whose leases are over)
        rw.request(writer)
        assert about(rw.see().fence_left, ahead + K)
        rw.release(writer)
    rw.request(rw.reader(2), 1000)
    assert about(rw.see().rfence_left, ahead + K)


# ------------------------------------------------ downgrade


def reader_of(writer: bytes) -> bytes:
    return writer[:-1] + b"r"


def test_a_writer_becomes_a_reader_and_lets_readers_in_but_no_writer(rw: RWBench) -> None:
    # Rule D2.
    rw.connect(INBOXES[0])
    writer, waiting, other = rw.writer(1), rw.reader(2), rw.writer(3)
    fence = rw.request(writer)[0]
    rw.request(waiting)
    rw.request(other)
    assert rw.request(reader_of(writer), P=fence + 1) == (fence + 1, 0, 0), "not fresh: it held it all the time"
    seen = rw.see()
    assert (seen.holder, set(seen.readers), list(seen.queue)) == (b"shared", {reader_of(writer), waiting}, [other])
    rw.release(waiting)
    assert rw.see().holder == b"shared"
    rw.release(reader_of(writer))
    assert rw.see().holder == other


def test_a_downgrade_shortens_nothing_and_expires(rw: RWBench) -> None:
    writer = rw.writer(1)
    rw.request(writer, 2 * LONG)
    rw.request(reader_of(writer), LONG)
    seen = rw.see()
    assert about(seen.holder_left, 2 * LONG) and about(seen.readers_left, 2 * LONG) and about(seen.readers[reader_of(writer)], 2 * LONG)
    brief = rw.writer(2)
    rw.release(reader_of(writer))
    rw.request(brief, LONG)
    rw.request(reader_of(brief), 2 * LONG)
    assert about(rw.see().readers[reader_of(brief)], 2 * LONG)


def test_a_writer_that_waits_here_waits_on_as_a_reader(rw: RWBench) -> None:
    holder, writer = rw.writer(1), rw.writer(2)
    rw.request(holder)
    rw.request(writer)
    rw.request(reader_of(writer))
    assert list(rw.see().queue) == [reader_of(writer)]


def test_its_release_finds_the_writer_where_the_downgrade_was_not_heard(rw: RWBench) -> None:
    # Rule D3.
    writer = rw.writer(1)
    rw.request(writer)
    assert rw.release(reader_of(writer)) == 1
    assert rw.see().holder is None
    rw.request(rw.writer(2))
    rw.request(writer)
    rw.release(reader_of(writer))
    assert rw.see().queue == {}


def test_a_reader_never_becomes_a_writer(rw: RWBench) -> None:
    writer = rw.writer(1)
    rw.request(reader_of(writer))
    assert isinstance(rw.request(writer), Denied)
    assert rw.release(writer) == 0
    assert set(rw.see().readers) == {reader_of(writer)}


# ------------------------------------------------ histories


class History(Twins):
    """Of a read-write lock."""

    def __init__(self, seed: int, left: RWBench, right: RWBench) -> None:
        super().__init__(seed, left, right)
        kinds = (b":r", b":r", b":w")
        self.tokens = [
            b"%016d:%b:%08x%b" % (self.base + t, inbox, 1, kind) for t in (2, 4, 6) for inbox in INBOXES[:2] for kind in kinds[t // 4 :]
        ]
        self.listen(INBOXES[0])
        for bench in self.benches:  # without records there would be the clock floor, by clocks that differ
            bench.operator.batch(*[("SET", rw_keys(NAME)[it], self.base, "PX", 10**7) for it in (1, 5)])

    def step(self) -> tuple[Any, Any]:
        dice, chance = self.dice, self.dice.random()
        token = dice.choice(self.tokens)
        if chance < 0.3 and (
            held := [it for it in self.tokens if it == self.benches[0].see().holder or it in self.benches[0].see().readers]
        ):
            token = dice.choice(held)
            token = token[:-1] + b"r" if dice.random() < 0.2 else token
        if chance < 0.25 or 0.3 < chance < 0.45:
            return self.both(lambda bench: bench.release(token), f"release {token!r}")
        if chance > 0.95:
            command = dice.choice([("DEL", NAME), ("SET", NAME, "foreign", "NX", "PX", LONG), ("DEL", rw_keys(NAME)[4])])
            return self.both(lambda bench: bench.operator.say(*command), f"{command}")
        ttl, mode, P = dice.choice((SHORT, 10_000, LONG, 4 * LONG)), dice.choice("wwwwtcc"), dice.choice((0, self.fence, self.fence + 1))
        left, right = self.both(lambda bench: bench.request(token, ttl, mode, P=P), f"request {token!r} {ttl} {mode} {P}")
        if isinstance(left, Granted):
            self.fence = max(self.fence, left.fence)
        self.seen[f"{mode} {token[-1:].decode()} {'granted' if isinstance(left, Granted) else 'denied'}"] += 1
        if ttl == SHORT:
            self.lapse()
        return left, right


WANTED = {"g", "i", *[f"{mode} {kind} {what}" for mode in "wtc" for kind in "rw" for what in ("granted", "denied")]}


@pytest.mark.slow
def test_a_real_server_and_the_simulated_one_are_alike(start: Callable[[str], str]) -> None:
    seen: Counter[str] = Counter()
    for which in REAL:
        for seed in range(12):
            with closing(rw_bench.real(start(which))) as left, closing(simulated(VALKEY_9, now=left.now() / 1000)) as right:
                history = History(seed, left, right)
                assert (difference := history.first_difference(40)) is None, f"{which}, seed {seed}:\n{difference}"
            seen += history.seen
    assert seen.keys() >= WANTED, WANTED - seen.keys()
