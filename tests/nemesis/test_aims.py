"""Moments are what they are called: while a conversation is held still, this is how far it has come."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from contract.cluster import ask
from nemesis.aims import UNTIL_EARLY, Caught, Moment, Scout
from nemesis.proxy import Proxy

from bench.cluster import Open
from holdfast.aio import Holdfast
from holdfast.clock import clock
from holdfast.embedded import Nodes

TTL = 1.5
NAME = "aims"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Nodes at ports, which proxies can reach."""
    with Open(5) as nodes:
        yield nodes


@asynccontextmanager
async def scouted(nodes: Nodes, owner: str = "somebody") -> AsyncIterator[tuple[Scout, Any]]:
    """Five nodes behind proxies, read along with; and a client."""
    proxies = [Proxy("127.0.0.1", int(url.rpartition(":")[2]), node) for node, url in enumerate(nodes.urls)]
    for it in proxies:
        await it.start()
    scout = Scout(proxies, random.Random(1))
    options: dict[str, Any] = {"ttl": TTL, "max_ttl": TTL, "node_timeout": 0.5, "fresh": nodes.run_ids, "owner": owner}
    try:
        async with Holdfast(*[it.url for it in proxies], **options) as locks:
            await locks.ready()
            yield scout, locks
    finally:
        for it in proxies:
            await it.close()


async def caught(scout: Scout, moment: Moment, what: Awaitable[Any]) -> tuple[Caught, asyncio.Future[Any]]:
    """Do this, and hold it still at that moment."""
    does = asyncio.ensure_future(what)
    found = await scout.catch(moment, 5.0)
    assert found is not None, moment
    assert (found.moment, found.owner) == (moment, "somebody")
    return found, does


async def test_between_the_first_and_the_last_answer(nodes: Nodes) -> None:
    async with scouted(nodes) as (scout, locks):
        found, does = await caught(scout, Moment.ANSWERS, locks.lock(f"{NAME}:answers").acquire())
        await asyncio.sleep(0.05)
        assert not does.done()
        ways = {link.label.node: link.down for proxy in scout.proxies for link in proxy.links}
        assert {node for node, way in ways.items() if way.kept} == set(ways) - {found.node}
        found.free()
        lease = await does
        assert lease.token.encode() == found.trace.token
        await lease.release()


async def test_while_a_renewal_is_under_way(nodes: Nodes) -> None:
    async with scouted(nodes) as (scout, locks):
        lease = await locks.lock(f"{NAME}:renewal").acquire()
        until = lease._claim.until
        found, does = await caught(scout, Moment.RENEWAL, asyncio.sleep(0))
        await asyncio.sleep(0.05)
        assert lease._claim.until == until
        assert len(found.trace.granted) == 5
        found.free()
        while lease._claim.until == until:
            await asyncio.sleep(0.01)
        await does
        await lease.release()


async def test_when_a_lease_ends(nodes: Nodes) -> None:
    async with scouted(nodes) as (scout, locks):
        lease = await locks.lock(f"{NAME}:until").acquire()
        found, _ = await caught(scout, Moment.UNTIL, asyncio.sleep(0))
        assert found.end is not None
        assert UNTIL_EARLY <= clock() - found.end < 0.2
        assert abs(found.end - lease._claim.until) < TTL / 100 + 0.05, "as its client knows it, but for the drift"
        found.free()
        with pytest.raises(Exception, match="lost"):
            await lease.release()


async def test_at_a_release(nodes: Nodes) -> None:
    async with scouted(nodes) as (scout, locks):
        lease = await locks.lock(f"{NAME}:release").acquire()
        while lease.votes < 5:
            await asyncio.sleep(0.01)
        found, does = await caught(scout, Moment.RELEASE, lease.release())
        await does
        await asyncio.sleep(0.05)
        assert ask(nodes.urls[found.node], "GET", f"{NAME}:release") == lease.token
        found.free()
        while ask(nodes.urls[found.node], "EXISTS", f"{NAME}:release"):
            await asyncio.sleep(0.01)


async def test_at_a_hand_over(nodes: Nodes) -> None:
    async with scouted(nodes) as (scout, locks):
        lease = await locks.lock(f"{NAME}:push").acquire()
        waits = asyncio.ensure_future(locks.lock(f"{NAME}:push").acquire())
        await asyncio.sleep(0.1)
        found, _ = await caught(scout, Moment.PUSH, lease.release())
        assert ask(nodes.urls[found.node], "GET", f"{NAME}:push") == found.trace.token.decode(), "granted there, and its client is not told"
        found.free()
        await (await waits).release()


async def test_what_does_not_come_is_not_caught(nodes: Nodes) -> None:
    async with scouted(nodes) as (scout, locks):
        assert await scout.catch(Moment.PUSH, 0.1) is None
        async with locks.lock(f"{NAME}:nothing"):
            pass
        assert all(way.open for proxy in scout.proxies for link in proxy.links for way in link.ways)
