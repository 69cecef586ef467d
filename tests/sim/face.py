"""A face for the simulator: `holdfast.aio` as it ships, whose users are tasks of a simulated world.

What differs is who waits: tasks of the world instead of an event loop's. Such a task is not cancelled
when a lease is lost, and a lease that it drops warns nobody. Everything else is what ships: locks,
leases, plans and primitives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from holdfast.checks import flag
from holdfast.client import aio
from holdfast.face.aio import lease, lock, semaphore
from holdfast.primitives.election import aio as election
from holdfast.primitives.election.aio import Observation
from holdfast.primitives.once.aio import Once
from holdfast.testing.driver import Driver, Witness
from holdfast.testing.network import Node
from holdfast.testing.world import DriftingClock, World
from holdfast.wire.address import parse

__all__ = ["Holdfast", "Lease", "Lock", "Observation", "Once"]


class Lease(lease.Lease):
    """A held lock in the hands of a task of the world."""

    __slots__ = ()

    def _check_owner(self) -> bool:
        # There is no event loop that it could belong to.
        return False

    def _enter(self, frame: Any) -> None:
        """Nobody cancels a task of the world."""

    def __del__(self) -> None:
        # Python runs finalizers when it likes, and the same seed has to be the same history. The driver
        # notices a lease that nobody has any more, and warnings are tested on real clients.
        pass


class Lock(lock.Lock):
    """The description of a lock in a simulated world."""

    __slots__ = ()
    _kind: type[lease.Lease] = Lease

    def _task(self) -> Any:  # type: ignore[override]  # (asyncio's own is a plain function)
        driver: Any = self._driver()
        return driver.world.task


class Semaphore(Lock, semaphore.Semaphore):
    """The description of a semaphore in a simulated world."""

    __slots__ = ()


class Leadership(Lease, election.Leadership):
    """The lease of a leader that is a task of the world."""

    __slots__ = ()


class Election(Lock, election.Election):
    """The description of an election in a simulated world."""

    __slots__ = ()
    _kind = Leadership


class Holdfast(aio.Holdfast):
    """A client in a simulated world. Run its users in `driver`.

    Args:
        world: The world.
        nodes: The nodes that it names.
        witness: Sees what its drivers do.
        shards: Instead of `nodes`: several sets, by name.
        previous: The former sets, while names move.
        options: The client's options, as for `holdfast.aio.Holdfast`.
    """

    _lock = Lock

    def __init__(
        self,
        world: World,
        nodes: Sequence[Node],
        witness: Witness | None = None,
        shards: Mapping[str, Sequence[Node]] | None = None,
        previous: Mapping[str, Sequence[Node]] | None = None,
        **options: Any,
    ) -> None:
        sets, former = [({"": nodes} if it is None else it) for it in (shards, previous)]
        several = shards is not None or previous is not None
        urls = {name: [_url(node, several) for node in them] for name, them in sets.items()}
        before = {} if previous is None else {name: [_url(node, several) for node in them] for name, them in former.items()}
        known = {parse(_url(node, several)): node for them in [*sets.values(), *former.values()] for node in them}
        self._parts = world, known, witness
        super().__init__(
            *(urls[""] if shards is None else ()),
            **{"owner": "simulated", "shards": None if shards is None else urls, "previous": before, **options},
        )

    def _prepare(self) -> None:
        world, known, witness = self._parts
        self._drivers = [
            Driver(world, [known[it] for it in shard.settings.addresses], shard.settings, DriftingClock(world, 0.0), witness)
            for shard in self._shards.every
        ]
        for driver in self._drivers:
            driver.engine.record.telling = bool(self._teller.observers)
        self._ways: Any = tuple(partial(self._driver, at) for at in range(len(self._drivers)))
        self.driver = self._drivers[0]

    def _driver(self, at: int = 0) -> Any:
        return self._drivers[at]

    def _class(self, name: str) -> Any:
        return {it.__name__: it for it in (Semaphore, Election)}.get(name) or super()._class(name)

    async def close(self, leave: bool = False) -> None:
        for it in self._drivers if flag(leave, "leave") else ():
            it.stay()
        for it in self._drivers:
            await it.close()


def _url(node: Node, several: bool) -> str:
    """What a node is called. (Nodes of several sets have the same numbers.)"""
    return f"redis://node{node.index}" + (f".n{id(node):x}" if several else "")
