"""Surveys: everything that a majority holds is shown, once, whatever else happens; over every driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face, Threads

from holdfast.errors import NoQuorum
from holdfast.protocol.exclusive import keys_of
from holdfast.typing import Row

pytestmark = pytest.mark.slow


SPREAD = 900  # locks that no client of the test holds


def token(number: int) -> str:
    return f"{10**15 + number:016d}:{'a' * 32}:{number:08x}"


async def rows(face: Face, found: Any, most: int = 10**6) -> list[Row]:
    """Loop over a survey, as one user of its own."""
    seen: list[Row] = []
    while len(seen) < most:
        if isinstance(face, Threads):
            row = await face.call(next, found, None)
            if row is None:
                break
            seen.append(row)
        else:
            try:
                seen.append(await face.call(found.__anext__))
            except StopAsyncIteration:
                break
    return seen


def fill_up(nodes: Any, name: str, count: int, leaves: Callable[[int], set[int]]) -> None:
    """Have each of so many locks held on all nodes but those that it leaves out."""
    for number in range(count):
        for node in set(range(len(nodes))) - leaves(number):
            nodes.ask(node, "SET", f"{name}/{number:04d}", token(number), "PX", 600_000)


# ------------------------------------------------ what it shows


async def test_every_kind_of_lock(face: Face, five: Cluster, name: str) -> None:
    client, other = await face.connected(five, owner="web-3:118", ttl=20), await face.connected(five)
    began = datetime.fromtimestamp(face.wall(), UTC)
    held = [
        client.lock(f"{name}/plain", note="build 4711"),
        client.rwlock(f"{name}/read").read(),
        client.rwlock(f"{name}/write").write(),
        client.semaphore(f"{name}/gpus", 3, count=3, note="job 7"),
        client.election(f"{name}/boss", "here"),
    ]
    leases = [await face.acquire(it) for it in held]
    await face.until(lambda: all(it.votes == 5 for it in leases))
    await face.until(lambda: five.everywhere("EXISTS", f"{{{name}/plain}}:note") == [1] * 5)
    waiter = asyncio.ensure_future(face.acquire(other.lock(f"{name}/plain", wait=20)))
    await face.until(lambda: five.waiters(f"{name}/plain") == [1] * 5)
    found = client.survey(f"{name}/*")
    seen = {it.name.removeprefix(f"{name}/"): it for it in await rows(face, found)}
    kinds = {it: row.kind for it, row in seen.items()}
    assert kinds == {
        "plain": "exclusive",
        "read": "read",
        "write": "write",
        "boss[election]": "election",
        **{f"gpus[slot {it}]": "permit" for it in range(3)},
    }
    plain = seen["plain"]
    assert (plain.state, plain.holder, plain.owner, plain.note) == ("held", leases[0].token, "web-3:118", "build 4711")
    assert (plain.fence, plain.nodes, plain.waiting, plain.group, plain.slot) == (leases[0].fence, 5, 1, None, None)
    assert plain.left is not None and 10 < plain.left <= 20
    assert plain.asked is not None and plain.waits_since is not None
    assert began - timedelta(seconds=5) < plain.asked < plain.waits_since < began + timedelta(seconds=10)
    assert seen["write"].fence == leases[2].fence
    assert (seen["read"].holder, seen["read"].owner, seen["read"].note) == ("shared", None, None)
    permits = [seen[f"gpus[slot {it}]"] for it in range(3)]
    assert {(it.group, it.note, it.waits_since) for it in permits} == {(f"{name}/gpus", "job 7", None)}
    assert [it.slot for it in permits] == [0, 1, 2]
    for row in seen.values():
        status = await face.call(client.inspect, row.name)
        both = (status.state, status.holder, status.owner, status.note, status.asked)
        assert (row.state, row.holder, row.owner, row.note, row.asked) == both, "what `inspect` says"
    assert found.scanned >= 3 * len(seen)
    await face.release(leases[0])
    leases[0] = await waiter
    for lease in leases:
        await face.release(lease)


async def test_everything_is_shown_once(face: Face, own_five: Cluster, name: str) -> None:
    """Each lock is on another majority, and no node has all of them."""
    client = await face.connected(own_five)
    fill_up(own_five, name, SPREAD, lambda number: {number % 5, (number // 5 + number + 1) % 5})
    found = client.survey(f"{name}/*")
    seen = [it.name for it in await rows(face, found)]
    assert sorted(seen) == [f"{name}/{it:04d}" for it in range(SPREAD)]
    assert found.scanned >= SPREAD


async def test_what_is_split_comes_last(face: Face, own_five: Cluster, name: str) -> None:
    client = await face.connected(own_five)
    for node in (0, 1):
        own_five.ask(node, "SET", f"{name}/split", token(1), "PX", 600_000)
    for node in (2, 3):
        own_five.ask(node, "SET", f"{name}/split", token(2), "PX", 600_000)
    for node in (0, 1):
        own_five.ask(node, "SET", f"{name}/free", token(3), "PX", 600_000)
    for node in range(5):
        own_five.ask(node, "SET", f"{name}/held", token(4) if node else token(5), "PX", 600_000)
    own_five.everywhere("SET", f"{name}/foreign", "no token", "PX", 600_000)
    found = await rows(face, client.survey(f"{name}/*"))
    assert [(it.name, it.state, it.nodes) for it in found] == [(f"{name}/held", "held", 4), (f"{name}/split", "split", 4)]
    assert found[0].holder == token(4), "also if the node that was looked through has another one"


async def test_nodes_that_are_away(face: Face, own_five: Cluster, name: str) -> None:
    client = await face.connected(own_five)
    fill_up(own_five, name, 60, lambda number: {number % 5})
    await own_five.kill(0, 3)
    await face.until(lambda: sum(it.state == "down" for it in client.nodes()) == 2)
    seen = {it.name: it.state for it in await rows(face, client.survey(f"{name}/*"))}
    left = [number for number in range(60) if number % 5 not in (0, 3)]
    assert {f"{name}/{it:04d}" for it in left} <= {it for it, state in seen.items() if state == "held" or state == "split"}
    await own_five.kill(1)
    await face.until(lambda: sum(it.state == "down" for it in client.nodes()) == 3)
    with pytest.raises(NoQuorum, match="3 nodes") as caught:
        await rows(face, client.survey(f"{name}/*"))
    assert {client.urls[it] for it in (0, 1, 3)} <= set(caught.value.causes)


# ------------------------------------------------ how it is used


async def test_several_sets_of_nodes(face: Face, name: str) -> None:
    async with face.nodes(3) as one, face.nodes(3) as two:
        client = face.spread({"one": one, "two": two})
        await face.ready(client)
        leases = [await face.acquire(client.lock(f"{name}/{it}")) for it in range(12)]
        await face.until(lambda: all(it.votes == 3 for it in leases))
        assert len({client.shard_of(it.name) for it in leases}) == 2
        assert sorted(it.name for it in await rows(face, client.survey(f"{name}/*"))) == sorted(it.name for it in leases)
        former = face.spread({"two": two}, {"one": one, "two": two})
        await face.ready(former)
        seen = [it.name for it in await rows(face, former.survey(f"{name}/*"))]
        assert sorted(seen) == sorted(it.name for it in leases)
        for lease in leases:
            await face.release(lease)
        await face.finish()


async def test_looking_changes_nothing_and_whoever_leaves_early_leaves_nothing(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    for number in range(10):
        five.everywhere("SET", f"{name}/{number}", token(number), "PX", 600_000)
    found = client.survey(f"{name}/*")
    assert found.scanned == 0, "nothing is sent before it is looped over"
    (first,) = await rows(face, found, 1)
    assert first.name.startswith(f"{name}/")
    assert found.scanned > 0
    assert len(await rows(face, found)) == 9, "and it can be gone on with"
    assert await rows(face, found) == []
    for number in range(10):
        keys = [it.decode() for it in keys_of(f"{name}/{number}".encode())]
        assert five.everywhere("EXISTS", *keys) == [1] * 5
        five.everywhere("DEL", keys[0])
