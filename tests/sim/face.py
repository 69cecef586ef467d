"""A face for the simulator: what users write, in virtual time. `async with locks.lock("x") as lease: ...` in a task of the world.

It shares with the real faces everything but waiting. (Moved to src/holdfast/testing, it would be on floor 4.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.checks import Seconds, seconds
from holdfast.core.claim import Claim
from holdfast.engine.crew import NodeStatus
from holdfast.errors import LockBusy, LockLost
from holdfast.face import client, lease, lock
from holdfast.face.lock import Leave
from holdfast.face.terms import Terms
from holdfast.testing.driver import Driver, Witness
from holdfast.testing.network import Node
from holdfast.testing.world import Clock, World


class Happened:
    """An event in virtual time."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set


class Lease(lease.Lease):
    """A held lock in the hands of a task of the world."""

    __slots__ = ("_driver", "claim")
    claim: Claim

    def __init__(self, terms: Terms, driver: Driver) -> None:
        super().__init__(terms, driver.settings)
        self._driver = driver

    @property
    def _claim(self) -> Claim:
        return self.claim

    def _mine(self) -> None:
        pass

    def _new_event(self) -> Happened:
        return Happened()

    async def extend(self, ttl: Seconds | None = None) -> float:
        await self._driver.extend(self.claim, self._extension(ttl))
        return self._extended()

    async def release(self, confirm: bool = False) -> int:
        if not self._ends():
            return 0
        certain = await self._driver.release(self.claim, confirm)
        self._ended()
        return certain


class Lock(lock.Lock[Lease]):
    """The description of a lock in a simulated world."""

    __slots__ = ("_driver",)

    def __init__(self, terms: Terms, driver: Driver) -> None:
        super().__init__(terms)
        self._driver = driver

    async def acquire(self) -> Lease:
        return await self._acquire(self._terms.wait)

    async def try_acquire(self) -> Lease | None:
        try:
            return await self._acquire(0.0)
        except LockBusy:
            return None

    async def _acquire(self, wait: float | None) -> Lease:
        terms = self._terms
        lease = Lease(terms, self._driver)
        await self._driver.acquire(lease, terms.recipe, ttl=terms.ttl, wait=wait, renew=terms.renew, max_hold=terms.max_hold)
        return lease

    async def __aenter__(self) -> Lease:
        here = self._here()
        stay, before = self._stay(), self._entered.get(here)
        lease = await self.acquire()
        if stay is not None:
            stay.lease = lease
        else:
            self._entered[here] = lease, before
        return lease

    __aexit__ = Leave()

    def _here(self) -> Any:
        return self._driver.world.task

    async def _leave(self, lease: Lease, error: BaseException | None) -> None:
        try:
            await lease.release()
        except LockLost as lost:
            if error is None:
                raise
            error.add_note(f"and {lost}")


class Holdfast(client.Client[Lock, Any, Any]):
    """A client in a simulated world. `run` its users in `driver`."""

    def __init__(self, world: World, nodes: Sequence[Node], witness: Witness | None = None, **options: Any) -> None:
        self._parts = world, nodes, witness
        super().__init__([f"redis://node{node.index}" for node in nodes], **{"owner": "simulated", **options})

    def _prepare(self) -> None:
        world, nodes, witness = self._parts
        self.driver = Driver(world, nodes, self.settings, Clock(world, 0.0), witness)

    def _describe(self, terms: Terms) -> Lock:
        return Lock(terms, self.driver)

    def nodes(self) -> tuple[NodeStatus, ...]:
        return self.driver.status()

    async def ready(self, wait: Seconds = 5.0) -> tuple[NodeStatus, ...]:
        return await self.driver.ready(seconds(wait, "wait"))

    async def close(self) -> None:
        await self.driver.close()
