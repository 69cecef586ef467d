"""Nodes whose place is asked for before each connection: by real Sentinels, and by a function of the user's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face
from live.groups import SECRET, Group, Watch
from live.test_promotion import ports, replicate

from holdfast import Node
from holdfast.errors import ConfigError, NoQuorum
from holdfast.wire import connection as connection


class Sign:
    """A sign that points to one of several servers."""

    def __init__(self, nodes: Cluster) -> None:
        self.nodes, self.at, self.asked = nodes, 0, 0

    def __call__(self, node: str) -> tuple[str, int]:
        self.asked += 1
        host, _, port = self.nodes.urls[self.at].rpartition("/")[2].partition(":")
        return host, int(port)

    def client(self, face: Face, **options: Any) -> Any:
        node = Node("redis://the-node:1?failover=0", resolve=self.as_it_waits(face))
        return face.keep(face.kind(node, **{"ttl": 1, "max_ttl": 1, "outage": 30, **options}))

    def as_it_waits(self, face: Face) -> Any:
        async def later(node: str) -> tuple[str, int]:
            return self(node)

        # With asyncio, also a coroutine function.
        return later if face.kind.__module__.startswith("holdfast.aio") else self


# ------------------------------------------------ a function of the user's


async def both(face: Face, lease: Any, got: Any) -> bool:
    """Two hold the lock: the rule that is tested does not keep anybody out."""
    assert lease.held and got.held
    for it in (lease, got):
        await face.release(it)
    return False


async def kept_out(face: Face, sign: Sign, lease: Any, name: str) -> bool:
    """Does a new client get no lock of a server that is new to it at this node?"""
    try:
        got = await face.acquire(sign.client(face, outage=0.2).lock(name, wait=0.3))
    except NoQuorum as error:
        (cause,) = error.causes.values()
        assert "its server is new to clients of this node" in str(cause)
        return True
    return await both(face, lease, got)


async def moved(face: Face, nodes: Cluster, name: str) -> bool:
    """Somebody holds a lock, the sign turns to another server, and a new client wants the lock. Is it kept out?"""
    sign = Sign(nodes)
    first = sign.client(face, outage=0.2)
    lease = await face.acquire(first.lock(name, wait=15))
    sign.at = 1
    return await kept_out(face, sign, lease, name)


async def test_a_name_that_is_moved_lets_nobody_in_while_leases_of_its_old_server_last(face: Face, name: str) -> None:
    # Rule G12.
    async with ports(face, 2) as nodes:
        assert await moved(face, nodes, name)


async def passed_on(face: Face, nodes: Cluster, name: str) -> bool:
    """Somebody holds a lock, the sign turns to another server, and the former one lives. Is the lock lost before the next one has it?

    Rule G13.
    """
    sign = Sign(nodes)
    first, second = sign.client(face), sign.client(face)
    lease = await face.acquire(first.lock(name, wait=15))
    sign.at = 1
    turned = face.now()
    other = await face.acquire(second.lock(name, wait=15))
    if lease.held:
        return await both(face, lease, other)
    await face.release(other)
    return face.now() - turned > 3


async def test_a_holder_on_a_server_that_is_not_the_node_any_more_loses_it_before_the_next_one_has_it(face: Face, name: str) -> None:
    async with ports(face, 2) as nodes:
        assert await passed_on(face, nodes, name)


async def went_back(face: Face, nodes: Cluster, name: str) -> bool:
    """The sign turns to b and back to a. Is a new client kept out at a, while a lease of b lasts?"""
    sign = Sign(nodes)
    client = sign.client(face)
    await face.release(await face.acquire(client.lock(name, wait=15)))
    sign.at = 1
    await face.until(lambda: client.nodes()[0].state == "guarded")
    lease = await face.acquire(client.lock(name, wait=15))
    sign.at = 0
    return await kept_out(face, sign, lease, name)


async def test_a_name_that_goes_back_lets_nobody_in_while_leases_of_the_other_server_last(face: Face, name: str) -> None:
    # Rule G12.
    async with ports(face, 2) as nodes:
        assert await went_back(face, nodes, name)


async def test_a_node_that_becomes_a_replica_is_asked_for_again(face: Face, name: str) -> None:
    async with ports(face, 2) as nodes:
        sign = Sign(nodes)
        client = sign.client(face)
        await face.release(await face.acquire(client.lock(name, wait=15)))
        before = sign.asked
        replicate(nodes, 0, 1)
        began = face.now()
        with pytest.raises(NoQuorum, match="replica"):
            await face.acquire(client.lock(name, wait=1))
        assert sign.asked > before, "it may be the server that was meant, so it is no ConfigError"
        sign.at = 1
        await face.release(await face.acquire(client.lock(name, wait=30)))
        assert face.now() - began > 3, "the guard of max_ttl + 2"


async def test_two_promotions_let_nobody_in(face: Face, name: str) -> None:
    async with ports(face, 2) as nodes:
        sign = Sign(nodes)
        first = sign.client(face)
        await face.release(await face.acquire(first.lock(name, wait=15)))
        for new, old in ((1, 0), (0, 1)):
            lease = await face.acquire(sign.client(face).lock(name, wait=15))
            replicate(nodes, new, old)
            await face.until(lambda new=new: "master_link_status:up" in nodes.ask(new, "INFO", "replication"))  # type: ignore[misc]  # (mypy knows no type of a default in a lambda)
            assert nodes.ask(new, "REPLICAOF", "NO", "ONE") == "OK"
            nodes.ask(new, "DEL", name)  # as if it had not received the lock before the failover
            sign.at = new
            fresh = sign.client(face, outage=0.2)
            with pytest.raises(NoQuorum, match="guarded"):
                await face.acquire(fresh.lock(name, wait=0.3))
            await face.until(lambda lease=lease: not lease.held)  # type: ignore[misc]  # (as above)
        await face.release(await face.acquire(sign.client(face).lock(name, wait=15)))


async def test_a_function_that_does_not_answer_is_named(face: Face) -> None:
    def slow(node: str) -> tuple[str, int]:
        time.sleep(0.5)
        return "127.0.0.1", 1

    client = face.keep(face.kind(Node("redis://the-node", resolve=slow), node_timeout=0.1, outage=0.1))
    with pytest.raises(NoQuorum, match=r"0\.1 s: .*resolve\(\)"):
        await face.ready(client, 0.3)


# ------------------------------------------------ real Sentinels


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Group, Watch]]:
    folder = tmp_path_factory.mktemp("sentinels")
    group = Group("it", folder, 10)
    watch = Watch(folder, [group])
    yield group, watch
    watch.close()
    group.close()


async def test_sentinels_say_where_the_primary_is(face: Face, watched: tuple[Group, Watch], name: str) -> None:
    group, watch = watched
    url = f"redis+sentinel://:{SECRET}@127.0.0.1:1,{watch.places}/it?failover=12"
    client = face.keep(face.kind(url, ttl=1, max_ttl=1, outage=60))
    lease = await face.acquire(client.lock(name, wait=60))
    assert lease.held
    (node,) = client.nodes()
    assert (node.node, node.guarantee) == (f"redis+sentinel://127.0.0.1:1,{watch.places}/it", "safe")
    assert node.run_id == dict(it.split(":", 1) for it in group.primary.ask("INFO", "server").split("\r\n") if ":" in it)["run_id"]
    await face.release(lease)


async def test_a_group_that_is_not_there_and_a_sentinel_as_a_node_are_refused(face: Face, watched: tuple[Group, Watch]) -> None:
    _, watch = watched
    sentinel = watch.places.partition(",")[0]
    for url, told in {
        f"redis+sentinel://{watch.places}/other": "its Sentinels know no group 'other'",
        f"redis://{sentinel}": r"it is a Sentinel: write redis\+sentinel://",
    }.items():
        with pytest.raises(ConfigError, match=told):
            await face.ready(face.keep(face.kind(url)), 5)
    with pytest.raises(NoQuorum, match=r"'it' .*127\.0\.0\.1:1"):
        await face.ready(face.keep(face.kind("redis+sentinel://127.0.0.1:1/it")), 0.3)
