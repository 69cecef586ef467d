"""Questions that no caller waits for: what is asked when, and what is made of the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from engine.world import START, TRIP, World, lines, noted, semaphore, warnings
from proof.books import word

from holdfast.engine.notices import JOBS, REST, RESTING, Job
from holdfast.protocol.claim import State
from holdfast.wire.resp import pack

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
    world.engine.notices.keeps("once", world.now)
    assert asked_for_persistence(world) == 0, "what the client is about to do comes first"
    world.run(2.0)
    assert persisting(world) == ["n0", "n2"]
    assert "this client uses once there" in next(it.warning for it in world.events if word(it) == "warned")
    assert world.engine.notices.lasting
    world.engine.notices.keeps("rate", world.now)
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
    world.engine.notices.keeps("once", world.now)
    world.run(20.0)
    world.nodes[0].facts = {"aof_enabled": 0, "run_id": "f" * 40}
    world.cut(0)
    world.run(20.0)
    assert persisting(world) == ["n0"]


def test_a_client_of_locks_alone_is_not_warned_and_asks_nothing() -> None:
    world = World().connect()
    world.claim()
    world.run(2.0)
    assert persisting(world) == []
    assert asked_for_persistence(world) == 0
    assert not world.engine.notices.lasting


# ------------------------------------------------ jobs


def job(told: list[Any], queries: int = 2, nodes: tuple[int, ...] = (0, 1, 2)) -> Job:
    """Asks all nodes for a word, one query after the other."""
    for _ in range(queries):
        told.append((yield dict.fromkeys(nodes, pack(b"PING"))))
    told.append("done")
    return None


def test_the_same_job_is_not_run_again_at_once() -> None:
    world, told = World().connect(), list[Any]()
    for _ in range(3):
        world.engine.notices.run(b"a", job(told, 0), world.now)
    world.engine.notices.run(b"b", job(told, 0), world.now)
    assert told == ["done"] * 2
    world.run(REST)
    world.engine.notices.run(b"a", job(told, 0), world.now)
    assert told == ["done"] * 3


def test_only_so_many_jobs_are_run_at_a_time() -> None:
    world, told = World().connect(), list[Any]()
    for number in range(JOBS + 3):
        world.engine.notices.run(b"%d" % number, job(told), world.now)
    world.run(1.0)
    assert told.count("done") == JOBS
    world.engine.notices.run(b"one more", job(told), world.now)
    world.run(1.0)
    assert told.count("done") == JOBS + 1


def test_only_so_many_rests_are_remembered() -> None:
    world, told = World().connect(), list[Any]()
    for number in range(RESTING + 1):
        world.engine.notices.run(b"%d" % number, job(told, 0), world.now)
    world.engine.notices.run(b"%d" % RESTING, job(told, 0), world.now)
    assert len(told) == RESTING + 1
    world.engine.notices.run(b"0", job(told, 0), world.now)
    assert len(told) == RESTING + 2


def test_a_job_that_fails_harms_nobody_and_is_told() -> None:
    world, told = World().connect(), list[Any]()

    def fails() -> Job:
        yield {0: pack(b"PING")}
        raise KeyError("secret")

    claim = world.claim()
    world.engine.notices.run(b"a", fails(), world.now)
    world.engine.notices.run(b"b", job(told), world.now)
    world.run(30.0)
    assert told[-1] == "done"
    assert claim.state is State.HELD
    [warned] = [it for it in world.events if word(it) == "warned"]
    assert "KeyError" in warned.warning
    assert "secret" not in warned.warning


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
    assert (world.engine.queries, world.found) == ({}, [])
    assert warnings(world) == []


def test_another_size_is_warned_of_once() -> None:
    # Rule P9.
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
    assert [it.differences for it in one.engine.health.status(one.now)] == [()] * 3
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
            assert words in world.engine.health.status(world.now)[0].differences[0]
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


def test_an_engine_that_is_closed_registers_no_more() -> None:
    world = World().connect()
    world.run(1.0)
    world.engine.close(world.now)
    world.run(500.0)
    assert [len(node.noted) for node in world.nodes] == [1] * 3


def test_an_engine_that_only_looks_registers_nowhere() -> None:
    world = World()
    world.engine.notices.registers = False
    world.consult(0, 1, 2)
    world.run(100.0)
    assert [len(node.noted) for node in world.nodes] == [0] * 3


