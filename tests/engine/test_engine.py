"""The engine: claims and connections joined. What is said to which node and when, what is made of the answers, and what observers hear.

Everything runs in `World`: virtual time, real connections, real bytes, and nodes that say what a test wants.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise, permutations
from math import inf
from typing import Any

import pytest
from engine import world as world_
from engine.world import (
    ANOTHER,
    CEDE,
    FULL,
    INBOX,
    SCRIPTS,
    START,
    TRIP,
    TRY,
    WAIT,
    WALL,
    World,
    away,
    busy,
    causes,
    denied,
    granted,
    guarded,
    lines,
    loads,
    near,
    noted,
    plant,
    rests,
    run_id,
    slow,
    states,
    timers,
    usual,
    warnings,
)
from proof.books import word

from holdfast import events
from holdfast.engine.engine import GRACE, TURN, Engine
from holdfast.engine.ready import Ready
from holdfast.engine.recorder import Stats
from holdfast.engine.settings import DEFAULT_GUARD
from holdfast.errors import ConfigError, LockBusy, NoQuorum, Overtaken, message_of
from holdfast.protocol.claim import Claim, State
from holdfast.protocol.exclusive import Exclusive, undo
from holdfast.protocol.joint import JointRequest
from holdfast.protocol.readwrite import WRITER, ReadWrite
from holdfast.protocol.semaphore import Slots
from holdfast.protocol.timing import Timing
from holdfast.scripts import ARRIVE, RW_RELEASE, RW_REQUEST
from holdfast.wire.resp import pack
from holdfast.wire.rights import question

# ------------------------------------------------ connecting


def test_an_engine_begins_with_nothing() -> None:
    world = World()
    fresh = Engine(world.settings, INBOX, undo)
    assert (fresh.record.telling, fresh.record.epoch, fresh.changes, fresh.owing) == (False, 0.0, 0, False)
    assert (fresh.live, fresh.ready()) == ({}, Ready(wake=-inf))
    assert fresh.claim(Exclusive("a", ttl=10, horizon=1), Timing(10.0), 5.0).ticket == 5_000_000  # (no driver has told it the wall clock)
    fresh.upkeep.connected(0, 5.0)
    assert b"LIB-VER\r\n$1\r\n0\r\n" in fresh.connections[0].take()


def test_nothing_is_sent_before_somebody_wants_something_but_the_greeting() -> None:
    world = World()
    assert world.engine.next_wake() <= START  # nodes are dialled as soon as the engine runs
    world.run(50.0)
    for node in world.nodes:
        assert node.connection == 1
        assert node.writes[1] == SCRIPTS
        assert {note for _, _, note in node.noted} == {noted(world)}
        assert b"".join(node.writes).count(b"HELLO") == 1
    assert (lines(world), world.engine.owing, rests(world)) == (["up"] * 3, False, True)
    assert b"$20\r\nholdfast:me:01234567\r\n" in world.nodes[0].writes[0] and b"\r\n1.2\r\n" in world.nodes[0].writes[0]


@pytest.mark.parametrize("patient", [True, False])
def test_a_claim_before_anything_is_connected_waits_and_goes_out_with_the_scripts(patient: bool) -> None:
    world = World()
    claim = world.claim(patient=patient)
    assert (claim.state, lines(world)) == (State.WAITING, ["connecting"] * 3)
    world.run(5 * TRIP)
    assert (claim.state, world.settled, claim.since) == (State.HELD, [claim], START + 5 * TRIP)
    for node in world.nodes:
        assert len(node.writes) == 2  # the greeting; the scripts and the request
        assert node.writes[1].startswith(SCRIPTS + b"*13\r\n$7\r\nEVALSHA\r\n")
        assert [(it.name, it.token, it.ttl, it.mode) for it in node.of("request")] == [
            (b"a", claim.token, 10_000, WAIT if patient else TRY)
        ]


def test_connected_nodes_are_asked_at_once_and_together() -> None:
    world = World().connect()
    claim = world.claim()
    assert [node.writes[2:] for node in world.nodes] == [[world.nodes[0].writes[2]]] * 3
    world.run(2 * TRIP)
    assert (claim.state, claim.fence, claim.since) == (State.HELD, claim.ticket, START + 0.5 + 2 * TRIP)
    assert world.settled == [claim]


@pytest.mark.parametrize("patient", [True, False])
def test_a_dead_node_costs_nothing(patient: bool) -> None:
    world = World()
    world.nodes[1].dialled = "refuses"
    first = world.claim("first", patient=patient)
    world.run(5 * TRIP)
    assert (first.state, first.since) == (State.HELD, START + 5 * TRIP)  # as if it were not there
    second = world.claim("second", patient=patient)
    world.run(2 * TRIP)
    assert (second.state, second.since) == (State.HELD, START + 7 * TRIP)
    assert world.nodes[1].asked == []


def test_a_try_is_over_when_too_few_nodes_could_be_spoken_to_for_node_timeout() -> None:
    world = World(node_timeout=0.7)
    world.nodes[0].dialled = world.nodes[2].dialled = "refuses"
    claim = world.claim(patient=False)
    world.run(0.7)
    assert claim.state is State.WAITING
    world.run(TRIP)
    assert (claim.state, world.settled) == (State.OVER, [claim])
    assert causes(claim) == {"redis://n0:1": "refused 0", "redis://n2:1": "refused 2"}


def test_a_node_that_cannot_be_dialled_is_found_out_by_node_timeout() -> None:
    world = World(node_timeout=0.7)
    world.nodes[0].dialled = "hangs"
    world.run(0.69)
    assert lines(world) == ["connecting", "up", "up"]
    world.run(0.01)
    assert lines(world) == ["down", "up", "up"]
    assert str(world.engine.health.status(world.now)[0].cause) == "no connection within 0.7 s"


def test_a_node_that_accepts_and_never_answers_counts_as_down_until_it_answers() -> None:
    world = World(node_timeout=0.7, telling=True)
    silent = world.nodes[2]
    silent.mute = True
    claim = world.claim()
    world.run(0.7)
    assert (claim.state, lines(world)) == (State.HELD, ["up", "up", "connecting"])
    world.run(TRIP)  # it was connected to one trip after everything began
    assert (lines(world)[2], silent.linked) == ("down", False)
    for _ in range(20):
        world.run(0.3)
        assert lines(world)[2] == "down"  # also while it is dialled and greeted once more
    assert silent.connection > 3
    assert [it.node for it in world.events if word(it) == "down"] == ["redis://n2:1"]
    world.run(1.0)
    silent.mute = False
    world.run(3.0)
    assert lines(world)[2] == "up"


@pytest.mark.parametrize("node_timeout", [0.75, 1.0, 3.0])
def test_a_node_that_greets_and_then_takes_no_scripts_counts_as_down(node_timeout: float) -> None:
    world = World(node_timeout=node_timeout)
    frozen = world.nodes[2]
    answers = frozen.reads
    frozen.reads = lambda data, now: b"" if data.startswith(SCRIPTS) else answers(data, now)  # type: ignore[method-assign]  # (a fake in its place)
    world.run(node_timeout + 3 * TRIP)
    assert lines(world)[2] == "down"  # it was up for as long as nothing was known against it
    claim = world.claim("other")
    for _ in range(20):
        world.run(1.0)
        assert lines(world)[2] == "down"
    assert frozen.connection > 3
    assert (claim.state, frozen.of("request")) == (State.HELD, [])


def test_a_node_may_owe_an_answer_for_node_timeout() -> None:
    world = World(node_timeout=0.75).connect()
    world.nodes[1].mute = True
    world.claim()
    world.run(0.75 - TRIP)
    assert (lines(world), world.nodes[1].connection) == (["up"] * 3, 1)
    world.run(TRIP)
    assert (lines(world)[1], world.nodes[1].linked) == ("down", False)
    assert str(world.engine.health.status(world.now)[1].cause) == "silent for 0.75 s"


def test_only_a_tick_finds_a_node_late() -> None:
    world = World(node_timeout=0.7).connect()
    engine, claim = world.engine, world.claim()
    world.run(TRIP)  # the answers are under way, and the driver does not come round to reading them
    now = world.now + 100.0
    assert engine.next_wake() < now
    world.now = now
    for node in range(3):
        engine.upkeep.received(node, usual(claim.ticket) + b"*0\r\n", now)  # what lies unread is not late
    assert [connection.state.name for connection in engine.connections] == ["UP"] * 3
    engine.tick(now)
    assert engine.upkeep.cut() == [] and lines(world) == ["up"] * 3

    world.claim("other")
    engine.upkeep.received(0, b"", now + 5.0)  # nothing but a tick looks at the time
    assert engine.upkeep.cut() == []
    engine.tick(now + 0.69)
    assert engine.upkeep.cut() == []
    engine.tick(now + 0.7)
    assert engine.upkeep.cut() == [0, 1, 2]


def test_a_driver_that_was_busy_ends_the_leases_that_have_run_out_and_no_others() -> None:
    """No answer that lies unread can save them; whatever else is due waits until all is read."""
    world = World().connect()
    short, long, other = world.claim("a", ttl=3.0), world.claim("b", ttl=9.0), world.want("c", "d", ttl=3.0)
    world.run(0.5)
    busy(world, b"e")
    waiting = world.claim("e", deadline=world.now + 1.0)
    world.run(0.2)
    for node in world.nodes:
        node.mute = True
    world.run(0.5)
    query = world.consult(0, 1, 2)
    world.engine.ready()
    first = min(it.until for it in (short, *other.claims))
    assert world.engine.next_wake() < first - 0.001, "renewals are due"
    world.engine.lapse(first - 0.001)
    assert world.engine.ready().idle
    assert {it.state for it in (short, long, *other.claims)} == {State.HELD}
    world.engine.lapse(max(it.until for it in (short, *other.claims)))
    assert [it.state for it in (short, long, *other.claims)] == [State.LOST, State.HELD, State.LOST, State.LOST]
    assert waiting.state is State.WAITING and not query.over
    ready = world.engine.ready()
    assert set(ready.settled) == {short, other}


def test_leases_that_have_run_out_are_ended_in_the_order_of_their_ends() -> None:
    world = World().connect()
    claims = [world.claim(f"{ttl}", ttl=ttl) for ttl in (4.0, 2.0, 3.0, 9.0, 2.5)]
    world.run(0.1)
    for node in world.nodes:
        node.mute = True
    world.engine.lapse(world.now + 5.0)
    assert [it.ttl for it in world.engine.ready().settled] == [2.0, 2.5, 3.0, 4.0]
    assert claims[3].state is State.HELD


# ------------------------------------------------ outages


def test_waiting_ends_when_a_majority_was_away_for_the_outage() -> None:
    world = World(outage=7.0).connect()
    busy(world)
    claim = world.claim()
    world.run(3.0)
    away(world, 0, 1)
    began = world.now
    world.run(6.99)
    assert claim.state is State.WAITING
    world.run(0.02)
    assert (claim.state, world.settled) == (State.OVER, [claim])
    assert causes(claim) == {"redis://n0:1": "refused 0", "redis://n1:1": "refused 1"}
    assert claim.refusal is not None and "fewer than 2 nodes are usable" in str(claim.refusal)
    assert world.now - began == near(7.01)


def test_an_outage_counts_only_without_a_break() -> None:
    world = World(outage=7.0).connect()
    busy(world)
    claim = world.claim()
    away(world, 0, 1)
    world.run(6.0)
    world.nodes[0].dialled = "accepts"
    world.run(2.0)  # it is back, and soon away again
    assert lines(world) == ["up", "down", "up"]
    away(world, 0)
    world.run(6.9)
    assert claim.state is State.WAITING
    world.run(0.2)
    assert claim.state is State.OVER


def test_an_outage_that_is_shorter_than_a_third_of_the_lease_ends_waiting_in_time() -> None:
    world = World(outage=1.0).connect()
    busy(world)
    claim = world.claim()
    world.run(0.5)
    away(world, 0, 1)
    world.run(0.99)
    assert claim.state is State.WAITING
    world.run(0.02)
    assert claim.state is State.OVER


@pytest.mark.parametrize("patient", [True, False])
def test_a_caller_that_comes_late_to_an_outage_has_the_lock_as_soon_as_the_nodes_are_back(patient: bool) -> None:
    """Rule C17: it does not wait for the next attempt to connect, which is up to 1.28 s away, and does not fail before it."""
    for phase in range(8):
        world = World(outage=7.0).connect()
        away(world, 0, 1)
        world.run(60.0 + phase * 0.08)
        for node in world.nodes:
            node.dialled = "accepts"
        late = world.claim(patient=patient)
        assert late.state is State.WAITING
        world.run(0.15)
        assert late.state is State.HELD


def test_callers_of_an_outage_dial_no_more_than_ten_times_a_second() -> None:
    world = World().connect()
    away(world, 0, 1)
    world.run(5.0)
    before = world.dials
    for _ in range(200):
        world.claim(patient=False)
        world.consult(0, 1, 2)
        world.run(0.01)
    assert 2 * 15 < world.dials - before <= 2 * 20


def test_a_minority_that_is_away_is_no_outage() -> None:
    world = World(outage=7.0).connect()
    busy(world)
    away(world, 2)
    claim = world.claim()
    world.run(100.0)
    assert claim.state is State.WAITING


# ------------------------------------------------ reconnects


def test_a_connection_of_use_that_breaks_is_dialled_at_once_and_nobody_is_alarmed() -> None:
    world = World(telling=True).connect()
    world.run(1.0)
    changes = world.engine.changes
    world.cut(0)
    assert lines(world)[0] == "connecting"
    assert world.engine.health.status(world.now)[0].cause is None
    world.run(5 * TRIP)
    assert lines(world)[0] == "up"
    assert world.events == []
    assert world.engine.changes == changes + 2  # those who watch may look


def test_claims_that_wait_ask_again_at_once_and_holders_at_their_next_renewal() -> None:
    world = World(in_step=True).connect()
    busy(world, b"waited for")
    holders = []
    for name in ("held", "held later"):
        holders.append(world.claim(name))
        world.run(1.0)
    waits = world.claim("waited for")
    tries = world.claim("tried", patient=False)
    world.run(0.2)
    asked = world.nodes[0].asked
    world.cut(0)
    asked.clear()
    world.run(3 * TRIP)
    assert [it.word for it in asked if it.word in ("request", "release")] == []
    world.run(TRIP)
    assert [(it.token, it.mode) for it in world.nodes[0].of("request")] == [(waits.token, WAIT)]
    assert [it.state for it in holders] == [State.HELD, State.HELD] and tries.state is State.HELD
    world.run(4.0)
    renewed = [(it.token, round(it.at - START, 2)) for it in world.nodes[0].of("request") if it.name.startswith(b"held")]
    assert renewed == [(holders[0].token, 3.73), (holders[1].token, 4.73)]  # a third of their lease after its begin: spread


@pytest.mark.parametrize("guard, restarted, asked", [(None, True, 1), (None, False, 0), (DEFAULT_GUARD, True, 0)])
def test_without_a_guard_a_holder_asks_a_node_that_has_restarted_at_once(guard: Any, restarted: bool, asked: int) -> None:
    # Rule C15.
    world = World(in_step=True, restart_guard=guard).connect()
    claim = world.claim()
    world.run(1.0)
    node = world.nodes[0]
    if restarted:
        node.facts = {"run_id": run_id(7), "uptime_in_seconds": 0}
        node.holders.clear()
    for told in (asked, 0):  # the second time it is the same run as before
        node.asked.clear()
        world.cut(0)
        world.run(0.5)
        assert len(node.of("request")) == told
        assert claim.state is State.HELD


def test_without_a_guard_a_restart_of_all_nodes_is_told_as_soon_as_they_are_connected_to() -> None:
    # Rule C15.
    world = World(in_step=True, restart_guard=None).connect()
    claim = world.claim()
    world.run(1.0)
    for node in world.nodes:
        node.facts = {"run_id": run_id(node.number + 7), "uptime_in_seconds": 0}
        node.holders.clear()
        world.cut(node.number)
    world.run(0.1)
    assert (claim.state, claim.reason) == (State.LOST, "gap")


def test_a_try_asks_a_node_that_comes_back_as_a_try() -> None:
    world = World().connect()
    world.run(1.0)
    world.nodes[0].mute = world.nodes[1].mute = True
    claim = world.claim(patient=False)
    world.run(0.1)
    for number in (0, 1):
        world.nodes[number].mute = False
        world.cut(number)
    world.run(0.1)
    assert [it.mode for it in world.nodes[0].of("request")] == [TRY, TRY]
    assert claim.state is State.HELD


def test_claims_in_doubt_ask_again_at_once() -> None:
    world = World(node_timeout=0.5).connect()
    claim = world.claim()
    world.run(1.0)
    away(world, 0, 1)
    world.run(4.0)
    assert claim.doubt and claim.state is State.HELD
    for node in world.nodes:
        node.asked.clear()
        node.dialled = "accepts"
    world.run(2.0)
    again = world.nodes[0].of("request")[0]
    hello = world.nodes[0].of("HELLO")[-1]
    assert again.token == claim.token and again.at == near(hello.at + 4 * TRIP)  # greeting, scripts, request
    assert not claim.doubt


def test_a_release_while_a_node_is_down_is_said_when_it_is_back_before_anything_else() -> None:
    world = World(in_step=True).connect()
    claim = world.claim()
    world.run(1.0)
    away(world, 2)
    world.run(1.0)
    world.end(claim)
    world.run(1.0)
    waits = world.claim()
    world.run(1.0)
    assert world.nodes[2].holders == {b"a": claim.token}
    world.nodes[2].asked.clear()
    world.nodes[2].dialled = "accepts"
    world.run(2.0)
    told = [(it.word, it.token) for it in world.nodes[2].asked if it.token]
    assert told == [("release", claim.token)]
    assert waits.state is State.HELD and world.nodes[2].holders == {}
    world.run(3.0)
    assert world.nodes[2].holders == {b"a": waits.token}


def test_a_release_that_was_not_answered_is_said_again_once() -> None:
    # Rule T6.
    world = World().connect()
    claim = world.claim()
    world.run(1.1)
    world.end(claim)
    world.cut(0)
    world.run(1.0)
    world.cut(1)
    world.run(10.0)
    assert [len(node.of("release")) for node in world.nodes] == [1, 1, 1]
    assert [node.connection for node in world.nodes] == [2, 2, 1]
    assert [node.holders for node in world.nodes] == [{}, {}, {}]


@pytest.mark.parametrize("offset", range(0, 20, 2))
def test_a_node_that_comes_back_is_not_hung_up_over_a_release_that_is_said_again(offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_, "TRIP", 0.05)  # long enough for the engine to look at its connections meanwhile: it dials another node
    world = World(5)
    world.run(3.0)
    claim = world.claim()
    world.run(0.5)
    away(world, 3)
    world.run(offset / 32)
    away(world, 4)
    world.end(claim)
    world.run(5.0)
    before = world.nodes[4].connection
    world.nodes[4].dialled = "accepts"
    world.run(5.0)
    assert (lines(world)[4], world.nodes[4].connection) == ("up", before + 1)


def test_a_release_is_not_said_any_more_when_its_lease_has_run_out() -> None:
    for pause, said in ((29.0, 1), (31.0, 0)):
        world = World().connect()
        claim = world.claim()
        world.run(1.0)
        away(world, 2)
        world.end(claim)
        world.run(pause)
        world.nodes[2].dialled = "accepts"
        world.run(3.0)
        assert (lines(world)[2], len(world.nodes[2].of("release"))) == ("up", said)


# ------------------------------------------------ what nodes say of their own accord


def releases(world: World, number: int) -> list[tuple[bytes, bytes]]:
    world.run(3 * TRIP)
    return [(it.name, it.token) for it in world.nodes[number].of("release")]


def test_a_pushed_grant_is_a_vote() -> None:
    world = World().connect()
    busy(world)
    claim = world.claim()
    world.run(0.1)
    assert claim.state is State.WAITING
    for number in (0, 2):
        world.publishes(number, b"g %b %d a" % (claim.token, claim.ticket + 5))
    assert (claim.state, claim.fence, world.settled) == (State.HELD, claim.ticket + 5, [claim])
    assert releases(world, 0) == []


def test_a_grant_that_nobody_wants_is_given_back() -> None:
    world = World().connect()
    world.publishes(1, b"g %b 5 a name {with} spaces %%s and \xff" % ANOTHER)
    assert world.nodes[1].writes[-1] == undo(b"a name {with} spaces %s and \xff", ANOTHER, world.settings.horizon)
    assert releases(world, 1) == [(b"a name {with} spaces %s and \xff", ANOTHER)]
    assert releases(world, 0) == releases(world, 2) == []


def test_a_grant_that_is_given_back_and_not_answered_is_found_out() -> None:
    world = World().connect()
    world.run(5.0)
    assert rests(world)
    world.nodes[0].mute = True
    world.publishes(0, b"g %b 5 a" % ANOTHER)
    world.run(1.0)
    assert lines(world)[0] == "down"


def test_a_grant_that_nobody_wants_any_more_is_given_back() -> None:
    world = World().connect()
    busy(world)
    claim = world.claim()
    world.run(0.1)
    for node in world.nodes:
        node.mute = True  # the release is not answered yet
    world.end(claim, heard=True)
    assert (claim.state, claim.done) == (State.OVER, False)
    for node in world.nodes:
        node.asked.clear()
    world.publishes(0, b"g %b 5 a" % claim.token)
    assert releases(world, 0)[-1] == (b"a", claim.token) and claim.state is State.OVER


def test_a_push_with_the_right_token_and_the_wrong_name_does_not_reach_the_claim() -> None:
    # Rule T7.
    world = World().connect()
    busy(world)
    claim = world.claim()
    world.run(0.1)
    for name in (b"b", b"", b"a ", b"A"):
        for number in range(3):
            world.publishes(number, b"g %b 1800000000000000 %b" % (claim.token, name))
    world.run(0.1)
    assert (claim.state, claim.contended, claim.counting(world.now)) == (State.WAITING, True, 0)
    assert releases(world, 0) == [(name, claim.token) for name in (b"b", b"", b"a ", b"A")]

    held = world.claim("held")
    world.run(0.1)
    for kind in (b"x", b"i"):
        for number in range(3):
            world.publishes(number, b"%b %b 0 a" % (kind, held.token))
    assert (held.state, held.contended) == (State.HELD, False)


def test_news_are_for_a_watch_for_as_long_as_somebody_refers_to_it() -> None:
    world = World().connect()
    engine = world.engine
    watch, other = engine.listen(world.now), engine.listen(world.now)
    assert watch.token != other.token and watch.token.split(b":")[1] == engine.tickets.inbox
    world.publishes(0, b"n %b 0 {a}:x" % watch.token)
    world.run(0.1)
    assert (watch.news, other.news) == (True, False)
    before = engine.changes
    world.publishes(1, b"n %b 0 {a}:x" % other.token)
    world.run(0.1)
    assert (other.news, engine.changes) == (True, before + 1), "those who wait for changes look"
    token = watch.token
    del watch
    assert list(engine.watches) == [other.token]
    world.publishes(1, b"n %b 0 {a}:x" % token)
    world.run(0.1)
    assert (engine.changes, releases(world, 1)) == (before + 1, []), "and nothing is given back"


def test_news_end_the_wait_of_a_claim_that_heeds_them() -> None:
    world = World().connect()
    busy(world)
    deaf, claim = world.claim(), world.claim(news_needed=2)
    world.run(0.1)
    for node in (0, 2):
        world.publishes(node, b"n %b 0 a" % deaf.token)
        world.publishes(node, b"n %b 0 a" % claim.token)
    world.run(0.1)
    assert (deaf.state, claim.state) == (State.WAITING, State.OVER)
    assert isinstance(claim.refusal, Overtaken)
    assert releases(world, 1) == [(b"a", claim.token)]


def test_whoever_waits_for_changes_is_told_of_the_end() -> None:
    world = World().connect()
    before = world.engine.changes
    world.engine.close(world.now)
    assert world.engine.changes == before + 1


def test_a_lock_that_is_taken_away_is_lost() -> None:
    world = World().connect()
    claim = world.claim()
    world.run(1.0)
    world.publishes(0, b"x %b 0 a" % claim.token)
    assert (claim.state, world.settled) == (State.HELD, [claim])  # a minority
    world.publishes(1, b"x %b 0 a" % claim.token)
    assert (claim.state, claim.reason, world.settled) == (State.LOST, "forced", [claim, claim])
    assert claim.token not in world.engine.live


MALFORMED = [
    b"",
    b" ",
    b"g",
    b"g " + ANOTHER,
    b"g %b 5" % ANOTHER,
    b"g %b x a" % ANOTHER,
    b"g %b -5 a" % ANOTHER,
    b"g %b 5.0 a" % ANOTHER,
    b"g %b  a" % ANOTHER,
    b"g %b %b a" % (ANOTHER, b"1" * 17),
    b"g  %b 5 a" % ANOTHER,
    b"g  5 a",
    b"g token 5 a",
    b"g %b0 5 a" % ANOTHER,
    b"g %b 5 a" % (b"x" * 58),
    b"g %b 5 a" % ANOTHER.upper(),
    b"g %b\r\n 5 a" % ANOTHER,
    b"g " + b"x" * 58 + b"\r\n$5\r\n16000\r\n*1\r\n$8\r\nFLUSHALL 5 a",  # commands of its own, for whoever packs it as a token
    b"\xff\xfe\x00 \xff 5 a",
    b"x %b 0 a" % ANOTHER,
    b"i %b 0 a" % ANOTHER,
    b"G %b 5 a" % ANOTHER,
]


@pytest.mark.parametrize("message", MALFORMED)
def test_a_message_that_no_script_of_ours_sends_is_ignored(message: bytes) -> None:
    world = World().connect()
    claim = world.claim()
    world.run(0.1)
    settled = list(world.settled)
    writes = [list(node.writes) for node in world.nodes]
    world.publishes(0, message)
    world.run(0.1)
    assert (lines(world), [node.writes for node in world.nodes]) == (["up"] * 3, writes)
    assert (claim.state, world.settled) == (State.HELD, settled)


def test_a_message_about_a_claim_that_no_script_of_ours_sends_is_ignored() -> None:
    world = World().connect()
    busy(world)
    claim = world.claim()
    world.run(0.1)
    for message in (b"g %b a", b"g %b x a", b"g %b -1 a", b"g %b 1.5 a", b"%b 5 a", b"g %b " + b"1" * 5000 + b" a", b"? %b 5 a"):
        for number in range(3):
            world.publishes(number, message % claim.token)
    assert (claim.state, claim.counting(world.now), world.settled) == (State.WAITING, 0, [])


# ------------------------------------------------ starting over


def test_a_claim_that_starts_over_is_known_by_its_new_token() -> None:
    world = World().connect()
    busy(world, numbers=(1, 2))
    world.nodes[0].answer = lambda asked: granted(asked.fence, lower=1, fresh=1)  # granted, and a lower ticket waits there
    claim, engine = world.claim(), world.engine
    old = claim.token
    world.run(TRIP)
    world.nodes[0].mute = True
    world.nodes[0].asked.clear()
    world.run(TRIP)
    world.nodes[0].mute = False
    assert world.nodes[0].writes[-1].count(b"\r\n$1\r\nc\r\n") == 1  # a cede left
    world.nodes[0].dialled = "refuses"
    world.cut(0)  # and may be executed, or not
    new = claim.token
    assert new != old and new[:16] == old[:16]
    assert engine.live == {new: claim}
    world.run(0.1)
    for node in world.nodes[1:]:
        assert [(it.word, it.token) for it in node.asked if it.token] == [("request", old), ("request", new), ("release", old)]
    world.publishes(1, b"g %b %d a" % (old, claim.ticket + 5))  # the old one is nobody's
    assert (releases(world, 1)[-1], claim.counting(world.now)) == ((b"a", old), 0)
    for number in (1, 2):
        world.publishes(number, b"g %b %d a" % (new, claim.ticket + 6))
    assert (claim.state, claim.fence) == (State.HELD, claim.ticket + 6)
    world.end(claim)
    assert engine.live == {}
    world.nodes[0].dialled = "accepts"
    world.run(2.0)
    assert [(it.word, it.token) for it in world.nodes[0].asked if it.token] == [("release", old)]


def test_a_cede_is_said_as_one() -> None:
    world = World().connect()
    busy(world, numbers=(1, 2))
    world.nodes[0].answer = lambda asked: denied() if asked.mode == CEDE else granted(asked.fence, lower=1, fresh=1)
    claim = world.claim(ttl=12.0)
    world.run(0.1)
    assert [(it.mode, it.ttl, it.fence) for it in world.nodes[0].of("request")] == [
        (WAIT, 12_000, claim.ticket),
        (CEDE, 12_000, claim.ticket),
    ]


# ------------------------------------------------ events


def test_what_is_told_of_a_lock_that_goes_well() -> None:
    world = World(telling=True, in_step=True).connect()
    claim = world.claim("a name")
    world.run(4.0)
    world.end(claim)
    world.run(1.0)
    assert [word(it) for it in world.events] == ["Attempt", "Acquired", "Renewed", "released"]
    attempt, acquired, renewed, released = world.events
    known: dict[str, Any] = {"name": "a name", "token": claim.token.decode(), "names": ("a name",), "want": claim.ticket}
    waited = near(2 * TRIP)
    fence: dict[str, Any] = {"fence": claim.ticket, "fences": {"a name": claim.ticket}}
    assert attempt == events.Attempt(**known, waited=0.0)
    assert acquired == events.Acquired(**known, **fence, waited=waited)
    assert isinstance(renewed, events.Renewed) and renewed.remaining == near(10 - 0.102 - 2 * TRIP)
    assert renewed.left == near(10 - 0.102 - 10 / 3 - 2 * TRIP, abs=0.2), "a third of the ttl had gone by"
    assert (renewed.name, renewed.token, renewed.waited, renewed.fence) == ("a name", claim.token.decode(), waited, claim.ticket)
    assert released == events.Ended(how="released", **known, **fence, waited=waited, held=near(4.0 - 2 * TRIP))
    began = datetime.fromtimestamp(WALL + 0.5, UTC)
    assert [it.at for it in (attempt, acquired, released)] == [began, began + timedelta(seconds=2 * TRIP), began + timedelta(seconds=4)]


@pytest.mark.parametrize("holder, told", [(None, None), (ANOTHER, ANOTHER.decode()), (b"caf\xe9", "caf\\xe9")])
def test_what_is_told_of_waiting(holder: bytes | None, told: str | None) -> None:
    world = World(telling=True).connect()
    for node in world.nodes:
        node.answer = lambda asked: denied(holder=holder)
    claim = world.claim()
    world.run(5.0)
    world.end(claim)
    queued, refused = world.events[1:]  # each once
    assert isinstance(queued, events.Queued)
    assert (queued.name, queued.token, queued.holder, queued.waited) == ("a", claim.token.decode(), told, 2 * TRIP)
    assert queued.place == 1
    # It gave up by itself.
    known: dict[str, Any] = {"name": "a", "token": claim.token.decode(), "names": ("a",), "want": claim.ticket}
    assert refused == events.Refused(**known, waited=near(5.0), error=None, outcome="gave_up")


def test_what_is_told_of_a_refusal() -> None:
    world = World(telling=True).connect()
    busy(world)
    claim = world.claim(patient=False)
    world.run(1.0)
    assert type(claim.refusal) is LockBusy and claim.refusal.holder == ANOTHER.decode()
    assert world.events[1:] == [
        events.Refused(
            name="a",
            token=claim.token.decode(),
            waited=near(2 * TRIP),
            names=("a",),
            want=claim.ticket,
            error=claim.refusal,
            outcome="busy",
        ),
    ]


@pytest.mark.parametrize("telling", [True, False])
def test_doubt_and_loss_are_told_in_any_case(telling: bool) -> None:
    world = World(in_step=True, telling=telling, node_timeout=0.5).connect()
    claim = world.claim()
    world.run(1.0)
    away(world, 0, 1, 2)
    world.run(10.0)
    assert claim.state is State.LOST
    told = [it for it in world.events if isinstance(it, events.Doubt | events.Ended)]
    known: dict[str, Any] = {"name": "a", "token": claim.token.decode(), "waited": near(2 * TRIP), "fence": claim.ticket}
    known |= {"names": ("a",), "want": claim.ticket, "fences": {"a": claim.ticket}}
    beat = 10 / 3 - 0.102 + 0.5  # the renewal, and as long as nodes may take to confirm it
    why = "; ".join(f"redis://n{node}:1: refused {node}" for node in range(3))
    lost = events.Ended(how="lost", **known, reason="expired", held=near(10 - 0.102 - 2 * TRIP), why=why)
    assert told == [events.Doubt(**known, remaining=near(10 - 0.102 - beat, abs=0.2), why=why), lost]


def test_nothing_is_told_of_locks_that_go_well_unless_somebody_listens() -> None:
    world = World().connect()
    claim = world.claim()
    world.run(4.0)
    busy(world, b"busy")
    waits, tries = world.claim("busy"), world.claim("busy", patient=False)
    world.run(4.0)
    world.end(claim)
    world.end(waits)
    world.run(1.0)
    assert [it.state for it in (claim, waits, tries)] == [State.OVER] * 3 and world.events == []


def test_a_release_is_told_once_and_not_after_a_loss() -> None:
    world = World(telling=True).connect()
    claim, lost = world.claim(), world.claim("lost")
    world.run(1.0)
    for number in (0, 1):
        world.publishes(number, b"x %b 0 lost" % lost.token)
    world.events.clear()
    for it in (claim, claim, lost):
        world.end(it)
    world.run(1.0)
    assert [word(it) for it in world.events] == ["released"]


# ------------------------------------------------ jobs


def test_all_slots_of_a_semaphore_have_the_ticket_that_counts() -> None:
    """Those that are asked for later, too."""
    world = World(3)
    for node in world.nodes:
        node.ahead = -3600.0
    slots = Slots("s", 3, 2, ttl=10, horizon=world.settings.horizon)
    joint = world.engine.want(slots, Timing(10.0), world.now)
    for claim in joint.claims[:1]:
        busy(world, claim.recipe.name)
    world.engine.begin(joint, world.now)
    world.run(2.0)
    assert joint.state is State.HELD
    assert len({it.ticket for it in joint.claims}) == 1
    assert all(abs(it.fence / 1e6 - WALL + 3600.0) < 3.0 for node in world.nodes for it in node.of("request"))


def test_nodes_whose_clocks_are_all_set_are_believed_and_who_waits_starts_over() -> None:
    # Rule F6.
    for nodes in (1, 3):
        world = World(nodes).connect()
        world.run(2.0)
        floor = int((WALL + 3600.0) * 1e6)
        for node in world.nodes:
            node.ahead = 3608.0
            node.answer = lambda asked, least=floor: usual(asked.fence) if asked.fence > least else granted(least, fresh=1)
        claim = world.claim()
        world.run(0.1)
        assert claim.state is State.HELD
        assert claim.fence == claim.ticket > floor
        assert lines(world) == ["up"] * nodes


def test_clocks_are_asked_again_now_and_then() -> None:
    world = World().connect()
    world.run(1300.0)
    world.nodes[1].ahead = -20.0
    world.claim()
    world.run(2.0)
    assert lines(world) == ["up", "down", "up"]


WRONGTYPE = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"


OF_ANOTHER_TYPE = "the key of 'jobs' holds data of another type than a lock's (a string): this node grants the lock to nobody. "


LASTS = "'jobs' is held there by 'a value', a value without an expiry: it stays until it is removed. "


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    "reply, told",
    [(WRONGTYPE, OF_ANOTHER_TYPE), (denied(left=-1, holder=b"a value"), LASTS)],
    ids=["another type", "no expiry"],
)
def test_a_key_that_keeps_a_minority_from_granting_is_warned_of_once(number: int, reply: bytes, told: str) -> None:
    """Whichever node it is on: also on the last one to answer."""
    world = World().connect()
    world.nodes[number].answer = lambda asked: reply
    claim = world.claim("jobs")
    world.run(20.0)
    world.claim("jobs", deadline=world.now + 1.0)
    world.run(2.0)
    assert claim.state is State.HELD
    ((node, warning),) = warnings(world)
    assert node == f"n{number}" and warning.startswith(told)
    world.claim("other", deadline=world.now + 1.0)
    world.run(2.0)
    assert warnings(world)[1:] == [(f"n{number}", warning.replace("jobs", "other"))]


def test_a_value_without_an_expiry_is_warned_of_once_for_a_name_and_a_node_whatever_it_is() -> None:
    """A lock of redis-py without a timeout has another value each time."""
    world = World().connect()
    values = count()
    for node in world.nodes:
        node.answer = lambda asked: denied(left=-1, holder=b"value%d" % next(values))
    claim = world.claim("jobs")
    world.run(60.0)
    assert claim.state is State.WAITING
    assert sorted(node for node, _ in warnings(world)) == ["n0", "n1", "n2"]
    assert all("call force_release('jobs', reason, only='value" in it for _, it in warnings(world))


def test_what_nodes_refuse_with_makes_no_long_message() -> None:
    """Each node answers with an error of 20 MB, which has control characters in it."""
    world = World(outage=1.0).connect()
    for node in world.nodes:
        node.answer = lambda asked: b"-ERR \x1b[2J" + b"no" * 10**7 + b"\r\n"
    claim = world.claim("jobs")
    world.run(5.0)
    error = claim.refusal
    assert type(error) is NoQuorum and len(error.causes) == 3
    assert str(error).replace("\n", "").isprintable() and len(str(error)) < 2000
    assert sum(len(str(it)) for it in world.events) < 2000


# ------------------------------------------------ several names


def test_several_names_are_one_batch_a_node_and_one_round_trip() -> None:
    world = World(telling=True).connect()
    joint = world.want("a", "b", "c")
    assert isinstance(joint, JointRequest)
    assert [node.writes[2:] for node in world.nodes] == [[world.nodes[0].writes[2]]] * 3
    assert world.nodes[0].writes[2].count(b"EVALSHA") == 4  # (the fourth is a note in the registry)
    world.run(2 * TRIP)
    assert (joint.state, joint.since, world.settled) == (State.HELD, START + 0.5 + 2 * TRIP, [joint])
    assert {it.token for it in joint.claims} == set(world.engine.live)
    assert len({it.ticket for it in joint.claims}) == 1
    assert [it.fence for it in joint.claims] == [joint.claims[0].ticket] * 3
    told = [(type(it), it.name, it.names, it.want) for it in world.events if isinstance(it, events.LockEvent)]
    ticket = joint.claims[0].ticket
    assert told == [(kind, "a,b,c", ("a", "b", "c"), ticket) for kind in (events.Attempt, events.Acquired)], "one for all"
    [acquired] = [it for it in world.events if isinstance(it, events.Acquired)]
    assert (acquired.fence, acquired.fences) == (ticket, dict.fromkeys("abc", ticket))
    world.end(joint)
    assert (joint.state, world.engine.live) == (State.OVER, {})
    world.run(2 * TRIP)
    assert [node.holders for node in world.nodes] == [{}, {}, {}]


def test_slots_are_asked_for_when_the_first_is_taken_and_given_back_when_one_is_held() -> None:
    world = World(telling=True).connect()
    slots = Slots("pool", 2, 1, 10.0, horizon=world.settings.horizon)

    def permit(**terms: Any) -> Any:
        want = world.wanted(slots, 10.0, **terms)
        world.engine.begin(want, world.now)
        world._send()
        world.run(6 * TRIP)
        return want

    one = permit()
    assert isinstance(one, JointRequest) and one.state is State.HELD and [it.token for it in one.claims] == list(world.engine.live)
    other = permit()
    assert other.state is State.HELD and {it.recipe.slot for it in (*one.claims, *other.claims)} == {0, 1}
    assert sorted(world.engine.live) == sorted(it.token for it in (*one.claims, *other.claims)), "what was too much is given back"
    refused = permit(patient=False)
    assert refused.state is State.OVER and len(world.engine.live) == 2
    waits = permit()
    assert waits.state is State.WAITING and len(world.engine.live) == 4, "it stands in both lines"
    world.end(one)
    world.run(4.0)  # (these nodes hand nothing on: it looks again after a third of its ttl)
    assert waits.state is State.HELD and waits.claims[0].recipe.slot == one.claims[0].recipe.slot and len(world.engine.live) == 2
    kinds = [word(it) for it in world.events if isinstance(it, events.LockEvent)]
    assert [kinds.count(it) for it in ("Attempt", "Acquired", "Refused", "released")] == [4, 3, 1, 1]
    assert isinstance(world.engine.want(Slots("one", 1, 1, 10.0, horizon=16_000), Timing(10.0), world.now), Claim)


def test_one_name_is_a_claim() -> None:
    world = World().connect()
    claim = world.want("a")
    world.run(1.0)
    assert isinstance(claim, Claim) and claim.state is State.HELD and world.settled == [claim]


def test_several_names_are_renewed_for_as_long_as_they_are_wanted() -> None:
    world = World(telling=True).connect()
    joint = world.want("a", "b", ttl=3.0)
    world.run(60.0)
    assert (joint.state, world.settled) == (State.HELD, [joint])
    assert joint.until > world.now
    assert world.engine.stats(world.now) == Stats(
        held=1,
        waiting=0,
        attempts=1,
        acquired=1,
        refused=0,
        released=0,
        lost=0,
        renewed=world.engine.stats(world.now).renewed,
        doubts=0,
        down=0,
        waited=near(2 * TRIP),
    )
    assert 59 <= world.engine.stats(world.now).renewed <= 61, "one for both names"


@pytest.mark.parametrize("busy_one", ["a", "b"])
def test_a_try_for_several_names_keeps_nothing_and_is_told_in_order(busy_one: str) -> None:
    world = World(telling=True).connect()
    busy(world, busy_one.encode())
    joint = world.want("a", "b", patient=False)
    world.run(1.0)
    assert (joint.state, joint.refusal.name, world.settled, world.engine.live) == (State.OVER, busy_one, [joint], {})
    told = [(type(it), it.name) for it in world.events if isinstance(it, events.LockEvent)]
    assert told == [(events.Attempt, "a,b"), (events.Refused, "a,b")]
    assert [node.holders for node in world.nodes] == [{busy_one.encode(): ANOTHER}] * 3


def test_what_is_refused_when_it_begins_was_attempted_before() -> None:
    world = World(telling=True)
    guarded(world, 0, 1, 2)
    world.connect()
    joint = world.want("a", "b", patient=False)
    assert (joint.state, world.settled, world.engine.live) == (State.OVER, [joint], {})
    assert [type(it) for it in world.events] == [events.Attempt, events.Refused]


@pytest.mark.parametrize("reason", ["forced", "expired", "max_hold"])
def test_the_loss_of_several_names_is_told_once(reason: str) -> None:
    world = World().connect()
    joint = world.want("a", "b", ttl=3.0, **({"max_hold": 1.0} if reason == "max_hold" else {}))
    world.run(0.5)
    world.settled.clear()
    if reason == "forced":
        for number in range(2):
            world.publishes(number, b"x %b 0 b" % joint.claims[1].token)
    elif reason == "expired":
        away(world, 0, 1)
    world.run(5.0)
    assert (joint.state, joint.reason, world.settled, world.engine.live) == (State.LOST, reason, [joint], {})
    assert [(it.name, it.reason) for it in world.events if word(it) == "lost"] == [("a,b", reason)]
    world.end(joint)
    assert world.engine.next_wake() == inf or joint.done


def test_an_extension_of_several_names_is_told_when_all_have_it_and_a_loss_at_once() -> None:
    world = World().connect()
    joint = world.want("a", "b")
    world.run(0.1)
    world.settled.clear()
    assert world.engine.extend(joint, 20.0, world.now)
    world.run(0.1)
    assert (world.settled, joint.setback) == ([joint], None)
    assert joint.until == near(world.now + 20.0 - 0.3, abs=0.2)
    world.settled.clear()
    for node in world.nodes:
        node.mute = True
    assert world.engine.extend(joint, 20.0, world.now)
    world.run(0.1)
    for number in range(2):
        world.publishes(number, b"x %b 0 a" % joint.claims[0].token)
    assert (joint.state, world.settled) == (State.LOST, [joint])
    assert not world.engine.extend(joint, 20.0, world.now)


def test_a_release_of_several_names_may_be_waited_for() -> None:
    world = World(telling=True).connect()
    joint = world.want("a", "b")
    world.run(0.1)
    world.settled.clear()
    world.end(joint, heard=True)
    assert (world.settled, joint.done) == ([], False)
    world.run(2 * TRIP)
    assert (world.settled, joint.freed, joint.done, world.engine.live) == ([joint], 2, True, {})
    assert [it.name for it in world.events if word(it) == "released"] == ["a,b"]


def test_closing_ends_several_names_at_once() -> None:
    world = World(telling=True).connect()
    busy(world)
    held, waits = world.want("b", "c"), world.want("a", "d")
    world.run(0.1)
    world.settled.clear()
    world.engine.close(world.now)
    world.run(0.0)
    assert (held.state, held.reason, waits.state, waits.refusal) == (State.LOST, "closed", State.OVER, None)
    assert sorted(map(id, world.settled)) == sorted(map(id, [held, waits])) and world.engine.live == {}


def test_several_names_wait_for_the_one_that_is_busy() -> None:
    world = World().connect()
    busy(world, b"b")
    joint = world.want("a", "b", ttl=3.0)
    world.run(9.5)
    assert (joint.state, world.settled, world.engine.stats(world.now).waiting) == (State.WAITING, [], 1)
    for number in range(2):
        world.nodes[number].holders[b"b"] = joint.claims[1].token
        world.publishes(number, b"g %b %d b" % (joint.claims[1].token, joint.claims[1].ticket + 5))
    assert (joint.state, world.settled) == (State.HELD, [joint])
    world.run(10.0)
    assert joint.state is State.HELD


# ------------------------------------------------ queries


def test_a_round_is_one_question_to_each_node() -> None:
    world = World().connect()
    query = world.consult(0, 1, 2)
    world.run(2 * TRIP)
    assert (world.found, query.sufficient, query.answers, query.causes) == ([query], True, dict.fromkeys(range(3), b"OK"), {})
    assert [len(node.of("PING")) for node in world.nodes] == [1, 1, 1]
    world.run(50.0)
    assert (world.found, world.engine.queries, timers(world), rests(world)) == ([query], {}, 0, True)


def test_a_round_before_anything_is_connected_waits_for_it() -> None:
    world = World()
    query = world.consult(0, 2)
    world.run(5 * TRIP)
    assert (world.found, set(query.answers)) == ([query], {0, 2})


def test_a_round_is_over_after_node_timeout_at_the_latest() -> None:
    world = World(node_timeout=0.7).connect()
    world.nodes[1].mute = True
    began = world.now
    query = world.consult(0, 1, 2)
    world.run(0.69)
    assert world.found == []
    world.run(0.02)
    assert (world.found, set(query.answers)) == ([query], {0, 2})
    assert "silent" in str(query.causes[1]) or "no answer yet" in str(query.causes[1])
    assert query.began == began


def test_a_round_does_not_wait_for_nodes_that_are_away_or_go_away() -> None:
    world = World(4, node_timeout=1.0).connect()
    world.run(60.0)
    away(world, 0)
    world.run(0.1)
    world.nodes[1].mute = world.nodes[3].mute = True
    query = world.consult(0, 1, 2, 3)
    world.run(0.1)
    assert world.found == []
    away(world, 1)
    world.nodes[3].mute = False
    world.cut(3)  # it is back at once, and asked again
    world.run(0.2)
    assert (world.found, set(query.answers), set(query.causes)) == ([query], {2, 3}, {0, 1})
    assert len(world.nodes[3].of("PING")) == 2


def test_whoever_asks_may_have_enough() -> None:
    world = World().connect()
    world.nodes[2].mute = True
    query = world.consult(0, 1, 2, enough=lambda answers: len(answers) > 1)
    world.run(2 * TRIP)
    assert (world.found, set(query.answers)) == ([query], {0, 1})
    nobody = world.consult()
    assert (world.found, nobody.over) == ([query, nobody], True)


def test_callers_who_ask_the_same_share_a_question_that_goes_out_after_they_came() -> None:
    world = World().connect()
    first = world.consult(0, 1, 2, share="a")
    second = world.consult(0, 1, 2, share="a")
    assert second is not first, "what is under way may have been answered before the second caller came"
    assert world.consult(0, 1, 2, share="a") is second
    other, own = world.consult(0, 1, 2, share="b"), world.consult(0, 1, 2)
    assert len({first, second, other, own}) == 4
    assert [len(node.of("PING")) for node in world.nodes] == [0, 0, 0]
    world.run(TRIP)
    assert [len(node.of("PING")) for node in world.nodes] == [3, 3, 3], "the first, and the two others"
    world.run(TRIP)
    assert (first.over, second.over, other.over, own.over) == (True, False, True, True)
    third = world.consult(0, 1, 2, share="a")
    assert third is not second
    world.run(2 * TRIP)
    assert (second.over, third.over) == (True, False)
    assert second.began >= first.ended
    world.run(2 * TRIP)
    assert third.over
    assert [len(node.of("PING")) for node in world.nodes] == [5, 5, 5]
    assert world.found.count(second) == 1
    world.run(80.0)
    assert (world.engine._shared, world.engine.queries, timers(world)) == ({}, {}, 0)


def test_a_shared_question_has_its_own_time() -> None:
    """It is over after `node_timeout` at the latest, counted from when it goes out."""
    world = World(node_timeout=0.7).connect()
    world.nodes[1].mute = True
    first = world.consult(0, 1, 2, share="a")
    world.run(0.5)
    second = world.consult(0, 1, 2, share="a")
    world.run(0.21)
    assert first.over
    assert second.began == first.ended
    assert second.deadline == second.began + 0.7


def test_a_shared_question_that_is_over_at_once_is_in_nobody_s_way() -> None:
    world = World().connect()
    for _ in range(2):
        nobody = world.consult(share="a")
        assert nobody.over
    assert world.engine._shared == {}


# ------------------------------------------------ holders of another kind


def test_the_release_of_a_foreign_holder_is_noticed_at_once() -> None:
    world = World().connect()
    for node in world.nodes:
        node.holders[b"a"] = b"my_random_value"
    claim = world.claim(ttl=12.0)
    world.run(0.1)
    for node in world.nodes:
        assert node.writes[-1].startswith(b"*3\r\n$6\r\nCLIENT\r\n$7\r\nCACHING\r\n$3\r\nYES\r\n*13\r\n$7\r\nEVALSHA\r\n")
        assert [it.word for it in node.asked[-3:]] == ["request", "CLIENT", "request"]
    for node in world.nodes[:2]:
        del node.holders[b"a"]
    told = world.now
    for number in range(2):
        world.says(number, b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n")
    world.run(0.1)
    assert (claim.state, claim.since) == (State.HELD, told + 2 * TRIP)
    assert [len(node.of("request")) for node in world.nodes] == [3, 3, 2]


def test_a_thousand_leases_ask_a_flushed_node_in_one_write() -> None:
    world = World().connect()
    node, leases = world.nodes[1], [world.claim(f"lock{it}", ttl=30.0) for it in range(1000)]
    reader = world.claim("reader")  # (and one that waits: others hear of it first)
    busy(world, b"waited for")
    waiter = world.claim("waited for", ttl=30.0)
    world.run(1.0)
    assert {it.state for it in leases} == {State.HELD} and waiter.state is State.WAITING
    for it in leases:
        del node.holders[it.recipe.name]
    del node.holders[b"reader"], node.holders[b"waited for"]
    before, writes = len(node.of("request")), len(node.writes)
    for _ in range(5):  # flush upon flush
        world.says(1, b">2\r\n$10\r\ninvalidate\r\n_\r\n")
    world.run(0.1)
    assert len(node.of("request")) - before == 1001
    assert len(node.writes) - writes == 1
    assert {it.state for it in (*leases, reader)} == {State.HELD} and waiter.state is State.WAITING
    assert all(node.holders[it.recipe.name] == it.token for it in leases)


@pytest.mark.parametrize(
    "keys, asked",
    [
        (b"*1\r\n$1\r\na\r\n", 3),
        (b"*2\r\n$1\r\nb\r\n$1\r\na\r\n", 3),
        (b"_\r\n", 3),
        (b"*1\r\n$1\r\nb\r\n", 2),
        (b"*0\r\n", 2),
    ],
)
def test_an_invalidation_is_for_those_who_watch_that_key(keys: bytes, asked: int) -> None:
    """And one without keys, after FLUSHALL, for all."""
    world = World().connect()
    world.nodes[0].answer = lambda asked: denied(holder=b"my_random_value")
    busy(world, numbers=(1, 2))
    claim = world.claim()
    world.claim("elsewhere")
    world.run(0.1)
    world.says(0, b">2\r\n$10\r\ninvalidate\r\n" + keys)
    world.run(0.1)
    assert len([it for it in world.nodes[0].of("request") if it.name == b"a"]) == asked
    assert (claim.state, world.nodes[0].connection, lines(world)) == (State.WAITING, 1, ["up"] * 3)


def test_a_server_that_tracks_nothing_is_asked_by_the_timer() -> None:
    world = World(1).connect()
    node = world.nodes[0]
    answers = node._answers
    node._answers = lambda words, now: b"-NOPERM no\r\n" if words[:2] == [b"CLIENT", b"CACHING"] else answers(words, now)  # type: ignore[method-assign]  # (a fake in its place)
    node.answer = lambda asked: denied(left=500, holder=b"my_random_value")
    claim = world.claim()
    world.run(0.3)
    node.answer = node.first_come
    world.run(0.3)
    assert (claim.state, node.connection) == (State.HELD, 1)


# ------------------------------------------------ timers


def test_a_claim_that_waits_asks_again_every_third_of_its_lease() -> None:
    world = World(in_step=True).connect()
    busy(world)
    claim = world.claim(ttl=3.0)
    world.run(3.5)
    assert [it.at - START - 0.5 - TRIP for it in world.nodes[0].of("request")] == near([0.0, 1.0, 2.0, 3.0])
    assert claim.state is State.WAITING


def test_the_first_in_line_asks_again_when_the_holders_key_has_run_out() -> None:
    world = World().connect()
    for number, node in enumerate(world.nodes):
        node.answer = lambda asked, number=number: denied(left=500, place=number)  # type: ignore[misc]  # (mypy knows no type of a default in a loop)
    world.claim()
    world.run(1.0)
    first, second = world.nodes[0].of("request")
    assert second.at - first.at == near(0.501 + 2 * TRIP, abs=1e-6)
    assert [len(node.of("request")) for node in world.nodes[1:]] == [1, 1]  # others wait for their turn


def test_a_lease_is_renewed_every_third_of_it() -> None:
    world = World(in_step=True).connect()
    claim = world.claim(ttl=3.0)
    world.run(3.5)
    drift = 3.0 / 100 + 0.002
    assert [it.at - START - 0.5 - TRIP for it in world.nodes[0].of("request")] == near(
        [0.0, *[k * 1.0 - drift for k in (1, 2, 3)]], abs=0.1
    )
    assert claim.state is State.HELD and claim.until > world.now


def test_renewals_that_are_due_soon_leave_together_with_the_one_that_is_due() -> None:
    world = World(in_step=True).connect()
    began = world.now
    for name, pause in (("a", 0.05), ("b", 0.06), ("c", 0.2), ("d", 0.0)):
        world.claim(name)
        world.run(pause)
    world.run(10.0)
    asked = [(it.name.decode(), round(it.at - TRIP - began, 3)) for it in world.nodes[0].of("request")][4:]
    due = [10 / 3 - 0.102 + turn * 10 / 3 for turn in range(3)]  # counted back from the deadline; then every third of it
    for turn, at in enumerate(due):
        then = [("a", near(at, abs=1e-3)), ("b", near(at, abs=1e-3)), ("c", near(at + 0.11, abs=1e-3)), ("d", near(at + 0.31, abs=1e-3))]
        assert asked[4 * turn : 4 * turn + 4] == then
    assert len({at for _, at in asked}) == 3 * 3  # in one turn each, hence in one write


def busiest(moments: Sequence[float], begin: float, end: float) -> float:
    """How many requests the busiest tenth of a second had, as a multiple of the mean."""
    tenths = [0] * round((end - begin) * 10)
    for at in moments:
        if begin <= at < end:
            tenths[int((at - begin) * 10)] += 1
    assert sum(tenths) > len(tenths), "hardly anybody has asked"
    return max(tenths) / (sum(tenths) / len(tenths))


@pytest.mark.parametrize("held", [True, False], ids=["leases", "waiters"])
def test_what_begins_together_does_not_ask_together_for_ever(held: bool) -> None:
    # Rule C21.
    world = World(3).connect()
    if not held:
        for node in world.nodes:
            node.answer = lambda asked: denied(left=60_000, place=5)
    began = world.now
    claims = [world.claim(str(i), ttl=9.0) for i in range(1000)]
    world.run(15.0)
    assert {it.state for it in claims} == {State.HELD if held else State.WAITING}
    moments = [it.at - began for it in world.nodes[0].of("request")]
    assert busiest(moments, 1.5, 2.9) < 2.0  # the first time in the later half of the period
    assert busiest(moments, 6.0, 15.0) < 2.0  # and then in all of it
    each = Counter(it.name for it in world.nodes[0].of("request"))
    assert min(each.values()) >= 5 and max(each.values()) <= 7


def test_one_turn_wakes_so_many_claims_and_the_next_one_comes_at_once() -> None:
    world = World(1, in_step=True).connect()
    claims = [world.claim(str(i), ttl=9.0) for i in range(TURN * 2 + 10)]
    world.run(2.8)
    world.now += 0.5
    owed = [0]
    for _ in range(3):
        world.engine.tick(world.now)
        owed.append(len(world.engine.connections[0].ledger))
        if owed[-1] < len(claims):
            assert world.engine.next_wake() == world.now, "what was left is not late"
    assert [after - before for before, after in pairwise(owed)] == [TURN, TURN, 10]
    assert world.engine.next_wake() > world.now
    world._send()
    world.run(0.1)
    assert {it.state for it in claims} == {State.HELD}


def test_what_else_is_due_soon_has_its_own_time() -> None:
    world = World(in_step=True).connect()
    busy(world, b"b")
    held, waiting = world.claim("a"), world.claim("b", deadline=world.now + 3.3)
    query = (world.run(3.2), world.consult(0, 1, 2))[1]
    for node in world.nodes:
        node.mute = True
    world.run(0.09)  # its renewal was in these
    assert (held.state, waiting.state, query.over) == (State.HELD, State.WAITING, False)
    world.run(0.02)
    assert (waiting.state, query.over) == (State.OVER, False)
    world.run(1.0)
    assert query.over


def test_waiting_ends_at_its_deadline() -> None:
    world = World().connect()
    busy(world)
    claim = world.claim(deadline=world.now + 0.4)
    world.run(0.39)
    assert claim.state is State.WAITING
    world.run(0.01)
    assert (claim.state, type(claim.refusal), world.settled) == (State.OVER, LockBusy, [claim])


def ticks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When claims are ticked from now on, in seconds since the test's world was connected."""
    woken: list[float] = []
    tick = Claim.tick

    def noted(claim: Claim, now: float) -> bool:
        woken.append(round(now - START - 0.5, 2))
        return tick(claim, now)

    monkeypatch.setattr(Claim, "tick", noted)
    return woken


