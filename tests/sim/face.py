"""A face for the simulator: what users write, in virtual time. `async with locks.lock("x") as lease: ...` in a task of the world.

It shares with the real faces everything but waiting. (Moved to src/holdfast/testing, it would be on floor 4.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.aio.asking import carry_out
from holdfast.checks import Seconds, seconds
from holdfast.engine.crew import NodeStatus, Want
from holdfast.engine.record import Stats, total
from holdfast.errors import LockBusy, LockLost, NoQuorum, Overtaken
from holdfast.face import client, election, fill, gathering, lease, lock, once, rate, semaphore
from holdfast.face.decorating import Current, Kind
from holdfast.face.election import Leader, View, spoken
from holdfast.face.fill import Fills, Found
from holdfast.face.inside import Inside
from holdfast.face.lock import Leave
from holdfast.face.looking import tell_owner
from holdfast.face.moving import Whole, steps
from holdfast.face.once import Deed, Result, Turn, begin
from holdfast.face.plans import Plan
from holdfast.face.rate import Allowance, Limits
from holdfast.face.repair import Repaired
from holdfast.face.terms import Terms
from holdfast.recipes import looking
from holdfast.recipes.looking import LockStatus
from holdfast.testing.driver import Driver, Witness
from holdfast.testing.network import Node
from holdfast.testing.world import Clock, World
from holdfast.wire.address import parse

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

    def __init__(self, terms: Terms, driver: Driver, above: Lease | None = None) -> None:
        super().__init__(terms, driver.settings, driver.clock, above)
        self._driver = driver

    @property
    def _own(self) -> Want:
        return self.claim

    @property
    def _claim(self) -> Want | Whole:
        return self.claim if self._move is None or self._move.whole is None else self._move.whole

    def _let_go(self) -> None:
        claim = getattr(self, "claim", None)
        if claim is not None and not claim.done:
            self._driver.give_up(claim)

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
        for part in self._parts:
            await part._driver.extend(part.claim, length)
        return self._extended()

    async def downgrade(self) -> None:
        if self._sharing():
            await self._driver.extend(self.claim, self._terms.ttl, share=True)
            self._extended()

    async def release(self, confirm: bool = False) -> int:
        if not self._ends():
            return 0
        certain = min([await part._driver.release(part.claim, confirm) for part in self._parts])
        self._ended()
        return certain

    async def _obtain(self, wait: float | None) -> None:
        terms = self._terms
        hold, heed = terms.max_hold, terms.heed
        await self._driver.acquire(self, terms.recipes, ttl=terms.ttl, wait=wait, renew=terms.renew, max_hold=hold, heed=heed)

    def _servers(self) -> frozenset[str]:
        return self._driver.servers()

    async def _meet(self, wait: float | None) -> None:
        await self._driver.meet(self._acquaintance(wait))

    async def _raise(self, fence: int) -> None:
        await self._driver.extend(self.claim, self._terms.ttl, fence)


class Lock(lock.Lock[Lease]):
    """The description of a lock in a simulated world."""

    __slots__ = ("_driver", "_sources")
    _kind: type[Lease] = Lease

    def __init__(
        self, terms: Terms, inside: Inside[Lease], driver: Driver, sources: Sequence[tuple[Driver, Terms]]
    ) -> None:
        super().__init__(terms, inside)
        self._driver, self._sources = driver, sources

    async def acquire(self) -> Lease:
        try:
            return await self._acquire(self._terms.wait, self._terms.reentrant)
        except LockBusy as busy:
            await carry_out(tell_owner(self._driver.settings, busy), self._driver)
            raise

    async def try_acquire(self) -> Lease | None:
        try:
            return await self._acquire(0.0, self._terms.reentrant)
        except LockBusy:
            return None

    async def _acquire(self, wait: float | None, stays: bool) -> Lease:
        terms, here = self._terms, self._here()
        lease = self._kind(terms, self._driver)
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
            await (self._move(lease, wait) if self._sources else lease._obtain(wait))
        except NoQuorum as why:
            if not terms.fail_open:
                raise
            self._driver.note(lease._open(why))
        return lease

    async def _move(self, lease: Lease, wait: float | None) -> None:
        try:
            for step in steps(lease, [Lease(terms, driver, lease) for driver, terms in self._sources], wait):
                await step()
        except BaseException:
            lease._let_all_go()
            raise

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


class Semaphore(Lock, semaphore.Semaphore[Lease]):
    """The description of a semaphore in a simulated world."""

    __slots__ = ()

    async def available(self) -> int:
        return await carry_out(semaphore.available(self._driver.settings, self._slots), self._driver)

    async def holders(self) -> tuple[looking.PermitHolder, ...]:
        return await carry_out(semaphore.holders(self._driver.settings, self._slots), self._driver)


class Rate(rate.Rate):
    """The description of a rate in a simulated world."""

    __slots__ = ("_driver", "_drivers")

    def __init__(self, limits: Limits, drivers: Sequence[Driver]) -> None:
        super().__init__(limits)
        self._drivers, self._driver = drivers, drivers[-1]

    async def take(self, cost: int = 1) -> Allowance:
        return await carry_out(rate.take(self._limits, cost), *self._drivers)

    async def acquire(self, cost: int = 1) -> Allowance:
        return await carry_out(rate.acquire(self._limits, cost), *self._drivers)

    async def peek(self, cost: int = 1) -> Allowance:
        return await carry_out(rate.peek(self._limits, cost), *self._drivers)

    async def reset(self) -> None:
        await carry_out(rate.reset(self._limits), *self._drivers)


class Leadership(election.Leadership, Lease):
    """The lease of whoever leads, in the hands of a task of the world."""

    __slots__ = ("_speech",)

    def __init__(self, terms: Terms, driver: Driver, above: Lease | None = None) -> None:
        said, self._speech = spoken(terms)
        super().__init__(said, driver, above)

    async def publish(self, value: str) -> None:
        await carry_out(election.publish(self._settings, self._speech, self, value), self._driver)

    async def resign(self, confirm: bool = False) -> int:
        return await self.release(confirm)


class Observation:
    """What `observe` gives: each step waits for the next change."""

    def __init__(self, view: View, driver: Driver) -> None:
        self._view, self._driver = view, driver

    def __aiter__(self) -> Observation:
        return self

    async def __anext__(self) -> Leader:
        leader = await carry_out(self._view.next(), self._driver)
        if leader is None:
            raise StopAsyncIteration
        return leader


class Election(Lock, election.Election[Lease]):
    """The description of an election in a simulated world."""

    __slots__ = ()
    _kind = Leadership

    async def campaign(self) -> Any:
        return await self.acquire()

    async def leader(self) -> Leader:
        return await carry_out(election.look(self._driver.settings, self._office), self._driver)

    def observe(self, wait: Seconds | None = None) -> Observation:
        return Observation(View(self._driver.settings, self._office, self.ttl, wait), self._driver)


class Once(once.Once):
    """The description of what is done once in a simulated world."""

    __slots__ = ("_client", "_driver")

    def __init__(self, options: Deed, client: Holdfast) -> None:
        super().__init__(options)
        self._client, self._driver = client, client.driver

    def _with(self, options: Deed) -> Once:
        return Once(options, self._client)

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        do = self._client._look
        turn: Turn = await do(begin(self._deed))
        while not await do(turn.read()):
            try:
                async with self._client._describe(turn.terms) as lease:
                    if not await do(turn.look(lease)):
                        with Current(lease):
                            outcome = await function(*args, **kwargs)
                        await do(turn.keep(lease, outcome))
            except Overtaken:
                continue
            except LockLost as lost:
                await do(turn.last(lost))
            break
        return turn.value

    async def result(self) -> Result:
        do = self._client._look
        turn: Turn = await do(begin(self._deed))
        if not await do(turn.read(True)) and turn.partly:
            try:
                async with self._client._describe(turn.brief) as lease:
                    await do(turn.look(lease))
            except Overtaken:
                await do(turn.read(True))
            except (LockBusy, LockLost):
                pass
        return turn.result

    async def forget(self) -> bool:
        do = self._client._look
        turn: Turn = await do(begin(self._deed))
        try:
            async with self._client._describe(turn.alone) as lease:
                await do(turn.forget(lease))
        except LockLost as lost:
            await do(turn.last(lost))
        return turn.had


class Fill(fill.Fill[Any]):
    """The description of a fill in a simulated world."""

    __slots__ = ("_driver", "_lock")

    def __init__(self, fills: Fills, lock: Lock, driver: Driver) -> None:
        super().__init__(fills)
        self._lock, self._driver = lock, driver

    async def get(self) -> Found[Any]:
        return await carry_out(fill.get(self._fills, lambda wait: self._lock._acquire(wait, True)), self._driver)

    async def peek(self) -> Found[Any] | None:
        return await carry_out(fill.peek(self._fills), self._driver)

    async def invalidate(self) -> None:
        await carry_out(fill.invalidate(self._fills, lambda wait: self._lock._acquire(wait, True)), self._driver)


class Latch(gathering.Latch):
    """The description of a latch in a simulated world."""

    __slots__ = ("_driver",)

    def __init__(self, terms: gathering.Terms, driver: Driver) -> None:
        super().__init__(terms)
        self._driver = driver

    async def arrive(self, id: str | None = None) -> int:
        return await carry_out(gathering.arrive(self._terms, id), self._driver)

    async def wait(self) -> None:
        await carry_out(gathering.wait(self._terms), self._driver)

    async def arrived(self) -> int:
        return await carry_out(gathering.arrived(self._terms), self._driver)

    async def is_open(self) -> bool:
        return await carry_out(gathering.is_open(self._terms), self._driver)


class Barrier(gathering.Barrier):
    """The description of a barrier in a simulated world."""

    __slots__ = ("_driver",)

    def __init__(self, terms: gathering.Terms, driver: Driver) -> None:
        super().__init__(terms)
        self._driver = driver

    async def wait(self, id: str) -> int:
        return await carry_out(gathering.meet(self._terms, self._progress, id), self._driver)


class Holdfast(client.Client[Lock, Any, Any, Rate, Election, Once, Latch, Barrier, Semaphore]):
    """A client in a simulated world. `run` its users in `driver`. `shards`, `previous`: as users say them, but of nodes."""

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
        self._parts = world, {parse(_url(node, several)): node for them in [*sets.values(), *former.values()] for node in them}, witness
        super().__init__(
            *(urls[""] if shards is None else ()),
            **{"owner": "simulated", "shards": None if shards is None else urls, "previous": before, **options},
        )

    def _prepare(self) -> None:
        world, known, witness = self._parts
        self._inside: Inside[Lease] = Inside()
        self._drivers = [
            Driver(world, [known[it] for it in site.shard.nodes], site.settings, Clock(world, 0.0), witness) for site in self._sites.all
        ]
        self.driver = self._drivers[0]

    def _describe(self, terms: Terms) -> Lock:
        at, sources = self._sites.placed(terms)
        return Lock(terms, self._inside, self._drivers[at], [(self._drivers[it], parts) for it, parts in sources])

    def _permit(self, terms: Terms) -> Semaphore:
        return Semaphore(terms, self._inside, self._drivers[self._sites.placed(terms)[0]], ())

    def _limit(self, limits: Limits, at: Sequence[int]) -> Rate:
        return Rate(limits, [self._drivers[it] for it in at])

    def _elect(self, terms: Terms, at: int) -> Election:
        return Election(terms, self._inside, self._drivers[at], [])

    def _once(self, options: Deed) -> Once:
        return Once(options, self)

    _computes = (Kind.FUNCTION, Kind.COROUTINE)

    def fill(self, *arguments: Any, **options: Any) -> Fill:
        asked, at = self._fills(*arguments, **options)
        return Fill(asked, Lock(asked.terms, self._inside, self._drivers[at], ()), self._drivers[at])

    def _latch(self, terms: gathering.Terms, at: int) -> Latch:
        return Latch(terms, self._drivers[at])

    def _barrier(self, terms: gathering.Terms, at: int) -> Barrier:
        return Barrier(terms, self._drivers[at])

    def nodes(self) -> tuple[NodeStatus, ...]:
        return tuple(node for it in self._drivers for node in it.status())

    def stats(self) -> Stats:
        return total(it.crew.stats() for it in self._drivers)

    async def inspect(self, name: str) -> LockStatus:
        return await self._look(self._sites.inspect(name))

    async def locked_by(self, name: str) -> str | None:
        return await self._look(self._sites.locked_by(name))

    async def is_locked(self, name: str) -> bool:
        return await self.locked_by(name) is not None

    async def names(self, pattern: str = "*") -> list[str]:
        return await self._look(self._sites.names(pattern))

    async def force_release(self, name: str, reason: str, only: str | None = None) -> int:
        forced = await self._look(self._sites.force_release(name, reason, only))
        for at, event in forced:
            self._drivers[at].note(event)
        return sum(event.nodes for _, event in forced)

    async def repair(self, pause: Seconds = 0.01) -> Repaired:
        return await self._look(self._sites.repair(pause))

    async def _look(self, plan: Plan[T]) -> T:
        return await carry_out(plan, *self._drivers)

    async def ready(self, wait: Seconds = 5.0) -> tuple[NodeStatus, ...]:
        found: list[NodeStatus] = []
        for at, driver in enumerate(self._drivers):
            nodes = await driver.ready(seconds(wait, "wait"))
            found += await self._look(self._sites.checked(at, nodes))
        return tuple(found)

    async def close(self) -> None:
        for it in self._drivers:
            await it.close()


def _url(node: Node, several: bool) -> str:
    """What a node is called. (Nodes of several sets have the same numbers.)"""
    return f"redis://node{node.index}" + (f".n{id(node):x}" if several else "")
