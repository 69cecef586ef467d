"""Worlds in which replicas are promoted and old primaries go on, and what they find. More: `./task sim --promoted --seeds 0..300`."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from sim.planting import HOLDS, Fault, Planted, breaks_no_law, is_found
from swarm.explore import PROMOTED, explore

from holdfast.wire import connection as connection
from holdfast.wire import handshake

pytestmark = pytest.mark.worlds

EACH = 3  # seeds of each kind of world


@pytest.mark.parametrize("which", range(len(PROMOTED)), ids=lambda it: PROMOTED[it].name)
def test_no_law_is_broken(which: int) -> None:
    seeds = range(which, EACH * len(PROMOTED), len(PROMOTED))
    breaks_no_law("promoted", ((it, explore(it, promoted=True)) for it in seeds))


def unseen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Clients do not see that a server was promoted."""
    monkeypatch.setattr(handshake, "reign", lambda facts: "")
    return {}


def unnoticed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Clients use a server that is new at a place that moves as if it had always been there."""
    reigned = connection.Connection._reigned
    monkeypatch.setattr(connection.Connection, "_reigned", lambda self, now: reigned(self, now) if handshake.reign(self.facts) else inf)
    return {}


def unconfirmed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Clients go on with a server that they have found once, wherever the node is now (rule G13)."""
    vouched = connection.Connection._vouched

    def once(self: Any, asked: float) -> None:
        vouched(self, asked)
        self.sure, self.reask = asked + 86_400, inf

    monkeypatch.setattr(connection.Connection, "_vouched", once)
    return {}


def too_short(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Addresses say that old primaries stop at once, which they do not."""
    return {"failover": 0.0}


def planted(fault: Fault, which: int = 0) -> Planted:
    """Found within some worlds of one kind."""
    return Planted(fault, HOLDS, PROMOTED[which].name, 5)


PLANTED_FAILOVERS = {
    "no guard after a promotion": planted(unseen),
    "a bound that is too short": planted(too_short),
    "no guard at a new place": planted(unnoticed, 2),
    "a place is asked for once": planted(unconfirmed, 2),
}


@pytest.mark.parametrize("name", PLANTED_FAILOVERS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = PLANTED_FAILOVERS[name]
    known = fault.fault(monkeypatch)
    which = [it.name for it in PROMOTED].index(fault.world)
    is_found(fault.laws, (explore(seed, promoted=True, **known) for seed in range(which, fault.within * len(PROMOTED), len(PROMOTED))))