def test_a_timer_that_comes_before_the_claim_wants_it_wakes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    world, woken = World(in_step=True, node_timeout=0.5).connect(), ticks(monkeypatch)
    busy(world)
    claim = world.claim(deadline=world.now + 2.0)
    world.run(1.0)
    for number in range(3):
        world.publishes(number, b"g %b %d a" % (claim.token, claim.ticket + 5))
    world.run(2.2)
    assert (claim.state, woken) == (State.HELD, [])  # the deadline of its waiting has passed meanwhile
    world.run(0.1)
    assert woken == [3.23]  # its first renewal


def test_a_timer_that_an_earlier_one_has_taken_the_place_of_wakes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    world, woken = World(in_step=True).connect(), ticks(monkeypatch)
    left = {START + 0.5 + TRIP: 500}  # the first time half a second, then long
    for node in world.nodes:
        node.answer = lambda asked: denied(left=left.get(asked.at, 60_000))
    claim = world.claim()
    world.run(0.4)
    assert timers(world) == 3  # its heartbeat's and the signature's, which nobody needs, and the earlier one
    world.run(3.5)
    assert woken == [0.5, 3.33]  # once
    assert (claim.state, timers(world)) == (State.WAITING, 1)


def test_the_heap_does_not_grow_with_leases_that_are_over() -> None:
    world = World(1).connect()
    for _ in range(2000):
        claim = world.claim()
        world.run(2 * TRIP)
        assert claim.state is State.HELD
        world.end(claim)
    assert timers(world) <= 2 * 101
    held = world.claim("held")
    world.run(9.0)
    assert timers(world) < 110 and held.state is State.HELD
    world.run(11.0)
    assert (held.state, timers(world)) == (State.HELD, 1)  # all the others have come, and gone


