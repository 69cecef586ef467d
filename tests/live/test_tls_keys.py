"""A node that asks for new keys in the middle of a conversation, which TLS 1.2 allows. OpenSSL itself is the node."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.bindings.openssl.binding import Binding
from live.tls_kit import Papers

from holdfast.drivers import tls
from holdfast.drivers.tls import Tunnel
from holdfast.wire.address import parse

OPENSSL: Any = Binding()
TLS_1_2 = 0x0303


class Node:
    """The other end, in memory."""

    def __init__(self, papers: Papers) -> None:
        lib = OPENSSL.lib
        self._context = lib.SSL_CTX_new(lib.TLS_server_method())
        assert lib.SSL_CTX_use_certificate_file(self._context, papers.node.cert.encode(), 1) == 1
        assert lib.SSL_CTX_use_PrivateKey_file(self._context, papers.node.key.encode(), 1) == 1
        assert lib.SSL_CTX_set_max_proto_version(self._context, TLS_1_2) == 1
        self._in, self._out = lib.BIO_new(lib.BIO_s_mem()), lib.BIO_new(lib.BIO_s_mem())
        self._tls = lib.SSL_new(self._context)
        lib.SSL_set_bio(self._tls, self._in, self._out)
        lib.SSL_set_accept_state(self._tls)
        self.heard = b""

    def hears(self, data: bytes) -> None:
        lib, buffer = OPENSSL.lib, OPENSSL.ffi.new("char[]", 65536)
        if data:
            lib.BIO_write(self._in, data, len(data))
        while (size := lib.SSL_read(self._tls, buffer, 65536)) > 0:
            self.heard += OPENSSL.ffi.buffer(buffer, size)[:]

    def says(self) -> bytes:
        buffer = OPENSSL.ffi.new("char[]", 65536)
        size = OPENSSL.lib.BIO_read(self._out, buffer, 65536)
        return bytes(OPENSSL.ffi.buffer(buffer, max(size, 0))[:])

    def asks_for_new_keys(self) -> None:
        assert OPENSSL.lib.SSL_renegotiate(self._tls) == 1
        OPENSSL.lib.SSL_do_handshake(self._tls)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


def met(context: ssl.SSLContext, papers: Papers) -> tuple[Tunnel, Node]:
    tunnel, node = Tunnel(context, parse("rediss://127.0.0.1")), Node(papers)
    tunnel.begin()
    talk(tunnel, node)
    assert tunnel.open and tunnel.fault is None
    return tunnel, node


def talk(tunnel: Tunnel, node: Node) -> None:
    """Until neither has anything to say."""
    while True:
        node.hears(tunnel.sealed())
        told = node.says()
        if not told:
            return
        tunnel.received(told)


def test_a_context_of_ours_refuses_new_keys_and_raises_nothing(papers: Papers) -> None:
    address = parse(f"rediss://127.0.0.1?ssl_ca_certs={Path(papers.authority)}")
    assert address.tls is not None
    tunnel, node = met(tls.context(address.tls, "x"), papers)
    node.asks_for_new_keys()
    assert tunnel.received(node.says()) == b""
    assert tunnel.sealed(b"PING"), "the refusal, and what was to be said: an OpenSSL node hangs up at that"
    assert (tunnel.fault, tunnel._kept) == (None, b"")


def test_bytes_wait_while_a_context_of_the_users_agrees_on_new_keys(papers: Papers) -> None:
    context = ssl.create_default_context(cafile=papers.authority)
    context.options &= ~ssl.OP_NO_RENEGOTIATION
    tunnel, node = met(context, papers)
    node.asks_for_new_keys()
    tunnel.received(node.says())
    first = tunnel.sealed(b"PING")  # (TLS takes nothing now: it waits for the node)
    second = tunnel.sealed(b"PONG")
    assert tunnel._kept == b"PINGPONG"
    node.hears(first + second)
    assert node.heard == b""
    talk(tunnel, node)
    talk(tunnel, node)
    assert (tunnel._kept, tunnel.fault) == (b"", None)
    assert node.heard == b"PINGPONG"


def test_what_tls_refuses_to_take_is_an_error_in_words(papers: Papers) -> None:
    tunnel, _ = met(ssl.create_default_context(cafile=papers.authority), papers)

    class Broken:
        def write(self, data: object) -> int:
            raise MemoryError

        def read(self, size: int) -> bytes:
            raise MemoryError

    tunnel._tls = Broken()  # type: ignore[assignment]  # (a fake in its place)
    with pytest.raises(ConnectionError, match="TLS failed: MemoryError"):
        tunnel.sealed(b"x")
    assert tunnel.received(b"x") == b""
    assert str(tunnel.fault) == "TLS failed: MemoryError"
