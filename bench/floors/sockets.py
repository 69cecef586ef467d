"""Blocking sockets, by hand: write to all nodes, then read from one after the other."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import hiredis

from . import commands

Held = tuple[Any, bytes]


class Plain:
    asks: tuple[str, ...] = ("set", "evalsha")
    commands: Any = commands.Plain

    def __init__(self, parameters: dict[str, Any]) -> None:
        places = [it.removeprefix("redis://").split(":") for it in parameters["urls"]]
        self._sockets = [socket.create_connection((host, int(port))) for host, port in places]
        for it in self._sockets:
            it.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._readers = [hiredis.Reader() for _ in places]
        self.quorum = len(places) // 2 + 1

    def open(self) -> None:
        pass

    def lock(self, name: str) -> Any:
        return self.commands(name)

    def acquire(self, lock: Any) -> Held:
        token = lock.token()
        [yes] = self.ask(lock.request(token), 1)
        if sum(map(lock.granted, yes)) < self.quorum:
            raise RuntimeError("not granted")
        return lock, token

    def release(self, held: Held) -> None:
        lock, token = held
        self.ask(lock.release(token), 1)

    def ask(self, data: bytes, count: int) -> Sequence[Sequence[Any]]:
        """The same bytes, `count` commands, to all nodes: for each command its answers."""
        for end in self._sockets:
            end.sendall(data)
        answers: list[list[Any]] = []
        for end, reader in zip(self._sockets, self._readers, strict=True):
            mine: list[Any] = []
            while len(mine) < count:
                reader.feed(end.recv(65536))
                while (answer := reader.gets()) is not False:
                    mine.append(answer)
            answers.append(mine)
        return list(zip(*answers, strict=True))

    def close(self) -> None:
        for it in self._sockets:
            it.close()


class Scripts(Plain):
    asks = ("evalsha",)
    commands = commands.Scripts
