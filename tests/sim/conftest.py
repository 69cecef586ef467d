"""What the simulator's tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from sim.face import Holdfast
from swarm.faults import EVER
from swarm.laws import SwarmLaws
from swarm.nodes import ReplaceableNode
from swarm.tasks import TaskWorld

from holdfast.testing.network import WALL, Node
from holdfast.testing.world import DriftingClock, Violation

AWAY = 0.8  # seconds that a node is frozen or away, at most


class Town:
    """A world with nodes, laws that watch, and clients with the face that users see."""

    def __init__(self, nodes: int = 3, seed: int = 0, guard: float = 32.0) -> None:
        self.world = TaskWorld(seed)
        self.nodes = [ReplaceableNode(self.world, index, DriftingClock(self.world, WALL)) for index in range(nodes)]
        self.laws = SwarmLaws(self.world, self.nodes, guard)

    def client(self, **options: Any) -> Holdfast:
        """One more client, in a process of its own; connected."""
        client = Holdfast(self.world, self.nodes, **options)
        self.world.do(client.driver.ready(5.0))
        return client

    def ends(self, tasks: Sequence[Any], within: float = 60.0, what: str = "somebody still waits") -> list[Any]:
        """What all of them return, who have to end in so many seconds."""
        self.world.run(self.world.now + within, lambda: all(it.done() for it in tasks))
        if not all(it.done() for it in tasks):
            raise Violation(f"liveness: {what}")
        return [it.result() for it in tasks]

    def cut_off(self, client: Holdfast, *nodes: int, seconds: float = EVER) -> None:
        """For so long, this client and these nodes hear nothing of each other."""
        for node in nodes:
            link = client.simulated.links[node]
            assert link is not None
            link.stall(seconds)


Build = Callable[..., Town]  # what the fixture `town` gives


def strikes(town: Town, fault: str, seconds: float, weak: Sequence[Node] = ()) -> None:
    """Every second, something happens to a minority of five nodes: always to the `weak` ones, or to others each time. It takes less than
    a second."""
    world, dice = town.world, town.world.dice

    def strike() -> None:
        for node in weak or dice.sample(town.nodes, 2):
            match fault:
                case "frozen":
                    node.freeze(dice.uniform(0.05, AWAY))
                case "cut":
                    for link in list(node.links):
                        link.cut(dice.choice([None, 0.0, 0.3]))
                case "away":
                    node.vanish(dice.uniform(0.05, AWAY))
                case "restarted":
                    node.restart()
                case "slow":
                    node.lag = dice.uniform(0, 0.2)

    for at in range(int(seconds)):
        world.at(world.now + 0.5 + at, strike)


@pytest.fixture
def town() -> Iterator[Build]:
    """Builds towns. A test that fails shows of which seed the last one was."""
    towns: list[Town] = []

    def build(nodes: int = 3, seed: int = 0, **options: Any) -> Town:
        print(f"a town of {nodes} nodes, seed {seed}")
        towns.append(Town(nodes, seed, **options))
        return towns[-1]

    yield build
    for it in towns:
        it.world.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of worlds drop leases as their users die: warnings are tested on clients of real servers."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore:the lease on:ResourceWarning"))


@pytest.fixture(autouse=True)
def outside() -> Iterator[None]:
    """After a test no world's loop runs."""
    yield
    asyncio._set_running_loop(None)