@pytest.mark.parametrize("needed", [0, 150])
def test_timers_that_nobody_needs_are_swept_out_when_they_are_a_hundred_and_more_than_the_others(needed: int) -> None:
    world = World(1).connect()
    kept = [world.claim(f"kept {number}", ttl=10.0 + number % 7) for number in range(needed)]
    world.run(2 * TRIP)
    most = 0
    for number in range(400):
        claim = world.claim(ttl=10.0 + number % 5)
        world.run(2 * TRIP)
        world.end(claim)
        unneeded = timers(world) - needed
        assert unneeded <= 100 or unneeded * 2 <= timers(world)
        most = max(most, unneeded)
    assert most >= max(100, needed) - 2  # not sooner: each sweep looks at all
    world.run(50.0)
    assert all(it.state is State.HELD and it.until > world.now for it in kept)
    assert timers(world) == needed


def test_a_claim_needs_one_timer() -> None:
    world = World(1).connect()
    claim = world.claim(ttl=0.3)
    world.run(50.0)
    assert (claim.state, timers(world)) == (State.HELD, 1)


# ------------------------------------------------ patience


def test_the_spare_slots_of_a_short_semaphore_count_as_claims() -> None:
    world = World().connect()
    slots = Slots("s", 2, 1, 0.3, horizon=world.settings.horizon)
    for recipe in slots:
        busy(world, recipe.name)
    want = world.engine.want(slots, Timing(0.3), world.now)
    world.engine.begin(want, world.now)
    world._send()
    assert len(world.engine.live) == 1
    world.run(0.05)
    assert len(world.engine.live) == 2 and world.engine.upkeep.patience == near(0.1)
    world.end(want)
    assert world.engine.live == {} and world.engine.upkeep.patience == 1.0


