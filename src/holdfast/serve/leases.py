"""The leases of clients elsewhere: who has which, who waits, and when they are over.

Knows the client for asyncio, and its leases. Must not know HTTP.

The gateway renews none of them but those of sessions (`resp`). Any other lease ends when its client
releases it, when it is lost, or when its time is over. It never ends because a connection does, or
because the gateway does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from math import floor
from typing import Any, NamedTuple

from .. import LeaseState
from ..aio import Holdfast, Lease
from ..errors import ConfigError, HoldfastError, LockLost, NoQuorum
from .identity import EVERYBODY, Identity
from .load import less
from .options import Options
from .problems import Problem, milliseconds, problem_of

# Seconds for which the end of a lease is remembered, so that the same request gets the same answer.
REMEMBERED = 60.0
# Which scope each kind needs.
VERBS = {"exclusive": "lock", "write": "lock", "permit": "lock", "read": "read", "election": "lead", "once": "once"}

# A client extends its lease this many times within its ttl.
BEATS = 3
# Bytes of a name.
LONGEST_NAME = 512
# What waits for a lease, and returns it.
Acquiring = Coroutine[Any, Any, Lease]
Begin = Callable[["Hold"], Acquiring]
# The clocks of two machines may run at rates that differ by this share.
DRIFT = 0.01
# Descriptions of locks that are kept, because most clients want the same ones again.
DESCRIBED = 1000
# Milliseconds that are left out, for what rounding adds.
MARGIN = 2


def valid_ms(remaining: float) -> int:
    """Return the milliseconds for which a client may believe in a lease.

    A client adds them to the moment before it sent its request. What is left of the lease is read
    after that moment, so the client never believes longer than the lease lasts, however long the
    answer travels.

    Args:
        remaining: Seconds that were left of the lease when this answer was made.
    """
    return max(0, floor(1000 * (remaining * (1 - DRIFT))) - MARGIN)


class Wanted(NamedTuple):
    """What a client wants to hold. Times are in milliseconds.

    Attributes:
        names: The names, of which only the kind "exclusive" may have several.
        kind: A key of VERBS.
        ttl_ms: How long it lasts unless it is extended. None: the ttl of the gateway's client.
        wait_ms: How long the client waits for it in this request. 0: it tries once.
        linger_ms: How long its place is kept while no request waits for it.
        max_hold_ms: When it ends, however often it is extended. None: never.
        permits: How many there are of a semaphore.
        count: How many of them are wanted.
        value: What a leader says. None: who it is.
        label: What the nodes show with it.
        renew: Whether the gateway extends it, for as long as its session lives.
    """

    names: tuple[str, ...]
    kind: str = "exclusive"
    ttl_ms: int | None = None
    wait_ms: int = 0
    linger_ms: int = 2000
    max_hold_ms: int | None = None
    permits: int | None = None
    count: int = 1  # type: ignore[assignment]  # (a tuple has a method of this name)
    value: str | None = None
    label: str = ""
    renew: bool = False


class Hold:
    """One lease of a client, from the wait for it until it is forgotten.

    Attributes:
        id: Its id, with the gateway's name.
        client: The client that it belongs to.
        wanted: What it is. Two requests that differ only in `wait_ms` want the same.
        state: "waiting", "held" or "over".
        lease: The lease. None while it is waited for.
        problem: Why it is over. None if it was released, and while it is not over.
        confirmed: On how many nodes its release was confirmed.
        began: When it was first asked for, by the loop's clock.
        work: What its routes know of it besides.
        change: Done at the next change of its state. All share it, so do not cancel it.
        note: What the nodes show of its holder.
        ttl: Seconds for which it lasts unless it is extended.
    """

    def __init__(self, lease_id: str, client: Identity, wanted: Wanted, leases: Leases) -> None:
        self.id = lease_id
        self.client = client
        self.wanted = wanted
        # To say it costs each node two commands. Of a client that nobody has asked who it is, only a label says more.
        speaks = client is not EVERYBODY or wanted.label or wanted.kind == "election"
        said = (client.name, client.note, wanted.label) if speaks else ()
        self.note = ": ".join([it for it in said if it])
        self.state = "waiting"
        self.lease: Lease | None = None
        self.problem: Problem | None = None
        self.confirmed = 0
        self._loop = loop = asyncio.get_running_loop()
        self.began = loop.time()
        self.ttl = (wanted.ttl_ms or 0) / 1000
        self.work: object = None
        self._leases = leases
        self._task: asyncio.Task[None] | None = None
        self.change: asyncio.Future[None] = loop.create_future()
        self._listeners = 0
        self._heard = False
        self._linger: asyncio.TimerHandle | None = None

    # ------------------------------------------------ how it is acquired

    def start(self, acquiring: Acquiring) -> None:
        """Begin to wait for the lease, in a task of its own. `acquiring` returns it."""
        self._task = self._loop.create_task(self.acquire(acquiring))

    async def acquire(self, acquiring: Acquiring) -> None:
        """Wait for the lease. If this is cancelled, it is given up. `acquiring` returns it."""
        try:
            self.lease = lease = await acquiring
            if lease.contended and lease.remaining < self._due:
                # It counts from the last time that the client asked for it, which may be most of a ttl ago. If this
                # is not confirmed, it lasts until its earlier deadline, and that is what the client is told.
                with suppress(NoQuorum):
                    await lease.extend(self.ttl)
        except ConfigError as error:
            # The options were checked before. The nodes have refused what the name is used for.
            self.fail(Problem("kind-mismatch", error.message))
        except (Problem, HoldfastError) as error:
            self.fail(problem_of(error))
        else:
            if self.state == "waiting":
                # If nobody listens, it lingers on, until its client asks for it or it is given back.
                self.state = "held"
                self._leases.settled(self)
                self.changed()
        finally:
            if self.state == "waiting":
                self.give_up(False)
            if self.state == "over" and self.lease is not None and self.lease.held:
                # It was given up while this extended what had just been granted.
                returning = self._loop.create_task(self.lease.release())
                returning.add_done_callback(lambda it: it.cancelled() or it.exception())

    def fail(self, problem: Problem) -> None:
        """Note that it is over, and why. A failed attempt is forgotten: it can be repeated."""
        if self.state != "over":
            self.problem = problem.again()
            self.give_up(self.state == "held")

    def check(self, lease: object = None) -> None:
        """Compare it with the clock. A lease that is over by now is noted as lost."""
        if self.state == "held" and self.lease is not None and self.lease.state is LeaseState.LOST:
            try:
                self.lease.check()
            except LockLost as error:
                self.fail(problem_of(error))

    # ------------------------------------------------ who listens

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Keep its place in line while a request waits for it, and for a while after that."""
        self._stop_lingering()
        self._listeners += 1
        try:
            yield
        finally:
            self._listeners -= 1
            if self.state != "over" and not self._heard and not self._listeners:
                self._linger = self._loop.call_later(self.wanted.linger_ms / 1000, self.abandon)

    def abandon(self) -> None:
        """Stop waiting for it, or release it: nobody wants it any more."""
        if self.state == "waiting":
            self.give_up(False)
        elif self.state == "held":
            self._task = self._loop.create_task(_tried(self.release(False)))

    def leave(self) -> None:
        """Extend it no more, and leave it to run out: its client may still believe in it."""
        if self.state == "held" and self.lease is not None:
            self.lease.leave()
            self.give_up(False)

    def heard(self) -> None:
        """Note that its client knows of it, or asks for it. If it is held, it stays held."""
        if self.state == "held":
            self._heard = True
            self._stop_lingering()

    def _stop_lingering(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def touch(self) -> None:
        """Extend it without waiting for that, if a client that lives would do so by now."""
        if self.state == "held" and self.lease is not None and self.lease.remaining < self._due:
            self._task = self._loop.create_task(_tried(self.extend(None)))

    @property
    def _due(self) -> float:
        """Seconds that are left of it when a client that lives would soon extend it."""
        return self.ttl * (1 - 1 / (2 * BEATS))

    def changed(self) -> None:
        """Wake those that wait for a change."""
        self.change.set_result(None)
        self.change = self._loop.create_future()

    # ------------------------------------------------ how it is kept, and how it ends

    @property
    def valid_ms(self) -> int:
        """For how many milliseconds the client may believe in it, from before its request."""
        return 0 if self.lease is None else valid_ms(self.lease.remaining)

    async def extend(self, ttl_ms: int | None) -> None:
        """Extend the lease, for its client.

        Raises:
            Problem: It is over; or not confirmed, so that it lasts as long as before.
        """
        self.refuse_if_over()
        self.heard()
        if self.lease is None or self.state == "waiting":
            return
        try:
            await self.lease.extend(self.ttl if ttl_ms is None else ttl_ms / 1000)
        except NoQuorum as error:
            self.changed()
            said = problem_of(error)
            raise Problem("in-doubt", said.detail, after=1.0, valid_ms=self.valid_ms, **said.facts) from None
        except ConfigError as error:
            # A client has to know first that its lease is lost.
            self.refuse_if_over()
            raise Problem("invalid", error.message, errors=[{"pointer": "/ttl_ms", "detail": error.message}]) from None
        except HoldfastError as error:
            # Released or lost meanwhile. If it is lost, the lease knows why.
            self.refuse_if_over()
            raise problem_of(error) from None
        self.changed()

    def refuse_if_over(self) -> None:
        """Refuse to go on with a lease that is over.

        Raises:
            Problem: lost, released, or what else has ended it.
        """
        self.check()
        if self.state == "over":
            if self.problem is None:
                raise Problem("released", f"The lease {self.id} was released.")
            raise self.problem.again()

    async def release(self, confirm: bool, remembered: bool = True) -> None:
        """Release the lease, or stop waiting for it. Has no effect the second time.

        Args:
            confirm: Whether to wait until the nodes have confirmed it.
            remembered: Whether its id is remembered as released.

        Raises:
            Problem: It was lost before.
        """
        if self.state == "held" and self.lease is not None:
            try:
                # Whether it is lost by now is what the lease itself looks at first.
                self.confirmed = await self.lease.release(confirm)
            except LockLost as error:
                self.fail(problem_of(error))
        if self.problem is not None:
            raise self.problem.again()
        self.give_up(remembered)

    def give_up(self, remembered: bool) -> None:
        """End it. If it is still waited for, leave the line.

        Args:
            remembered: Whether its id is remembered as released.
        """
        if self.state == "over":
            return
        if self.state == "waiting":
            self._leases.settled(self)
        self.state = "over"
        self._stop_lingering()
        # A task that was cancelled refers to this lease. If the lease does not refer to the task, both
        # are freed as soon as nobody needs them.
        task, self._task = self._task, None
        if task is not None and not task.done() and task is not asyncio.current_task(self._loop):
            task.cancel()
        self.changed()
        self._leases.ended(self, remembered)


async def _tried(doing: Coroutine[Any, Any, None]) -> None:
    with suppress(Problem):
        await doing


async def _free(trying: Awaitable[Lease | None]) -> Lease:
    if (lease := await trying) is None:
        raise Problem("busy", "Another client has it.")
    return lease


class Leases:
    """All leases of one gateway.

    Args:
        locks: The client.
        name: The gateway's name, which their ids begin with.
        options: The limits.
    """

    def __init__(self, locks: Holdfast, name: str, options: Options) -> None:
        self._locks = locks
        self._name = name
        self._options = options
        self._ttl_ms = milliseconds(locks.settings.ttl)
        self._described = lru_cache(DESCRIBED)(partial(described, locks, self._fell))
        # Those that are held, by the client's own leases.
        self._held: dict[Lease, Hold] = {}
        self._holds: dict[tuple[str, str], Hold] = {}
        # How many each client has, and how many of them are waited for.
        self._counts: Counter[str] = Counter()
        self._waiters: Counter[str] = Counter()
        # Those that are waited for, by their first names, in the order in which they came.
        self._lines: dict[str, dict[Hold, None]] = {}

    def __len__(self) -> int:
        """How many are held or waited for."""
        return self._counts.total()

    def __iter__(self) -> Iterator[Hold]:
        """All that are held or waited for."""
        return iter([it for it in self._holds.values() if it.state != "over"])

    @property
    def waiting(self) -> int:
        """How many are waited for."""
        return self._waiters.total()

    def found(self, client: Identity, part: str) -> Hold | None:
        """Return the lease of this client with this id."""
        return self._holds.get((client.name, part))

    def put(self, client: Identity, part: str, wanted: Wanted, begin: Begin | None = None) -> tuple[Hold, bool]:
        """Return the lease of this id. Begin to acquire it if there is none.

        Args:
            client: Whose it is.
            part: The id, without the gateway's name.
            wanted: What it is to be.
            begin: Acquires it. Default: as `wanted` says.

        Returns:
            The lease, and whether it is a new one.

        Raises:
            Problem: lease-mismatch; or too-many.
            ConfigError: It cannot be acquired like this.
        """
        known = self._holds.get((client.name, part))
        if known is not None:
            if known.wanted != self._with_ttl(wanted)._replace(wait_ms=known.wanted.wait_ms):
                detail = f"The lease {known.id} was asked for with another body. Use a new id for another lease."
                raise Problem("lease-mismatch", detail)
            return known, False
        hold, acquiring = self.admit(client, part, wanted, begin)
        hold.start(acquiring)
        return hold, True

    def admit(self, client: Identity, part: str, wanted: Wanted, begin: Begin | None = None) -> tuple[Hold, Acquiring]:
        """Return a new lease, and what acquires it. As `put`, but the caller waits for it himself.

        Raises:
            Problem: too-many.
            ConfigError: It cannot be acquired like this.
        """
        wanted = self._with_ttl(wanted)
        self._count(client)
        hold = Hold(f"{self._name}.{part}", client, wanted, self)
        # That checks it.
        acquiring = self._described(wanted, hold.note).acquire() if begin is None else begin(hold)
        self._holds[client.name, part] = hold
        self._counts[client.name] += 1
        self._waiters[client.name] += 1
        self._lines.setdefault(wanted.names[0], {})[hold] = None
        return hold, acquiring

    def tried(self, hold: Hold) -> Acquiring:
        """Return what acquires a lease if it is free. Who has it otherwise is not asked.

        Raises:
            ConfigError: It cannot work.
        """
        return _free(self._described(hold.wanted, hold.note).try_acquire())

    def _with_ttl(self, wanted: Wanted) -> Wanted:
        return wanted if wanted.ttl_ms else wanted._replace(ttl_ms=self._ttl_ms)

    def _count(self, client: Identity) -> None:
        options = self._options
        own = client.max_leases or options.max_leases
        if self._counts[client.name] >= own or len(self) >= options.max_leases_in_all:
            raise Problem("too-many", f"{client.name} has as many leases as it may have.", after=1.0, what="leases")
        if self._waiters[client.name] >= options.max_waiters or self.waiting >= options.max_waiters_in_all:
            raise Problem("too-many", f"{client.name} waits for as many leases as it may.", after=1.0, what="waiters")

    def settled(self, hold: Hold) -> None:
        """Note that a lease is not waited for any more."""
        if hold.lease is not None:
            self._held[hold.lease] = hold
        less(self._waiters, hold.client.name)
        name = hold.wanted.names[0]
        line = self._lines[name]
        del line[hold]
        if not line:
            del self._lines[name]

    def ended(self, hold: Hold, remembered: bool) -> None:
        """Note that a lease is over. If it is to be remembered, its id is, for a while."""
        if hold.lease is not None:
            self._held.pop(hold.lease, None)
        less(self._counts, hold.client.name)
        if remembered:
            asyncio.get_running_loop().call_later(REMEMBERED, self._forget, hold)
        else:
            self._forget(hold)

    def _fell(self, lease: Lease) -> None:
        if (hold := self._held.get(lease)) is not None:
            hold.check()

    def _forget(self, hold: Hold) -> None:
        del self._holds[hold.client.name, hold.id.partition(".")[2]]

    def place(self, hold: Hold, owners: Sequence[str | None]) -> int | None:
        """Return the place in line of a lease that is waited for: 1 is next.

        The nodes know only whose gateway a waiter is from. A gateway's waiters are in line in the
        order in which they came.

        Args:
            hold: The lease.
            owners: Whose client each waiter in line is of.
        """
        own = self._locks.settings.owner
        # Not all leases: with 10,000 of them, answers to waiters would take most of the time.
        before = sum(it.began < hold.began for it in self._lines.get(hold.wanted.names[0], ()))
        places = [at for at, it in enumerate(owners, 1) if it == own]
        return places[before] if before < len(places) else None


def described(locks: Holdfast, on_lost: Callable[[Lease], object], wanted: Wanted, note: str) -> Any:
    """Describe the lock that a client wants, with what the nodes show of its holder.

    Raises:
        ConfigError: It cannot work.
    """
    name = wanted.names[0]
    options: dict[str, Any] = {
        "ttl": (wanted.ttl_ms or 0) / 1000,
        "wait": None if wanted.wait_ms else 0,
        "max_hold": None if wanted.max_hold_ms is None else wanted.max_hold_ms / 1000,
        "renew": wanted.renew,
        "on_lost": on_lost,
    }
    match wanted.kind:
        case "read":
            return locks.rwlock(name).read(**options)
        case "write":
            return locks.rwlock(name).write(**options, note=note)
        case "permit":
            return locks.semaphore(name, wanted.permits or 1, count=wanted.count, note=note, **options)
        case "election":
            return locks.election(name, note if wanted.value is None else wanted.value, **options)
        case _:
            return locks.lock(*wanted.names, note=note, **options)
