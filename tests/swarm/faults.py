"""What goes wrong in the worlds of the swarm, beside what goes wrong in every storm.

Clients die, clocks are wrong all the time, replicas are promoted, keys are lost, and operators take
locks away.

Knows how much of each the protocol promises to bear. Must not know what is promised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from random import Random

from holdfast.protocol.claim import Claim, State
from holdfast.protocol.command import Recipe
from holdfast.testing import faults
from holdfast.testing.client import SimulatedClient
from holdfast.testing.faults import LATEST, StormSettings, ends
from holdfast.testing.network import WALL, Node, SimulatedConnection
from holdfast.testing.world import World
from holdfast.wire.connection import ConnectionState
from holdfast.wire.resp import pack

from .laws import SwarmLaws
from .nodes import ReplaceableNode

HELLO = b"\r\nHELLO\r\n"
LEAST = 300  # messages in a world that counts
EVER = 1e6  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSettings(StormSettings):
    """The settings of a world.

    `aim` lists events. A run counts only if each of them happens at least once.
    """

    name: str
    nodes: int
    clients: int = 2
    # Users in a client.
    each: int = 2
    # Locks that they want, each time one of them.
    names: int = 1
    # How often more than one at once.
    several: float = 0.0
    # How often users come again at once; else with everybody, when the next fifth of a second
    # begins.
    eager: float = 0.8
    # Until nothing goes wrong any more,.
    seconds: float = 12.0
    # Or until this number of messages has been delivered.
    messages: float = inf
    # Of holds that begin with the restart of a minority.
    restarts: float = 0.01
    # Of holds whose client is stopped while a renewal is on its way.
    naps: float = 0.04
    # Of holds in which an operator takes the lock away.
    hands: float = 0.0
    # Long holds, and never more than a minority in trouble.
    gentle: bool = False
    # No faults at all.
    calm: bool = False
    # Clients are stopped and killed, users cancelled.
    mortal: bool = False
    # How many users only read: the locks are read-write locks then.
    reads: float = 0.0
    # Seconds by which the clocks of some nodes, a minority, and of some clients are wrong, all the
    # time.
    skew: float = 0.0
    # How often a node of one minority loses a key, or is rolled back, when something goes wrong.
    losses: float = 0.05
    # How often a replica is promoted in the place of its primary, when something goes wrong.
    promotions: float = 0.0
    # For how many seconds, at most, the old primary goes on.
    outlives: float = 0.0
    # Clients find a node's place before each connection, and it may be another server there, or the
    # former one again. Sometimes nobody can tell.
    moves: bool = False
    aim: tuple[str, ...] = ()
    # Messages that have to be delivered in it, and a fault has to happen if it is not calm, or the
    # run does not count.
    least: int = LEAST


# ------------------------------------------------ how a node is broken for ever


def _deaf(node: Node, dice: Random) -> None:
    for link in node.links:
        link.deaf = True
    node.dark = EVER


def _mute(node: Node, dice: Random) -> None:
    for link in node.links:
        link.mute = True
    node.dark = EVER


def _refuses(node: Node, dice: Random) -> None:
    node.server.refuse[b"EVALSHA"] = b"OOM command not allowed."


def _slow(node: Node, dice: Random) -> None:
    node.lag = dice.uniform(0.05, 0.5)


def _lacks_a_command(node: Node, dice: Random) -> None:
    node.restart()
    command = dice.choice((b"EVALSHA", b"SCRIPT", b"SUBSCRIBE", b"PUBLISH", b"INFO", b"TIME", b"CLIENT", b"SET"))
    node.world.note(node, "lacks", command)
    node.server.refuse[command] = b"ERR unknown command"


BROKEN: dict[str, Callable[[Node, Random], object]] = {
    "hung": lambda node, dice: node.freeze(EVER),
    "gone": lambda node, dice: node.stop(),
    "half open": lambda node, dice: node.vanish(EVER),
    "hears nothing": _deaf,
    "says nothing": _mute,
    "refuses": _refuses,
    "lacks a command": _lacks_a_command,
    "slow": _slow,
}


class Faults(faults.Faults):
    """All faults of a world. `replace` makes a new client instead of one that was killed."""

    plan: WorldSettings
    nodes: list[ReplaceableNode]

    def __init__(
        self,
        world: World,
        nodes: list[ReplaceableNode],
        drivers: list[SimulatedClient],
        laws: SwarmLaws,
        plan: WorldSettings,
        guard: float,
        replace: Callable[[], None],
    ) -> None:
        self.drivers = drivers
        self.laws = laws
        self._replace = replace
        # The largest minority.
        self.few = (len(nodes) - 1) // 2
        # When nothing went wrong any more.
        self.ended = inf
        # Those in trouble, in gentle worlds.
        self._busy: list[Node] = []
        # Those whose clocks are right.
        self.right = nodes
        super().__init__(world, nodes, plan, guard)

    def _begin(self) -> None:
        if self.plan.skew:
            self._skew()
        if self.plan.gentle:
            for _ in range(self.few):
                self.world.at(1.0, self._mishap)
        elif not self.plan.calm:
            super()._begin()

    def _skew(self) -> None:
        """The clocks of a minority are wrong, and stay so."""
        dice = self.chance.dice("whose clocks are wrong")
        wrong = dice.sample(self.nodes, dice.randint(1, self.few))
        for node in wrong:
            node.clock.step(dice.choice((-1.0, 1.0)) * dice.uniform(0.5, 1.0) * self.plan.skew)
            self.world.note(node, f"has a clock that is wrong by {node.clock.ahead - WALL:+.1f} s")
        self._highest = [it.clock.ahead for it in self.nodes]
        self.right = [node for node in self.nodes if node not in wrong]

    def settle(self) -> None:
        """From now on a majority of the nodes is well, each of the others is broken until `end`,
        and nothing else goes wrong any more.
        """
        self.end()
        if self.plan.calm:
            return
        dice = self.chance.dice("who is well")
        # Counted here: what is tested may count wrongly.
        core = dice.sample(self.right, len(self.nodes) // 2 + 1)
        for node in self.nodes:
            if node not in core and (broken := self.chance.strikes("nodes broken for ever")):
                how = broken.choice(list(BROKEN))
                self.world.note(node, f"is {how} for ever" if how in ("hung", "gone", "half open", "slow") else f"{how} for ever")
                BROKEN[how](node, broken)

    def end(self) -> None:
        """From now on nothing is wrong any more."""
        super().end()
        self.ended = min(self.ended, self.world.now)
        for node in self.nodes:
            if node not in self.right:
                node.clock.step(WALL - node.clock.ahead)
        for driver in self.drivers:
            driver.process.resume()

    # ------------------------------------------------ at random

    def _also(self) -> None:
        chance = self.chance
        dice = self._dice
        if hit := chance.strikes("queues deleted", self.plan.hands / 2):
            hit.choice(self.nodes).tell(pack(b"DEL", hit.choice((b"{L}:queue", b"{L}:waiters"))))
        if hit := chance.strikes("promotions", self.plan.promotions):
            self._promotes(hit)
        if self.few and (hit := chance.strikes("keys lost", self.plan.losses)):
            self._loses(hit.choice(self.nodes[: self.few]), hit)
        # (Laws take a primary and its old one for one node: they cannot excuse what one of them
        # forgets.)
        rolls = self.plan.disks and not self.plan.promotions
        if self.few and rolls and (hit := chance.strikes("nodes rolled back", self.plan.losses / 2)):
            self._rolls_back(hit.choice(self.nodes[: self.few]), hit)
        if self.plan.mortal:
            self._mortality(self.drivers[int(dice.random() * len(self.drivers))])

    def _promotes(self, dice: Random) -> None:
        """A replica takes a node's place, with all that its primary had, or less; the old primary
        goes on for a while.

        A client comes that knew nothing of the node: the others remember the old primary.
        """
        node = dice.choice(self.nodes)
        if self.plan.moves and dice.random() < 0.5:
            self.world.note(node, "cannot be found")
            node.lost = self.world.now + dice.uniform(0.0, max(self.plan.ttls))
        # A name that moves stays for longer than a client counts a server that nobody confirms.
        stays = self.plan.moves and self.world.now < node.born + max(self.plan.ttls) / 2
        if not node.running or stays:
            return
        if self.plan.moves and node.old is not None:
            node.moves_back(dice.random() * self.plan.outlives)
            self.world.saw("moved back")
        elif node.old is None:
            lag = dice.choice((inf, 0.0, dice.uniform(0.0, 1.0))) if self.plan.disks else inf
            outlives = dice.choice((0.0, 0.99, dice.random())) * self.plan.outlives
            node.promote(lag, outlives, moved=self.plan.moves and dice.random() < 0.5)
            if len(self.drivers) < 2 * self.plan.clients:
                self.world.after(dice.uniform(0.0, self.guard), self._replace)

    def _is_known(self, node: Node) -> bool:
        """Has every client heard this run of the node lately, and will no other one come soon?

        Otherwise a server has to start after its clock is set.
        """
        connections = [(it, it.engine.connections[it.nodes.index(node)]) for it in self.drivers]
        comes = self.plan.mortal or self.plan.promotions > 0.0
        lately = all(it.state is ConnectionState.UP and it.heard > driver.clock() - 1.0 for driver, it in connections)
        return bool(connections) and lately and not comes

    def _behind(self, node: Node) -> float:
        early = self.chance.strikes("clocks set at a start", 0.3) if self._is_known(node) else None
        return 0.0 if early is None else early.uniform(1.0, 60.0)

    def _loses(self, node: Node, dice: Random) -> None:
        """A key is gone: evicted, or deleted by an operator."""
        keys = [it for it in sorted(node.keys()) if not it.startswith(b"{holdfast}") and b":reign:" not in it]
        fences = [key for key in keys if b"fence" in key]
        if keys and node.running:
            key = dice.choice(fences if fences and dice.random() < 0.5 else keys)
            self.laws.forgets(node, lambda: node.tell(pack(b"DEL", key)))

    def _rolls_back(self, node: ReplaceableNode, dice: Random) -> None:
        if node.running:
            self.laws.forgets(node, lambda: node.roll_back(dice.uniform(0.05, 1.0)))

    def _mortality(self, driver: SimulatedClient) -> None:
        """Something happens to a client, or to one of its users."""
        chance = self.chance
        if dice := chance.strikes("stopped", 0.3):
            driver.process.pause(dice.choice((dice.uniform(0.0, 0.1), dice.uniform(0.1, 2.5))))
        elif chance.strikes("closed", 0.04):
            driver.process.run(driver.driver.close())
            self._gone(driver)
        elif chance.strikes("killed", 0.1):
            driver.process.crash()
            self._gone(driver)
        elif dice := chance.strikes("cancelled", 0.5):
            dice.choice(driver.process.users).cancel()

    def _gone(self, driver: SimulatedClient) -> None:
        self.drivers.remove(driver)
        self._replace()

    # ------------------------------------------------ never more than a minority

    def _mishap(self) -> None:
        """One more node is in trouble; the next one only when this one is back in all hands."""
        if self.over:
            return
        dice = self.chance.strikes("one node in trouble")
        rest = 0.0
        if dice is None:
            self.world.after(LATEST, self._mishap)
            return
        node = dice.choice([it for it in self.nodes if it not in self._busy])
        self._busy.append(node)
        kind = dice.choice(("restart", "vanish", "breaks"))
        if kind == "restart":
            node.restart()
            # Its uptime is rounded, and there is a back-off.
            rest = self.guard + 2.5
        elif kind == "vanish":
            rest = dice.uniform(0.2, 4.0)
            node.vanish(rest)
            rest += 2.0
        else:
            for link in list(node.links):
                ends(link, dice)
            rest = LATEST
        rest += dice.uniform(0.6, 1.5)
        self.world.after(rest, self._busy.remove, node)
        self.world.after(rest + dice.uniform(0.0, 1.0), self._mishap)

    # ------------------------------------------------ aimed at what is said

    def _sent(self, link: SimulatedConnection, data: bytes) -> None:
        if self.over or link.broken:
            return
        greets = HELLO in data and link.client in self.drivers
        if greets and (dice := self.chance.strikes("stopped in a greeting", 0.02)):
            self.world.after(dice.uniform(0.0, 0.004), self._stops, link.client, dice.uniform(0.1, 2.5))
        super()._sent(link, data)

    # ------------------------------------------------ aimed at holders

    def granted(self, driver: SimulatedClient, claim: Claim) -> float:
        """Somebody was just granted the lock, and perhaps something is in store for this hold.

        Returns how long it should last at least.
        """
        chance = self.chance
        plan = self.plan
        keep = 0.0
        if self.over or plan.calm or plan.gentle:
            return keep
        if self.few and self._dice.random() < plan.restarts:
            for node in self._dice.sample(self.nodes, self._dice.randint(1, self.few)):
                self._restarts(node, "restarts when granted", 0.003)
            keep = self._dice.uniform(0.0, 8.0)
        elif dice := chance.strikes("stopped before all of a renewal is heard", plan.naps):
            keep = 4.0
            self.world.at(driver.clock.when(claim.wake) + dice.uniform(0.0, 0.003), self._nap, driver, claim, dice)
        if dice := chance.strikes("operators' hands", plan.hands):
            keep = dice.uniform(0.5, 4.0)
            self.world.after(dice.choice((0.0, dice.uniform(0.0, keep))), self._hands, claim, dice)
        return keep

    def _nap(self, driver: SimulatedClient, claim: Claim, dice: Random) -> None:
        if claim.state is State.HELD and not self.over:
            self._stops(driver, claim.ttl * dice.uniform(0.6, 0.75))

    def _stops(self, driver: SimulatedClient, seconds: float) -> None:
        if not driver.dead:
            driver.process.pause(seconds)

    def _hands(self, claim: Claim, dice: Random) -> None:
        """An operator takes the lock away: deletes its key, or forces its release, on some nodes or
        on most.
        """
        name = claim.recipe.name
        have = [node for node in self.nodes if node.holder(name) == claim.token]
        if claim.state is not State.HELD or not have or self.over:
            return
        most = dice.random() < 0.5
        force = dice.random() < 0.5
        count = dice.randint(len(self.nodes) // 2 + 1, len(self.nodes)) if most else dice.randint(1, max(self.few, 1))
        self.world.saw("taken from most" if most else "taken from some")
        for node in dice.sample(have, min(len(have), count)):
            if force:
                self.world.after(self.world.delay(), self._force_release, node, claim.recipe, claim.token)
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
    """Hand a free lock on to the first waiter, by the release of a token that nobody has."""
    node.tell(recipe.release(b"%016d:%032x:%08x" % (1, 0, 0), False, 0.0))
