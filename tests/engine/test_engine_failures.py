"""The engine: scripts that come later or went away, what fails at one connection, and answers that are read in short."""

from __future__ import annotations

import random
from itertools import pairwise, permutations
from math import inf
from typing import Any

import pytest
from engine.world import FULL, START, TRIP, Notebook, World, busy, lines, loads, plant, rests, timers
from proof.books import word

from holdfast.errors import ConfigError, NoQuorum
from holdfast.protocol.claim import Claim, State
from holdfast.protocol.exclusive import Exclusive
from holdfast.protocol.readwrite import WRITER, ReadWrite
from holdfast.protocol.timing import Timing
from holdfast.scripts import ARRIVE, RW_RELEASE, RW_REQUEST
from holdfast.wire.resp import pack
from holdfast.wire.rights import question

# ------------------------------------------------ scripts that are used later


def test_a_read_write_lock_loads_its_scripts_before_its_first_use() -> None:
    world = World().connect()
    claim = world.wanted([ReadWrite("a", WRITER, horizon=16_000)], 10.0)
    world.engine.begin(claim, world.now)
    world.run(0.1)
    assert claim.state is State.HELD
    for node in world.nodes:
        assert next(it for it in node.writes if loads(RW_REQUEST) in it).startswith(loads(RW_REQUEST) + question("", b"more") + b"*14\r\n")
        assert loads(RW_RELEASE) not in b"".join(node.writes)
    world.end(claim, heard=True)
    world.run(0.1)
    assert all(it.writes[-1].startswith(loads(RW_RELEASE) + b"*11\r\n") for it in world.nodes)
    assert [len(it.of("release")) for it in world.nodes] == [1, 1, 1]


# ------------------------------------------------ everything at once


@pytest.mark.parametrize("seed", range(30))
def test_after_any_storm_everything_is_put_in_order(seed: int) -> None:
    chance = random.Random(seed)  # (the seed is this test's name)
    world = World(5, telling=chance.random() < 0.5, node_timeout=0.5)
    claims: list[Any] = []
    for _ in range(120):
        node = chance.choice(world.nodes)
        match chance.randrange(9):
            case 0 | 1:
                deadline = world.now + chance.choice([0.3, 5.0, inf])
                names, ttl = chance.sample("abc", chance.randint(1, 2)), chance.choice([1.5, 10.0])
                claims.append(world.want(*names, ttl=ttl, patient=chance.random() < 0.7, deadline=deadline))
            case 2 | 3 if claims:
                world.end(chance.choice(claims), heard=chance.random() < 0.5)
            case 4 if node.linked:
                world.cut(node.number, dialled=chance.choice(["accepts", "accepts", "refuses", "hangs"]))
            case 5:
                node.mute = not node.mute
            case 6:
                node.dialled = "accepts"
            case 7 if node.linked and len(node.writes) > 1 and claims:
                token, kind = chance.choice(chance.choice(claims).claims).token, chance.choice([b"g", b"i", b"x"])
                world.publishes(node.number, b"%b %b %d %b" % (kind, token, chance.randrange(10**15), chance.choice([b"a", b"b"])))
        world.run(chance.choice([0.0, TRIP, 0.1, 1.0]))
        known = set(world.engine.live.values())
        assert {it for claim in claims for it in claim.claims if not it.done} == known
    for node in world.nodes:
        node.mute, node.dialled = False, "accepts"
    for claim in claims:
        world.end(claim)
    assert all(claim.state in (State.OVER, State.LOST) for claim in claims)
    assert all(claim in world.settled for claim in claims if claim.refusal is not None or claim.state is State.LOST)
    world.run(60.0)
    for _ in range(10):  # (it registers on each node twice a minute, whatever happens)
        world.run(0.0 if rests(world) and not timers(world) else 1.0)
    assert (lines(world), world.engine.live, world.engine.owing) == (["up"] * 5, {}, False)
    assert (timers(world), rests(world)) == (0, True)


# ------------------------------------------------ what is said along


