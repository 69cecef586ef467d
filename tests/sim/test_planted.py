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

from holdfast.engine.health import Health
from holdfast.protocol import quorum
from holdfast.protocol.claim import Claim
from holdfast.protocol.renewal import Renewal
from holdfast.protocol.vote import Vote
from holdfast.scripts import EXCLUSIVE
from holdfast.wire.connection import Connection


def no_guard(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Clients use nodes that have just restarted."""
    return {"guard": False}


def ignored(burn: Any) -> Any:
    def forget(claim: Claim, vote: Vote, now: float) -> bool:
        vote.ceding = vote.granted = False
        return claim.check(now)

    return forget


def stuck(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A waiter with a burnt node goes on as it is, and never asks that node again."""
    ask = Claim._ask

    def burn(claim: Claim, vote: Vote, now: float) -> bool:
        vote.ceding, vote.burnt, vote.granted = False, True, False
        vote.since = inf
        return claim.check(now)

    def ask_others(claim: Claim, nodes: Any, *arguments: Any) -> bool:
        return ask(claim, [node for node in nodes if not claim.votes[node].burnt], *arguments)

    monkeypatch.setattr(Claim, "_burn", burn)
    monkeypatch.setattr(Claim, "_ask", ask_others)
    return {}


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


def shortened(keeps: Any) -> Any:
    def keep(vote: Vote, fence: int, sent: float, base: float) -> bool:
        usual = keeps(vote, fence, sent, base)
        vote.bound = base if usual else vote.bound
        return bool(usual)

    return keep


def late(holds: Any) -> Any:
    def hold(renewal: Renewal, until: float, now: float) -> None:
        holds(renewal, until + renewal._ttl / 3, now)

    return hold


def unsaid(broke: Any) -> Any:
    def forget(connection: Connection[Any], now: float) -> None:
        broke(connection, now)
        connection.unsaid.clear()

    return forget


PLANTED = {
    "no agreement on the fence": Planted(
        python(quorum, "agreed", lambda _: lambda least, fences: max(fences) if len(fences) >= least else 0), ("fence",), "calm three", 3
    ),
    "a burnt cede is ignored": Planted(python(Claim, "_burn", ignored), HOLDS, "a late cede", 10),
    "the gap rule is off": Planted(python(Claim, "_gap", lambda _: lambda claim, vote, now: False), ("gap",), "hands on three", 5),
    "lost is not decided first": Planted(read_first, ("risen",), "one", 5),
    "counting while ceding": Planted(python(Claim, "_cede", undecided), HOLDS, "calm five", 3),
    "no guard": Planted(no_guard, HOLDS, "five", 5),
    "a grant is capped below the ttl": Planted(
        lua(*[(it.name, "math.min(deadline, now + 2 * K)", "math.min(deadline, now + 300)") for it in EXCLUSIVE]), HOLDS, "three", 3
    ),
    "a waiter's deadline moves back": Planted(
        lua(("request", "math.max(deadline, tonumber(call('HGET', waiters, token) or 0))", "deadline")), HOLDS, "a shorter lease, late", 3
    ),
    "quorum of 2 in 5": Planted(python(quorum, "majority", lambda _: lambda nodes: max(1, nodes // 2)), HOLDS, "five", 2),
    "validity counts from the answer": Planted(python(Claim, "answered", from_the_answer), HOLDS, "the last moment", 2),
    "a grant does not raise the fence": Planted(
        lua(("request", "getF() + 1", "getF()"), ("request", "old + 1", "old"), ("request", "old >= P", "old > P"),
            ("release", "F + 1", "F")), ("fence",), "three", 2,
    ),
    "release does not compare": Planted(lua(("release", "if holder == token then", "if holder then")), HOLDS, "three", 2),
    "no start over": Planted(stuck, ("recovery",), "two", 5),
    "no inquiry": Planted(lua(("request", "elseif fresh and holder > token and", "elseif false and")), ("idle",), "calm three", 2),
    "a push counts from its arrival": Planted(python(Claim, "pushed", from_arrival), HOLDS, "three", 5),
    "no drift": Planted(python(quorum, "drift", lambda _: lambda ttl: 0.0), HOLDS, "the last moment", 2),
    "what nodes refuse is not noted": Planted(
        python(Connection, "_note_refusal", lambda _: lambda connection, told, now: None), ("known",), "swarm", 5
    ),
    "a node that refused once refuses for ever": Planted(python(Connection, "judge", for_ever), ("well",), "one", 10),
    "a renewal shortens what was extended": Planted(python(Vote, "keeps", shortened), ("extension",), "mixed", 3),
    "a lease is renewed late": Planted(python(Renewal, "holds", late), ("pace",), "calm five", 3),
    "silence is borne for long": Planted(
        python(Connection, "due", lambda due: lambda it: due(it) + 3 * it.manners.patience), ("half open",), "three", 3
    ),
    "a release is forgotten with its connection": Planted(python(Connection, "broke", unsaid), ("release",), "three", 5),
    "nodes() gives no cause": Planted(
        python(Health, "status", lambda status: lambda engine, now: tuple(it._replace(cause=None) for it in status(engine, now))),
        ("known",), "swarm", 5,
    ),
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
    is_found(planted.laws, (explore(first + turn * step, wild=wild, **known) for turn in range(planted.within)))
