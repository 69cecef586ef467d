"""What is done once while its key moves to another set of nodes, in the simulator: its law.

The law. Clients of before, in between and of afterwards are told one result for each key, while nodes and connections fail: as long as a
client that knows both sets has asked for it before the first client of afterwards does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sim.conftest import Town
from sim.face import Holdfast

from holdfast.errors import LockLost, NotAcquired
from holdfast.testing.network import WALL, Node
from holdfast.testing.world import DriftingClock

pytestmark = pytest.mark.stories

Build = Callable[..., Town]
TTL = 0.6
SEEDS = range(20)
SECONDS = 4.0  # that each step of the change takes


class Change:
    """Set b takes over from set a. Every caller wants the same few things done."""

    def __init__(self, build: Build, seed: int) -> None:
        town = build(3, seed)  # (its laws are about one set of nodes)
        self.world, self.dice, self.seed = town.world, town.world.dice, seed
        a, b = ([Node(self.world, index, DriftingClock(self.world, WALL)) for index in range(3)] for _ in range(2))
        self.nodes = [*a, *b]
        sets: dict[str, dict[str, Any]] = {"old": {"shards": {"a": a}}, "new": {"shards": {"b": b}}}
        sets["both"] = {**sets["new"], "previous": sets["old"]["shards"]}
        self.clients = {name: [self.client(**given) for _ in range(2)] for name, given in sets.items()}
        self.keys = [f"key{it}" for it in range(4)]
        self.told: dict[str, set[str]] = {key: set() for key in self.keys}
        self.runs = self.lost = self.serial = 0
        self.strikes = True
        self.calm_from = 0.0  # from when on, in each step, nothing fails any more

    def client(self, **given: Any) -> Holdfast:
        return Holdfast(self.world, [], ttl=TTL, max_ttl=TTL, node_timeout=0.1, outage=5, **given)

    async def does(self) -> str:
        self.runs += 1
        mine = f"{self.runs}"
        await self.world.sleep(self.dice.choice((0.01, 0.5, 0.9)))
        return mine

    async def wants(self, client: Holdfast, key: str) -> None:
        await self.world.sleep(self.dice.uniform(0, SECONDS))
        while True:
            once = client.once(key, keep=1000, wait=self.dice.choice((None, 1.0)))
            try:
                if self.dice.random() < 0.3:
                    found = await once.result()
                    if found:
                        self.told[key].add(found.value)
                        return
                else:
                    self.told[key].add(await once.run(self.does))
                    return
            except LockLost:
                self.lost += 1
            except NotAcquired:
                pass
            await self.world.sleep(self.dice.uniform(0.05, 0.3))

    def strike(self) -> None:
        """Something happens to a connection, to a node, or to a process."""
        if not self.strikes:
            return
        dice = self.dice
        self.world.after(dice.uniform(0.05, 0.4), self.strike)
        if self.world.now >= self.calm_from:
            return
        node = dice.choice(self.nodes)
        what = dice.choice(("cut", "freeze", "away", "stop", "stop", "slow"))
        if what == "cut":
            for link in list(node.links):
                link.cut(dice.choice([None, 0.0, 0.3]))
        elif what == "freeze":
            node.freeze(dice.uniform(0.05, 0.6))
        elif what == "away":
            node.vanish(dice.uniform(0.05, 0.6))
        elif what == "slow":
            node.lag = dice.choice((0.0, 0.0, 0.05, 0.1))
        else:
            client = dice.choice([it for them in self.clients.values() for it in them])
            seconds = dice.uniform(0.1, 1.5)
            client.process.pause(seconds)

    def step(self, *names: str, keys: int = 4) -> None:
        """All clients of these kinds have so many things done, at the same time."""
        users = [(it, key) for name in names for it in self.clients[name] for key in self.keys[:keys] for _ in range(2)]
        tasks = [client.process.run(self.wants(client, key)) for client, key in users]
        self.calm_from = self.world.now + SECONDS
        self.world.run(self.calm_from)
        for node in self.nodes:
            node.heal()
        self.world.run(self.world.now + 40, lambda: all(it.done() for it in tasks))
        for task in tasks:
            assert task.done(), f"seed {self.seed}: somebody is never told"
            task.result()

    def run(self) -> Change:
        self.world.after(0.3, self.strike)
        self.step("old", keys=2)
        self.step("old", "both")
        # (no client of before is left, and all that these have sent is over)
        self.world.run(self.world.now + 5)
        self.step("both", "new")
        self.step("new")
        self.strikes = False
        return self

    @property
    def sound(self) -> bool:
        """Does the law hold?"""
        return all(len(it) == 1 for it in self.told.values())


def test_while_a_key_moves_all_are_told_one_result(town: Build) -> None:
    # Rule O14.
    changes = [Change(town, seed).run() for seed in SEEDS]
    assert [it.seed for it in changes if not it.sound] == []
    assert sum(it.lost for it in changes) > 3
    assert sum(it.runs > len(it.keys) for it in changes) > 1, "leases are lost, and it runs again"


def test_without_failures_nothing_runs_twice_while_it_moves(town: Build) -> None:
    """Nothing fails."""
    change = Change(town, 1)
    for names in (("old",), ("old", "both"), ("both", "new"), ("new",)):
        change.step(*names)
    assert change.sound
    assert change.runs == len(change.keys)