def statement(token: bytes, fence: int, ttl: float) -> bytes:
    """What a holder says."""
    return pack(b"SAYS", token, b"%d" % fence, b"%d" % round(ttl))


def speaks(world: World, **options: Any) -> Claim:
    recipe = Exclusive("a", ttl=10, horizon=world.settings.horizon).with_statement(statement)
    claim: Claim = world.wanted([recipe], 10.0, **options).claims[0]
    world.engine.begin(claim, world.now)
    world.run(2 * TRIP)
    return claim


def said(world: World, number: int = 0) -> list[tuple[str, float]]:
    """What a node was asked since it was connected to, and when."""
    return [(it.word, it.at) for it in world.nodes[number].asked if it.word in ("request", "SAYS", "release")]


def test_what_a_holder_says_leaves_when_it_is_held_with_each_renewal_and_before_the_release() -> None:
    # Rule E2.
    world = World().connect()
    claim = speaks(world)
    assert (claim.state, claim.since) == (State.HELD, START + 0.5 + 2 * TRIP)
    word = statement(claim.token, claim.fence, 10)
    for node in world.nodes:
        assert node.writes[-1] == word, "at once, by itself"
    world.run(4)
    for node in world.nodes:
        assert node.writes[-1].startswith(word + b"*13\r\n"), "and with the renewal, in one write"
        assert node.writes[-1].count(b"SAYS") == 1
    world.end(claim)
    for node in world.nodes:
        assert node.writes[-1].startswith(statement(claim.token, claim.fence, 0) + b"*9\r\n"), "before the release"
    world.run(10)
    assert [it for it, _ in said(world)] == ["request", "SAYS", "SAYS", "request", "SAYS", "release"]
    assert not world.engine.owing


def test_what_is_said_along_is_good_until_the_lease_ends() -> None:
    world = World().connect()
    claim = speaks(world)
    world.engine.extend(claim, 25.0, world.now)
    world.run(1)
    assert any(it.startswith(statement(claim.token, claim.fence, 25) + b"*13\r\n") for it in world.nodes[0].writes)


# ------------------------------------------------ what fails at one connection


def test_a_cause_of_ours_says_where_it_failed_and_not_what_was_said() -> None:
    world = World().connect()
    plant(world, 2, "say", KeyError("secret"))
    world.claim(ttl=3.0)
    world.run(0.01)
    cause = str(world.engine.health.status(world.now)[2].cause)
    assert cause.startswith("holdfast failed on this node's connection (KeyError in ")
    assert "secret" not in cause


