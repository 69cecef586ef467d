"""What a seed stands for: a world, its users and its faults, and what has to be true when all is over.

Knows how users behave, and which worlds there are. Must not know how a law is watched, or how a fault is done.

A world has three parts: users and faults; then the faults end, and everybody gets the lock who still waits for it, and goes;
then nobody is there, and every key runs out.
"""

from __future__ import annotations

from dataclasses import replace

from ..core.claim import LOST, Claim
from ..engine.settings import DEFAULT_GUARD, Settings, settings
from ..errors import NotAcquired
from ..recipes.exclusive import Exclusive
from .driver import Driver
from .faults import LATEST, Faults, Plan
from .laws import Laws
from .network import WALL, Node
from .server import Lua
from .world import Cancelled, Clock, Future, Violation, World

RATE = 0.002  # by how much clocks run too fast or too slow, at most: less than the drift allows for
PLANS = (
    Plan(name="three", nodes=3, clients=3, aim=("cedes cut",)),
    Plan(name="one", nodes=1, clients=4, cuts=1.0, aim=("cedes cut",)),
    Plan(name="slow", nodes=3, clients=4, each=1, slow=0.3),
    Plan(name="five", nodes=5, aim=("restarts when granted",)),
    Plan(name="hands on three", nodes=3, clients=3, hands=0.2, aim=("deleted on most",)),
    Plan(name="mixed", nodes=5, clients=3, ttls=(0.3, 0.6, 1.0), aim=("extended",)),
    Plan(name="hands on five", nodes=5, hands=0.2, aim=("forced off most",)),
    Plan(name="mortal", nodes=3, clients=4, ttls=(0.5, 1.0), mortal=True, aim=("killed", "stopped", "cancelled")),
    Plan(name="gentle", nodes=3, gentle=True, seconds=24.0, aim=("one node in trouble",)),
    Plan(name="calm five", nodes=5, clients=3, calm=True, aim=("held",)),
    Plan(name="four", nodes=4),
    Plan(name="two", nodes=2),
    Plan(name="mortal five", nodes=5, clients=3, mortal=True, aim=("killed", "stopped", "cancelled")),
    Plan(name="calm three", nodes=3, clients=4, calm=True, aim=("held",)),
)


def client_settings(nodes: int, max_ttl: float, guard: bool = True) -> Settings:
    """The settings of a client of simulated nodes."""
    return settings(
        [f"redis://node{index}" for index in range(nodes)],
        ttl=max_ttl,
        max_ttl=max_ttl,
        prefix="",
        node_timeout=0.3,
        restart_guard=DEFAULT_GUARD if guard else None,
        outage=5.0,
        owner="simulated",
        fresh=(),
    )


class Hold:
    """What a user holds who needs no face."""

    __slots__ = ("__weakref__", "claim")
    claim: Claim

    def _fell(self) -> None:
        pass


