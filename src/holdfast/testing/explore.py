"""Users, faults, and what has to be true when all is over: what a seed stands for.

Knows how users behave, and which worlds there are. Must not know how a law is watched, or how a fault is done.

A world has three parts: users and faults; then the faults end, and everybody gets the lock who still waits for it, and goes;
then nobody is there, and every key runs out.
"""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf

from ..core.claim import HELD, LOST
from ..core.command import READER, WRITER, Recipe
from ..engine.census import LIFE
from ..engine.crew import Want
from ..errors import Closed, NoQuorum, NotAcquired
from ..recipes.readwrite import ReadWrite
from .driver import Driver
from .faults import LATEST, Faults, Plan
from .laws import TICK
from .scenes import SCENES
from .server import Lua
from .stage import RATE, Hold, Stage
from .world import Cancelled, Future, Violation

PLANS = (
    Plan(name="three", nodes=3, clients=3, eager=0.6, cuts=0.5, aim=("cedes cut",)),
    Plan(name="one", nodes=1, clients=4, cuts=1.0, naps=0.1, aim=("requests cut", "stopped before all of a renewal is heard")),
    Plan(name="five", nodes=5, restarts=0.1, aim=("restarts when granted",)),
    Plan(name="hands on three", nodes=3, each=1, hands=0.8, seconds=24.0, aim=("taken from most",)),
    Plan(name="calm five", nodes=5, clients=3, calm=True, eager=0.2, seconds=9.0, aim=("held",)),
    Plan(name="mixed", nodes=5, clients=3, ttls=(0.3, 0.6, 1.0), aim=("extended",)),
    Plan(name="slow", nodes=3, clients=4, each=1, slow=0.3, naps=0.1),
    Plan(name="mortal", nodes=3, clients=4, ttls=(0.5, 1.0), mortal=True, aim=("killed", "stopped", "users cancelled")),
    Plan(name="hands on five", nodes=5, clients=3, each=1, hands=0.4, aim=("taken from most",)),
    Plan(name="gentle", nodes=3, gentle=True, seconds=24.0, aim=("one node in trouble",)),
    Plan(name="four", nodes=4),
    Plan(name="calm three", nodes=3, clients=4, calm=True, eager=0.2, seconds=9.0, aim=("held",)),
    Plan(name="two", nodes=2, clients=3, eager=0.4, cuts=0.5, aim=("cedes cut",)),
    Plan(name="mortal five", nodes=5, clients=3, mortal=True, aim=("killed", "stopped", "users cancelled")),
)


# Worlds of a read-write lock: asked for by themselves, so that the others' seeds keep their histories.
SHARED = (
    Plan(name="readers, calm", nodes=3, clients=4, calm=True, eager=0.2, seconds=9.0, reads=0.7, aim=("read by two", "downgraded")),
    Plan(name="readers, three", nodes=3, clients=3, eager=0.6, cuts=0.5, reads=0.6, aim=("read by two", "cedes cut")),
    Plan(name="readers, one", nodes=1, clients=4, cuts=1.0, naps=0.1, reads=0.6, aim=("read by two", "downgraded")),
    Plan(name="readers, five", nodes=5, clients=3, restarts=0.1, mortal=True, reads=0.6, aim=("read by two", "killed")),
    Plan(name="readers, mixed", nodes=3, clients=4, eager=0.3, ttls=(0.3, 1.0), reads=0.8, aim=("read by two", "extended")),
)


# A world of the swarm in which none of these has happened does not count.
HAPPENED = ("connections broken", "clock steps", "half-open connections", "stalled connections", "refusals", "frozen nodes", "restarts")
NAMES = ("L", "M", "{tag}N", "O")  # of locks; most worlds have one only


def swarm(seed: int) -> Plan:
    """A plan that is itself a matter of chance: what no plan of ours thought of. Some faults may be rare in it, or absent, or the rule."""
    dice = random.Random(seed)

    def rate(most: float) -> float:
        return dice.choice((0.0, dice.uniform(0.0, most / 5), dice.uniform(0.0, most)))

    return Plan(
        name="swarm",
        nodes=dice.choice((1, 3, 4, 5, 7)),
        clients=dice.randint(2, 8),
        each=dice.randint(1, 2),
        names=dice.randint(1, 4),
        several=0.3,
        eager=dice.choice((0.2, 0.8)),
        ttls=dice.choice(((1.0,), (0.5, 1.0), (0.3, 0.6, 1.0))),
        seconds=dice.uniform(4.0, 9.0),
        faults=dice.uniform(0.5, 6.0),
        slow=rate(0.3),
        cuts=rate(1.0),
        restarts=rate(0.2),
        naps=rate(0.2),
        hands=rate(0.4),
        mortal=dice.random() < 0.4,
        aim=("held",),
        least=300,
    )


