"""The clock of leases runs on while the machine sleeps, and nobody can set it."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from holdfast.clock import SYSTEM, WHICH, Sources, clock, sources_of


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has a clock for this, beside one that stands still")
def test_s15_it_runs_on_while_the_machine_sleeps() -> None:
    """A machine cannot be suspended here: that it is the clock which does is what can be shown. (Where none was, both say the same.)"""
    assert WHICH == time.CLOCK_BOOTTIME
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= clock() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_b19_it_is_not_the_wall_clock() -> None:
    assert abs(clock() - time.clock_gettime(time.CLOCK_REALTIME)) > 3600
    assert SYSTEM.clock is clock
    assert SYSTEM.wall is time.time


def test_drivers_get_the_machine_s_time_unless_their_event_loop_names_another() -> None:
    assert sources_of(object()) is SYSTEM
    other = Sources(lambda: 1.0, lambda: 2.0, bytes)
    assert sources_of(SimpleNamespace(holdfast_sources=other)) is other
