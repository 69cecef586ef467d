"""Nodes that are not what they seem: a promoted replica, a primary that has become a replica, a cluster, one server under two addresses."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from contract.cluster import Cluster, ask
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
async def proxies(face: Face, nodes: Cluster, kind: Callable[[str, int], P] = Proxy, delay: float = 0.0) -> AsyncIterator[list[P]]:  # type: ignore[assignment]  # (mypy knows no default of such a type)
    """A way to each node, which takes so many seconds in each direction; clients are closed before the ways are."""
    found = [kind("127.0.0.1", int(url.rpartition(":")[2])) for url in nodes.urls]
    for proxy in found:
        proxy.delay = delay
        await proxy.start()
    try:
        yield found
    finally:
        await face.finish()
        for proxy in found:
            await proxy.close()


# ------------------------------------------------ promotions


async def test_a_promoted_replica_grants_nothing_until_the_leases_of_its_primary_have_ended(face: Face, pair: Cluster, name: str) -> None:
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


async def test_each_promotion_of_one_process_begins_a_guard(face: Face, pair: Cluster, name: str) -> None:
    client = only(face, pair, 0, ttl=1, max_ttl=1, outage=60)
    await face.release(await face.acquire(client.lock(name, wait=5)), confirm=True)
    for _ in range(2):
        pair.ask(0, "REPLICAOF", "127.0.0.1", 1)
        pair.ask(0, "REPLICAOF", "NO", "ONE")
        pair.ask(0, "CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
        began = face.now()
        await face.release(await face.acquire(client.lock(name, wait=30)), confirm=True)
        assert face.now() - began > 2.5, "max_ttl and 2 s, by the time at which the node was last heard"


async def test_a_node_that_has_become_a_replica_shows_it(face: Face, pair: Cluster, name: str) -> None:
    assert pair.ask(1, "REPLICAOF", "NO", "ONE") == "OK"
    client = only(face, pair, 0, ttl=2, outage=0.3)
    await face.release(await face.acquire(client.lock(name, wait=5)), confirm=True)
    assert client.nodes()[0].state == "up"
    replicate(pair, 0, 1)
    with pytest.raises(NoQuorum, match="replica"):
        await face.acquire(client.lock(name))
    (node,) = client.nodes()
    assert node.state == "unfit" and "it is a replica" in str(node.cause)


async def test_a_primary_with_a_replica_is_warned_of(face: Face, pair: Cluster, name: str) -> None:
    heard: list[Any] = []
    client = only(face, pair, 0, observer=heard.append)
    await face.release(await face.acquire(client.lock(name, wait=5)))
    await face.until(lambda: any(word(it) == "warned" for it in heard))
    (warned,) = [it for it in heard if word(it) == "warned"]
    assert warned.node == pair.urls[0] and warned.warning.startswith("it has replicas (1). If one is promoted in its place")


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


# ------------------------------------------------ one server, two addresses


async def test_a_server_counts_once_while_the_votes_of_its_other_address_last(face: Face, name: str) -> None:
    async with ports(face, 3) as nodes, proxies(face, nodes) as ways:
        client = face.keep(face.kind(*[way.url for way in ways], ttl=2, max_ttl=5, outage=0.5))
        await face.ready(client)
        lease = await face.acquire(client.lock(name, renew=False))
        ways[0].reset()
        home, ways[0].port = ways[0].port, 1  # nobody listens there
        await face.until(lambda: client.nodes()[0].state == "down")
        ways[1].port = home
        ways[1].reset()
        await face.until(lambda: client.nodes()[1].state == "down")
        with pytest.raises(NoQuorum) as caught:
            await face.acquire(client.lock(f"{name}/other"))
        assert f"it is the same server as {ways[0].url}: a majority of one server means nothing" in str(caught.value)
        await face.until(lambda: client.nodes()[1].state == "up", 30)
        await face.release(await face.acquire(client.lock(f"{name}/other", wait=5)))
        assert not lease.held


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


async def test_a_set_that_shares_some_servers_under_other_addresses_is_refused(face: Face, name: str) -> None:
    async with ports(face, 4) as nodes, proxies(face, nodes) as ways:
        former = [way.url for way in ways[1:]]
        client = face.keep(face.kind(shards={"new": list(nodes.urls[:3])}, previous={"old": former}, ttl=2))
        with pytest.raises(ConfigError, match="2 servers"):
            await face.acquire(client.lock(name, wait=5))
        with pytest.raises(ConfigError, match="2 servers"):
            await face.call(client.rate(name, 4, 1000).take)


async def test_sets_that_cannot_be_reached_are_no_quorum(face: Face, name: str) -> None:
    async with ports(face, 3) as nodes:
        dead = [f"redis://127.0.0.1:{port}" for port in (1, 2, 3)]
        client = face.keep(face.kind(shards={"new": list(nodes.urls)}, previous={"old": dead}, ttl=2, outage=0.5))
        for wait in (None, 5, 0):
            began = face.now()
            with pytest.raises(NoQuorum) as caught:
                await face.acquire(client.lock(name, wait=wait))
            assert face.now() - began < 4 and set(caught.value.causes) == set(dead)
        assert nodes.holders(name) == [None] * 3
        for waits in (client.rate(name, 4, 1000).take, client.rate(name, 4, 1000).acquire, client.rate(name, 4, 1000).peek):
            with pytest.raises(NoQuorum) as caught:
                await face.call(waits)
            assert set(caught.value.causes) == set(dead)
        opened = await face.call(client.rate(name, 4, 1000, fail_open=True).take)
        assert opened and isinstance(opened.cause, NoQuorum)


# ------------------------------------------------ a short lease, and nodes that are far away


async def test_one_lock_with_a_short_ttl_does_not_ruin_its_client(face: Face, name: str) -> None:
    async with ports(face, 3) as nodes, proxies(face, nodes, delay=0.01) as ways:
        client = face.keep(face.kind(*[way.url for way in ways], outage=3))
        await face.ready(client)
        with pytest.raises(ConfigError, match=r"ttl=0\.05 .*[0-9.]+ ms") as caught:
            await face.acquire(client.lock(name, ttl=0.05))
        least = float(re.search(r"can work is ([0-9.]+) seconds", str(caught.value))[1])  # type: ignore[index]  # (it matches)
        # Three trips of twice the delay. It is rounded up to milliseconds, so it may be just that.
        assert least >= 0.06
        for number in range(5):
            lease = await face.acquire(client.lock(f"{name}/{number}", wait=5))
            assert lease.held
            await face.release(lease)
        short = await face.acquire(client.lock(f"{name}/short", ttl=0.5, wait=5))
        await face.release(short)
        assert [it.state for it in client.nodes()] == ["up"] * 3


async def test_a_client_whose_own_ttl_is_too_short_hears_of_it_by_its_first_lock(face: Face, name: str) -> None:
    async with ports(face, 3) as nodes, proxies(face, nodes, delay=0.02) as ways:
        client = face.keep(face.kind(*[way.url for way in ways], ttl=0.05, outage=20))
        with pytest.raises(ConfigError, match=r"ttl=0\.05 is too short for these nodes"):
            await face.acquire(client.lock(name))
        lease = await face.acquire(client.lock(name, ttl=5))
        await face.release(lease)
        assert ask(nodes.urls[0], "PING") == "PONG"
