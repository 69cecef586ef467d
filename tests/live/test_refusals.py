"""Servers and proxies that cannot be nodes: each is refused in words that say what to do, before `node_timeout` is over.

Real servers, a real Sentinel, a real cluster, Debian's twemproxy and HAProxy. Products that cannot be had here are played by a
simulated node which answers INFO as they do.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract.cluster import Cluster, ask
from contract.faces import Face
from live.groups import Process, free_port
from live.test_promotion import ports, replicate
from proof.books import word

from holdfast.errors import ConfigError, NoQuorum, message_of
from holdfast.testing import memory

NODE_TIMEOUT = 10.0  # seconds: a refusal needs none of them, however busy the machine is


def client(face: Face, url: str, **options: Any) -> Any:
    return face.keep(face.kind(url, **{"node_timeout": NODE_TIMEOUT, **options}))


async def refusal(face: Face, url: str) -> str:
    """Why the only node of a client cannot be used."""
    one = client(face, url)
    began = face.now()
    with pytest.raises(ConfigError) as caught:
        await face.ready(one, 2 * NODE_TIMEOUT)
    assert face.now() - began < NODE_TIMEOUT
    (cause,) = [it.cause for it in one.nodes()]
    assert message_of(cause) in str(caught.value)
    return message_of(cause)


def port(url: str) -> int:
    return int(url.rpartition(":")[2])


# ------------------------------------------------ real servers


async def test_a_replica(face: Face) -> None:
    async with ports(face, 2) as nodes:
        replicate(nodes, 1, 0)
        assert await refusal(face, nodes.urls[1]) == "it is a replica: use masters that are independent of each other"


async def test_a_sentinel_that_is_named_as_a_node(face: Face, tmp_path: Path) -> None:
    sentinel = Process(tmp_path, [], sentinel=True)
    try:
        told = await refusal(face, f"redis://127.0.0.1:{sentinel.port}")
        assert told == "it is a Sentinel: write redis+sentinel://host:26379/NAME for the group that it watches"
    finally:
        await face.finish()
        sentinel.kill()


async def test_a_cluster_of_three_shards(face: Face) -> None:
    async with ports(face, 3, "--cluster-enabled", "yes") as nodes:
        first = 0
        for node, last in enumerate((5461, 10923, 16384)):
            # Slot by slot: Redis 6.2 knows no ranges.
            assert nodes.ask(node, "CLUSTER", "ADDSLOTS", *range(first, last)) == "OK"
            assert nodes.ask(node, "CLUSTER", "MEET", "127.0.0.1", port(nodes.urls[0])) == "OK"
            first = last
        for node in range(3):
            await face.until(lambda node=node: "cluster_size:3" in nodes.ask(node, "CLUSTER", "INFO"), 60)  # type: ignore[misc]  # (mypy knows no type of a default in a loop)
        assert await refusal(face, nodes.urls[1]) == (
            "it belongs to a cluster of 3 shards, where a name has one shard and no majority: "
            "name servers that are independent of each other"
        )


async def test_tls_on_a_port_that_has_none(face: Face) -> None:
    """The server takes the first bytes of TLS for the beginning of a line, and waits for its end: so does the client, for node_timeout.
    (By chance there is an end of a line in them. Then the server answers, and that is no TLS.)"""
    async with ports(face, 1) as nodes:
        one = face.keep(face.kind(nodes.urls[0].replace("redis://", "rediss://"), node_timeout=0.5, outage=0.2))
        words = r"no connection within 0\.5 s \(TLS included: does it speak that on this port\?\)|it does not speak TLS"
        with pytest.raises((ConfigError, NoQuorum), match=words):
            await face.acquire(one.lock("x", wait=NODE_TIMEOUT))


# ------------------------------------------------ other products, and versions that are too old

NEITHER = "which is neither Redis nor Valkey. Nobody has shown that locks are safe on it: use Redis 6.2 or newer, or Valkey 7.2 or newer"
# What each says in INFO server, as its own sources and users show it.
PRODUCTS: dict[str, tuple[dict[bytes, bytes | None], str]] = {
    "Redis 6.0": (
        {b"redis_version": b"6.0.16", b"redis_mode": b"standalone", b"executable": b"/usr/bin/redis-server"},
        "its server is 6.0.16: Redis 6.2 or Valkey 7.2 is the oldest that works",
    ),
    "Garnet": (
        {b"garnet_version": b"1.0.84", b"redis_version": b"7.4.3", b"redis_mode": b"standalone"},
        f"its server is Garnet, {NEITHER}",
    ),
    "Dragonfly": (
        {
            b"redis_version": b"7.4.0",
            b"dragonfly_version": b"df-v1.40.1",
            b"redis_mode": b"standalone",
            b"executable": b"/usr/bin/dragonfly",
            b"run_id": None,
        },
        f"its server is Dragonfly, {NEITHER}",
    ),
    "KeyDB": (
        {b"redis_version": b"6.3.4", b"executable": b"/data/keydb-server", b"features": b"cluster_mget"},
        f"its server is KeyDB, {NEITHER}",
    ),
    "Kvrocks": (
        {b"redis_version": b"7.0.0", b"kvrocks_version": b"2.12.0", b"run_id": None},
        f"its server is Apache Kvrocks, {NEITHER}",
    ),
}


@contextmanager
def played(facts: dict[bytes, bytes | None]) -> Iterator[str]:
    """A simulated node that says this of itself on top of what it is. None: it does not say that."""
    with memory(1) as nodes:
        server = nodes._house.nodes[0].server
        real = server.commands[b"INFO"]

        def info(connection: Any, *sections: bytes) -> Any:
            text = bytes(real.run(connection, *sections))
            if b"server" in {it.lower() for it in sections}:
                lines = [it for it in text.split(b"\r\n") if it.partition(b":")[0] not in facts]
                text = b"\r\n".join([*lines[:1], *(b"%b:%b" % (it, value) for it, value in facts.items() if value), *lines[1:]])
            return text

        nodes._told(lambda: setattr(server, "commands", {**server.commands, b"INFO": replace(real, run=info)}))
        yield nodes.urls[0]


@pytest.mark.parametrize("product", PRODUCTS)
async def test_a_product_or_version_that_nobody_has_shown_to_be_safe(face: Face, product: str) -> None:
    facts, told = PRODUCTS[product]
    with played(facts) as url:
        assert await refusal(face, url) == told
        await face.finish()


async def test_a_product_is_used_and_warned_of_if_its_address_says_unproven(face: Face, name: str) -> None:
    with played(PRODUCTS["Garnet"][0]) as url:
        heard: list[Any] = []
        one = client(face, f"{url}?unproven=true", observer=heard.append)
        await face.release(await face.acquire(one.lock(name, wait=15)))
        await face.until(lambda: any(word(it) == "warned" for it in heard))
        assert [it.about for it in heard if word(it) == "warned"] == ["product"]
        assert one.nodes()[0].guarantee == "unproven"
        await face.finish()


async def test_the_player_is_used_as_long_as_it_says_that_it_is_a_redis(face: Face, name: str) -> None:
    """So the tests above refuse what it says, and not what it is."""
    with played({b"redis_version": b"7.4.0", b"redis_mode": b"standalone"}) as url:
        await face.release(await face.acquire(client(face, url).lock(name, wait=15)))
        await face.finish()


# ------------------------------------------------ proxies


@contextmanager
def running(*words: object) -> Iterator[None]:
    process = subprocess.Popen([str(it) for it in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def program(name: str) -> str:
    found = shutil.which(name) or f"/usr/sbin/{name}"
    if not Path(found).exists():
        pytest.skip(f"needs {name} (apt-get install {name})")
    return found


@contextmanager
def twemproxy(folder: Path, server: int) -> Iterator[int]:
    """Debian's twemproxy before a server."""
    listens, file = free_port(), folder / "nutcracker.yml"
    file.write_text(f"pool:\n  listen: 127.0.0.1:{listens}\n  redis: true\n  servers:\n   - 127.0.0.1:{server}:1\n")
    with running(program("nutcracker"), "-c", file, "-s", free_port(), "-a", "127.0.0.1", "-o", folder / "log"):
        yield listens


