"""The server of a gateway: its address, its signals, and its end.

Knows uvicorn. Must not know the command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..aio import Holdfast
from ..errors import ConfigError, HoldfastError, message_of
from .application import app
from .gateway import Gateway

# Seconds in which the headers of a request have to arrive.
HEADERS = 5.0
# Seconds for which an idle connection stays open.
IDLE = 75
# Seconds that answers may take once everything else has ended.
LAST = 5
# Seconds between two looks at whether leases are left.
OFTEN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a gateway listens, and who may reach it.

    Attributes:
        host: An address of this machine.
        port: A port. 0: any free one.
        cert: A file with the server's certificate. None: no TLS.
        key: A file with its private key.
        client_ca: A file with the authorities of clients' certificates, which clients then need.
        insecure: Whether anybody may listen in, or use it, from other machines.
    """

    host: str = "127.0.0.1"
    port: int = 7420
    cert: str | None = None
    key: str | None = None
    client_ca: str | None = None
    insecure: bool = False

    def check(self, asks: bool) -> str:
        """Refuse an address at which strangers could take locks.

        Args:
            asks: Whether clients need tokens.

        Returns:
            What is dangerous about it. Empty: nothing.

        Raises:
            ConfigError: It is reachable from other machines without TLS or without tokens.
        """
        if (self.cert is None) != (self.key is None):
            raise ConfigError("--server-cert and --server-key belong together")
        if self.client_ca is not None and self.cert is None:
            raise ConfigError("--client-ca needs --server-cert and --server-key")
        if self.local or (self.cert is not None and asks):
            return ""
        lacking = " and ".join([*["TLS"] * (self.cert is None), *["tokens"] * (not asks)])
        if not self.insecure:
            raise ConfigError(
                f"{self.host} can be reached from other machines, and the gateway would be without {lacking} there. "
                "Pass --server-cert, --server-key and --tokens, or listen on 127.0.0.1; --insecure allows it"
            )
        return f"INSECURE: everybody who reaches {self.host}:{self.port} can use it, or listen: it has no {lacking}"

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class Door(H11Protocol):
    """A connection that is closed if the headers of a request do not arrive in time."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        """Wait for nothing yet."""
        super().__init__(*arguments, **more)
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._late = self.loop.call_later(HEADERS, transport.close)

    def data_received(self, data: bytes) -> None:
        """Take what has arrived, and wait for the rest of its headers."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Begin with the next request, of which some may have arrived already."""
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._late is None and self.conn.trailing_data[0]:
            self._late = self.loop.call_later(HEADERS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop()
        super().connection_lost(exc)

    def _stop(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class _Server(uvicorn.Server):
    """A server whose signals are handled here."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the event loop that suits a gateway: uvloop's, if it is installed.

    Returns:
        For `asyncio.Runner`. None: asyncio's own.
    """
    return uvicorn.Config("", log_config=None).get_loop_factory()


def listen(address: Address) -> socket.socket:
    """Listen at an address.

    Raises:
        ConfigError: It is not of this machine, or in use.
    """
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((address.host, address.port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(f"cannot listen at {address.host}:{address.port}: {error}") from None
    # Connections inherit it. An event loop sets it only where the socket names its protocol, which this one does not,
    # and then the body of each answer waits 40 ms until its headers are acknowledged.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


async def serve(
    locks: Holdfast, address: Address, drain: float | None, say: Callable[[str], None], **options: Any
) -> None:
    """Serve a gateway until SIGTERM or SIGINT, and drain it. A second signal ends the drain.

    Args:
        locks: The client. It is closed at the end, and what clients hold is left to run out.
        address: Where to listen.
        drain: Seconds for which keepalives and releases are still served after the signal. None:
            the client's `max_ttl`.
        say: Called with lines for people.
        options: Those of `app`.

    Raises:
        ConfigError: An option, an address or a file cannot work.
    """
    danger = address.check(options.get("tokens") is not None)
    application = app(locks, **options)
    gateway: Gateway = application.state.gateway
    with listen(address) as listening:
        server = _Server(_config(application, address))
        running = asyncio.ensure_future(server.serve(sockets=[listening]))
        signalled = _handle(gateway, say)
        # The server has no event for it.
        while not server.started and not running.done():  # noqa: ASYNC110
            await asyncio.sleep(OFTEN)
        if danger:
            say(danger)
        scheme = "http" if address.cert is None else "https"
        host = f"[{address.host}]" if ":" in address.host else address.host
        say(f"serving at {scheme}://{host}:{listening.getsockname()[1]} as gateway {gateway.name}")
        ending = asyncio.ensure_future(signalled.get())
        await asyncio.wait((running, ending), return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            await _drain(gateway, locks.settings.max_ttl if drain is None else drain, signalled, say)
        ending.cancel()
        server.should_exit = True
        await running
    # What clients still believe in runs out by itself.
    await locks.close(leave=True)


def _config(application: Any, address: Address) -> uvicorn.Config:
    try:
        config = uvicorn.Config(
            application,
            http=Door,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            # The address of a client is that of its connection, whatever a header says.
            proxy_headers=False,
            timeout_keep_alive=IDLE,
            timeout_graceful_shutdown=LAST,
            ssl_certfile=address.cert,
            ssl_keyfile=address.key,
            ssl_ca_certs=address.client_ca,
            ssl_cert_reqs=ssl.CERT_NONE if address.client_ca is None else ssl.CERT_REQUIRED,
        )
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the server's certificate {address.cert} cannot be used: {error}") from None
    return config


def _handle(gateway: Gateway, say: Callable[[str], None]) -> asyncio.Queue[int]:
    """Handle signals. Those that end it are in the queue that is returned."""
    loop = asyncio.get_running_loop()
    signalled: asyncio.Queue[int] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled.put_nowait, number)

    def reload() -> None:
        try:
            gateway.reload()
        except HoldfastError as error:
            logging.getLogger("holdfast.serve").error("the old tokens stay in use: %s", message_of(error))
            say(f"the old tokens stay in use: {message_of(error)}")

    loop.add_signal_handler(signal.SIGHUP, reload)
    return signalled


async def _drain(gateway: Gateway, most: float, signalled: asyncio.Queue[int], say: Callable[[str], None]) -> None:
    """Serve keepalives and releases until no lease is left.

    The end of the time and a second signal end it earlier.
    """
    gateway.drain()
    say(f"draining: {len(gateway.leases)} leases are held; waiting for up to {most:g} s until they end")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(most):
            # Leases end one by one, in many ways. A look now and then costs nothing.
            while len(gateway.leases) and signalled.empty():  # noqa: ASYNC110
                await asyncio.sleep(OFTEN)
    if len(gateway.leases):
        say(f"{len(gateway.leases)} leases are left to run out by themselves")
