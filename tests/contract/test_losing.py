"""Losing a lock: who is told, when, how often, and what an exception of the body has to do with it."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from contract.cluster import Cluster
from contract.faces import Face, Threads
from proof.books import word
from proof.misuse import misuse

from holdfast import LeaseState
from holdfast.errors import LockLost
from holdfast.face.sync import lease as lease_of_threads
from holdfast.protocol.claim import Claim, State

TICK = 0.3  # seconds by which a busy machine may be late


async def lose(face: Face, client: Any, name: str, **options: Any) -> Any:
    """A lease that is lost."""
    lease = await face.acquire(client.lock(name, ttl=0.1, renew=False, **options))
    await face.until_lost(lease)
    return lease


async def test_b46_a_holder_is_told_before_anybody_else_holds_it(face: Face, three: Cluster, name: str) -> None:
    # Rule X3.
    told: list[tuple[Any, bool, bool]] = []
    heard: list[Any] = []

    def others() -> bool:
        return any(word(it) == "Acquired" and it.token != lease.token for it in heard)

    client = await face.connected(three, ttl=0.6, node_timeout=0.2, outage=60, observer=heard.append)
    other = await face.connected(three, ttl=0.6, node_timeout=0.2, outage=60, observer=heard.append)
    lease = await face.acquire(client.lock(name, on_lost=lambda it: told.append((it, it.lost.is_set(), others()))))
    assert not lease.lost.is_set()
    waiter = asyncio.create_task(face.acquire(other.lock(name)))
    await face.until(lambda: min(three.waiters(name)) == 1)
    await three.freeze(1, 2)
    await face.until(lambda: lease.state is LeaseState.LOST)
    assert (lease.held, lease.remaining) == (False, 0)
    assert not waiter.done()
    await face.until(lambda: told)
    await three.thaw(1, 2)
    second = await waiter
    assert second.fence > lease.fence
    await face.sleep(0.1)
    assert told == [(lease, True, False)], "once, its event is set, and nobody else has the lock"
    lost, acquired = (next(it for it in heard if word(it) == kind and it.token == token)
                      for kind, token in (("lost", lease.token), ("Acquired", second.token)))  # fmt: skip
    assert (lost.name, lost.fence) == (name, lease.fence)
    assert lost.at < acquired.at
    assert heard.index(lost) < heard.index(acquired)
    await face.release(second)


class Ending(Claim):
    """Another thread gives the lease back as soon as somebody has looked at the state of its claim."""

    __slots__ = ()
    looked: ClassVar[Callable[[], object]]

    @property  # type: ignore[override]  # (a slot of the class)
    def state(self) -> State:
        state: State = Claim.state.__get__(self)  # type: ignore[attr-defined]  # (a slot)
        type(self).looked()
        return state

    @state.setter
    def state(self, state: State) -> None:
        Claim.state.__set__(self, state)  # type: ignore[attr-defined]  # (a slot)


async def test_a_lease_that_is_released_while_it_is_looked_at_is_not_lost(face: Face, three: Cluster, name: str) -> None:
    if not isinstance(face, Threads):
        return  # nothing can come in between
    client = await face.connected(three, ttl=20)
    lease = await face.acquire(client.lock(name))
    lease._claim.__class__ = Ending

    me, left = threading.get_ident(), [lease]

    def looked() -> None:
        if left and threading.get_ident() == me:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(left.pop().release).result()

    Ending.looked = looked
    assert lease.state is not LeaseState.LOST
    assert not left
    with misuse("not_held"):
        lease.check()


async def test_a_lost_lease_s_event_is_set_although_who_asked_first_was_interrupted(
    face: Face, three: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await face.connected(three)
    lease = await face.acquire(client.lock(name, ttl=0.1, renew=False))
    await face.until(lambda: lease.state is LeaseState.LOST and lease._lost)

    def strikes(_: Any) -> LeaseState:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(lease), "state", property(strikes))
        with pytest.raises(KeyboardInterrupt):
            assert lease.lost
    assert lease.lost.is_set()


async def test_an_event_that_is_asked_for_while_one_is_made(face: Face, three: Cluster, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a signal handler, or a finalizer, of this lease or another: both get the same event, and nobody waits."""
    if not isinstance(face, Threads):
        return  # nothing can come in between
    client = await face.connected(three)
    lease, other = await face.acquire(client.lock(name)), await face.acquire(client.lock(f"{name}other"))
    asked, events = [lease, other], list[Any]()

    def makes() -> Any:
        if asked:
            events.append(asked.pop().lost)
        return threading.Event()

    monkeypatch.setattr(lease_of_threads, "threading", SimpleNamespace(Event=makes))
    events.append(lease.lost)
    assert events[0] is events[2] is lease.lost
    assert events[1] is other.lost is not lease.lost
    for it in (lease, other):
        await face.release(it)


