"""Nodes that are not what they seem: a promoted replica, a cluster, a set of servers under other addresses."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from contract.cluster import Cluster
from contract.faces import Face
from nemesis.proxy import Proxy
from proof.books import word

from holdfast.errors import ConfigError, NoQuorum


@pytest.fixture
async def pair(face: Face) -> AsyncIterator[Cluster]:
    """A primary, and a replica that has caught up with it."""
    async with ports(face, 2) as cluster:
        replicate(cluster, 1, 0)
        await face.until(lambda: "master_link_status:up" in cluster.ask(1, "INFO", "replication"))
        yield cluster


def replicate(nodes: Cluster, replica: int, primary: int) -> None:
    assert nodes.ask(replica, "REPLICAOF", "127.0.0.1", nodes.urls[primary].rpartition(":")[2]) == "OK"


def only(face: Face, nodes: Cluster, node: int, **options: Any) -> Any:
    """A client that uses this node alone."""
    return face.keep(face.kind(nodes.urls[node], **options))


@asynccontextmanager
async def ports(face: Face, count: int, *arguments: str) -> AsyncIterator[Cluster]:
    """Nodes at ports without a password: replicas, members of a cluster and proxies have to reach them."""
    async with face.nodes(count, *arguments, tcp=True) as cluster:
        assert cluster.everywhere("CONFIG", "SET", "requirepass", "") == ["OK"] * count
        cluster.nodes.urls = tuple(f"redis://{url.rpartition('@')[2]}" for url in cluster.urls)
        yield cluster


P = TypeVar("P", bound=Proxy)


@asynccontextmanager
async def proxies(face: Face, nodes: Cluster, kind: Callable[[str, int], P] = Proxy) -> AsyncIterator[list[P]]:  # type: ignore[assignment]  # (mypy knows no default of such a type)
    """A way to each node; clients are closed before the ways are."""
    found = [kind("127.0.0.1", int(url.rpartition(":")[2])) for url in nodes.urls]
    for proxy in found:
        await proxy.start()
    try:
        yield found
    finally:
        await face.finish()
        for proxy in found:
            await proxy.close()


# ------------------------------------------------ promotions


async def test_a_promoted_replica_grants_nothing_until_the_leases_of_its_primary_have_ended(face: Face, pair: Cluster, name: str) -> None:
    # Rule G3.
    first = only(face, pair, 0, ttl=1, max_ttl=1)
    lease = await face.acquire(first.lock(name, wait=5))
    assert pair.ask(1, "REPLICAOF", "NO", "ONE") == "OK"
    pair.ask(1, "DEL", name)  # as if it had not received the lock before the failover
    heard: list[Any] = []
    second = only(face, pair, 1, ttl=1, max_ttl=1, observer=heard.append)
    with pytest.raises(NoQuorum) as caught:
        await face.acquire(second.lock(name, wait=1))
    assert lease.held, "the first holder still has it"
    (cause,) = caught.value.causes.values()
    # The guard of its start ends later if it copied its primary in less than a second, as Redis 6.2 does.
    told = "was a replica, was promoted lately, and may lack leases that .* granted|started [0-9]+ s ago and may have forgotten .*"
    assert re.fullmatch(f"guarded, [0-9.]+ s left: it ({told})", str(cause))
    assert second.nodes()[0].state == "guarded"
    assert [it.node for it in heard if word(it) == "guarded"] == [pair.urls[1]]
    await face.release(lease)
    await face.release(await face.acquire(second.lock(name, wait=5)))
    began = face.now()
    third = only(face, pair, 1, ttl=1, max_ttl=1)
    await face.release(await face.acquire(third.lock(name, wait=5)))
    assert face.now() - began < 1.5, "the node has a note of the promotion: a new client need not wait for it"


# ------------------------------------------------ clusters


async def test_a_cluster_of_several_shards_is_refused_and_one_of_a_single_shard_is_a_node(face: Face, name: str) -> None:
    async with ports(face, 2, "--cluster-enabled", "yes") as nodes:
        # Slot by slot: Redis 6.2 knows no ranges.
        assert nodes.ask(0, "CLUSTER", "ADDSLOTS", *range(16384)) == "OK"
        await face.until(lambda: "cluster_state:ok" in nodes.ask(0, "CLUSTER", "INFO"))
        alone = only(face, nodes, 0, restart_guard=None)
        await face.release(await face.acquire(alone.lock(name, wait=5)))
        assert nodes.ask(0, "CLUSTER", "DELSLOTS", *range(8192, 16384)) == "OK"
        assert nodes.ask(1, "CLUSTER", "ADDSLOTS", *range(8192, 16384)) == "OK"
        assert nodes.ask(1, "CLUSTER", "MEET", "127.0.0.1", nodes.urls[0].rpartition(":")[2]) == "OK"
        for node in range(2):
            await face.until(lambda node=node: {"cluster_size:2", "cluster_state:ok"} <= {*nodes.ask(node, "CLUSTER", "INFO").split()}, 30)  # type: ignore[misc]  # (mypy knows no type of a default in a loop)
        client = face.client(nodes)
        # The one that has the slot of the probe tells how many shards there are, and the other one refuses the probe.
        told = "it belongs to a cluster (?:of 2|with several) shards, where a name has one shard and no majority"
        with pytest.raises(ConfigError, match=told):
            await face.ready(client)
        await face.until(lambda: all(re.search(told, str(it.cause)) for it in client.nodes()))
        for number in range(20):  # (some of these names live on the other shard)
            with contextlib.suppress(NoQuorum):
                await face.release(await face.acquire(alone.lock(f"{name}/{number}", wait=0)))
                continue
            break
        await face.until(lambda: "it belongs to a cluster" in str(alone.nodes()[0].cause))


# ------------------------------------------------ one set of servers, two sets of addresses


async def test_a_set_that_is_named_by_other_addresses_is_the_same_set(face: Face, name: str) -> None:
    async with ports(face, 3) as nodes, proxies(face, nodes) as ways:
        same, other = list(nodes.urls), [way.url for way in ways]
        client = face.keep(face.kind(shards={"new": same}, previous={"old": other}, ttl=2))
        old = face.keep(face.kind(shards={"old": other}, ttl=2))
        for wait in (5, 0, None):
            lease = await face.acquire(client.lock(name, wait=wait))
            assert lease.held and await face.extend(lease) > 1
            assert await face.try_acquire(old.lock(name)) is None, "and it keeps others out"
            await face.release(lease, confirm=True)
            await face.until(lambda: nodes.holders(name) == [None] * 3)


async def test_a_rate_counts_once_on_a_set_that_is_named_by_other_addresses(face: Face, name: str) -> None:
    async with ports(face, 3) as nodes, proxies(face, nodes) as ways:
        sets: dict[str, Any] = {"shards": {"new": list(nodes.urls)}, "previous": {"old": [way.url for way in ways]}}
        client = face.keep(face.kind(**sets, ttl=2))
        allowance = client.rate(name, 4, 1000)
        assert [bool(await face.call(allowance.take)) for _ in range(5)] == [True] * 4 + [False]