HAPROXY = """
defaults
    mode tcp
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen nodes
    bind 127.0.0.1:{port}
    balance roundrobin
{servers}
"""


@contextmanager
def haproxy(folder: Path, *servers: int) -> Iterator[int]:
    """Debian's HAProxy, which leads each connection to the next one of these servers."""
    listens, file = free_port(), folder / "haproxy.cfg"
    lines = "\n".join(f"    server s{it} 127.0.0.1:{it}" for it in servers)
    file.write_text(HAPROXY.format(port=listens, servers=lines))
    with running(program("haproxy"), "-db", "-f", file):
        yield listens


def answers(port: int) -> bool:
    try:
        return ask(f"redis://127.0.0.1:{port}", "GET", "x") is None
    except OSError:
        return False


async def test_a_proxy_that_understands_commands(face: Face, tmp_path: Path) -> None:
    """twemproxy hangs up at the first command that it does not know, HELLO. So may a server that is just going: nobody is told of a
    mistake, and the cause says what it may be."""
    async with ports(face, 1) as nodes:
        with twemproxy(tmp_path, port(nodes.urls[0])) as listens:
            await face.until(lambda: answers(listens))
            one = client(face, f"redis://127.0.0.1:{listens}", outage=0.2)
            began = face.now()
            with pytest.raises(NoQuorum, match="twemproxy"):
                await face.acquire(one.lock("x", wait=NODE_TIMEOUT))
            assert face.now() - began < NODE_TIMEOUT
            await face.finish()


