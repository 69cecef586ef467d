"""What goes wrong in a world: at random, and aimed at the moments in which it hurts most.

Knows what can happen to nodes, connections, clocks and clients, and how much of each the protocol
promises to bear. Must not know what is promised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from random import Random

from ..protocol.claim import Claim, State
from ..protocol.command import Recipe
from ..wire.connection import ConnectionState
from ..wire.resp import pack
from .client import SimulatedClient
from .laws import Laws
from .network import WALL, Node, SimulatedConnection
from .world import World

CEDE = b"\r\n$1\r\nc\r\n"
HELLO = b"\r\nHELLO\r\n"
# In a request: its mode.
WAITS = b"\r\n$1\r\nw\r\n"
KEEPS = b"\r\n$1\r\nk\r\n"
# Seconds by which a command is late at most.
LATEST = 3.0
LEAST = 300  # messages in a world that counts
EVER = 1e6  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSettings:
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
    ttls: tuple[float, ...] = (1.0,)
    # Until nothing goes wrong any more,.
    seconds: float = 12.0
    # Or until this number of messages has been delivered.
    messages: float = inf
    # A second, at random.
    faults: float = 2.0
    # How much of what is sent takes long.
    slow: float = 0.02
    # Of connections on which a cede was just sent.
    cuts: float = 0.3
    # Of holds that begin with the restart of a minority.
    restarts: float = 0.01
    # Nodes that restart may have kept what they had, or all but their last second.
    disks: bool = False
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


# What a node says that refuses for a while.
REFUSALS = tuple(b"%b it does so for a while." % it for it in (b"BUSY", b"OOM", b"MISCONF", b"NOREPLICAS"))


class Faults:
    """All faults of one shard.

    `replace` makes a new client instead of one that was killed. `where` is the shard's name if
    there are several, and gives each of them dice of its own.
    """

    def __init__(
        self,
        world: World,
        nodes: list[Node],
        drivers: list[SimulatedClient],
        laws: Laws,
        plan: WorldSettings,
        guard: float,
        replace: Callable[[], None],
        where: str = "",
    ) -> None:
        self.world = world
        self.nodes = nodes
        self.drivers = drivers
        self.laws = laws
        self.plan = plan
        self.guard = guard
        self._replace = replace
        self.chance = world.chance
        # The largest minority.
        self.few = (len(nodes) - 1) // 2
        self.over = False
        # And when it was.
        self.ended = inf
        self._dice = self.chance.dice(f"what goes wrong when {where}".rstrip())
        # The most that each clock was ahead.
        self._highest = [it.clock.ahead for it in nodes]
        # When each clock was last put forward.
        self._stepped = [-inf] * len(nodes)
        # Those in trouble, in gentle worlds.
        self._busy: list[Node] = []
        # Those whose clocks are right.
        self.right = nodes
        if plan.skew:
            self._skew()
        self._schedule()

    def _schedule(self) -> None:
        """Prepare the nodes, and set the first faults."""
        for node in self.nodes:
            node.keeps = self.plan.disks
        if self.plan.gentle:
            for _ in range(self.few):
                self.world.at(1.0, self._mishap)
        elif not self.plan.calm:
            self.world.after(self._dice.expovariate(self.plan.faults), self._fault)
            for node in self.nodes:
                node.sent = self._sent

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
                self.world.note(
                    node, f"is {how} for ever" if how in ("hung", "gone", "half open", "slow") else f"{how} for ever"
                )
                BROKEN[how](node, broken)

    def end(self) -> None:
        """From now on nothing is wrong any more. (What is half open stays so: it is for clients to
        notice.)
        """
        self.over = True
        self.world.slow = 0.0
        self.ended = min(self.ended, self.world.now)
        for node in self.nodes:
            node.heal()
            if node not in self.right:
                node.clock.step(WALL - node.clock.ahead)
        for driver in self.drivers:
            driver.process.resume()

    # ------------------------------------------------ at random

    def _fault(self) -> None:
        if self.over:
            return
        chance = self.chance
        dice = self._dice
        kinds = (self._breaks, self._step, self._half_open, self._stall, self._refuse, self._freeze, self._restart)
        dice.choices(kinds, (8, 5, 3, 2, 2, 1, 1))[0](dice.choice(self.nodes))
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
        self.world.after(dice.expovariate(self.plan.faults), self._fault)

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

    def _breaks(self, node: Node) -> None:
        for link in list(node.links):
            if dice := self.chance.strikes("connections broken", 0.7):
                _ends(link, dice)

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
        early = self.chance.strikes("clocks set at a start", 0.3) if self._is_known(node) else None
        behind = 0.0 if early is None else early.uniform(1.0, 60.0)
        self.world.after(dice.uniform(0.0, soon), node.restart, lost, behind)
        self.world.saw("restarts with all that was kept", lost == 0.0)
        self.world.saw("restarts with the last moments lost", 0.0 < lost < inf)

    def _is_known(self, node: Node) -> bool:
        """Has every client heard this run of the node lately, and will no other one come soon?

        Otherwise a server has to start after its clock is set.
        """
        connections = [(it, it.engine.connections[it.nodes.index(node)]) for it in self.drivers]
        comes = self.plan.mortal or self.plan.promotions > 0.0
        lately = all(it.state is ConnectionState.UP and it.heard > driver.clock() - 1.0 for driver, it in connections)
        return bool(connections) and lately and not comes

    def _loses(self, node: Node, dice: Random) -> None:
        """A key is gone: evicted, or deleted by an operator."""
        keys = [it for it in sorted(node.keys()) if not it.startswith(b"{holdfast}") and b":reign:" not in it]
        fences = [key for key in keys if b"fence" in key]
        if keys and node.running:
            key = dice.choice(fences if fences and dice.random() < 0.5 else keys)
            self.laws.forgets(node, lambda: node.tell(pack(b"DEL", key)))

    def _rolls_back(self, node: Node, dice: Random) -> None:
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
                _ends(link, dice)
            rest = LATEST
        rest += dice.uniform(0.6, 1.5)
        self.world.after(rest, self._busy.remove, node)
        self.world.after(rest + dice.uniform(0.0, 1.0), self._mishap)

    # ------------------------------------------------ aimed at what is said

    def _sent(self, link: SimulatedConnection, data: bytes) -> None:
        if self.over or link.broken:
            return
        chance = self.chance
        plan = self.plan
        if HELLO in data and link.client in self.drivers and (dice := chance.strikes("stopped in a greeting", 0.02)):
            self.world.after(dice.uniform(0.0, 0.004), self._stops, link.client, dice.uniform(0.1, 2.5))
        if CEDE in data:
            if dice := chance.strikes("cedes cut", plan.cuts):
                link.cut(_late(dice))
            elif dice := chance.strikes("restarts at a cede", plan.cuts / 10):
                self.world.at(link.arrives + dice.uniform(0.0, 0.001), link.node.restart)
        elif (WAITS in data or KEEPS in data) and (dice := chance.strikes("requests cut", plan.cuts / 30)):
            link.cut(_late(dice))

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


def _ends(link: SimulatedConnection, dice: Random) -> None:
    """A connection ends: most are reset, and some the node closes in good order."""
    if dice.random() < 0.2:
        link.finish()
    else:
        link.cut(_late(dice))


def _late(dice: Random) -> float | None:
    """Return when to execute what was under way on a broken connection, in seconds. None: never."""
    return dice.choice((None, dice.uniform(0.0, 0.1), dice.uniform(0.2, LATEST)))


def promote(node: Node, recipe: Recipe) -> None:
    """Hand a free lock on to the first waiter, by the release of a token that nobody has."""
    node.tell(recipe.release(b"%016d:%032x:%08x" % (1, 0, 0), False, 0.0))
