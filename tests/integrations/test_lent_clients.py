"""A node of another library's client is the node that one would write by hand, in each version of these libraries.

`./task guests clients clients-5-6 clients-7` has the versions. In other test runs, the versions that are installed are tested.
"""

from __future__ import annotations

import asyncio
import importlib
import ssl
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from inspect import isawaitable, signature
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from holdfast import Holdfast, Node
from holdfast.drivers.access import accesses
from holdfast.embedded import Nodes

SECRET = "s3cret"
SAID = ("ada", SECRET)
# Clients by what they are called: the module, and the classes of a client and of one that knows Sentinels.
KINDS = {
    "redis-py": ("redis", "Redis", "Sentinel"),
    "redis-py, asyncio": ("redis.asyncio", "Redis", "Sentinel"),
    "valkey-py": ("valkey", "Valkey", "Sentinel"),
    "valkey-py, asyncio": ("valkey.asyncio", "Valkey", "Sentinel"),
    "coredis": ("coredis", "Redis", "Sentinel"),
}
THERE = [it for it, (module, _, _) in KINDS.items() if find_spec(module.partition(".")[0])]


class Papers:
    """A client's certificate, its key, and who is trusted, in files."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.authority, self.cert, self.key = (str(folder / it) for it in ("authority.pem", "client.pem", "client.key"))
        authority.cert_pem.write_to_path(self.authority)
        (known,) = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode()).get_ca_certs()[-1:]
        self.number = known["serialNumber"]
        paper = authority.issue_cert("client.example")
        paper.cert_chain_pems[0].write_to_path(self.cert)
        paper.private_key_pem.write_to_path(self.key)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


class Library:
    """The clients of one library, in one of its kinds."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        module, client, sentinel = KINDS[kind]
        self.module = importlib.import_module(module)
        self.client, self.sentinel = getattr(self.module, client), getattr(self.module, sentinel)
        self.waits = kind == "coredis" or "asyncio" in kind
        # redis-py demands both, and coredis has no option for the host alone.
        self.unchecked = {} if kind == "coredis" else {"ssl_check_hostname": False}
        # Whether it compares the host with the certificate by default: that is its setting, and so the node's.
        self.checks = False
        if kind != "coredis":
            connection = importlib.import_module(f"{module}.connection").SSLConnection
            self.checks = signature(connection).parameters["ssl_check_hostname"].default

    def provider(self) -> Any:
        """A provider, which has to be awaited where the library awaits it."""
        if self.kind == "coredis":
            credentials = importlib.import_module("coredis.credentials")

            class Provider(credentials.AbstractCredentialProvider):
                async def get_credentials(self) -> Any:
                    return credentials.UserPass(*SAID)

            return Provider()
        credentials = importlib.import_module(f"{self.module.__name__.partition('.')[0]}.credentials")

        class Known(credentials.CredentialProvider):
            def get_credentials(self) -> Any:
                return SAID

            async def get_credentials_async(self) -> Any:
                return SAID

        return Known()

    def watched(self) -> Any:
        """A client that finds its server by two Sentinels."""
        places: Any = [("s1", 26379), ("s2", 5)]
        asks = {"username": "ask", "password": SECRET}
        if self.kind != "coredis":
            return self.sentinel(places, sentinel_kwargs=asks).master_for("it", db=2, username="ada", password=SECRET)
        connection = importlib.import_module("coredis.connection")
        places = [connection.TCPLocation(*it) for it in places]
        return self.sentinel(places, sentinel_kwargs=asks, username="ada", password=SECRET, db=2).primary_for("it")


def tls_of(papers: Papers) -> dict[str, Any]:
    return {"ssl_ca_certs": papers.authority, "ssl_certfile": papers.cert, "ssl_keyfile": papers.key}


def checks(library: Library) -> str:
    return f"ssl_check_hostname={str(library.checks).lower()}"


