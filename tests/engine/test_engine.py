"""The engine: claims and connections joined. What is said to which node and when, what is made of the answers, and what observers hear.

Everything runs in `World`: virtual time, real connections, real bytes, and nodes that say what a test wants. What can be told line by
line is a conversation: `tests/engine/engine/*.txt`.
"""

from __future__ import annotations

from math import inf

import pytest
from engine.world import ANOTHER, INBOX, TRIP, World, away, busy, granted, lines, usual

from holdfast.engine.engine import Engine
from holdfast.engine.ready import Ready
from holdfast.errors import Overtaken
from holdfast.protocol.claim import State
from holdfast.protocol.exclusive import Exclusive, undo
from holdfast.protocol.timing import Timing

# ------------------------------------------------ connecting


def test_an_engine_begins_with_nothing() -> None:
    world = World()
    fresh = Engine(world.settings, INBOX, undo)
    assert (fresh.record.telling, fresh.record.epoch, fresh.changes, fresh.owing) == (False, 0.0, 0, False)
    assert (fresh.live, fresh.ready()) == ({}, Ready(wake=-inf))
    assert fresh.claim(Exclusive("a", ttl=10, horizon=1), Timing(10.0), 5.0).ticket == 5_000_000  # (no driver has told it the wall clock)
    fresh.upkeep.connected(0, 5.0)
    assert b"LIB-VER\r\n$1\r\n0\r\n" in fresh.connections[0].take()


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


# ------------------------------------------------ what nodes say of their own accord


def releases(world: World, number: int) -> list[tuple[bytes, bytes]]:
    world.run(3 * TRIP)
    return [(it.name, it.token) for it in world.nodes[number].of("release")]


def test_a_grant_that_nobody_wants_is_given_back() -> None:
    # Rule T7.
    world = World().connect()
    world.publishes(1, b"g %b 5 a name {with} spaces %%s and \xff" % ANOTHER)
    assert world.nodes[1].writes[-1] == undo(b"a name {with} spaces %s and \xff", ANOTHER, world.settings.horizon)
    assert releases(world, 1) == [(b"a name {with} spaces %s and \xff", ANOTHER)]
    assert releases(world, 0) == releases(world, 2) == []


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


# ------------------------------------------------ a long ttl


def test_those_who_wait_for_the_mark_wait_for_one() -> None:
    world = World().connect()
    gone, *claims = (world.claim(it, ttl=20.0) for it in "abc")
    world.end(gone)
    world.run(4 * TRIP)
    assert (len(world.nodes[0].of("SET")), gone.state, [it.state for it in claims]) == (1, State.OVER, [State.HELD] * 2)
    assert [it.name for it in world.nodes[0].of("request")] == [b"b", b"c"]


def test_a_try_takes_no_longer_because_it_waits_for_the_mark() -> None:
    world = World(node_timeout=1.5).connect()
    for node in world.nodes[1:]:
        node.mute = True
    began = world.now
    claim = world.claim(ttl=12.0, patient=False)
    world.run(2.0)
    assert claim.deadline == began + 4.0
