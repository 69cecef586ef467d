"""Many connections want one lock of one server, and nobody may hold it beside another.

Knows what a holder may conclude from the order in which answers arrive. All connections are read by
one thread, so that this order is known. Must not know other scripts.
"""

from __future__ import annotations

import random
import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ... import scripts
from ...protocol.exclusive import keys_of
from ...wire.resp import Push, Refusal
from .connection import PATIENCE, BadServer, BareConnection, evaluation
from .contract import K, request

# Milliseconds: a lease that cannot end before its release.
LEASE = 15_000
# Seconds after which a client that waits asks again. A push may have been for nobody.
AGAIN = 1.0
# For how many turns a holder keeps the lock at most, by the mode in which it asked. In each turn,
# others are answered.
LINGER = {"t": 2, "w": 6, "k": 6}
# All contend in the same way for as many answers: try only, wait only, or either.
PHASE = 500
MODES = ("t", "w", "wt")


@dataclass
class Outcome:
    """What a storm has shown.

    Attributes:
        requests: How many commands were answered.
        grants: How often the lock was granted, and `pushed`: how many of these by a push.
        wrong: What contradicts one holder at a time and fences that grow.
        seconds: How long it took.
    """

    requests: int = 0
    grants: int = 0
    pushed: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0


class _Client:
    """One contender: it asks, holds for a moment, gives back, and asks again."""

    def __init__(self, storm: Storm, connection: BareConnection) -> None:
        self._storm, self.connection = storm, connection
        self.token = b""
        self.state = "idle"
        self.since = 0.0
        self.left = 0
        self._mode = "t"

    def ask(self, mode: str) -> None:
        """Ask for the lock: w waits, t tries once, k repeats."""
        if mode != "k":
            self.token = self._storm.token(self.connection)
        self.connection.send(request(self._storm.name, self.token, mode, LEASE))
        self.state, self.since, self._mode = "asked", self._storm.clock(), mode

    def answered(self, answer: Any) -> None:
        """Take an answer."""
        if isinstance(answer, Refusal):
            raise BadServer(f"a script failed while others ran: {answer}")
        if self.state == "released":
            if answer != 1:
                self._storm.blame(f"a holder's release answers {answer!r}: it no longer held the lock")
            self.state = "idle"
        elif self.state == "held":
            # The answer to a request that a push has overtaken.
            return
        elif isinstance(answer, list) and not answer[0]:
            self.state = "waiting" if self._mode != "t" else "idle"
        else:
            self.hold(int(answer[0] if isinstance(answer, list) else answer))

    def heard(self, message: bytes) -> None:
        """Take a push."""
        kind, token, fence, _ = message.split(b" ", 3)
        if kind == b"g" and token == self.token and self.state in ("asked", "waiting"):
            self._storm.outcome.pushed += 1
            self.hold(int(fence))

    def hold(self, fence: int) -> None:
        """The lock was granted."""
        self._storm.granted(self, fence)
        self.state, self.left = "held", self._storm.chance.randrange(LINGER[self._mode])

    def step(self) -> None:
        """Do what is due."""
        if self.state == "idle":
            modes = MODES[self._storm.outcome.requests // PHASE % len(MODES)]
            self.ask(self._storm.chance.choice(modes))
        elif self.state == "held":
            self.left -= 1
            if self.left < 0:
                self.connection.send(evaluation(scripts.RELEASE, self._storm.keys, self.token, K))
                self.state = "released"
        elif self.state == "waiting" and self._storm.clock() - self.since > AGAIN:
            self.ask("k")


class Storm:
    """A storm on one lock.

    Args:
        connections: The contenders' connections, all greeted.
        name: The lock's key.
        seed: Of what the contenders do.
    """

    def __init__(self, connections: Sequence[BareConnection], name: bytes, seed: int = 0) -> None:
        self.name, self.keys = name, keys_of(name)
        self.chance = random.Random(seed)
        self.outcome = Outcome()
        self.clock = connections[0].clock
        self.clients = [_Client(self, it) for it in connections]
        self._ahead = connections[0].time() - self.clock()
        self._holder: _Client | None = None
        self._fence = 0

    def token(self, connection: BareConnection) -> bytes:
        """Make a token with the ticket of this moment by the server's clock."""
        return connection.token_at(self.clock() + self._ahead)

    def granted(self, client: _Client, fence: int) -> None:
        """Note a grant. Its holder must be the only one, and its fence above all earlier ones.

        An earlier holder that has not yet sent its release still holds the lock. So the order in
        which answers arrive is the order in which the server granted.
        """
        self.outcome.grants += 1
        other = self._holder
        if other is not None and other is not client and other.state == "held":
            self.blame(f"{client.token.decode()} and {other.token.decode()} hold the lock at once")
        if fence <= self._fence:
            self.blame(f"fence {fence} was granted after {self._fence}")
        self._fence = max(fence, self._fence)
        self._holder = client

    def blame(self, what: str) -> None:
        """Note what is wrong."""
        self.outcome.wrong.append(what)

    def run(self, requests: int, seconds: float, enough: int = 3) -> Outcome:
        """Let all contend.

        Args:
            requests: After how many answers the storm ends.
            seconds: After how many seconds it ends at the latest.
            enough: After how many faults it ends.

        Returns:
            What was seen.

        Raises:
            BadServer: The server failed.
        """
        began = last = self.clock()
        with selectors.DefaultSelector() as selector:
            for client in self.clients:
                selector.register(client.connection, selectors.EVENT_READ, client)
                client.step()
            while (
                self.outcome.requests < requests and self.clock() < began + seconds and len(self.outcome.wrong) < enough
            ):
                # A holder has its next turn at once.
                ready = selector.select(0 if self._held() else AGAIN)
                if ready:
                    last = self.clock()
                elif not self._held() and self.clock() > last + PATIENCE:
                    raise BadServer(f"nobody got an answer for {PATIENCE:g} s, or a release freed the lock for nobody")
                for key, _ in ready:
                    self._read(key.data)
                for client in self.clients:
                    client.step()
        self.outcome.seconds = self.clock() - began
        return self.outcome

    def _held(self) -> bool:
        return self._holder is not None and self._holder.state == "held"

    def _read(self, client: _Client) -> None:
        for it in client.connection.arrived():
            if not isinstance(it, Push):
                self.outcome.requests += 1
                client.answered(it)
            elif it[0] == b"message":
                client.heard(it[2])


def storm(dial: Callable[[], BareConnection], name: bytes, clients: int, requests: int, seconds: float) -> Outcome:
    """Make connections, let them contend, and close them.

    Args:
        dial: Makes a connection that was greeted.
        name: The lock's key.
        clients: How many contend.
        requests: After how many answers the storm ends.
        seconds: After how many seconds it ends at the latest.

    Returns:
        What was seen.
    """
    connections = [dial() for _ in range(clients)]
    try:
        return Storm(connections, name).run(requests, seconds)
    finally:
        for it in connections:
            it.close()
