"""What goes wrong in a world: at random, and aimed at the moments in which it hurts most.

Knows what can happen to nodes, connections, clocks and clients, and how much of each the protocol promises to bear. Must not know
what is promised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from ..core.claim import HELD, Claim
from ..core.command import Recipe
from ..wire.resp import pack
from .driver import Driver
from .laws import Laws
from .network import WALL, Link, Node
from .world import World

CEDE, WAITS = b"\r\n$1\r\nc\r\n", b"\r\n$1\r\nw\r\n"  # in a request: its mode
LATEST = 3.0  # seconds by which a command is late at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a world is like. `aim`: what has to happen in it at least once, or the run does not count."""

    name: str
    nodes: int
    clients: int = 2
    each: int = 2  # users in a client
    names: int = 1  # locks that they want, each time one of them
    several: float = 0.0  # how often more than one at once
    eager: float = 0.8  # how often users come again at once; else with everybody, when the next fifth of a second begins
    ttls: tuple[float, ...] = (1.0,)
    seconds: float = 12.0
    faults: float = 2.0  # a second, at random
    slow: float = 0.02  # how much of what is sent takes long
    cuts: float = 0.3  # of connections on which a cede was just sent
    restarts: float = 0.01  # of holds that begin with the restart of a minority
    naps: float = 0.04  # of holds whose client is stopped while a renewal is on its way
    hands: float = 0.0  # of holds in which an operator takes the lock away
    gentle: bool = False  # long holds, and never more than a minority in trouble
    calm: bool = False  # no faults at all
    mortal: bool = False  # clients are stopped and killed, users cancelled
    reads: float | None = None  # of read-write locks: how many of their users only read
    aim: tuple[str, ...] = ()
    least: int = 0  # messages that have to be delivered in it, and then a fault has to happen, too, or the run does not count