Case = tuple[Callable[[Library, Papers], Any], Callable[[Library, Papers], Node]]
# A client, and the node that one would write for its server.
CASES: dict[str, Case] = {
    "a host and a port": (lambda it, _: it.client(host="db", port=7000), lambda it, _: Node("redis://db:7000")),
    "a database": (lambda it, _: it.client(host="db", db=3), lambda it, _: Node("redis://db/3")),
    "an IPv6 address": (lambda it, _: it.client(host="::1"), lambda it, _: Node("redis://[::1]")),
    "an address": (lambda it, _: it.client.from_url("redis://db:7000/2"), lambda it, _: Node("redis://db:7000/2")),
    "a Unix socket": (lambda it, _: it.client(unix_socket_path="/run/x", db=1), lambda it, _: Node("unix:///run/x?db=1")),
    "a password": (lambda it, _: it.client(host="db", password=SECRET), lambda it, _: Node(f"redis://:{SECRET}@db")),
    "a user": (lambda it, _: it.client(host="db", username="ada", password=SECRET), lambda it, _: Node(f"redis://ada:{SECRET}@db")),
    "a provider": (
        lambda it, _: it.client(host="db", credential_provider=it.provider()),
        lambda it, _: Node("redis://db", credentials=lambda node: SAID),
    ),
    "TLS": (lambda it, _: it.client(host="db", ssl=True), lambda it, _: Node(f"rediss://db?{checks(it)}")),
    "TLS with a client certificate": (
        lambda it, papers: it.client(host="db", ssl=True, **tls_of(papers)),
        lambda it, papers: Node(
            f"rediss://db?ssl_ca_certs={papers.authority}&ssl_certfile={papers.cert}&ssl_keyfile={papers.key}&{checks(it)}"
        ),
    ),
    "TLS that nobody verifies": (
        lambda it, _: it.client(host="db", ssl=True, ssl_cert_reqs="none", **it.unchecked),
        lambda it, _: Node("rediss://db?ssl_cert_reqs=none"),
    ),
    "Sentinels": (
        lambda it, _: it.watched(),
        lambda it, _: Node(f"redis+sentinel://ada:{SECRET}@s1,s2:5/it/2?sentinel_username=ask&sentinel_password={SECRET}"),
    ),
}


def said_by(node: Node, papers: Papers) -> tuple[Any, ...]:
    """All that a node says, as values: the place, the login of this moment, the Sentinels, and what TLS demands."""
    (way,) = accesses([node], None, None)
    login: Any = (node.address.user, node.address.password)
    if node.credentials is not None:
        login = node.credentials(node.label)
        login = tuple(asyncio.run(_awaited(login)) if isawaitable(login) else login)
    tls = None
    if (context := way._context) is not None:
        # (A client treats CERT_OPTIONAL as CERT_REQUIRED. coredis trusts the system besides whom it is told to trust.)
        trusts = papers.number in {it["serialNumber"] for it in context.get_ca_certs()}
        tls = context.verify_mode != ssl.CERT_NONE, context.check_hostname, trusts
    return node.label, login, node.address.sentinels, node.failover, tls


async def _awaited(login: Any) -> Any:
    return await login


@pytest.mark.parametrize("kind", THERE)
@pytest.mark.parametrize("case", CASES)
def test_the_node_is_the_one_that_is_written_by_hand(kind: str, case: str, papers: Papers) -> None:
    made, written = CASES[case]
    library = Library(kind)
    client = made(library, papers)
    assert said_by(Node.of(client), papers) == said_by(written(library, papers), papers)
    assert said_by(Node.of(client, failover=15), papers)[3] == 15.0


# ------------------------------------------------ with a server


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with Nodes(1, tcp=True) as nodes:
        yield nodes.urls[0]


def client_of(library: Library, url: str) -> Any:
    """A client, as its users make it: with all of its defaults."""
    where = urlsplit(url)
    return library.client(host=where.hostname, port=where.port, password=where.password)


@pytest.mark.parametrize("kind", THERE)
def test_a_lock_on_the_server_of_a_client_which_is_not_used(kind: str, server: str) -> None:
    library = Library(kind)
    client = client_of(library, server)
    pool = client.connection_pool
    before = dict(pool.connection_kwargs)
    with Holdfast(Node.of(client)) as locks, locks.lock("lent", wait=15) as lease:
        assert lease.held
    assert dict(pool.connection_kwargs) == before
    opened = getattr(pool, "_created_connections", None)
    opened = len(pool._in_use_connections) + len(pool._available_connections) if opened is None and kind != "coredis" else opened
    assert not opened, "and it has opened no connection"
    if not library.waits:
        assert client.get("lent") is None, "it works afterwards"
        client.close()
