"""The server of a gateway: its address, its signals, and its end.

Knows uvicorn. Must not know the command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import resource
import signal
import socket
import ssl
import stat
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..aio import Holdfast
from ..errors import ConfigError, HoldfastError, message_of
from .application import app
from .gateway import Gateway
from .identity import ARRIVED, Arrived
from .load import less

# The share of all connections that one address may have without showing a client, and one client.
SHARE = 4
# Seconds in which a TLS handshake, and a whole request, have to arrive.
HANDSHAKE = 5.0
REQUEST = 10.0
# Descriptors that are left for the nodes, other gateways and files.
SPARE = 200
# Seconds for which an idle connection stays open.
IDLE = 75
# Seconds that answers may take once everything else has ended.
LAST = 5
# Seconds between two looks at whether leases are left.
OFTEN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    """Where a gateway listens, and who may reach it.

    Attributes:
        host: An address of this machine; or "unix:" and the path of a socket, on which the users
            of this machine are clients.
        port: A port. 0: any free one. Sockets on a path have none.
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
        if self.path is not None:
            return True
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"

    @property
    def path(self) -> str | None:
        """The path of the socket. None: it is a port."""
        return self.host.removeprefix("unix:") if self.host.startswith("unix:") else None

    def url(self, port: int) -> str:
        """Return what clients call it, with the port that it has got."""
        if self.path is not None:
            return self.host
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.cert is None else 'https'}://{host}:{port}"


class Connections:
    """The connections of one gateway: how many there may be, and which one makes room for another.

    Anybody can open connections, so one that has not shown yet which client it is from makes room.
    One that has shown it stays, and so do the leases that are kept over it.

    Args:
        most: How many there may be.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._share = max(1, most // SHARE)
        # By what each is counted, in the order in which they came.
        self._strangers: dict[socket.socket, str] = {}
        self._known: dict[socket.socket, str] = {}
        self._counts: Counter[str] = Counter()

    def come(self, it: socket.socket, address: str) -> bool:
        """Take in a connection. If there are too many, cut the oldest one of a stranger.

        Returns:
            Whether there is room.
        """
        who = f"address {address}"
        crowded = self._counts[who] >= self._share
        if crowded or len(self._strangers) + len(self._known) >= self._most:
            oldest = next((it for it, other in self._strangers.items() if not crowded or other == who), None)
            if oldest is None:
                return False
            self.gone(oldest)
            with contextlib.suppress(OSError):
                # Its transport notices that, and closes it.
                oldest.shutdown(socket.SHUT_RDWR)
        self._add(self._strangers, it, who)
        return True

    def known(self, it: socket.socket, client: str) -> None:
        """Note which client a connection is from. A client that has many is not noted any more."""
        if it in self._strangers and self._counts[f"client {client}"] < self._share:
            self.gone(it)
            self._add(self._known, it, f"client {client}")

    def gone(self, it: socket.socket) -> None:
        """Note that a connection has ended. Has no effect the second time."""
        for group in (self._strangers, self._known):
            if (who := group.pop(it, None)) is not None:
                less(self._counts, who)

    def _add(self, group: dict[socket.socket, str], it: socket.socket, who: str) -> None:
        group[it] = who
        self._counts[who] += 1


class Door(H11Protocol):
    """A connection that is closed if a request does not arrive in time, with all of its body."""

    def __init__(self, *arguments: Any, gone: Callable[[], None] = lambda: None, **more: Any) -> None:
        """Wait for nothing yet. `gone` is called at its end."""
        super().__init__(*arguments, **more)
        self._late: asyncio.TimerHandle | None = None
        self._gone = gone

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait(True)

    def data_received(self, data: bytes) -> None:
        """Take what has arrived, and wait for the rest of the request."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Begin with the next request, of which some may have arrived already."""
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        its = self.conn.their_state
        self._wait(its is h11.SEND_BODY or (its is h11.IDLE and bool(self.conn.trailing_data[0])))

    def _wait(self, wanted: bool) -> None:
        """Wait for the rest of a request, for as long as since its beginning; or for nothing."""
        if wanted and self._late is None:
            self._late = self.loop.call_later(REQUEST, self.transport.abort)
        elif not wanted and self._late is not None:
            self._late.cancel()
            self._late = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._wait(False)
        self._gone()
        super().connection_lost(exc)


