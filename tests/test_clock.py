"""The clock of leases runs on while the machine sleeps, and nobody can set it."""

from __future__ import annotations

import time

import pytest

from holdfast.clock import WHICH, clock


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has a clock for this, beside one that stands still")
def test_s15_it_runs_on_while_the_machine_sleeps() -> None:
    """A machine cannot be suspended here: that it is the clock which does is what can be shown. (Where none was, both say the same.)"""
    assert WHICH == time.CLOCK_BOOTTIME
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= clock() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_b19_it_is_not_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert now <= clock() < now + 60
    assert abs(clock() - time.clock_gettime(time.CLOCK_REALTIME)) > 3600