@pytest.mark.parametrize("names", [1, 2])
def test_a_ttl_whose_third_is_shorter_than_the_round_trip_is_refused_in_words(monkeypatch: pytest.MonkeyPatch, names: int) -> None:
    world = World(ttl=3.0)
    slow(world, 0.01, monkeypatch)
    world.connect()
    said = [len(it.asked) for it in world.nodes]
    claim = world.want(*"ab"[:names], ttl=0.05)
    words = (
        "ttl=0.05 is too short for these nodes: answers from a majority of them take 20 ms, and each has to come within a third of the "
        "ttl. The shortest ttl that can work is 0.06 seconds; choose several times that"
    )
    assert (type(claim.refusal), message_of(claim.refusal)) == (ConfigError, words)
    assert world.settled == [claim] and world.engine.live == {}
    refused = [it for it in world.events if isinstance(it, events.Refused)]
    assert refused == [] and world.engine.stats(world.now).refused == 1
    assert world.engine.upkeep.patience == 1.0, "it leaves nothing behind"
    assert [len(it.asked) for it in world.nodes] == said, "nothing was asked"
    later = world.claim("later")
    fits = world.claim("fits", ttl=0.0601)
    world.run(0.021)
    assert (later.state, fits.state, lines(world)) == (State.HELD, State.HELD, ["up"] * 3)