class Faults:
    """All that goes wrong. `replace`: makes a new client instead of one that was killed."""

    def __init__(
        self, world: World, nodes: list[Node], drivers: list[Driver], laws: Laws, plan: Plan, guard: float, replace: Callable[[], None]
    ) -> None:
        self.world, self.nodes, self.drivers, self.laws = world, nodes, drivers, laws
        self.plan, self.guard, self._replace = plan, guard, replace
        self.few = (len(nodes) - 1) // 2  # the largest minority
        self.over = False
        self._highest = [it.clock.ahead for it in nodes]  # the most that each clock was ahead
        self._stepped = [-inf] * len(nodes)  # when each clock was last put forward
        self._busy: list[Node] = []  # those in trouble, in gentle worlds
        if plan.gentle:
            for _ in range(self.few):
                world.at(1.0, self._mishap)
        elif not plan.calm:
            world.at(1.0, self._fault)
            for node in nodes:
                node.sent = self._sent

    def end(self) -> None:
        """From now on nothing goes wrong any more. (What is half open stays so: it is for clients to notice.)"""
        self.over, self.world.slow = True, 0.0
        for node in self.nodes:
            if not node.running:
                node.start()
            node.dark = 0.0
            node.thaw(now=True)
        for driver in self.drivers:
            driver.go_on(now=True)

    # ------------------------------------------------ at random

    def _fault(self) -> None:
        if self.over:
            return
        world, dice = self.world, self.world.dice
        kinds = (self._breaks, self._step, self._half_open, self._stall, self._refuse, self._freeze, self._restart)
        dice.choices(kinds, (8, 5, 3, 2, 2, 1, 1))[0](dice.choice(self.nodes))
        if world.fate("queues deleted", self.plan.hands / 2):
            key = dice.choice((b"{L}:queue", b"{L}:waiters"))
            dice.choice(self.nodes).tell(pack(b"DEL", key))
        if self.plan.mortal:
            self._mortality(dice.choice(self.drivers))
        world.after(dice.expovariate(self.plan.faults), self._fault)

    def _breaks(self, node: Node) -> None:
        for link in list(node.links):
            if self.world.fate("connections broken", 0.7):
                link.cut(self._late())

    def _step(self, node: Node) -> None:
        """Set a clock: forward by less than the drift (once in two leases), back by less than G/4 (in all)."""
        world, dice, clock, index = self.world, self.world.dice, node.clock, node.index
        self._highest[index] = max(self._highest[index], clock.ahead)
        if dice.random() < 0.5 and world.now > self._stepped[index] + 2 * max(self.plan.ttls):
            self._stepped[index] = world.now
            clock.step(dice.uniform(0.0, 0.002))
        else:
            clock.step(max(-dice.uniform(0.0, 0.1), self._highest[index] - self.guard / 4 + 0.01 - clock.ahead))
        world.saw("clock steps")
        world.note(node, f"has its clock set to {clock.ahead - WALL:+.6f}")

    def _half_open(self, node: Node) -> None:
        for link in node.links:
            if self.world.fate("half-open connections", 0.5):
                link.deaf, link.mute = self.world.dice.choice(((True, True), (True, False), (False, True)))
                self.world.note(link.end, "is half open to", node, link.deaf, link.mute)

    def _stall(self, node: Node) -> None:
        for link in node.links:
            if self.world.fate("stalled connections", 0.5):
                link.stall(self.world.dice.uniform(0.05, LATEST))

    def _refuse(self, node: Node) -> None:
        """It executes no script for a while, and says so; or it has forgotten the scripts."""
        world, server = self.world, node.server
        world.saw("refusals")
        if world.dice.random() < 0.3:
            node.tell(pack(b"SCRIPT", b"FLUSH"))
        else:
            world.note(node, "refuses scripts")
            server.refuse[b"EVALSHA"] = world.dice.choice((b"BUSY Redis is busy running a script.", b"OOM command not allowed."))
            world.after(world.dice.uniform(0.01, 0.5), server.refuse.clear)

    def _freeze(self, node: Node) -> None:
        self.world.saw("frozen nodes")
        node.freeze(self.world.dice.uniform(0.05, 1.5))

    def _restart(self, node: Node) -> None:
        for it in self.world.dice.sample(self.nodes, self.world.dice.randint(1, min(len(self.nodes), 3))):
            self.world.saw("restarts")
            it.restart()

    def _mortality(self, driver: Driver) -> None:
        """Something happens to a client, or to one of its users."""
        world, dice = self.world, self.world.dice
        if world.fate("stopped", 0.3):
            driver.stop(dice.choice((dice.uniform(0.0, 0.1), dice.uniform(0.1, 2.5))))
        elif dice.random() < 0.2:
            if world.fate("closed", 0.3):
                world.spawn(driver.close(), driver)
            else:
                world.saw("killed")
                driver.kill()
            self.drivers.remove(driver)
            self._replace()
        elif world.fate("cancelled", 0.5):
            dice.choice(driver.tasks).cancel()

    def _late(self) -> float | None:
        """What was under way on a broken connection is lost, or executed so many seconds later."""
        dice = self.world.dice
        return dice.choice((None, dice.uniform(0.0, 0.1), dice.uniform(0.2, LATEST)))

    # ------------------------------------------------ never more than a minority

    def _mishap(self) -> None:
        """One more node is in trouble; the next one only when this one is back in all hands."""
        if self.over:
            return
        world, dice = self.world, self.world.dice
        node = dice.choice([it for it in self.nodes if it not in self._busy])
        self._busy.append(node)
        world.saw("one node in trouble")
        kind, rest = dice.choice(("restart", "vanish", "breaks")), 0.0
        if kind == "restart":
            node.restart()
            rest = self.guard + 2.5  # (its uptime is rounded, and there is a back-off)
        elif kind == "vanish":
            rest = dice.uniform(0.2, 4.0)
            node.vanish(rest)
            rest += 2.0
        else:
            for link in list(node.links):
                link.cut(self._late())
            rest = LATEST
        rest += dice.uniform(0.6, 1.5)
        world.after(rest, self._busy.remove, node)
        world.after(rest + dice.uniform(0.0, 1.0), self._mishap)

    # ------------------------------------------------ aimed at what is said

    def _sent(self, link: Link, data: bytes) -> None:
        if self.over or link.broken:
            return
        world, dice = self.world, self.world.dice
        if CEDE in data:
            if world.fate("cedes cut", self.plan.cuts):
                link.cut(self._late())
            elif world.fate("restarts at a cede", self.plan.cuts / 10):
                world.at(link.arrives + dice.uniform(0.0, 0.001), link.node.restart)
        elif WAITS in data and world.fate("requests cut", self.plan.cuts / 30):
            link.cut(self._late())

    # ------------------------------------------------ aimed at holders

    def granted(self, driver: Driver, claim: Claim) -> float:
        """Somebody was just granted the lock, and perhaps something is in store for this hold. Returns how long it should last at least."""
        world, dice, plan = self.world, self.world.dice, self.plan
        keep = 0.0
        if self.over or plan.calm or plan.gentle:
            return keep
        if self.few and world.fate("restarts when granted", plan.restarts):
            for node in dice.sample(self.nodes, dice.randint(1, self.few)):
                world.after(dice.uniform(0.0, 0.003), node.restart)
            keep = dice.uniform(0.0, 8.0)
        elif world.fate("stopped before all of a renewal is heard", plan.naps):
            keep = 4.0
            world.at(driver.clock.when(claim.wake) + dice.uniform(0.0, 0.003), self._nap, driver, claim)
        if dice.random() < plan.hands:
            keep = dice.uniform(0.5, 4.0)
            world.after(dice.choice((0.0, dice.uniform(0.0, keep))), self._hands, claim)
        return keep

    def _nap(self, driver: Driver, claim: Claim) -> None:
        if claim.state is HELD and not self.over:
            driver.stop(claim.ttl * self.world.dice.uniform(0.6, 0.75))

    def _hands(self, claim: Claim) -> None:
        """An operator takes the lock away: deletes its key, or forces its release, on some nodes or on most."""
        world, dice, name = self.world, self.world.dice, claim.recipe.name
        have = [node for node in self.nodes if node.holder(name) == claim.token]
        if claim.state is not HELD or not have or self.over:
            return
        most, force = dice.random() < 0.5, dice.random() < 0.5
        count = dice.randint(len(self.nodes) // 2 + 1, len(self.nodes)) if most else dice.randint(1, max(self.few, 1))
        world.saw("taken from most" if most else "taken from some")
        for node in dice.sample(have, min(len(have), count)):
            if force:
                world.after(world.delay(), self._force_release, node, claim.recipe, claim.token)
            else:
                self.laws.takes_away(node, name)
                node.tell(pack(b"DEL", name))
                if dice.random() < 0.3:
                    promote(node, claim.recipe)

    def _force_release(self, node: Node, recipe: Recipe, token: bytes) -> None:
        """What `force_release` means on a node, for a lock of ours."""
        if node.holder(recipe.name) == token:
            self.laws.takes_away(node, recipe.name)
            node.tell(pack(b"DEL", recipe.name))
            node.tell(pack(b"PUBLISH", token[17:49], b"x %b 0 %b" % (token, recipe.name)))
            promote(node, recipe)


def promote(node: Node, recipe: Recipe) -> None:
    """Hand a free lock on to whoever waits: the release of a token that nobody has."""
    node.tell(recipe.release(b"%016d:%032x:%08x" % (1, 0, 0)))
