"""Nodes whose place is asked for before each connection: by real Sentinels, and by a function of the user's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face
from live.groups import SECRET, Group, Watch
from live.test_promotion import ports

from holdfast import Node
from holdfast.errors import ConfigError, LockLost, NoQuorum
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


async def kept_out(face: Face, sign: Sign, name: str, lease: Any) -> None:
    """A new client gets no lock of a server that is new to it at this node. The lease is what it would not know of."""
    client = sign.client(face, outage=0.2)
    with pytest.raises(NoQuorum):
        await face.acquire(client.lock(name, wait=0.3))
    await face.until(lambda: "its server is new to clients of this node" in str(client.nodes()[0].cause))
    with contextlib.suppress(LockLost):
        await face.release(lease)


async def test_a_name_that_is_moved_lets_nobody_in_while_leases_of_its_old_server_last(face: Face, name: str) -> None:
    # Rule G12.
    async with ports(face, 2) as nodes:
        sign = Sign(nodes)
        lease = await face.acquire(sign.client(face, outage=0.2).lock(name, wait=15))
        sign.at = 1
        await kept_out(face, sign, name, lease)


async def test_a_holder_on_a_server_that_is_not_the_node_any_more_loses_it_before_the_next_one_has_it(face: Face, name: str) -> None:
    """The sign turns to another server, and the former one lives."""
    # Rule G13.
    async with ports(face, 2) as nodes:
        sign = Sign(nodes)
        first, second = sign.client(face), sign.client(face)
        lease = await face.acquire(first.lock(name, wait=15))
        sign.at = 1
        turned = face.now()
        other = await face.acquire(second.lock(name, wait=15))
        assert not lease.held
        assert face.now() - turned > 3
        await face.release(other)


async def test_a_name_that_goes_back_lets_nobody_in_while_leases_of_the_other_server_last(face: Face, name: str) -> None:
    # Rule G12.
    async with ports(face, 2) as nodes:
        sign = Sign(nodes)
        client = sign.client(face)
        await face.release(await face.acquire(client.lock(name, wait=15)))
        sign.at = 1
        await face.until(lambda: client.nodes()[0].state == "guarded")
        lease = await face.acquire(client.lock(name, wait=15))
        sign.at = 0
        await kept_out(face, sign, name, lease)


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
