"""Nodes and the network, in virtual time: what can happen to a server, and to bytes on their way.

Knows simulated servers, connections, delays and faults. Must not know what the bytes mean, or who
decides on a fault.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Protocol

from .server import Lua, ServedConnection, Server
from .values import Keyspace
from .world import BytesInFlight, DriftingClock, World

if TYPE_CHECKING:
    from .client import SimulatedClient

# Addresses that are nobody's, and that no name server is asked about.
HOSTS = "192.0.2.{}"
PORT = 6379
# What the servers' clocks show when the world begins.
WALL = 1_800_000_000.0
# In what a node says: an error, but not that an old server does not know a word of the greeting.
ERROR = re.compile(rb"^-(?!ERR unknown subcommand)", re.MULTILINE)
# Seconds for which servers have been up by then.
MATURE = 10_000.0


def _ignore(*what: object) -> None:
    pass


class End(Protocol):
    """Who is at the other end of a node's connections: a transport."""

    def connected(self, link: SimulatedConnection) -> None:
        """Bytes can flow."""

    def heard(self, link: SimulatedConnection, data: bytes) -> None:
        """The node sent this."""

    def lost(self, link: SimulatedConnection, cause: Exception) -> None:
        """The connection is gone, or could not be made."""


class Node:
    """One master: a process with a clock of its own.

    What it still knows after a restart is up to `restart`.

    `keeps`: it keeps a journal of its last second, as an append-only file that is written to disk
    once a second.
    """

    keeps = False

    def __init__(self, world: World, index: int, clock: DriftingClock, lua: Lua | None = None) -> None:
        self.world = world
        self.index = index
        self.clock = clock
        self.links: dict[SimulatedConnection, None] = {}
        self.running = True
        # How often its keys may have changed.
        self.changes = 0
        # The tokens that keys had when it last was killed, and when that was.
        self.had: dict[tuple[bytes, bytes], float] = {}
        # The values of the keys with which it began.
        self.woke: dict[bytes, bytes] = {}
        # Nothing reaches it or comes from it until then.
        self.dark = 0.0
        # Seconds that every message takes longer, each way.
        self.lag = 0.0
        # Called after commands.
        self.executed: Callable[[Node], object] = _ignore
        # Called when a driver has sent something.
        self.sent: Callable[[SimulatedConnection, bytes], object] = _ignore
        # Called when a driver has sent what will never be answered, or dials in vain.
        self.unanswered: Callable[[SimulatedConnection], object] = _ignore
        # When it last answered with an error.
        self.erred = -inf
        # Called when a script or a client publishes a message.
        self.published: Callable[[Node, bytes], object] = _ignore
        self._frozen = 0.0
        self._backlog: list[tuple[SimulatedConnection, bytes | None]] = []
        # What it had before each command of the last second.
        self._journal: deque[tuple[float, dict[int, Keyspace]]] = deque()
        self._lua = lua
        self._runs = 0
        self._serial = next(world.machines)
        self.host = HOSTS.format(self._serial + 1)
        world.hosts[self.host] = self
        self._begin(MATURE)

    def __repr__(self) -> str:
        return f"node {self.index}"

    def _begin(self, uptime: float, data: Mapping[int, Keyspace] | None = None) -> None:
        self.born = self.world.now - uptime
        self._runs = self._runs + 1
        self.changes = self.changes + 1
        self.server = Server(
            self.clock, f"{self._serial:020x}{self._runs:020x}", uptime=uptime, data=data, lua=self._lua
        )
        # (Who listens may change later.)
        self.server.published = lambda message: self.published(self, message)
        self.woke = {key: value for key in self.keys() if (value := self.holder(key))}

    # ------------------------------------------------ what can be seen from outside

    def holder(self, name: bytes) -> bytes:
        """Whose token is on it."""
        space = self.server.data[0]
        value = space.values.get(name)
        if type(value) is not bytes:
            return b""
        return value if space.deadlines.get(name, 0) >= self.server.micros() // 1000 else b""

    def runs_out(self, name: bytes) -> float:
        """When, in the world's time, the key will be gone, if nothing happens to it or to the
        clock.
        """
        return self.clock.when((self.server.data[0].deadlines.get(name, 0) + 1) / 1000)

    def keys(self) -> list[bytes]:
        """What has not run out."""
        self.server.expire()
        return [key for space in self.server.data.values() for key in space.values]

    # ------------------------------------------------ what happens to it

    def stop(self) -> None:
        """Kill it: connections break, new ones are refused."""
        self.world.note(self, "is killed")
        self.running = False
        self._frozen = 0.0
        self.had.update({(key, value): self.world.now for key in self.keys() if (value := self.holder(key))})
        backlog, self._backlog = self._backlog, []
        for link in list(self.links):
            if not self.runs(link.server):
                link.cut()
        for link, data in backlog:
            self.take(link, data)

    def start(self, lost: float = inf, behind: float = 0.0) -> None:
        """Start it, with a new run_id.

        `lost`: seconds, the last before it was killed, of which it has forgotten all that was
        written.

        0: it has a snapshot of its end, or an append-only file that is written at once; up to 1
        (with `keeps`): one that is written once a second; else it is empty.

        `behind`: seconds by which its clock was behind, and was put forward while it started: its
        uptime is longer by them.
        """
        data = self._saved(lost)
        self.world.note(self, "starts, empty" if data is None else f"starts, with all but its last {lost:.3f} s")
        if behind:
            self.world.note(self, f"has its clock put forward by {behind:.3f} s while it starts")
        self.running = True
        self._begin(behind, data)
        self.born = self.world.now

    def _saved(self, lost: float) -> dict[int, Keyspace] | None:
        if lost == inf:
            return None
        later = [data for when, data in self._journal if when > self.world.now - lost]
        self._journal.clear()
        return later[0] if later else self.server.saved()

    def restart(self, lost: float = inf, behind: float = 0.0) -> None:
        """Kill it, and start it at once."""
        self.stop()
        self.start(lost, behind)

    @property
    def url(self) -> str:
        """What clients call it."""
        return f"redis://{self.host}:{PORT}"

    def runs(self, server: Server | None) -> bool:
        """Is it this process that clients may be connected to?"""
        return server is self.server and self.running

    def leads_to(self) -> Server | None:
        """Which server takes a new connection. None: it is refused."""
        return self.server if self.running else None

    def heal(self) -> None:
        """Whatever is wrong with it ends. (What is half open stays so: it is for clients to
        notice.)
        """
        if not self.running:
            self.start()
        self.dark = self.lag = 0.0
        self.server.refuse.clear()
        self.thaw(now=True)

    def freeze(self, seconds: float) -> None:
        """SIGSTOP: the kernel goes on taking connections and bytes; what came is executed when it
        runs again.
        """
        self.world.note(self, f"is frozen for {seconds:.3f} s")
        self._frozen = max(self._frozen, self.world.now + seconds)
        self.world.at(self._frozen, self.thaw)

    def thaw(self, now: bool = False) -> None:
        """SIGCONT, if it is time."""
        if now or self.world.now >= self._frozen:
            self._frozen = 0.0
            backlog = self._backlog
            self._backlog = []
            for link, data in backlog:
                self.take(link, data)

    def vanish(self, seconds: float) -> None:
        """No packet reaches it or comes from it any more: connections are half open, new ones get
        no answer.
        """
        self.world.note(self, f"cannot be reached for {seconds:.3f} s")
        self.dark = max(self.dark, self.world.now + seconds)
        for link in self.links:
            link.deaf = link.mute = True

    def take(self, link: SimulatedConnection, data: bytes | None) -> None:
        """Bytes, or the end of the stream (None), have come to its socket."""
        # The process that it was connected to is gone.
        if not self.runs(link.server):
            return
        if self.world.now < self._frozen:
            self._backlog.append((link, data))
        elif data is None:
            self.links.pop(link, None)
            link.connection.disconnect()
        else:
            self.world.delivered += 1
            self.changes += 1
            if self.keeps:
                self._keep()
            if link.broken:
                self.world.saw("commands executed after their connection broke")
            link.connection.feed(data)
            self.fed(link)
            self.executed(self)

    def fed(self, link: SimulatedConnection) -> None:
        """What came on this connection was executed."""

    def _keep(self) -> None:
        now = self.world.now
        journal = self._journal
        journal.append((now, self.server.saved()))
        while journal[0][0] < now - 1.0:
            journal.popleft()

    def tell(self, command: bytes) -> None:
        """An operator's command, executed at once."""
        self.world.note(self, "is told", command)
        self.changes += 1
        connection = self.server.connect(_ignore)
        connection.feed(command)
        connection.disconnect()
        self.executed(self)


