"""Rates: what they are told, what a call is allowed, and which nodes are asked in which order.

Shared by both faces.

Knows recipes, and that queries have answers. Must not know who waits for them: a plan yields what
is to be done (nodes asked, time let pass, observers told), and returns what came of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, TypedDict
from zlib import crc32

from ... import checks
from ...checks import Seconds
from ...engine.plans import Ask, Do, Pause, Plan
from ...engine.settings import Settings
from ...errors import Cancelled, ConfigError, NoQuorum, RateLimited
from ...events import Called, Opened
from ...face.decorators import Function, LockOf, unfilled
from ...face.migration import met, same_servers
from ...face.shards import Shards
from ...face.terms import Description, waiting
from ...face.tracing import ObservedCall
from ...operations.inspection.plan import unheard
from ...operations.repair.commands import SPARE
from ...operations.repair.plan import mend
from ...protocol.query import Query
from . import commands as recipes
from .commands import LASTS, MOST, MOST_LIMITS, SECOND, SHORTEST, TURN, Algorithm, Gcra, Limit, RateAnswer, Window

# Seconds. A caller that has just come reserves no turn that is further ahead, unless the period is
# longer.
LEAD = 10.0
# Seconds. A node counts a call at most so long before its turn, for the moment of the turn; callers
# come half as long before it. If they came when it is there, each would be late by the way to the
# node, and would make all behind it late, too.
EARLY = 0.1
# Keys of limits that a client counts by itself, while no majority answers.
REMEMBERED = 10_000

Pairs = Sequence[tuple[int, Seconds]]  # limits: calls, and the period in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The answer to a call. True if the call is allowed.

    Attributes:
        allowed: Whether the call is allowed.
        retry_after: Seconds until the call may be allowed, at the earliest. 0 if it is allowed.
        remaining: How many more calls are allowed at this moment.
        reset_after: Seconds until all calls are available again, if nobody calls meanwhile.
        cause: Why too few nodes answered, for a call that is allowed all the same, or that this
            process has counted by itself (`fail_open`). Otherwise None.
    """

    allowed: bool
    retry_after: float = 0.0
    remaining: int = 0
    reset_after: float = 0.0
    cause: NoQuorum | None = None

    def __bool__(self) -> bool:
        return self.allowed


class RateShard(NamedTuple):
    """A shard that counts calls.

    Attributes:
        shard: Its number for plans.
        order: Its nodes. The first one is asked before all others.
        settings: The client's settings for it.
    """

    shard: int
    order: Sequence[int]
    settings: Settings


