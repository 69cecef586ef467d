"""The list of nodes is changed, and some nodes stay: clients know the former list, then both, then the next one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face
from contract.test_fills import Work
from contract.test_once import Job, result, run
from contract.test_shards import Rollout, Some

from holdfast.engine.status import majorities
from holdfast.errors import LockBusy, NoQuorum


def change(face: Face, nodes: Any, name: str, former: slice, following: slice, **options: Any) -> Rollout:
    """Clients of a change from some of these nodes to others."""
    before: dict[str, Cluster] = {"one": Some(nodes.nodes, former)}
    return Rollout(face, before, {"one": Some(nodes.nodes, following)}, name, **options)


CHANGES = {"1 to 3": (slice(1), slice(3)), "3 to 5": (slice(3), slice(5)), "one of three": (slice(3), slice(1, 4))}


@pytest.mark.parametrize("which", CHANGES)
async def test_whoever_knows_both_lists_excludes_all_others(face: Face, five: Cluster, name: str, which: str) -> None:
    # Rule SH5.
    clients = change(face, five, name, *CHANGES[which])
    await clients.ready()
    for one, other in ((clients.both, clients.old), (clients.both, clients.new), (clients.old, clients.both), (clients.new, clients.both)):
        lease = await face.acquire(one.lock(name))
        with pytest.raises(LockBusy):
            await face.acquire(other.lock(name, wait=0.1))
        assert (await face.call(clients.both.inspect, name)).holder == lease.token
        waiter = asyncio.create_task(face.acquire(other.lock(name, wait=10)))
        await face.until(lambda: sum(five.waiters(name)) > 0)
        await face.release(lease)
        after = await waiter
        assert after.fence > lease.fence
        await face.release(after, confirm=True)
    fences = [await clients.fence(it) for it in (clients.old, clients.both, clients.both, clients.new, clients.both, clients.old)]
    assert fences == sorted(set(fences))


async def test_both_lists_need_a_majority(face: Face, name: str) -> None:
    # Rule SH5.
    async with face.nodes(4) as nodes:
        clients = change(face, nodes, name, slice(3), slice(1, 4), ttl=0.5, max_ttl=1, outage=0.2)
        await clients.ready()
        await nodes.kill(0)
        await clients.fence(clients.both)
        await nodes.kill(1)
        await face.until(lambda: [it.spare for it in majorities(clients.both.nodes())] == [-1])
        with pytest.raises(NoQuorum, match="too few nodes of the former or the new list are usable"):
            await face.acquire(clients.both.lock(name, wait=10))


async def test_who_knows_only_the_former_list_is_a_straggler(face: Face, name: str) -> None:
    async with face.nodes(3) as nodes:
        clients = change(face, nodes, name, slice(1), slice(3))
        await clients.ready()
        for client in (clients.old, clients.both, clients.new):
            await clients.fence(client)
        for node in await face.ready(clients.both):
            assert [it.owner for it in node.stragglers] == ["old"] * (node.node in clients.old.urls)
            assert not node.differences
        for node in await face.ready(clients.new):
            assert ("old" in str(node.differences)) == (node.node in clients.old.urls)
            assert "both" not in str(node.differences)


async def test_a_leader_is_known_on_both_lists(face: Face, five: Cluster, name: str) -> None:
    clients = change(face, five, name, slice(3), slice(1, 4))
    for leader, those in ("both", ("old", "both", "new")), ("old", ("old", "both")):
        leads = await face.acquire(vars(clients)[leader].election(name, value=leader))
        for it in those:
            election = vars(clients)[it].election(name, wait=0)
            assert (await face.call(election.leader)).value == leader
            with pytest.raises(LockBusy):
                await face.acquire(election)
        await face.release(leads, confirm=True)


async def test_what_is_kept_and_counted_is_so_on_both_lists(face: Face, five: Cluster, name: str) -> None:
    # Rule O14.
    clients, job, work = change(face, five, name, slice(3), slice(1, 4)), Job(face), Work(face)
    users = clients.old, clients.both, clients.new
    old, joint, new = (it.latch(name, 2) for it in users)
    assert [await face.call(it.arrive, "a") for it in (old, joint)] == [1, 1]
    assert [await face.call(it.arrived) for it in (old, joint, new)] == [1, 1, 1]
    assert await face.call(old.arrive, "b") == 2
    assert [await face.call(it.is_open) for it in (old, joint, new)] == [True, True, True]
    taken = [bool(await face.call(it.rate(name, 2, 60.0).take)) for it in (clients.old, clients.both, clients.both, clients.old)]
    assert taken == [True, True, False, False]
    assert [await run(face, it.once(name, keep=60), job) for it in users] == ["done"] * 3
    assert job.runs == 1
    fills = [it.fill(name, 60, work.compute) for it in users]
    assert (await face.call(fills[0].get)).value == 1
    await face.until(lambda: all(five.everywhere("EXISTS", f"{{{name}[fill]}}:cache")[:3]))
    assert [(await face.call(it.get)).value for it in fills] == [1] * 3
    await face.call(fills[1].invalidate)
    assert (await face.call(fills[0].get)).value == 2


async def test_what_one_list_says_is_not_enough_for_a_latch_or_a_leader(face: Face, name: str) -> None:
    async with face.nodes(3) as nodes:
        clients = change(face, nodes, name, slice(1), slice(3))
        await clients.ready()
        leads = await face.acquire(clients.new.election(name, value="new"))
        for _ in range(2):
            # A client of the former list does not see less than one of both, which writes back what it reads.
            assert nodes.ask(0, "DEL", f"{{{name}[election]}}:leader") == 1
            assert (await face.call(clients.both.election(name).leader)).value == "new"
            assert (await face.call(clients.old.election(name).leader)).value == "new"
        await face.release(leads, confirm=True)
        await nodes.kill(0)
        for ask in (clients.both.latch(name, 2).arrive, clients.both.latch(name, 2).is_open, clients.both.election(name).leader):
            with pytest.raises(NoQuorum):
                await face.call(ask)


async def test_what_is_kept_is_repaired_before_the_former_list_is_left(face: Face, name: str) -> None:
    async with face.nodes(3) as nodes:
        clients = change(face, nodes, name, slice(1), slice(3))
        await clients.ready()
        await run(face, clients.old.once(name, keep=60), Job(face))
        assert (await face.call(clients.both.repair, 0)).mended == 2
        await nodes.kill(0)
        assert (await result(face, clients.new.once(name, keep=60))).value == "done"
