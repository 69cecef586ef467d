"""Virtual time: events in order, and chance from one seed."""

from __future__ import annotations

import pytest

from holdfast.testing.world import DriftingClock, Violation, World


def test_events_happen_in_the_order_of_time_and_those_of_one_moment_in_the_order_in_which_they_were_asked_for() -> None:
    world = World(0)
    happened: list[tuple[float, str]] = []
    for when, what in [(2.0, "c"), (1.0, "a"), (1.0, "b"), (-1.0, "at once")]:
        world.at(when, lambda what=what: happened.append((world.now, what)))
    world.run(1.5)
    assert happened == [(0.0, "at once"), (1.0, "a"), (1.0, "b")]
    assert world.now == 1.5
    world.run()
    assert happened[-1] == (2.0, "c")
    assert world.now == 2.0


def test_laws_are_asked_after_every_event_and_before_one_if_time_has_passed() -> None:
    world, told = World(0), list[str]()
    world.passes.append(lambda: told.append(f"passed {world.now:g}"))
    world.looks.append(lambda: told.append(f"look {world.now:g}"))
    world.at(0.0, told.append, "a")
    world.at(1.0, told.append, "b")
    world.at(1.0, told.append, "c")
    world.run()
    assert told == ["a", "look 0", "passed 1", "b", "look 1", "c", "look 1"]


def test_what_goes_round_and_round_is_a_violation() -> None:
    world = World(0)

    def again() -> None:
        world.after(1e-6, again)

    again()
    with pytest.raises(Violation, match="busy"):
        world.run()


def test_much_that_happens_is_none() -> None:
    world = World(0)
    for number in range(20_000):
        world.at(number / 1000, lambda: None)
    world.run()


def test_the_same_seed_has_the_same_chance() -> None:
    assert [World(7).delay() for _ in range(3)] == [World(7).delay() for _ in range(3)]
    assert World(7).delay() != World(8).delay()
    world = World(0)
    world.slow = 1.0
    assert max(world.delay() for _ in range(100)) > world.swift
    world.saw("heads")
    world.saw("nothing", 0)
    assert world.seen == {"heads": 1}


def test_a_clock_runs_at_its_own_rate_and_steps() -> None:
    world = World(0)
    clock = DriftingClock(world, 100.0, 2.0)
    assert clock() == 100.0
    world.run(5.0)
    assert clock() == 110.0
    assert clock.when(clock() + 2) == 6.0
    clock.step(-3.0)
    assert clock() == 107.0
    clock.becomes(1.0)
    assert clock() == 107.0
    world.run(6.0)
    assert clock() == 108.0