async def test_a_balancer_before_one_server_is_a_wire(face: Face, name: str, tmp_path: Path) -> None:
    async with ports(face, 1) as nodes:
        with haproxy(tmp_path, port(nodes.urls[0])) as listens:
            await face.until(lambda: answers(listens))
            heard: list[Any] = []
            one = client(face, f"redis://127.0.0.1:{listens}", observer=heard.append)
            for _ in range(3):
                await face.release(await face.acquire(one.lock(name, wait=15)), confirm=True)
                nodes.ask(0, "CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
            assert not [it for it in heard if word(it) == "warned"]
            await face.finish()


async def test_a_balancer_before_two_servers_is_no_node(face: Face, name: str, tmp_path: Path) -> None:
    async with ports(face, 2) as nodes:
        for node in range(2):
            await face.until(lambda node=node: up_for(nodes, node) >= 4)  # type: ignore[misc]  # (mypy knows no type of a default in a loop)
        with haproxy(tmp_path, *map(port, nodes.urls)) as listens:
            await face.until(lambda: answers(listens))
            heard: list[Any] = []
            one = client(face, f"redis://127.0.0.1:{listens}", observer=heard.append, max_ttl=10, outage=0.2)
            await face.ready(one)
            first = one.nodes()[0].run_id
            cut(nodes)
            await face.until(lambda: one.nodes()[0].run_id not in ("", first))
            await face.until(lambda: any(word(it) == "warned" for it in heard))
            (warned,) = [it for it in heard if word(it) == "warned"]
            assert warned.about == "several servers"
            assert "it was running already while the former one answered" in warned.warning
            causes: set[str] = set()

            def seen() -> bool:
                cut(nodes)
                causes.add(message_of(one.nodes()[0].cause))
                return any(it.startswith("its address leads to several servers") for it in causes)

            await face.until(seen, 30)
            await face.finish()


def up_for(nodes: Cluster, node: int) -> int:
    return int(re.search(r"uptime_in_seconds:(\d+)", nodes.ask(node, "INFO", "server"))[1])  # type: ignore[index]  # (it matches)


def cut(nodes: Cluster) -> None:
    """Clients have to connect again."""
    for node in range(len(nodes)):
        nodes.ask(node, "CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
