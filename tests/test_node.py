"""What a program says of one node: an address is its short form, and no option is said twice or shown."""

from __future__ import annotations

import ssl
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import coredis
import coredis.credentials
import pytest
import redis
import trustme

import holdfast.aio
from holdfast import ConfigError, Holdfast, Node
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
    assert node_of(f"{url}&unproven=true") == Node(url, unproven=True) != node
    assert (node.label, node.failover, hash(node)) == ("redis://a:6379/2", 15.0, hash(Node(url)))
    assert node_of(node) is node
    with pytest.raises(AttributeError):
        node.address = parse("redis://b")
    with pytest.raises(ConfigError, match="named twice"):
        kind(Node("redis://a"), "redis://a")


def test_nothing_of_it_shows_a_secret() -> None:
    context = ssl.create_default_context()
    node = Node("rediss://me@a", credentials=partial(signed, SECRET), ssl=context, resolve=print, failover=1.5, unproven=True)
    assert repr(node) == "Node('rediss://a:6379', failover=1.5, unproven=True, credentials=..., ssl=..., resolve=...)"
    assert repr(Node(f"redis://:{SECRET}@a")) == "Node('redis://a:6379')"
    watched = Node(f"redis+sentinel://:{SECRET}@s1,s2/it?sentinel_password={SECRET}")
    assert SECRET not in f"{watched!r} {watched.address!r} {Holdfast(watched)!r}"


TWICE: dict[str, Any] = {
    "credentials is a function": lambda: Node("redis://a", credentials=SECRET),  # type: ignore[arg-type]  # (what it is about)
    "resolve is a function": lambda: Node("redis://a", resolve=("a", 1)),  # type: ignore[arg-type]  # (what it is about)
    "the address has a password": lambda: Node(f"redis://:{SECRET}@a", credentials=print),
    "failover is said twice": lambda: Node("redis://a?failover=1", failover=2),
    "failover is a number of seconds": lambda: Node("redis://a", failover=-1),
    "unproven is True or False": lambda: Node("redis://a", unproven="no"),  # type: ignore[arg-type]  # (what it is about)
    "another way to its server": lambda: Node("unix:///a", resolve=print),
    "another way to": lambda: Node("redis+sentinel://s/a", resolve=print),
    "ssl= is for nodes with TLS": lambda: Node("redis://a", ssl=ssl.create_default_context()),
    "ssl is an ssl.SSLContext": lambda: Node("rediss://a", ssl=True),  # type: ignore[arg-type]  # (what it is about)
    r"Node\.of\(client\)": lambda: Holdfast("redis://a", client=redis.Redis("db")),  # type: ignore[call-arg]  # (what it is about)
    "there is ssl= too": lambda: Node("rediss://a?ssl_cert_reqs=none", ssl=ssl.create_default_context()),
}


@pytest.mark.parametrize("told", TWICE)
def test_what_cannot_go_together_is_refused(told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        TWICE[told]()
    assert SECRET not in str(caught.value)


def lent(client: Any) -> tuple[str, Any, bool]:
    node = Node.of(client)
    return node.label, node.credentials and node.credentials(node.label), node.ssl is not None


# ------------------------------------------------ coredis and GLIDE, which call their settings otherwise


def test_a_context_of_coredis_is_used_and_a_cluster_refused() -> None:
    own = ssl.create_default_context()
    assert Node.of(coredis.Redis("db", ssl_context=own)).ssl is own
    # (A whole one begins to listen when it is made.)
    cluster = coredis.RedisCluster.__new__(coredis.RedisCluster)
    cluster.connection_pool = SimpleNamespace(connection_class=coredis.connection.ClusterConnection, connection_kwargs={})  # type: ignore[assignment]  # (what is asked for of it)
    with pytest.raises(ConfigError, match="no client of one server"):
        Node.of(cluster)


def glide_of(*places: Any, **options: Any) -> Any:
    glide = pytest.importorskip("glide_sync")
    return glide.GlideClientConfiguration([glide.NodeAddress(*it) for it in places or [("db", 6379)]], **options)


def test_a_configuration_of_glide_lends_its_settings() -> None:
    glide = pytest.importorskip("glide_sync")
    assert lent(glide_of(("db", 7000), database_id=3)) == ("redis://db:7000/3", None, False)
    signed = glide.ServerCredentials(SECRET, "ada")
    assert lent(glide_of(credentials=signed)) == ("redis://db:6379", ("ada", SECRET), False)
    assert lent(glide_of(use_tls=True)) == ("rediss://db:6379", None, True)
    # A client has its configuration, and connects when it is made: there is no server here.
    client = glide.GlideClient.__new__(glide.GlideClient)
    client._config = glide_of(("db", 7000))
    assert Node.of(client) == Node("redis://db:7000")
    del client._config


def test_tls_is_as_glide_has_it(tmp_path: Path) -> None:
    glide = pytest.importorskip("glide_sync")

    def context(**given: Any) -> ssl.SSLContext:
        advanced = glide.AdvancedGlideClientConfiguration(tls_config=glide.TlsAdvancedConfiguration(**given))
        found = Node.of(glide_of(use_tls=True, advanced_config=advanced)).ssl
        assert found is not None
        return found

    assert (context().verify_mode, context().check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context(use_insecure_tls=True).verify_mode == ssl.CERT_NONE
    authority = trustme.CA()
    roots = context(root_pem_cacerts=authority.cert_pem.bytes()).get_ca_certs()
    assert [it["serialNumber"] for it in roots if "trustme" in str(it["subject"])]
    signed = authority.issue_cert("client.example")
    signed.cert_chain_pems[0].write_to_path(tmp_path / "cert")
    signed.private_key_pem.write_to_path(tmp_path / "key")
    assert context(client_cert_path=str(tmp_path / "cert"), client_key_path=str(tmp_path / "key"))
    with pytest.raises(ConfigError, match="client_cert_pem"):
        context(client_cert_pem=b"x", client_key_pem=b"y")


def test_what_holdfast_cannot_follow_of_glide_is_refused_by_its_name() -> None:
    glide = pytest.importorskip("glide_sync")
    token = glide.IamAuthConfig("cluster", glide.ServiceType.ELASTICACHE, "eu-west-1")
    cases = {
        "several addresses": glide_of(("a", 1), ("b", 2)),
        "IAM": glide_of(credentials=glide.ServerCredentials(username="ada", iam_config=token)),
        "address_resolver": glide_of(address_resolver=lambda host, port: (host, port)),
        "no client of one server": glide.GlideClusterClientConfiguration([glide.NodeAddress("db", 6379)]),
    }
    for word, config in cases.items():
        with pytest.raises(ConfigError, match=word):
            Node.of(config)