class _Uvicorn(uvicorn.Server):
    """A server that accepts what `Connections` allows, and leaves signals alone."""

    def __init__(self, config: uvicorn.Config, listening: socket.socket, connections: Connections) -> None:
        super().__init__(config)
        self._listening = listening
        self._connections = connections
        self._coming: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and accept connections."""
        await self.lifespan.startup()
        self.servers = []
        self._accepting = asyncio.ensure_future(self._accept())
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, and end."""
        self._accepting.cancel()
        await super().shutdown(sockets)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                it, peer = await loop.sock_accept(self._listening)
                uid = _user_of(it) if it.family == socket.AF_UNIX else None
            except OSError:
                # No descriptor is left. Some are soon, because silent connections are closed.
                await asyncio.sleep(OFTEN)
                continue
            address = str(peer[0]) if uid is None else f"uid:{uid}"
            if self._connections.come(it, address):
                arrived = Arrived(address, uid, partial(self._connections.known, it))
                task = loop.create_task(self._serve_one(it, arrived))
                self._coming.add(task)
                task.add_done_callback(self._coming.discard)
            else:
                it.close()
            # If many come at once, the others get their turn.
            await asyncio.sleep(0)

    async def _serve_one(self, it: socket.socket, arrived: Arrived) -> None:
        gone = partial(self._connections.gone, it)
        made = partial(Door, self.config, self.server_state, {**self.lifespan.state, ARRIVED: arrived}, gone=gone)
        tls: Any = self.config.ssl
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                made, it, ssl=tls, ssl_handshake_timeout=None if tls is None else HANDSHAKE
            )
        except OSError:
            # It has gone, or was no TLS, or did not say anything in time.
            gone()
            it.close()


def _user_of(it: socket.socket) -> int:
    """The user whose process is at the other end of a Unix socket, as the kernel says."""
    return int(struct.unpack("3i", it.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])


def most_connections(wanted: int) -> int:
    """Return how many connections there may be, and ask the system for as many descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted + SPARE:
        soft = wanted + SPARE if hard == resource.RLIM_INFINITY else min(hard, wanted + SPARE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, soft - SPARE)
    return wanted


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the event loop that suits a gateway: uvloop's, if it is installed.

    Returns:
        For `asyncio.Runner`. None: asyncio's own.
    """
    return uvicorn.Config("", log_config=None).get_loop_factory()


def listen(address: ListenAddress) -> socket.socket:
    """Listen at an address.

    Raises:
        ConfigError: It is not of this machine, or in use.
    """
    try:
        if address.path is not None:
            listening = _listen_on(address.path)
        else:
            family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
            listening = socket.create_server((address.host, address.port), family=family, backlog=2048)
            # Connections inherit it. An event loop sets it only where the socket names its protocol, which this
            # one does not, and then the body of each answer waits 40 ms until its headers are acknowledged.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise ConfigError(f"cannot listen at {address.url(address.port)}: {error}") from None
    listening.setblocking(False)
    return listening


def _listen_on(path: str) -> socket.socket:
    """Listen on a path. Everybody may connect, because the kernel says who it is."""
    if not sys.platform.startswith("linux"):
        raise ConfigError("a gateway on a Unix socket needs Linux, which says whose process is at its other end")
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise ConfigError(f"cannot listen at unix:{path}: it is no socket")
        with socket.socket(socket.AF_UNIX) as other:
            if other.connect_ex(path) == 0:
                raise ConfigError(f"cannot listen at unix:{path}: it is in use")
        # A gateway has left it behind.
        os.unlink(path)
    listening = socket.create_server(path, family=socket.AF_UNIX, backlog=2048)
    os.chmod(path, 0o666)
    return listening


async def serve(
    locks: Holdfast, address: ListenAddress, drain: float | None, say: Callable[[str], None], **options: Any
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
    # It says a line of its own for each request that cannot be read. The client is told it, too.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    danger = address.check(options.get("tokens") is not None)
    application = app(locks, **options)
    gateway: Gateway = application.state.gateway
    connections = Connections(most_connections(gateway.options.max_connections))
    with listen(address) as listening:
        server = _Uvicorn(_config(application, address), listening, connections)
        running = asyncio.ensure_future(server.serve())
        signalled = _handle(gateway, say)
        # The server has no event for it.
        while not server.started and not running.done():  # noqa: ASYNC110
            await asyncio.sleep(OFTEN)
        if danger:
            say(danger)
        port = 0 if address.path is not None else listening.getsockname()[1]
        say(f"serving at {address.url(port)} as gateway {gateway.name}")
        ending = asyncio.ensure_future(signalled.get())
        await asyncio.wait((running, ending), return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            await _drain(gateway, locks.settings.max_ttl if drain is None else drain, signalled, say)
        ending.cancel()
        server.should_exit = True
        await running
        if address.path is not None:
            os.unlink(address.path)
    # What clients still believe in runs out by itself.
    await locks.close(leave=True)


def _config(application: Any, address: ListenAddress) -> uvicorn.Config:
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
