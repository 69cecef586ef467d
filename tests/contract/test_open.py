"""`fail_open`: on NoQuorum only, the body runs without the lock, and everything says so."""

from __future__ import annotations

from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face
from contract.test_observing import Tracer

from holdfast import events
from holdfast.errors import LockBusy, LockLost, NoQuorum
from holdfast.face.lease import LeaseState


async def test_without_a_quorum_the_body_runs_all_the_same(face: Face, three: Cluster, name: str) -> None:
    heard: list[Any] = []
    client = await face.connected(three, ttl=0.5, max_ttl=1, outage=0.2, observer=heard.append)
    await three.kill(0, 1)
    began = face.wall()
    lost: list[Any] = []
    ran: list[Any] = []

    async def body(lease: Any) -> None:
        ran.append(lease)
        assert (lease.state, lease.held, lease.fence, lease.token) == (LeaseState.OPEN, False, None, None)
        assert (lease.fences, lease.tokens, lease.votes, lease.remaining, lease.contended) == ({}, {}, 0, 0.0, False)
        assert lease.waited > 0.1
        lease.check()
        assert not lease.lost.is_set()
        assert "OPEN" in repr(lease)
        assert (lease.name, lease.names) == (name, (name,))

    lock = client.lock(name, wait=20, fail_open=True, on_lost=lost.append)
    await face.within(lock, body)
    (lease,) = ran
    assert await face.release(lease) == 0, "nothing to release"
    assert await face.extend(lease) == 0.0, "nor to extend"
    assert lease.state is LeaseState.OPEN
    assert lost == []
    tried = await face.try_acquire(lock)
    assert tried.state is LeaseState.OPEN
    with pytest.raises(NoQuorum):
        await face.acquire(client.lock(name, wait=0))
    await face.until(lambda: [it for it in heard if isinstance(it, events.Opened)])
    opened = next(it for it in heard if isinstance(it, events.Opened))
    assert (opened.name, type(opened.error)) == (name, NoQuorum)
    assert opened.error.causes
    assert began - 1 < opened.at.timestamp() < face.wall() + 1


async def test_a_busy_lock_stays_closed(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    lease = await face.acquire(client.lock(name))
    with pytest.raises(LockBusy):
        await face.acquire(client.lock(name, wait=0.1, fail_open=True))
    assert await face.try_acquire(client.lock(name, fail_open=True)) is None
    await face.release(lease)


async def test_a_loss_is_a_loss_as_ever(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    lease = await face.acquire(client.lock(name, fail_open=True))
    assert lease.held
    await face.until(lambda: lease.votes == 5)
    await face.call(client.force_release, name, "a test")
    await face.until(lambda: lease.state is LeaseState.LOST)
    with pytest.raises(LockLost):
        lease.check()


async def test_several_names_are_open_together(face: Face, three: Cluster, name: str) -> None:
    tracer = Tracer()
    client = await face.connected(three, ttl=0.5, max_ttl=1, outage=0.2, around=tracer)
    await three.kill(0, 1)
    lease = await face.acquire(client.lock(name, "another", fail_open=True, wait=5))
    assert (lease.state, lease.fences) == (LeaseState.OPEN, {})
    assert tracer.calls == [("exclusive", (name, "another"), "open", {"waited": lease.waited})]
