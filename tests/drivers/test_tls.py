"""TLS without a socket: who is believed, and a connection that takes no bytes for a while. The live tests have real nodes."""

from __future__ import annotations

import contextlib
import re
import ssl
import traceback
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from live.tls_kit import Papers

import holdfast.aio
from holdfast import ConfigError, Holdfast, Node
from holdfast.drivers import tls
from holdfast.drivers.access import accesses
from holdfast.drivers.files import Authority
from holdfast.drivers.tls import Tunnel
from holdfast.wire.address import parse


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


class Tls:
    """What OpenSSL would be. `takes`: how many bytes it takes each time; None: none, before the node has spoken."""

    def __init__(self, *takes: int | None) -> None:
        self.takes, self.taken = list(takes), b""

    def write(self, data: memoryview) -> int:
        if (size := self.takes.pop(0)) is None:
            raise ssl.SSLWantReadError
        self.taken += data[:size]
        return min(size, len(data))


class Broken:
    """OpenSSL without memory."""

    def write(self, data: object) -> int:
        raise MemoryError

    read = write


def tunnel_of(instead: object) -> Tunnel:
    tunnel = Tunnel(ssl.create_default_context(), parse("rediss://127.0.0.1"))
    tunnel.open = True
    tunnel._tls = instead  # type: ignore[assignment]  # (a fake in its place)
    return tunnel


def test_bytes_wait_while_tls_takes_none_and_are_said_before_others() -> None:
    inner = Tls(2, None, None, 100)
    tunnel = tunnel_of(inner)
    tunnel.sealed(b"PING")
    tunnel.sealed(b"PONG")
    assert (inner.taken, tunnel._kept) == (b"PI", b"NGPONG")
    tunnel.sealed()
    assert (inner.taken, tunnel._kept) == (b"PINGPONG", b"")


def test_a_context_of_ours_refuses_new_keys() -> None:
    address = parse("rediss://127.0.0.1?ssl_cert_reqs=none")
    assert address.tls is not None
    assert tls.context(address.tls, "x").options & ssl.OP_NO_RENEGOTIATION


def test_what_tls_refuses_to_take_is_an_error_in_words() -> None:
    tunnel = tunnel_of(Broken())
    with pytest.raises(ConnectionError, match="TLS failed: MemoryError"):
        tunnel.sealed(b"x")
    assert tunnel.received(b"x") == b""
    assert str(tunnel.fault) == "TLS failed: MemoryError"


# ------------------------------------------------ before anything connects

WRONG: dict[str, tuple[str, str]] = {  # options, and what is complained of
    "no file": ("ssl_ca_certs=/no/such/file", "ssl_ca_certs cannot be used: No such file or directory"),
    "no certificates": (f"ssl_ca_certs={__file__}", "ssl_ca_certs cannot be used: .*certificate"),
    "no folder": ("ssl_ca_path=/no/such/folder", "ssl_ca_path cannot be used: '/no/such/folder' is no folder"),
    "no text": ("ssl_ca_data=rubbish", "ssl_ca_data cannot be used: "),
    "no certificate": ("ssl_certfile=/no/cert&ssl_keyfile=/no/key", "ssl_certfile '/no/cert' with ssl_keyfile '/no/key' cannot be used"),
    "no key": ("ssl_certfile={0.client.cert}", "ssl_certfile '.*' cannot be used: "),
    "another's key": ("ssl_certfile={0.client.cert}&ssl_keyfile={0.node.key}", "cannot be used: key values mismatch"),
    "locked": ("ssl_certfile={0.client.cert}&ssl_keyfile={0.locked}", "the key is encrypted, and there is no ssl_password"),
    "locked otherwise": ("ssl_certfile={0.client.cert}&ssl_keyfile={0.locked}&ssl_password=wr0ng", "ssl_keyfile '.*' cannot be used: "),
    "nul": ("ssl_ca_certs=/a%00b", "ssl_ca_certs cannot be used: embedded null byte"),
}


@pytest.mark.parametrize("which", WRONG)
def test_files_are_looked_at_before_anything_connects(papers: Papers, which: str) -> None:
    options, complaint = WRONG[which]
    for kind in (Holdfast, holdfast.aio.Holdfast):
        with pytest.raises(ConfigError, match=complaint) as caught:
            kind(f"rediss://h?{options.format(papers)}")
        assert str(caught.value).startswith("rediss://h:6379: ")
        assert "wr0ng" not in "".join(traceback.format_exception(caught.value))


def server_context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


ARGUMENTS: dict[str, tuple[str, Any, str]] = {
    "no node with TLS": ("redis://h", ssl.create_default_context, "ssl= is for nodes with TLS, and there are none: write rediss://"),
    "no context": ("rediss://h", lambda: True, "ssl is an ssl.SSLContext, not bool"),
    "two answers": ("rediss://h?ssl_cert_reqs=none", ssl.create_default_context, "rediss://h:6379: the address has ssl_... options, and"),
    "a server's": ("rediss://h", server_context, "rediss://h:6379: TLS cannot begin: .*is this the context of a client"),
}


