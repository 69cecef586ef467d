"""Users, faults, and what has to be true when all is over: what a seed stands for.

Knows how users behave, and which worlds there are. Must not know how a law is watched, or how a
fault is done.

A world has four parts: users and faults; then nothing more goes wrong, but only a majority of the
nodes is well, and everybody who still waits gets the lock, and goes, and newcomers find it free;
then all nodes are well; then nobody is there, and every key runs out.
"""

from __future__ import annotations

from asyncio import CancelledError, Future
from dataclasses import replace
from math import inf
from random import Random
from typing import TypedDict, Unpack

from holdfast.engine.engine import Engine
from holdfast.engine.ready import Want
from holdfast.engine.registry import LIFE
from holdfast.errors import ConfigError, Misuse, NoQuorum, NotAcquired, is_closed
from holdfast.protocol.claim import State
from holdfast.protocol.command import READER, WRITER, Recipe
from holdfast.protocol.readwrite import ReadWrite
from holdfast.protocol.timing import Timing
from holdfast.testing.client import SimulatedClient
from holdfast.testing.faults import LATEST
from holdfast.testing.laws import TICK
from holdfast.testing.world import Violation
from holdfast.wire.connection import REMEMBERED

from .faults import LEAST, Faults, WorldSettings
from .scenes import SCENES
from .stage import RATE, Hold, How, Stage, extends
from .tasks import rings

USUAL = (
    WorldSettings(name="three", nodes=3, clients=3, eager=0.6, cuts=0.5, aim=("cedes cut",)),
    WorldSettings(name="one", nodes=1, clients=4, cuts=1.0, naps=0.1, aim=("requests cut", "stopped before all of a renewal is heard")),
    WorldSettings(name="five", nodes=5, restarts=0.1, aim=("restarts when granted",)),
    WorldSettings(name="hands on three", nodes=3, each=1, hands=0.8, seconds=24.0, aim=("taken from most",)),
    WorldSettings(name="calm five", nodes=5, clients=3, calm=True, eager=0.2, seconds=9.0, aim=("held",)),
    WorldSettings(name="mixed", nodes=5, clients=3, ttls=(0.3, 0.6, 1.0), aim=("extended",)),
    WorldSettings(name="slow", nodes=3, clients=4, each=1, slow=0.3, naps=0.1),
    WorldSettings(name="mortal", nodes=3, clients=4, ttls=(0.5, 1.0), mortal=True, aim=("killed", "stopped", "users cancelled")),
    WorldSettings(name="hands on five", nodes=5, clients=3, each=1, hands=0.4, aim=("taken from most",)),
    WorldSettings(name="gentle", nodes=3, gentle=True, seconds=24.0, aim=("one node in trouble",)),
    WorldSettings(name="four", nodes=4),
    WorldSettings(name="calm three", nodes=3, clients=4, calm=True, eager=0.2, seconds=9.0, aim=("held",)),
    WorldSettings(name="two", nodes=2, clients=3, eager=0.4, cuts=0.5, aim=("cedes cut",)),
    WorldSettings(name="mortal five", nodes=5, clients=3, mortal=True, aim=("killed", "stopped", "users cancelled")),
)


# Worlds of a read-write lock.
SHARED = (
    WorldSettings(
        name="readers, calm", nodes=3, clients=4, calm=True, eager=0.2, seconds=9.0, reads=0.7, aim=("read by two", "downgraded")
    ),
    WorldSettings(name="readers, three", nodes=3, clients=3, eager=0.6, cuts=0.5, reads=0.6, aim=("read by two", "cedes cut")),
    WorldSettings(name="readers, one", nodes=1, clients=4, cuts=1.0, naps=0.1, reads=0.6, aim=("read by two", "downgraded")),
    WorldSettings(name="readers, five", nodes=5, clients=3, restarts=0.1, mortal=True, reads=0.6, aim=("read by two", "killed")),
    WorldSettings(name="readers, mixed", nodes=3, clients=4, eager=0.3, ttls=(0.3, 1.0), reads=0.8, aim=("read by two", "extended")),
)


