"""The engine: claims and connections joined. What is said to which node and when, what is made of the answers, and what observers hear.

Everything runs in `World`: virtual time, real connections, real bytes, and nodes that say what a test wants.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations, count, pairwise, permutations
from math import inf
from typing import Any

import pytest
from engine import world as world_
from engine.world import ANOTHER, CEDE, INBOX, SCRIPTS, START, TRIP, TRY, WAIT, WALL, World, denied, granted, run_id, usual
from proof import patches
from proof.books import word

from holdfast import events
from holdfast.engine.engine import CHORES, GRACE, REST, RESTING, TURN, Engine, Work
from holdfast.engine.ready import Ready
from holdfast.engine.recorder import Stats
from holdfast.engine.settings import DEFAULT_GUARD
from holdfast.engine.status import NodeStatus
from holdfast.errors import ConfigError, LockBusy, NoQuorum, Overtaken, message_of
from holdfast.protocol.claim import Claim, State
from holdfast.protocol.exclusive import Exclusive, undo
from holdfast.protocol.joint import JointRequest
from holdfast.protocol.readwrite import WRITER, ReadWrite
from holdfast.protocol.semaphore import Slots
from holdfast.protocol.timing import Timing
from holdfast.scripts import GCRA, PERMITS, RW_RELEASE, RW_REQUEST, WINDOW, Script
from holdfast.wire.address import parse
from holdfast.wire.connection import Connection, Line
from holdfast.wire.resp import pack
from holdfast.wire.rights import question


def near(value: Any, abs: float | None = None) -> Any:  # noqa: A002 (pytest.approx calls it so)
    return pytest.approx(value, abs=abs)


def busy(world: World, name: bytes = b"a", numbers: tuple[int, ...] = (0, 1, 2)) -> None:
    """Somebody else has it there."""
    for number in numbers:
        world.nodes[number].holders[name] = ANOTHER


def away(world: World, *numbers: int) -> None:
    """These nodes break, and refuse to be connected to."""
    for number in numbers:
        world.cut(number, dialled="refuses")


def lines(world: World) -> list[str]:
    return [it.state for it in world.engine.status(world.now)]


def noted(world: World) -> bytes:
    """What the engine notes of its settings when it has met all nodes."""
    known = ",".join(run_id(it.number)[:8] for it in world.nodes)
    return f"v2 30000 {len(world.nodes)} {known}  0 1.2".encode()


def causes(claim: Claim) -> dict[str, str]:
    assert type(claim.refusal) is NoQuorum
    return {node: str(cause) for node, cause in claim.refusal.causes.items()}


# ------------------------------------------------ connecting


def rests(world: World) -> bool:
    """Does nothing wake the engine but its next note in the registry?"""
    return world.now < world.engine.next_wake() == world.engine._registry.due


def test_an_engine_begins_with_nothing() -> None:
    world = World()
    fresh = Engine(world.settings, INBOX, undo)
    assert (fresh.record.telling, fresh.record.epoch, fresh.changes, fresh.owing) == (False, 0.0, 0, False)
    assert (fresh.live, fresh.ready()) == ({}, Ready(wake=-inf))
    assert fresh.claim(Exclusive("a", ttl=10, horizon=1), Timing(10.0), 5.0).ticket == 5_000_000  # (no driver has told it the wall clock)
    fresh.connected(0, 5.0)
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
    assert str(world.engine.status(world.now)[0].cause) == "no connection within 0.7 s"


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
    assert str(world.engine.status(world.now)[1].cause) == "silent for 0.75 s"


def test_only_a_tick_finds_a_node_late() -> None:
    world = World(node_timeout=0.7).connect()
    engine, claim = world.engine, world.claim()
    world.run(TRIP)  # the answers are under way, and the driver does not come round to reading them
    now = world.now + 100.0
    assert engine.next_wake() < now
    world.now = now
    for node in range(3):
        engine.received(node, usual(claim.ticket) + b"*0\r\n", now)  # what lies unread is not late
    assert [connection.line.name for connection in engine.connections] == ["UP"] * 3
    engine.tick(now)
    assert engine.cut() == [] and lines(world) == ["up"] * 3

    world.claim("other")
    engine.received(0, b"", now + 5.0)  # nothing but a tick looks at the time
    assert engine.cut() == []
    engine.tick(now + 0.69)
    assert engine.cut() == []
    engine.tick(now + 0.7)
    assert engine.cut() == [0, 1, 2]


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


@pytest.mark.parametrize("text", ["isinstance(it, Claim) and ", " and it.state is HELD", " if now >= it.until"])
def test_what_a_busy_driver_may_not_end_is_noticed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patches.method(monkeypatch, Engine, "lapse", text, "")
    with pytest.raises((AssertionError, AttributeError)):
        test_a_driver_that_was_busy_ends_the_leases_that_have_run_out_and_no_others()


def test_leases_that_have_run_out_are_ended_in_the_order_of_their_ends() -> None:
    world = World().connect()
    claims = [world.claim(f"{ttl}", ttl=ttl) for ttl in (4.0, 2.0, 3.0, 9.0, 2.5)]
    world.run(0.1)
    for node in world.nodes:
        node.mute = True
    world.engine.lapse(world.now + 5.0)
    assert [it.ttl for it in world.engine.ready().settled] == [2.0, 2.5, 3.0, 4.0]
    assert claims[3].state is State.HELD


def test_an_end_without_order_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    patches.method(monkeypatch, Engine, "lapse", 'sorted(over, key=attrgetter("until"))', "over")
    with pytest.raises(AssertionError):
        test_leases_that_have_run_out_are_ended_in_the_order_of_their_ends()


def test_silence_that_may_have_been_the_drivers_is_excused() -> None:
    world = World(node_timeout=0.75).connect()
    for node in world.nodes[:2]:
        node.mute = True
    world.claim()
    world.run(0.5)
    world.engine.excuse(world.now, 0.5)
    world.run(0.75 - TRIP)
    assert lines(world) == ["up"] * 3
    world.run(TRIP)
    assert lines(world) == ["down", "down", "up"]


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


def guarded(world: World, *numbers: int, uptime: int = 0) -> None:
    for number in numbers:
        world.nodes[number].facts = {"uptime_in_seconds": uptime}


def test_a_guarded_node_is_not_away_and_may_be_waited_for() -> None:
    world = World(outage=7.0)
    guarded(world, 0, 1, uptime=2)
    claim = world.claim()
    world.run(30.0)
    assert (claim.state, lines(world)) == (State.WAITING, ["guarded", "guarded", "up"])
    for node in world.nodes[:2]:
        assert len(node.writes) == 1 and node.of("request") == node.of("SCRIPT") == []  # nothing but the greeting
    world.run(1.1)
    assert (claim.state, lines(world)) == (State.HELD, ["up"] * 3)
    assert world.nodes[0].writes[1].startswith(SCRIPTS + b"*13\r\n")


def test_a_guard_ends_on_time() -> None:
    world = World(1, node_timeout=3.0)
    guarded(world, 0, uptime=32)
    claim = world.claim()
    world.run(3 * TRIP + 1.0)
    assert lines(world) == ["up"] and claim.state is State.WAITING
    world.run(2 * TRIP)
    assert claim.state is State.HELD


def test_a_try_is_told_of_the_guard() -> None:
    world = World()
    guarded(world, 0, 1, uptime=21)
    world.run(3.7 + 3 * TRIP)
    claim = world.claim(patient=False)
    assert claim.state is State.OVER
    told = {node: cause.partition(":")[0] for node, cause in causes(claim).items()}
    assert told == {"redis://n0:1": "guarded, 8.3 s left", "redis://n1:1": "guarded, 8.3 s left"}  # nothing is wrong with the third


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


def test_a_caller_whose_time_is_up_when_a_guard_is_over_is_not_told_of_it() -> None:
    """The client was stopped meanwhile, and looks at both in one turn."""
    world = World()
    guarded(world, 0, 1, uptime=21)
    world.run(0.5)
    claim = world.claim(deadline=world.now + 1.0)
    world.now = max(it.wake for it in world.engine.connections[:2])
    world.engine.tick(world.now)
    assert set(causes(claim).values()) == {"no answer yet"}


def test_nodes_without_a_guard() -> None:
    for options in ({"restart_guard": None}, {"fresh": [run_id(0), run_id(1)]}):
        world = World(**options)
        guarded(world, 0, 1)
        claim = world.claim()
        world.run(5 * TRIP)
        assert claim.state is State.HELD


# ------------------------------------------------ reconnects


def test_a_connection_of_use_that_breaks_is_dialled_at_once_and_nobody_is_alarmed() -> None:
    world = World(telling=True).connect()
    world.run(1.0)
    changes = world.engine.changes
    world.cut(0)
    assert lines(world)[0] == "connecting"
    assert world.engine.status(world.now)[0].cause is None
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


# ------------------------------------------------ the same server twice


def test_the_same_server_under_two_addresses_is_refused() -> None:
    # Rule T8.
    world = World()
    world.nodes[2].facts = {"run_id": run_id(0)}
    claim = world.claim()
    world.run(0.1)
    assert (claim.state, lines(world)) == (State.HELD, ["up", "up", "unfit"])
    assert world.nodes[2].of("request") == world.nodes[2].of("SCRIPT") == []
    cause = world.engine.status(world.now)[2].cause
    assert type(cause) is ConfigError and "it is the same server as redis://n0:1" in str(cause)
    wrong = world.engine.verdict(0.0, world.now)
    assert type(wrong) is ConfigError and message_of(wrong) == f"these nodes cannot be used:\n  redis://n2:1: {message_of(cause)}"
    world.run(10.0)
    assert lines(world)[2] == "unfit" and world.nodes[2].of("SCRIPT") == []


def test_the_same_server_is_noticed_while_its_twin_is_guarded() -> None:
    world = World()
    world.nodes[0].facts = {"uptime_in_seconds": 0}
    world.nodes[1].facts = {"run_id": run_id(0)}
    world.run(1.0)
    assert lines(world) == ["guarded", "unfit", "up"]


def test_the_same_server_is_noticed_while_its_twin_takes_the_scripts() -> None:
    world = World()
    world.nodes[0].dialled = world.nodes[1].dialled = "refuses"
    world.nodes[1].facts = {"run_id": run_id(0)}
    world.run(0.1)
    world.nodes[0].dialled = world.nodes[1].dialled = "accepts"
    original = world.nodes[0].reads
    world.nodes[0].reads = lambda data, now: b"" if data.startswith(SCRIPTS) else original(data, now)  # type: ignore[method-assign]  # (a fake in its place)
    world.run(0.5)
    assert world.engine.connections[0].line.name == "LOADING"
    assert "the same server" in str(world.engine.status(world.now)[1].cause)


def test_a_server_is_not_counted_again_while_its_votes_last() -> None:
    world = World(restart_guard=None).connect()
    claim = world.claim(ttl=30.0, renew=False)
    world.run(0.1)
    away(world, 0)
    world.run(5.0)
    world.nodes[1].facts = {"run_id": run_id(0)}
    world.cut(1)
    world.run(20.0)
    assert claim.state is State.HELD and lines(world) == ["down", "unfit", "up"]
    assert "the same server as redis://n0:1" in str(world.engine.status(world.now)[1].cause)
    other = world.claim("b")
    world.run(0.1)
    assert other.state is not State.HELD, "one server and another one are no majority of three"


def test_a_server_that_moved_to_another_address_is_no_twin_once_its_votes_have_run_out() -> None:
    world = World(restart_guard=None).connect()
    away(world, 0)
    world.run(0.5)
    world.nodes[1].facts = {"run_id": run_id(0)}
    world.cut(1)
    world.run(31.0)
    assert lines(world) == ["down", "unfit", "up"]
    world.run(2.5)
    assert lines(world) == ["down", "up", "up"]
    world.nodes[0].dialled = "accepts"
    world.run(2.0)
    assert lines(world) == ["unfit", "up", "up"], "from now on it is node 1"
    world.cut(1)
    world.run(0.5)
    assert lines(world) == ["unfit", "up", "up"]


def test_a_server_that_is_refused_as_a_twin_does_not_keep_the_first_one_out() -> None:
    world = World()
    world.nodes[2].facts = {"run_id": run_id(0)}
    world.connect()
    for _ in range(3):
        world.cut(0)
        world.run(3.0)
        assert lines(world) == ["up", "up", "unfit"]


def test_which_servers_the_nodes_are() -> None:
    world = World(node_timeout=0.5)
    world.nodes[0].dialled = "hangs"
    world.nodes[1].facts = {"uptime_in_seconds": 0}
    engine = world.engine
    assert engine.servers() == frozenset() and not engine.acquainted(0.5)
    world.run(0.1)
    assert lines(world) == ["connecting", "guarded", "up"]
    assert engine.servers() == {run_id(1), run_id(2)}
    assert not engine.acquainted(0.4), "the first one may still tell"
    assert engine.acquainted(0.0)
    away(world, 2)
    assert engine.servers() == {run_id(1)} and not engine.acquainted(0.0)


# ------------------------------------------------ a server that was promoted


PROMOTED = {"master_replid": "c" * 40, "master_replid2": "d" * 40, "second_repl_offset": 277}


def test_a_promoted_server_is_guarded_once_and_says_why() -> None:
    world = World(prefix="app:")
    world.nodes[0].facts = dict(PROMOTED)
    world.run(1.0)
    assert lines(world) == ["guarded", "up", "up"]
    cause = str(world.engine.status(world.now)[0].cause)
    assert re.fullmatch(r"guarded, 31\.\d s left: it was a replica, was promoted lately, and may lack leases that its .* granted", cause)
    (told,) = [it for it in world.events if word(it) == "guarded"]
    assert (told.node, told.left) == ("redis://n0:1", near(32.0, abs=0.1))
    assert told.cause in cause
    assert list(world.nodes[0].values) == [b"{app:}:reign:" + b"c" * 40]
    world.cut(0)
    world.run(1.0)
    assert lines(world)[0] == "guarded"
    world.run(31.0)
    assert lines(world) == ["up"] * 3
    later = World(prefix="app:")
    later.now, later.nodes = world.now, world.nodes
    for node in later.nodes:
        node.linked = False
    later.run(0.1)
    assert lines(later) == ["up"] * 3, "the note tells a new client how long that is ago"


def test_one_node_that_was_promoted_holds_nothing_for_a_new_client_in_its_guard() -> None:
    world = World(1, outage=1.0, fresh={run_id(0)})
    world.nodes[0].facts = dict(PROMOTED)
    claim = world.claim(deadline=START + 5.0)
    world.run(6.0)
    why = "it was a replica, was promoted lately, and may lack leases that its old primary granted"
    assert causes(claim) == {"redis://n0:1": f"guarded, 27.0 s left: {why}"}


def test_an_address_that_leads_to_another_server_than_before_is_warned_of_and_refused_if_the_first_one_comes_back() -> None:
    world = World()
    world.run(0.5)
    world.nodes[1].facts = {"run_id": "b" * 40}
    world.cut(1)
    world.run(2.0)
    (told,) = [it for it in world.events if word(it) == "warned"]
    assert (told.node, told.about) == ("redis://n1:1", "several servers")
    assert told.warning.startswith("another server answers at its address than before, and it was running already")
    assert lines(world) == ["up", "guarded", "up"]
    world.nodes[1].facts = {}
    world.cut(1)
    causes = set()
    for _ in range(40):
        world.run(0.05)
        causes.add(str(world.engine.status(world.now)[1].cause))
    assert any("its address leads to several servers (00" in it for it in causes), causes
    assert lines(world) == ["up", "guarded", "up"], "it has stayed there since"


@pytest.mark.parametrize(
    "guard, words",
    [(32.0, "clients leave the promoted server alone for 32 s"), (None, "no client waits for them to end")],
)
def test_a_primary_with_replicas_is_warned_of_once(guard: float | None, words: str) -> None:
    world = World(restart_guard=guard)
    world.nodes[1].facts = {"connected_slaves": 2}
    world.run(0.5)
    world.nodes[1].facts = {"connected_slaves": 1}
    world.cut(1)
    world.run(0.5)
    (told,) = [it for it in world.events if word(it) == "warned"]
    warning = (
        f"it has replicas (2). If one is promoted in its place, the locks that it had not received are forgotten, and {words}. As long as "
        "the old primary goes on, two clients can hold the same lock: this node is efficient, not safe. Say in its address for how many "
        "seconds an old primary can go on, such as ?failover=15 (0: not at all), or use primaries without replicas."
    )
    assert (told.node, told.about, told.warning) == ("redis://n1:1", "replicas", warning)
    assert lines(world) == ["up"] * 3, "it is used all the same"
    assert [it.guarantee for it in world.engine.status(world.now)] == ["safe", "efficient, not safe", "safe"]


def test_a_promoted_server_without_a_bound_is_warned_of_though_it_has_no_replica() -> None:
    world = World()
    world.nodes[0].facts = dict(PROMOTED)
    world.run(0.5)
    (told,) = [it for it in world.events if word(it) == "warned"]
    assert told.warning.startswith("it was a replica, and was promoted. As long as the old primary goes on, two clients can hold")
    assert world.engine.status(world.now)[0].guarantee == "efficient, not safe"


def test_a_server_that_is_neither_redis_nor_valkey_is_warned_of_if_its_address_admits_it() -> None:
    world = World(query="?unproven=true")
    world.nodes[1].facts = {"garnet_version": "1.0.84"}
    world.run(0.5)
    world.cut(1)
    world.run(0.5)
    (told,) = [it for it in world.events if word(it) == "warned"]
    assert (told.node, told.about) == ("redis://n1:1", "product")
    assert told.warning.startswith("its server is Garnet, which is neither Redis nor Valkey. It is used because its address says unproven")
    assert lines(world) == ["up"] * 3, "it is used all the same"
    assert [it.guarantee for it in world.engine.status(world.now)] == ["safe", "unproven", "safe"]


@pytest.mark.parametrize(
    "bound, facts, warned",
    [
        ("?failover=15", {}, True),
        ("?failover=15", {"min_slaves_good_slaves": 0}, False),
        ("?failover=15", {"redis_mode": "cluster"}, False),
        ("?failover=0", {}, False),
    ],
)
def test_a_bound_that_the_server_does_not_keep_is_warned_of(bound: str, facts: dict[str, object], warned: bool) -> None:
    world = World(1, query=bound)
    world.nodes[0].facts = {"connected_slaves": 1, **facts}
    world.run(0.5)
    told = [it for it in world.events if word(it) == "warned"]
    assert [it.about for it in told] == ["failover"] * warned, "and not of its replica"
    if warned:
        assert told[0].warning == (
            "its address says failover=15, but the server goes on granting locks without replicas. Set min-replicas-to-write to the "
            "number of its replicas, and min-replicas-max-lag to at most those seconds."
        )
    assert (lines(world)[0], world.engine.status(world.now)[0].guarantee) == ("up", "safe")


def test_a_promoted_server_with_a_bound_is_left_alone_for_that_much_longer() -> None:
    world = World(1, query="?failover=15")
    world.nodes[0].facts = PROMOTED | {"min_slaves_good_slaves": 1}
    world.run(0.5)
    (told,) = [it for it in world.events if word(it) == "guarded"]
    assert told.left == near(47.0, abs=0.1)


def test_a_primary_that_has_become_a_replica_is_down_and_says_why() -> None:
    world = World().connect()
    node = world.nodes[0]
    node.answer = lambda asked: b"-READONLY You can't write against a read only replica.\r\n"
    node.facts = {"role": "slave"}
    claim = world.claim()
    world.run(0.5)
    assert (claim.state, lines(world)) == (State.HELD, ["unfit", "up", "up"])
    assert message_of(world.engine.status(world.now)[0].cause) == "it is a replica: use masters that are independent of each other"


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


def test_node_events_come_once_for_each_change() -> None:
    world = World(node_timeout=0.5)
    world.nodes[2].facts = {"uptime_in_seconds": 23}
    world.run(1.0)
    up = [f"redis://n{number}:1" for number in range(3)]
    guard = [it for it in world.events if word(it) == "guarded"]
    assert [(it.node, it.left) for it in guard] == [(up[2], 10.0)]
    assert [it.node for it in world.events if word(it) == "up"] == up[:2]
    assert len(world.events) == 3
    world.events.clear()
    world.run(10.0)
    assert world.events == [events.NodeEvent(state="up", node=up[2])]
    world.events.clear()
    away(world, 1)
    assert world.events == []  # it is dialled once more before anybody is alarmed
    world.run(30.0)
    assert [(word(it), it.node, str(it.cause)) for it in world.events if word(it) == "down"] == [
        ("down", up[1], "refused 1")
    ]
    assert len(world.events) == 1
    assert world.events[0].at == datetime.fromtimestamp(WALL + 11 + TRIP, UTC)
    world.events.clear()
    world.nodes[1].dialled = "accepts"
    world.run(3.0)
    (told,) = world.events
    # (It was told to be down after the second try, and tries are up to two seconds apart.)
    assert (word(told), told.node) == ("up", up[1])
    assert 28.0 < told.down < 33.0


def test_a_node_that_was_away_and_guarded_is_not_down_once_more_while_it_takes_the_scripts() -> None:
    world = World()
    node = world.nodes[2]
    node.dialled, node.facts = "refuses", {"uptime_in_seconds": 23}
    world.run(1.0)
    node.dialled = "accepts"
    seen: list[str] = []
    for _ in range(13 * 64):
        world.run(1 / 64)
        seen += [it for it in lines(world)[2:] if it not in seen[-1:]]
    assert seen == ["down", "guarded", "up"]
    told = [it for it in world.events if isinstance(it, events.NodeEvent) and it.node == "redis://n2:1"]
    assert [it.state for it in told] == ["down", "guarded", "up"]
    _, guarded, up = told
    assert guarded.down > 0.9
    assert up.down == 0.0, "it had come back before"


def test_a_node_down_without_a_cause_is_one_all_the_same() -> None:
    world = World()
    world.engine.lost(0, START, None)  # type: ignore[arg-type]  # (the mistake)
    assert [str(it.cause) for it in world.engine.record.events if word(it) == "down"] == ["no connection"]


def test_a_server_that_may_evict_locks_is_warned_of_once() -> None:
    world = World()
    world.nodes[1].facts = {"maxmemory_policy": "allkeys-lru"}
    world.run(2.0)
    world.cut(1)
    world.run(2.0)
    told = [it for it in world.events if word(it) == "warned"]
    warning = "its maxmemory-policy is allkeys-lru: it may evict locks that are held. Set maxmemory-policy noeviction."
    assert told == [events.NodeEvent(state="warned", node="redis://n1:1", warning=warning, about="eviction")]
    world.nodes[1].facts = {"maxmemory_policy": "volatile-ttl"}  # another one is another warning
    world.cut(1)
    world.run(2.0)
    assert len([it for it in world.events if word(it) == "warned"]) == 2


# ------------------------------------------------ what should outlive a restart


def persisting(world: World) -> list[str]:
    """The nodes of which it was said that they keep nothing on a disk."""
    return [it.node[8:10] for it in world.events if word(it) == "warned" and "appendonly no" in it.warning]


def asked_for_persistence(world: World) -> int:
    """How often nodes were asked how they are, beyond each greeting."""
    return sum(len(it.of("INFO")) - 3 * it.connection for it in world.nodes)


def test_a_client_that_keeps_what_nodes_forget_is_warned_once_for_each_node() -> None:
    world = World().connect()
    world.nodes[1].facts = {"aof_enabled": 1}
    world.engine.keeps("once", world.now)
    assert asked_for_persistence(world) == 0, "what the client is about to do comes first"
    world.run(2.0)
    assert persisting(world) == ["n0", "n2"]
    assert "this client uses once there" in next(it.warning for it in world.events if word(it) == "warned")
    assert world.engine.keeping
    world.engine.keeps("rate", world.now)
    world.nodes[0].dialled = "refuses"
    world.cut(0)
    world.run(20.0)
    world.nodes[0].dialled = "accepts"
    world.run(20.0)
    assert persisting(world) == ["n0", "n2"]
    assert asked_for_persistence(world) == 3, "once in each run of a server"


def test_a_server_that_restarts_is_asked_again() -> None:
    world = World(1).connect()
    world.nodes[0].facts = {"aof_enabled": 1}
    world.engine.keeps("once", world.now)
    world.run(20.0)
    world.nodes[0].facts = {"aof_enabled": 0, "run_id": "f" * 40}
    world.cut(0)
    world.run(20.0)
    assert persisting(world) == ["n0"]


def test_a_node_that_does_not_answer_is_asked_once_it_is_there_again() -> None:
    world = World(1).connect()
    world.engine.keeps("once", world.now)
    world.nodes[0].mute = True
    world.run(20.0)
    assert persisting(world) == []
    world.nodes[0].mute = False
    world.run(20.0)
    assert persisting(world) == ["n0"]


def test_a_client_of_locks_alone_is_not_warned_and_asks_nothing() -> None:
    world = World().connect()
    world.claim()
    world.run(2.0)
    assert persisting(world) == []
    assert asked_for_persistence(world) == 0
    assert not world.engine.keeping


def test_a_node_that_is_connected_to_later_is_asked_then() -> None:
    world = World()
    world.engine.keeps("latch", world.now)
    world.run(2.0)
    assert persisting(world) == ["n0", "n1", "n2"]


@pytest.mark.parametrize("told", [b"$13\r\naof_enabled:1\r\n", b"=17\r\ntxt:aof_enabled:1\r\n", b":1\r\n", b"-NOPERM no\r\n"])
def test_a_node_that_does_not_say_so_is_not_warned_of(told: bytes) -> None:
    world = World(1).connect()
    node = world.nodes[0]
    answers = node._answers
    # A node of the world answers otherwise here, so its method is replaced.
    node._answers = lambda words, now: told if words[-1] == b"persistence" else answers(words, now)  # type: ignore[method-assign]  # (a fake in its place)
    world.engine.keeps("once", world.now)
    world.run(2.0)
    assert persisting(world) == []


def test_the_same_words_as_text_are_understood() -> None:
    world = World(1).connect()
    node = world.nodes[0]
    answers = node._answers
    text = b"=17\r\ntxt:aof_enabled:0\r\n"
    # A node of the world answers otherwise here, so its method is replaced.
    node._answers = lambda words, now: text if words[-1] == b"persistence" else answers(words, now)  # type: ignore[method-assign]  # (a fake in its place)
    world.engine.keeps("once", world.now)
    world.run(2.0)
    assert persisting(world) == ["n0"]


# ------------------------------------------------ chores


def chore(told: list[Any], queries: int = 2, nodes: tuple[int, ...] = (0, 1, 2)) -> Work:
    """Asks all nodes for a word, one query after the other."""
    for _ in range(queries):
        told.append((yield dict.fromkeys(nodes, pack(b"PING"))))
    told.append("done")
    return None


def test_a_chore_goes_from_round_to_round_and_nobody_is_told() -> None:
    world, told = World().connect(), list[Any]()
    world.engine.chore(b"a", chore(told), world.now)
    world.run(1.0)
    assert [sorted(it.answers) for it in told[:-1]] == [[0, 1, 2], [0, 1, 2]]
    assert told[-1] == "done"
    assert world.found == []
    assert world.engine.queries == set()


def test_a_chore_whose_nodes_cannot_be_spoken_to_goes_on_without_them() -> None:
    world, told = World().connect(), list[Any]()
    world.nodes[2].dialled, world.nodes[1].mute = "refuses", True
    world.cut(2)
    world.run(0.5)
    world.engine.chore(b"a", chore(told), world.now)
    world.run(5.0)
    assert sorted(told[0].answers) == [0]
    assert told[-1] == "done"


def test_the_same_chore_is_not_run_again_at_once() -> None:
    world, told = World().connect(), list[Any]()
    for _ in range(3):
        world.engine.chore(b"a", chore(told, 0), world.now)
    world.engine.chore(b"b", chore(told, 0), world.now)
    assert told == ["done"] * 2
    world.run(REST)
    world.engine.chore(b"a", chore(told, 0), world.now)
    assert told == ["done"] * 3


def test_only_so_many_chores_are_run_at_a_time() -> None:
    world, told = World().connect(), list[Any]()
    for number in range(CHORES + 3):
        world.engine.chore(b"%d" % number, chore(told), world.now)
    world.run(1.0)
    assert told.count("done") == CHORES
    world.engine.chore(b"one more", chore(told), world.now)
    world.run(1.0)
    assert told.count("done") == CHORES + 1


def test_only_so_many_rests_are_remembered() -> None:
    world, told = World().connect(), list[Any]()
    for number in range(RESTING + 1):
        world.engine.chore(b"%d" % number, chore(told, 0), world.now)
    world.engine.chore(b"%d" % RESTING, chore(told, 0), world.now)
    assert len(told) == RESTING + 1
    world.engine.chore(b"0", chore(told, 0), world.now)
    assert len(told) == RESTING + 2


def test_a_chore_that_fails_harms_nobody_and_is_told() -> None:
    world, told = World().connect(), list[Any]()

    def fails() -> Work:
        yield {0: pack(b"PING")}
        raise KeyError("secret")

    claim = world.claim()
    world.engine.chore(b"a", fails(), world.now)
    world.engine.chore(b"b", chore(told), world.now)
    world.run(30.0)
    assert told[-1] == "done"
    assert claim.state is State.HELD
    [warned] = [it for it in world.events if word(it) == "warned"]
    assert "KeyError" in warned.warning
    assert "secret" not in warned.warning


CHORE_FAULTS = {
    "as many chores as anybody wants": ("chore", "len(self._chores) >= CHORES or", "", test_only_so_many_chores_are_run_at_a_time),
    "no rest between chores": ("chore", " or now < self._rests.get(about, -inf)", "", test_the_same_chore_is_not_run_again_at_once),
    "rests are remembered for ever": ("chore", "len(self._rests) > RESTING", "False", test_only_so_many_rests_are_remembered),
    "what a chore raises harms leases": (
        "_further", "except Exception as error:", "except ZeroDivisionError as error:", test_a_chore_that_fails_harms_nobody_and_is_told
    ),
    "a chore's queries are somebody's": ("_conduct", "self._further(*chore, query, now)", "self._found.append(query)",
        test_a_chore_goes_from_round_to_round_and_nobody_is_told),
    "a server is asked at each connection": (
        "_persistence", "self._examined[node] = ", "_ = ", test_a_client_that_keeps_what_nodes_forget_is_warned_once_for_each_node
    ),
    "clients of locks alone ask": (
        "_note_state", "if self._lasting:", "if True:", test_a_client_of_locks_alone_is_not_warned_and_asks_nothing
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHORE_FAULTS)
def test_a_fault_of_chores_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, there, instead, test = CHORE_FAULTS[name]
    patches.method(monkeypatch, Engine, method, there, instead)
    with pytest.raises((AssertionError, KeyError)):
        test()


def test_which_nodes_have_been_repaired() -> None:
    world = World().connect()
    assert [it.repaired for it in world.engine.status(world.now)] == [None] * 3
    world.engine.repaired({run_id(0): True, run_id(1): False, "another run": True})
    assert [it.repaired for it in world.engine.status(world.now)] == [True, False, None]


def test_a_certificate_that_nobody_verifies_is_warned_of_once() -> None:
    world = World()
    world.engine.connections[1].address = parse("rediss://n1:1?ssl_cert_reqs=none")
    world.engine.connections[2].address = parse("rediss://n2:1")
    world.run(2.0)
    world.cut(1)
    world.run(2.0)
    told = [(it.node, it.warning) for it in world.events if word(it) == "warned"]
    warning = "nobody verifies its certificate (ssl_cert_reqs=none), so others can pose as it. Name its authority: ssl_ca_certs."
    assert told == [("rediss://n1:1", warning)]


def test_a_server_that_does_not_tell_its_policy_is_not_warned_of() -> None:
    world = World(1)
    world.nodes[0].reads = (lambda reads: lambda data, now: reads(data, now).replace(b"maxmemory", b"minmemory"))(world.nodes[0].reads)  # type: ignore[method-assign]  # (a fake in its place)
    world.run(2.0)
    assert [word(it) for it in world.events] == ["up"]


def warnings(world: World) -> list[tuple[str, str]]:
    """What was warned of so far: about which node, and the first words."""
    return [(it.node[8:10], it.warning) for it in world.events if word(it) == "warned"]


def clocks(world: World) -> dict[str, str]:
    """Whose clock was said to be off, and by how much."""
    others = "what most nodes say|this machine's, and no other node tells which of them is wrong"
    words = rf"its clock is (.*) (?:{others}): (?:it is not used|after a restart, fences may repeat). Set it .NTP.\."
    found = [(node, re.fullmatch(words, warning)) for node, warning in warnings(world)]
    assert all(match for _, match in found) and len({node for node, _ in found}) == len(found), "each once"
    return {node: match[1] for node, match in found if match}


@pytest.mark.parametrize("late", [-9.0, 9.0])
@pytest.mark.parametrize("nodes", [1, 3, 5])
def test_a_clock_of_ones_own_that_is_wrong_is_no_node_s(nodes: int, late: float) -> None:
    world = World(nodes)
    for node in world.nodes:
        node.ahead = late
    world.run(3.0)
    assert lines(world) == ["up"] * nodes
    told = [warning for _, warning in warnings(world)] + [str(it.cause) for it in world.events if word(it) == "down"]
    side = "behind" if late < 0 else "ahead of"
    assert all(f"its clock is 9 s {side} this machine's, and no other node tells which of them is wrong" in it for it in told)
    assert told or nodes > 1


@pytest.mark.parametrize("late", [-9.0, 9.0])
@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_a_clock_that_is_off_is_warned_of_once(nodes: int, late: float) -> None:
    world = World(nodes)  # a quarter of the guard is 8 s
    world.nodes[0].ahead = late
    world.run(1.0)
    assert clocks(world) == {"n0": "9 s behind" if late < 0 else "9 s ahead of"}
    world.nodes[0].ahead *= 2  # otherwise than before
    world.cut(0)
    world.run(2.0)
    assert lines(world) == ["up" if nodes == 1 else "down"] + ["up"] * (nodes - 1)
    assert len(clocks(world)) == 1


@pytest.mark.parametrize("off", list(combinations(range(5), 2)))
def test_two_clocks_of_five_that_are_off_are_warned_of_in_whatever_order_they_come(off: tuple[int, int]) -> None:
    world = World(5)
    for number in off:
        world.nodes[number].ahead = 9.0
    world.run(1.0)
    assert set(clocks(world)) == {f"n{number}" for number in off}


def test_two_clocks_that_differ_are_judged_by_ours() -> None:
    for off in (0, 1):
        world = World(2)
        world.nodes[off].ahead = -20.0
        world.run(1.0)
        assert clocks(world) == {f"n{off}": "20 s behind"}


@pytest.mark.parametrize("nodes", [2, 3, 4, 5])
def test_our_own_clock_is_not_the_nodes_fault(nodes: int) -> None:
    world = World(nodes)
    for node in world.nodes:
        node.ahead = 100.0
    world.run(1.0)
    assert warnings(world) == []


def test_clocks_are_compared_when_whoever_is_dialled_has_spoken_or_is_down() -> None:
    world = World(3, node_timeout=0.7)
    world.nodes[0].ahead = world.nodes[1].ahead = 100.0
    world.nodes[2].dialled = "hangs"
    world.run(0.69)
    assert warnings(world) == []
    world.run(0.1)
    assert (lines(world), warnings(world)) == (["up", "up", "down"], [])  # two against ours
    world.nodes[2].dialled = "accepts"
    world.run(3.0)
    assert clocks(world) == {"n2": "100 s behind"}


def test_a_clock_is_found_out_although_a_node_never_speaks() -> None:
    world = World(3, node_timeout=0.7)
    world.nodes[0].ahead = 100.0
    world.nodes[2].dialled = "hangs"
    world.run(1.0)
    assert clocks(world) == {"n0": "100 s ahead of"}


@pytest.mark.parametrize("off", [7.9, -7.9])
def test_a_clock_that_is_off_by_little_is_no_danger(off: float) -> None:
    world = World(3)
    world.nodes[0].ahead = off
    world.run(1.0)
    assert warnings(world) == []


def greeted_late(off: float, late: float) -> World:
    """Three nodes, of which one has another clock, have answered the greeting, and the answers lie unread for so many seconds."""
    world = World(3)
    world.nodes[0].ahead = off
    world.run(2.5 * TRIP)
    assert {connection.line for connection in world.engine.connections} == {Line.GREETING}
    world.now += late
    world.engine.excuse(world.now, late)
    world.run(1.0)
    return world


@pytest.mark.parametrize("late", [1.0, 7.0, 18.0, 60.0])
def test_an_answer_that_lay_unread_makes_no_clock_wrong(late: float) -> None:
    """A client on a busy core reads what nodes said seconds ago."""
    world = greeted_late(0.0, late)
    assert lines(world) == ["up"] * 3
    assert warnings(world) == []
    assert all(node.connection == 1 for node in world.nodes)


@pytest.mark.parametrize("off", [-12.5, 12.5])
@pytest.mark.parametrize("late", [1.0, 7.0, 18.0, 25.0, 60.0])
def test_an_answer_that_lay_unread_makes_no_clock_right(late: float, off: float) -> None:
    """In the middle between asking and reading, the node's clock was where ours was. Rule F4."""
    world = greeted_late(off, late)
    assert lines(world) == ["down", "up", "up"]
    assert "not used: its clock is" in str(world.engine.status(world.now)[0].cause)


