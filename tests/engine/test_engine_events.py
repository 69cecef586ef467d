"""The engine: what it tells, jobs, several names, queries, and holders of another kind."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from engine.world import TRIP, WALL, World, away, busy, denied, granted, lines, near, rests, timers, usual, warnings

from holdfast import events
from holdfast.protocol.claim import State
from holdfast.protocol.semaphore import Slots
from holdfast.protocol.timing import Timing

# ------------------------------------------------ events


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


# ------------------------------------------------ queries


def test_a_round_is_one_question_to_each_node() -> None:
    world = World().connect()
    query = world.consult(0, 1, 2)
    world.run(2 * TRIP)
    assert (world.found, query.sufficient, query.answers, query.causes) == ([query], True, dict.fromkeys(range(3), b"OK"), {})
    assert [len(node.of("PING")) for node in world.nodes] == [1, 1, 1]
    world.run(50.0)
    assert (world.found, world.engine.queries, timers(world), rests(world)) == ([query], {}, 0, True)


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


# ------------------------------------------------ holders of another kind


def test_the_release_of_a_foreign_holder_is_noticed_at_once() -> None:
    # Rule Q14.
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
