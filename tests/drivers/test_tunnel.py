"""TLS on one connection while it takes no bytes, as when a node asks for new keys, which TLS 1.2 allows. The live tests have real nodes."""

from __future__ import annotations

import ssl

import pytest

from holdfast.drivers import tls
from holdfast.drivers.tls import Tunnel
from holdfast.wire.address import parse


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
