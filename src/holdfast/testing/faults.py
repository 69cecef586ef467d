"""What goes wrong in a world: at random, and aimed at the moments in which it hurts most.

Knows what can happen to nodes, connections and clocks. Must not know what is promised. The worlds
in which holdfast is tested have more faults (`tests/swarm/faults.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from ..wire.resp import pack
from .network import WALL, Node, SimulatedConnection
from .world import World

CEDE = b"\r\n$1\r\nc\r\n"
# In a request: its mode.
WAITS = b"\r\n$1\r\nw\r\n"
KEEPS = b"\r\n$1\r\nk\r\n"
# Seconds by which a command is late at most.
LATEST = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StormSettings:
    """What goes wrong, and how often."""

    # A second, at random.
    faults: float = 2.0
    # How much of what is sent takes long.
    slow: float = 0.02
    # Of connections on which a cede was just sent.
    cuts: float = 0.3
    # Nodes that restart may have kept what they had, or all but their last second.
    disks: bool = False
    ttls: tuple[float, ...] = (1.0,)


# What a node says that refuses for a while.
REFUSALS = tuple(b"%b it does so for a while." % it for it in (b"BUSY", b"OOM", b"MISCONF", b"NOREPLICAS"))


class Faults:
    """All faults of one shard.

    `where` is the shard's name if there are several, and gives each of them dice of its own.
    """

    def __init__(self, world: World, nodes: Sequence[Node], plan: StormSettings, guard: float, where: str = "") -> None:
        self.world = world
        self.nodes = nodes
        self.plan = plan
        self.guard = guard
        self.chance = world.chance
        self.over = False
        self._dice = self.chance.dice(f"what goes wrong when {where}".rstrip())
        # The most that each clock was ahead.
        self._highest = [it.clock.ahead for it in nodes]
        # When each clock was last put forward.
        self._stepped = [-inf] * len(nodes)
        for node in nodes:
            node.keeps = plan.disks
        self._begin()

    def _begin(self) -> None:
        """Set the first faults."""
        self.world.after(self._dice.expovariate(self.plan.faults), self._fault)
        for node in self.nodes:
            node.sent = self._sent

    def end(self) -> None:
        """From now on nothing is wrong any more. (What is half open stays so: it is for clients to
        notice.)
        """
        self.over = True
        self.world.slow = 0.0
        for node in self.nodes:
            node.heal()

    # ------------------------------------------------ at random

    def _fault(self) -> None:
        if self.over:
            return
        dice = self._dice
        kinds = (self._breaks, self._step, self._half_open, self._stall, self._refuse, self._freeze, self._restart)
        dice.choices(kinds, (8, 5, 3, 2, 2, 1, 1))[0](dice.choice(self.nodes))
        self._also()
        self.world.after(dice.expovariate(self.plan.faults), self._fault)

    def _also(self) -> None:
        """What else goes wrong then, in worlds that have more faults."""

    def _breaks(self, node: Node) -> None:
        for link in list(node.links):
            if dice := self.chance.strikes("connections broken", 0.7):
                ends(link, dice)

    def _step(self, node: Node) -> None:
        """Set a clock: forward by less than the drift (once in two leases), back by less than G/4
        (in all).
        """
        dice = self.chance.strikes("clock steps")
        if dice is None:
            return
        clock = node.clock
        index = self.nodes.index(node)
        self._highest[index] = max(self._highest[index], clock.ahead)
        if dice.random() < 0.5 and self.world.now > self._stepped[index] + 2 * max(self.plan.ttls):
            self._stepped[index] = self.world.now
            clock.step(dice.uniform(0.0, 0.002))
        else:
            clock.step(max(-dice.uniform(0.0, 0.1), self._highest[index] - self.guard / 4 + 0.01 - clock.ahead))
        self.world.note(node, f"has its clock set to {clock.ahead - WALL:+.6f}")

    def _half_open(self, node: Node) -> None:
        for link in node.links:
            if dice := self.chance.strikes("half-open connections", 0.5):
                link.deaf, link.mute = dice.choice(((True, True), (True, False), (False, True)))
                self.world.note(link.client, "is half open to", node, link.deaf, link.mute)

    def _stall(self, node: Node) -> None:
        for link in node.links:
            if dice := self.chance.strikes("stalled connections", 0.5):
                link.stall(dice.uniform(0.05, LATEST))

    def _refuse(self, node: Node) -> None:
        """It executes no script for a while, and says so; or it has forgotten the scripts."""
        dice = self.chance.strikes("refusals")
        if dice is None:
            return
        server = node.server
        if dice.random() < 0.3:
            node.tell(pack(b"SCRIPT", b"FLUSH"))
        else:
            self.world.note(node, "refuses scripts")
            told = dice.choice(REFUSALS)
            server.refuse |= dict.fromkeys((b"EVALSHA",) if told[:4] == b"BUSY" else (b"SET", b"ZADD", b"HSET"), told)
            # Some last for longer than it takes to probe a node.
            self.world.after(dice.uniform(0.01, 3.0), server.refuse.clear)

    def _freeze(self, node: Node) -> None:
        if dice := self.chance.strikes("frozen nodes"):
            node.freeze(dice.uniform(0.05, 1.5))

    def _restart(self, node: Node) -> None:
        for it in self._dice.sample(self.nodes, self._dice.randint(1, min(len(self.nodes), 3))):
            self._restarts(it, "restarts")

    def _restarts(self, node: Node, why: str, soon: float = 0.0) -> None:
        """It restarts: empty; or with all that it had, or all but the last moments, if it has a
        disk.
        """
        dice = self.chance.strikes(why)
        if dice is None:
            return
        lost = dice.choice((inf, 0.0, dice.uniform(0.0, 1.0))) if self.plan.disks else inf
        behind = self._behind(node)
        self.world.after(dice.uniform(0.0, soon), node.restart, lost, behind)
        self.world.saw("restarts with all that was kept", lost == 0.0)
        self.world.saw("restarts with the last moments lost", 0.0 < lost < inf)

    def _behind(self, node: Node) -> float:
        """By how many seconds a clock was behind that is set while the node starts."""
        return 0.0

    # ------------------------------------------------ aimed at what is said

    def _sent(self, link: SimulatedConnection, data: bytes) -> None:
        if self.over or link.broken:
            return
        chance = self.chance
        plan = self.plan
        if CEDE in data:
            if dice := chance.strikes("cedes cut", plan.cuts):
                link.cut(late(dice))
            elif dice := chance.strikes("restarts at a cede", plan.cuts / 10):
                self.world.at(link.arrives + dice.uniform(0.0, 0.001), link.node.restart)
        elif (WAITS in data or KEEPS in data) and (dice := chance.strikes("requests cut", plan.cuts / 30)):
            link.cut(late(dice))


def ends(link: SimulatedConnection, dice: Random) -> None:
    """A connection ends: most are reset, and some the node closes in good order."""
    if dice.random() < 0.2:
        link.finish()
    else:
        link.cut(late(dice))


def late(dice: Random) -> float | None:
    """Return when to execute what was under way on a broken connection, in seconds. None: never."""
    return dice.choice((None, dice.uniform(0.0, 0.1), dice.uniform(0.2, LATEST)))
