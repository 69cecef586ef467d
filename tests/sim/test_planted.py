"""Faults planted into the engine, the claim and the scripts: each must be found by so many worlds, or the simulator is blind for it.

They take rules of docs/protocol.md away, which links them.
A fault is looked for where it shows: in the first worlds of the kind that is named.
"""

from __future__ import annotations

from typing import Any

import pytest
from sim.planting import HOLDS, Planted, is_found, lua, python
from swarm.explore import WORLDS, explore

from holdfast.protocol.claim import Claim
from holdfast.protocol.vote import Vote
from holdfast.wire.connection import Connection


def ignored(burn: Any) -> Any:
    def forget(claim: Claim, vote: Vote, now: float) -> bool:
        vote.ceding = vote.granted = False
        return claim.check(now)

    return forget


def for_ever(judge: Any) -> Any:
    def never_ends(connection: Connection[Any], *answer: object) -> None:
        before = connection.refusal
        judge(connection, *answer)
        connection.refusal = connection.refusal or before

    return never_ends


PLANTED = {
    "a burnt cede is ignored": Planted(python(Claim, "_burn", ignored), HOLDS, "a late cede", 10),
    "the gap rule is off": Planted(python(Claim, "_gap", lambda _: lambda claim, vote, now: False), ("gap",), "hands on three", 5),
    "a waiter's deadline moves back": Planted(
        lua(("request", "math.max(deadline, tonumber(call('HGET', waiters, token) or 0))", "deadline")), HOLDS, "a shorter lease, late", 3
    ),
    "what nodes refuse is not noted": Planted(
        python(Connection, "_note_refusal", lambda _: lambda connection, told, now: None), ("known",), "swarm", 4, begins=28
    ),
    "a node that refused once refuses for ever": Planted(python(Connection, "judge", for_ever), ("well",), "one", 10),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[name]
    known = planted.fault(monkeypatch)
    wild = planted.world == "swarm"
    first, step = (0, 1) if wild else (WORLDS.index(planted.world), len(WORLDS))
    turns = range(planted.begins, planted.begins + planted.within)
    is_found(planted.laws, (explore(first + turn * step, wild=wild, **known) for turn in turns))
