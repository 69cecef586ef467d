"""What an engine knows of its nodes: how each stands, its clock, and of what observers and operators are warned.

What can be told line by line is a conversation: `tests/engine/health/*.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from engine.world import START, TRIP, WALL, World, away, granted, lines, near, run_id, warnings
from proof.books import word

from holdfast.engine.health import RECHECK
from holdfast.engine.status import NodeStatus
from holdfast.errors import ConfigError, NoQuorum
from holdfast.protocol.claim import State
from holdfast.protocol.semaphore import Slots
from holdfast.protocol.timing import Timing
from holdfast.wire.address import parse
from holdfast.wire.connection import ConnectionState

# ------------------------------------------------ a server that was promoted


PROMOTED = {"master_replid": "c" * 40, "master_replid2": "d" * 40, "second_repl_offset": 277}


def test_a_promoted_server_is_guarded_once_and_says_why() -> None:
    world = World(prefix="app:")
    world.nodes[0].facts = dict(PROMOTED)
    world.run(1.0)
    assert lines(world) == ["guarded", "up", "up"]
    cause = str(world.engine.health.status(world.now)[0].cause)
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


# ------------------------------------------------ events


def test_a_node_down_without_a_cause_is_one_all_the_same() -> None:
    world = World()
    world.engine.upkeep.lost(0, START, None)  # type: ignore[arg-type]  # (the mistake)
    assert [str(it.cause) for it in world.engine.record.events if word(it) == "down"] == ["no connection"]


# ------------------------------------------------ jobs


def test_which_nodes_have_been_repaired() -> None:
    world = World().connect()
    assert [it.repaired for it in world.engine.health.status(world.now)] == [None] * 3
    world.engine.health.repaired({run_id(0): True, run_id(1): False, "another run": True})
    assert [it.repaired for it in world.engine.health.status(world.now)] == [True, False, None]


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


def greeted_late(off: float, late: float) -> World:
    """Three nodes, of which one has another clock, have answered the greeting, and the answers lie unread for so many seconds."""
    world = World(3)
    world.nodes[0].ahead = off
    world.run(2.5 * TRIP)
    assert {connection.state for connection in world.engine.connections} == {ConnectionState.GREETING}
    world.now += late
    world.engine.upkeep.excuse(world.now, late)
    world.run(1.0)
    return world


@pytest.mark.parametrize("off", [-12.5, 12.5])
@pytest.mark.parametrize("late", [1.0, 7.0, 18.0, 25.0, 60.0])
def test_an_answer_that_lay_unread_makes_no_clock_right(late: float, off: float) -> None:
    """In the middle between asking and reading, the node's clock was where ours was. Rule F4."""
    world = greeted_late(off, late)
    assert lines(world) == ["down", "up", "up"]
    assert "not used: its clock is" in str(world.engine.health.status(world.now)[0].cause)


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


def test_only_a_node_that_is_connected_is_given_up_for_its_clock() -> None:
    world = World(3)
    world.nodes[0].ahead = 9.0
    world.run(0.3)
    world.nodes[0].dialled = "refuses"
    world.run(3.0)
    told = world.engine.health.status(world.now)[0].cause
    assert "its clock" not in str(told)
    world.engine.health._judge_clocks(world.now)
    assert world.engine.health.status(world.now)[0].cause is told


def test_a_client_that_is_in_use_asks_for_the_clocks_every_twenty_minutes() -> None:
    world = World().connect()
    asked = [len(world.nodes[0].of("TIME"))]
    for seconds in (0.0, RECHECK, 60.0, RECHECK):
        world.run(seconds)
        world.end(world.claim())
        world.run(0.1)
        asked.append(len(world.nodes[0].of("TIME")))
    assert asked == [1, 1, 2, 2, 3]
    world.nodes[1].ahead = -20.0
    world.run(RECHECK)
    world.claim()
    world.run(2.0)
    assert lines(world) == ["up", "down", "up"], "a clock that was set meanwhile is found out"


# ------------------------------------------------ what callers want


def test_the_status_of_each_node() -> None:
    world = World(4)
    world.nodes[0].facts = {"redis_version": "7.2.4", "valkey_version": "9.1.2", "run_id": "one"}
    world.nodes[0].ahead = 2.5
    world.nodes[1].facts = {"uptime_in_seconds": 3}
    world.nodes[2].dialled = "refuses"
    world.nodes[3].dialled = "hangs"
    assert [it.version for it in world.engine.health.status(START)] == [""] * 4
    world.run(0.5)
    up, guard, down, hoped = world.engine.health.status(world.now)
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
    for told in world.engine.health.status(START + 5.0):
        assert (told.state, told.since) == ("connecting", 0.0), "nobody has tried to connect"
        assert (told.guard_left, told.uptime, told.rtt, told.answered, told.owing, told.warnings) == (None, None, None, 0, 0, ())
    world.run(0.5)
    up, guard, down = world.engine.health.status(world.now)
    assert (up.since, guard.since, down.since) == near((0.5 - 4 * TRIP, 0.5 - 4 * TRIP, 0.5 - TRIP), abs=TRIP)
    assert (up.guard_left, guard.guard_left, down.guard_left) == (None, near(29.5, abs=0.01), None)
    assert (up.uptime, guard.uptime, down.uptime) == (near(10**6 + 0.5, abs=0.01), near(3.5, abs=0.01), None)
    assert (up.rtt, guard.rtt, down.rtt) == (near(2 * TRIP), near(2 * TRIP), None)
    assert up.answered > guard.answered > 0 == down.answered
    assert (up.owing, guard.owing, down.owing) == (0, 0, 0)
    claim = world.claim()
    assert [it.owing for it in world.engine.health.status(world.now)] == [2, 0, 0], "a request, and a note in the registry"
    world.run(30.0)
    assert claim.state is State.HELD
    up, was_guarded, down = world.engine.health.status(world.now)
    assert (up.since, was_guarded.since) == near((30.5, 0.5), abs=0.05)
    assert (was_guarded.guard_left, was_guarded.uptime) == (None, near(33.5, abs=0.01))
    assert down.since > 30.0, "how often it was dialled meanwhile says nothing new"
    world.cut(0)
    assert world.engine.health.status(world.now)[0].uptime is None, "nobody knows whether it runs on"


