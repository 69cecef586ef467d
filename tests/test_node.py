"""What a program says of one node: an address is its short form, and no option is said twice or shown."""

from __future__ import annotations

import ssl
from functools import partial
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey

import holdfast.aio
from holdfast import ConfigError, Holdfast, Node
from holdfast.drivers.access import accesses
from holdfast.node import node_of
from holdfast.wire.address import parse

SECRET = "s3cret"


def signed(who: str, node: str) -> tuple[str, str]:
    return who, f"{SECRET} of {node}"


@pytest.mark.parametrize("kind", [Holdfast, holdfast.aio.Holdfast])
def test_an_address_is_the_short_form_of_a_node(kind: Any) -> None:
    url = "redis://a:6379/2?failover=15"
    assert node_of(url) == Node(url) == Node("redis://a/2", failover=15)
    assert kind(url).settings.addresses == kind(Node(url)).settings.addresses == kind([Node(url)]).settings.addresses
    assert kind(shards={"x": ["redis://b"], "y": [Node("redis://a")]}).shards == {"x": ("redis://b:6379",), "y": ("redis://a:6379",)}
    node = Node(url)
    assert (node.label, node.failover, hash(node)) == ("redis://a:6379/2", 15.0, hash(Node(url)))
    assert node_of(node) is node
    with pytest.raises(AttributeError):
        node.address = parse("redis://b")
    with pytest.raises(ConfigError, match="named twice"):
        kind(Node("redis://a"), "redis://a")


def test_nothing_of_it_shows_a_secret() -> None:
    context = ssl.create_default_context()
    node = Node("rediss://me@a", credentials=partial(signed, SECRET), ssl=context, resolve=print, failover=1.5)
    assert repr(node) == "Node('rediss://a:6379', failover=1.5, credentials=..., ssl=..., resolve=...)"
    assert repr(Node(f"redis://:{SECRET}@a")) == "Node('redis://a:6379')"
    watched = Node(f"redis+sentinel://:{SECRET}@s1,s2/it?sentinel_password={SECRET}")
    assert SECRET not in f"{watched!r} {watched.address!r} {Holdfast(watched)!r}"


TWICE: dict[str, Any] = {
    "credentials is a function": lambda: Node("redis://a", credentials=SECRET),  # type: ignore[arg-type]  # (what it is about)
    "resolve is a function": lambda: Node("redis://a", resolve=("a", 1)),  # type: ignore[arg-type]  # (what it is about)
    "the address has a password": lambda: Node(f"redis://:{SECRET}@a", credentials=print),
    "failover is said twice": lambda: Node("redis://a?failover=1", failover=2),
    "failover is a number of seconds": lambda: Node("redis://a", failover=-1),
    "another way to its server": lambda: Node("unix:///a", resolve=print),
    "another way to": lambda: Node("redis+sentinel://s/a", resolve=print),
    "ssl= is for nodes with TLS": lambda: Node("redis://a", ssl=ssl.create_default_context()),
    "ssl is an ssl.SSLContext": lambda: Node("rediss://a", ssl=True),  # type: ignore[arg-type]  # (what it is about)
    "there is ssl= too": lambda: Node("rediss://a?ssl_cert_reqs=none", ssl=ssl.create_default_context()),
}


@pytest.mark.parametrize("told", TWICE)
def test_what_cannot_go_together_is_refused(told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        TWICE[told]()
    assert SECRET not in str(caught.value)


def test_what_a_node_says_wins_over_the_client() -> None:
    own, other = ssl.create_default_context(), ssl.create_default_context()
    nodes = [
        Node("rediss://127.0.0.1", credentials=partial(signed, "own"), ssl=own),
        Node("rediss://127.0.0.2"),
        Node("redis://127.0.0.3", resolve=lambda node: ("127.0.0.4", 7000)),
    ]
    ways = accesses(nodes, other, partial(signed, "all"))
    asked = [it.ask() for it in ways]
    assert [it.user for _, it in asked] == ["own", "all", "all"]
    assert [places[0][1] for places, _ in asked] == [("127.0.0.1", 6379), ("127.0.0.2", 6379), ("127.0.0.4", 7000)]
    assert [it._context for it in ways] == [own, other, None]
    assert [it.asks for it in ways] == ["credentials()", "credentials()", "resolve() and credentials()"]
    assert not ways[2].at_hand


@pytest.mark.parametrize("said", [None, "a:1", ("a",), ("", 1), ("a", 0), ("a", "1"), ("a", True), ("a", 65536)])
def test_a_place_that_is_none_is_refused(said: object) -> None:
    (way,) = accesses([Node("redis://a", resolve=lambda node: said)], None, None)
    with pytest.raises(ConfigError, match=r"resolve\(\) gives \(host, port\)"):
        way.ask()


def test_a_function_that_raises_is_named_without_its_words() -> None:
    def broken(node: str) -> object:
        raise ValueError(SECRET)

    for option in ("resolve", "credentials"):
        options: dict[str, Any] = {option: broken}
        (way,) = accesses([Node("redis://127.0.0.1", **options)], None, None)
        with pytest.raises(ConnectionError, match=rf"^{option}\(\) raised ValueError at test_node.py:\d+$"):
            way.ask()


def lent(client: Any) -> tuple[str, Any, bool]:
    node = Node.of(client)
    return node.label, node.credentials and node.credentials(node.label), node.ssl is not None


LIBRARIES = pytest.mark.parametrize("library", [redis, valkey], ids=["redis-py", "valkey-py"])


@LIBRARIES
def test_a_client_lends_its_settings(library: Any) -> None:
    kind = getattr(library, "Redis", None) or library.Valkey
    assert lent(kind("db", 7000, db=3)) == ("redis://db:7000/3", None, False)
    assert lent(kind("db", username="ada", password=SECRET)) == ("redis://db:6379", ("ada", SECRET), False)
    assert lent(kind("db", ssl=True)) == ("rediss://db:6379", None, True)
    assert lent(kind(unix_socket_path="/run/x", db=1)) == ("unix:///run/x?db=1", None, False)
    assert Node.of(kind("db"), failover=15) == Node("redis://db", failover=15)


@LIBRARIES
def test_a_client_that_finds_its_server_by_sentinels_lends_these(library: Any) -> None:
    found = library.Sentinel([("s1", 26379), ("s2", 5)], sentinel_kwargs={"username": "ask", "password": SECRET})
    node = Node.of(found.master_for("it", db=2, password="own"), failover=3)
    assert node.label == "redis+sentinel://s1:26379,s2:5/it/2"
    assert (node.failover, node.address.moves) == (3.0, True)
    assert node.credentials is not None
    assert node.credentials("") == ("", "own")
    assert node.address.sentinels is not None
    assert (node.address.sentinels.user, node.address.sentinels.password) == ("ask", SECRET)
    plain = library.Sentinel([("s1", 26379)]).master_for("it")
    assert Node.of(plain) == Node("redis+sentinel://s1/it")
    with pytest.raises(ConfigError, match="asks replicas"):
        Node.of(library.Sentinel([("s1", 26379)]).slave_for("it"))


def test_a_lent_client_is_not_used() -> None:
    client = redis.Redis("db")
    before = dict(client.connection_pool.connection_kwargs)
    Holdfast(Node.of(client)).close()
    assert client.connection_pool.connection_kwargs == before
    assert not client.connection_pool._available_connections
    assert not client.connection_pool._in_use_connections
    with pytest.raises(ConfigError, match=r"Node\.of\(client\)"):
        Holdfast("redis://a", client=client)  # type: ignore[arg-type]  # (what it is about)
