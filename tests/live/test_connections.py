"""How one gets to a node: credentials that change, addresses of either family, places that lead nowhere; and no password is ever seen."""

from __future__ import annotations

import asyncio
import logging
import pickle
import re
import socket
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from contract.cluster import Cluster, asks
from contract.faces import Asyncio, Face

from holdfast.drivers import sockets
from holdfast.embedded import Nodes
from holdfast.errors import ConfigError, HoldfastError, NoQuorum, message_of
from holdfast.wire.address import parse

SECRET = "sEcr3t/ü&+%"  # distinctive in any form: as it is, encoded, and half of it


@pytest.fixture
async def three(face: Face) -> AsyncIterator[Cluster]:
    async with face.nodes(3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster(Nodes(3)) as cluster:
        yield cluster


def kinds(face: Face, function: Callable[[str], Any]) -> list[Any]:
    """Credentials that are a function; and with asyncio, also those that are a coroutine function."""

    async def later(node: str) -> Any:
        return await asyncio.to_thread(function, node)

    return [function, later] if isinstance(face, Asyncio) else [function]


# ------------------------------------------------ credentials


async def test_credentials_are_asked_for_before_each_connection(face: Face, three: Cluster) -> None:
    """The password changes while a lock is held and others wait; nobody notices."""
    word, heard = ["first"], list[str]()

    def credentials(node: str) -> tuple[str, str] | str:
        heard.append(node)
        assert threading.current_thread() is not threading.main_thread()
        return word[0] if len(heard) % 2 else ("default", word[0])

    three.everywhere("CONFIG", "SET", "requirepass", "first")
    for turn, given in enumerate(kinds(face, credentials)):
        heard.clear()
        one = face.client(three, credentials=given, ttl=3)
        await face.ready(one, 15)
        assert sorted(heard) == sorted(three.urls)
        lease = await face.acquire(one.lock("rotates"))
        waiter = asyncio.create_task(face.acquire(one.lock("rotates", wait=20)))
        after = f"after{turn}"
        for url in three.urls:
            change = [("AUTH", word[0]), ("CONFIG", "SET", "requirepass", after), ("CLIENT", "KILL", "TYPE", "pubsub")]
            words(url, change)
        word[0] = after
        await face.until(lambda: all(it.state == "up" for it in one.nodes()) and len(heard) >= 6)  # noqa: B023 (called within this turn of the loop)
        assert lease.held
        await face.release(lease)
        await face.release(await waiter)


def words(url: str, commands: list[tuple[str, ...]]) -> None:
    assert not [it for it in asks(url, commands) if isinstance(it, Exception)]


class Vault(Exception):
    """What a stranger's library might raise."""


def raises(node: str) -> str:
    raise Vault(f"{SECRET} is too old")


def exits(node: str) -> str:
    sys.exit(SECRET)


BAD: dict[str, tuple[Callable[[str], Any], type[Exception], str]] = {
    "raises": (raises, ConnectionError, r"credentials\(\) raised Vault at test_connections.py:\d+$"),
    "exits": (exits, ConnectionError, r"credentials\(\) raised SystemExit at test_connections.py:\d+$"),
    "nothing": (lambda node: None, ConfigError, r"credentials\(\) gives a password or \(user, password\), not NoneType$"),
}


@pytest.mark.parametrize("which", BAD)
async def test_credentials_that_are_none_are_the_nodes_cause(
    face: Face, shared: Cluster, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    function, kind, complaint = BAD[which]
    for given in kinds(face, function):
        one = face.client(shared, credentials=given, outage=0.1)
        if given is not function and which == "exits":
            continue  # (a coroutine that exits ends its loop, whoever runs it)
        with pytest.raises(HoldfastError) as caught:
            await face.ready(one, 1)
        await face.until(lambda: all(it.state in ("down", "unfit") for it in one.nodes()))  # noqa: B023 (called within this turn of the loop)
        for node in one.nodes():
            assert type(node.cause) is kind
            assert re.search(complaint, message_of(node.cause))
            assert unseen(node.cause)
        assert unseen(caught.value, one, one.nodes(), caplog.text)


async def test_what_credentials_raise_is_not_taken_for_a_connection_that_ended(face: Face) -> None:
    """The advice about certificates is for a server that has closed the connection. Here there was none."""
    for given in kinds(face, raises):
        one = face.keep(face.kind("rediss://127.0.0.1:1", credentials=given, outage=0.1))
        with pytest.raises(NoQuorum):
            await face.ready(one, 0.2)
        (node,) = one.nodes()
        assert re.search(r"credentials\(\) raised \w+ at [\w.]+:\d+$", message_of(node.cause))


async def test_credentials_that_come_back_are_tried_again(face: Face, shared: Cluster) -> None:
    good = [False]
    for given in kinds(face, lambda node: "any" if good[0] else raises(node)):
        good[0] = False
        one = face.client(shared, credentials=given, outage=0.1)
        with pytest.raises(NoQuorum):
            await face.ready(one, 0.2)
        good[0] = True
        await face.until(lambda: all(it.state == "up" for it in one.nodes()))  # noqa: B023 (called within this turn of the loop)


# ------------------------------------------------ passwords


def unseen(*shown: Any) -> bool:
    """Is the secret nowhere in the words of these, nor in those of anything that they came from?"""
    for it in shown:
        told = [str(it), repr(it)]
        if isinstance(it, BaseException):
            told += traceback.format_exception(it)
            told.append(repr(pickle.dumps(it)))
            told += [repr(cause) for cause in (it.__cause__, it.__context__, *getattr(it, "causes", {}).values())]
            told += [str(it.__dict__)]
        for text in told:
            assert "secr3t" not in text.lower(), text
    return True


# ------------------------------------------------ places


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_an_address_in_brackets_is_of_the_sixth_family() -> None:
    for url, where in (("redis://[::1]:7000", ("::1", 7000)), ("rediss://[2001:db8::2]", ("2001:db8::2", 6379))):
        address = parse(url)
        assert sockets.is_literal(address)
        assert [(family, place[:2]) for family, place in sockets.places(address)] == [(socket.AF_INET6, where)]


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1: only the reading of IPv6 addresses was tested")
async def test_ipv6(face: Face) -> None:
    async with face.nodes(3, "--bind", "127.0.0.1", "::1", tcp=True) as nodes:
        urls = [it.replace("127.0.0.1", "[::1]") for it in nodes.urls]
        one = face.keep(face.kind(*urls))
        assert [it.node for it in await face.ready(one, 15)] == [f"redis://{it.partition('@')[2]}" for it in urls]
        lease = await face.acquire(one.lock("six"))
        await face.until(lambda: nodes.holders("six") == [lease.token] * 3)
        assert "laddr=[::1]" in nodes.ask(0, "CLIENT", "LIST", "TYPE", "pubsub")
        await face.release(lease)


@pytest.mark.parametrize("how", ["refuses", "is deaf", "is a hole"])
async def test_a_host_with_two_addresses_one_of_which_leads_nowhere(
    face: Face, shared: Cluster, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """As `localhost` may be both families, and a server listens at one; or a network drops what goes to the other."""
    with socket.socket() as odd, socket.socket() as filler:
        odd.bind(("127.0.0.1", 0))
        if how != "refuses":
            odd.listen(0)
        if how == "is a hole":  # (a full queue: what else arrives is dropped; on macOS it is refused)
            filler.setblocking(False)
            filler.connect_ex(odd.getsockname())

        def places(address: Any) -> list[tuple[int, Any]]:
            return [(socket.AF_INET, odd.getsockname()), *real(address)]

        real = sockets.places
        monkeypatch.setattr(sockets, "places", places)
        one = face.client(shared, node_timeout=0.3)
        await face.ready(one, 15)
        lease = await face.acquire(one.lock("nowhere", wait=15))
        await face.release(lease)


async def test_a_host_without_an_address_says_so(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "places", lambda address: [])
    one = face.keep(face.kind("redis://nowhere", outage=0.1))
    with pytest.raises(NoQuorum, match="has no address"):
        await face.ready(one, 0.2)
