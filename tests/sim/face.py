"""A client as users have it, in a process of its own in a simulated world."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from swarm.tasks import TaskWorld

from holdfast import aio
from holdfast.drivers.aio.driver import Driver
from holdfast.testing.network import Node
from holdfast.testing.process import Process


class Holdfast(aio.Holdfast):
    """A client in a simulated world. Run its users in `process`.

    Args:
        world: The world.
        nodes: The nodes that it names.
        shards: Instead of `nodes`: several sets, by name.
        previous: The former sets, while names move.
        options: The client's options, as for `holdfast.aio.Holdfast`.

    Attributes:
        driver: The driver of the first set.
        simulated: The same, as laws see it.
    """

    def __init__(
        self,
        world: TaskWorld,
        nodes: Sequence[Node],
        shards: Mapping[str, Sequence[Node]] | None = None,
        previous: Mapping[str, Sequence[Node]] | None = None,
        **options: Any,
    ) -> None:
        sets, former = ({name: [it.url for it in them] for name, them in (sets or {}).items()} for sets in (shards, previous))
        super().__init__(*[it.url for it in nodes], **{"owner": "simulated", "shards": sets or None, "previous": former, **options})
        named = [*nodes, *[node for them in [*(shards or {}).values(), *(previous or {}).values()] for node in them]]
        self.process: Process[Any] = Process(world, "process", named, world.loop)
        self._made: list[Driver] = []
        self._made += [world.loop.enter(self.process.within, super(Holdfast, self)._driver, at) for at in range(len(self._ways))]
        self.driver = self._made[0]
        # What a test does with leases outside of tasks counts as done in this world's loop.
        asyncio._set_running_loop(world.loop)
        self.simulated = world.clients[self.driver]

    def _driver(self, at: int = 0) -> Driver:
        # Tests also ask it outside of the world's event loop.
        return self._made[at]
