"""Progress under the attack on liveness that the article on Redlock describes."""

from __future__ import annotations

import pytest
from swarm.stage import Hold, Stage

from holdfast.errors import NotAcquired
from holdfast.protocol.timing import Timing
from holdfast.testing.client import SimulatedClient

pytestmark = pytest.mark.worlds

TTL = 1.0
TRIP = 0.004  # seconds: there and back, at most


class Attack(Stage):
    """Two clients split the votes, and are cut off before they can unlock; when their leases are over, two others do the same; and so on.

    The article: "this will leave the resource not lockable for a time roughly equal to the auto release time ... and so forth
    indefinitely". `penalties`: for how long, in each turn, a client that is not cut off had to wait. Cut off means that nobody
    is told: packets are lost both ways, and no connection ends.
    """

    name = "the attack on liveness"
    aim = ("votes were split",)
    turns = 4

    def __init__(self, seed: int, dies: bool) -> None:
        super().__init__(seed, 5, TTL)
        self.dies, self.penalties = dies, list[float]()

    def _play(self) -> None:
        honest = self.client()
        self.world.run(2.0)
        for _ in range(self.turns):
            self._turn(honest)

    def _turn(self, honest: SimulatedClient) -> None:
        world, dice = self.world, self.world.dice
        attackers = [self.client(), self.client()]
        world.run(world.now + 0.5)
        for driver, near in zip(attackers, ((0, 1), (2,)), strict=True):
            for node, link in enumerate(driver.links):
                if node not in near and link is not None:
                    link.stall(0.2)
            driver.process.run(self._takes(driver))
        world.run(world.now + dice.uniform(0.003, 0.01))
        holders = {node.holder(b"L") for node in self.nodes} - {b""}
        world.saw("votes were split", len(holders) == 2)
        for driver in attackers:
            for link in driver.links:
                if link is not None:
                    link._under_way.clear()
                    link.deaf = link.mute = not self.dies
            driver.process.crash()
            self.drivers.remove(driver)
        began, hold = world.now, Hold()
        task = honest.process.run(honest.driver.acquire(hold, [self.recipe(TTL)], Timing(TTL)))
        self._by(began + 3 * TTL, task.done, "it is to be served")
        self.penalties.append(world.now - began)
        honest.driver.let_go(hold.claim)
        world.run(world.now + 0.1)

    async def _takes(self, driver: SimulatedClient) -> None:
        try:
            await driver.driver.acquire(Hold(), [self.recipe(TTL)], Timing(TTL))
        except NotAcquired:
            pass


@pytest.mark.parametrize("dies", [False, True], ids=["cut off", "killed"])
def test_the_attack_on_liveness_costs_a_lease_a_turn_and_no_more(dies: bool) -> None:
    """A vote that was granted is a lock until it runs out, and nobody can ask the dead: one lease, as with Redlock. But no random pause

    comes on top of it: the first in line asks again when the lease has just ended.
    """
    for seed in range(5):
        stage = Attack(seed, dies)
        stage.run()
        assert not stage.void, f"seed {seed}"
        assert len(stage.penalties) == Attack.turns
        assert min(stage.penalties) > 0.9 * TTL, "the attack did not work"
        assert max(stage.penalties) < TTL + 2 * TRIP + 0.002, f"seed {seed}: {stage.penalties}"
