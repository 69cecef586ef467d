"""The list of nodes is changed, and some nodes stay: clients know the former list, then both, then the next one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face
from contract.test_fills import Work
from contract.test_once import Job, result, run
from contract.test_shards import Some

from holdfast.engine.status import majorities
from holdfast.errors import LockBusy, NoQuorum


def part(nodes: Any, which: slice) -> Any:
    """Some of these nodes."""
    return Some(nodes.nodes, which)


class Change:
    """Clients of before, in between, and of afterwards."""

    def __init__(self, face: Face, nodes: Any, former: slice, following: slice, **options: Any) -> None:
        self.face = face
        before, after = ({"one": part(nodes, it)} for it in (former, following))
        self.old = face.spread(before, owner="old", **options)
        self.joint = face.spread(after, before, owner="joint", **options)
        self.new = face.spread(after, owner="new", **options)

    async def ready(self) -> None:
        for client in (self.old, self.joint, self.new):
            await self.face.ready(client)

    async def fence(self, client: Any, name: str) -> int:
        lease = await self.face.acquire(client.lock(name, wait=10))
        fence: int = lease.fence
        await self.face.release(lease, confirm=True)
        return fence


CHANGES = {"1 to 3": (slice(1), slice(3)), "3 to 5": (slice(3), slice(5)), "one of three": (slice(3), slice(1, 4))}


@pytest.mark.parametrize("which", CHANGES)
async def test_whoever_knows_both_lists_excludes_all_others(face: Face, five: Cluster, name: str, which: str) -> None:
    # Rule SH5.
    change = Change(face, five, *CHANGES[which])
    await change.ready()
    for one, other in ((change.joint, change.old), (change.joint, change.new), (change.old, change.joint), (change.new, change.joint)):
        lease = await face.acquire(one.lock(name))
        with pytest.raises(LockBusy):
            await face.acquire(other.lock(name, wait=0.1))
        assert (await face.call(change.joint.inspect, name)).holder == lease.token
        waiter = asyncio.create_task(face.acquire(other.lock(name, wait=10)))
        await face.until(lambda: sum(five.waiters(name)) > 0)
        await face.release(lease)
        after = await waiter
        assert after.fence > lease.fence
        await face.release(after, confirm=True)
    fences = [await change.fence(it, name) for it in (change.old, change.joint, change.joint, change.new, change.joint, change.old)]
    assert fences == sorted(set(fences))


async def test_both_lists_need_a_majority(face: Face, name: str) -> None:
    async with face.nodes(4) as nodes:
        change = Change(face, nodes, slice(3), slice(1, 4), ttl=0.5, max_ttl=1, outage=0.2)
        await change.ready()
        await nodes.kill(0)
        await change.fence(change.joint, name)
        await nodes.kill(1)
        await face.until(lambda: [it.spare for it in majorities(change.joint.nodes())] == [-1])
        with pytest.raises(NoQuorum, match="too few nodes of the former or the new list are usable"):
            await face.acquire(change.joint.lock(name, wait=10))


async def test_who_knows_only_the_former_list_is_a_straggler(face: Face, name: str) -> None:
    async with face.nodes(3) as nodes:
        change = Change(face, nodes, slice(1), slice(3))
        await change.ready()
        for client in (change.old, change.joint, change.new):
            await change.fence(client, name)
        for node in await face.ready(change.joint):
            assert [it.owner for it in node.stragglers] == ["old"] * (node.node in change.old.urls)
            assert not node.differences
        for node in await face.ready(change.new):
            assert ("old" in str(node.differences)) == (node.node in change.old.urls)
            assert "joint" not in str(node.differences)


async def test_a_leader_is_known_on_both_lists(face: Face, five: Cluster, name: str) -> None:
    change = Change(face, five, slice(3), slice(1, 4))
    for leader, those in ("joint", ("old", "joint", "new")), ("old", ("old", "joint")):
        leads = await face.acquire(vars(change)[leader].election(name, value=leader))
        for it in those:
            election = vars(change)[it].election(name, wait=0)
            assert (await face.call(election.leader)).value == leader
            with pytest.raises(LockBusy):
                await face.acquire(election)
        await face.release(leads, confirm=True)


async def test_a_latch_opens_on_both_lists(face: Face, five: Cluster, name: str) -> None:
    change = Change(face, five, slice(3), slice(1, 4))
    old, joint, new = (it.latch(name, 2) for it in (change.old, change.joint, change.new))
    assert [await face.call(it.arrive, "a") for it in (old, joint)] == [1, 1]
    assert [await face.call(it.arrived) for it in (old, joint, new)] == [1, 1, 1]
    assert await face.call(old.arrive, "b") == 2
    assert [await face.call(it.is_open) for it in (old, joint, new)] == [True, True, True]


async def test_what_one_list_says_is_not_enough_for_a_latch_or_a_leader(face: Face, name: str) -> None:
    async with face.nodes(3) as nodes:
        change = Change(face, nodes, slice(1), slice(3))
        await change.ready()
        leads = await face.acquire(change.new.election(name, value="new"))
        for _ in range(2):
            # A client of the former list does not see less than one of both, which writes back what it reads.
            assert nodes.ask(0, "DEL", f"{{{name}[election]}}:leader") == 1
            assert (await face.call(change.joint.election(name).leader)).value == "new"
            assert (await face.call(change.old.election(name).leader)).value == "new"
        await face.release(leads, confirm=True)
        await nodes.kill(0)
        for ask in (change.joint.latch(name, 2).arrive, change.joint.latch(name, 2).is_open, change.joint.election(name).leader):
            with pytest.raises(NoQuorum):
                await face.call(ask)


async def test_a_rate_is_counted_on_both_lists(face: Face, five: Cluster, name: str) -> None:
    change = Change(face, five, slice(3), slice(1, 4))
    allowed = [bool(await face.call(it.rate(name, 2, 60.0).take)) for it in (change.old, change.joint, change.joint)]
    assert allowed == [True, True, False]
    assert not await face.call(change.old.rate(name, 2, 60.0).take)


async def test_a_fill_has_its_value_on_both_lists(face: Face, five: Cluster, name: str) -> None:
    change, work = Change(face, five, slice(3), slice(1, 4)), Work(face)
    old, joint, new = (it.fill(name, 60, work.compute) for it in (change.old, change.joint, change.new))
    assert (await face.call(old.get)).value == 1
    await face.until(lambda: all(five.everywhere("EXISTS", f"{{{name}[fill]}}:cache")[:3]))
    assert [(await face.call(it.get)).value for it in (joint, new)] == [1, 1]
    await face.call(joint.invalidate)
    assert (await face.call(old.get)).value == 2


async def test_a_result_is_kept_on_both_lists(face: Face, five: Cluster, name: str) -> None:
    # Rule O14.
    change, job = Change(face, five, slice(3), slice(1, 4)), Job(face)
    for client in (change.old, change.joint, change.new):
        assert await run(face, client.once(name, keep=60), job) == "done"
    assert job.runs == 1


async def test_what_is_kept_is_repaired_before_the_former_list_is_left(face: Face, name: str) -> None:
    async with face.nodes(3) as nodes:
        change = Change(face, nodes, slice(1), slice(3))
        await change.ready()
        await run(face, change.old.once(name, keep=60), Job(face))
        assert (await face.call(change.joint.repair, 0)).mended == 2
        await nodes.kill(0)
        assert (await result(face, change.new.once(name, keep=60))).value == "done"
