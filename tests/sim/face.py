"""A face for the simulator: what users write, in virtual time. `async with locks.lock("x") as lease: ...` in a task of the world.

It shares with the real faces everything but waiting. (Moved to src/holdfast/testing, it would be on floor 4.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from holdfast.checks import Seconds, seconds
from holdfast.engine.crew import NodeStatus, Want
from holdfast.engine.record import Stats
from holdfast.errors import LockBusy, LockLost, NoQuorum
from holdfast.face import client, lease, lock, looking
from holdfast.face.inside import Inside
from holdfast.face.lock import Leave
from holdfast.face.looking import Plan
from holdfast.face.terms import Terms
from holdfast.recipes.looking import LockStatus
from holdfast.testing.driver import Driver, Witness
from holdfast.testing.network import Node
from holdfast.testing.world import Clock, World

T = TypeVar("T")


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
    claim: Want

    def __init__(self, terms: Terms, driver: Driver) -> None:
        super().__init__(terms, driver.settings)
        self._driver = driver

    @property
    def _claim(self) -> Want:
        return self.claim

    @property
    def _going(self) -> bool:
        return getattr(self, "claim", None) is not None and self._in_time

    def _join(self, outer: Lease) -> None:
        super()._join(outer)
        self.claim = outer.claim

    def _mine(self) -> None:
        pass

    def _new_event(self) -> Happened:
        return Happened()

    async def extend(self, ttl: Seconds | None = None) -> float:
        length = self._extension(ttl)
        if not length:
            return 0.0
        await self._driver.extend(self.claim, length)
        return self._extended()

    async def downgrade(self) -> None:
        if self._sharing():
            await self._driver.extend(self.claim, self._terms.ttl, share=True)
            self._extended()

    async def release(self, confirm: bool = False) -> int:
        if not self._ends():
            return 0
        certain = await self._driver.release(self.claim, confirm)
        self._ended()
        return certain


class Lock(lock.Lock[Lease]):
    """The description of a lock in a simulated world."""

    __slots__ = ("_driver",)

    def __init__(self, terms: Terms, inside: Inside[Lease], driver: Driver) -> None:
        super().__init__(terms, inside)
        self._driver = driver

    async def acquire(self) -> Lease:
        return await self._acquire(self._terms.wait, self._terms.reentrant)

    async def try_acquire(self) -> Lease | None:
        try:
            return await self._acquire(0.0, self._terms.reentrant)
        except LockBusy:
            return None

    async def _acquire(self, wait: float | None, stays: bool) -> Lease:
        terms, here = self._terms, self._here()
        lease = Lease(terms, self._driver)
        outer = self._inside.found(here, terms, wait)
        if outer is not None:
            lease._join(outer)
            if terms.ttl > outer._terms.ttl:
                try:
                    await lease.extend(terms.ttl)
                except BaseException:
                    lease._leaves()
                    raise
            return lease
        if stays:
            self._inside.enters(here, lease)
        try:
            await self._driver.acquire(lease, terms.recipes, ttl=terms.ttl, wait=wait, renew=terms.renew, max_hold=terms.max_hold)
        except NoQuorum as why:
            if not terms.fail_open:
                raise
            self._driver.crew.record.note(lease._open(why))
        return lease

    async def __aenter__(self) -> Lease:
        here = self._here()
        stay, before = self._stay(), self._entered.get(here)
        lease = await self._acquire(self._terms.wait, True)
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
        self._inside: Inside[Lease] = Inside()
        self.driver = Driver(world, nodes, self.settings, Clock(world, 0.0), witness)

    def _describe(self, terms: Terms) -> Lock:
        return Lock(terms, self._inside, self.driver)

    def nodes(self) -> tuple[NodeStatus, ...]:
        return self.driver.status()

    def stats(self) -> Stats:
        return self.driver.crew.stats()

    async def inspect(self, name: str) -> LockStatus:
        return await self._look(looking.inspect(self.settings, name))

    async def locked_by(self, name: str) -> str | None:
        return await self._look(looking.locked_by(self.settings, name))

    async def is_locked(self, name: str) -> bool:
        return await self.locked_by(name) is not None

    async def names(self, pattern: str = "*") -> list[str]:
        return await self._look(looking.names(self.settings, pattern))

    async def force_release(self, name: str, reason: str, only: str | None = None) -> int:
        forced = await self._look(looking.force_release(self.settings, name, reason, only))
        self.driver.crew.record.note(forced)
        return forced.nodes

    async def _look(self, plan: Plan[T]) -> T:
        try:
            ask = next(plan)
            while True:
                ask = plan.send(await self.driver.ask(ask.asks, ask.enough))
        except StopIteration as end:
            value: T = end.value
            return value

    async def ready(self, wait: Seconds = 5.0) -> tuple[NodeStatus, ...]:
        return await self.driver.ready(seconds(wait, "wait"))

    async def close(self) -> None:
        await self.driver.close()