def test_a_first_claim_is_refused_when_the_round_trip_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(ttl=0.05, outage=10.0)
    slow(world, 0.01, monkeypatch)
    claim, other = world.claim(ttl=0.05), world.claim("b", ttl=10.0)
    world.run(1.0)
    assert type(claim.refusal) is ConfigError and "The shortest ttl that can work is 0.06 seconds" in str(claim.refusal)
    assert other.state is State.HELD and lines(world) == ["up"] * 3
    assert not any(it.of("request")[0].ttl == 50 for it in world.nodes), "no node was asked for what cannot be had"


def test_a_short_claim_that_fits_is_served_when_its_nodes_come_up() -> None:
    world = World()
    claim = world.claim(ttl=0.3)
    world.run(0.1)
    assert claim.state is State.HELD and world.engine.upkeep.patience == near(0.1)


def test_a_minority_that_is_slow_refuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    original = world.nodes[2].reads
    world.connect()
    slow(world, 0.01, monkeypatch)
    world.cut(2)
    world.run(0.5)
    assert original is not None and world.engine.connections[2].trip == near(0.02)
    claim = world.claim(ttl=0.05)
    assert claim.refusal is None
    slow(world, TRIP, monkeypatch)
    world.run(0.02)
    assert claim.state is State.HELD
    slow(world, 0.01, monkeypatch)
    world.cut(1)
    world.run(0.5)
    assert (claim.state, claim.refusal) == (State.LOST, None), "who holds it, holds it as long as it lasts"