WORLDS = (*[it.name for it in PLANS], *[it.name for it in SCENES])  # what seeds stand for, in turn


class Exploration(Stage):
    """One seed's world of users and faults."""

    def __init__(self, seed: int, plan: Plan, *, guard: bool = True, lua: Lua | None = None) -> None:
        super().__init__(seed, plan.nodes, max(plan.ttls), guard=guard, calm=plan.calm, lua=lua)
        self.plan, self.name, self.aim = plan, plan.name, plan.aim
        for _ in range(plan.clients):
            self._begin()
        self.world.slow = 0.0 if plan.calm else plan.slow
        self.faults = Faults(self.world, self.nodes, self.drivers, self.laws, plan, self.guard, self._begin)
        self._bells: dict[Future[None], None] = {}  # they wake whoever holds the lock

    def _play(self) -> None:
        self.world.run(self.plan.seconds)
        self.faults.end()
        for bell in list(self._bells):
            bell.set(None)
        self._everybody_is_served()
        for name in NAMES[: self.plan.names]:
            self._the_lock_is_free(name)
        self._every_key_runs_out()

    @property
    def void(self) -> tuple[str, ...]:
        missing = super().void
        if self.world.delivered < self.plan.least:
            missing += (f"{self.plan.least} messages",)
        if self.plan.least and not any(it in self.world.seen for it in HAPPENED):
            missing += ("a fault",)
        return missing

    # ------------------------------------------------ users

    def _begin(self) -> None:
        driver = self.client(haste=0.0 if self.plan.calm else 0.1)
        for _ in range(self.plan.each):
            driver.run(self._user(driver))

    async def _user(self, driver: Driver) -> None:
        world, dice = self.world, self.world.dice
        if self.plan.calm:
            await driver.ready(wait=1.0)
        while not self.faults.over:
            try:
                await world.sleep(dice.uniform(0.0, 0.01) if dice.random() < self.plan.eager else 0.2 - world.now % 0.2)
                await self._use(driver)
            except NotAcquired:
                world.saw("refused")
                await world.sleep(dice.uniform(0.0, 0.1))
            except Cancelled:
                world.saw("users cancelled")
            except Closed:
                return

    async def _use(self, driver: Driver) -> None:
        """Acquire the lock, hold it for a while, give it back."""
        dice, hold = self.world.dice, Hold()
        renew = self.plan.calm or dice.random() < 0.85
        ttl = dice.choice(self.plan.ttls)
        recipes = [self._side(ttl, it) for it in self._names()]
        await self._acquire(driver, hold, recipes, ttl, renew)
        self.world.saw("held")
        self.world.saw("several names held", len(recipes) > 1)
        try:
            await self._keep(driver, hold.claim, ttl, renew)
        finally:
            self.world.saw(f"lost: {hold.claim.reason}", hold.claim.state is LOST)
            if not self.plan.mortal or not self.world.fate("abandoned", 0.05):
                driver.give_up(hold.claim)

    def _side(self, ttl: float, name: str, writes: bool = False) -> Recipe:
        """A lock; of a read-write lock one of its sides."""
        if self.plan.reads is None:
            return self.recipe(ttl, name)
        kind = READER if not writes and self.world.dice.random() < self.plan.reads else WRITER
        return ReadWrite(name, kind, horizon=self.settings.horizon)

    def _names(self) -> list[str]:
        """One of them, or several at once, in any order."""
        dice, names = self.world.dice, NAMES[: self.plan.names]
        if len(names) == 1:
            return list(names)
        if self.plan.several and dice.random() < self.plan.several:
            return dice.sample(names, dice.randint(2, len(names)))
        return [dice.choice(names)]

    async def _acquire(self, driver: Driver, hold: Hold, recipes: list[Recipe], ttl: float, renew: bool) -> None:
        dice = self.world.dice
        wait = 0.0 if dice.random() < 0.1 else None if self.plan.calm else dice.choice((0.01, 0.5, 5.0, None))
        max_hold = dice.uniform(0.1, 1.0) if not self.plan.calm and dice.random() < 0.05 else inf
        latest, stops = driver.clock() + (ttl / 3 if wait == 0.0 else wait or inf), driver.stops
        try:
            await driver.acquire(hold, recipes, ttl=ttl, wait=wait, renew=renew, max_hold=max_hold)
        finally:
            if driver.clock() > latest + TICK and driver.stops == stops:
                token = hold.claim.claims[0].token.decode()
                raise Violation(f"patience: {token} was to wait until {latest:.6f}, and did until {driver.clock():.6f}")

    async def _keep(self, driver: Driver, claim: Want, ttl: float, renew: bool) -> None:
        """Hold it for a while."""
        dice, longest = self.world.dice, max(self.plan.ttls)
        keep = dice.uniform(0.0, 0.01) if dice.random() < 0.94 else dice.uniform(0.0, 4.0)
        if self.plan.gentle and dice.random() < 0.3:
            keep = dice.uniform(5.0, 20.0)
        elif not renew and dice.random() < 0.5:
            keep = ttl  # to the last moment
        keep = max(keep, self.faults.granted(driver, dice.choice(claim.claims)))
        if ttl < longest and keep > 0.1:
            self.world.saw("extended")
            await driver.extend(claim, longest)
        if self.plan.reads is not None and claim.claims[0].recipe.kind == WRITER and dice.random() < 0.3:
            await driver.extend(claim, ttl, share=True)
            self.world.saw("downgraded", claim.state is HELD)
        if not self.faults.over:
            bell = self.world.sleep(keep)
            self._bells[bell] = None
            try:
                await bell
            finally:
                del self._bells[bell]
        if dice.random() < 0.05:
            await driver.release(claim, confirm=True)

    # ------------------------------------------------ the end

    def _everybody_is_served(self) -> None:
        """P-L2, with the last late command, a rounded uptime, the longest back-off and a clock that went back."""
        ends = self.world.now + LATEST + self.settings.max_ttl * 4 / 3 + self.guard * 5 / 4 + 1 + 1.3 + self.settings.node_timeout
        tasks = [task for driver in self.drivers for task in driver.tasks]
        self._by(ends, lambda: all(task.done for task in tasks), "everybody is to be served")

    def _the_lock_is_free(self, name: str) -> None:
        """Anybody can have it now, as soon as the nodes are dialled."""
        hold, driver, ttl = Hold(), self.world.dice.choice(self.drivers), self.settings.max_ttl

        async def take() -> None:
            while True:
                try:
                    await driver.acquire(hold, [self._side(ttl, name, writes=True)], ttl=ttl)
                except NoQuorum:  # an outage, for this client, that has just ended: it may be about to dial again
                    await self.world.sleep(0.1)
                else:
                    await driver.release(hold.claim, confirm=True)
                    return

        task = driver.run(take())
        self._by(self.world.now + self.guard + 3.0, lambda: task.done, "the lock is to be free")

    def _every_key_runs_out(self) -> None:
        """P-M1: after the longest lease, the fence's horizon, and what clients say of themselves, nothing is left."""
        begins = max(self.world.now, self.plan.seconds + LATEST)  # (a late command may have asked for a lease)
        self.world.run(begins + 2 * self.guard + LIFE * (1 + 2 * RATE) + 0.5)  # (whoever has come back last has said it last)
        if self.laws.open:
            raise Violation(f"left over: {', '.join(claim.token.decode() for claim in self.laws.open)}")
        for driver in self.drivers:
            self.laws.quiet(driver)
        left = {node: keys for node in self.nodes if (keys := node.keys())}
        if left:
            raise Violation(f"left for ever: {left}")


def explore(
    seed: int,
    *,
    quick: bool = False,
    guard: bool = True,
    lua: Lua | None = None,
    wild: bool = False,
    several: bool = True,
    shared: bool = False,
) -> Stage:
    """The world of this seed, before anything has happened in it. `quick`: a shorter one; `wild`: one of the swarm.

    `several`: its users may want several names at once; `shared`: one of a read-write lock.
    """
    if shared:
        plan = SHARED[seed % len(SHARED)]
        return Exploration(seed, replace(plan, seconds=plan.seconds / 1.5) if quick else plan, guard=guard, lua=lua)
    if wild:
        plan = swarm(seed)
        return Exploration(seed, plan if several else replace(plan, several=0.0), guard=guard, lua=lua)
    which = seed % len(WORLDS)
    if which >= len(PLANS):
        return SCENES[which - len(PLANS)](seed, guard=guard, lua=lua)
    plan = PLANS[which]
    return Exploration(seed, replace(plan, seconds=plan.seconds / 1.5) if quick else plan, guard=guard, lua=lua)
