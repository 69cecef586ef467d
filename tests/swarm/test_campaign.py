"""Many worlds: in processes or not, in order, up to the first that fails."""

from __future__ import annotations

import pytest
from swarm import campaign as campaigns
from swarm.campaign import campaign, live
from swarm.explore import explore

from holdfast.testing.laws import CALM, LAWS
from holdfast.testing.world import Violation

pytestmark = pytest.mark.worlds


def test_an_outcome_tells_what_was_seen_and_looked_at() -> None:
    stage = explore(3, wild=True, records=False)
    outcome = live(stage)
    assert (outcome.seed, outcome.name, outcome.law, outcome.wrong) == (3, "swarm", "", "")
    assert outcome.messages == stage.world.delivered > 300
    assert outcome.seen["held"] > 0
    assert sum(outcome.faults.values()) == len(stage.world.chance.happened) > 0
    assert outcome.looked.keys() == LAWS.keys()
    assert not stage.world.record
    assert not stage.world.flights


def test_a_calm_world_has_more_laws() -> None:
    outcome = live(explore(4, records=False))
    assert outcome.name == "calm five"
    assert outcome.looked.keys() == LAWS.keys() | CALM.keys()
    assert all(outcome.looked[law] for law in CALM)


def test_what_is_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.protocol.quorum.majority", lambda nodes: 1)
    outcome = live(explore(0, wild=True))
    assert outcome.law == "majority"
    assert outcome.wrong.startswith("majority: ")
    assert Violation(outcome.wrong).law == "majority"
    monkeypatch.setattr("holdfast.protocol.claim.Claim.check", lambda *_: 1 // 0)
    outcome = live(explore(0, wild=True))
    assert outcome.law == "ZeroDivisionError"
    assert "check" in outcome.wrong or "lambda" in outcome.wrong


def test_worlds_are_the_same_in_other_processes_and_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "CHUNK", 2)
    monkeypatch.setattr(campaigns, "FEW", 0)
    here = list(campaign(range(5), 1, wild=True))
    there = list(campaign(range(5), 2, wild=True))
    assert here == there
    assert [it.seed for it in there] == list(range(5))


def test_the_first_failure_is_the_last_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.protocol.quorum.majority", lambda nodes: max(1, nodes // 2))
    outcomes = list(campaign(range(100), 1, wild=True))
    assert outcomes[-1].law
    assert not any(it.law for it in outcomes[:-1])
    assert len(outcomes) < 100