# ------------------------------------------------ what callers want


def test_an_extension_is_confirmed() -> None:
    world = World().connect()
    claim = world.claim(ttl=2.0)
    world.run(0.1)
    world.settled.clear()
    assert world.engine.extend(claim, 20.0, world.now)
    began = world.now
    world.run(0.1)
    assert [it.ttl for it in world.nodes[0].of("request")] == [2000, 20_000]
    assert world.settled == [claim] and claim.refusal is None
    assert claim.until == near(began + 20.0 - 0.202)
    world.end(claim)
    assert not world.engine.extend(claim, 20.0, world.now)


def test_an_extension_that_finds_the_lease_run_out_tells_so() -> None:
    world = World().connect()
    claim = world.claim(ttl=2.0)
    world.run(0.1)
    world.settled.clear()
    world.now += 5.0
    assert not world.engine.extend(claim, 2.0, world.now)
    world.run(0.0)
    assert (claim.state, claim.reason, world.settled) == (State.LOST, "slow", [claim])
    assert [word(it) for it in world.events] == ["lost"]


@pytest.mark.parametrize("heard", [True, False])
def test_a_release_may_be_waited_for(heard: bool) -> None:
    world = World().connect()
    claim = world.claim()
    world.run(0.1)
    world.settled.clear()
    world.nodes[0].mute = True
    world.end(claim, heard)
    assert (claim.done, world.settled, world.engine.live) == ((False, [], {claim.token: claim}) if heard else (True, [], {}))
    world.run(0.1)
    assert (claim.done, world.settled) == (True, [claim] if heard else [])
    assert claim.freed == (2 if heard else 0)
    assert world.engine.live == {}


