"""The same lock twice in one thread or task: entered again where that is wanted, a clear error where it would wait for itself.
A script is one user: see `Face.user`."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face, Script, Threads
from proof.books import word
from proof.misuse import misuse

from holdfast import Found
from holdfast.errors import LockBusy, LockLost, Misuse, NoQuorum
from holdfast.face.lease import Lease, LeaseState
from holdfast.face.owner import Owners
from holdfast.weakset import SafeWeakSet


async def test_whoever_waits_for_itself_is_told_at_once(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)

    def user() -> Script[None]:
        block = face.block(client.lock(name))
        lease = yield block.enter
        before = five.calls()
        for waits in (client.lock(name), client.lock(name, wait=5), client.lock("another", name)):
            with misuse("self_deadlock", match=r"wait for itself.*reentrant"):
                yield waits.acquire
            with misuse("self_deadlock"):
                yield face.block(waits).enter
        assert five.calls() == before, "nothing was sent"
        with pytest.raises(LockBusy) as caught:
            yield client.lock(name, wait=0).acquire
        assert caught.value.holder == lease.token
        assert (yield client.lock(name).try_acquire) is None
        with misuse("self_deadlock"):  # (a try that failed has changed nothing)
            yield client.lock(name).acquire
        yield block.leave
        lease = yield client.lock(name, wait=5).acquire
        yield lease.release

    await face.user(client, user())


@pytest.mark.parametrize("kind", ["once", "fill", "election"])
async def test_within_it_the_lock_of_its_name_can_be_had_and_not_itself_again(face: Face, five: Cluster, name: str, kind: str) -> None:
    client = await face.connected(five)

    def body() -> Script[str]:
        block = face.block(client.lock(name, wait=30))
        yield block.enter
        for again in inside[kind]:
            with misuse("self_deadlock", match="again inside of its own body"):
                yield again
        yield block.leave
        return "told"

    function = face.function(body)
    once, fill, election = client.once(name, keep=60), client.fill(name, 60, function), client.election(name)
    inside = {"once": (partial(once.run, function), once.forget), "fill": (fill.get,), "election": (election.campaign,)}
    told = await face.call(election(function) if kind == "election" else inside[kind][0])
    assert told == (Found(value="told", computed=True) if kind == "fill" else "told")


async def test_b12_entered_again(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    lock = client.lock(name, reentrant=True)

    def user() -> Script[None]:
        outer, inner, third = face.block(lock), face.block(lock), face.block(client.lock(name, reentrant=True))
        one = yield outer.enter
        yield lambda: None
        before = five.calls()
        two = yield inner.enter
        three = yield third.enter
        assert five.calls() == before or sum(five.calls()) - sum(before) <= 5, "nothing is sent to enter again (but a late renewal)"
        assert one.token == two.token == three.token
        assert one.fence == two.fence == three.fence
        assert {it.state for it in (one, two, three)} == {LeaseState.HELD}
        yield third.leave
        assert (three.state, two.state, one.held) == (LeaseState.RELEASED, LeaseState.HELD, True)
        with misuse("not_held"):
            three.check()
        yield inner.leave
        assert five.holders(name).count(one.token) >= 3
        yield outer.leave
        assert one.state is LeaseState.RELEASED

    await face.user(client, user())
    await face.until(lambda: five.holders(name) == [None] * 5)


async def test_the_last_to_leave_gives_it_back_in_whatever_order(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    lock = client.lock(name, reentrant=True)

    def user() -> Script[None]:
        one = yield lock.acquire
        two = yield lock.try_acquire
        assert two.token == one.token
        yield one.release
        assert (one.state, two.state) == (LeaseState.RELEASED, LeaseState.HELD)
        yield one.release  # twice is nothing, here too
        assert two.held
        three = yield lock.acquire
        assert three.token == two.token
        yield two.release
        assert three.held
        assert five.holders(name).count(three.token) >= 3
        yield three.release
        four = yield lock.acquire
        assert four.token != three.token
        yield four.release

    await face.user(client, user())


async def test_the_outer_block_is_left_first(face: Face, five: Cluster, name: str, recwarn: pytest.WarningsRecorder) -> None:
    """Nobody says that its lease was dropped."""
    told: list[Any] = []
    client = await face.connected(five, observer=told.append)
    lock = client.lock(name, reentrant=True)

    def user() -> Script[None]:
        outer, inner = face.block(lock), face.block(lock)
        yield outer.enter
        lease = yield inner.enter
        yield outer.leave
        del outer
        # Time for the background thread to hear of it, if the lease were dropped with its block.
        yield client.lock(name, wait=0).try_acquire
        yield lease.extend
        assert lease._claim.claims[0]._renewal.wanted, "somebody is still inside: it is renewed"
        yield inner.leave

    await face.user(client, user())
    gc.collect()
    await face.until(lambda: five.holders(name) == [None] * 5)
    assert not list(recwarn) and not [it for it in told if word(it) == "discarded"]


async def test_a_longer_ttl_within_extends(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five, ttl=5, max_ttl=30)

    def user() -> Script[None]:
        outer = face.block(client.lock(name, reentrant=True))
        one = yield outer.enter
        two = yield client.lock(name, reentrant=True, ttl=20).acquire
        assert min(one.remaining, two.remaining) > 15
        three = yield client.lock(name, reentrant=True, ttl=1).acquire
        assert min(one.remaining, three.remaining) > 15, "never shortened"
        yield two.release
        yield three.release
        for option in ("max_hold", "at_least"):
            with pytest.raises(Misuse, match=f"another {option}"):
                yield client.lock(name, reentrant=True, **{option: 60}).acquire
        yield outer.leave

    await face.user(client, user())


async def test_all_that_share_it_lose_it(face: Face, five: Cluster, name: str) -> None:
    client, told = await face.connected(five), list[str]()
    events: list[Any] = []

    def user() -> Script[Any]:
        outer = yield client.lock(name, reentrant=True, on_lost=lambda it: told.append("outer")).acquire
        inner = yield client.lock(name, reentrant=True, on_lost=lambda it: told.append("inner")).acquire
        gone = yield client.lock(name, reentrant=True, on_lost=lambda it: told.append("gone")).acquire
        events.extend([outer.lost, inner.lost])
        yield gone.release
        yield lambda: client.force_release(name, "a test")

        def over() -> bool:
            return len(told) == 2 and all(it.is_set() for it in events)

        return over, outer, inner

    over, outer, inner = await face.user(client, user())
    await face.until(over)
    assert sorted(told) == ["inner", "outer"]
    for lease in (inner, outer):
        with pytest.raises(LockLost):
            await face.release(lease)
    again = await face.acquire(client.lock(name, reentrant=True))
    await face.release(again)


async def test_some_of_the_names(face: Face, five: Cluster, name: str) -> None:
    """Within several names, one of them may be entered again; more names may not be asked for meanwhile."""
    client, (a, b, c) = await face.connected(five), [f"{name}/{it}" for it in "abc"]

    def user() -> Script[None]:
        outer = face.block(client.lock(a, b, reentrant=True))
        both = yield outer.enter
        one = yield client.lock(b, reentrant=True).acquire
        assert (one.name, one.fence, one.token) == (b, both.fences[b], both.tokens[b])
        with misuse("self_deadlock", match="all names at once"):
            yield client.lock(b, c, reentrant=True).acquire
        yield one.release
        assert both.held
        yield outer.leave

    await face.user(client, user())


async def test_children_do_not_inherit(face: Face, five: Cluster, name: str) -> None:
    """A task or thread that is started inside, with all of its parent's context, is somebody else, and so is what it starts."""
    client = await face.connected(five)
    lock = client.lock(name, reentrant=True, wait=0.1)

    def child(call: Callable[[], Any]) -> Any:
        if isinstance(face, Threads):
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(contextvars.copy_context().run, call).result()
        return started(call())

    def parent() -> Script[None]:
        block = face.block(lock)
        outer = yield block.enter
        inner = yield lock.acquire
        with pytest.raises(LockBusy) as caught:
            yield lambda: child(lock.acquire)
        assert caught.value.holder == outer.token
        assert (yield lambda: child(lock.try_acquire)) is None
        assert outer.held, "the child's failure is the child's own"
        yield inner.release
        yield block.leave
        lease = yield lambda: child(lock.acquire)
        with pytest.raises(LockBusy):
            yield lock.acquire  # nor has a parent what its child holds
        yield lease.release

    def started(coroutine: Any) -> Any:
        async def awaited() -> Any:
            return await asyncio.create_task(coroutine)

        return awaited()

    await face.user(client, parent())


