"""Timers: who is woken when, and how many stale ones there may be."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from random import Random

import pytest

from holdfast.engine.timers import Timers


@dataclass(eq=False)
class Sleeper:
    """Somebody with a timer."""

    wake: float = inf
    armed: float = inf


def test_nobody_is_woken_where_nobody_sleeps() -> None:
    timers: Timers[Sleeper] = Timers()
    assert (timers.due, len(timers), list(timers.passed(1e9))) == (inf, 0, [])
    timers.arm(never := Sleeper())
    assert (timers.due, len(timers), never.armed) == (inf, 0, inf)


def test_they_are_woken_in_the_order_of_their_times_and_not_before() -> None:
    timers: Timers[Sleeper] = Timers()
    late, soon, same = Sleeper(3.0), Sleeper(1.0), Sleeper(3.0)
    for it in (late, soon, same):
        timers.arm(it)
    assert (timers.due, late.armed, soon.armed) == (1.0, 3.0, 1.0)
    assert list(timers.passed(0.999)) == []
    assert list(timers.passed(1.0)) == [soon]
    assert (soon.armed, timers.due, len(timers)) == (inf, 3.0, 2)
    assert list(timers.passed(9.0)) == [late, same]  # of those with one time the first to come is the first
    assert (timers.due, len(timers)) == (inf, 0)


def test_what_was_left_for_later_is_due_since_the_last_look() -> None:
    timers: Timers[Sleeper] = Timers()
    first, second, later = Sleeper(1.0), Sleeper(2.0), Sleeper(9.0)
    for it in (first, second, later):
        timers.arm(it)
    assert next(timers.passed(5.0)) is first
    timers.looked(5.0)
    assert timers.due == 5.0
    timers.arm(third := Sleeper(3.0))
    assert timers.due == 5.0
    assert list(timers.passed(5.0)) == [second, third]
    assert timers.due == 9.0
    timers.disarm(later)
    assert list(timers.passed(9.0)) == []
    timers.looked(9.0)
    assert timers.due == inf


def test_those_whose_time_has_come_stay_armed_if_they_are_only_looked_at() -> None:
    timers: Timers[Sleeper] = Timers()
    sleepers = [Sleeper(float(it)) for it in Random(7).sample(range(100), 100)]
    for it in sleepers:
        timers.arm(it)
    gone, sooner = (it for it in sleepers if it.wake in (3.0, 50.0))
    timers.disarm(min(gone, sooner, key=lambda it: it.wake))
    moved = max(gone, sooner, key=lambda it: it.wake)
    moved.wake = 2.5
    timers.arm(moved)
    assert timers.overdue(-1.0) == []
    assert sorted(it.wake for it in timers.overdue(2.0)) == [0.0, 1.0, 2.0]
    assert sorted(it.wake for it in timers.overdue(5.0)) == [0.0, 1.0, 2.0, 2.5, 4.0, 5.0]
    assert (len(timers), timers.due) == (101, 0.0)  # (one is disarmed, and one has moved)
    assert [it.wake for it in timers.passed(1.5)] == [0.0, 1.0]
    assert timers.due == 2.0
    assert sorted(it.wake for it in timers.overdue(5.0)) == [2.0, 2.5, 4.0, 5.0]
    assert [it.wake for it in timers.passed(5.0)] == [2.0, 2.5, 4.0, 5.0]
    assert timers.overdue(5.0) == []
    assert len(timers.overdue(1e9)) == 93


def test_those_who_are_gone_leave_both_heaps() -> None:
    timers: Timers[Sleeper] = Timers()
    sleepers = [Sleeper(float(it)) for it in range(400)]
    for it in sleepers:
        timers.arm(it)
    assert len(timers.overdue(199.0)) == 200
    for it in sleepers[::2] + sleepers[1::4]:
        timers.disarm(it)
    assert len(timers) < 250
    assert len(timers.overdue(199.0)) == 50
    assert [it.wake for it in timers.passed(1e9)] == [float(it) for it in range(3, 400, 4)]
    assert len(timers) == 0


def test_whoever_wants_to_be_woken_sooner_is_and_only_once() -> None:
    timers: Timers[Sleeper] = Timers()
    timers.arm(it := Sleeper(5.0))
    it.wake = 2.0
    timers.arm(it)
    assert (timers.due, len(timers)) == (2.0, 2)
    assert list(timers.passed(2.0)) == [it]
    assert list(timers.passed(9.0)) == []
    assert len(timers) == 0


def test_whoever_is_woken_may_arm_itself_and_others_meanwhile() -> None:
    timers: Timers[Sleeper] = Timers()
    one, other = Sleeper(1.0), Sleeper(9.0)
    timers.arm(one)
    woken = []
    for it in timers.passed(2.0):
        woken.append(it)
        if len(woken) < 3:
            it.wake = 1.0 + len(woken) / 4
            timers.arm(it)
            timers.arm(other)
    assert woken == [one, one, one]
    assert timers.due == 9.0


def test_whoever_is_disarmed_meanwhile_is_not_woken() -> None:
    timers: Timers[Sleeper] = Timers()
    one, other = Sleeper(1.0), Sleeper(1.5)
    timers.arm(one)
    timers.arm(other)
    for it in timers.passed(2.0):
        assert it is one
        timers.disarm(other)
    assert other.armed == inf
    timers.disarm(other)  # idempotent
    assert (len(timers), timers._stale) == (0, 0)


def test_a_timer_that_was_replaced_at_the_same_moment_is_one() -> None:
    timers: Timers[Sleeper] = Timers()
    timers.arm(it := Sleeper(2.0))
    timers.disarm(it)
    timers.arm(it)
    assert list(timers.passed(2.0)) == [it]


@pytest.mark.parametrize("needed", [0, 150])
def test_stale_timers_are_swept_out_when_they_are_a_hundred_and_more_than_the_others(needed: int) -> None:
    timers: Timers[Sleeper] = Timers()
    chance = Random(needed)
    kept = [Sleeper(100.0 + chance.random()) for _ in range(needed)]
    for it in kept:
        timers.arm(it)
    most = 0
    for number in range(400):
        timers.arm(it := Sleeper(50.0 + number % 5))
        timers.disarm(it)
        heap = timers._heap
        stale = sum(due != it.armed for due, _, it in heap)
        assert stale == timers._stale == len(timers) - needed
        assert stale <= 100 or stale * 2 <= len(timers)
        assert all(heap[(at - 1) // 2][0] <= heap[at][0] for at in range(1, len(heap)))
        most = max(most, stale)
    assert most == max(100, needed)  # not sooner: each sweep looks at all
    assert list(timers.passed(99.0)) == []
    assert (len(timers), timers._stale) == (needed, 0)
    assert list(timers.passed(200.0)) == sorted(kept, key=lambda it: it.wake)