def test_a_release_that_cannot_be_confirmed_is_told_when_that_is_known() -> None:
    world = World(node_timeout=0.5).connect()
    claim = world.claim()
    world.run(0.1)
    world.settled.clear()
    for number in (0, 1):
        world.nodes[number].mute = True
    world.end(claim, heard=True)
    world.run(0.45)
    assert (claim.done, world.settled, world.engine.owing) == (False, [], True)
    world.run(0.1)
    assert (claim.done, claim.freed, world.settled, world.engine.live) == (True, 1, [claim], {})


def test_a_timer_of_a_claim_that_only_waits_for_its_release_to_be_confirmed_does_nothing() -> None:
    world = World().connect()
    claim = world.claim()
    world.run(3.0)
    for node in world.nodes:
        node.mute = True
    asked = [len(node.asked) for node in world.nodes]
    world.end(claim, heard=True)
    world.settled.clear()
    world.run(0.9)  # its renewal would have been in these
    assert (claim.done, world.settled) == (False, [])
    assert [len(node.asked) for node in world.nodes] == [it + 1 for it in asked]  # the release


def test_closing_ends_everything() -> None:
    world = World(telling=True).connect()
    held = world.claim("held")
    busy(world)
    waits = world.claim()
    world.run(0.1)
    world.settled.clear()
    world.events.clear()
    assert not world.engine.owing
    world.engine.close(world.now)
    world.run(0.0)
    assert (held.state, held.reason, waits.state, waits.refusal) == (State.LOST, "closed", State.OVER, None)
    assert set(world.settled) == {held, waits} and world.engine.live == {}
    assert world.engine.owing  # until the nodes have confirmed that they know
    assert [(word(it), it.reason) for it in world.events if word(it) == "lost"] == [("lost", "closed")]
    assert [(it.name, it.error) for it in world.events if isinstance(it, events.Refused)] == [("a", None)]
    assert len(world.events) == 2
    world.run(2 * TRIP)
    assert not world.engine.owing
    assert world.nodes[0].holders == {b"a": ANOTHER}
    assert {it.token for it in world.nodes[0].of("release")} == {held.token, waits.token}
    world.engine.close(world.now)  # idempotent
    assert not world.engine.owing


def test_what_stays_is_not_released_by_closing() -> None:
    world = World(telling=True).connect()
    stays, goes = world.claim("stays"), world.claim("goes")
    world.run(0.1)
    stays.stay()
    world.events.clear()
    world.engine.close(world.now)
    world.run(0.1)
    assert (stays.state, stays.reason, goes.reason, world.engine.live) == (State.LOST, "closed", "closed", {})
    assert {it.token for node in world.nodes for it in node.of("release")} == {goes.token}
    told = {it.name: word(it) for it in world.events if isinstance(it, events.LeaseEvent)}
    assert told == {"stays": "left", "goes": "lost"}
    assert world.nodes[0].holders == {b"stays": stays.token}


def closing(nodes: int, *mute: int) -> World:
    """A client of some nodes that is being closed while it holds a lock. Some say nothing any more."""
    world = World(nodes).connect()
    world.claim()
    world.run(0.1)
    for node in mute:
        world.nodes[node].mute = True
    world.engine.close(world.now)
    return world


