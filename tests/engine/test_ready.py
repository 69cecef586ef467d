"""What the engine hands to a driver: nothing twice, nothing that the engine goes on to change, no new value for nothing."""

from __future__ import annotations

from math import inf
from typing import Any

from engine.world import START, TRIP, World

from holdfast.engine.ready import Ready
from holdfast.protocol.claim import State
from holdfast.protocol.exclusive import Exclusive
from holdfast.protocol.timing import Timing
from holdfast.wire.resp import pack


def test_nothing_is_to_be_done_unless_something_is_said() -> None:
    assert Ready() == ((), (), (), False, (), (), False, (), inf, True)


def begun(world: World) -> Any:
    """A claim that has begun, and whose bytes the driver has not yet been told to send."""
    claim = world.engine.claim(Exclusive("a", ttl=10.0, horizon=world.settings.horizon), Timing(10.0), world.now)
    world.engine.begin(claim, world.now)
    return claim


def test_everything_is_handed_over_once() -> None:
    world = World(telling=True)
    world.engine.tick(world.now)
    first = world.engine.ready()
    assert (list(first.dials), list(first.hangups), first.speaks) == ([0, 1, 2], [], False)
    assert world.engine.ready() == Ready(wake=first.wake)

    world = World(telling=True).connect()
    claim = begun(world)
    told = world.engine.ready()
    assert told.speaks and [type(it).__name__ for it in told.events] == ["Attempt"]
    assert (told.settled, told.queries, told.dials, told.hangups, told.changed) == ((), (), (), (), False)
    again = world.engine.ready()
    assert again == Ready(wake=told.wake) and any(connection.out for connection in world.engine.connections), (
        "the bytes are the driver's to take"
    )

    world.engine.spoke = True
    world.run(2 * TRIP)
    assert (claim.state, world.settled) == (State.HELD, [claim])
    query = world.engine.consult({0: pack(b"PING")}, world.now)
    world.engine.upkeep.lost(0, world.now, ConnectionResetError("cut"))
    told = world.engine.ready()
    assert (list(told.hangups), list(told.queries), told.changed) == ([0], [query], True)
    assert world.engine.ready() == Ready(wake=told.wake)
    world.nodes[0].linked = False
    world.engine.upkeep.lost(1, world.now, ConnectionResetError("cut"))
    assert list(world.engine.ready().hangups) == [1]
    world.nodes[1].linked = False
    world.run(2.0)
    assert (world.found, world.settled) == ([], [claim]), "and not again"


def test_what_was_handed_over_does_not_change() -> None:
    world = World(telling=True).connect()
    world.engine.spoke = True
    quiet = world.engine.ready()
    assert (quiet.events, quiet.settled, quiet.queries, quiet.hangups, quiet.dials) == ((), (), (), (), ())
    assert begun(world) and world.engine.record.events
    assert quiet.events == ()
    world.engine.ready()
    world.engine.upkeep.lost(0, world.now, ConnectionResetError("cut"))
    told = world.engine.ready()
    before = Ready(*[list(it) if isinstance(it, list) else it for it in told])
    begun(world)
    world.engine.upkeep.lost(1, world.now, ConnectionResetError("cut"))
    world.engine.upkeep.lost(2, world.now, ConnectionResetError("cut"))
    world.engine.tick(world.now + 60.0)
    assert told == before
    world.engine.ready()
    assert told == before


def test_an_idle_turn_makes_no_new_value() -> None:
    world = World().connect()
    idle = world.engine.ready()
    assert world.engine.ready() is idle
    assert idle.wake == world.engine.next_wake() > START
    world.engine.notices.due = world.now
    sooner = world.engine.ready()
    assert sooner is not idle and sooner.wake == world.engine.next_wake() < idle.wake


def test_a_connection_that_is_over_is_cut_in_the_middle_of_reading() -> None:
    world = World().connect()
    engine = world.engine
    assert not engine.upkeep.broken
    engine.upkeep.received(1, b"?nonsense\r\n", world.now)
    assert engine.upkeep.broken, "not a byte more may be read of it"
    assert list(engine.upkeep.cut()) == [1]
    assert not engine.upkeep.broken
    assert engine.ready().hangups == (), "it is handed over once"
    engine.upkeep.received(0, b"?nonsense\r\n", world.now)
    assert list(engine.upkeep.cut()) == [0]
    engine.upkeep.faulted(2, world.now, RuntimeError("it failed"))
    assert engine.upkeep.broken, "the driver asks again for what is to be done"
    assert engine.ready().wake <= world.now
    assert not engine.upkeep.broken
