"""The nemesis itself: it finds what is planted, and what it counts has happened."""

from __future__ import annotations

import sys

import pytest
from nemesis.aims import Caught, Moment
from nemesis.campaign import ALL_LAWS, WITHIN, Campaign, Phase, Result, table
from nemesis.faults import KINDS, Kind
from nemesis.history import EXCLUSION

pytestmark = [pytest.mark.stories, pytest.mark.skipif(sys.platform != "linux", reason="the nemesis knows Linux's processes only")]

UNGUARDED = Phase("no guard", ("kill -9, back empty at once",), ALL_LAWS, guard=False, ttl=5.0)
EVICTED = Phase("eviction, judged", ("lock evicted",), ALL_LAWS, ttl=5.0)


def quietly(line: str) -> None:
    pass


async def aimed_at_the_holders_quorum(phase: Phase, kind: str) -> Result:
    """This is done to three nodes that hold somebody's token, during a renewal: its holder has three seconds left then."""

    def plan(caught: Caught | None) -> list[tuple[Kind, int]]:
        return [] if caught is None else [(KINDS[kind], node) for node in sorted(caught.trace.granted)[:3]]

    return await Campaign(phase, 5, clients=3, tell=quietly, moments=[Moment.RENEWAL], plan=plan).run(45.0)


async def test_eviction_of_a_quorum_costs_exclusion() -> None:
    """Which is why it is judged by itself: the memory of nodes is assumed."""
    result = await aimed_at_the_holders_quorum(EVICTED, "lock evicted")
    assert EXCLUSION in [it.law for it in result.broken], result.seed


async def test_without_the_guard_a_quorum_that_restarts_empty_costs_exclusion() -> None:
    """With the guard the same fault must cost nothing."""
    result = await aimed_at_the_holders_quorum(UNGUARDED, "kill -9, back empty at once")
    assert EXCLUSION in [it.law for it in result.broken], result.seed
    assert result.history.around(result.broken[0].at), "and tells what happened around it"


async def test_a_short_campaign_breaks_nothing() -> None:
    result = await Campaign(WITHIN, 7, clients=2, users=2, tell=quietly).run(3.0)
    assert result.broken == [], result.seed
    assert result.holds > 0
    assert result.looks > 0
    assert len(result.history.balanced) == 2, "each client that was not killed"
    assert "| fault |" in table([result])
