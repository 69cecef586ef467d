"""TLS: who is believed and who is not, what a node that cannot be believed costs the others, and that nothing else is different.

In front of every server a proxy of the tests' own ends TLS; a server that was built with TLS is asked itself, too. (`.ci/run` sees to
it that there is one.) For both faces.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
from contract.cluster import Cluster
from contract.faces import Face, Threads
from live.kit import holding, io_thread_of
from live.tls_kit import FRONTS, Front, Listener, Papers, Proxy, Talk

from holdfast import LeaseState, Node
from holdfast.cli.configuration import configuration
from holdfast.drivers import sockets
from holdfast.errors import ConfigError, NoQuorum
from holdfast.serve.server import ListenAddress


@pytest.fixture(params=FRONTS)
async def front(request: pytest.FixtureRequest, three: Cluster, papers: Papers, face: Face) -> AsyncIterator[Front]:
    async with opened(FRONTS[request.param](three, papers), face) as front:
        yield front


@pytest.fixture
async def proxy(three: Cluster, papers: Papers, face: Face) -> AsyncIterator[Proxy]:
    async with opened(Proxy(three, papers), face) as front:
        assert isinstance(front, Proxy)
        yield front


@asynccontextmanager
async def opened(front: Front, face: Face) -> AsyncIterator[Front]:
    await front.open()
    yield front
    await face.finish()
    await front.close()


def client(face: Face, front: Front, urls: list[str] | None = None, **options: Any) -> Any:
    return face.keep(face.kind(*(urls or front.trusted), **{"ttl": 2, **options}))


async def works(face: Face, one: Any, name: str) -> None:
    """All nodes are up, and a lock is a lock."""
    await face.ready(one)
    assert [it.state for it in one.nodes()] == ["up"] * 3
    lease = await face.acquire(one.lock(name, wait=15))
    assert await face.extend(lease) > 1
    await face.release(lease, True)


# ------------------------------------------------ nothing is different


async def test_a_lock_over_tls(face: Face, front: Front, name: str) -> None:
    """Acquired, renewed, contended for, handed over and given back; the nodes are called by the addresses that were given."""
    one, other = client(face, front, ttl=1.2), client(face, front, ttl=1.2)
    await face.ready(one)
    await face.ready(other)
    assert [it.node for it in one.nodes()] == front.urls
    lease = await face.acquire(one.lock(name))
    await face.until(lambda: lease.votes == 3)
    assert front.nodes.holders(name) == [lease.token] * 3
    assert await face.try_acquire(other.lock(name)) is None
    waiter = asyncio.create_task(face.acquire(other.lock(name, wait=15)))
    await face.sleep(1.5)  # more than a ttl: it was renewed
    assert lease.state is LeaseState.HELD
    assert not waiter.done()
    await face.release(lease)
    second = await waiter
    assert second.fence > lease.fence
    await face.release(second, True)
    await face.until(lambda: front.nodes.holders(name) == [None] * 3)


async def test_the_guardian_of_a_killed_process_speaks_tls(face: Face, front: Front, name: str) -> None:
    options = f"{front.trusted!r}, ttl=20, guardian=True, restart_guard=None"
    program = holding(front.nodes, f"lock({name!r})", options)
    with contextlib.ExitStack() as stack:
        held = await asyncio.to_thread(stack.enter_context, program)
        held.process.kill()
        await face.release(await face.acquire(client(face, front).lock(name, wait=15)))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_versions_of_tls(face: Face, front: Front, name: str, version: ssl.TLSVersion) -> None:
    await front.show(front.papers.node, most=version)
    await works(face, client(face, front), name)


async def test_bursts_are_split_into_records_and_sent_in_parts(
    face: Face, front: Front, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than a record (16 KiB) in a write, and more than the kernel takes at once, in both directions."""

    def narrow(family: int) -> socket.socket:
        sock = real(family)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        return sock

    real = sockets.open_socket
    monkeypatch.setattr(sockets, "open_socket", narrow)
    one = client(face, front, ttl=20)
    await face.ready(one)
    count = 60 if isinstance(face, Threads) else 400
    names = [f"{name}.{number}.{'x' * 400}" for number in range(count)]
    for _ in range(3):
        leases = await asyncio.gather(*[face.acquire(one.lock(it, wait=20)) for it in names])
        assert len({it.fence for it in leases}) == count
        await asyncio.gather(*[face.release(it, True) for it in leases])
    assert [it.state for it in one.nodes()] == ["up"] * 3