# Worlds in which some clocks are wrong all the time.
SKEWED = (
    WorldSettings(
        name="a wrong clock in three", nodes=3, clients=3, eager=0.6, restarts=0.1, cuts=0.5, skew=8.0, seconds=24.0, aim=("restarts",)
    ),
    WorldSettings(name="wrong clocks in five", nodes=5, clients=3, restarts=0.2, skew=8.0, seconds=24.0, aim=("restarts when granted",)),
    WorldSettings(name="wrong clocks, mixed", nodes=5, clients=3, ttls=(0.3, 0.6, 1.0), mortal=True, skew=60.0, aim=("extended",)),
    WorldSettings(name="wrong clocks, calm", nodes=3, clients=4, calm=True, eager=0.2, seconds=9.0, skew=3600.0, aim=("held",)),
)


# Worlds in which replicas are promoted, and old primaries go on.
_FAILOVERS = WorldSettings(
    name="failovers of one",
    nodes=1,
    clients=4,
    faults=1.0,
    promotions=0.2,
    outlives=4.0,
    seconds=40.0,
    aim=("promotions", "asked of an old primary"),
)
PROMOTED = (
    _FAILOVERS,
    replace(_FAILOVERS, name="failovers of three", nodes=3, clients=3, promotions=0.4, disks=True),
    replace(
        _FAILOVERS,
        name="a place that moves",
        promotions=0.12,
        moves=True,
        outlives=30.0,
        seconds=60.0,
        aim=("promotions", "asked of an old primary", "moved back"),
    ),
)


# Worlds of many who want several names at once, each in an order of its own.
_SETS = WorldSettings(
    name="sets, calm", nodes=3, clients=8, each=4, names=12, several=0.7, eager=0.2, calm=True, seconds=3.0, aim=("several names held",)
)
SETS = (_SETS, replace(_SETS, name="sets, rough", nodes=5, calm=False, eager=0.8, faults=3.0, cuts=0.05, naps=0.02, seconds=6.0))


# Seconds: there and back, at most, where nothing is wrong.
TRIP = 0.004
# Messages that a client and a node exchange before anything is asked.
MEETING = 4
# Of locks; most worlds have one only.
NAMES = ("L", "M", "{tag}N", "O", *"PQRSTUVW")


def swarm(seed: int) -> WorldSettings:
    """A plan that is itself a matter of chance: what no plan of ours thought of.

    Some faults may be rare in it, or absent, or the rule.
    """
    dice = Random(seed)

    def rate(most: float) -> float:
        return dice.choice((0.0, dice.uniform(0.0, most / 5), dice.uniform(0.0, most)))

    nodes = dice.choice((1, 3, 4, 5, 7))
    clients = dice.randint(2, 8)
    return WorldSettings(
        name="swarm",
        nodes=nodes,
        clients=clients,
        seconds=20.0,
        each=dice.randint(1, 2),
        names=dice.randint(1, 4),
        several=0.3,
        eager=dice.choice((0.2, 0.8)),
        ttls=dice.choice(((1.0,), (0.5, 1.0), (0.3, 0.6, 1.0))),
        messages=max(LEAST, dice.randint(120, 360) + MEETING * nodes * clients),
        faults=dice.uniform(0.5, 6.0),
        slow=rate(0.3),
        cuts=rate(1.0),
        restarts=rate(0.2),
        disks=dice.random() < 0.5,
        naps=rate(0.2),
        hands=rate(0.4),
        mortal=dice.random() < 0.4,
    )


# Worlds are asked for by their kind. The plan of each world of the swarm is a matter of chance.
SWARM = "swarm"
PLANS = {"": USUAL, "shared": SHARED, "skewed": SKEWED, "promoted": PROMOTED, "sets": SETS}
# The names of what seeds stand for, in turn.
WORLDS = {kind: [it.name for it in plans] for kind, plans in PLANS.items()}
WORLDS[""] += [it.name for it in SCENES]


