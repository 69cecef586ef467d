"""The third driver under the contract: users are tasks of a simulated world, whose time passes while the test waits for something.

Knows the simulator and its face. What is real (servers' own arguments, the environment, other processes) is not to be had here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import hiredis
from contract.faces import Block, Face, Script, played
from sim.face import Holdfast

from holdfast.face.terms import Description
from holdfast.operations.survey.aio import Survey
from holdfast.protocol.exclusive import keys_of
from holdfast.testing.driver import Driver
from holdfast.testing.network import WALL, Node
from holdfast.testing.world import DriftingClock, World
from holdfast.wire.resp import pack

T = TypeVar("T")

STEP = 0.002  # seconds of the world's time that pass in a turn of the test's loop


class SimulatedCluster:
    """Nodes of a simulated world, as tests steer them."""

    def __init__(self, world: World, count: int) -> None:
        self.nodes = [Node(world, index, DriftingClock(world, WALL)) for index in range(count)]
        self.urls = tuple(f"redis://node{index}:6379" for index in range(count))
        self.run_ids = frozenset(node.server.run_id.decode() for node in self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    async def kill(self, *which: int) -> None:
        for node in which:
            self.nodes[node].stop()

    async def restart(self, *which: int) -> None:
        for node in which:
            self.nodes[node].restart()

    async def freeze(self, *which: int) -> None:
        for node in which:
            self.nodes[node].freeze(10**6)

    async def thaw(self, *which: int) -> None:
        for node in which:
            self.nodes[node].thaw(now=True)

    def ask(self, node: int, *words: object) -> Any:
        """One command to one node; its answer."""
        reader = hiredis.Reader(encoding="utf-8", errors="backslashreplace")
        connection = self.nodes[node].server.connect(reader.feed)
        connection.feed(pack(*[str(it).encode() for it in words]))
        connection.disconnect()
        return reader.gets()

    def everywhere(self, *words: object) -> list[Any]:
        return [self.ask(node, *words) for node in range(len(self))]

    def holders(self, name: str) -> list[Any]:
        return self.everywhere("GET", name)

    def waiters(self, name: str) -> list[int]:
        return self.everywhere("ZCARD", keys_of(name.encode())[2].decode())

    def calls(self, command: str = "evalsha") -> list[int]:
        return [node.server.calls.get(command.upper().encode(), 0) for node in self.nodes]


def _driver_of(whose: Any) -> Driver:
    """The driver under a client, or under something that a client has described or given."""
    if isinstance(whose, Holdfast):
        return whose.driver
    driver = whose._drivers[-1] if isinstance(whose, Description | Survey) else whose._driver
    found: Driver = driver() if callable(driver) else driver
    return found


async def _told(waits: Awaitable[T]) -> tuple[T | None, Exception | None]:
    """What comes of it, and what is raised: for its own caller, and not for whoever lets time pass at that moment."""
    try:
        return await waits, None
    except Exception as error:
        return None, error


class Simulated(Face):
    """The simulator: each user is a task of its world."""

    hears = False

    def __init__(self) -> None:
        super().__init__()
        self.world = World(0)

    def now(self) -> float:
        return self.world.now

    def wall(self) -> float:
        return WALL + self.world.now

    async def sleep(self, seconds: float) -> None:
        end = self.world.now + seconds
        while self.world.now < end:
            await self._turn(end)

    async def _turn(self, end: float) -> None:
        """Time passes a little; and whoever else waits in this test has a turn, too."""
        self.world.run(min(self.world.now + STEP, end))
        await asyncio.sleep(0)

    @asynccontextmanager
    async def nodes(self, count: int, *arguments: str) -> AsyncIterator[Any]:
        assert not arguments, "simulated servers take no arguments"
        yield SimulatedCluster(self.world, count)

    def client(self, nodes: Any, **options: Any) -> Any:
        return self.keep(Holdfast(self.world, nodes.nodes, **options))

    def spread(self, shards: dict[str, Any], previous: dict[str, Any] | None = None, **options: Any) -> Any:
        sets, former = ({name: it.nodes for name, it in them.items()} for them in (shards, previous or {}))
        return self.keep(Holdfast(self.world, (), shards=sets, previous=former or None, **options))

    def set_wall(self, client: Any, seconds: float) -> None:
        for it in client._drivers:
            it.engine.record.epoch += seconds

    async def call(self, waits: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        whose: Any = waits.__self__  # type: ignore[attr-defined]  # (a method of a client, a lock or a lease)
        task = _driver_of(whose).run(_told(waits(*arguments, **options)))
        try:
            while not task.done:
                await self._turn(self.world.now + STEP)
        except asyncio.CancelledError:
            task.cancel()
            raise
        value, error = task.result()
        if error is not None:
            raise error
        return value

    async def within(self, lock: Any, body: Callable[[Any], Awaitable[T]]) -> T:
        lease = await self.call(lock.acquire)
        try:
            outcome = await body(lease)
        except BaseException as error:
            await self.call(lock._leave, lease, error)
            raise
        await self.call(lock._leave, lease, None)
        return outcome

    async def user(self, client: Any, script: Script[T]) -> T:
        task = client.driver.run(played(script))
        while not task.done:
            await self._turn(self.world.now + STEP)
        outcome: T = task.result()
        return outcome

    def block(self, lock: Any) -> Block:
        return Block(lock, "a")

    async def finish(self) -> None:
        await super().finish()
        self.world.close()