async def test_callers_leave_what_is_encrypted_to_the_io_thread(face: Face, front: Front, name: str) -> None:
    if not isinstance(face, Threads):
        pytest.skip("asyncio reads on the loop")
    one = client(face, front)
    await face.ready(one)
    for number in range(3):
        await face.release(await face.acquire(one.lock(f"{name}.{number}")))
    direct = io_thread_of(one).direct
    assert len(direct.sockets.by_file) == 3
    assert not direct.near
    assert len(direct.sockets.files) == 0


# ------------------------------------------------ who is believed


async def test_the_name_that_is_asked_for_is_the_hosts(face: Face, proxy: Proxy, name: str) -> None:
    await works(face, client(face, proxy), name)
    assert set(proxy.names) == {None}, "of an address no name is sent (RFC 6066)"
    named = [it.replace("127.0.0.1", "localhost") for it in proxy.trusted]
    await works(face, client(face, proxy, named), name)
    assert proxy.names[-3:] == ["localhost"] * 3


AUTHORITY = "certificate is not good for 127.0.0.1: .*certificate.*; if that is its authority, name it with ssl_ca_certs"
HUNG_UP = r"before it said a word: it may want a certificate of ours \(ssl_certfile\)"
MINE = "it refuses us .*: ssl_certfile and ssl_keyfile name the certificate that it may ask for"
BAD: dict[str, Any] = {  # what nodes show, whether they want to see ours, the options and arguments, and what is complained of
    "nobody's authority": lambda it: (it.node, False, "", {}, AUTHORITY),
    "another authority's context": lambda it: (it.node, False, "", {"ssl": ssl.create_default_context(cafile=it.stranger)}, AUTHORITY),
    "another name": lambda it: (it.other, False, f"ssl_ca_certs={it.authority}", {}, "IP address mismatch.*name the node as its cert"),
    "none of ours": lambda it: (it.node, True, f"ssl_ca_certs={it.authority}", {}, MINE),
}


@pytest.mark.parametrize("which", BAD)
async def test_who_is_not_believed(face: Face, front: Front, name: str, which: str) -> None:
    """`ready` says it at once, as something that time will not mend; whoever only wants a lock hears it for each node."""
    paper, timing, options, arguments, complaint = BAD[which](front.papers)
    await front.show(paper, timing)
    one = client(face, front, [f"{it}?{options}" for it in front.urls], outage=5, **arguments)
    if timing and isinstance(front, Proxy):  # asyncio's servers hang up without a word of why; but it is clear when they do
        with pytest.raises(NoQuorum):
            await face.ready(one, 0.3)
        await face.until(lambda: all(re.search(HUNG_UP, str(it.cause)) for it in one.nodes()))
    else:
        began = face.now()
        with pytest.raises(ConfigError, match=complaint) as caught:
            await face.ready(one, 30)
        assert face.now() - began < 15
        assert any(it in str(caught.value) for it in front.urls)
    with pytest.raises((NoQuorum, ConfigError), match=f"{complaint}|{HUNG_UP}"):
        await face.acquire(one.lock(name, wait=0))
    await front.show(front.papers.node)  # and yet it is tried again: whoever mends it need not tell everybody
    if "ssl_ca_certs" in options and front.papers.stranger not in options:
        await face.until(lambda: all(it.state == "up" for it in one.nodes()))
        await works(face, one, name)


