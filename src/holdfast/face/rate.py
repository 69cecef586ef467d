"""Rates: what they are told, what a call is allowed, and which nodes are asked in which order. Shared by both faces.

Knows recipes, and that rounds have answers. Must not know who waits for them: a plan yields what is to be done (nodes asked, time let
pass, observers told), and returns what came of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from .. import checks
from ..checks import Seconds
from ..core import quorum
from ..core.round import Round
from ..engine.settings import Settings
from ..errors import Cancelled, ConfigError, NoQuorum, RateLimited
from ..events import Opened
from ..recipes import rate as recipes
from ..recipes.rate import LASTS, MOST, SECOND, SHORTEST, Algorithm, Gcra, Told, Window
from .decorating import Function, LockOf, unfilled
from .plans import Ask, Keeps, Pause, Plan
from .repair import differ, mend
from .terms import waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a call was told. True if it is allowed.

    `retry_after`: in how many seconds it may be allowed, at the earliest (0 if it is); `remaining`: how many more calls are left at this
    moment; `reset_after`: in how many seconds all of them are, if nobody calls; `cause`: why too few nodes could tell, for a call that is
    allowed all the same (`fail_open`), else None.
    """

    allowed: bool
    retry_after: float = 0.0
    remaining: int = 0
    reset_after: float = 0.0
    cause: NoQuorum | None = None

    def __bool__(self) -> bool:
        return self.allowed


@dataclass(frozen=True, slots=True)
class Limits:
    """A rate's options, checked. `period` and `wait` in seconds; `order`: the nodes, the one that is asked first before all others."""

    name: str
    key: str | None
    limit: int
    period: float
    wait: float | None
    fail_open: bool
    algorithm: Algorithm
    order: Sequence[int]
    labels: Sequence[str]
    settings: Settings


def limits(
    settings: Settings,
    name: str,
    limit: int,
    period: Seconds,
    *,
    key: str | int | None,
    algorithm: str,
    burst: int | None,
    wait: Seconds | None,
    fail_open: bool,
) -> Limits:
    """Checked options of a rate. ConfigError says which is wrong, and what to write instead."""
    where = recipes.key_of(_kind(algorithm), name, settings.prefix, key)
    calls = checks.whole(limit, "limit", most=MOST)
    seconds = checks.seconds(period, "period", least=SHORTEST, most=LASTS)
    labels = [it.label for it in settings.addresses]
    return Limits(
        name=name,
        key=None if key is None else str(key),
        limit=calls,
        period=seconds,
        wait=waiting(wait),
        fail_open=checks.flag(fail_open, "fail_open"),
        algorithm=_algorithm(_kind(algorithm), where, calls, seconds, burst),
        order=_order(where, labels),
        labels=labels,
        settings=settings,
    )


def _kind(algorithm: object) -> type[Gcra | Window]:
    if algorithm not in ("gcra", "fixed window"):
        raise ConfigError(f"algorithm is 'gcra' or 'fixed window', not {checks.shown(algorithm)}")
    return Gcra if algorithm == "gcra" else Window


def _algorithm(kind: type[Gcra | Window], key: bytes, limit: int, seconds: float, burst: int | None) -> Algorithm:
    period = round(seconds * SECOND)
    if kind is Gcra:
        most = limit if burst is None else checks.whole(burst, "burst", most=MOST)
        if most * period > limit * LASTS * SECOND:
            raise ConfigError(f"a burst of {most} takes longer than {checks.number(LASTS)} seconds to flow back: make it smaller")
        return Gcra(key, limit, period, most)
    if burst is not None:
        raise ConfigError("a fixed window has no burst: all of its calls can be taken at once. Leave it out, or use algorithm='gcra'")
    return Window(key, limit, period)


def _order(key: bytes, labels: Sequence[str]) -> list[int]:
    """The nodes in an order that is the same for all clients, and not for all rates."""
    order = sorted(range(len(labels)), key=labels.__getitem__)
    # A client that was told of no nodes can describe a rate, too.
    first = crc32(key) % max(1, len(labels))
    return order[first:] + order[:first]


# ------------------------------------------------ what is to be done


class Tally:
    """What the nodes have said to one call."""

    __slots__ = ("_cost", "_limits", "asked", "began", "causes", "ended", "told")

    def __init__(self, limits: Limits, cost: int) -> None:
        self._limits, self._cost = limits, cost
        self.told: dict[int, Told] = {}
        self.causes: dict[int, Exception] = {}
        self.asked = 0  # how many nodes, in their order
        self.began = self.ended = 0.0

    def ask(self, nodes: int) -> Plan[None]:
        """Ask the next so many."""
        here = self._limits.order[self.asked : self.asked + nodes]
        seen: Round = yield Ask(dict.fromkeys(here, self._limits.algorithm.take(self._cost)))
        self.began, self.ended, self.asked = self.began or seen.began, seen.ended, self.asked + nodes
        self.causes.update(seen.causes)
        for node, reply in seen.answers.items():
            told = self._limits.algorithm.read(self._cost, reply)
            if told is None:
                self.causes[node] = TypeError("its answer is not what the script says")
            else:
                self.told[node] = told

    @property
    def refused(self) -> bool:
        """Has anybody said no?"""
        return not all(it.allowed for it in self.told.values())

    @property
    def allowed(self) -> bool:
        """Have all said yes, and enough of them?"""
        return quorum.unanimous(quorum.majority(len(self._limits.labels)), [it.allowed for it in self.told.values()])

    def give_back(self) -> Plan[None]:
        """Give back what was taken, and wait for nothing. Who has not answered keeps it: it may not even have been taken yet."""
        takers = {node: self._limits.algorithm.give(self._cost, it.at) for node, it in self.told.items() if it.allowed}
        if takers:
            yield Ask(takers, lambda _: True)

    def allowance(self) -> Allowance:
        """What all that was said means."""
        told = self.told.values()
        return Allowance(
            allowed=self.allowed,
            retry_after=max(it.retry for it in told) / SECOND,
            remaining=min(it.remaining for it in told),
            reset_after=max(it.reset for it in told) / SECOND,
        )

    def unheard(self) -> NoQuorum:
        """Too few have answered."""
        causes: Mapping[str, Exception] = {self._limits.labels[node]: cause for node, cause in self.causes.items()}
        return NoQuorum(self._limits.name, self.ended - self.began, causes, quorum.majority(len(self._limits.labels)), "take from")


