"""The connections of an engine: when they are dialled and given up, what they load, and how long a node may owe an answer."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from engine.world import FULL, INBOX, SCRIPTS, TRIP, Notebook, World, away, guarded, lines, loads, near, plant, run_id, slow
from proof.books import word

from holdfast.engine.engine import Engine
from holdfast.errors import ConfigError, LockBusy
from holdfast.protocol.claim import State
from holdfast.protocol.exclusive import undo
from holdfast.protocol.readwrite import READER, ReadWrite
from holdfast.scripts import ARRIVE, GCRA, PERMITS, RW_RELEASE
from holdfast.wire.address import parse
from holdfast.wire.connection import Connection, ConnectionState
from holdfast.wire.resp import pack
from holdfast.wire.rights import question

# ------------------------------------------------ connecting


def test_silence_that_may_have_been_the_drivers_is_excused() -> None:
    world = World(node_timeout=0.75).connect()
    for node in world.nodes[:2]:
        node.mute = True
    world.claim()
    world.run(0.5)
    world.engine.upkeep.excuse(world.now, 0.5)
    world.run(0.75 - TRIP)
    assert lines(world) == ["up"] * 3
    world.run(TRIP)
    assert lines(world) == ["down", "down", "up"]


# ------------------------------------------------ outages


def test_a_caller_who_comes_before_the_tick_finds_the_nodes_whose_guard_is_over() -> None:
    """It was told that they are guarded, 0.0 s left, and `nodes()` said "up"."""
    world = World()
    guarded(world, 0, 1, uptime=21)
    world.run(0.5)
    assert lines(world) == ["guarded", "guarded", "up"]
    world.now = world.engine.connections[1].wake
    claim, query = world.claim(patient=False), world.consult(0, 1)
    world.run(0.1)
    assert (claim.state, sorted(query.answers)) == (State.HELD, [0, 1])


# ------------------------------------------------ patience


def test_patience_is_a_third_of_the_shortest_lease_that_lives() -> None:
    # Rule T3.
    world = World(ttl=3.0).connect()
    engine = world.engine
    assert engine.upkeep.patience == 1.0
    first = world.claim("b", ttl=2.4)
    assert engine.upkeep.patience == near(0.8)
    for ttl in (2.4, 2.5, 3.0, 30.0):
        world.claim("c", ttl=ttl)
        assert engine.upkeep.patience == near(0.8)
    short = world.claim("d", ttl=0.6)
    assert engine.upkeep.patience == near(0.2)
    world.end(short)
    assert engine.upkeep.patience == near(0.8)
    world.end(first)
    assert engine.upkeep.patience == near(0.8), "another one with this ttl waits"
    for claim in list(engine.live.values()):
        world.end(claim)
    assert engine.upkeep.patience == 1.0
    world.claim("d", ttl=0.6)
    assert engine.upkeep.patience == near(0.2)
    world.run(1.0)
    world.nodes[0].mute, world.nodes[0].dialled = True, "hangs"
    world.claim("e", ttl=30.0)
    world.run(0.19)
    assert world.nodes[0].linked
    world.run(0.011)
    assert not world.nodes[0].linked


@pytest.mark.parametrize("end", ["released", "lost", "refused", "of several names"])
def test_a_short_lease_that_ends_leaves_the_others_the_time_that_they_had(end: str) -> None:
    world = World(outage=0.1).connect()
    patient = world.claim("long", ttl=30.0)
    if end == "of several names":
        short: Any = world.want("a", "b", ttl=0.3)
    else:
        short = world.claim("short", ttl=0.3)
    world.run(0.05)
    assert world.engine.upkeep.patience == near(0.1) and world.engine.node_set.patience == 1.0
    assert len(short.claims) == (2 if end == "of several names" else 1)
    if end == "lost":
        world.now += 1.0
        world.run(0.5)
        assert short.state is State.LOST
    elif end == "refused":
        other = world.claim("short", ttl=0.2, deadline=world.now + 0.05)
        world.run(0.1)
        assert type(other.refusal) is LockBusy
        world.end(short)
    else:
        world.end(short, heard=end == "released")
        world.run(0.1)
    assert world.engine.upkeep.patience == 1.0
    world.end(world.claim("another", ttl=0.3))
    assert world.engine.upkeep.patience == 1.0, "it was counted as often as it ended"
    for node in world.nodes:
        node.mute = True
    connections = [it.connection for it in world.nodes]
    world.claim("later", ttl=30.0)
    world.run(0.9)
    assert all(it.linked for it in world.nodes), "a node may take its time again"
    assert [it.connection for it in world.nodes] == connections
    world.run(0.2)
    assert [it.connection for it in world.nodes] != connections
    assert patient.state is State.HELD


def test_a_round_trip_that_was_long_for_a_moment_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    slow(world, 0.01, monkeypatch)
    world.connect()
    slow(world, TRIP, monkeypatch)
    assert type(world.claim(ttl=0.05).refusal) is ConfigError
    assert type(world.claim(ttl=0.05).refusal) is ConfigError
    assert [len(it.of("TIME")) for it in world.nodes] == [1] * 3
    world.run(0.1)
    assert [len(it.of("TIME")) for it in world.nodes] == [2] * 3, "once is enough"
    claim = world.claim(ttl=0.05)
    world.run(0.01)
    assert claim.state is State.HELD


# ------------------------------------------------ scripts that are used later


def test_the_first_use_may_come_before_any_node_is_connected_to() -> None:
    world = World()
    query = world.engine.consult(dict.fromkeys(range(3), pack(b"EVALSHA", GCRA.sha, b"1", b"k")), world.now)
    world.run(0.5)
    assert len(query.answers) == 3
    assert all(it.writes[1].startswith(SCRIPTS + loads(GCRA)) for it in world.nodes)


# ------------------------------------------------ what fails at one connection


# A driver calls the others, and contains what they raise (`Upkeep.faulted`).
OTHERS = ("renounce", "ready", "take")
CALLS = sorted(name for name, it in vars(Connection).items() if callable(it) and not name.startswith("_") and name not in OTHERS)


@pytest.mark.parametrize("call", CALLS)
def test_whatever_fails_at_one_connection_is_that_nodes_failure_and_leases_survive(call: str) -> None:
    world = World().connect()
    claim = world.claim(ttl=3.0)
    world.run(0.1)
    called = plant(world, 2, call, ZeroDivisionError("secret"))
    # Seven calls need an occasion: a guard that ends early, a claim that is refused for its round trip, a fence that looks wrong, the
    # first use of a script, a caller that comes while too few nodes are up, a place that was asked for, and a right that is missing.
    if call == "shorten":
        world.nodes[2].facts = {"run_id": run_id(7), "uptime_in_seconds": 20}
        world.cut(2)
    if call == "measure":
        world.engine.upkeep.measure(world.now)
    if call == "told_time":
        world.engine.health.check_clocks(world.now)
    if call == "learn":
        world.engine.consult({0: pack(b"EVALSHA", PERMITS.sha, b"0")}, world.now)
    if call == "forbids":
        world.engine.connections[2].lacks = {"ZSCORE": "NOPERM"}
        world.consult(2)
    if call == "hurry":
        world.engine.upkeep.dial_soon(world.now)
    if call == "expected":
        world.says(2, world.engine.upkeep.expected(2, b":1\r\n", world.now, world.engine.takes))
    if call == "placed":
        world.engine.upkeep.placed(2, world.now, world.engine.connections[2].address, world.now)
    world.run(2.0)
    world.engine.upkeep.excuse(world.now, 0.5)
    if not called or call == "explained":
        world.cut(2)
    world.run(2.0)
    if not called:  # what only a silent node is told
        world.nodes[2].mute = True
    world.run(10.0)
    assert called == [call] * len(called)
    assert 1 <= len(called) < 200, "it is tried again and again, but not without a pause"
    assert claim.state is State.HELD
    assert len([it for it in claim.votes if it.granted]) >= 2
    other = world.claim("b", ttl=3.0)
    world.run(2.0)
    assert other.state is State.HELD
    told = [it for it in world.events if word(it) == "down"]
    assert told or call in ("excuse", "explained"), "these two fail once: such a node is dialled at once, and never counts as down"
    assert {it.node for it in told} <= {world.engine.connections[2].address.label}
    assert not any("secret" in str(it.cause) for it in told)
    world.end(claim)
    world.end(other)
    world.run(1.0)
    assert world.nodes[0].holders == world.nodes[1].holders == {}


def test_no_memory_is_called_so() -> None:
    world = World().connect()
    world.engine.upkeep.lost(2, world.now, MemoryError())
    world.engine.upkeep.lost(2, world.now, MemoryError())
    assert str(world.engine.health.status(world.now)[2].cause) == "this process has no memory left for what the node says"


def test_what_was_never_raised_has_no_place() -> None:
    world = World().connect()
    world.engine.upkeep.faulted(2, world.now, ZeroDivisionError())
    assert str(world.engine.connections[2].bad) == (
        "holdfast failed on this node's connection (ZeroDivisionError); the other nodes go on. Please report this"
    )
    world.run(0.1)
    assert world.nodes[2].connection == 2, "it is connected to again"


# ------------------------------------------------ nodes that answer and refuse


def test_a_node_that_may_move_is_asked_for_and_left_when_nobody_confirms_it() -> None:
    # Rule G13.
    world = World()
    world.run(0.1)
    engine, connection, now = world.engine, world.engine.connections[0], world.now
    connection.server.outlives, connection.asked, connection.sure, connection.reask = 0.3, now, now + 0.3, now + 0.1
    engine.upkeep.pulse = now  # (when connections are looked after next, which a connection would have set)
    engine.tick(now + 0.09)
    assert engine.ready().places == ()
    engine.tick(now + 0.1)
    assert engine.ready().places == [0]
    engine.upkeep.placed(0, now + 0.15, ConnectionError("nobody knows"), now + 0.1)
    engine.tick(now + 0.29)
    assert connection.state is ConnectionState.UP
    engine.tick(now + 0.3)
    assert connection.state is ConnectionState.DOWN
    assert "for 0.3 s nobody has confirmed that it is still the node's server: nobody knows" in str(engine.node_set.causes[0])


def test_a_node_that_has_moved_is_left_at_once() -> None:
    world = World()
    world.run(0.1)
    engine, connection, now = world.engine, world.engine.connections[0], world.now
    connection.server.outlives, connection.asked = 15.0, now
    engine.upkeep.placed(0, now + 0.1, connection.address.but(host="elsewhere"), now + 0.05)
    assert connection.state is ConnectionState.DOWN
    assert "the node has moved to elsewhere" in str(engine.node_set.causes[0])
    engine.upkeep.pulse = inf
    engine.upkeep.placed(1, now + 0.1, ConnectionError("nobody knows"), now)
    assert engine.upkeep.pulse == now + 0.1 + engine.upkeep.patience, "the node may be asked to keep its note, and be silent"


def test_what_is_said_along_is_answered_to_nobody_and_has_to_be_answered() -> None:
    world = World().connect()
    world.run(3.0)  # nothing is due
    world.engine.upkeep.say_along(pack(b"PING"), (0, 1), world.now)
    world._send()
    world.nodes[1].mute = True
    world.run(2.0)
    assert [len(it.of("PING")) for it in world.nodes] == [1, 1, 0]
    assert [it.connection for it in world.nodes] == [1, 2, 1]


def test_the_guard_of_one_node_ends_on_time() -> None:
    world = World(restart_guard=32.0)
    guarded(world, 0, uptime=32)
    world.run(1.0)
    assert lines(world) == ["guarded", "up", "up"]
    world.run(3 * TRIP)
    assert lines(world) == ["up", "up", "up"]


def test_a_script_that_needs_rights_of_its_own_is_used_after_they_were_asked_for() -> None:
    world = World().connect()
    world.engine.consult(dict.fromkeys(range(3), pack(b"EVALSHA", ARRIVE.sha, b"1", b"k")), world.now)
    world.run(0.1)
    assert all(it.writes[-1].startswith(loads(ARRIVE) + question("", b"more") + b"*4\r\n") for it in world.nodes)


def test_a_node_that_is_away_is_not_asked_for_rights() -> None:
    world = World().connect()
    away(world, 0)
    world.engine.consult({1: pack(b"EVALSHA", ARRIVE.sha, b"1", b"k")}, world.now)
    assert world.engine.connections[0].take() == b""


def test_a_client_stays_connected_where_a_function_says_which_server_a_node_is() -> None:
    settings = World(1).settings
    found, watched = parse("redis://h").but(moves=True), parse("redis+sentinel://s1/it?failover=15")
    for address, stays in ((parse("redis://h"), False), (watched, False), (found, True)):
        assert Engine(settings._replace(addresses=[address]), INBOX, undo).upkeep.stays is stays


def test_nodes_know_the_script_of_the_release_that_a_guardian_would_send() -> None:
    world = World()
    world.engine.upkeep.guardian = Notebook()
    world.connect()
    world.claim("a")
    want = world.wanted([ReadWrite("b", READER, horizon=16_000)], 10.0)
    world.engine.begin(want, world.now)
    world.run(0.1)
    assert all(loads(RW_RELEASE) in b"".join(it.writes) for it in world.nodes)


def test_a_guard_ends_on_time() -> None:
    world = World(1, node_timeout=3.0)
    guarded(world, 0, uptime=32)
    claim = world.claim()
    world.run(3 * TRIP + 1.0)
    assert lines(world) == ["up"] and claim.state is State.WAITING
    world.run(2 * TRIP)
    assert claim.state is State.HELD


def test_an_error_in_a_claim_is_no_failure_of_a_connection() -> None:
    world = World().connect()
    world.engine.upkeep.bug = ZeroDivisionError("planted")
    for call in ("received", "expected"):
        plant(world, 0, call, world.engine.upkeep.bug)
    with pytest.raises(ZeroDivisionError):
        world.engine.upkeep.received(0, b"", world.now)
    with pytest.raises(ZeroDivisionError):
        world.engine.upkeep.expected(0, b"", world.now, world.engine.takes)
    assert world.engine.connections[0].bad is None


def test_a_node_that_refuses_is_asked_again_until_it_does_not() -> None:
    world = World().connect()
    world.nodes[0].refusal = FULL
    world.claim()
    world.run(5.0)
    assert lines(world) == ["refusing", "up", "up"] and len(world.nodes[0].probed) > 5
    world.nodes[0].refusal = b""
    world.run(1.1)
    before = len(world.nodes[0].probed)
    world.run(30.0)
    assert (lines(world), len(world.nodes[0].probed)) == (["up", "up", "up"], before)
