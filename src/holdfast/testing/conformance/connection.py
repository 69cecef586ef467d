"""Connections that ask one server, and keep what it pushes.

Knows sockets, TLS and RESP3. Must not know what is asked.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from ...clock import clock
from ...drivers import tls as tunnels
from ...drivers.sockets import places
from ...protocol.ticket import Tickets
from ...scripts import Script
from ...wire.address import Address
from ...wire.resp import MORE, Malformed, Push, Refusal, pack, reader

Word = bytes | str | int
# Seconds for which an answer is waited for.
PATIENCE = 5.0
CHUNK = 1 << 16


class BadServer(Exception):
    """The server does what no node may do, or does not answer."""


class BareConnection:
    """One connection to the server. It has an inbox of its own.

    Args:
        address: The server.
        sources: Returns the scripts' texts, which `greet` loads.

    Attributes:
        pushes: What the server has pushed and nobody has taken yet.
        inbox: The channel that `greet` subscribes to.
        clock: The clock that its checks read.
        sleep: How they wait.
    """

    clock: Callable[[], float] = staticmethod(clock)
    sleep: Callable[[float], None] = staticmethod(time.sleep)

    def __init__(self, address: Address, sources: Sequence[Script] = ()) -> None:
        self.address = address
        self.pushes: list[list[Any]] = []
        self._tickets = Tickets(os.urandom(16).hex().encode())
        self.inbox = self._tickets.inbox
        self._reader = reader()
        self._scripts = sources
        try:
            self._sock = self._dial(address)
        except OSError as error:
            raise BadServer(f"cannot connect: {error}") from None

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._sock.close()

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._sock.fileno()

    def greet(self) -> None:
        """Speak RESP3, sign in, listen to the inbox and load the scripts."""
        hello: list[Word] = ["HELLO", 3]
        if self.address.user or self.address.password:
            hello += ["AUTH", self.address.user or "default", self.address.password]
        self.ask(*hello)
        if self.address.database:
            self.ask("SELECT", self.address.database)
        self.send(("SUBSCRIBE", self.inbox))
        self.ask("TIME")
        self.pushes.clear()
        for script in self._scripts:
            self.ask("SCRIPT", "LOAD", script.source)

    def token(self, kind: bytes = b"") -> bytes:
        """Make a token with the ticket of this moment by the server's clock.

        Args:
            kind: Empty for an exclusive lock, `:r` or `:w` for a read-write lock.
        """
        return self.token_at(self.time()) + kind

    def token_at(self, time: float) -> bytes:
        """Make a token with the ticket of a moment, in seconds since 1970."""
        return self._tickets.token(self._tickets.ticket(time))

    def time(self) -> float:
        """Ask for the server's clock, in seconds since 1970."""
        seconds, micros = self.ask("TIME")
        return int(seconds) + int(micros) / 1e6

    def send(self, *commands: Sequence[Word]) -> None:
        """Send commands, and do not wait for their answers."""
        try:
            self._sock.sendall(b"".join(pack(*map(_bytes, it)) for it in commands))
        except OSError as error:
            raise BadServer(f"the connection broke: {error}") from None

    def arrived(self) -> list[Any]:
        """Read once, and return what has come: answers, and pushes in their place.

        Raises:
            BadServer: Nothing came, the connection broke, or the bytes are not RESP3.
        """
        try:
            data = self._sock.recv(CHUNK)
        except TimeoutError:
            raise BadServer(f"no answer within {PATIENCE:g} s") from None
        except OSError as error:
            raise BadServer(f"the connection broke: {error}") from None
        if not data:
            raise BadServer("it closed the connection")
        found = []
        try:
            self._reader.check(data)
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not MORE:
                found.append(reply)
        except Malformed as error:
            raise BadServer(f"it does not speak the servers' protocol: {error}") from None
        return found

    def batch(self, *commands: Sequence[Word]) -> list[Any]:
        """Send commands in one write, and return one answer for each. Pushes go to `pushes`."""
        self.send(*commands)
        answers: list[Any] = []
        while len(answers) < len(commands):
            for it in self.arrived():
                (self.pushes if isinstance(it, Push) else answers).append(it)
        return answers

    def ask(self, *words: Word) -> Any:
        """Send a command, and return its answer.

        Raises:
            BadServer: The server refused the command.
        """
        (answer,) = self.batch(words)
        if isinstance(answer, Refusal):
            shown = " ".join(str(it) for it in words[:2] if not isinstance(it, bytes))
            raise BadServer(f"it refuses {shown}: {answer}")
        return answer

    def call(self, script: Script, keys: Sequence[bytes], *arguments: Word) -> Any:
        """Run a script by its digest, or by its text if `greet` has not loaded it."""
        return self.ask(*evaluation(script, keys, *arguments, text=script not in self._scripts))

    def messages(self) -> list[bytes]:
        """Return and forget the messages that have come. Earlier commands can cause no more."""
        self.ask("TIME")
        taken, self.pushes = self.pushes, []
        return [it[2] for it in taken if it[0] == b"message"]

    def invalidated(self, key: bytes, wait: float = 1.0) -> bool:
        """Wait until the server says that a tracked key has changed.

        Args:
            key: The key.
            wait: Seconds to wait at most (default 1).
        """
        deadline = self.clock() + wait
        while True:
            self.ask("TIME")
            taken, self.pushes = self.pushes, []
            if any(it[0] == b"invalidate" and it[1] and key in it[1] for it in taken):
                return True
            if self.clock() > deadline:
                return False
            self.sleep(0.002)

    def _dial(self, address: Address) -> socket.socket:
        last: OSError = OSError("no such host")
        for family, where in places(address):
            sock = socket.socket(family)
            sock.settimeout(PATIENCE)
            try:
                sock.connect(where)
                if address.tls is None:
                    return sock
                return tunnels.context(address.tls, address.label).wrap_socket(sock, server_hostname=address.host)
            except OSError as error:
                sock.close()
                last = error
        raise last


def evaluation(script: Script, keys: Sequence[bytes], *arguments: Word, text: bool = False) -> tuple[Word, ...]:
    """Return the command that runs a script.

    Args:
        script: The script.
        keys: Its KEYS.
        arguments: Its ARGV.
        text: Hand over the text, and not its digest (default False).
    """
    return ("EVAL" if text else "EVALSHA", script.source if text else script.sha, len(keys), *keys, *arguments)


def _bytes(word: Word) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()
