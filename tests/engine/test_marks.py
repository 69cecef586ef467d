"""Marks: who has to write one, what a lease counts for without it, and which guards end early."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from engine.world import OK, TRIP, World, away, busy, lines, near, run_id

from holdfast.engine.marks import MARK
from holdfast.errors import ConfigError
from holdfast.protocol.claim import State

NEVER = b"-NOPERM this user has no permissions\r\n"
LATER = b"-BUSY Redis is busy running a script\r\n"
EVER = 10**6  # seconds


def met(*uptimes: int, **options: Any) -> World:
    """Nodes that have run for so many seconds when the client meets them."""
    world = World(len(uptimes), **options)
    for node, uptime in zip(world.nodes, uptimes, strict=True):
        node.facts = {"uptime_in_seconds": uptime}
    world.run(0.5)
    return world


def marks(world: World, number: int = 0) -> int:
    """How often a node was asked to take the mark."""
    return len(world.nodes[number].of("SET"))


def restart(world: World, number: int) -> None:
    """A node restarts empty, as another run."""
    node = world.nodes[number]
    run = 100 * node.connection + number
    node.facts, node.values, node.holders = {"uptime_in_seconds": 0, "run_id": run_id(run)}, {}, {}
    world.cut(number)
    world.run(0.5)


# ------------------------------------------------ a client that uses a long ttl (G14)


def test_a_long_ttl_waits_until_a_majority_has_the_mark_and_the_usual_one_does_not() -> None:
    # Rule G14.
    world = World().connect()
    world.claim(ttl=10.0)
    world.run(0.5)
    assert marks(world) == 0
    world.nodes[2].mute = True
    began = world.now
    claim = world.claim("b", ttl=20.0)
    assert not world.engine.calm(claim.timing, world.now)
    world.run(4 * TRIP)
    assert [it.word for it in world.nodes[0].asked[-2:]] == ["SET", "request"]
    assert claim.until == near(began + 2 * TRIP + 20.0 - 0.202)
    world.claim("c", ttl=20.0)
    assert world.engine.calm(claim.timing, world.now), "the nodes have it"
    world.run(4.9)
    assert marks(world) == 1
    world.run(0.2)
    assert marks(world) == 2, "it is written again after a sixth of max_ttl"


def test_nobody_waits_for_the_mark_for_longer_than_for_the_lock() -> None:
    world = World().connect()
    for node in world.nodes[1:]:
        node.mute = True
    claim = world.claim(ttl=20.0, deadline=world.now + 0.1)
    world.run(0.11)
    assert claim.state is State.OVER


def test_a_client_that_is_closed_does_not_wait_for_the_mark() -> None:
    world = World().connect()
    claims = [world.claim(it, ttl=20.0) for it in "ab"]
    world.engine.close(world.now)
    world._send()
    assert [it.state for it in claims] == [State.OVER] * 2
    assert set(claims) <= set(world.settled)


def test_an_extension_waits_for_the_mark_too() -> None:
    world = World().connect()
    claim = world.claim(ttl=2.0)
    world.run(0.1)
    assert world.engine.extend(claim, 20.0, world.now)
    world.run(4 * TRIP)
    assert [it.word for it in world.nodes[0].asked[-2:]] == ["SET", "request"]


@pytest.mark.parametrize("late", [False, True], ids=["refused", "late"])
def test_without_the_mark_grants_count_for_ten_seconds(late: bool) -> None:
    """An answer that is late proves nothing: a node may have lost the mark before another one took it."""
    # Rule G14.
    world = World(node_timeout=5.0).connect()
    first, *others = world.nodes
    first.mute = True
    for node in others:
        node.takes = OK if late else LATER
    claim = world.claim(ttl=20.0)
    world.run(1.5 * TRIP)
    world.says(0, OK)
    first.mute = False
    world.now += 2.5 * late  # the other answers lie unread
    world.run(4 * TRIP)
    assert claim.state is State.HELD
    assert claim.until < first.of("request")[0].at + 10.0
    for node in others:
        node.takes = OK
    world.run(2.5)
    assert claim.until > world.now + 17.0, "it was renewed when the nodes had the mark"


def test_a_permission_ends_when_no_majority_takes_the_mark() -> None:
    """Then what is asked for counts for ten seconds, and the lease goes on by what it has."""
    world = World().connect()
    claim = world.claim(ttl=30.0)
    world.run(0.5)
    for node in world.nodes:
        node.takes = LATER
    world.run(29.0)
    assert claim.state is State.HELD, "its latest renewals count for ten seconds, and one before for thirty"
    world.run(20.0)
    assert claim.state is State.LOST


def test_without_any_node_there_is_nobody_to_tell_until_one_is_up() -> None:
    world = World().connect()
    world.claim(ttl=20.0)
    world.run(0.5)
    away(world, 0, 1, 2)
    world.run(60.0)
    assert world.engine.notices.marks.due == inf
    for node in world.nodes:
        node.dialled = "accepts"
    before = marks(world)
    world.run(3.0)
    assert marks(world) > before


def test_a_user_that_may_not_write_the_mark_is_told() -> None:
    world = World().connect()
    for node in world.nodes[1:]:
        node.takes = NEVER
    claim = world.claim(ttl=20.0)
    world.run(4 * TRIP)
    assert isinstance(claim.refusal, ConfigError) and MARK.decode() in str(claim.refusal)
    assert world.nodes[0].of("request") == []


# ------------------------------------------------ a guard that ends early (G15)


def test_a_guard_ends_early_if_a_majority_of_the_others_has_no_mark() -> None:
    # Rule G15.
    world = met(5, EVER, EVER)
    world.run(7.4)
    assert (lines(world), len(world.nodes[1].of("GET"))) == (["guarded", "up", "up"], 1), "too early to ask (one GET is of the greeting)"
    world.run(0.7)
    assert lines(world) == ["up", "up", "up"]


@pytest.mark.parametrize("marked", [1, 2])
def test_a_mark_keeps_it_and_is_asked_for_again(marked: int) -> None:
    world = World()
    world.nodes[0].facts = {"uptime_in_seconds": 13}
    world.nodes[marked].values[MARK] = b"1"
    world.run(3.0)
    assert lines(world)[0] == "guarded"
    world.nodes[marked].values.clear()
    world.run(1.1)
    assert lines(world)[0] == "up"


@pytest.mark.parametrize(
    "uptimes, options",
    [
        ((13, 13, EVER), {}),
        ((13, 40, EVER), {}),  # it was used after a whole guard, and may have lost a mark
        ((13,), {}),
        ((13, EVER), {}),
        ((13, EVER, EVER), {"restart_guard": 32.0}),
        ((13, EVER, EVER), {"max_ttl": 50.0}),  # fences would be too far ahead
        ((13, EVER, EVER), {"query": "?failover=0"}),
        ((13, EVER, EVER), {"query": "?failover=5"}),
    ],
    ids=["two", "forgetful", "one node", "two nodes", "as the user says", "horizon", "failover=0", "failover"],
)
def test_a_guard_does_not_end_early(uptimes: tuple[int, ...], options: dict[str, Any]) -> None:
    # Rule G15.
    world = met(*uptimes, **options)
    world.run(15.0)
    assert lines(world)[0] == ("up" if options.get("query") == "?failover=0" else "guarded")


def test_nodes_restart_one_after_the_other() -> None:
    """A node whose own guard was a short one has every mark, and stays so on a new connection. After a whole one it may lack some."""
    # Rule G15.
    world = World().connect()
    for number in (0, 1, 2):
        restart(world, number)
        world.run(12.0)
        assert lines(world) == ["up"] * 3
        world.cut(number)
        world.run(0.5)
        assert lines(world) == ["up"] * 3
    world.nodes[1].values[MARK] = b"1"
    restart(world, 0)
    world.run(33.0)
    world.nodes[1].values.clear()
    restart(world, 1)
    world.run(20.0)
    assert lines(world) == ["up", "guarded", "up"]


def test_what_was_asked_for_an_earlier_run_ends_no_guard() -> None:
    world = met(13, EVER, EVER)
    restart(world, 0)
    world.run(12.0)
    assert lines(world)[0] == "up"
    world.run(1.0)
    restart(world, 0)
    world.run(11.4)
    for node in world.nodes[1:]:
        node.mute = True
    world.run(0.2)  # they are asked, and do not answer
    restart(world, 0)
    assert lines(world)[0] == "guarded"


# ------------------------------------------------ fences after it (F12)


def test_fences_are_above_all_that_a_node_can_have_forgotten() -> None:
    # Rule F12.
    world = met(13, EVER, EVER)
    floor = world.engine.node_set.floor
    assert floor == near((world.engine.health.clock + world.now + 12.0) * 1e6, abs=1e6)
    claim = world.claim()
    world.run(0.1)
    assert claim.fence == floor + 1
    world.run(20.0)
    later = world.claim("b")
    world.run(0.1)
    assert later.fence == later.ticket


def test_a_waiter_hears_of_the_floor_when_the_node_is_used() -> None:
    world = met(12, EVER, EVER)
    busy(world)
    claim = world.claim()
    world.run(2.0)
    floor = world.engine.node_set.floor
    assert (lines(world)[0], world.nodes[0].of("request")[0].fence) == ("up", floor + 1)
    assert claim.ticket < floor


@pytest.mark.parametrize("ahead, early", [(3.9, True), (4.1, False)])
def test_a_guard_does_not_end_early_where_clocks_are_far_apart(ahead: float, early: bool) -> None:
    # Rule F12.
    world = World()
    world.nodes[0].facts, world.nodes[0].ahead = {"uptime_in_seconds": 13}, ahead
    world.run(1.0)
    assert (lines(world)[0] == "up") is early