@pytest.mark.parametrize("which", ARGUMENTS)
def test_a_context_that_cannot_work(which: str) -> None:
    url, context, complaint = ARGUMENTS[which]
    for kind in (Holdfast, holdfast.aio.Holdfast):
        with pytest.raises(ConfigError, match=complaint):
            kind(url, ssl=context())


def test_the_options_that_a_context_is_made_of_are_known(papers: Papers) -> None:
    """A guardian makes another one."""
    own, ours = ssl.create_default_context(), Authority(papers.authority)
    for given, options in ((None, tls.Tls()), (own, None), (ours, tls.Tls(ca_certs=papers.authority))):
        ways = accesses([Node("rediss://a"), Node("rediss://b", ssl=own), Node("redis://c")], given, None)
        assert [it.tls for it in ways] == [options, None, None]


OURS, CERT = "?ssl_ca_certs={0.authority}", "&ssl_certfile={0.client.cert}&ssl_keyfile="
NAME = "; name the node as its certificate does"
TOLD: dict[str, tuple[str, str, str]] = {  # what the node shows, where and how it is looked for, and what is wrong
    "ours": ("node", f"127.0.0.1{OURS}", ""),
    "the interface in an address is no part of a name": ("linked", f"[fe80::7%25lo]{OURS}", ""),
    "a folder of authorities": ("node", "127.0.0.1?ssl_ca_path={0.folder}", ""),
    "authorities in the address": ("node", "127.0.0.1?ssl_ca_data={1}", ""),
    "who wants ours": ("client", f"client.example{OURS}{CERT}{{0.client.key}}", ""),
    "who wants ours, with its key": ("client", f"client.example{OURS}&ssl_certfile={{0.both}}", ""),
    "who wants ours, whose key is locked": ("client", f"client.example{OURS}{CERT}{{0.locked}}&ssl_password=pa55%20w0rd%2F", ""),
    "who wants another's": ("client", "a?ssl_cert_reqs=none&ssl_certfile={0.nobodys}", "it refuses us .*: ssl_certfile and ssl_keyfile"),
    "anybody's": ("expired", "a?ssl_cert_reqs=none", ""),
    "a stranger's": (
        "node",
        "127.0.0.1?ssl_ca_certs={0.stranger}",
        "local issuer certificate; if that is its authority, name it with ssl_ca_",
    ),
    "another name": ("other", f"a{OURS}", f"its certificate is not good for a: Hostname mismatch, .*[^.]{NAME}"),
    "another address": ("other", f"127.0.0.1{OURS}", f"IP address mismatch, .*{NAME}"),
    "expired": ("expired", f"127.0.0.1{OURS}", "certificate has expired; renew it"),
    "early": ("early", f"127.0.0.1{OURS}", "certificate is not yet valid; look at this machine's clock"),
    "who wants one": ("client", "a?ssl_cert_reqs=none", "it refuses us .*: ssl_certfile and ssl_keyfile name the certificate"),
    "no TLS": ("", "a", r"it does not speak TLS \([a-z ]+\): write redis:// instead of rediss://"),
    "other ciphers": ("node", "a?ssl_cert_reqs=none", r"it refuses us \([a-z0-9 ]+\): it accepts none of our TLS versions or ciphers: "),
}


@pytest.mark.parametrize("which", TOLD)
def test_who_is_believed(papers: Papers, which: str) -> None:
    """What one side says is what the other hears."""
    shows, url, complaint = TOLD[which]
    context, (given, taken) = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), (ssl.MemoryBIO(), ssl.MemoryBIO())
    paper = getattr(papers, shows or "node")
    context.load_cert_chain(paper.cert, paper.key)
    if shows == "client":
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(papers.authority)
    if which == "other ciphers":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("AES128-SHA")
    server = context.wrap_bio(taken, given, server_side=True)
    (access,) = accesses([parse(f"rediss://{url.format(papers, quote(Path(papers.authority).read_text()))}")], None, None)
    tunnel = access.tunnel()
    assert tunnel is not None
    tunnel.begin()
    for _ in range(4):
        taken.write(tunnel.sealed())
        with contextlib.suppress(ssl.SSLError):
            server.do_handshake() if shows else given.write(b"-ERR no\r\n")
        if tunnel.fault is None and (data := given.read()):
            assert tunnel.received(data) == b""
    assert (tunnel.open, type(tunnel.fault)) == ((True, type(None)) if not complaint else (shows == "client", ConfigError))
    if not complaint:
        server.write(bytes(40_000))
        assert tunnel.received(given.read()) == bytes(40_000)
        with contextlib.suppress(ssl.SSLWantReadError):
            server.unwrap()
        tunnel.received(given.read())
    assert re.search(complaint or "^it closed the connection$", str(tunnel.fault))