def test_how_long_a_node_has_stood_like_this_begins_when_somebody_tries() -> None:
    world = World(1)
    world.nodes[0].dialled = "hangs"
    world.run(0.25)
    (told,) = world.engine.health.status(world.now)
    assert (told.state, told.since) == ("connecting", 0.25)


def test_the_kinds_of_the_warnings_about_each_node() -> None:
    world = World(3)
    world.nodes[0].facts = {"maxmemory_policy": "allkeys-lru"}
    world.nodes[0].facts |= {"connected_slaves": 1}
    world.nodes[1].ahead = 100.0
    world.run(0.5)
    first, second, third = world.engine.health.status(world.now)
    assert (first.warnings, second.warnings, third.warnings) == (("eviction", "replicas"), ("clock",), ())


# ------------------------------------------------ scripts that are used later


def test_a_caller_that_waits_for_the_nodes_is_told_in_time() -> None:
    world = World(telling=True)
    engine = world.engine
    world.nodes[0].dialled = "hangs"
    world.nodes[1].dialled = "refuses"
    assert engine.health.readiness(0.0, 5.0, world.now) is None, "nobody has told anything yet"
    world.run(0.5)
    assert engine.health.readiness(0.5, 5.0, world.now) is None, "there is time left"
    with pytest.raises(NoQuorum, match=r"waited 0\.500 s"):
        engine.health.readiness(0.5, 0.5, world.now)
    world.nodes[1].dialled = "accepts"
    world.run(0.2)
    assert lines(world) == ["connecting", "up", "up"]
    assert engine.health.readiness(0.7, 5.0, world.now) is None, "the first one may still tell"
    late = engine.health.readiness(5.0, 5.0, world.now)
    assert late is not None and [it.state for it in late] == ["connecting", "up", "up"], "a majority is enough"
    world.run(2.0)
    known = engine.health.readiness(2.7, 5.0, world.now)
    assert known is not None and [it.state for it in known] == ["down", "up", "up"], "nobody is waited for"


def test_a_caller_is_told_of_a_majority_or_waits_on() -> None:
    """A thread asks while the engine's thread works: nodes come and go between two looks."""

    def asked(before: Callable[[World], object], after: Callable[[World], object]) -> tuple[NodeStatus, ...] | None:
        world = World()
        verdict = world.engine.health.verdict

        def meanwhile(waited: float, now: float) -> Exception | None:
            before(world)
            found = verdict(waited, now)
            after(world)
            return found

        world.engine.health.verdict = meanwhile  # type: ignore[method-assign]  # (that is the point)
        return world.engine.health.readiness(0.0, 5.0, world.now)

    come = asked(lambda world: world.run(0.5), lambda world: None)
    assert come is not None and [it.state for it in come] == ["up"] * 3
    assert asked(lambda world: world.run(0.5), lambda world: away(world, 0, 1)) is None


def test_a_caller_does_not_wait_for_what_time_does_not_mend() -> None:
    world = World()
    world.nodes[1].facts = {"role": "slave"}
    world.run(0.5)
    with pytest.raises(ConfigError, match="it is a replica"):
        world.engine.health.readiness(0.5, 5.0, world.now)


def test_a_caller_waits_until_the_servers_are_known() -> None:
    world = World(node_timeout=0.5)
    engine = world.engine
    world.nodes[0].dialled = world.nodes[1].dialled = "hangs"
    world.run(0.1)
    assert not engine.health.met(0.1, 5.0, world.now), "a majority has said nothing"
    with pytest.raises(NoQuorum):
        engine.health.met(5.0, 5.0, world.now)
    world = World(node_timeout=0.5)
    engine = world.engine
    world.nodes[0].dialled = "hangs"
    world.run(0.1)
    assert not engine.health.met(0.1, 5.0, world.now), "the first one may still tell"
    assert engine.health.met(0.5, 5.0, world.now), "it is waited for as long as a node may take"
    assert engine.health.met(0.1, 0.1, world.now), "it is waited for as long as the caller does"
    away(world, 2)
    # A majority can be used, and its servers are not known, so nothing is raised.
    engine.connections[2].server.run_id = ""
    assert not engine.health.met(0.0, 5.0, world.now)


# ------------------------------------------------ tickets


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


# ------------------------------------------------ what fails at one connection


def test_measures_of_long_ago_are_taken_again_before_a_node_is_given_up() -> None:
    world = World().connect()
    world.run(70.0)
    before = len(world.nodes[0].of("TIME"))
    world.engine.connections[0].server.ahead = (world.engine.connections[0].server.ahead or 0.0) + 100.0
    world.engine.health._judge_clocks(world.now)
    assert lines(world) == ["up"] * 3
    world.run(1.0)
    assert len(world.nodes[0].of("TIME")) == before + 1
    assert lines(world) == ["up"] * 3