@pytest.mark.parametrize("late", [-9.0, 9.0])
@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_a_node_whose_clock_is_far_off_is_not_used_until_it_is_set(nodes: int, late: float) -> None:
    world = World(nodes)
    world.nodes[0].ahead = late
    claim = world.claim(deadline=world.now + 3.0)
    world.run(4.0)
    assert (claim.state is State.HELD) is (nodes > 2), "of two both are needed"
    assert world.nodes[0].of("request") == world.nodes[0].of("SCRIPT") == [], "nothing is asked of it, and nothing is written back"
    word = "behind" if late < 0 else "ahead of"
    told = f"not used: its clock is 9 s {word} what most nodes say. Set it (NTP)."
    assert [str(it.cause) for it in world.engine.status(world.now) if it.cause is not None] == [told]
    if nodes == 2:
        assert causes(claim) == {"redis://n0:1": told}
    world.nodes[0].ahead = 0.0
    world.run(3.0)
    assert lines(world) == ["up"] * nodes
    claim = world.claim("b")
    world.run(1.0)
    assert claim.counting(world.now) == nodes


@pytest.mark.parametrize("late", [-9.0, 9.0])
def test_a_node_that_is_alone_is_used_whatever_its_clock_says(late: float) -> None:
    world = World(1)
    world.nodes[0].ahead = late
    claim = world.claim()
    world.run(1.0)
    assert claim.state is State.HELD


