"""Faults planted into the engine, the claim and the scripts: each must be found by so many worlds, or the simulator is blind for it.

They take rules of docs/protocol.md away, which links them.
A fault is looked for where it shows: in the first worlds of the kind that is named.
"""

from __future__ import annotations

import copy
from math import inf
from typing import Any

import pytest
from sim.planting import HOLDS, Planted, is_found, lua, python
from swarm.explore import WORLDS, explore

from holdfast.protocol import quorum
from holdfast.protocol.claim import Claim
from holdfast.protocol.vote import Vote
from holdfast.wire.connection import Connection


def ignored(burn: Any) -> Any:
    def forget(claim: Claim, vote: Vote, now: float) -> bool:
        vote.ceding = vote.granted = False
        return claim.check(now)

    return forget


def read_first(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Answers count, however late they are read. (Whoever only looks at the time still sees that it is over.)"""
    answered, late, reading = Claim.answered, Claim._late, [False]

    def read(claim: Claim, *arguments: Any) -> bool:
        reading[0] = True
        try:
            return answered(claim, *arguments)
        finally:
            reading[0] = False

    monkeypatch.setattr(Claim, "answered", read)
    monkeypatch.setattr(Claim, "_late", lambda claim, now: not reading[0] and late(claim, now))
    return {}


def undecided(cede: Any) -> Any:
    def count_on(claim: Claim, now: float) -> None:
        before = [copy.copy(vote) for vote in claim.votes]
        cede(claim, now)
        for vote, it in zip(claim.votes, before, strict=True):
            if vote.ceding and not it.ceding:
                vote.ceding, vote.granted, vote.bound = False, it.granted, it.bound
                vote.fence, vote.since = it.fence, it.since

    return count_on


def for_ever(judge: Any) -> Any:
    def never_ends(connection: Connection[Any], *answer: object) -> None:
        before = connection.refusal
        judge(connection, *answer)
        connection.refusal = connection.refusal or before

    return never_ends


def from_the_answer(answered: Any) -> Any:
    def late(claim: Claim, node: int, command: Any, reply: object, now: float) -> Any:
        command.sent, command.bound, claim._base = now, 0.0, quorum.bound(now, claim.ttl)
        return answered(claim, node, command, reply, now)

    return late


def from_arrival(pushed: Any) -> Any:
    def late(claim: Claim, node: int, kind: bytes, fence: int, now: float) -> Any:
        if claim.as_usual is None and claim.votes[node].sent > -inf:
            claim.votes[node].base = quorum.bound(now, claim.ttl)
        return pushed(claim, node, kind, fence, now)

    return late


PLANTED = {
    "a burnt cede is ignored": Planted(python(Claim, "_burn", ignored), HOLDS, "a late cede", 10),
    "the gap rule is off": Planted(python(Claim, "_gap", lambda _: lambda claim, vote, now: False), ("gap",), "hands on three", 5),
    "lost is not decided first": Planted(read_first, ("risen",), "one", 5),
    "counting while ceding": Planted(python(Claim, "_cede", undecided), HOLDS, "calm five", 3),
    "a waiter's deadline moves back": Planted(
        lua(("request", "math.max(deadline, tonumber(call('HGET', waiters, token) or 0))", "deadline")), HOLDS, "a shorter lease, late", 3
    ),
    "validity counts from the answer": Planted(python(Claim, "answered", from_the_answer), HOLDS, "the last moment", 2),
    "a push counts from its arrival": Planted(python(Claim, "pushed", from_arrival), HOLDS, "three", 5),
    "what nodes refuse is not noted": Planted(
        python(Connection, "_note_refusal", lambda _: lambda connection, told, now: None), ("known",), "swarm", 4, begins=28
    ),
    "a node that refused once refuses for ever": Planted(python(Connection, "judge", for_ever), ("well",), "one", 10),
    "no clock floor": Planted(
        lua(("request", "t[1] * 1000000 + t[2] - K * 500", "0"), ("request", "or now * 1000 - K * 500 - 1", "or 0"),
            ("release", "or now * 1000 - K * 500", "or 0")), ("fence",), "one", 40,
    ),
}  # fmt: skip


# (Forty worlds take some seconds.)
NAMES = [pytest.param(it, marks=pytest.mark.slow) if planted.within >= 40 else it for it, planted in PLANTED.items()]


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[name]
    known = planted.fault(monkeypatch)
    wild = planted.world == "swarm"
    first, step = (0, 1) if wild else (WORLDS.index(planted.world), len(WORLDS))
    turns = range(planted.begins, planted.begins + planted.within)
    is_found(planted.laws, (explore(first + turn * step, wild=wild, **known) for turn in turns))