async def test_a_server_without_tls(face: Face) -> None:
    """It hears a greeting that is no command of its own, and waits for the rest of it."""
    async with face.nodes(3, tcp=True) as nodes:
        one = face.keep(face.kind(*[it.replace("redis:", "rediss:") for it in nodes.urls], node_timeout=0.2, outage=0.1))
        with pytest.raises(NoQuorum):
            await face.ready(one, 0.3)
        told = "no connection within 0.2 s (TLS included: does it speak that on this port?)"
        await face.until(lambda: all(str(it.cause) == told for it in one.nodes()))


@asynccontextmanager
async def listener(talk: Talk) -> AsyncIterator[str]:
    """Somebody at the address."""
    listener = Listener(talk)
    yield f"rediss://127.0.0.1:{await listener.open()}"
    await listener.close()


# ------------------------------------------------ nodes with which TLS comes to nothing


@pytest.mark.parametrize("how", ["deaf", "closed", "reset", "half"])
async def test_a_handshake_that_comes_to_nothing_costs_nobody_anything(face: Face, front: Front, name: str, how: str) -> None:
    dials = [0]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dials[0] += 1
        with contextlib.suppress(OSError):
            await reader.read(1)
            if how == "reset":
                sockets.reset(writer.get_extra_info("socket"))
                writer.transport.abort()
            if how == "half":
                writer.write(b"\x16\x03\x03\x00\x7a\x02")  # the beginning of a record
            if how in ("deaf", "half"):
                await reader.read()
        writer.close()

    async with listener(talk) as odd:
        one = client(face, front, [front.trusted[0], odd, front.trusted[2]], node_timeout=0.3)
        lease = await face.acquire(one.lock(name, wait=15))
        await face.until(lambda: one.nodes()[1].state in ("down", "unfit") and [it.state for it in one.nodes()].count("up") == 2)
        assert lease.votes == 2
        began = face.now()
        for turn in range(20):
            await face.release(await face.acquire(one.lock(f"{name}.{turn}", wait=5)))
        assert face.now() - began < 20 * 0.3, "nobody waits for it"
        await face.until(lambda: dials[0] >= 3)
        # On a busy machine one of the dials may have taken too long instead.
        said = "TLS" if how in ("deaf", "half") else "before it said a word"
        await face.until(lambda: said in str(one.nodes()[1].cause))
        await face.extend(lease)
        await face.release(lease)
        await face.finish()


async def test_a_node_that_falls_silent_is_hung_up_by_a_reset(face: Face, proxy: Proxy, name: str) -> None:
    """What the kernel still has for it must not be executed later; a polite end of TLS would take that along."""
    one = client(face, proxy, node_timeout=0.3)
    await face.ready(one)
    proxy.mute = True
    with pytest.raises(NoQuorum):
        await face.acquire(one.lock(name, wait=2))
    await face.until(lambda: len(proxy.ended) >= 3)
    assert all(isinstance(it, ConnectionResetError) for it in proxy.ended[:3]), proxy.ended
    proxy.mute = False
    await face.until(lambda: all(it.state == "up" for it in one.nodes()))
    await works(face, one, name)


# ------------------------------------------------ before anything connects


def test_nobody_is_asked_for_the_password_of_a_key(papers: Papers) -> None:
    """OpenSSL would ask at the terminal, for ever. (The library's own addresses are above.)"""
    with pytest.raises(ConfigError, match=r"the private key .*locked is encrypted"):
        configuration({"nodes": ["rediss://h"], "cert": papers.client.cert, "key": papers.locked}, {}).client()
    with pytest.raises(ConfigError, match=r"the private key .*locked is encrypted"):
        ListenAddress(cert=papers.client.cert, key=papers.locked).context()
    lent = {"ssl": True, "ssl_certfile": papers.client.cert, "ssl_keyfile": papers.locked}
    with pytest.raises(ConfigError, match=r"the private key .*locked is encrypted"):
        Node.of(redis.Redis("h", **lent))
    Node.of(redis.Redis("h", ssl_password="pa55 w0rd/", **lent))


def test_who_needs_no_tls_does_not_load_it() -> None:
    program = "import sys, holdfast; holdfast.Holdfast('redis://h', credentials=print); assert 'ssl' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
    program = program.replace("redis:", "rediss:")
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 1