@pytest.mark.parametrize("off", [-3600.0, 3600.0])
@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_who_begins_with_a_clock_that_is_wrong_has_the_nodes_time_before_anything_is_asked(nodes: int, off: float) -> None:
    """A ticket of a wrong clock would come first for an hour, or its fence would be an hour ahead of all others."""
    world = World(nodes)
    for node in world.nodes:
        node.ahead = off
    slots = Slots("s", 2, 1, ttl=10, horizon=world.settings.horizon)
    wants = [world.claim(), world.want("b", "c"), world.engine.want(slots, Timing(10.0), world.now)]
    world.engine.begin(wants[2], world.now)
    world.run(2.0)
    assert lines(world) == ["up"] * nodes
    right = (WALL + off) * 1e6
    assert all(want.state is State.HELD for want in wants)
    for want in wants:
        for claim in want.claims:
            assert abs(claim.ticket - right) < 3e6 and claim.fence == claim.ticket
    assert {it.ticket for it in wants[1].claims} == {wants[1].claims[0].ticket}
    asked = [it for node in world.nodes for it in node.of("request")]
    assert all(abs(it.fence - right) < 3e6 and abs(int(it.token[:16]) - right) < 3e6 for it in asked)
    later = world.claim("d")
    assert wants[0].ticket < later.ticket < right + 5e6, "nor are later tickets above the wrong one"


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


