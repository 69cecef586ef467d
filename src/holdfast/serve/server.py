"""A gateway from its start to its end: its addresses, its connections, its signals, and the drain.

Knows sockets. Must not know which protocol is spoken: each is an `Endpoint`.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ..checks import encrypted
from ..errors import ConfigError, HoldfastError, message_of
from .gateway import Gateway
from .identity import Arrived
from .load import less

# The share of all connections that one address may have without showing a client, and one client.
SHARE = 4
# Seconds in which a TLS handshake, and a whole request, have to arrive.
HANDSHAKE = 5.0
REQUEST = 10.0
# Descriptors that are left for the nodes, other gateways and files.
SPARE = 200
# Seconds between two looks at whether leases are left.
OFTEN = 0.05


def is_loopback(address: str) -> bool:
    """Return whether only processes of this machine can have this address."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address).is_loopback
    return False


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
        scheme: What addresses of its protocol begin with.
    """

    host: str = "127.0.0.1"
    port: int = 7420
    cert: str | None = None
    key: str | None = None
    client_ca: str | None = None
    insecure: bool = False
    scheme: str = "http"

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
        return self.path is not None or self.host == "localhost" or is_loopback(self.host)

    @property
    def path(self) -> str | None:
        """The path of the socket. None: it is a port."""
        return self.host.removeprefix("unix:") if self.host.startswith("unix:") else None

    def url(self, port: int) -> str:
        """Return what clients call it, with the port that it has got."""
        if self.path is not None:
            return self.host
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}{'' if self.cert is None else 's'}://{host}:{port}"

    def context(self) -> ssl.SSLContext | None:
        """Return what TLS needs. None: there is no TLS.

        Raises:
            ConfigError: A file cannot be used.
        """
        if self.cert is None:
            return None
        try:
            found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            found.load_cert_chain(self.cert, self.key, partial(encrypted, str(self.key)))
            if self.client_ca is not None:
                found.load_verify_locations(self.client_ca)
                found.verify_mode = ssl.CERT_REQUIRED
        except OSError as error:
            raise ConfigError(f"the server's certificate {self.cert} cannot be used: {error}") from None
        return found


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

    def cut(self, it: socket.socket) -> bool:
        """Return whether a connection that has not ended yet has made room for another one."""
        return it not in self._strangers and it not in self._known

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


class Endpoint(Protocol):
    """A protocol, spoken at one address."""

    async def open(self, gateway: Gateway) -> None:
        """Begin to serve."""

    def speak(self, arrived: Arrived) -> asyncio.BaseProtocol:
        """Make what serves one connection. It calls `arrived.gone` at its end."""
        ...

    async def close(self) -> None:
        """Let answers end, and close all connections."""


async def _accept(
    listening: socket.socket, connections: Connections, door: Endpoint, tls: ssl.SSLContext | None
) -> None:
    """Accept connections, as far as there is room for them."""
    loop = asyncio.get_running_loop()
    # The loop refers to tasks weakly.
    coming = set[asyncio.Task[None]]()
    while True:
        try:
            it, peer = await loop.sock_accept(listening)
            uid = _user_of(it) if it.family == socket.AF_UNIX else None
        except OSError:
            # No descriptor is left. Some are soon, because silent connections are closed.
            await asyncio.sleep(OFTEN)
            continue
        address = str(peer[0]) if uid is None else f"uid:{uid}"
        if connections.come(it, address):
            known, cut = partial(connections.known, it), partial(connections.cut, it)
            arrived = Arrived(address, uid, known, cut, partial(connections.gone, it))
            task = loop.create_task(_take(it, door, arrived, tls))
            coming.add(task)
            task.add_done_callback(coming.discard)
        else:
            it.close()
        # If many come at once, the others get their turn.
        await asyncio.sleep(0)


async def _take(it: socket.socket, door: Endpoint, arrived: Arrived, tls: ssl.SSLContext | None) -> None:
    try:
        await asyncio.get_running_loop().connect_accepted_socket(
            partial(door.speak, arrived), it, ssl=tls, ssl_handshake_timeout=None if tls is None else HANDSHAKE
        )
    except OSError:
        # It has gone, or was no TLS, or did not say anything in time.
        arrived.gone()
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
    gateway: Gateway, doors: Sequence[tuple[ListenAddress, Endpoint]], drain: float | None, say: Callable[[str], None]
) -> None:
    """Serve a gateway until SIGTERM or SIGINT, and drain it. A second signal ends the drain.

    Args:
        gateway: The gateway. Its client is closed at the end, and what clients hold is left to run
            out.
        doors: The protocols that it speaks, and where.
        drain: Seconds for which keepalives and releases are still served after the signal. None:
            the client's `max_ttl`.
        say: Called with lines for people.

    Raises:
        ConfigError: An address or a file cannot work.
    """
    connections = Connections(most_connections(gateway.options.max_connections))
    dangers = [address.check(gateway.options.tokens is not None) for address, _ in doors]
    async with contextlib.AsyncExitStack() as stack:
        gateway.start()
        signalled = _handle(gateway, say)
        accepting = []
        for (address, door), danger in zip(doors, dangers, strict=True):
            listening = stack.enter_context(listen(address))
            tls = address.context()
            await door.open(gateway)
            stack.push_async_callback(door.close)
            accepting.append(asyncio.ensure_future(_accept(listening, connections, door, tls)))
            if danger:
                say(danger)
            port = 0 if address.path is not None else listening.getsockname()[1]
            say(f"serving at {address.url(port)} as gateway {gateway.name}")
        await signalled.get()
        await _drain(gateway, gateway.locks.settings.max_ttl if drain is None else drain, signalled, say)
        for task in accepting:
            task.cancel()
        for address, _ in doors:
            if address.path is not None:
                # Somebody may have removed it.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(address.path)
    await gateway.stop()
    # What clients still believe in runs out by itself.
    await gateway.locks.close(leave=True)


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


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the event loop that suits a gateway: uvloop's, if it is installed.

    Returns:
        For `asyncio.Runner`. None: asyncio's own.
    """
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    made: Callable[[], asyncio.AbstractEventLoop] = new_event_loop
    return made