def test_the_end_waits_for_nobody_when_all_have_answered() -> None:
    world = closing(5)
    timeout = world.engine.settings.node_timeout
    assert world.engine.farewell(world.now) == world.now + timeout
    world.run(2 * TRIP)
    assert world.engine.farewell(world.now) == world.now


def test_the_end_waits_a_moment_for_the_others_when_a_majority_has_answered() -> None:
    world = closing(5, 3, 4)
    began = world.now
    world.run(2 * TRIP)
    assert world.engine.owing
    ends = world.engine.farewell(world.now)
    assert ends == world.now + GRACE < began + world.engine.settings.node_timeout
    world.run(GRACE / 2)
    assert world.engine.farewell(world.now) == ends, "and no longer, however often that is asked"


def test_the_end_waits_for_a_majority() -> None:
    world = closing(5, 2, 3, 4)
    ends = world.now + world.engine.settings.node_timeout
    for _ in range(3):
        world.run(2 * TRIP)
        assert world.engine.farewell(world.now) == ends


def test_a_node_that_is_away_confirms_nothing() -> None:
    world = closing(5, 4)
    ends = world.now + world.engine.settings.node_timeout
    for node in (1, 2, 3):
        world.cut(node, dialled="refuses")
    world.run(2 * TRIP)
    assert world.engine.farewell(world.now) == ends, "one has answered, one is silent, and three are away"


def test_closing_ends_a_lease_that_has_just_run_out() -> None:
    world = World().connect()
    claim = world.claim()
    world.run(1.0)
    world.now += 60.0
    world.engine.close(world.now)
    assert (claim.state, claim.reason, world.engine.live) == (State.LOST, "slow", {})


def test_closing_tells_of_losses_only_unless_somebody_listens() -> None:
    world = World().connect()
    busy(world)
    world.claim("held")
    world.claim()
    world.run(0.1)
    world.engine.close(world.now)
    world.run(0.1)
    assert [word(it) for it in world.events] == ["lost"]


def test_closing_says_nothing_of_a_claim_that_has_ended() -> None:
    world = World(telling=True).connect()
    claim = world.claim()
    world.run(0.1)
    for node in world.nodes:
        node.mute = True
    world.end(claim, heard=True)
    world.events.clear()
    world.engine.close(world.now)
    world.run(0.0)
    assert world.events == []


def test_who_owes_nothing_may_be_closed() -> None:
    world = World()
    assert not world.engine.owing  # nobody is connected to
    world.run(TRIP)
    assert not world.engine.owing  # a greeting is no answer that anybody waits for
    world.run(0.5)
    claim = world.claim()
    assert world.engine.owing
    for number in range(3):
        world.cut(number, dialled="refuses")
    assert not world.engine.owing  # nobody is left who could answer
    assert claim.state is State.WAITING


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


# ------------------------------------------------ scripts that went away


def test_a_node_that_forgot_the_scripts_is_connected_to_anew() -> None:
    world = World().connect()
    world.nodes[0].answer = lambda asked: b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
    claim = world.claim()
    world.run(2 * TRIP)
    assert not world.nodes[0].linked and lines(world)[0] != "up"
    assert claim.state is State.HELD
    world.nodes[0].answer = world.nodes[0].first_come
    world.run(1.0)
    assert lines(world)[0] == "up" and world.nodes[0].connection == 2
    assert world.nodes[0].writes[1].startswith(SCRIPTS)


def test_a_try_and_a_release_that_meet_a_node_without_the_scripts_are_said_again_to_it() -> None:
    """Rules T5, T6 and Q15: after a SCRIPT FLUSH a try ended with NoQuorum, and a release left the lock taken."""
    world = World().connect()
    away(world, 2)
    world.run(1.1)
    world.nodes[1].scripts.clear()
    claim = world.claim(patient=False)
    world.run(1.1)
    assert (claim.state, claim.refusal) == (State.HELD, None)
    world.nodes[1].scripts.clear()
    world.end(claim)
    world.run(0.1)
    assert [(node.holders, node.connection) for node in world.nodes[:2]] == [({}, 1), ({}, 3)]


def test_a_node_that_says_rubbish_is_hung_up_and_the_others_go_on() -> None:
    world = World().connect()
    claim = world.claim()
    world.says(1, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert not world.nodes[1].linked
    assert str(world.engine.health.status(world.now)[1].cause).startswith("it does not speak the servers' protocol")
    world.run(0.1)
    assert claim.state is State.HELD


@pytest.mark.parametrize("reply", [b":1\r\n", b"$16\r\n0000000000000001\r\n", granted(1)])
def test_a_grant_below_the_proposed_fence_is_out_of_step_and_ends_the_connection(reply: bytes) -> None:
    """Rules F1 and T5: two such answers made it held, with fence 1."""
    world = World().connect()
    for node in world.nodes[:2]:
        node.answer = lambda asked: reply
    claim = world.claim()
    world.run(2 * TRIP)
    assert claim.state is State.WAITING
    assert [node.linked for node in world.nodes] == [False, False, True]
    assert str(world.engine.health.status(world.now)[0].cause).startswith("it answers another request")


ANSWERS = {
    "no fence": b":0\r\n",
    "a word that is no fence": b"$2\r\nOK\r\n",
    "an empty list": b"*0\r\n",
    "too short a list": b"*2\r\n:5\r\n:0\r\n",
    "a word": b"*3\r\n+x\r\n:0\r\n:0\r\n",
    "a list": b"*3\r\n*0\r\n:0\r\n:0\r\n",
    "nothing": b"*3\r\n_\r\n:0\r\n:0\r\n",
    "an error inside": b"*3\r\n-ERR x\r\n:0\r\n:0\r\n",
    "an infinity": b"*3\r\n,inf\r\n:0\r\n:0\r\n",
    "a fence below nothing": b"*3\r\n:-5\r\n:0\r\n:0\r\n",
    "a fence that Lua cannot hold": b"*3\r\n:9007199254740992\r\n:0\r\n:0\r\n",
    "no PTTL": b"*4\r\n:0\r\n_\r\n:0\r\n_\r\n",
    "a PTTL that is none": b"*4\r\n:0\r\n+x\r\n:0\r\n_\r\n",
    "a holder that is none": b"*4\r\n:0\r\n:5\r\n:0\r\n:7\r\n",
}


@pytest.mark.parametrize("which", ANSWERS)
def test_one_node_that_answers_rubbish_takes_nothing_from_the_others(which: str) -> None:
    world = World(telling=True).connect()
    world.nodes[1].answer = lambda asked: ANSWERS[which]
    claim = world.claim()
    world.run(5.0)
    assert (claim.state, claim.fence, claim.counting(world.now)) == (State.HELD, claim.ticket, 2)
    tries = world.claim("b", patient=False)
    world.run(1.0)
    assert tries.state is State.HELD


@pytest.mark.parametrize("inbox, pause", [(b"0" * 32, 0.64), (b"f" * 32, 1.28), (b"8000" + b"0" * 28, 0.96)])
def test_a_node_that_refuses_us_is_down_and_dialled_ever_more_rarely_each_client_at_its_own_pace(inbox: bytes, pause: float) -> None:
    world = World(inbox=inbox)
    world.nodes[0].reads = lambda data, now: b"-WRONGPASS invalid username-password pair\r\n" * 9  # type: ignore[method-assign]  # (a fake in its place)
    assert world.engine.connections[0].manners.jitter == int(inbox[:4], 16) / 65535  # from 0 to 1
    world.run(10.0)
    before = world.nodes[0].connection
    world.run(50.0)
    assert type(world.engine.health.status(world.now)[0].cause) is ConfigError
    assert world.nodes[0].connection - before == near(50.0 / pause, abs=1.5)
    assert [word(it) for it in world.events].count("down") == 1


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


def test_the_driver_may_ask_for_patience_with_what_it_could_not_send() -> None:
    world = World().connect()
    world.nodes[1].mute = True
    world.claim()
    world.run(0.5)
    world.engine.upkeep.excuse(world.now, 0.5)
    world.run(world.engine.node_set.patience - 0.1)
    assert lines(world) == ["up"] * 3
    world.run(0.2)
    assert lines(world)[1] != "up"


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


def test_whoever_does_not_hold_it_says_nothing() -> None:
    world = World().connect()
    busy(world)
    claim = speaks(world)
    world.run(20)
    assert claim.state is State.WAITING
    world.end(claim)
    world.run(1)
    assert {it for it, _ in said(world)} == {"request", "release"}


def test_a_lease_that_is_lost_is_over_for_everybody() -> None:
    world = World().connect()
    claim = speaks(world, max_hold=5.0)
    world.run(6)
    assert (claim.state, claim.reason) == (State.LOST, "max_hold")
    assert world.nodes[2].writes[-1].startswith(statement(claim.token, claim.fence, 0) + b"*9\r\n")


def test_a_node_that_cannot_be_spoken_to_hears_it_with_a_later_renewal() -> None:
    world = World().connect()
    claim = speaks(world)
    world.run(1)
    away(world, 1)
    world.run(4)
    world.nodes[1].dialled = "accepts"
    world.run(4)
    assert [it for it, _ in said(world, 1)] == ["request", "SAYS", "SAYS", "request"]
    assert claim.state is State.HELD


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


# ------------------------------------------------ nodes that answer and refuse


def test_nodes_that_refuse_writes_are_known_within_one_answer_and_until_they_accept_one() -> None:
    world = World().connect()
    for node in world.nodes:
        node.refusal = FULL
    claim = world.claim(patient=False)
    world.run(2 * TRIP)
    assert type(claim.refusal) is NoQuorum and states(world) == ["refusing"] * 3
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
    assert claim.state is State.HELD and states(world) == ["up", "up", "refusing"] and world.engine.health.verdict(0.0, world.now) is None
    world.nodes[2].refusal = b""
    world.run(1 + 2 * TRIP)
    assert states(world) == ["up"] * 3
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
    assert states(world) == ["up", "refusing", "up"] and claim.state is State.HELD, "it is asked again before the next heartbeat"


def test_a_probe_that_a_caller_has_asked_for_is_judged_too() -> None:
    world = World().connect()
    query = world.engine.consult(dict.fromkeys(range(3), world.engine.upkeep._manners.probe), world.now)
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
    assert world.engine.next_wake() <= world.now + ttl / 3
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
