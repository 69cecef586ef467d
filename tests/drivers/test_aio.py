"""The driver for asyncio: nobody waits for news that there will not be.

Each fault below is planted into the driver's shipped source, and the scenario has to notice it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from drivers.bench import TTL, Call, Damage, closing
from drivers.on_asyncio import AsyncioBench

from holdfast.protocol.claim import State


@contextmanager
def made(damage: Damage | None = None) -> Iterator[AsyncioBench]:
    """A driver that is connected to three nodes."""
    bench = AsyncioBench(damage)
    with closing(bench):
        yield bench


@pytest.fixture
def bench() -> Iterator[AsyncioBench]:
    with made() as bench:
        yield bench


# ------------------------------------------------ the scenarios


def a_release_of_a_lease_that_was_lost_returns(bench: AsyncioBench) -> None:
    """One lease may have parts on two shards: this one was lost while the release of the other part was waited for."""
    call = bench.acquired()
    claim: Any = call.lease._want
    bench.silent |= {0, 1, 2}
    bench.passes(TTL)
    assert (claim.state, call.lease.fell) == (State.LOST, 1)
    release = bench._call(Call(), lambda: bench.driver.release(claim, True))
    bench.settle()
    release.result()
    assert not len(bench.driver.waiting)


def a_release_that_is_to_be_confirmed_waits_for_the_nodes(bench: AsyncioBench) -> None:
    call = bench.acquired()
    bench.silent |= {0, 1, 2}
    release = bench._call(Call(), lambda: bench.driver.release(call.lease._want, True))
    bench.settle()
    assert not release.done
    bench.arrives(0, 1)
    bench.settle()
    release.result()
    assert call.lease._want.freed == 2


def a_loop_that_was_blocked_looks_at_its_leases_before_it_reads(bench: AsyncioBench) -> None:
    """What may work on without the lock is told in the first turn, and not when all has been read that lay unread."""
    call = bench.acquired()
    claim: Any = call.lease._want
    bench.passes(2.8)
    bench.silent |= {0, 1, 2}
    bench.passes(0.2)
    bench.time.now = claim.until + 0.5
    bench.turn()
    assert (claim.state, call.lease.fell) == (State.LOST, 1)


Scenario = Callable[[AsyncioBench], None]
SCENARIOS: list[Scenario] = [
    a_release_of_a_lease_that_was_lost_returns,
    a_release_that_is_to_be_confirmed_waits_for_the_nodes,
    a_loop_that_was_blocked_looks_at_its_leases_before_it_reads,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda it: it.__name__)
def test_of_asyncio(scenario: Scenario, bench: AsyncioBench) -> None:
    scenario(bench)


# ------------------------------------------------ the planted faults


class Planted(NamedTuple):
    """A fault of the driver, and the scenario that has to notice it."""

    damage: Damage
    seen_by: Scenario


CONFIRMED = "self.do(self.engine.end, claim, self.clock(), True)\n"
CONFIRMED += "        # One that was lost, or that no node needs to hear of, makes no news.\n        if claim.done:"

FAULTS = {
    "a release waits for news of what is over": Planted(
        Damage(CONFIRMED, CONFIRMED.replace("if claim.done:", "if False:")),
        a_release_of_a_lease_that_was_lost_returns,
    ),
    "a release waits for nobody": Planted(
        Damage(CONFIRMED, CONFIRMED.replace("if claim.done:", "if True:")),
        a_release_that_is_to_be_confirmed_waits_for_the_nodes,
    ),
    "a blocked loop does not look at its leases": Planted(
        Damage("if now > due + LATE:", "if False:"),
        a_loop_that_was_blocked_looks_at_its_leases_before_it_reads,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(fault: str) -> None:
    damage, scenario = FAULTS[fault]
    with made(damage) as bench, pytest.raises(AssertionError):
        scenario(bench)