def semaphore(world: World, permits: int) -> Any:
    """A request for one permit, which has begun."""
    joint = world.engine.want(Slots("s", permits, 1, ttl=10, horizon=world.settings.horizon), Timing(10.0), world.now)
    world.engine.begin(joint, world.now)
    return joint


def test_the_size_of_a_semaphore_is_noted_beside_the_request_and_nobody_waits_for_the_answer() -> None:
    # Rule P9.
    world = World().connect()
    before = [len(node.writes) for node in world.nodes]
    joint = semaphore(world, 3)
    world._send()
    assert [len(node.writes) for node in world.nodes] == [it + 1 for it in before], "in the same write"
    world.run(3 * TRIP)
    assert joint.state is State.HELD
    assert [node.values[b"{s}:permits"] for node in world.nodes] == [b"3"] * 3
    assert (world.engine._registry.asked, world.engine.queries, world.found) == ({}, set(), [])
    assert warnings(world) == []


def test_a_semaphore_whose_size_was_not_noted_in_time_is_held_all_the_same() -> None:
    world = World().connect()
    world.cut(2, dialled="refuses")
    joint = semaphore(world, 3)
    world.run(2.0)
    assert joint.state is State.HELD
    assert (world.engine._registry.asked, world.engine.queries) == ({}, set())
    assert b"{s}:permits" not in world.nodes[2].values


