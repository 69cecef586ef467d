"""Servers and proxies that cannot be nodes: each is refused in words that say what to do, before `node_timeout` is over.

Real servers, a real Sentinel, a real cluster and Debian's twemproxy. What other products say of themselves: tests/wire/test_handshake.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from contract.cluster import ask
from contract.faces import Face
from live.groups import Process
from live.test_promotion import ports
from nemesis.processes import Running, free_port

from holdfast.errors import ConfigError, NoQuorum, message_of

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


async def test_a_sentinel_that_is_named_as_a_node(face: Face, tmp_path: Path) -> None:
    sentinel = Process(tmp_path, [], sentinel=True)
    try:
        told = await refusal(face, f"redis://127.0.0.1:{sentinel.port}")
        assert told == "it is a Sentinel: write redis+sentinel://host:26379/NAME for the group that it watches"
    finally:
        await face.finish()
        sentinel.end()


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


# ------------------------------------------------ proxies


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
    with Running(program("nutcracker"), "-c", file, "-s", free_port(), "-a", "127.0.0.1", "-o", folder / "log"):
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