class Exploration:
    """One seed's world. `guard`: do clients know of the restart guard? `lua`: what nodes run scripts in."""

    def __init__(self, seed: int, plan: Plan, *, guard: bool = True, lua: Lua | None = None) -> None:
        self.plan, self.world = plan, World(seed)
        world, dice = self.world, self.world.dice
        self.settings = client_settings(plan.nodes, max(plan.ttls), guard)
        self.guard = self.settings.max_ttl + 2.0
        self.nodes = [Node(world, i, Clock(world, WALL + dice.uniform(-0.05, 0.05), _rate(world)), lua) for i in range(plan.nodes)]
        self.laws = Laws(world, self.nodes, self.guard, world.swift if plan.calm else None)
        self.drivers: list[Driver] = []
        for _ in range(plan.clients):
            self._client()
        world.slow = 0.0 if plan.calm else plan.slow
        self.faults = Faults(world, self.nodes, self.drivers, self.laws, plan, self.guard, self._client)
        self._bells: dict[Future[None], None] = {}  # they wake whoever holds the lock

    @property
    def void(self) -> tuple[str, ...]:
        """What it was aimed at and did not happen."""
        return tuple(it for it in self.plan.aim if it not in self.world.seen)

    def run(self) -> dict[str, int]:
        """Live through it. Raises Violation. Returns how often what happened."""
        world = self.world
        world.run(self.plan.seconds)
        self.faults.end()
        for bell in list(self._bells):
            bell.set(None)
        self._everybody_is_served()
        self._the_lock_is_free()
        self._every_key_runs_out()
        world.close()
        return world.seen

    # ------------------------------------------------ users

    def _client(self) -> None:
        world, dice = self.world, self.world.dice
        clock = Clock(world, dice.uniform(0.0, 1e6), _rate(world))
        driver = Driver(world, self.nodes, self.settings, clock, self.laws, haste=0.0 if self.plan.calm else 0.1)
        driver.crew.telling = dice.random() < 0.5
        self.drivers.append(driver)
        for _ in range(self.plan.each):
            driver.run(self._user(driver))

    async def _user(self, driver: Driver) -> None:
        world, dice, plan = self.world, self.world.dice, self.plan
        if plan.calm:
            await driver.ready(wait=1.0)
        while not self.faults.over:
            hold = Hold()
            try:
                await world.sleep(dice.uniform(0.0, 0.01))
                await self._acquire(driver, hold, dice.choice(plan.ttls))
                world.saw("held")
                try:
                    await self._keep(driver, hold.claim)
                finally:
                    world.saw(f"lost: {hold.claim.reason}", hold.claim.state is LOST)
                    driver.give_up(hold.claim)
            except NotAcquired:
                world.saw("refused")
                await world.sleep(dice.uniform(0.0, 0.1))
            except Cancelled:
                world.saw("users cancelled")

    async def _acquire(self, driver: Driver, hold: Hold, ttl: float) -> None:
        dice = self.world.dice
        wait = 0.0 if dice.random() < 0.1 else None if self.plan.calm else dice.choice((0.01, 0.5, 5.0, None))
        await driver.acquire(hold, self._recipe(ttl), ttl=ttl, wait=wait, renew=dice.random() < 0.95)

    def _recipe(self, ttl: float) -> Exclusive:
        return Exclusive("L", ttl=ttl, horizon=self.settings.horizon)

    async def _keep(self, driver: Driver, claim: Claim) -> None:
        """Hold it for a while."""
        dice, plan = self.world.dice, self.plan
        keep = dice.uniform(0.0, 0.01) if dice.random() < 0.94 else dice.uniform(0.0, 4.0)
        if plan.gentle and dice.random() < 0.3:
            keep = dice.uniform(5.0, 20.0)
        keep = max(keep, self.faults.granted(driver, claim))
        if claim.ttl < max(plan.ttls) and keep > 0.1:
            self.world.saw("extended")
            await driver.extend(claim, max(plan.ttls))
        await self._sleep(keep)
        if dice.random() < 0.05:
            await driver.release(claim, confirm=True)

    async def _sleep(self, seconds: float) -> None:
        """A sleep that ends with the faults."""
        if not self.faults.over:
            bell = self.world.sleep(seconds)
            self._bells[bell] = None
            try:
                await bell
            finally:
                self._bells.pop(bell)

    # ------------------------------------------------ the end

    def _everybody_is_served(self) -> None:
        """P-L2, with the last late command, a rounded uptime, the longest back-off and a clock that went back."""
        world, ttl = self.world, self.settings.max_ttl
        tasks = [task for driver in self.drivers for task in driver.tasks]
        ends = world.now + LATEST + ttl * 4 / 3 + self.guard * 5 / 4 + 1 + 1.3 + self.settings.node_timeout
        world.run(ends, lambda: all(task.done for task in tasks))
        late = [claim.token.decode() for claim in self.laws.open]
        if not all(task.done for task in tasks):
            raise Violation(f"recovery: {', '.join(late) or 'somebody'} still waits, {ends - self.plan.seconds:.1f} s after the last fault")
        if late:
            raise Violation(f"left over: {', '.join(late)}")

    def _the_lock_is_free(self) -> None:
        driver, ttl = self.world.dice.choice(self.drivers), self.settings.max_ttl
        hold = Hold()

        async def take() -> None:
            await driver.acquire(hold, self._recipe(ttl), ttl=ttl, wait=self.guard)
            await driver.release(hold.claim, confirm=True)

        self.world.do(take(), within=self.guard)

    def _every_key_runs_out(self) -> None:
        """P-M1: after the longest lease, and the fence's horizon, nothing is left."""
        world = self.world
        world.run(max(world.now, self.plan.seconds + LATEST) + max(self.settings.max_ttl, self.settings.horizon / 1000) + self.guard / 4 + 0.5)
        left = {node: keys for node in self.nodes if (keys := node.keys())}
        if left:
            raise Violation(f"left for ever: {left}")


def _rate(world: World) -> float:
    return 1 + world.dice.uniform(-RATE, RATE)


def explore(seed: int, *, quick: bool = False, plan: Plan | None = None, guard: bool = True, lua: Lua | None = None) -> Exploration:
    """The world of this seed, before anything has happened in it. `quick`: a shorter one."""
    plan = plan or PLANS[seed % len(PLANS)]
    return Exploration(seed, replace(plan, seconds=plan.seconds / 3) if quick else plan, guard=guard, lua=lua)
