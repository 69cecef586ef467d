"""The connections of one client: which to dial, open and hang up, and what is said on them.

Knows connections, and how long a node may owe an answer. Must not know claims or queries, or what
a node's state means to them: `Health` is told of every connection that has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from math import ceil, inf
from typing import TYPE_CHECKING, Protocol, TypeVar

from .. import scripts
from ..errors import ConfigError
from ..protocol.claim import Claim
from ..protocol.command import READ, RELEASE, Command
from ..protocol.nodes import NodeSet
from ..wire import rights
from ..wire.address import Address
from ..wire.connection import MET, Connection, ConnectionState, Listener
from ..wire.handshake import ConnectionSettings
from .settings import Settings

if TYPE_CHECKING:
    from .health import Health

# The bytes before the digest in a command that calls a script by it, and where they end at the
# latest.
CALLED = b"\r\n$7\r\nEVALSHA\r\n$40\r\n"
CALLED_BY = 80

# (On the way of every answer, an attribute of an enum costs as much as a call.)
UP = ConnectionState.UP

T = TypeVar("T")


class Guardian(Protocol):
    """Frees the locks of this process if it is killed. To tell it something takes no time."""

    def connected(self, node: int, address: Address) -> None:
        """Note where a node is, and whom it knows this client as."""

    def asks(self, claim: Claim, token: bytes) -> None:
        """Note that a request with this token is about to leave."""

    def ends(self, token: bytes) -> None:
        """Note that the release of this token is about to leave."""

    def stays(self, token: bytes) -> None:
        """Note that this token is not to be released."""

    def close(self) -> None:
        """Note that the engine has ended."""


class Upkeep:
    """Keeps the connections of a client.

    Args:
        settings: The client's.
        inbox: 32 hex digits of fresh randomness.
        version: The version of this library, for the servers' CLIENT LIST.
        listener: Is told what the connections have heard.
        node_set: How the nodes stand, which `Health` keeps.

    Attributes:
        connections: One for each node.
        health: Judges what has become of a connection.
        guardian: Is told what there is to release if this process is killed, if the client has one.
        stays: Whether the client has to stay connected while nobody uses it: where a function says
            which server a node is, a client that does not ask for a while cannot know that it was
            the same all along.
        broken: Whether a connection has failed since the last `take` or `cut`, so that drivers may
            have to close a socket.
        dials: Nodes to connect to, which `take` hands over.
        places: Nodes of which it is to be asked where they are, which `take` hands over.
        pulse: When to look after the connections next.
        brief: A claim with a shorter ttl than this, in seconds, cannot wait `node_timeout` for an
            answer.
        probes: The bytes of questions that ask for rights.
        bug: An error in a claim or a query. It is no failure of the connection that brought the
            answer.
    """

    health: Health
    guardian: Guardian | None = None

    def __init__(
        self, settings: Settings, inbox: bytes, version: str, listener: Listener[Command], node_set: NodeSet
    ) -> None:
        self._settings = settings
        self.node_set = node_set
        self._connection_settings = _connection_settings(settings, inbox, version)
        self.connections: list[Connection[Command]] = [
            Connection(listener, i, it, self._connection_settings) for i, it in enumerate(settings.addresses)
        ]
        self.stays = any(it.moves and it.sentinels is None for it in settings.addresses)
        self.broken = False
        self.dials: list[int] = []
        self.places: list[int] = []
        # Nodes to hang up.
        self._hangups: list[int] = []
        self.pulse = -inf
        self.brief = settings.node_timeout * 3
        # The ttls of such claims that live, and how many claims have each.
        self._briefs: Counter[float] = Counter()
        self.probes = {self._connection_settings.basic}
        self.bug: Exception | None = None

    # ------------------------------------------------ what the driver reports

    def connected(self, node: int, now: float, address: Address | None = None, asked: float = -inf) -> None:
        """Note that a connection to the node can carry bytes.

        Args:
            node: The node.
            now: The time.
            address: The address with the present place and credentials, if these change. None: as
                in the settings.
            asked: When the place was asked for, if it can change.
        """
        connection = self.connections[node]
        if self.guardian is not None:
            self.guardian.connected(node, address or connection.address)
        attempt(connection, connection.connected, None, now, address, asked)
        if connection.bad is not None:
            self.lost(node, now, connection.bad)

    def placed(self, node: int, now: float, address: Address | Exception, asked: float) -> None:
        """Note where a node of `Ready.places` is, or why that is not known, as of `asked`."""
        connection = self.connections[node]
        attempt(connection, connection.placed, None, address, asked, now)
        # The node may be asked to keep its note.
        self.expect(now)
        if connection.bad is not None:
            self.lost(node, now, connection.bad)

    def received(self, node: int, data: bytes | bytearray | memoryview, now: float) -> None:
        """Take in what a node has sent."""
        connection = self.connections[node]
        before, refusal = connection.state, connection.refusal
        try:
            connection.received(data, now)
        except Exception as error:
            if error is self.bug:
                raise
            self.faulted(node, now, error)
        if connection.state is not before and connection.state is ConnectionState.GUARDED:
            self.health.introduced(connection, now)
            self._open(connection, now)
        elif connection.state is not before or (connection.bad is None and connection.refusal is not refusal):
            self.health.stands(connection, now)
        if connection.wake < self.pulse:
            self.pulse = connection.wake
        if connection.bad is not None:
            self.lost(node, now, connection.bad)

    def expected(
        self, node: int, data: bytes, now: float, takes: Callable[[int, Command, float], bool]
    ) -> bytes:
        """Take in the usual answers that a node has sent.

        Args:
            node: The node.
            data: What it has sent.
            now: The time.
            takes: Takes in one of them, for the node and the question. False: it is to be read.

        Returns:
            The bytes that are left, for `received`.
        """
        connection = self.connections[node]
        try:
            return connection.expected(data, now, takes)
        except Exception as error:
            if error is self.bug:
                raise
            connection.bad = connection.bad or failure(error)
            return data

    def lost(self, node: int, now: float, cause: Exception) -> None:
        """Note that the connection to the node is gone, or no good, and hang it up."""
        connection = self.connections[node]
        cause = failure(cause) if isinstance(cause, MemoryError) else cause
        cause = attempt(connection, connection.explained, cause, cause)
        try:
            connection.broke(now)
        except Exception as error:
            # The connection may be in any state.
            cause = failure(error)
            connection.renounce(now)
        if node in self.dials:
            self.dials.remove(node)
        self._hangups.append(node)
        self.broken = True
        self.pulse = min(self.pulse, connection.wake)
        self.health.fell(connection, now, cause)

    def faulted(self, node: int, now: float, error: Exception) -> None:
        """Note that our own code failed, or memory ran out, while it dealt with one node.

        That node is lost at the next tick, and no other.
        """
        connection = self.connections[node]
        connection.bad = connection.bad or failure(error)
        self.broken = True
        self.pulse = min(self.pulse, now)

    def excuse(self, now: float, lag: float) -> None:
        """Note that the driver was busy for `lag` seconds: no node's silence counts until now."""
        for connection in self.connections:
            attempt(connection, connection.excuse, None, now, lag)
            if connection.bad is not None:
                self.lost(connection.node, now, connection.bad)

    def cut(self) -> Sequence[int]:
        """Take over which connections to reset, in the middle of reading.

        Do not read another byte of a connection that the engine has given up, and do not report it
        as lost a second time. `take` returns those that were not taken over here.
        """
        hangups = self._hangups
        self._hangups = []
        self.broken = False
        return hangups

    # ------------------------------------------------ what the engine wants

    def take(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """Take over which nodes to hang up, which to dial, and of which to ask where they are."""
        dials = self.dials
        places = self.places
        self.dials = []
        self.places = []
        return self.cut(), dials, places

    def look_after(self, now: float) -> None:
        """Hang up, dial or open the connections for which it is time."""
        self.pulse = inf
        for connection in self.connections:
            self._look_after(connection, now)
        due = min([self._due(connection, now) for connection in self.connections])
        self.pulse = min(self.pulse, due)

    def _look_after(self, connection: Connection[Command], now: float) -> None:
        """Hang up, dial or open one connection, if it is time to.

        Every failure in there is this connection's failure.
        """
        late = attempt(connection, connection.late, False, now)
        connection.bad = attempt(connection, connection.lapsed, None, now) or connection.bad
        if connection.bad is None and connection.reask <= now and connection.state in MET:
            connection.reask = now + (connection.server.outlives or 0.0) / 3
            self.places.append(connection.node)
        if connection.bad is None and late:
            silence = attempt(connection, connection.silence, None)
            # A `silence` that fails sets `bad`, which a type checker does not see.
            connection.bad = connection.bad or silence  # type: ignore[redundant-expr]
        elif connection.bad is None and connection.state is ConnectionState.DOWN and connection.wake <= now:
            attempt(connection, connection.dial, None, now)
            self.node_set.tried(connection.node, now)
            self.dials.append(connection.node)
        elif connection.bad is None and connection.state is ConnectionState.GUARDED and connection.wake <= now:
            self._open(connection, now)
        elif connection.bad is None and connection.state is UP and connection.wake <= now:
            attempt(connection, connection.probe, None, now)
            self.expect(now)
        if connection.bad is not None:
            self.lost(connection.node, now, connection.bad)

    def _due(self, connection: Connection[Command], now: float) -> float:
        """Return when to look after a connection next."""
        due = attempt(connection, connection.due, inf)
        if connection.bad is None:
            return min(due, connection.wake, *((connection.reask, connection.sure) if connection.state in MET else ()))
        self.lost(connection.node, now, connection.bad)
        return self.connections[connection.node].wake

    def _open(self, connection: Connection[Command], now: float) -> None:
        """Open a connection, unless it is in its guard."""
        if connection.bad is None and connection.wake <= now:
            attempt(connection, connection.opened, None, now)
        if connection.bad is None:
            self.health.stands(connection, now)

    def open_free(self, now: float) -> None:
        """Open the nodes whose guard is over, before a claim or a query is told that it is not."""
        for connection in self.connections:
            if connection.state is ConnectionState.GUARDED and connection.wake <= now < connection.sure:
                self._open(connection, now)

    def dial_soon(self, now: float) -> None:
        """Have nodes dialled that are away, because a caller has come."""
        for connection in self.connections:
            attempt(connection, connection.hurry, None, now)
        self.pulse = now

    def expect(self, now: float) -> None:
        """Note that something was asked: look after the connections when its answer is overdue."""
        due = now + self._connection_settings.patience
        if due < self.pulse:
            self.pulse = due

    def say(self, nodes: Sequence[int], command: Command) -> None:
        """Have connections say something. A connection that fails keeps no other from it."""
        self.provide(command)
        for node in nodes:
            try:
                self.connections[node].say(command)
            except Exception as error:
                self.faulted(node, command.sent, error)
        self.expect(command.sent)

    def say_along(self, data: bytes, nodes: Sequence[int], now: float) -> None:
        """Send something whose answer nobody waits for."""
        self.say(nodes, Command(None, READ, b"", now, data=data))

    @cached_property
    def _unused(self) -> dict[bytes, bytes]:
        """The scripts that this client has not used, by digest. No connection has loaded them."""
        return {it.sha: it.source for it in scripts.LOADED if it not in scripts.BASIC}

    def provide(self, command: Command) -> None:
        """Have every connection load the script that this command calls, if nothing has called it
        so far.

        It goes in the same write as the command, and with each connection from now on. So a
        connection's first words are few, and a script that a node does not know still means that
        its server was restarted.
        """
        _, _, called = command.data[:CALLED_BY].partition(CALLED)
        source = self._unused.pop(called[:40], None)
        if source is None:
            return
        self._connection_settings.scripts.append(source)
        more = self._connection_settings.probe is self._connection_settings.basic and called[:40] in rights.needs()
        if more:
            # It needs rights of its own. The answer comes before the one to the command.
            self._connection_settings.probe = rights.question(self._settings.prefix, b"more")
            self.probes.add(self._connection_settings.probe)
        for connection in self.connections:
            try:
                connection.learn(source, command.sent)
                if more and connection.state is UP:
                    connection.probe(command.sent)
            except Exception as error:
                self.faulted(connection.node, command.sent, error)

    def entrust(self, guardian: Guardian, claim: Claim, command: Command) -> None:
        """Have the guardian note a request before it leaves, and nodes know what it would send."""
        guardian.asks(claim, command.token)
        if not claim.recipe.basic:
            data = claim.recipe.release(command.token, True, 0.0)
            self.provide(Command(None, RELEASE, command.token, command.sent, data=data))

    @property
    def patience(self) -> float:
        """How many seconds a node may owe an answer now.

        That is a third of the shortest ttl of a claim that lives, and at most `node_timeout`.
        """
        return self._connection_settings.patience

    def hasten(self, ttl: float) -> None:
        """Note a claim that cannot wait `node_timeout` for an answer.

        No answer may take longer than a third of a lease.
        """
        self._briefs[ttl] += 1
        self._connection_settings.patience = min(self._connection_settings.patience, ttl / 3)

    def relax(self, ttl: float) -> None:
        """Note that such a claim is over. Nodes may take as long as the living claims allow."""
        self._briefs[ttl] -= 1
        if not self._briefs[ttl]:
            del self._briefs[ttl]
            self._connection_settings.patience = min([self._settings.node_timeout, *[it / 3 for it in self._briefs]])

    def too_brief(self, ttl: float) -> ConfigError | None:
        """Return why no lock can have this ttl here, if answers take longer than a third of it.

        A node that was not measured counts as quick.
        """
        trip = -self.node_set.quorum.reached_by({i: -it.trip for i, it in enumerate(self.connections)})
        if ttl / 3 >= trip:
            return None
        return ConfigError(
            f"ttl={ttl:g} is too short for these nodes: answers from a majority of them take {trip * 1000:.3g} ms, "
            "and each has to come within a third of the ttl. The shortest ttl that can work is "
            f"{ceil(trip * 3000) / 1000:g} seconds; choose several times that"
        )

    def measure(self, now: float) -> None:
        """Measure the round trip again, because a claim was refused for it.

        So a moment in which this machine was busy does not count for ever.
        """
        for connection in self.connections:
            attempt(connection, connection.measure, None, now)
        self.expect(now)


def attempt(connection: Connection[Command], call: Callable[..., T], otherwise: T, *arguments: object) -> T:
    """Call a method of a connection. What it raises makes the connection bad."""
    try:
        return call(*arguments)
    except Exception as error:
        connection.bad = connection.bad or failure(error)
        return otherwise


def _connection_settings(settings: Settings, inbox: bytes, version: str) -> ConnectionSettings:
    return ConnectionSettings(
        inbox,
        name=f"holdfast:{settings.owner}:{inbox[:8].decode()}".encode(),
        version=version.encode(),
        guard=settings.guard,
        short_guard=settings.short_guard,
        marked=settings.mark_lasts,
        patience=settings.node_timeout,
        timeout=settings.node_timeout,
        # A clock may be wrong by a quarter of the horizon more or less than it seems.
        prompt=max(settings.node_timeout, settings.horizon / 2000),
        prefix=settings.prefix,
        keep=settings.max_ttl,
        scripts=[it.source for it in scripts.BASIC],
        jitter=int(inbox[:4], 16) / 0xFFFF,
    )


def failure(error: Exception) -> ConnectionError:
    """Return an error that says what failed, and where.

    It leaves out the error's own words, in which a password may be.
    """
    kind, at = type(error).__name__, error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if isinstance(error, MemoryError):
        return ConnectionError("this process has no memory left for what the node says")
    where = "" if at is None else f" in {at.tb_frame.f_code.co_qualname}, line {at.tb_lineno}"
    return ConnectionError(
        f"holdfast failed on this node's connection ({kind}{where}); the other nodes go on. Please report this"
    )
