"""What a connection costs a node before its first command: all that a connection of holdfast's says until the node is in use.

The connection is the one that ships; only its connection is made by hand, so that one can follow the other without a client around it. The
node knows the scripts before: so it is for every client but the first one.

Figures: `cpu` (µs of the node, by INFO), `bytes` (that the node reads), `memory` (KB that the node has in use for each connection whose
handshake is just over: servers give the buffers of its beginning back some seconds later).
"""

from __future__ import annotations

import socket
from pathlib import Path
from time import monotonic
from typing import Any

import hiredis

from holdfast import scripts
from holdfast.wire.address import parse
from holdfast.wire.connection import Connection, ConnectionState
from holdfast.wire.handshake import ConnectionSettings
from holdfast.wire.resp import pack

CONNECTIONS = 50  # at a time
FOLDER = Path(scripts.__file__).parent
# What each contender's connections load: nothing, what they load for a client of locks, what they load for one that has used
# everything, and what all connections loaded up to version 0.1.0: every script, as its file is.
LOADS = {
    "nothing": (),
    "locks": tuple(it.source for it in scripts.BASIC),
    "everything": tuple(it.source for it in scripts.LOADED),
    "files": tuple(
        (FOLDER / f"{it.name}.lua").read_bytes()
        + b"".join((FOLDER / f"{part}.lua").read_bytes() for part in ("rw_common", f"{it.name}_else") if it in scripts.SHARED)
        for it in scripts.LOADED
    ),
}


class Ear:
    """Whom the connection would tell of answers, of which there are none but its own."""

    spoke = False

    def heard(self, node: int, question: Any, reply: object, now: float) -> None: ...
    def told(self, node: int, message: bytes, now: float) -> None: ...
    def changed(self, node: int, key: bytes | None, now: float) -> None: ...


class Peer:
    """One connection, with its socket."""

    def __init__(self, url: str, number: int, loads: tuple[bytes, ...]) -> None:
        manners = ConnectionSettings(b"%032x" % number, name=b"holdfast:bench:%08x" % number, version=b"0", scripts=loads)
        self.connection: Connection[Any] = Connection(Ear(), 0, parse(url), manners)
        self.socket = socket.create_connection((self.connection.address.host, self.connection.address.port))
        self.bytes = 0

    def introduce(self) -> None:
        """All of the handshake."""
        connection = self.connection
        connection.dial(monotonic())
        connection.connected(monotonic())
        self._exchange()
        if connection.state is not ConnectionState.GUARDED:
            raise RuntimeError(f"the node cannot be used: {connection.bad}")
        connection.opened(monotonic())
        self._exchange()
        if connection.bad is not None:
            raise RuntimeError(f"the node does not take the scripts: {connection.bad}")

    def _exchange(self) -> None:
        """Send what the connection says, and read until nothing is owed."""
        data = self.connection.take()
        self.bytes += len(data)
        if data:
            self.socket.sendall(data)
        while self.connection.ledger and self.connection.bad is None:
            self.connection.received(self.socket.recv(65536), monotonic())


class Node:
    """The node, asked what it has counted."""

    def __init__(self, url: str) -> None:
        address = parse(url)
        self._socket, self._reader = socket.create_connection((address.host, address.port)), hiredis.Reader()

    def _info(self, section: bytes) -> dict[str, str]:
        self._socket.sendall(pack(b"INFO", section))
        while (told := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(65536))
        return dict(it.split(":", 1) for it in told.decode().splitlines() if ":" in it)

    def cpu(self) -> float:
        """The CPU seconds of its main thread, where the server tells; else of all."""
        told = self._info(b"cpu")
        kinds = [it for it in ("used_cpu_user_main_thread", "used_cpu_sys_main_thread") if it in told]
        return sum(float(told[it]) for it in kinds or ("used_cpu_user", "used_cpu_sys"))

    def memory(self) -> int:
        """Bytes that it has in use."""
        return int(self._info(b"memory")["used_memory"])


def alone(parameters: dict[str, Any]) -> dict[str, Any]:
    """`adapter`: one of LOADS."""
    [url] = parameters["urls"]
    loads, node = LOADS[parameters["adapter"]], Node(url)
    first = Peer(url, 0, loads)
    first.introduce()
    cpu, memory, count, number, until = 0.0, [], 0, 1, monotonic() + parameters["seconds"]
    while not count or monotonic() < until:
        connections = [Peer(url, number + it, loads) for it in range(CONNECTIONS)]
        number += CONNECTIONS
        before, began = node.memory(), node.cpu()
        for it in connections:
            it.introduce()
        cpu += node.cpu() - began
        memory.append((node.memory() - before) / CONNECTIONS / 1000)
        count += CONNECTIONS
        for it in connections:
            it.socket.close()
    return {"count": count, "cpu": cpu / count * 1e6, "bytes": first.bytes, "memory": sorted(memory)[len(memory) // 2]}