class Exploration(Stage):
    """One seed's world of users and faults."""

    def __init__(self, seed: int, plan: WorldSettings, **how: Unpack[How]) -> None:
        super().__init__(seed, plan.nodes, max(plan.ttls), calm=plan.calm, outlives=plan.outlives, moves=plan.moves, **how)
        self.plan = plan
        self.name = plan.name
        self.aim = plan.aim
        self._users = 0
        self._dice = self.world.chance.dice("the end")
        for _ in range(plan.clients):
            self._begin()
        self.world.slow = 0.0 if plan.calm else plan.slow
        self.faults = Faults(self.world, self.nodes, self.drivers, self.laws, plan, self.guard, self._begin)
        # They wake whoever holds the lock.
        self._bells: dict[Future[None], None] = {}

    def _play(self) -> None:
        self.world.run(self.plan.seconds, lambda: self.world.delivered >= self.plan.messages)
        self.faults.settle()
        for bell in list(self._bells):
            rings(bell)
        self._everybody_is_served()
        self._newcomers_are_served()
        self.faults.end()
        for name in NAMES[: self.plan.names]:
            self._the_lock_is_free(name)
        self._every_key_runs_out()

    @property
    def void(self) -> tuple[str, ...]:
        missing = super().void
        if "held" not in self.world.seen:
            missing += ("a hold",)
        if self.world.delivered < self.plan.least:
            missing += (f"{self.plan.least} messages",)
        if not self.plan.calm and not self.world.chance.happened:
            missing += ("a fault",)
        return missing

    # ------------------------------------------------ users

    def _begin(self) -> None:
        driver = self.client(haste=0.0 if self.plan.calm else 0.1)
        if self.plan.skew and (dice := self.world.chance.dice(f"the wall clock of client {self._clients}")).random() < 0.5:
            driver.process.epoch += dice.choice((-1.0, 1.0)) * self.plan.skew
        for _ in range(self.plan.each):
            self._users += 1
            driver.process.run(self._user(driver, self.world.chance.dice(f"user {self._users}")))

    async def _user(self, driver: SimulatedClient, dice: Random) -> None:
        world = self.world
        if self.plan.calm:
            await driver.driver.ready(wait=1.0)
        while not self.faults.over:
            try:
                await world.sleep(dice.uniform(0.0, 0.01) if dice.random() < self.plan.eager else 0.2 - world.now % 0.2)
                await self._use(driver, dice)
            except NotAcquired:
                world.saw("refused")
                await world.sleep(dice.uniform(0.0, 0.1))
            except ConfigError as error:
                # Slow nodes may answer later than a third of a short lease, which is refused in
                # words.
                if "too short for these nodes" not in str(error):
                    raise
                world.saw("refused: too far away for the ttl")
                await world.sleep(dice.uniform(0.0, 0.1))
            except CancelledError:
                world.saw("users cancelled")
            except Misuse as error:
                if not is_closed(error):
                    raise
                return

    async def _use(self, driver: SimulatedClient, dice: Random) -> None:
        """Acquire the lock, hold it for a while, give it back."""
        hold = Hold()
        renew = self.plan.calm or dice.random() < 0.85
        ttl = dice.choice(self.plan.ttls)
        recipes = [self._side(dice, ttl, it) for it in self._names(dice)]
        await self._acquire(driver, dice, hold, recipes, ttl, renew)
        self.world.saw("held")
        self.world.saw("several names held", len(recipes) > 1)
        try:
            await self._keep(driver, dice, hold.claim, ttl, renew)
        finally:
            self.world.saw(f"lost: {hold.claim.reason}", hold.claim.state is State.LOST)
            if not self.plan.mortal or not self.world.chance.strikes("abandoned", 0.05):
                driver.driver.let_go(hold.claim)

    def _side(self, dice: Random, ttl: float, name: str) -> Recipe:
        """A lock; of a read-write lock one of its sides."""
        if not self.plan.reads:
            return self.recipe(ttl, name)
        return self._shared(name, READER if dice.random() < self.plan.reads else WRITER)

    def _alone(self, ttl: float, name: str) -> Recipe:
        """A lock; of a read-write lock the side of writers."""
        return self._shared(name, WRITER) if self.plan.reads else self.recipe(ttl, name)

    def _shared(self, name: str, kind: bytes) -> ReadWrite:
        return ReadWrite(name, kind, horizon=self.settings.horizon)

    def _names(self, dice: Random) -> list[str]:
        """One of them, or several at once, in any order."""
        names = NAMES[: self.plan.names]
        if len(names) == 1:
            return list(names)
        if self.plan.several and dice.random() < self.plan.several:
            return dice.sample(names, dice.randint(2, len(names)))
        return [dice.choice(names)]

    async def _acquire(self, driver: SimulatedClient, dice: Random, hold: Hold, recipes: list[Recipe], ttl: float, renew: bool) -> None:
        wait: float | None = 0.0
        if dice.random() >= 0.1:
            wait = None if self.plan.calm else dice.choice((0.01, 0.5, 5.0, None))
        max_hold = dice.uniform(0.1, 1.0) if not self.plan.calm and dice.random() < 0.05 else inf
        latest = driver.clock() + (ttl / 3 if wait == 0.0 else wait or inf)
        stops = driver.stops
        try:
            await driver.driver.acquire(hold, recipes, Timing(ttl, wait, renew, max_hold))
        except NoQuorum as outage:
            since = self.world.now - self.faults.ended
            # Who has little patience may give up while nodes are in their guard.
            if wait is None and since > LATEST:
                raise Violation(f"recovery: {outage}, {since:.1f} s after the last fault") from outage
            raise
        finally:
            self.laws.looked["patience"] += latest < inf
            if driver.clock() > latest + TICK and driver.stops == stops:
                token = hold.claim.claims[0].token.decode()
                raise Violation(f"patience: {token} was to wait until {latest:.6f}, and did until {driver.clock():.6f}")

    async def _keep(self, driver: SimulatedClient, dice: Random, claim: Want, ttl: float, renew: bool) -> None:
        """Hold it for a while."""
        longest = max(self.plan.ttls)
        keep = dice.uniform(0.0, 0.01) if dice.random() < 0.94 else dice.uniform(0.0, 4.0)
        if self.plan.gentle and dice.random() < 0.3:
            keep = dice.uniform(5.0, 20.0)
        elif not renew and dice.random() < 0.5:
            # To the last moment.
            keep = ttl
        keep = max(keep, self.faults.granted(driver, dice.choice(claim.claims)))
        if ttl < longest and keep > 0.1:
            self.world.saw("extended")
            await extends(driver, claim, longest)
        if self.plan.reads and claim.claims[0].recipe.kind == WRITER and dice.random() < 0.3:
            await extends(driver, claim, ttl, share=True)
            self.world.saw("downgraded", claim.state is State.HELD)
        if not self.faults.over:
            bell = self.world.sleep(keep)
            self._bells[bell] = None
            try:
                await bell
            finally:
                del self._bells[bell]
        if dice.random() < 0.05:
            await driver.driver.release(claim, confirm=True)

    # ------------------------------------------------ the end

    def _everybody_is_served(self) -> None:
        """P-L2, with the last late command, a rounded uptime, the longest back-off and a clock that
        went back. Then faults are over.
        """
        ends = (
            self.world.now + LATEST + self.settings.max_ttl * 4 / 3 + self.guard / 4 + self.longest + 1 + 1.3 + self.settings.node_timeout
        )
        tasks = [task for driver in self.drivers for task in driver.process.users]
        self._by(ends, lambda: all(task.done() for task in tasks), "everybody is to be served")
        self.world.run(ends)

    def _newcomers_are_served(self) -> None:
        """R-L3: a client that has just come, and for which a majority is enough."""
        world = self.world
        driver = self.client()
        ttl = self.settings.max_ttl
        within = 2 * TRIP + self.settings.node_timeout
        # It has dialled all nodes, and met those that answer.
        world.run(world.now + 1.0)

        def is_served(name: str) -> None:
            hold = Hold()
            task = driver.process.run(driver.driver.acquire(hold, [self._alone(ttl, name)], Timing(ttl)))
            self._by(world.now + within, task.done, f"a newcomer is to have {name!r} in {within:.3f} s", "core")
            driver.driver.let_go(hold.claim)

        for name in NAMES[: self.plan.names]:
            is_served(name)

    def _the_lock_is_free(self, name: str) -> None:
        """Anybody can have it now, as soon as the nodes are dialled."""
        hold = Hold()
        driver = self._dice.choice(self.drivers)
        ttl = self.settings.max_ttl

        async def take() -> None:
            while True:
                try:
                    await driver.driver.acquire(hold, [self._alone(ttl, name)], Timing(ttl))
                except NoQuorum:  # an outage, for this client, that has just ended: it may be about to dial again
                    await self.world.sleep(0.1)
                else:
                    await driver.driver.release(hold.claim, confirm=True)
                    return

        task = driver.process.run(take())
        self._by(self.world.now + self.longest + 3.0, task.done, "the lock is to be free")

    def _every_key_runs_out(self) -> None:
        """P-M1: after the longest lease, the fence's horizon, and what clients say of themselves,
        nothing is left.
        """
        # A late command may have asked for a lease.
        begins = max(self.world.now, self.plan.seconds + LATEST)
        # In an hour clocks of such rates would differ by more than clocks do.
        for node in self.nodes:
            node.clock.becomes(1.0)
        for driver in self.drivers:
            driver.clock.becomes(1.0)
        self.world.run(begins + 2 * self.longest + 0.5)
        if self.laws.open:
            raise Violation(f"left over: {', '.join(claim.token.decode() for claim in self.laws.open)}")
        for driver in self.drivers:
            self.laws.looked["well"] += 1
            node_set = driver.engine.node_set
            if node_set.states.count("up") < node_set.quorum.least:
                raise Violation(f"well: {driver} says {node_set.states} of its nodes: {node_set.causes}")
        # As long as a client lives, it says so once a minute.
        for driver in self.drivers:
            driver.driver.steer(Engine.close)
        self.world.run(self.world.now + 1.0 + self.settings.node_timeout)
        for driver in self.drivers:
            # (A note about a place that moves may be under way at any moment.)
            owed = [connection.ledger for connection in driver.engine.connections]
            self.world.run(self.world.now + self.settings.node_timeout, lambda owed=owed: not any(owed))  # type: ignore[misc]  # (mypy knows no type of a default in a lambda)
            self.laws.quiet(driver)
            # It asks no more where its nodes are.
            driver.process.crash()
        # The note of a promotion is what a node keeps the longest.
        self.world.run(self.world.now + max(LIFE, REMEMBERED / 1000) * (1 + 2 * RATE) + 0.5)
        self.laws.looked["left for ever"] += 1
        left = {node: keys for node in self.nodes if (keys := node.keys())}
        if left:
            raise Violation(f"left for ever: {left}")


class Which(TypedDict, total=False):
    """Which worlds seeds stand for: those of a `kind`; `quick`: shorter ones, but those of the swarm."""

    kind: str
    quick: bool


def plan_of(seed: int, *, kind: str = "", quick: bool = False) -> WorldSettings | None:
    """The plan of this seed's world, which is one of `Which`; None if that is a scene."""
    if kind == SWARM:
        return swarm(seed)
    plans = PLANS[kind]
    which = seed % len(WORLDS[kind])
    if which >= len(plans):
        return None
    return replace(plans[which], seconds=plans[which].seconds / 1.5) if quick else plans[which]


def explore(seed: int, *, kind: str = "", quick: bool = False, **how: Unpack[How]) -> Stage:
    """The world of this seed, before anything has happened in it: see `plan_of`."""
    plan = plan_of(seed, kind=kind, quick=quick)
    if plan is None:
        return SCENES[seed % len(WORLDS[kind]) - len(PLANS[kind])](seed, **how)
    return Exploration(seed, plan, **how)