@dataclass(frozen=True, slots=True)
class RateTerms:
    """A rate's options, checked. Periods and `wait` are in seconds.

    Attributes:
        places: The shard that counts. While the name moves, its old shard, then its new one.
        processes: How many processes share the limit while no majority answers. 0: nobody counts.
        alone: By its key, until when what this client has allowed meanwhile uses up a limit.
    """

    name: str
    key: str | None
    pairs: tuple[tuple[int, float], ...]
    wait: float | None
    fail_open: bool
    keys: tuple[bytes, ...]
    algorithm: Algorithm
    places: Sequence[RateShard]
    processes: int = 0
    alone: OrderedDict[bytes, float] = field(default_factory=OrderedDict)

    def by_itself(self, cost: int, now: float, why: NoQuorum, counts: bool = True) -> Allowance:
        """Answer a call that the nodes cannot count, within this process's share of the limits.

        Args:
            cost: How many calls it counts as.
            now: The time.
            why: Why the nodes cannot.
            counts: Whether to count it if it is allowed.
        """
        if not self.processes:
            return Allowance(allowed=True, cause=why)
        ends, retry = dict[bytes, float](), 0.0
        for key, (calls, period) in zip(self.keys, self.pairs, strict=True):
            each = period * self.processes / calls
            burst = self.algorithm.most if len(self.keys) == 1 else calls
            ends[key] = max(self.alone.get(key, now), now) + each * cost
            retry = max(retry, ends[key] - now - each * max(cost, burst // self.processes))
        # (Sums of seconds are rounded.)
        if retry > 1e-6:
            return Allowance(allowed=False, retry_after=retry, cause=why)
        for key, end in ends.items() if counts else ():
            self.alone[key] = end
            self.alone.move_to_end(key)
        while len(self.alone) > REMEMBERED:
            self.alone.popitem(last=False)
        return Allowance(allowed=True, cause=why)

    def patience(self, waited: float) -> int:
        """Return how far ahead a caller may reserve a turn, in microseconds.

        It is no further than the caller is going to wait: otherwise the turn would be lost to all.
        And it is no further than `LEAD`, or the period, plus the time that the caller has waited
        already. So callers that die lose few turns, and callers that come later do not get ahead.
        """
        ahead = self._lead + waited
        return round((ahead if self.wait is None else min(ahead, max(0.0, self.wait - waited))) * SECOND)

    def turn(self, waited: float, called: bool) -> int:
        """Return what the nodes are told when the turn has come.

        It allows them to count the call a moment ahead.

        Args:
            waited: Seconds that the caller has waited.
            called: A turn was reserved for the caller within its time to wait, so it waits for that
                moment.
        """
        left = EARLY if called or self.wait is None else min(EARLY, max(0.0, self.wait - waited))
        return TURN - round(left * SECOND)

    def pause(self, waited: float, retry: float) -> float:
        """Return for how many seconds a caller that was refused waits before it asks again.

        As a rule, that is until its call may be allowed. A caller whose turn is too far ahead to be
        reserved asks again on the way there.
        """
        gap = retry - self._lead - waited
        return max(gap, self._lead, waited) / 2 if gap > 0 and self.algorithm.orderly else retry

    @property
    def _lead(self) -> float:
        return max(LEAD, min(period for _, period in self.pairs))


class RateOptions(TypedDict, total=False):
    """The options that `rate` and `limited` have in common, except for `key`, for type checkers."""

    algorithm: Literal["gcra", "fixed window"]
    burst: int | None
    wait: Seconds | None
    fail_open: bool | int


def limits(
    shards: Shards,
    name: str,
    limit: int | Pairs,
    period: Seconds | None,
    key: str | int | None,
    alone: OrderedDict[bytes, float],
    *,
    algorithm: str,
    burst: int | None,
    wait: Seconds | None,
    fail_open: bool | int,
) -> tuple[RateTerms, list[int]]:
    """Check a rate's options.

    Args:
        shards: Where names live.
        name: See `Client.rate`, and so for the others.
        alone: What the client counts by itself.

    Returns:
        The checked options, and the shard that counts. While the name moves, its old shard, then
        its new one.

    Raises:
        ConfigError: An option cannot work. The message says what to write instead.
    """
    if not isinstance(fail_open, int):
        raise ConfigError(f"fail_open is True or False, or the number of your processes, not {checks.shown(fail_open)}")
    processes = checks.whole(fail_open, "fail_open", most=MOST) if type(fail_open) is int else 0
    kind = _kind(algorithm)
    found = [_limit(kind, *pair, burst) for pair in _pairs(limit, period, burst)]
    # This checks the name and the key, too.
    keys = tuple(recipes.key_of(kind, name, shards.all[0].settings.prefix, key, it) for it in found)
    if len(set(keys)) < len(keys):
        raise ConfigError(f"a rate has the same limit twice: {', '.join(map(_shown, found))}. Once is enough")
    at = shards.counting(name if key is None else f"{name}:{key}")
    sets = [shards.all[it].settings for it in at]
    made = RateTerms(
        name=name,
        key=None if key is None else str(key),
        pairs=tuple((it.calls, it.period / SECOND) for it in found),
        wait=waiting(wait),
        fail_open=bool(fail_open),
        keys=keys,
        algorithm=kind(keys, found),
        places=tuple(_place(shard, f"{name}:{key}", settings) for shard, settings in enumerate(sets)),
        processes=processes,
        alone=alone,
    )
    return made, at


def _kind(algorithm: object) -> type[Gcra | Window]:
    if algorithm not in ("gcra", "fixed window"):
        raise ConfigError(f"algorithm is 'gcra' or 'fixed window', not {checks.shown(algorithm)}")
    return Gcra if algorithm == "gcra" else Window


def _pairs(limit: object, period: object, burst: object) -> list[tuple[object, object]]:
    """Return the limit, or the limits, as pairs."""
    if not isinstance(limit, Iterable) or isinstance(limit, str | bytes):
        if period is None:
            raise ConfigError("period is missing: give `limit, period`, or several limits as a list of such pairs")
        return [(limit, period)]
    if period is not None:
        raise ConfigError(
            f"several limits have a period each, as in [(10, 1), (1000, 3600)]: leave out period={checks.shown(period)}"
        )
    if burst is not None:
        raise ConfigError("burst goes with a single limit. Among several, 60 calls in 60 s with burst=1 are (1, 1)")
    pairs = list(limit)
    if not 1 <= len(pairs) <= MOST_LIMITS:
        raise ConfigError(f"a rate has 1 to {MOST_LIMITS} limits, not {len(pairs)}")
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ConfigError(f"a limit is a pair of calls and seconds, such as (10, 1), not {checks.shown(pair)}")
    return [(calls, seconds) for calls, seconds in pairs]


def _limit(kind: type[Gcra | Window], limit: object, period: object, burst: int | None) -> Limit:
    calls = checks.whole(limit, "limit", most=MOST)
    micros = round(checks.seconds(period, "period", least=SHORTEST, most=LASTS, waits=True) * SECOND)
    if kind is Window:
        if burst is not None:
            raise ConfigError(
                "a fixed window has no burst: all of its calls can be taken at once. Leave it out, or use "
                "algorithm='gcra'"
            )
        return Limit(calls, micros, calls)
    most = calls if burst is None else checks.whole(burst, "burst", most=MOST)
    if most * micros > calls * LASTS * SECOND:
        raise ConfigError(
            f"a burst of {most} takes longer than {checks.number(LASTS)} seconds to flow back: make it smaller"
        )
    return Limit(calls, micros, most)


def _shown(limit: Limit) -> str:
    return f"{limit.calls} in {limit.period / SECOND:g} s"


def _place(shard: int, counted: str, settings: Settings) -> RateShard:
    """Return a shard, with its nodes in an order that all clients of a rate share.

    Rates differ in their orders. All limits of a name have the same one, since a call may be
    counted by several.
    """
    labels = [it.label for it in settings.addresses]
    order = sorted(range(len(labels)), key=labels.__getitem__)
    # A client that was told of no nodes can describe a rate, too.
    first = crc32(counted.encode()) % max(1, len(labels))
    return RateShard(shard, order[first:] + order[:first], settings)


# ------------------------------------------------ what is to be done


class RateTally:
    """What the nodes of one shard have answered to one call."""

    def __init__(self, limits: RateTerms, place: RateShard, cost: int) -> None:
        self._limits, self._place, self._cost = limits, place, cost
        self.told: dict[int, RateAnswer] = {}
        self.causes: dict[int, Exception] = {}
        # How many nodes, in their order.
        self.asked = 0
        self.began = self.ended = 0.0

    def ask(self, nodes: int, data: bytes) -> Plan[None]:
        """Ask the next `nodes` nodes of the order."""
        here = self._place.order[self.asked : self.asked + nodes]
        seen: Query = yield Ask(dict.fromkeys(here, data), shard=self._place.shard)
        self.began, self.ended, self.asked = self.began or seen.began, seen.ended, self.asked + nodes
        self.causes.update(seen.causes)
        for node, reply in seen.answers.items():
            told = self._limits.algorithm.read(self._cost, reply)
            if told is None:
                self.causes[node] = TypeError("its answer is not what the script says")
            else:
                self.told[node] = told

    def take(self, patience: int, turn: int) -> Plan[None]:
        """Ask one node first, and the others if that says yes.

        `patience` and `turn` are what the first node is told, and what the others are told.

        Callers that the first node lets through find the others as they found the first one. If all
        were asked at once, callers who race for the last call would each get it on some nodes and
        be refused by others, so that under load hardly anybody would be allowed.

        The first node also keeps the line. The others look only at what was taken.
        """
        algorithm, size = self._limits.algorithm, len(self._place.order)
        while not self.told and self.asked < size:
            yield from self.ask(1, algorithm.take(self._cost, patience))
        if not self.refused and self.asked < size:
            yield from self.ask(size, algorithm.take(self._cost, turn))

    @property
    def refused(self) -> bool:
        """Whether any node has refused."""
        return not all(it.allowed for it in self.told.values())

    @property
    def allowed(self) -> bool:
        """Whether all have allowed it, and enough of them.

        If a majority of yes were enough, N / q times what each node allows could be allowed in all.
        """
        return self.heard and not self.refused

    @property
    def heard(self) -> bool:
        """Whether enough nodes have answered."""
        return self._place.settings.quorum.met(self.told)

    def give_back(self) -> Plan[None]:
        """Give back what was taken, and wait for nothing.

        A node that has not answered keeps it: it may not even have taken it yet.
        """
        takers = {node: self._limits.algorithm.give(self._cost, it.at) for node, it in self.told.items() if it.allowed}
        if takers:
            yield Ask(takers, lambda _: True, self._place.shard)

    def unheard(self, doing: str) -> ConfigError | NoQuorum:
        """Return the error for too few answers."""
        return unheard(self._place.settings, self, self._limits.name, doing)


def _retry(told: Iterable[RateAnswer]) -> float:
    """In how many seconds the call may be allowed by all of them."""
    return max(it.retry for it in told) / SECOND


def _allowance(tallies: Sequence[RateTally]) -> Allowance:
    """What all answers mean together."""
    told = [it for tally in tallies for it in tally.told.values()]
    allowed = all(it.allowed for it in tallies)
    return Allowance(
        allowed=allowed,
        retry_after=0.0 if allowed else _retry(told),
        remaining=min(it.remaining for it in told),
        reset_after=max(it.reset for it in told) / SECOND,
    )


class RateAttempt:
    """One try to take a call, everywhere where it counts."""

    def __init__(self, limits: RateTerms) -> None:
        self._limits = limits
        self.tallies: list[RateTally] = []

    @property
    def told(self) -> list[RateAnswer]:
        """Every node's answer."""
        return [told for tally in self.tallies for told in tally.told.values()]

    @property
    def retry(self) -> float:
        """Seconds until the call is allowed by all nodes that have answered."""
        return _retry(self.told) if self.told else 0.0

    @property
    def reserved(self) -> bool:
        """Has a node reserved a turn?"""
        return any(it.reserved for it in self.told)

    @property
    def called(self) -> bool:
        """Is it this caller's turn from now on?

        A node has reserved one for it, or has let it through to the others.
        """
        return self.reserved or any(it.allowed for it in self.told)

    def make(self, cost: int, patience: int, turn: int = TURN) -> Plan[Allowance]:
        """Take the call on one set after the other. The first one keeps the line."""
        try:
            places = yield from _places(self._limits)
            for place in places:
                tally = RateTally(self._limits, place, cost)
                self.tallies.append(tally)
                yield Do(lambda it: it.keeps("rate"), place.shard)
                yield from tally.take(patience if place is places[0] else turn, turn)
                if differ(tally.told.values(), place.settings.short_guard or place.settings.guard):
                    yield mend(place.settings, *self._limits.keys, shard=place.shard)
                if not tally.allowed:
                    if tally.refused:
                        break
                    raise tally.unheard("take from")
        except NoQuorum as why:
            if self._limits.fail_open:
                allowance = self._limits.by_itself(cost, (yield Do(lambda it: it.clock())), why)
                if allowance:
                    name = self._limits.name
                    event = Opened(name=name, token="", waited=why.waited, kind="rate", names=(name,), error=why)
                    yield Do(lambda it: it.note(event))
                return allowance
            yield from self.give_back()
            raise
        allowance = _allowance(self.tallies)
        if not allowance:
            yield from self.give_back()
        return allowance

    def give_back(self) -> Plan[None]:
        """Give back whatever was taken."""
        for tally in self.tallies:
            yield from tally.give_back()


def _places(limits: RateTerms) -> Plan[Sequence[RateShard]]:
    """Return the shards that count calls.

    While a name moves there are two, unless both are the same servers, which would count each call
    twice.
    """
    if len(limits.places) == 1:
        return limits.places
    source, home = limits.places
    theirs = yield from met(source.shard, source.settings.node_timeout, limits.name)
    ours = yield from met(home.shard, home.settings.node_timeout, limits.name)
    return (home,) if same_servers(theirs, ours, source.settings, home.settings) else limits.places


def take(limits: RateTerms, cost: int) -> Plan[Allowance]:
    """One call, allowed or not."""
    allowance = yield from RateAttempt(limits).make(checked(limits, cost), 0)
    yield _answered(limits, bool(allowance), allowance.retry_after, 0.0)
    return allowance


def _answered(limits: RateTerms, allowed: bool, retry_after: float, waited: float) -> Do:
    """Have observers hear of how a call was answered."""
    event = partial(Called, name=limits.name, kind="rate", how="allowed" if allowed else "refused", took=waited)
    made = partial(event, key_given=limits.key is not None, retry_after=retry_after)
    return Do(lambda it: it.offer(lambda now: made()))


def acquire(limits: RateTerms, cost: int) -> Plan[Allowance]:
    """One call, when it is allowed. Never asks sooner than the nodes have told."""
    began: float = yield Do(lambda it: it.clock())
    try:
        allowance = yield from _acquire(limits, cost)
    except RateLimited as limited:
        yield _answered(limits, False, limited.retry_after, limited.waited)
        raise
    ended: float = yield Do(lambda it: it.clock())
    yield _answered(limits, True, 0.0, ended - began)
    return allowance


def _acquire(limits: RateTerms, cost: int) -> Plan[Allowance]:
    checked(limits, cost)
    began: float = yield Do(lambda it: it.clock())
    waited, called = 0.0, False
    while True:
        attempt = RateAttempt(limits)
        turn = limits.turn(waited, called)
        allowance = yield from attempt.make(cost, turn if called else limits.patience(waited), turn)
        if allowance:
            # (Some nodes may have counted it a moment ahead.)
            if (early := attempt.retry) > 0 and not (yield Pause(early)):
                yield from attempt.give_back()
                raise Cancelled(limits.name, waited)
            return allowance
        now: float = yield Do(lambda it: it.clock())
        waited = now - began
        # (A turn that is reserved is within the time to wait, but for the way to the node.)
        if limits.wait is not None and waited + allowance.retry_after > limits.wait and not attempt.reserved:
            # Nobody has told which limit it was, if this process counts by itself.
            told = max(attempt.told, key=lambda it: it.retry).limit if allowance.cause is None else 0
            calls, period = limits.pairs[told]
            raise RateLimited(limits.name, waited, limits.key, calls, period, allowance.retry_after)
        called = called or attempt.called
        retry = allowance.retry_after
        pause = max(0.0, retry - EARLY / 2) if called else limits.pause(waited, retry)
        if not (yield Pause(pause)):
            raise Cancelled(limits.name, waited)


def peek(limits: RateTerms, cost: int) -> Plan[Allowance]:
    """What `take` would answer."""
    checked(limits, cost)
    tallies: list[RateTally] = []
    try:
        for place in (yield from _places(limits)):
            tally = RateTally(limits, place, cost)
            tallies.append(tally)
            yield from tally.ask(len(place.order), limits.algorithm.peek(cost))
            if not tally.heard:
                raise tally.unheard("look at")
    except NoQuorum as why:
        if not limits.fail_open:
            raise
        return limits.by_itself(cost, (yield Do(lambda it: it.clock())), why, counts=False)
    return _allowance(tallies)


def reset(limits: RateTerms) -> Plan[None]:
    """Forget all that was taken."""
    for place in limits.places:
        tally = RateTally(limits, place, 1)
        seen: Query = yield Ask(dict.fromkeys(place.order, recipes.reset(limits.keys)), shard=place.shard)
        tally.causes.update(seen.causes)
        tally.began, tally.ended = seen.began, seen.ended
        if not place.settings.quorum.met(seen.answers):
            raise tally.unheard("reset")


def checked(limits: RateTerms, cost: int) -> int:
    """Check how many calls are wanted: at most as many as there can be at once."""
    if checks.whole(cost, "cost", most=MOST) > limits.algorithm.most:
        most = limits.algorithm.most
        raise ConfigError(f"{limits.name!r} never has {cost} calls at once: at most {most}, its burst, or its limit")
    return cost


# ------------------------------------------------ what users have


def answered(call: ObservedCall, allowance: Allowance) -> Allowance:
    """Note how a call was answered, for the user's `around` object, and return the answer."""
    facts = {"retry_after": allowance.retry_after, "remaining": allowance.remaining}
    call.returns("allowed" if allowance else "refused", **facts)
    return allowance


class Rate(Description, ABC):
    """The description of a rate. It is immutable, and any number of callers may share it.

    `take` asks once, `acquire` waits for its turn, `peek` looks, `reset` starts over. As a
    decorator, each call of the function waits.

    Without failures, no more calls are allowed than the limits say. With failures, at most N / q
    times as many are (N nodes, of which q are a majority): 5 / 3 with five nodes. "gcra" allows
    less than `limit + burst` calls in any stretch of time as long as the period, by the clock of
    any node. "fixed window" allows `limit` calls in each window, so twice as many may be close
    together where two windows meet. Callers that race may be refused a little early. A call whose
    answer is lost counts as taken, until it flows back by itself.
    """

    __slots__ = ()
    _terms: RateTerms

    @property
    def name(self) -> str:
        """The rate's name."""
        return self._terms.name

    @property
    def key(self) -> str | None:
        """The key that has these limits for itself. None if the rate has no key."""
        return self._terms.key

    @property
    def limits(self) -> tuple[tuple[int, float], ...]:
        """All limits: how many calls are allowed, in how many seconds."""
        return self._terms.pairs

    @property
    def limit(self) -> int:
        """How many calls are allowed in a period. With several limits: the first one's."""
        return self.limits[0][0]

    @property
    def period(self) -> float:
        """The period, in seconds. With several limits: the first one's."""
        return self.limits[0][1]

    @property
    def burst(self) -> int:
        """How many calls can be allowed at once, by all limits."""
        return self._terms.algorithm.most

    def _surrounded(self) -> ObservedCall:
        """What hears of a call's beginning and end in its caller's context."""
        return ObservedCall(self._terms.places[0].settings.around, "rate", (self.name,))

    _call: Callable[..., Any]  # calls a function when the rate allows it

    def _for(self, function: Function) -> LockOf:
        """The rate for each call of a decorated function: this one, whatever the arguments are."""
        unfilled(function, () if self.key is None else (self.key,), self._spelled)
        return lambda *args, **kwargs: self._call

    def _spelled(self, key: str) -> str:
        several = ", ".join(f"({limit}, {period:g})" for limit, period in self.limits)
        limits = f"[{several}]" if len(self.limits) > 1 else several.strip("()")
        return f"limited({self.name!r}, {limits}, key={key!r})"

    @abstractmethod
    def take(self, cost: int = 1) -> Allowance | Awaitable[Allowance]:
        """Ask once whether a call is allowed, and count it if so. Does not wait for its turn.

        Takes two round trips if the call is allowed and one if it is not. A node that hangs is
        waited for once, at most `node_timeout`.

        Args:
            cost: How many calls this one counts as. All of them are taken, or none.

        Returns:
            An Allowance, which is true if the call is allowed.

        Raises:
            NoQuorum: Fewer than a majority of the nodes answered, and `fail_open` is off.
            ConfigError: `cost` is more than can ever be allowed at once.
        """

    @abstractmethod
    def acquire(self, cost: int = 1) -> Allowance | Awaitable[Allowance]:
        """Wait until the call is allowed, for at most the rate's `wait` seconds, and count it.

        With "gcra", callers that wait are served in the order in which they came: the nodes reserve
        a turn for each. If the turn would come later than `wait` allows, the call is refused at
        once, and nothing is reserved. docs/rate.md says what becomes of turns that nobody takes.
        With "fixed window", callers that wait have no order.

        Args:
            cost: How many calls this one counts as.
            cancel: Threads only: a `threading.Event`. Soon after it is set (50 ms), the wait ends
                with Cancelled.

        Returns:
            An Allowance, which is true.

        Raises:
            RateLimited: The turn would come later than `wait` allows.
            Cancelled: `cancel` was set.
            NoQuorum: Fewer than a majority of the nodes answered, and `fail_open` is off.
            ConfigError: `cost` is more than can ever be allowed at once.
        """

    @abstractmethod
    def peek(self, cost: int = 1) -> Allowance | Awaitable[Allowance]:
        """Tell what `take` would answer now, and count nothing.

        Asks all nodes, in one round trip. The answer may be over when it arrives: to call only if
        it is allowed, use `take`.

        Args:
            cost: How many calls it would count as.

        Returns:
            An Allowance. `remaining` is how many calls are allowed at this moment.

        Raises:
            NoQuorum: Fewer than a majority of the nodes answered, and `fail_open` is off.
            ConfigError: `cost` is more than can ever be allowed at once.
        """

    @abstractmethod
    def reset(self) -> Awaitable[None] | None:
        """Forget all calls that were counted for these limits and this key, and all reserved turns.

        A node that cannot be reached keeps its count until that has flowed back. A call that is
        under way meanwhile may be counted before or after the reset. Callers that wait already keep
        to the time that they were told.

        Raises:
            NoQuorum: Fewer than a majority of the nodes answered. Some may have been reset.
        """

    def __repr__(self) -> str:
        whose = "" if self.key is None else f" key={self.key!r}"
        if len(self.limits) == 1:
            return f"<Rate {self.name!r}{whose} limit={self.limit} period={self.period:g} burst={self.burst}>"
        several = ", ".join(f"{limit} in {period:g} s" for limit, period in self.limits)
        return f"<Rate {self.name!r}{whose}: {several}>"


def differ(told: Collection[RateAnswer], guard: float | None) -> bool:
    """Is it worth a look whether a node has forgotten calls of a rate?

    Args:
        told: What the nodes have answered to one call.
        guard: Seconds for which a node that restarted is left alone. What flows back within that
            time needs no care.

    Returns:
        True if the nodes count differently, by more than calls under way explain; or if a node has
        refused, so that the others may not have been asked.
    """
    owed = [it.reset for it in told]
    if max(owed, default=0) <= max(SPARE, round((guard or 0.0) * SECOND)):
        return False
    return not all(it.allowed for it in told) or max(owed) - min(owed) > SPARE
