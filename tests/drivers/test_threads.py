"""The driver for threads when two callers, or a caller and the keeper, meet in between two steps.

Callers are greenlets, so each stops exactly where a test has it stop. Each fault below is planted into the driver's shipped
source, and the scenario has to notice it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

import pytest
from drivers.bench import Call, Damage, closing
from drivers.on_threads import ThreadsBench


@contextmanager
def made(damage: Damage | None = None) -> Iterator[ThreadsBench]:
    """A driver that is connected to three nodes."""
    bench = ThreadsBench(damage)
    with closing(bench):
        yield bench


@pytest.fixture
def bench() -> Iterator[ThreadsBench]:
    with made() as bench:
        yield bench


def closed(bench: ThreadsBench) -> None:
    """A caller has closed the client, and the keeper has ended."""
    call = bench._call(Call(), bench.driver.close)
    for _ in range(100):
        if call.done:
            break
        bench.time.now += 0.05
        bench.settle()
    call.result()


def is_pipe(file: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(file).st_mode)
    except OSError:
        return False


# ------------------------------------------------ the scenarios


def a_caller_that_rings_late_writes_into_nobody_s_file(bench: ThreadsBench) -> None:
    """The client is closed between a caller's look at the bell's number and its write."""
    clapper, write, late = bench.driver.keeper.links.bell.clapper, os.write, [True]
    written: list[bool] = []

    def stops(file: int, data: bytes) -> int:
        if file != clapper:
            return write(file, data)
        while late:
            bench.rests()
        written.append(is_pipe(file))
        return write(file, data) if written[-1] else 0

    with mock.patch.object(os, "write", stops):
        call = bench._call(Call(), lambda: bench.driver.steer(lambda crew, now: None))
    assert not call.done, "it is about to write"
    closed(bench)
    late.clear()
    bench.callers()
    call.result()
    assert written == [True], "the number was the bell's until then"
    assert not is_pipe(clapper), "and is closed as soon as nobody rings"


Scenario = Callable[[ThreadsBench], None]
SCENARIOS: list[Scenario] = [
    a_caller_that_rings_late_writes_into_nobody_s_file,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda it: it.__name__)
def test_of_threads(scenario: Scenario, bench: ThreadsBench) -> None:
    scenario(bench)


# ------------------------------------------------ the planted faults


class Planted(NamedTuple):
    """A fault of the driver, and the scenario that has to notice it."""

    damage: Damage
    seen_by: Scenario


FAULTS = {
    "the keeper closes the bell": Planted(
        Damage("        # (Not closed here: a caller may be ringing it.)\n", "        self.bell.close()\n"),
        a_caller_that_rings_late_writes_into_nobody_s_file,
    ),
    "the pipe is never closed": Planted(
        Damage("    __del__ = close\n", ""),
        a_caller_that_rings_late_writes_into_nobody_s_file,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(fault: str) -> None:
    damage, scenario = FAULTS[fault]
    with made(damage) as bench, pytest.raises(AssertionError):
        scenario(bench)
