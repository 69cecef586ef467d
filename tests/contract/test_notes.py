"""Notes: what the holder of a lock says of itself, who is shown it, and for how long; over every driver."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face
from contract.test_fills import Work

from holdfast.errors import LockBusy
from holdfast.protocol import note


def kept(nodes: Cluster, lock: str) -> list[str]:
    """The notes that the nodes keep on a lock, without their header."""
    values = nodes.everywhere("GET", note.key_of(lock.encode()).decode())
    return [str(it).split(" ", 4)[-1] if it else "" for it in values]


async def everywhere(face: Face, nodes: Cluster, lock: str, text: str) -> None:
    """Wait until all nodes have this note. (Nobody waits for their answers.)"""
    await face.until(lambda: kept(nodes, lock) == [text] * len(nodes))


async def refused(face: Face, lock: Any) -> LockBusy:
    with pytest.raises(LockBusy) as caught:
        await face.acquire(lock)
    return caught.value


# ------------------------------------------------ who is shown it


async def test_the_note_of_the_holder_is_shown(face: Face, five: Cluster, name: str) -> None:
    """Rule NO1: the note of the holder is shown."""
    holder, client = await face.connected(five, owner="web-3:118"), await face.connected(five)
    lease = await face.acquire(holder.lock(name, note="build 4711 on host-a"))
    await everywhere(face, five, name, "build 4711 on host-a")
    status = await face.call(client.inspect, name)
    assert (status.note, status.owner, status.holder) == ("build 4711 on host-a", "web-3:118", lease.token)
    assert "by web-3:118" in str(status) and "who says 'build 4711 on host-a'" in str(status)
    busy = await refused(face, client.lock(name, wait=0))
    assert (busy.note, busy.owner) == ("build 4711 on host-a", "web-3:118")
    assert f"'{name}' is held by web-3:118 (build 4711 on host-a) for up to" in str(busy)
    itself = await refused(face, holder.lock(name, wait=0))
    assert f"'{name}' is held by this client itself (build 4711 on host-a) for up to" in str(itself)
    await face.release(lease)


async def test_a_note_is_never_somebody_elses(face: Face, five: Cluster, name: str) -> None:
    """Rule NO1: a note that outlasts its lease is not taken for the next holder's."""
    client, other = await face.connected(five, ttl=20), await face.connected(five)
    lease = await face.acquire(client.lock(name, note="the first", renew=False))
    await everywhere(face, five, name, "the first")
    # As if its holder had crashed, and an operator had removed the key: the note stays for a while.
    five.everywhere("DEL", name)
    assert (await face.call(other.inspect, name)).note is None
    following = await face.acquire(other.lock(name))
    await face.until(lambda: following.votes == 5)
    assert kept(five, name) == ["the first"] * 5
    assert (await face.call(other.inspect, name)).note is None
    busy = await refused(face, client.lock(name, wait=0))
    assert (busy.note, busy.owner is not None) == (None, True)
    await face.release(following)
    lease.leave()


async def test_a_note_is_said_again_with_each_renewal(face: Face, five: Cluster, name: str) -> None:
    """Rule NO2: a note is said again with each renewal, and lasts as long as the lease."""
    client = await face.connected(five, ttl=0.6, max_ttl=0.6)
    lease = await face.acquire(client.lock(name, note="renewed"))
    await everywhere(face, five, name, "renewed")
    # For longer than nodes keep what is not said again: the ttl, and the restart guard (2.6 s).
    await face.sleep(4)
    assert lease.held
    assert (await face.call(client.inspect, name)).note == "renewed"
    await face.release(lease)


async def test_a_note_ends_before_its_lock(face: Face, five: Cluster, name: str) -> None:
    """Rule NO2: a note ends before its lock is given back."""
    client = await face.connected(five, ttl=20)
    lease = await face.acquire(client.lock(name, note="over soon"))
    await everywhere(face, five, name, "over soon")
    await face.release(lease, True)
    await face.until(lambda: kept(five, name) == [""] * 5)
    key = note.key_of(name.encode()).decode()
    await face.until(lambda: five.everywhere("EXISTS", key) == [0] * 5, 5)


# ------------------------------------------------ what can have one


async def test_what_is_done_once_or_computed_for_all_can_have_one(face: Face, five: Cluster, name: str) -> None:
    client, other, work = await face.connected(five), await face.connected(five), Work(face)
    once, fill = client.once(name, keep=60, note="runs it"), client.fill(name, 60, work.compute, note="computes it")
    for calls, lock, text in (
        (partial(once.run, work.compute), f"{name}[once]", "runs it"),
        (fill.get, f"{name}[fill]", "computes it"),
    ):
        work.shut = True
        running = asyncio.ensure_future(face.call(calls))
        await work.goes_on()
        await everywhere(face, five, lock, text)
        assert (await face.call(other.inspect, lock)).note == text
        work.shut = False
        await running