class SimulatedConnection:
    """One connection, from the dialling on.

    Bytes arrive in order, each way; a cut loses what is under way, or not.

    `client`: whose it is, for those who watch. `found`: the server that it is to lead to, if the
    node's place is found first.
    """

    server: Server | None = None
    connection: ServedConnection

    def __init__(
        self, world: World, end: End, node: Node, client: SimulatedClient | None = None, found: Server | None = None
    ) -> None:
        self.world = world
        self.found = found
        self.end = end
        self.client = client
        self._who: object = client or end
        self.node = node
        # Half open: nothing reaches the node, nothing comes from it, and nobody is told.
        self.deaf = self.mute = False
        # Does a law watch for its end? Has it seen what is told on it first?
        self.watched = self.told = False
        self.broken = False
        # When what was sent last gets to the node.
        self.arrives = 0.0
        # And the same for the other way.
        self._to_end = 0.0
        self._under_way: deque[BytesInFlight] = deque()
        self._answers: deque[BytesInFlight] = deque()
        world.after(world.delay() + node.lag, self._reached)

    def __repr__(self) -> str:
        return f"{self._who} - {self.node}"

    # ------------------------------------------------ beginning

    def _reached(self) -> None:
        world = self.world
        node = self.node
        if not self.broken and world.now < node.dark:
            node.unanswered(self)
        if self.broken or world.now < node.dark:
            return
        server = self.found or node.leads_to()
        if server is None or not node.runs(server):
            self.broken = True
            world.after(world.delay(), self.end.lost, self, ConnectionRefusedError("refused"))
            return
        node.links[self] = None
        self.server = server
        self.connection = server.connect(self._answer)
        world.after(world.delay() + node.lag, self.end.connected, self)

    # ------------------------------------------------ bytes

    def send(self, data: bytes) -> None:
        """The driver sends this."""
        world = self.world
        world.note(self._who, "sends to", self.node, data)
        if not self.broken and (self.deaf or self.mute):
            self.node.unanswered(self)
        if self.broken or self.deaf:
            return
        self.arrives = max(self.arrives, world.now + world.delay() + self.node.lag)
        self._under_way.append(world.flies(self._who, self.node, data))
        world.at(self.arrives, self._arrive)
        self.node.sent(self, data)

    def _arrive(self) -> None:
        if self._under_way and not self.deaf:
            flight = self._under_way.popleft()
            flight.lands = self.world.now
            self.node.take(self, flight.data)

    def _arrive_late(self, flight: BytesInFlight) -> None:
        flight.lands = self.world.now
        self.node.take(self, flight.data)

    def _answer(self, data: bytes) -> None:
        world = self.world
        if re.search(ERROR, data):
            self.node.erred = world.now
        if self.broken or self.mute:
            return
        pieces = [data]
        # In two packets.
        if len(data) > 1 and world.dice.random() < 0.05:
            at = world.dice.randrange(1, len(data))
            pieces = [data[:at], data[at:]]
        for piece in pieces:
            self._to_end = max(self._to_end, world.now + world.delay() + self.node.lag)
            self._answers.append(world.flies(self.node, self._who, piece))
            world.at(self._to_end, self._heard)

    def _heard(self) -> None:
        if self._answers and not self.mute:
            flight = self._answers.popleft()
            flight.lands = self.world.now
            self.end.heard(self, flight.data)

    def stall(self, seconds: float, answers_only: bool = False) -> None:
        """Packets are lost for a while, and sent again: what is under way from now on takes that
        long, each way.
        """
        arrives = self.world.now + seconds
        self._to_end = max(self._to_end, arrives)
        if not answers_only:
            self.arrives = max(self.arrives, arrives)

    # ------------------------------------------------ ends

    def hang_up(self) -> None:
        """The driver closes it.

        What is under way still arrives, and then the news; unless the line is dead.
        """
        if self.broken:
            return
        self.broken = True
        self._answers.clear()
        if not self.deaf and self in self.node.links:
            world = self.world
            world.at(max(self.arrives, world.now + world.delay()), self.node.take, self, None)

    def cut(self, late: float | None = None) -> None:
        """It breaks. What is under way to the node is lost, or else executed, as far as it came,
        `late` seconds from now.
        """
        if self.broken or self.server is None:
            return
        world = self.world
        dice = self.world.dice
        world.note(self, "breaks")
        self.broken = True
        data = b"".join([flight.data for flight in self._under_way])
        self._under_way.clear()
        if data and late is not None and not self.deaf:
            flight = world.flies(self._who, self.node, data[: dice.choice((len(data), dice.randint(0, len(data))))])
            world.after(late, self._arrive_late, flight)
        world.after(world.delay(), self.node.take, self, None)
        if not self.mute:
            if dice.random() < 0.5:
                self._answers.clear()
            told = world.now + world.delay()
            world.at(
                max(told, self._to_end) if self._answers else told, self.end.lost, self, ConnectionResetError("reset")
            )

    def finish(self) -> None:
        """The node closes it, and says so after its last answer (FIN). It reads nothing more."""
        if self.broken or self.server is None:
            return
        world = self.world
        world.note(self, "is closed by the node")
        self.broken = True
        self._under_way.clear()
        self.node.links.pop(self, None)
        self.connection.disconnect()
        if not self.mute:
            told = max(self._to_end, world.now + world.delay())
            world.at(told, self.end.lost, self, ConnectionError("it closed the connection"))