async def test_a_share_that_was_given_back_keeps_nothing_alive(face: Face, five: Cluster, name: str) -> None:
    """The first lease is dropped without a release, and the second is given back, but kept: the lock ends with its ttl."""
    client = await face.connected(five, ttl=0.5)
    lock = client.lock(name, reentrant=True)

    def user() -> Script[Any]:
        outer = yield lock.acquire
        inner = yield lock.acquire
        weak = weakref.ref(outer)
        del outer
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            yield inner.release
            yield gc.collect
        return inner, weak

    inner, weak = await face.user(client, user())
    gc.collect()
    assert weak() is None
    await face.until(lambda: five.holders(name) == [None] * 5)
    assert inner.state is LeaseState.RELEASED


async def test_a_share_that_is_given_back_twice_since_its_caller_was_interrupted(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    lock = client.lock(name, reentrant=True)

    def user() -> Script[None]:
        outer = yield lock.acquire
        inner = yield lock.acquire
        inner._drop_share()  # an interrupt strikes just after this, and the caller that handles it releases once more
        yield inner.release
        assert outer.held
        assert five.holders(name).count(outer.token) >= 3
        yield outer.release

    await face.user(client, user())


# ------------------------------------------------ a lease that ends while it is entered again


def follows(patch: pytest.MonkeyPatch, kind: type, method: str, then: Callable[[], Any]) -> None:
    """Do something just after the next call of this method, as a signal handler or another thread may."""
    real, left = getattr(kind, method), [then]

    def called(*arguments: Any) -> Any:
        result = real(*arguments)
        if left:
            left.pop()()
        return result

    patch.setattr(kind, method, called)


def moments(lease: Any) -> dict[str, tuple[type, str]]:
    return {"it was found": (Owners, "found"), "it is joined": (type(lease), "_adopt"), "it was joined": (SafeWeakSet, "add")}


@pytest.mark.parametrize("moment", ["it was found", "it is joined"])
async def test_a_lease_that_ends_before_it_is_joined_is_not_entered(
    face: Face, five: Cluster, name: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Else the block would run without the lock."""
    client = await face.connected(five)

    def user() -> Script[None]:
        outer = yield client.lock(name, reentrant=True).acquire
        token = outer.token
        # Left, and not released: so the nodes tell whether the lock is asked for once more.
        follows(monkeypatch, *moments(outer)[moment], outer.leave)
        with pytest.raises(LockBusy) as caught:
            yield client.lock(name, reentrant=True, wait=0).acquire
        assert (caught.value.holder, outer.state) == (token, LeaseState.RELEASED)

    await face.user(client, user())


async def test_a_lease_that_is_released_before_it_is_joined_is_acquired_anew(
    face: Face, five: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(face, Threads):
        return  # a release waits, so nothing but a thread can do this
    client = await face.connected(five)

    def releases() -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(outer.release).result()

    outer: Any = None

    def user() -> Script[None]:
        nonlocal outer
        outer = yield client.lock(name, reentrant=True).acquire
        token = outer.token
        follows(monkeypatch, Owners, "found", releases)
        inner = yield client.lock(name, reentrant=True, wait=5).acquire
        assert inner.held and inner.token != token
        yield inner.release

    await face.user(client, user())


async def test_a_lease_that_ends_after_it_was_joined_is_shared(
    face: Face, five: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await face.connected(five)

    def user() -> Script[None]:
        outer = yield client.lock(name, reentrant=True).acquire
        # What shares it from the beginning is the outer lease; then comes the inner one.
        yield (yield client.lock(name, reentrant=True).acquire).release
        follows(monkeypatch, *moments(outer)["it was joined"], outer.leave)
        inner = yield client.lock(name, reentrant=True).acquire
        assert (outer.state, inner.state) == (LeaseState.RELEASED, LeaseState.HELD)
        yield (yield client.lock(name, reentrant=True).acquire).release
        assert inner.held, "it may still be entered, and left"
        yield inner.release

    await face.user(client, user())


async def test_a_lease_that_is_joined_while_it_is_left_stays_held(
    face: Face, five: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that leaves has seen nobody else, and looks once more after it has said that it leaves."""
    client = await face.connected(five)
    inner: list[Any] = []

    def user() -> Script[None]:
        outer = yield client.lock(name, reentrant=True).acquire
        # It has been shared before.
        yield (yield client.lock(name, reentrant=True).acquire).release

        def joins() -> None:
            inner.append(type(outer)(outer._terms, outer._driver))
            assert inner[0]._join(outer)

        follows(monkeypatch, Lease, "_others", joins)
        yield outer.release
        assert (outer.state, inner[0].state) == (LeaseState.RELEASED, LeaseState.HELD)
        third = yield client.lock(name, reentrant=True).acquire
        assert third.token == inner[0].token, "it may still be entered"
        yield third.release
        yield inner[0].release

    await face.user(client, user())


async def test_nobody_joins_between_the_decision_to_release_and_the_release(
    face: Face, five: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await face.connected(five)
    joined: list[bool] = []

    def user() -> Script[None]:
        outer = yield client.lock(name, reentrant=True).acquire
        inner = type(outer)(outer._terms, outer._driver)
        follows(monkeypatch, Lease, "_drop_share", lambda: joined.append(inner._join(outer)))
        yield outer.release
        assert joined == [False]
        assert not outer.held and not inner.held

    await face.user(client, user())


async def test_one_thread_at_a_time_joins_or_leaves(face: Face, five: Cluster, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a thread could enter again while another one is not sure yet whether it is the last, and wait for itself."""
    if not isinstance(face, Threads):
        return
    client = await face.connected(five)

    def user() -> Script[None]:
        outer = yield client.lock(name, reentrant=True).acquire
        alone: list[bool] = []

        def looks() -> None:
            with ThreadPoolExecutor(1) as pool:
                alone.append(not pool.submit(outer._gate.acquire, False).result())

        follows(monkeypatch, type(outer), "_adopt", looks)
        inner = yield client.lock(name, reentrant=True).acquire
        follows(monkeypatch, Lease, "_others", looks)
        yield inner.release
        yield outer.release
        assert alone == [True, True]

    await face.user(client, user())


@pytest.mark.parametrize("end", ["cancelled", "not confirmed"])
async def test_a_lease_that_fails_to_extend_what_it_has_joined_alone_gives_it_back(
    face: Face, five: Cluster, name: str, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The outer lease ends while the inner one waits for its longer ttl, and nobody else is left to release the lock."""
    client = await face.connected(five, ttl=5, max_ttl=30)
    error = asyncio.CancelledError() if end == "cancelled" else NoQuorum(name, 1.0, {}, 3)

    def user() -> Script[None]:
        outer = yield client.lock(name, reentrant=True).acquire

        def fails(*_: Any, **__: Any) -> Any:
            outer.leave()
            raise error

        monkeypatch.setattr(type(outer), "extend", fails)
        with pytest.raises(type(error)):
            yield client.lock(name, reentrant=True, ttl=20).acquire
        assert outer.state is LeaseState.RELEASED

    await face.user(client, user())
    await face.until(lambda: client.stats().held == 0)
    assert not client.leases()