@pytest.mark.parametrize("method", ["answered", "pushed", "changed"])
def test_a_bug_of_what_knows_the_protocol_is_no_nodes_failure(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may believe in a claim any longer that has raised something: so the driver is told, and ends its leases."""
    world = World().connect()
    claim = world.claim()
    world.run(0.1)
    planted = ZeroDivisionError("planted")

    def raises(*_: object, **__: object) -> Any:
        raise planted

    monkeypatch.setattr(Claim, method, raises)

    def hears() -> None:
        if method == "answered":
            world.engine.extend(claim, 20.0, world.now)
            world.run(1.0)
        elif method == "pushed":
            world.publishes(0, b"g %b 1600000000000000 a" % claim.token)
        else:
            world.says(0, b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n")

    with pytest.raises(ZeroDivisionError) as caught:
        hears()
    assert caught.value is planted


def test_a_lease_that_is_held_keeps_its_ticket_when_the_clock_is_corrected() -> None:
    world = World().connect()
    claim = world.claim()
    world.run(0.5)
    ticket = claim.ticket
    world.engine._moved(3600.0, world.now)
    assert (claim.state, claim.ticket) == (State.HELD, ticket)


# ------------------------------------------------ what a guardian is told


def test_a_guardian_hears_of_each_token_before_it_is_asked_for_and_when_it_has_ended() -> None:
    world = World()
    world.engine.upkeep.guardian = notes = Notebook()
    world.connect()
    assert notes.told == [f"node {it} redis://n{it}:1" for it in range(3)]
    notes.told.clear()
    busy(world)
    claim = world.claim()
    world.engine._moved(3600.0, world.now)
    assert notes.told == ["asks 0", "asks 1", "ends 0"]
    world.end(claim)
    assert notes.told[3:] == ["ends 1"]


def test_a_guardian_hears_of_all_that_is_to_stay() -> None:
    world = World().connect()
    world.engine.upkeep.guardian = notes = Notebook()
    want = world.want("a", "b")
    world.run(0.1)
    world.engine.stay(want)
    assert [it.stays for it in want.claims] == [True, True]
    assert notes.told == ["asks 0", "asks 1", "stays 0", "stays 1"]
    world.engine.upkeep.guardian = None
    world.engine.stay(want)


# ------------------------------------------------ nodes that answer and refuse


def test_nodes_that_refuse_writes_are_known_within_one_answer_and_until_they_accept_one() -> None:
    world = World().connect()
    for node in world.nodes:
        node.refusal = FULL
    claim = world.claim(patient=False)
    world.run(2 * TRIP)
    assert type(claim.refusal) is NoQuorum and lines(world) == ["refusing"] * 3
    assert [str(it.cause) for it in world.engine.health.status(world.now)] == [FULL.decode()] * 3
    assert isinstance(wrong := world.engine.health.verdict(0.0, world.now), NoQuorum) and FULL.decode() in str(wrong)
    assert [word(it) for it in world.events] == ["refuses"] * 3
    world.run(30)
    assert len(world.events) == 3, "it is said once"
    pauses = [after - before for before, after in pairwise(world.nodes[0].probed[2:])]
    assert min(pauses) >= 0.5 and max(pauses) <= 1.0 + 4 * TRIP, "nobody asks for a lock, and it is looked for all the same"
    world.nodes[0].refusal = world.nodes[1].refusal = b""
    claim = world.claim(patient=False)
    world.run(2 * TRIP)
    assert claim.state is State.HELD and lines(world) == ["up", "up", "refusing"] and world.engine.health.verdict(0.0, world.now) is None
    world.nodes[2].refusal = b""
    world.run(1 + 2 * TRIP)
    assert lines(world) == ["up"] * 3
    last = world.events[-1]
    assert [word(it) for it in world.events[3:]] == ["up"] * 3 and word(last) == "up" and last.down > 29
    before = [len(it.probed) for it in world.nodes]
    world.run(30)
    assert [len(it.probed) for it in world.nodes] == before


def test_what_a_node_refused_is_over_for_each_claim_when_it_takes_writes_again() -> None:
    # Rule C17.
    world = World().connect()
    for node in world.nodes[:2]:
        node.refusal = FULL
    claim = world.claim()
    world.run(2 * TRIP)
    assert isinstance(claim.verdict(world.now), NoQuorum) and [it.error is None for it in claim.votes] == [False, False, True]
    world.nodes[0].refusal = b""
    world.run(1 + 4 * TRIP)
    assert lines(world) == ["up", "refusing", "up"] and claim.state is State.HELD, "it is asked again before the next heartbeat"


def test_a_probe_that_a_caller_has_asked_for_is_judged_too() -> None:
    world = World().connect()
    query = world.engine.consult(dict.fromkeys(range(3), world.engine.upkeep._connection_settings.probe), world.now)
    world.engine.heard(0, next(iter(world.engine.connections[0].ledger)), [b"SET", FULL], world.now)
    assert not query.over and isinstance(world.engine.connections[0].refusal, Exception)


# ------------------------------------------------ usual answers


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("several", [False, True])
def test_usual_answers_are_taken_in_as_if_they_were_read_in_full(order: tuple[int, ...], several: bool) -> None:
    """Whatever is said of claims, and in whatever order the nodes answer."""

    def told(usually: bool) -> object:
        world = World(telling=True).connect()
        # The first one brings the note of this client's settings along.
        world.end(world.claim("first"))
        world.run(1.0)
        world.events.clear()
        for node in world.nodes:
            node.mute = True
        claims = [world.claim(it) for it in ("a", "b")[: 1 + several]]
        world.end(claims[-1])
        world.now += 0.01
        for node in order:
            data = b"".join(it.expected for it in world.engine.connections[node].ledger)
            if usually:
                assert world.engine.upkeep.expected(node, data, world.now, world.engine.takes) == b""
            else:
                world.engine.upkeep.received(node, data, world.now)
        world._send()
        assert world.engine.still
        facts = [(it.state, it.until, it.fence, it.wake, it.as_usual, it.done) for it in claims]
        connections = [(it.answered, it.rtt, it.trip, len(it.ledger)) for it in world.engine.connections]
        events = [(type(it), it.at) for it in world.events]
        return facts, connections, events, [it in world.settled for it in claims], world.engine.stats(world.now)

    assert told(True) == told(False)


def test_what_is_no_claim_s_answer_is_read_in_full() -> None:
    world = World().connect()
    for node in world.nodes:
        node.mute = True
    query = world.consult(1)
    question = next(iter(world.engine.connections[1].ledger))
    assert not world.engine.takes(1, question, world.now) and not query.over


@pytest.mark.parametrize("ttl", [10.0, 1.0])
def test_a_claim_that_its_caller_has_begun_is_adopted(ttl: float) -> None:
    world = World().connect()
    world.run(3.0)  # nothing is due
    patience = world.engine.upkeep.patience
    claim = world.wanted([Exclusive("a", ttl=ttl, horizon=world.settings.horizon)], ttl).claims[0]
    claim.begin(world.now)
    [(nodes, command)] = claim.sends
    claim.sends.clear()
    for node in nodes:
        claim.answered(node, command, claim.usual, world.now)
    claim.news = False
    assert world.engine.stats(world.now, [claim]).held == 1
    world.engine.adopt(claim, world.now)
    world.engine.adopt(claim, world.now)
    assert world.engine.live == {claim.token: claim} and world.engine.upkeep.patience == min(patience, ttl / 3)
    assert world.engine.upkeep.pulse == world.now + min(patience, ttl / 3), "what its caller has said has to be answered, too"
    claim.release(world.now)
    world.engine.adopt(claim, world.now)
    assert not world.engine.live and world.engine.upkeep.patience == patience
    # And not at all, if it has ended by then.
    world.engine.adopt(claim, world.now)
    assert not world.engine.live and world.engine.upkeep.patience == patience


def test_when_a_caller_may_begin_by_itself() -> None:
    world = World()
    timing = Timing(10.0)
    assert not world.engine.calm(timing, world.now), "nobody is connected"
    world.connect()
    world.claim("first")
    world.run(1.0)
    assert world.engine.calm(timing, world.now) and world.engine.calm(Timing(0.6), world.now)
    assert not world.engine.calm(Timing(1e-9), world.now), "its ttl is shorter than an answer takes"
    world.engine.spoke = True
    assert not world.engine.calm(timing, world.now), "something is to be sent first"


def test_an_error_in_a_claim_is_no_failure_of_the_connection_that_brought_a_usual_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    world, planted = World().connect(), ZeroDivisionError("planted")
    for node in world.nodes:
        node.mute = True
    claim = world.claim("a")
    data = next(iter(world.engine.connections[1].ledger)).expected

    def raises(*_: object) -> bool:
        raise planted

    monkeypatch.setattr(Claim, "answered", raises)
    with pytest.raises(ZeroDivisionError):
        world.engine.upkeep.expected(1, data, world.now, world.engine.takes)
    assert world.engine.connections[1].bad is None and claim.state is State.WAITING


def test_what_a_user_may_not_do_is_no_answer() -> None:
    world = World().connect()
    call = pack(b"EVALSHA", ARRIVE.sha, b"1", b"k")
    world.engine.consult({0: call, 1: call}, world.now)
    world.run(0.1)
    world.engine.connections[0].lacks = {"ZCARD": "NOPERM"}
    query = world.engine.consult({0: call, 1: call}, world.now)
    world.run(0.1)
    assert (list(query.answers), list(query.causes)) == ([1], [0])
    assert isinstance(query.causes[0], ConfigError)