def test_another_size_is_warned_of_once() -> None:
    world = World().connect()
    for node in world.nodes[1:]:
        node.values[b"{s}:permits"] = b"4"
    world.end(semaphore(world, 3))
    world.run(1.0)
    assert [node for node, _ in warnings(world)] == ["n1"], "every node says it, and one is enough"
    assert "another client names 4 permits for semaphore 's', and this one 3" in warnings(world)[0][1]
    for _ in range(2):
        world.run(10.0)
        world.nodes[1].values[b"{s}:permits"] = b"4"
        world.end(semaphore(world, 3))
        world.run(1.0)
    assert world.nodes[1].values[b"{s}:permits"] == b"3", "it was noted again"
    assert len(warnings(world)) == 1


def test_a_node_whose_clock_is_set_while_it_is_connected_is_found_out_by_its_fence() -> None:
    world = World().connect()
    world.run(2.0)
    world.nodes[0].ahead = 100.0
    floor = int((WALL + 92.0) * 1e6)
    world.nodes[0].answer = lambda asked: granted(floor, fresh=1)
    claim = world.claim()
    world.run(0.2)
    assert (claim.state, claim.fence) == (State.HELD, claim.ticket), "what no clock allows is counted nowhere"
    assert max(it.fence for node in world.nodes for it in node.of("request")) == claim.ticket, "and written back to nobody"
    assert lines(world) == ["down", "up", "up"]
    told = [warning for node, warning in warnings(world) if node == "n0"]
    assert told[0] == (
        f"its fence of 'a' is {floor}, 89 s ahead of the clocks, and is not used. "
        "Check the node's clock. If it is right, force_release() repairs the fence."
    )
    assert "its clock is 100 s ahead of" in told[1]


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


def test_a_fence_that_no_clock_allows_is_warned_of_once_and_clocks_are_asked_again_at_most_once_a_while() -> None:
    world = World().connect()
    world.run(2.0)
    world.nodes[2].answer = lambda asked: granted(2**53 - 3)
    before = len(world.nodes[0].of("TIME"))
    for _ in range(5):
        claim = world.claim(deadline=world.now + 1.0)
        world.run(0.1)
        assert claim.state is State.HELD
        world.end(claim)
    assert len(world.nodes[0].of("TIME")) == before + 1
    assert len(warnings(world)) == 1
    assert lines(world) == ["up"] * 3


def test_clocks_are_asked_again_now_and_then() -> None:
    world = World().connect()
    world.run(1300.0)
    world.nodes[1].ahead = -20.0
    world.claim()
    world.run(2.0)
    assert lines(world) == ["up", "down", "up"]


@pytest.mark.parametrize("reply", [b"-ERR no\r\n", b":5\r\n"])
def test_a_node_that_does_not_tell_its_clock_again_keeps_the_one_that_it_told(reply: bytes) -> None:
    world = World().connect()
    world.run(1300.0)
    answers = world.nodes[1]._answers
    world.nodes[1]._answers = lambda words, now: reply if words == [b"TIME"] else answers(words, now)  # type: ignore[method-assign]  # (a fake in its place)
    world.claim()
    world.run(2.0)
    assert lines(world) == ["up"] * 3


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


# ------------------------------------------------ what clients say of their settings


def crowd(*, runs: tuple[World, ...]) -> None:
    """These clients use the same nodes: what one says there another reads."""
    for number in range(max(len(it.nodes) for it in runs)):
        registry: dict[bytes, tuple[float, bytes]] = {}
        for world in runs:
            if number < len(world.nodes):
                world.nodes[number].registry = registry


OTHER = b"01234567" * 4  # the inbox of the other client


def together(one: World, other: World, seconds: float) -> None:
    """Time passes for both."""
    for _ in range(round(seconds)):
        one.run(1.0)
        other.run(1.0)


def test_clients_that_agree_are_not_warned() -> None:
    one, other = World(), World(owner="you", inbox=OTHER)
    crowd(runs=(one, other))
    together(one, other, 100)
    assert warnings(one) + warnings(other) == []
    assert [it.differences for it in one.engine.status(one.now)] == [()] * 3
    assert {note for _, note in one.nodes[0].registry.values()} == {noted(one)}


@pytest.mark.parametrize(
    "what, to_one, to_other",
    [
        ("max_ttl", "max_ttl=20 at you, and 30 at this client", "max_ttl=30 at me, and 20 at this client"),
        ("nodes", "5 nodes at you, and 3 at this client", "3 nodes at me, and 5 at this client"),
        ("one node", "other nodes besides this one at you", "other nodes besides this one at me"),
        ("failover", "failover=15 at you for the server with run_id 00000000…, and no", "no failover at me for the server"),
    ],
)
def test_clients_that_differ_are_both_warned_once(what: str, to_one: str, to_other: str) -> None:
    # Rule G7.
    one = World()
    others: dict[str, Callable[[], World]] = {
        "nodes": lambda: World(5, owner="you", inbox=OTHER),
        "max_ttl": lambda: World(max_ttl=20.0, owner="you", inbox=OTHER),
        "failover": lambda: World(query="?failover=15", owner="you", inbox=OTHER),
    }
    other = others.get(what, lambda: World(owner="you", inbox=OTHER))()
    crowd(runs=(one, other))
    if what == "one node":
        other.nodes[2].facts = {"run_id": "f" * 40}
    together(one, other, 35 if what != "one node" else 70)
    for _ in range(3):
        # (A node whose primary goes on without replicas is warned of, too.)
        for world, words in ((one, to_one), (other, to_other)):
            told = [it for _, it in warnings(world) if " at this client" in it or "besides" in it]
            assert len(told) == 1 and words in told[0], "every node says it, and one is enough"
            assert words in world.engine.status(world.now)[0].differences[0]
        for number in range(3):
            other.cut(number)
        together(one, other, 35)


def test_a_node_that_restarted_is_no_difference() -> None:
    one, other = World(restart_guard=None), World(restart_guard=None, owner="you", inbox=OTHER)
    crowd(runs=(one, other))
    together(one, other, 100)
    for world in (one, other):
        world.nodes[2].facts = {"run_id": "f" * 40, "uptime_in_seconds": 0}
    one.cut(2)
    other.cut(2, dialled="refuses")  # it cannot reach the node, and does not know of the new run
    together(one, other, 31)
    assert one.nodes[0].registry[b"me 01234567"][1].split()[3].endswith(b",ffffffff")
    together(one, other, 100)
    assert other.nodes[0].registry[b"you 01234567"][1].split()[3] == b"00000000,00000001"
    other.nodes[2].dialled = "accepts"
    together(one, other, 100)
    assert (lines(other), warnings(one), warnings(other)) == (["up"] * 3, [], [])


def test_a_node_that_failed_over_is_no_difference() -> None:
    """The promoted server has run for long, and another client notes it a moment later."""
    one, other = World(restart_guard=None), World(restart_guard=None, owner="you", inbox=OTHER)
    crowd(runs=(one, other))
    together(one, other, 100)
    for world in (one, other):
        world.nodes[2].facts = {"run_id": "f" * 40}
    one.cut(2)
    together(one, other, 5)
    other.cut(2)
    together(one, other, 100)
    assert not any("other nodes" in it for _, it in warnings(one) + warnings(other))


