"""A simulation of several shards, and clients that name only some of its nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from holdfast.aio import Holdfast
from holdfast.errors import ConfigError, HoldfastError
from holdfast.testing.simulation import Simulation
from holdfast.testing.world import Violation

pytestmark = pytest.mark.worlds

SETS = {"eu": 3, "us": 5}
NAMES = [f"user:{number}" for number in range(12)]
QUICK: dict[str, Any] = {"ttl": 1.0, "max_ttl": 2.0, "outage": 0.5}


def of_sets(simulation: Simulation) -> dict[str, list[str]]:
    """Which of the names live on which set: where their keys are."""
    found: dict[str, list[str]] = {name: [] for name in simulation.nodes_of}
    for shard, nodes in simulation.nodes_of.items():
        found[shard] = [name for name in NAMES if any(it.holder(name.encode()) for it in nodes)]
    return found


# ------------------------------------------------ several sets


def test_names_are_spread_over_the_sets_and_each_set_is_watched() -> None:
    simulation = Simulation(shards=SETS, max_ttl=2.0)
    assert [len(simulation.nodes_of[it]) for it in SETS] == [3, 5]
    assert len(simulation.nodes) == len(set(simulation.urls)) == 8
    assert [*simulation.shards["eu"], *simulation.shards["us"]] == list(simulation.urls)

    async def main() -> dict[str, list[str]]:
        async with simulation.client(**QUICK) as locks:
            leases = [await locks.lock(name).acquire() for name in NAMES]
            found = of_sets(simulation)
            for lease in leases:
                await lease.release()
            return found

    found = simulation.run(main())
    assert all(found.values())
    assert sorted(found["eu"] + found["us"]) == sorted(NAMES)
    for it in simulation.laws_of.values():
        assert all(it.looked[law] for law in ("exclusion", "majority", "zombie", "no expiry"))


def moves(seed: int, storm: bool = True, change: tuple[range, range] | None = None) -> tuple[Simulation, list[int]]:
    """One client knows the old list, one the new list, one both. The first ends before the second begins.

    `change`: the old and the new list are about nodes of one set.
    """
    if change:
        simulation = Simulation(max(*change[0], *change[1]) + 1, seed=seed, max_ttl=2.0)
        old, new = ({"nodes": list(it)} for it in change)
        between = {**new, "previous": [simulation.urls[it] for it in change[0]]}
    else:
        simulation = Simulation(shards={"old": 3, "new": 3}, seed=seed, max_ttl=2.0)
        old, new = ({"shards": {it: simulation.shards[it]}} for it in ("old", "new"))
        between = {**new, "previous": old["shards"]}
    inside, fences = [0], []

    async def adds(seconds: float, **lists: Any) -> None:
        end = simulation.now + seconds
        async with simulation.client(**{**QUICK, "outage": 30.0, **lists}) as locks:
            while simulation.now < end:
                try:
                    async with locks.lock("register") as lease:
                        assert not inside[0], "two are inside"
                        inside[0] += 1
                        try:
                            await asyncio.sleep(0.05)
                        finally:
                            inside[0] -= 1
                        lease.check()
                        fences.append(lease.fence)
                except HoldfastError:
                    pass  # the storm has its way: what counts is that nobody else is inside
                await asyncio.sleep(0.1)

    async def main() -> None:
        if storm:
            simulation.storm(faults=1.0)
        both = asyncio.create_task(adds(12.0, **between))
        await adds(5.0, **old)
        await asyncio.sleep(1.0)
        await adds(5.0, **new)
        await both
        simulation.calm()

    simulation.run(main())
    return simulation, fences


@pytest.mark.parametrize("seed", range(4))
def test_names_move_from_one_set_to_another_in_a_storm(seed: int) -> None:
    simulation, fences = moves(seed)
    assert len(fences) > 20
    assert fences == sorted(set(fences))
    assert all(laws.looked["exclusion"] > 5 for laws in simulation.laws_of.values())


CHANGES = {"1 to 3": (range(1), range(3)), "3 to 5": (range(3), range(5)), "one of five": (range(5), range(1, 6))}


@pytest.mark.parametrize("change", CHANGES)
def test_some_nodes_are_replaced_in_a_storm(change: str) -> None:
    simulation, fences = moves(0, change=CHANGES[change])
    assert len(fences) > 20
    assert fences == sorted(set(fences))
    assert simulation.laws.looked["exclusion"] > 5


def test_each_set_has_a_storm_of_its_own_and_the_same_seed_is_the_same_history() -> None:
    (one, _), (again, _) = moves(1), moves(1)
    assert one.timeline() == again.timeline()
    assert one.world.fingerprint() == again.world.fingerprint()
    for nodes in one.nodes_of.values():
        assert any(str(node) in line and "clock" in line for node in nodes for line in one.timeline().splitlines())


# ------------------------------------------------ clients that name some of the nodes


def holds(simulation: Simulation, *lists: Any, frozen: Sequence[int] = ()) -> Coroutine[Any, Any, list[int]]:
    """A client for each list takes the same lock, three times."""
    fences: list[int] = []

    async def takes(locks: Holdfast) -> None:
        async with locks:
            for _ in range(3):
                async with locks.lock("register") as lease:
                    await asyncio.sleep(0.1)
                    fences.append(lease.fence)

    async def main() -> list[int]:
        for node in frozen:
            simulation.nodes[node].freeze(60)
        await asyncio.gather(*[takes(simulation.client(nodes=nodes, **QUICK)) for nodes in lists])
        return fences

    return main()


@pytest.mark.parametrize(
    "count, lists",
    [(3, [[0, 1], [0, 1, 2]]), (5, [[4, 2, 1], [1, 2, 4]]), (5, [[0, 1, 2, 3], [1, 2, 3, 4]]), (3, [[2], [2]])],
)
def test_clients_whose_majorities_meet_exclude_each_other(count: int, lists: list[list[int]]) -> None:
    simulation = Simulation(count, max_ttl=2.0)
    fences = simulation.run(holds(simulation, *lists))
    assert len(fences) == len(set(fences)) == 6
    assert simulation.laws.looked["majority"]


UNSAFE: list[tuple[int, list[list[int]], list[int]]] = [
    (5, [[0, 1, 2], [2, 3, 4]], []),
    (3, [[0], [0, 1, 2]], []),
    (5, [[0, 1, 2], [0, 1, 2, 3, 4]], [2]),  # nobody else gets the lock here, but could
]


@pytest.mark.parametrize("count, lists, frozen", UNSAFE)
def test_clients_whose_majorities_need_not_meet_are_noticed(count: int, lists: Any, frozen: list[int]) -> None:
    simulation = Simulation(count, max_ttl=2.0)
    with pytest.raises(Violation, match=r"^(majority|exclusion): "):
        simulation.run(holds(simulation, *lists, frozen=frozen))


def test_a_list_that_nobody_has_any_more_is_no_danger() -> None:
    simulation = Simulation(5, max_ttl=2.0)

    async def main() -> None:
        await holds(simulation, [2, 3, 4])
        await holds(simulation, [0, 1, 2])

    simulation.run(main())


def test_a_client_that_names_some_nodes_speaks_to_no_other() -> None:
    simulation = Simulation(5)

    async def main() -> list[str]:
        async with simulation.client([3, 1]) as locks, locks.lock("a"):
            await asyncio.sleep(0.1)
            return [node.node for node in locks.nodes()]

    assert simulation.run(main()) == [simulation.urls[3], simulation.urls[1]]
    assert [bool(it.server.calls) for it in simulation.nodes] == [False, True, False, True, False]


# ------------------------------------------------ what cannot be


@pytest.mark.parametrize(
    "options, match",
    [
        ({"nodes": 0}, "at least one node, not 0"),
        ({"nodes": True}, "at least one node, not True"),
        ({"nodes": 3, "shards": SETS}, "leave nodes out"),
        ({"shards": {}}, "shards is empty"),
        ({"shards": {"a": 3, "b": 0}}, "at least one node, not 0"),
        ({"shards": {"a": 200, "b": 200}}, "at most 250 nodes, not 400"),
    ],
)
def test_a_world_that_cannot_be_is_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Simulation(**options)


@pytest.mark.parametrize("nodes", [[], [3], [-1], ["a"]])
def test_a_client_that_names_no_such_node_is_refused(nodes: list[Any]) -> None:
    with pytest.raises(ConfigError, match="from 0 to 2"):
        Simulation().client(nodes)


def test_numbers_of_nodes_are_for_one_set() -> None:
    with pytest.raises(ConfigError, match=r"simulation\.shards"):
        Simulation(shards=SETS).client([0])
