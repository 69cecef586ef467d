"""Servers to do harm to, and what stands in them: what the contract and the live tests share.

Knows `embedded.Nodes` and how to ask a server anything. Must not know clients of ours.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from typing import Any, Self
from urllib.parse import urlsplit

import hiredis

from holdfast.embedded import Nodes
from holdfast.protocol.exclusive import keys_of
from holdfast.wire.resp import pack


def ask(url: str, *words: object, patience: float = 5.0) -> Any:
    """One command on a connection of its own; its answer, an error too. OSError if there is no connection, or no answer in time."""
    return asks(url, [words], patience=patience)[0]


def asks(url: str, commands: Sequence[Sequence[object]], *, patience: float = 5.0) -> list[Any]:
    """The same for several commands, on one connection."""
    where = urlsplit(url)
    reader = hiredis.Reader(encoding="utf-8", errors="backslashreplace", notEnoughData=...)
    answers: list[Any] = []
    with socket.socket(socket.AF_UNIX if where.scheme == "unix" else socket.AF_INET) as connection:
        connection.settimeout(patience)
        connection.connect(where.path if where.scheme == "unix" else (where.hostname, where.port))
        first = [("AUTH", where.password)] if where.password else []
        commands = [*first, *commands]
        connection.sendall(b"".join(pack(*[str(it).encode() for it in words]) for words in commands))
        while len(answers) < len(commands):
            if (answer := reader.gets()) is not ...:
                answers.append(answer)
            elif data := connection.recv(65536):
                reader.feed(data)
            else:
                raise ConnectionError(f"{url} closed the connection")
    return answers[len(first) :]


def unmark(urls: Iterable[str]) -> None:
    """Have nobody say any more that these servers are new."""
    for url in urls:
        assert ask(url, "DEL", "{holdfast}:adopted") == 1


class Cluster:
    """Real nodes. What steers them waits beside the event loop, which clients may live in."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes

    def __enter__(self) -> Self:
        self.nodes.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.nodes.close()

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def urls(self) -> tuple[str, ...]:
        """Their addresses."""
        return self.nodes.urls

    @property
    def run_ids(self) -> frozenset[str]:
        """The run_ids of the servers as they were started first."""
        return self.nodes.run_ids

    async def kill(self, *which: int) -> None:
        """They are dead."""
        for node in which:
            await asyncio.to_thread(self.nodes.kill, node)

    async def restart(self, *which: int) -> None:
        """They are new and empty."""
        for node in which:
            await asyncio.to_thread(self.nodes.restart, node)

    async def freeze(self, *which: int) -> None:
        """They say nothing until they are thawed; their connections stay."""
        for node in which:
            await asyncio.to_thread(self.nodes.freeze, node)

    async def thaw(self, *which: int) -> None:
        """They go on."""
        for node in which:
            await asyncio.to_thread(self.nodes.thaw, node)

    def ask(self, node: int, *words: object) -> Any:
        """One command to one node."""
        return ask(self.urls[node], *words)

    def everywhere(self, *words: object) -> list[Any]:
        """One command to every node; its answers."""
        return [ask(url, *words) for url in self.urls]

    def holders(self, name: str) -> list[Any]:
        """What stands in a lock's key on every node; None: it is free there."""
        return self.everywhere("GET", name)

    def waiters(self, name: str) -> list[int]:
        """How many wait for the lock on every node."""
        return self.everywhere("ZCARD", keys_of(name.encode())[2].decode())

    def calls(self, command: str = "evalsha") -> list[int]:
        """How often every node has executed a command."""
        return [calls(url, command) for url in self.urls]


def calls(url: str, command: str = "evalsha") -> int:
    """How often a node has executed a command."""
    for line in ask(url, "INFO", "commandstats").splitlines():
        if line.startswith(f"cmdstat_{command}:"):
            return int(line.partition("calls=")[2].partition(",")[0])
    return 0