def test_an_idle_engine_says_nothing_again_but_that_it_lives() -> None:
    world = World().connect()
    world.run(2.0)
    said = [len(node.asked) for node in world.nodes]
    assert rests(world)
    world.run(10_000.0)
    assert [len(node.asked) for node in world.nodes] == said
    assert [len(node.noted) for node in world.nodes] == [1 + 10_000 // 30] * 3
    claim = world.claim()
    world.run(2.0)
    world.end(claim)
    world.run(60.0)
    while world.engine._registry.asked:
        world.run(1.0)
    assert (rests(world), world.engine.queries, world.found) == (True, set(), [])


def test_a_client_is_registered_with_its_first_request_and_twice_a_minute() -> None:
    """A program may live for less than a second."""
    # Rule G8.
    world = World()
    claim = world.claim()
    world.run(5 * TRIP)
    assert claim.state is State.HELD
    when = START + 4 * TRIP
    assert [node.noted for node in world.nodes] == [[(when, b"me 01234567", noted(world))]] * 3
    assert [len(node.writes) for node in world.nodes] == [2] * 3, "in the same write"
    world.run(100.0)
    assert [round(then - START) for then, _, _ in world.nodes[0].noted] == [0, 30, 60, 90]


@pytest.mark.parametrize("use", ["a claim", "a query"])
def test_a_client_is_registered_in_the_same_write_as_the_first_use(use: str) -> None:
    world = World().connect()
    assert [node.noted for node in world.nodes] == [[]] * 3
    before = [len(node.writes) for node in world.nodes]
    for _ in range(3):
        if use == "a claim":
            world.claim()
        else:
            world.consult(0, 1, 2)
        world.run(3 * TRIP)
    assert [len(node.noted) for node in world.nodes] == [1] * 3
    assert [len(node.writes) for node in world.nodes] == [it + 3 for it in before]


def test_a_client_registers_at_once_on_a_node_that_is_back_and_not_on_one_that_is_away() -> None:
    world = World().connect()
    world.run(1.0)
    world.cut(0)
    world.cut(1, dialled="refuses")
    world.run(2.0)
    assert [len(node.noted) for node in world.nodes] == [2, 1, 1]
    world.run(100.0)
    assert [len(node.noted) for node in world.nodes] == [5, 1, 4]
    world.nodes[1].dialled = "accepts"
    world.run(10.0)
    assert len(world.nodes[1].noted) == 2


def test_an_engine_that_is_closed_registers_no_more() -> None:
    world = World().connect()
    world.run(1.0)
    world.engine.close(world.now)
    world.run(500.0)
    assert [len(node.noted) for node in world.nodes] == [1] * 3


def test_an_engine_that_only_looks_registers_nowhere() -> None:
    world = World()
    world.engine.registers = False
    world.consult(0, 1, 2)
    world.run(100.0)
    assert [len(node.noted) for node in world.nodes] == [0] * 3


def test_clients_that_do_not_know_the_list_of_sets_are_shown_and_warned_of() -> None:
    world = World(spreads=("a1", "b2"))
    world.nodes[1].registry[b"web-1:7 0000000a"] = START - 4.0, b"v2 30000 3   b2 1.2"
    world.nodes[2].forbids = True
    assert [it.stragglers for it in world.engine.status(world.now)] == [None] * 3
    world.run(10.0)
    one, two, three = [it.stragglers for it in world.engine.status(world.now)]
    assert (one, three) == ((), None)
    assert two is not None and [(it.owner, round(it.seen)) for it in two] == [("web-1:7", 5 + 10 - 1)]
    assert [node for node, _ in warnings(world)] == ["n1"]
    assert "the former shards, or others: web-1:7" in warnings(world)[0][1]
    world.run(120.0)
    assert len(warnings(world)) == 1
    assert world.engine._registry.asked == {}


def test_nothing_is_said_to_a_node_that_is_guarded_or_away() -> None:
    world = World(4, node_timeout=0.5)
    guarded(world, 1)
    world.nodes[2].dialled = "refuses"
    world.nodes[3].dialled = "hangs"
    world.run(5.0)
    assert [len(node.noted) for node in world.nodes] == [1, 0, 0, 0]
    assert [note.split(b" ")[3] for _, _, note in world.nodes[0].noted] == [b"00000000,00000001"]
    world.run(60.0)
    assert [len(node.noted) > 0 for node in world.nodes] == [True, True, False, False]


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
    assert (world.found, world.engine.queries, timers(world), rests(world)) == ([query], set(), 0, True)


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
    assert (world.engine._shared, world.engine._shares, world.engine.queries, timers(world)) == ({}, {}, set(), 0)


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


def timers(world: World) -> int:
    return len(world.engine._timers)


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


def test_patience_is_a_third_of_the_shortest_lease_that_lives() -> None:
    world = World(ttl=3.0).connect()
    engine = world.engine
    assert engine.patience == 1.0
    first = world.claim("b", ttl=2.4)
    assert engine.patience == near(0.8)
    for ttl in (2.4, 2.5, 3.0, 30.0):
        world.claim("c", ttl=ttl)
        assert engine.patience == near(0.8)
    short = world.claim("d", ttl=0.6)
    assert engine.patience == near(0.2)
    world.end(short)
    assert engine.patience == near(0.8)
    world.end(first)
    assert engine.patience == near(0.8), "another one with this ttl waits"
    for claim in list(engine.live.values()):
        world.end(claim)
    assert engine.patience == 1.0
    world.claim("d", ttl=0.6)
    assert engine.patience == near(0.2)
    world.run(1.0)
    world.nodes[0].mute, world.nodes[0].dialled = True, "hangs"
    world.claim("e", ttl=30.0)
    world.run(0.19)
    assert world.nodes[0].linked
    world.run(0.011)
    assert not world.nodes[0].linked


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
    assert len(world.engine.live) == 2 and world.engine.patience == near(0.1)
    world.end(want)
    assert world.engine.live == {} and world.engine.patience == 1.0


@pytest.mark.parametrize("end", ["released", "lost", "refused", "of several names", "of a semaphore"])
def test_a_short_lease_that_ends_leaves_the_others_the_time_that_they_had(end: str) -> None:
    world = World(outage=0.1).connect()
    patient = world.claim("long", ttl=30.0)
    if end == "of several names":
        short: Any = world.want("a", "b", ttl=0.3)
    elif end == "of a semaphore":
        busy(world, b"s:0")
        busy(world, b"s:1")
        short = world.engine.want(Slots("s", 3, 1, 0.3, horizon=world.settings.horizon), Timing(0.3), world.now)
        world.engine.begin(short, world.now)
    else:
        short = world.claim("short", ttl=0.3)
    world.run(0.05)
    assert world.engine.patience == near(0.1) and world.engine.node_set.patience == 1.0
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
    assert world.engine.patience == 1.0
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


def slow(world: World, trip: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on bytes take so long, each way."""
    monkeypatch.setattr(world_, "TRIP", trip)


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
    assert world.engine.patience == 1.0, "it leaves nothing behind"
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
    assert claim.state is State.HELD and world.engine.patience == near(0.1)


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


def test_nothing_stays_unanswered_for_longer_than_a_third_of_a_short_lease_that_comes_later() -> None:
    world = World().connect()
    world.nodes[0].mute = True
    world.claim("long")
    world.run(0.3)
    world.claim("short", ttl=0.6)
    world.run(0.201)
    assert not world.nodes[0].linked


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


def test_the_status_of_each_node() -> None:
    world = World(4)
    world.nodes[0].facts = {"redis_version": "7.2.4", "valkey_version": "9.1.2", "run_id": "one"}
    world.nodes[0].ahead = 2.5
    world.nodes[1].facts = {"uptime_in_seconds": 3}
    world.nodes[2].dialled = "refuses"
    world.nodes[3].dialled = "hangs"
    assert [it.version for it in world.engine.status(START)] == [""] * 4
    world.run(0.5)
    up, guard, down, hoped = world.engine.status(world.now)
    assert (up.node, up.state, up.cause, up.version, up.run_id) == ("redis://n0:1", "up", None, "valkey 9.1.2", "one")
    assert up.ahead == near(2.5, abs=0.001)
    assert (guard.state, guard.version, guard.run_id) == ("guarded", "redis 7.0.15", run_id(1))
    assert str(guard.cause).startswith("guarded, 29.5 s left: ")
    assert guard.ahead == near(0.0, abs=0.001)
    assert (down.node, down.state, str(down.cause), down.version, down.run_id, down.ahead) == (
        "redis://n2:1",
        "down",
        "refused 2",
        "",
        "",
        None,
    )
    assert (hoped.state, hoped.cause, hoped.ahead) == ("connecting", None, None)


def test_the_numbers_about_each_node() -> None:
    world = World(3)
    world.nodes[1].facts = {"uptime_in_seconds": 3}
    world.nodes[2].dialled = "refuses"
    for told in world.engine.status(START + 5.0):
        assert (told.state, told.since) == ("connecting", 0.0), "nobody has tried to connect"
        assert (told.guard_left, told.uptime, told.rtt, told.answered, told.owing, told.warnings) == (None, None, None, 0, 0, ())
    world.run(0.5)
    up, guard, down = world.engine.status(world.now)
    assert (up.since, guard.since, down.since) == near((0.5 - 4 * TRIP, 0.5 - 4 * TRIP, 0.5 - TRIP), abs=TRIP)
    assert (up.guard_left, guard.guard_left, down.guard_left) == (None, near(29.5, abs=0.01), None)
    assert (up.uptime, guard.uptime, down.uptime) == (near(10**6 + 0.5, abs=0.01), near(3.5, abs=0.01), None)
    assert (up.rtt, guard.rtt, down.rtt) == (near(2 * TRIP), near(2 * TRIP), None)
    assert up.answered > guard.answered > 0 == down.answered
    assert (up.owing, guard.owing, down.owing) == (0, 0, 0)
    claim = world.claim()
    assert [it.owing for it in world.engine.status(world.now)] == [2, 0, 0], "a request, and a note in the registry"
    world.run(30.0)
    assert claim.state is State.HELD
    up, was_guarded, down = world.engine.status(world.now)
    assert (up.since, was_guarded.since) == near((30.5, 0.5), abs=0.05)
    assert (was_guarded.guard_left, was_guarded.uptime) == (None, near(33.5, abs=0.01))
    assert down.since > 30.0, "how often it was dialled meanwhile says nothing new"
    world.cut(0)
    assert world.engine.status(world.now)[0].uptime is None, "nobody knows whether it runs on"


def test_how_long_a_node_has_stood_like_this_begins_when_somebody_tries() -> None:
    world = World(1)
    world.nodes[0].dialled = "hangs"
    world.run(0.25)
    (told,) = world.engine.status(world.now)
    assert (told.state, told.since) == ("connecting", 0.25)


def test_the_kinds_of_the_warnings_about_each_node() -> None:
    world = World(3)
    world.nodes[0].facts = {"maxmemory_policy": "allkeys-lru"}
    world.nodes[0].facts |= {"connected_slaves": 1}
    world.nodes[1].ahead = 100.0
    world.run(0.5)
    first, second, third = world.engine.status(world.now)
    assert (first.warnings, second.warnings, third.warnings) == (("eviction", "replicas"), ("clock",), ())


# ------------------------------------------------ scripts that are used later


def loads(script: Script) -> bytes:
    return pack(b"SCRIPT", b"LOAD", script.source)


def test_a_script_is_loaded_by_every_connection_before_its_first_use_and_with_each_connection_from_then_on() -> None:
    world = World().connect()
    call = pack(b"EVALSHA", GCRA.sha, b"1", b"k")
    written = [len(it.writes) for it in world.nodes]
    query = world.engine.consult(dict.fromkeys((0, 1), call), world.now)
    world.run(0.1)
    assert (query.answers, query.causes) == ({0: 1, 1: 1}, {})
    assert world.nodes[0].writes[written[0]].startswith(loads(GCRA) + call), "in the same write"
    assert world.nodes[2].writes[written[2]].startswith(loads(GCRA)) and not world.nodes[2].called
    world.engine.consult({2: call}, world.now)
    world.run(0.1)
    assert [it.called[-1][1] for it in world.nodes] == ["gcra"] * 3
    assert b"".join(world.nodes[2].writes).count(loads(GCRA)) == 1, "once on a connection"
    world.cut(0)
    world.nodes[0].scripts.clear()  # another run of the server
    world.run(1.0)
    assert world.nodes[0].writes[1].startswith(SCRIPTS + loads(GCRA))
    assert all(loads(WINDOW) not in b"".join(it.writes) for it in world.nodes), "only what is used"


def test_the_first_use_may_come_before_any_node_is_connected_to() -> None:
    world = World()
    query = world.engine.consult(dict.fromkeys(range(3), pack(b"EVALSHA", GCRA.sha, b"1", b"k")), world.now)
    world.run(0.5)
    assert len(query.answers) == 3
    assert all(it.writes[1].startswith(SCRIPTS + loads(GCRA)) for it in world.nodes)


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


@pytest.mark.parametrize("planted", [False, True])
def test_what_was_never_loaded_would_be_taken_for_a_restart(planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if planted:
        monkeypatch.setattr(Engine, "_provide", lambda *_: None)
    world = World().connect()
    query = world.engine.consult(dict.fromkeys(range(3), pack(b"EVALSHA", GCRA.sha, b"1", b"k")), world.now)
    world.run(0.1)
    assert (len(query.answers), {it.connection for it in world.nodes}) == ((0, {2}) if planted else (3, {1}))


def test_the_verdict_on_the_nodes() -> None:
    world = World(telling=True)
    world.nodes[0].dialled = world.nodes[1].dialled = "refuses"
    early = world.engine.verdict(0.0, START)
    assert type(early) is NoQuorum and early.causes == {}
    world.run(0.5)
    verdict = world.engine.verdict(1.5, world.now)
    assert type(verdict) is NoQuorum
    assert {node: str(cause) for node, cause in verdict.causes.items()} == {"redis://n0:1": "refused 0", "redis://n1:1": "refused 1"}
    assert "could not reach 'a majority of the nodes': fewer than 2 nodes are usable" in str(verdict)
    assert "(waited 1.500 s; no majority for 0.5 s)" in str(verdict)
    world.nodes[0].dialled = "accepts"
    world.run(2.0)
    assert world.engine.verdict(1.5, world.now) is None  # a majority is enough
    world.nodes[1].dialled, world.nodes[1].facts = "accepts", {"role": "slave"}
    world.run(3.0)
    verdict = world.engine.verdict(1.5, world.now)
    assert type(verdict) is ConfigError  # but what time will not mend is told at once
    why = "it is a replica: use masters that are independent of each other"
    assert message_of(verdict) == f"these nodes cannot be used:\n  redis://n1:1: {why}"


def a_caller_that_waits_for_the_nodes_is_told_in_time() -> None:
    world = World(telling=True)
    engine = world.engine
    world.nodes[0].dialled = "hangs"
    world.nodes[1].dialled = "refuses"
    assert engine.readiness(0.0, 5.0, world.now) is None, "nobody has told anything yet"
    world.run(0.5)
    assert engine.readiness(0.5, 5.0, world.now) is None, "there is time left"
    with pytest.raises(NoQuorum, match=r"waited 0\.500 s"):
        engine.readiness(0.5, 0.5, world.now)
    world.nodes[1].dialled = "accepts"
    world.run(0.2)
    assert lines(world) == ["connecting", "up", "up"]
    assert engine.readiness(0.7, 5.0, world.now) is None, "the first one may still tell"
    late = engine.readiness(5.0, 5.0, world.now)
    assert late is not None and [it.state for it in late] == ["connecting", "up", "up"], "a majority is enough"
    world.run(2.0)
    known = engine.readiness(2.7, 5.0, world.now)
    assert known is not None and [it.state for it in known] == ["down", "up", "up"], "nobody is waited for"


def a_caller_is_told_of_a_majority_or_waits_on() -> None:
    """A thread asks while the engine's thread works: nodes come and go between two looks."""

    def asked(before: Callable[[World], object], after: Callable[[World], object]) -> tuple[NodeStatus, ...] | None:
        world = World()
        verdict = world.engine.verdict

        def meanwhile(waited: float, now: float) -> Exception | None:
            before(world)
            found = verdict(waited, now)
            after(world)
            return found

        world.engine.verdict = meanwhile  # type: ignore[method-assign]  # (that is the point)
        return world.engine.readiness(0.0, 5.0, world.now)

    come = asked(lambda world: world.run(0.5), lambda world: None)
    assert come is not None and [it.state for it in come] == ["up"] * 3
    assert asked(lambda world: world.run(0.5), lambda world: away(world, 0, 1)) is None


def a_caller_does_not_wait_for_what_time_does_not_mend() -> None:
    world = World()
    world.nodes[1].facts = {"role": "slave"}
    world.run(0.5)
    with pytest.raises(ConfigError, match="it is a replica"):
        world.engine.readiness(0.5, 5.0, world.now)


def a_caller_waits_until_the_servers_are_known() -> None:
    world = World(node_timeout=0.5)
    engine = world.engine
    world.nodes[0].dialled = world.nodes[1].dialled = "hangs"
    world.run(0.1)
    assert not engine.met(0.1, 5.0, world.now), "a majority has said nothing"
    with pytest.raises(NoQuorum):
        engine.met(5.0, 5.0, world.now)
    world = World(node_timeout=0.5)
    engine = world.engine
    world.nodes[0].dialled = "hangs"
    world.run(0.1)
    assert not engine.met(0.1, 5.0, world.now), "the first one may still tell"
    assert engine.met(0.5, 5.0, world.now), "it is waited for as long as a node may take"
    assert engine.met(0.1, 0.1, world.now), "it is waited for as long as the caller does"
    away(world, 2)
    # A majority can be used, and its servers are not known, so nothing is raised.
    engine.connections[2].run_id = ""
    assert not engine.met(0.0, 5.0, world.now)


DECISIONS: dict[str, tuple[str, str, str, Callable[[], None]]] = {
    "the time is never over": ("readiness", "late = waited >= wait", "late = False", a_caller_that_waits_for_the_nodes_is_told_in_time),
    "nobody waits": ("readiness", "late = waited >= wait", "late = True", a_caller_that_waits_for_the_nodes_is_told_in_time),
    "a node that is being dialled is not waited for": (
        "readiness",
        ' and all(it.state != "connecting" for it in status)',
        "",
        a_caller_that_waits_for_the_nodes_is_told_in_time,
    ),
    "the state is read first": (
        "readiness",
        "wrong = self.verdict(waited, now)\n",
        "early = self.status(now)\n    wrong, self.status = self.verdict(waited, now), lambda now: early\n",
        a_caller_is_told_of_a_majority_or_waits_on,
    ),
    "the verdict alone counts": (
        "readiness",
        "majorities(status)[0].spare >= 0",
        "wrong is None",
        a_caller_is_told_of_a_majority_or_waits_on,
    ),
    "a mistake is waited for": (
        "readiness",
        "(late or isinstance(wrong, ConfigError))",
        "late",
        a_caller_does_not_wait_for_what_time_does_not_mend,
    ),
    "a node is waited for too long": (
        "met",
        "min(within, self.settings.node_timeout)",
        "within",
        a_caller_waits_until_the_servers_are_known,
    ),
    "a caller waits too long": (
        "met",
        "min(within, self.settings.node_timeout)",
        "self.settings.node_timeout",
        a_caller_waits_until_the_servers_are_known,
    ),
    "it is never said what is wrong": ("met", "waited >= within and", "False and", a_caller_waits_until_the_servers_are_known),
}


@pytest.mark.parametrize("rule", dict.fromkeys(rule for *_, rule in DECISIONS.values()), ids=lambda it: it.__name__)
def test_of_waiting_for_nodes(rule: Callable[[], None]) -> None:
    rule()


@pytest.mark.parametrize("fault", DECISIONS)
def test_a_fault_in_waiting_for_nodes_is_noticed(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    name, text, other, rule = DECISIONS[fault]
    patches.method(monkeypatch, Engine, name, text, other)
    with pytest.raises((AssertionError, NoQuorum, pytest.fail.Exception)):
        rule()


# ------------------------------------------------ tickets


@pytest.mark.parametrize(
    "clocks, ticket",
    [
        ([], 0.0),
        ([-5.0], 0.0),  # (where a node has told nothing, our own clock has its voice)
        ([7.0, 1000.0], 0.0),
        ([6.0, 7.0, 7.5], 6.0),
        ([1000.0, -9000.0, 7.0], 0.0),
        ([7.0, 7.0, -9000.0, 5.0, 1000.0], 7.0),
        ([500.0, 501.0, 502.0, 503.0, 504.0], 502.0),
    ],
)
def test_tickets_follow_the_wall_clock_until_nodes_have_told_the_time_and_then_their_median(clocks: list[float], ticket: float) -> None:
    world = World(5)
    for number, node in enumerate(world.nodes):
        node.dialled = "accepts" if number < len(clocks) else "refuses"
        node.ahead = clocks[number] if number < len(clocks) else 0.0
    world.run(2.0)

    def ahead() -> float:
        return world.claim().ticket / 1e6 - WALL - (world.now - START)

    assert ahead() == near(ticket, abs=0.01)
    away(world, *range(len(clocks)))  # what they told is still known
    world.run(2.0)
    world.engine.record.epoch += 500.0  # and nobody asks our own clock any longer
    assert ahead() == near(ticket if clocks else 500.0, abs=0.01)


def test_tickets_are_strictly_increasing() -> None:
    world = World().connect()
    tickets = [world.claim().ticket for _ in range(5)]
    assert tickets == list(range(tickets[0], tickets[0] + 5))


def test_a_node_with_an_absurd_clock_does_no_lasting_harm() -> None:
    world = World(1)
    world.nodes[0].ahead = 300 * 365 * 86400.0
    world.run(0.5)
    with pytest.raises(ConfigError, match="the clocks of the nodes"):
        world.claim()
    assert world.engine.live == {}
    world.nodes[0].ahead = 0.0
    world.cut(0)
    world.run(0.5)
    assert world.claim().ticket / 1e6 == near(WALL + 1.0, abs=0.1)


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
    assert str(world.engine.status(world.now)[1].cause).startswith("it does not speak the servers' protocol")
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
    assert str(world.engine.status(world.now)[0].cause).startswith("it answers another request")


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
    assert type(world.engine.status(world.now)[0].cause) is ConfigError
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
    world.engine.excuse(world.now, 0.5)
    world.run(world.engine.node_set.patience - 0.1)
    assert lines(world) == ["up"] * 3
    world.run(0.2)
    assert lines(world)[1] != "up"


# ------------------------------------------------ what is said along


def rider(token: bytes, fence: int, ttl: float) -> bytes:
    """What a holder says."""
    return pack(b"SAYS", token, b"%d" % fence, b"%d" % round(ttl))


def speaks(world: World, **options: Any) -> Claim:
    recipe = Exclusive("a", ttl=10, horizon=world.settings.horizon).with_rider(rider)
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
    word = rider(claim.token, claim.fence, 10)
    for node in world.nodes:
        assert node.writes[-1] == word, "at once, by itself"
    world.run(4)
    for node in world.nodes:
        assert node.writes[-1].startswith(word + b"*13\r\n"), "and with the renewal, in one write"
        assert node.writes[-1].count(b"SAYS") == 1
    world.end(claim)
    for node in world.nodes:
        assert node.writes[-1].startswith(rider(claim.token, claim.fence, 0) + b"*9\r\n"), "before the release"
    world.run(10)
    assert [it for it, _ in said(world)] == ["request", "SAYS", "SAYS", "request", "SAYS", "release"]
    assert not world.engine.owing


def test_what_is_said_along_is_good_until_the_lease_ends() -> None:
    world = World().connect()
    claim = speaks(world)
    world.engine.extend(claim, 25.0, world.now)
    world.run(1)
    assert any(it.startswith(rider(claim.token, claim.fence, 25) + b"*13\r\n") for it in world.nodes[0].writes)


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
    assert world.nodes[2].writes[-1].startswith(rider(claim.token, claim.fence, 0) + b"*9\r\n")


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


CALLS = sorted(name for name, it in vars(Connection).items() if callable(it) and not name.startswith("_") and name != "renounce")


def plant(world: World, number: int, call: str, error: Exception) -> list[str]:
    """Have this call of one node's connection raise, each time. What is returned grows with each call."""
    called: list[str] = []

    def raises(*_: object) -> Any:
        called.append(call)
        raise error

    setattr(world.engine.connections[number], call, raises)
    return called


@pytest.mark.parametrize("call", CALLS)
def test_whatever_fails_at_one_connection_is_that_nodes_failure_and_leases_survive(call: str) -> None:
    world = World().connect()
    claim = world.claim(ttl=3.0)
    world.run(0.1)
    called = plant(world, 2, call, ZeroDivisionError("secret"))
    # Six calls need an occasion: a claim that is refused for its round trip, a fence that looks wrong, the first use of a script, a
    # caller that comes while too few nodes are up, a place that was asked for, and a right that is missing.
    if call == "measure":
        world.engine._measure(world.now)
    if call == "told_time":
        world.engine._check_clocks(world.now)
    if call == "learn":
        world.engine.consult({0: pack(b"EVALSHA", PERMITS.sha, b"0")}, world.now)
    if call == "forbids":
        world.engine.connections[2].lacks = {"ZSCORE": "NOPERM"}
        world.consult(2)
    if call == "hurry":
        world.engine._dial_soon(world.now)
    if call == "expected":
        world.says(2, world.engine.expected(2, b":1\r\n", world.now, world.engine.takes))
    if call == "ready":  # (a driver calls it)
        world.engine.faulted(2, world.now, ZeroDivisionError("secret"))
        called.append(call)
    if call == "placed":
        world.engine.placed(2, world.now, world.engine.connections[2].address, world.now)
    if call == "take":  # (the world has no driver of its own that could contain this: as those do)
        world.engine.faulted(2, world.now, ZeroDivisionError("secret"))
        called.append(call)
        del world.engine.connections[2].take  # (the method of the class again)
    world.run(2.0)
    world.engine.excuse(world.now, 0.5)
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


@pytest.mark.parametrize(
    "method, text, other, call",
    [
        ("_try", "except Exception as error:", "except KeyError as error:", "late"),
        ("received", "except Exception as error:", "except KeyError as error:", "received"),
        ("lost", "except Exception as error:", "except KeyError as error:", "broke"),
        ("act", "except Exception as error:", "except KeyError as error:", "say"),
    ],
)
def test_a_failure_of_a_connection_that_is_not_contained_is_seen(
    method: str, text: str, other: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patches.method(monkeypatch, Engine, method, text, other)
    with pytest.raises(ZeroDivisionError):
        test_whatever_fails_at_one_connection_is_that_nodes_failure_and_leases_survive(call)


def test_a_cause_of_ours_says_where_it_failed_and_not_what_was_said() -> None:
    world = World().connect()
    plant(world, 2, "say", KeyError("secret"))
    world.claim(ttl=3.0)
    world.run(0.01)
    cause = str(world.engine.status(world.now)[2].cause)
    assert cause.startswith("holdfast failed on this node's connection (KeyError in ")
    assert "secret" not in cause


def test_no_memory_is_called_so() -> None:
    world = World().connect()
    world.engine.lost(2, world.now, MemoryError())
    world.engine.lost(2, world.now, MemoryError())
    assert str(world.engine.status(world.now)[2].cause) == "this process has no memory left for what the node says"


def test_what_was_never_raised_has_no_place() -> None:
    world = World().connect()
    world.engine.faulted(2, world.now, ZeroDivisionError())
    assert str(world.engine.connections[2].bad) == (
        "holdfast failed on this node's connection (ZeroDivisionError); the other nodes go on. Please report this"
    )
    world.run(0.1)
    assert world.nodes[2].connection == 2, "it is connected to again"


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


def test_measures_of_long_ago_are_taken_again_before_a_node_is_given_up() -> None:
    world = World().connect()
    world.run(70.0)
    before = len(world.nodes[0].of("TIME"))
    world.engine.connections[0].ahead = (world.engine.connections[0].ahead or 0.0) + 100.0
    world.engine._judge_clocks(world.now)
    assert lines(world) == ["up"] * 3
    world.run(1.0)
    assert len(world.nodes[0].of("TIME")) == before + 1
    assert lines(world) == ["up"] * 3


def test_a_lease_that_is_held_keeps_its_ticket_when_the_clock_is_corrected() -> None:
    world = World().connect()
    claim = world.claim()
    world.run(0.5)
    ticket = claim.ticket
    world.engine._moved(3600.0, world.now)
    assert (claim.state, claim.ticket) == (State.HELD, ticket)


# ------------------------------------------------ nodes that answer and refuse

FULL = b"OOM command not allowed when used memory > 'maxmemory'."


def states(world: World) -> list[str]:
    return [it.state for it in world.engine.status(world.now)]


def test_nodes_that_refuse_writes_are_known_within_one_answer_and_until_they_accept_one() -> None:
    world = World().connect()
    for node in world.nodes:
        node.refusal = FULL
    claim = world.claim(patient=False)
    world.run(2 * TRIP)
    assert type(claim.refusal) is NoQuorum and states(world) == ["refusing"] * 3
    assert [str(it.cause) for it in world.engine.status(world.now)] == [FULL.decode()] * 3
    assert isinstance(wrong := world.engine.verdict(0.0, world.now), NoQuorum) and FULL.decode() in str(wrong)
    assert [word(it) for it in world.events] == ["refuses"] * 3
    world.run(30)
    assert len(world.events) == 3, "it is said once"
    pauses = [after - before for before, after in pairwise(world.nodes[0].probed[2:])]
    assert min(pauses) >= 0.5 and max(pauses) <= 1.0 + 4 * TRIP, "nobody asks for a lock, and it is looked for all the same"
    world.nodes[0].refusal = world.nodes[1].refusal = b""
    claim = world.claim(patient=False)
    world.run(2 * TRIP)
    assert claim.state is State.HELD and states(world) == ["up", "up", "refusing"] and world.engine.verdict(0.0, world.now) is None
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
    query = world.engine.consult(dict.fromkeys(range(3), world.engine._manners.probe), world.now)
    world.engine.heard(0, next(iter(world.engine.connections[0].ledger)), [b"SET", FULL], world.now)
    assert not query.over and isinstance(world.engine.connections[0].refusal, Exception)


def test_a_node_that_may_move_is_asked_for_and_left_when_nobody_confirms_it() -> None:
    # Rule G13.
    world = World()
    world.run(0.1)
    engine, connection, now = world.engine, world.engine.connections[0], world.now
    connection.outlives, connection.asked, connection.sure, connection.reask = 0.3, now, now + 0.3, now + 0.1
    engine._pulse = now  # (when connections are looked after next, which a connection would have set)
    engine.tick(now + 0.09)
    assert engine.ready().places == ()
    engine.tick(now + 0.1)
    assert engine.ready().places == [0]
    engine.placed(0, now + 0.15, ConnectionError("nobody knows"), now + 0.1)
    engine.tick(now + 0.29)
    assert connection.line is Line.UP
    engine.tick(now + 0.3)
    assert connection.line is Line.DOWN
    assert "for 0.3 s nobody has confirmed that it is still the node's server: nobody knows" in str(engine.node_set.causes[0])


def test_a_node_that_has_moved_is_left_at_once() -> None:
    world = World()
    world.run(0.1)
    engine, connection, now = world.engine, world.engine.connections[0], world.now
    connection.outlives, connection.asked = 15.0, now
    engine.placed(0, now + 0.1, connection.address.but(host="elsewhere"), now + 0.05)
    assert connection.line is Line.DOWN
    assert "the node has moved to elsewhere" in str(engine.node_set.causes[0])
    engine._pulse = inf
    engine.placed(1, now + 0.1, ConnectionError("nobody knows"), now)
    assert engine._pulse == now + 0.1 + engine.patience, "the node may be asked to keep its note, and be silent"


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
                assert world.engine.expected(node, data, world.now, world.engine.takes) == b""
            else:
                world.engine.received(node, data, world.now)
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
    patience = world.engine.patience
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
    assert world.engine.live == {claim.token: claim} and world.engine.patience == min(patience, ttl / 3)
    assert world.engine.next_wake() <= world.now + ttl / 3
    claim.release(world.now)
    world.engine.adopt(claim, world.now)
    assert not world.engine.live and world.engine.patience == patience
    # And not at all, if it has ended by then.
    world.engine.adopt(claim, world.now)
    assert not world.engine.live and world.engine.patience == patience


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
        world.engine.expected(1, data, world.now, world.engine.takes)
    assert world.engine.connections[1].bad is None and claim.state is State.WAITING