async def test_s21_callbacks_that_raise_are_logged_and_hurt_nobody(
    face: Face, five: Cluster, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []

    def raises(lease: Any) -> None:
        told.append(lease)
        raise ZeroDivisionError(lease.name)

    client = await face.connected(five)
    kept = await face.acquire(client.lock(f"{name}/kept"))
    leases = [await face.acquire(client.lock(f"{name}/{i}", ttl=0.2, renew=False, on_lost=raises)) for i in range(5)]
    await face.until(lambda: len(told) == 5)
    await face.sleep(0.1)
    assert sorted(it.name for it in told) == [it.name for it in leases]
    assert all(it.lost.is_set() for it in leases)
    logged = [it for it in caplog.records if it.name == "holdfast" and it.exc_info and it.exc_info[0] is ZeroDivisionError]
    assert len(logged) == 5
    assert [it.levelno for it in caplog.records if it.name == "holdfast.lease"] == [logging.ERROR] * 5  # one line for each loss
    assert kept.held
    await face.release(kept)


async def test_releasing_a_lost_lease_raises_once(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    for confirm in (False, True):
        lease = await lose(face, client, name)
        for _ in range(3):
            with pytest.raises(LockLost, match=r"expired|slow"):
                lease.check()
        with pytest.raises(LockLost, match=r"expired|slow"):
            await face.extend(lease)
        with pytest.raises(LockLost) as caught:
            await face.release(lease, confirm)
        assert caught.value.reason in ("expired", "slow"), "slow: on a busy machine"
        assert caught.value.fence == lease.fence
        assert await face.release(lease, confirm) == 0
        with misuse("not_held"):
            lease.check()


async def test_b43_leaving_a_block_after_a_loss_raises(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)

    async def body(lease: Any) -> None:
        await face.until_lost(lease)  # with asyncio it is cancelled meanwhile
        assert lease.state is LeaseState.LOST

    with pytest.raises(LockLost) as caught:
        await face.within(client.lock(name, ttl=0.2, renew=False), body)
    assert caught.value.name == name
    await face.sleep(0)  # nothing of the cancellation is left
    await face.within(client.lock(name), lambda lease: face.sleep(0))


async def test_b44_an_exception_of_the_body_is_never_masked(face: Face, five: Cluster, name: str) -> None:
    client, own = await face.connected(five), KeyError("the body's own")

    async def body(lease: Any) -> None:
        try:
            await face.until_lost(lease)
        except asyncio.CancelledError:
            pass
        raise own

    with pytest.raises(KeyError) as caught:
        await face.within(client.lock(name, ttl=0.2, renew=False), body)
    assert caught.value is own
    assert len(own.__notes__) == 1
    # Slow: on a busy machine the process itself may have noticed the end late.
    assert re.search(r"is lost \((expired|slow)\)", own.__notes__[0])

    async def fails(lease: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as other:  # without a loss there is nothing to add
        await face.within(client.lock(name), fails)
    assert not hasattr(other.value, "__notes__")
    await face.until(lambda: five.holders(name) == [None] * 5)


async def test_s26_releasing_what_another_has_meanwhile_leaves_it_to_him(face: Face, five: Cluster, name: str) -> None:
    client, other = await face.connected(five), await face.connected(five)
    first = await lose(face, client, name)
    second = await face.acquire(other.lock(name))
    with pytest.raises(LockLost):
        await face.release(first)
    await face.sleep(0.1)
    await face.until(lambda: second.votes == 5)
    assert five.holders(name) == [second.token] * 5
    await face.release(second)


@pytest.mark.parametrize("theft", ["deleted", "overwritten"])
async def test_b47_a_key_that_a_majority_lost_is_a_loss(face: Face, five: Cluster, name: str, theft: str) -> None:
    client = await face.connected(five, ttl=0.9)
    lease = await face.acquire(client.lock(name))
    await face.until(lambda: lease.votes == 5)
    for node in (0, 2, 4):
        if theft == "deleted":
            five.ask(node, "DEL", name)
        else:
            five.ask(node, "SET", name, "a thief", "PX", 60_000)
    began = face.now()
    await face.until_lost(lease)
    assert face.now() - began < 0.3 + 2 * TICK, "at the next renewal, and not when the lease ends"
    with pytest.raises(LockLost) as caught:
        await face.release(lease)
    assert caught.value.reason == "gap"
    await face.until(lambda: five.ask(1, "GET", name) is None)
    if theft == "overwritten":
        assert five.holders(name) == ["a thief", None, "a thief", None, "a thief"], "B-09"
        five.everywhere("DEL", name)


@pytest.mark.parametrize("kind", ["lock", "write", "read"])
async def test_s33_holders_hear_of_a_flush_at_once(face: Face, three: Cluster, name: str, kind: str) -> None:
    """And not when the next renewal is due, after 10 s."""
    client = await face.connected(three)
    make = {"lock": client.lock, "write": client.rwlock(name).write, "read": client.rwlock(name).read}[kind]
    lease = await face.acquire(make(name, ttl=30) if kind == "lock" else make(ttl=30))
    await face.until(lambda: lease.votes == 3)
    shown = three.holders(name)
    began = face.now()
    assert three.ask(1, "FLUSHALL") == "OK"
    await face.until(lambda: three.holders(name) == shown)
    assert face.now() - began < 5
    await face.until(lambda: lease.votes == 3)
    assert lease.held
    began = face.now()
    assert three.everywhere("FLUSHALL") == ["OK"] * 3
    await face.until_lost(lease)
    assert face.now() - began < 5
    with pytest.raises(LockLost) as caught:
        lease.check()
    assert caught.value.reason == "gap"


async def test_s33_a_flush_of_another_database_is_no_loss(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three)
    lease = await face.acquire(client.lock(name, ttl=30))
    await face.until(lambda: lease.votes == 3)
    asked = three.calls()
    for node in range(3):
        three.ask(node, "EVAL", "redis.call('SELECT', 5) redis.call('FLUSHDB')", 0)
    await face.until(lambda: min(now - then for now, then in zip(three.calls(), asked, strict=True)) >= 1)
    await face.sleep(0.1)
    assert lease.held and lease.votes == 3
    await face.release(lease)