def take(limits: Limits, cost: int) -> Plan[Allowance]:
    """One call, allowed or not."""
    allowance, _ = yield from _try(limits, checked(limits, cost))
    return allowance


def acquire(limits: Limits, cost: int) -> Plan[Allowance]:
    """One call, when it is allowed. Never asks sooner than the nodes have told."""
    checked(limits, cost)
    began: float | None = None
    while True:
        allowance, tally = yield from _try(limits, cost)
        if allowance:
            return allowance
        began = tally.began if began is None else began
        waited = tally.ended - began
        if limits.wait is not None and waited + allowance.retry_after > limits.wait:
            raise RateLimited(limits.name, waited, limits.key, limits.limit, limits.period, allowance.retry_after)
        if not (yield Pause(allowance.retry_after)):
            raise Cancelled(limits.name, waited)


def checked(limits: Limits, cost: int) -> int:
    """How many calls are wanted: as many as there can be."""
    if checks.whole(cost, "cost", most=MOST) > limits.algorithm.most:
        raise ConfigError(f"{limits.name!r} never has {cost} calls at once: at most {limits.algorithm.most}, its burst, or its limit")
    return cost


def _try(limits: Limits, cost: int) -> Plan[tuple[Allowance, Tally]]:
    """Ask one node first, and the others if that says yes.

    Whoever that lets through finds the others as it found the first one. If all were asked at once, callers who race for the last
    call would each get it on some nodes and be refused by others, so that under load hardly anybody would be allowed.
    """
    tally = Tally(limits, cost)
    yield Keeps("rate")
    while not tally.told and tally.asked < len(limits.order):
        yield from tally.ask(1)
    if not tally.refused and tally.asked < len(limits.order):
        yield from tally.ask(len(limits.order))
    if differ(tally.told.values(), limits.settings.guard):
        yield mend(limits.settings, limits.algorithm.key)
    if tally.allowed:
        return tally.allowance(), tally
    if tally.refused:
        yield from tally.give_back()
        return tally.allowance(), tally
    why = tally.unheard()
    if not limits.fail_open:
        yield from tally.give_back()
        raise why
    yield Opened(name=limits.name, token="", waited=tally.ended - tally.began, error=why)
    return Allowance(allowed=True, cause=why), tally


# ------------------------------------------------ what users have


class Rate(ABC):
    """The description of a rate: immutable, shared by as many users as you like. `take` asks once, `acquire` waits.

    Without failures, never more calls are allowed than the limit says; with them, N / q times as many at most (N nodes, of which q are a
    majority): 5 / 3 of it with five nodes. GCRA: in any stretch of time as long as the period, less than `limit + burst` calls, by the
    clock of any node. A fixed window: `limit` in each window; so twice as many may be close together, where two windows meet.
    Callers who race may be refused a little early. A call whose answer is lost counts as taken, until it flows back by itself.
    """

    __slots__ = ("_limits",)

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    @property
    def name(self) -> str:
        """The rate's name."""
        return self._limits.name

    @property
    def key(self) -> str | None:
        """Whose limit it is, if each has one."""
        return self._limits.key

    @property
    def limit(self) -> int:
        """How many calls are allowed in a period."""
        return self._limits.limit

    @property
    def period(self) -> float:
        """The period, in seconds."""
        return self._limits.period

    @property
    def burst(self) -> int:
        """How many calls can be allowed at once."""
        return self._limits.algorithm.most

    def _for(self, function: Function) -> LockOf:
        """The rate for each call of a decorated function: this one, whatever the arguments are."""
        unfilled(function, () if self.key is None else (self.key,), self._spelled)
        return lambda *args, **kwargs: self

    def _spelled(self, key: str) -> str:
        return f"limited({self.name!r}, {self.limit}, {self.period:g}, key={key!r})"

    @abstractmethod
    def take(self, cost: int = 1) -> Allowance | Awaitable[Allowance]:
        """Ask once whether a call is allowed, and take it if so: an Allowance, which is true or false. Never waits for its turn.

        `cost`: how many calls it counts as. Takes two round trips if it is allowed, one if it is not; a node that hangs is waited for,
        at most `node_timeout`, and counts as down from then on. Raises NoQuorum if fewer than a majority answer, unless `fail_open`;
        ConfigError if there are never so many calls at once.
        """

    @abstractmethod
    def acquire(self, cost: int = 1) -> Allowance | Awaitable[Allowance]:
        """Wait until the call is allowed, and take it, as long as the rate's `wait` says.

        Asks again when the nodes have told that it may be allowed, and not before; those who wait have no order among themselves. Raises
        RateLimited as soon as it is known that the time to wait will not do, and NoQuorum like `take`. Threads may hand over `cancel`, a
        `threading.Event`: soon (50 ms) after another thread has set it, the wait ends with Cancelled.
        """

    def __repr__(self) -> str:
        whose = "" if self.key is None else f" key={self.key!r}"
        return f"<Rate {self.name!r}{whose} limit={self.limit} period={self.period:g} burst={self.burst}>"
