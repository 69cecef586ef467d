"""Notes: what the holder of a lock says of itself, who is shown it, and for how long; over every driver."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face, Script, Threads

from holdfast import current
from holdfast.errors import LockBusy
from holdfast.protocol import note

Check = Callable[[Face, Any, str], Awaitable[None]]


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


async def shown(face: Face, five: Any, name: str) -> None:
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


async def never_somebody_elses(face: Face, five: Any, name: str) -> None:
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


async def renewed(face: Face, five: Any, name: str) -> None:
    """Rule NO2: a note is said again with each renewal, and lasts as long as the lease."""
    client = await face.connected(five, ttl=0.6, max_ttl=0.6)
    lease = await face.acquire(client.lock(name, note="renewed"))
    await everywhere(face, five, name, "renewed")
    # For longer than nodes keep what is not said again: the ttl, and the restart guard (2.6 s).
    await face.sleep(4)
    assert lease.held
    assert (await face.call(client.inspect, name)).note == "renewed"
    await face.release(lease)


async def over(face: Face, five: Any, name: str) -> None:
    """Rule NO2: a note ends before its lock is given back."""
    client = await face.connected(five, ttl=20)
    lease = await face.acquire(client.lock(name, note="over soon"))
    await everywhere(face, five, name, "over soon")
    await face.release(lease, True)
    await face.until(lambda: kept(five, name) == [""] * 5)
    key = note.key_of(name.encode()).decode()
    await face.until(lambda: five.everywhere("EXISTS", key) == [0] * 5, 5)


CHECKS: dict[str, Check] = {it.__name__: it for it in (shown, never_somebody_elses, renewed, over)}


@pytest.mark.parametrize("check", CHECKS)
async def test_a_note_is_its_holder_s(face: Face, five: Cluster, name: str, check: str) -> None:
    # Rules NO1 and NO2.
    await CHECKS[check](face, five, name)


# ------------------------------------------------ what can have one


async def test_everything_that_is_held_alone_can_have_one(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    described = {
        f"{name}/a": client.lock(f"{name}/a", f"{name}/b", note="two names"),
        f"{name}/b": None,
        f"{name}/w": client.rwlock(f"{name}/w").write(note="a writer"),
        f"{{{name}}}/t": client.lock(f"{{{name}}}/t", note="a hash tag\n\0é"),
    }
    said = {f"{name}/b": "two names"}
    leases = []
    for lock, description in described.items():
        if description is not None:
            leases.append(await face.acquire(description))
            said[lock] = note_of(description)
    leases.append(await face.acquire(client.semaphore(f"{name}/s", 2, count=2, note="both permits")))
    said.update({f"{name}/s[slot {it}]": "both permits" for it in range(2)})
    for lock, text in said.items():
        await everywhere(face, five, lock, text)
        assert (await face.call(client.inspect, lock)).note == text
    for lease in leases:
        await face.release(lease)


def note_of(lock: Any) -> str:
    """The note of a description."""
    text: str = lock._terms.recipes[0].statement.__self__._text
    return text


async def test_what_is_done_once_or_computed_for_all_can_have_one(face: Face, five: Cluster, name: str) -> None:
    client, other = await face.connected(five), await face.connected(five)
    going: list[bool] = []

    def waits() -> Script[int]:
        going.append(True)
        while going:
            yield lambda: time.sleep(0.01) if isinstance(face, Threads) else asyncio.sleep(0.01)
        return 1

    body = face.function(waits)
    once, fill = client.once(name, keep=60, note="runs it"), client.fill(name, 60, body, note="computes it")
    for task, lock, text in (
        (face.call(once.run, body), f"{name}[once]", "runs it"),
        (face.call(fill.get), f"{name}[fill]", "computes it"),
    ):
        running = asyncio.ensure_future(task)
        await face.until(lambda: going)
        await everywhere(face, five, lock, text)
        assert (await face.call(other.inspect, lock)).note == text
        going.clear()
        await running


async def test_decorated_functions_have_the_note_of_their_lock(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    seen: list[str] = []

    def look() -> None:
        seen.append(note_of_lease(current()))

    await face.call(client.locked(name, note="decorated")(face.function(look)))
    assert seen == ["decorated"]


def note_of_lease(lease: Any) -> str:
    (claim,) = lease._claim.claims
    text: str = claim.recipe.statement.__self__._text
    return text


async def test_a_lock_that_is_entered_again_keeps_its_note(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    seen: list[str] = []

    def nested() -> Any:
        outer = face.block(client.lock(name, reentrant=True, note="outer"))
        yield outer.enter
        inner = face.block(client.lock(name, reentrant=True, note="inner"))
        lease = yield inner.enter
        seen.append(note_of_lease(lease))
        yield inner.leave
        yield outer.leave

    await face.user(client, nested())
    assert seen == ["outer"]


# ------------------------------------------------ what is refused


# ------------------------------------------------ since when


async def test_since_when_a_holder_and_its_waiters_asked(face: Face, five: Cluster, name: str) -> None:
    client, other = await face.connected(five), await face.connected(five)
    began = datetime.fromtimestamp(face.wall(), UTC)
    lease = await face.acquire(client.lock(name))
    waiter = asyncio.ensure_future(face.acquire(other.lock(name, wait=20)))
    await face.until(lambda: five.waiters(name) == [1] * 5)
    status = await face.call(client.inspect, name)
    slack = timedelta(seconds=5)
    assert began - slack < status.asked < status.queue[0].asked < began + 2 * slack
    await face.release(lease)
    await face.release(await waiter)
    reads = await face.acquire(client.rwlock(f"{name}/r").read())
    await face.until(lambda: reads.votes == 5)
    status = await face.call(client.inspect, f"{name}/r")
    assert status.asked is None
    assert began - slack < status.readers[0].asked < began + 2 * slack
    await face.release(reads)
