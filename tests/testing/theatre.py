"""A small world for tests of the simulator: three nodes and two clients, connected."""

from __future__ import annotations

from typing import Any

from swarm.stage import Hold, Stage

from holdfast.protocol.claim import Claim
from holdfast.protocol.exclusive import Exclusive
from holdfast.protocol.timing import Timing
from holdfast.testing.client import SimulatedClient


class Theatre(Stage):
    """Three nodes and two clients, connected."""

    def __init__(self, calm: bool = False) -> None:
        super().__init__(0, 3, 1.0, calm=calm)
        self.holds: list[Hold] = []
        self.one, self.two = self.client(), self.client()
        self.world.run(1.5)

    def later(self, seconds: float) -> None:
        """Let this time pass."""
        self.world.run(self.world.now + seconds)

    async def take(self, driver: SimulatedClient, name: str = "L", **options: Any) -> Claim:
        """Acquire a lock, and keep it."""
        hold = Hold()
        self.holds.append(hold)
        await driver.driver.acquire(hold, [Exclusive(name, ttl=1.0, horizon=self.settings.horizon)], Timing(1.0, **options))
        return hold.claim
