"""Nodes that are replaced: by a replica, by another server of the same name, or by their past.

Knows simulated nodes. Must not know who decides on it.
"""

from __future__ import annotations

from math import inf
from typing import Any

from holdfast.testing.network import MATURE, PORT, Node, SimulatedConnection
from holdfast.testing.server import Server
from holdfast.testing.values import Keyspace

from .tasks import TaskWorld

# Addresses of the servers that take the place of a node whose address moves.
PLACES = "198.18.{}.{}"


class ReplaceableNode(Node):
    """A node whose server may be replaced, and go on for a while."""

    world: TaskWorld

    def __init__(self, *facts: Any) -> None:
        # Nobody can tell where it is until then.
        self.lost = 0.0
        # The primary that was replaced last, while it goes on.
        self.old: Server | None = None
        # Where each of its servers is, if its place is asked for.
        self._places: dict[Server, str] = {}
        super().__init__(*facts)

    def runs(self, server: Server | None) -> bool:
        """Is it this process that clients may be connected to, or the primary from before?"""
        return super().runs(server) or (server is not None and server is self.old)

    def roll_back(self, lost: float) -> None:
        """Its machine goes back to a snapshot of its memory: the same run, a moment earlier.

        `lost`: as of `start`, 1 at most, and `keeps` has to be set. Connections break.
        """
        self.world.note(self, f"is rolled back by {lost:.3f} s")
        saved = self._saved(lost) or {}
        for database, space in self.server.data.items():
            # In place, because connections refer to it: what arrives late is executed, too.
            kept = saved.get(database, Keyspace())
            space.values, space.deadlines = kept.values, kept.deadlines
        self.changes += 1
        for link in list(self.links):
            link.cut()

    def promote(self, lost: float = inf, outlives: float = 0.0, moved: bool = False) -> None:
        """A replica takes its place, under the same address: a process that runs for as long,
        without what it had not received yet. Or its name has `moved` to a server that never was a
        replica, and knows nothing.

        `lost`: seconds, the last before the failover, of which it has received nothing (as of
        `start`). `outlives`: seconds for which the old primary goes on. It keeps its connections,
        and half of the new ones lead to it. Laws take the two for one node: it had what the old
        primary has.
        """
        self.world.note(self, "is another server now" if moved else "is replaced by its replica")
        data = None if moved else self._saved(lost)
        if outlives and self.running:
            self.had.update({(key, value): self.world.now for key in self.keys() if (value := self.holder(key))})
            self.old = self.server
            self.world.after(outlives, self._retires, self.old)
        else:
            self.stop()
        self.running = True
        self._begin(MATURE, data)
        # What it had not received it does not know, however long its process runs.
        self.born = self.world.now
        if not moved:
            self.server.promote()

    def moves_back(self, outlives: float) -> None:
        """Its name leads to the server again that was there before, and that has forgotten nothing.

        `outlives`: seconds for which the one that was there in between goes on.
        """
        assert self.old is not None
        self.world.note(self, "is the former server again")
        self.had.update({(key, value): self.world.now for key in self.keys() if (value := self.holder(key))})
        self.server, self.old = self.old, self.server
        self.woke = {key: value for key in self.keys() if (value := self.holder(key))}
        self.born = self.world.now
        self.changes += 1
        self.world.after(outlives, self._retires, self.old)

    async def where(self, _: object = None) -> tuple[str, int]:
        """Ask somebody who knows where the server is that is the node.

        The question and the answer take their time. Nobody may be able to tell.
        """
        world = self.world
        await world.sleep(world.delay())
        server = None if world.now < self.lost else self.server
        await world.sleep(world.delay())
        if server is None:
            raise ConnectionError("nobody can tell where it is")
        if server not in self._places:
            self._places[server] = PLACES.format(*divmod(len(world.hosts), 256))
            world.hosts[self._places[server]] = self, server
        return self._places[server], PORT

    def _retires(self, old: Server) -> None:
        """The old primary stops, if it has not."""
        if self.old is old:
            self.world.note(self, "has its old primary stopped")
            for link in list(self.links):
                if link.server is old:
                    link.cut()
            self.old = None

    def leads_to(self) -> Server | None:
        """Which server takes a new connection. None: it is refused."""
        if self.old is not None and (not self.running or self.world.dice.random() < 0.5):
            return self.old
        return super().leads_to()

    def heal(self) -> None:
        """Whatever is wrong with it ends."""
        if not self.running:
            self.start()
        if self.old is not None:
            self._retires(self.old)
        self.lost = 0.0
        super().heal()

    def fed(self, link: SimulatedConnection) -> None:
        """What came on this connection was executed: what an old primary has, the node had."""
        if self.old is not None and link.server is self.old:
            self._had_by(self.old)

    def _had_by(self, old: Server) -> None:
        self.world.saw("asked of an old primary")
        space, now = old.data[0], old.micros() // 1000
        for key, value in space.values.items():
            if type(value) is bytes and space.deadlines.get(key, 0) >= now:
                self.had[key, value] = self.world.now
