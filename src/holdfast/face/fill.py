"""Fills: what they are told, where a value is kept, and who computes it. Shared by both faces.

Knows recipes, that rounds have answers, and that there is a lock. Must not know who waits: a plan yields what is to be done (nodes asked,
functions called, observers told), and returns what came of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Generic, NamedTuple, Protocol, TypedDict, TypeVar

from .. import checks
from ..checks import Seconds
from ..core import quorum
from ..core.round import Round
from ..engine.settings import Settings
from ..errors import ConfigError, HoldfastError, LockBusy, LockLost, NoQuorum, Overtaken
from ..events import Opened
from ..recipes.exclusive import Exclusive
from ..recipes.fill import Cache, Heard, best, heard, settled
from .decorating import Kind, finished, kind_of, label
from .lease import Lease
from .plans import Ask, Call, Keeps, Plan, Wall
from .repair import mend
from .terms import Terms, terms
from .values import JSON, Serializer, Unfit, packed
from .values import checked as serializing

T = TypeVar("T")
SHORTEST, LASTS = 0.001, 1e8  # seconds: for which a value is fresh


class FillOptions(TypedDict, total=False):
    """The options that `fill` and `filled` have in common, as type checkers see them: `def mine(**options: Unpack[FillOptions])`."""

    stale: Seconds
    lease: Seconds | None
    wait: Seconds | None
    serializer: Serializer | None
    cache: MutableMapping[str, Any] | None
    fail_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[T]):
    """What a fill found, or had computed.

    `value`; `computed`: was it computed by this very call? `waited`: for how many seconds it was waited for somebody else, who computed;
    0.0 if nobody was in the way; `stale`: is it older than its ttl, and shown because a newer one was not to be had at once? `cause`: why
    too few nodes could tell, where that is the reason for a stale value, or for one that was computed without the lock; else None.
    """

    value: T
    computed: bool = False
    waited: float = 0.0
    stale: bool = False
    cause: NoQuorum | None = None


class Seen(NamedTuple):
    """What a look has found. `left`: for how many more seconds the value is fresh, 0 or less: for how long it has not been; -inf: there is
    none. `cause`: why that may not be all, None if it is."""

    value: Any = None
    left: float = -inf
    cause: NoQuorum | None = None


class Keeper(Protocol):
    """Where a value is kept.

    `news`: so many places in it end the wait of those who wait for the value, when they have a new one. `fenced`: does it refuse, after a
    drop, what callers keep that began to compute earlier? If not, a value is dropped by the holder of the lock, when nobody computes.
    """

    news: int
    fenced: bool

    def look(self, news: bool = False) -> Plan[Seen]:
        """What there is. `news`: some node has said that there is something new: which one is not known."""

    def drop(self) -> Plan[None]:
        """Have what there is dropped, and whatever a caller keeps that began to compute earlier. NoQuorum if that is not certain."""

    def keep(self, value: Any, lease: Lease | None) -> Plan[Any]:
        """Keep what was computed under this lease, or under none; the value as others will see it."""


@dataclass(frozen=True, slots=True)
class Fills:
    """A fill's options, checked. Times in seconds; `terms`: of the lock under which it is computed."""

    name: str
    ttl: float
    stale: float
    compute: Callable[[], Any]
    fail_open: bool
    keeper: Keeper
    terms: Terms


def fills(
    settings: Settings,
    kinds: Collection[Kind],
    name: str,
    ttl: Seconds,
    compute: Callable[[], Any],
    *,
    stale: Seconds = 0.0,
    lease: Seconds | None = None,
    wait: Seconds | None = None,
    serializer: Serializer | None = None,
    cache: MutableMapping[str, Any] | None = None,
    fail_open: bool = False,
) -> Fills:
    """Checked options of a fill. `kinds`: of functions that a face can call. ConfigError says what is wrong, and what to write instead."""

    def locks(length: float) -> tuple[Exclusive]:
        return (Exclusive(name, prefix=settings.prefix, ttl=length, horizon=settings.horizon, own="fill"),)

    fresh = checks.seconds(ttl, "ttl", least=SHORTEST, most=LASTS)
    shown = checks.seconds(stale, "stale", most=LASTS)
    asked = terms(settings, locks, ttl=lease, wait=wait)
    keeper: Keeper
    if cache is None:
        keeper = OnNodes(settings, name, locks(asked.ttl)[0], fresh, shown, JSON if serializer is None else serializing(serializer))
    else:
        if not isinstance(cache, MutableMapping):
            raise ConfigError(f"cache is a mapping that can be changed, such as a dict; not {checks.shown(cache)}")
        if serializer is not None:
            raise ConfigError("a mapping is given values as they are: leave out the serializer, or make the mapping use it")
        keeper = InMapping(cache, settings.prefix + name, fresh)
    return Fills(
        name=name,
        ttl=fresh,
        stale=shown,
        compute=_computing(compute, kinds),
        fail_open=checks.flag(fail_open, "fail_open"),
        keeper=keeper,
        terms=asked._replace(heed=keeper.news),
    )


def _computing(compute: object, kinds: Collection[Kind]) -> Callable[[], Any]:
    if not callable(compute):
        raise ConfigError(f"compute is a function without arguments, which returns the value; not {checks.shown(compute)}")
    kind = Kind.FUNCTION if isinstance(compute, type) else kind_of(compute)
    if kind not in kinds:
        takes = " or ".join(it.value for it in kinds)
        raise ConfigError(f"{label(compute)} is {kind.value}, which this fill cannot call: it takes {takes}")
    return compute


# ------------------------------------------------ where values are kept


class OnNodes:
    """On the nodes, as bytes: each by its own clock, each by itself."""

    __slots__ = ("_cache", "_labels", "_name", "_serializer", "_settings", "_stale", "_ttl")
    news = 1
    fenced = True

    def __init__(self, settings: Settings, name: str, lock: Exclusive, ttl: float, stale: float, serializer: Serializer) -> None:
        self._settings = settings
        self._labels = [it.label for it in settings.addresses]
        self._name, self._cache, self._ttl, self._stale, self._serializer = name, Cache(lock), ttl, stale, serializer

    def look(self, news: bool = False) -> Plan[Seen]:
        yield Keeps("fill")
        size = len(self._labels)
        majority = quorum.majority(size)  # (whose having nothing means that no majority was given anything)
        needed = size if news else majority

        def enough(answers: Mapping[int, object]) -> bool:
            return settled(answers.values(), majority, needed)

        # A value may be large, and many callers may want it at once: they share the answers.
        seen = yield Ask(dict.fromkeys(range(size), self._cache.peek), enough, share=(self._cache.peek, news))
        why = None if len(seen.answers) >= majority else self._unheard(seen, "look up")
        kept = best(seen.answers.values())
        if kept is not None and kept.fresh and not all(seen.answers.values()):
            yield mend(self._settings, self._cache.key)
        if kept is not None and kept.data is not None:
            try:
                return Seen(self._serializer.loads(kept.data), kept.left_for(self._ttl), why)
            except Exception:  # whoever kept it had another serializer, or other classes: it is computed anew
                pass
        return Seen(cause=why)

    def drop(self) -> Plan[None]:
        told = yield from self._void(self._cache.void())
        # A lease that was granted before is not above these fences: a majority has granted it, and a majority has told.
        highest = max(it.fence for it in told)
        lasts = max(round((self._ttl + self._stale) * 1000), *(it.stays for it in told)) + 4 * self._cache.horizon
        yield from self._void(self._cache.void(highest, lasts))

    def _void(self, command: bytes) -> Plan[list[Heard]]:
        size = len(self._labels)
        majority = quorum.majority(size)
        seen = yield Ask(dict.fromkeys(range(size), command), lambda answers: len(answers) >= majority)
        told = [it for reply in seen.answers.values() if (it := heard(reply)) is not None]
        if len(told) < majority:
            raise self._unheard(seen, "invalidate")
        return told

    def _unheard(self, seen: Round, what: str) -> NoQuorum:
        causes = {self._labels[node]: cause for node, cause in seen.causes.items()}
        return NoQuorum(self._name, seen.ended - seen.began, causes, quorum.majority(len(self._labels)), what)

    def keep(self, value: Any, lease: Lease | None) -> Plan[Any]:
        try:
            data = packed(value, self._serializer)
        except Unfit as why:
            raise ConfigError(f"fill {self._name!r} has a value that cannot be kept: {why}. Or give `serializer=` what can") from why
        # A value is as old as its lease: whoever slept through the end of it may come with what is long out of date.
        fresh = 0.0 if lease is None else self._ttl - lease._overdue
        if lease is not None and fresh >= SHORTEST:
            ttl, stale = round(self._ttl * 1000), round(self._stale * 1000)
            put = self._cache.put(lease.fence, int(fresh * 1000), stale, ttl, data)
            try:
                yield Ask(dict.fromkeys(range(len(self._labels)), put), lambda _: True)
            except HoldfastError:  # the client was closed meanwhile: then nobody finds it
                pass
        return self._serializer.loads(data)


class InMapping:
    """In a mapping of the user's: (the value, until when it is fresh), by the clock of whoever kept it."""

    __slots__ = ("_key", "_mapping", "_ttl")
    news = 0
    fenced = False

    def __init__(self, mapping: MutableMapping[str, Any], key: str, ttl: float) -> None:
        self._mapping, self._key, self._ttl = mapping, key, ttl

    def look(self, news: bool = False) -> Plan[Seen]:
        match (yield Call(partial(self._mapping.get, self._key))):
            case (value, float() | int() as until):
                return Seen(value, until - (yield Wall()))
        return Seen()

    def drop(self) -> Plan[None]:
        yield Call(partial(self._mapping.pop, self._key, None))

    def keep(self, value: Any, lease: Lease | None) -> Plan[Any]:
        until = (yield Wall()) + self._ttl
        if lease is None or lease.held:  # (there is no fence that would tell the mapping of a later holder's value)
            yield Call(partial(self._mapping.__setitem__, self._key, (value, until)))
        return value


# ------------------------------------------------ what is to be done


def get(asked: Fills, acquire: Callable[[float | None], Any]) -> Plan[Found[Any]]:
    """The value, computed if there is none. `acquire`: waits for the lock, so many seconds; None for ever, 0 one try."""
    keeper, wait, waited = asked.keeper, asked.terms.wait, 0.0
    seen = yield from keeper.look()
    while seen.left <= 0:
        shown = seen.left > -asked.stale
        try:
            if seen.cause is not None and (shown or asked.fail_open):
                raise seen.cause  # there is a way out at once; else the lock is waited for, as long as a majority may be away
            lease = yield Call(partial(acquire, 0.0 if shown else None if wait is None else max(0.0, wait - waited)))
        except Overtaken as news:
            waited += news.waited
            seen = yield from keeper.look(news=True)
        except (LockBusy, NoQuorum) as why:
            unheard = why if isinstance(why, NoQuorum) else None
            if shown:
                return Found(value=seen.value, waited=waited, stale=True, cause=unheard)
            if unheard is None or not asked.fail_open:
                raise
            return (yield from _open(asked, unheard))
        else:
            return (yield from _under(lease, asked, waited))
    return Found(value=seen.value, waited=waited, cause=seen.cause)


def peek(asked: Fills) -> Plan[Found[Any] | None]:
    """The value, if there is one that may be shown. NoQuorum if there is none, and too few nodes answer to know."""
    seen = yield from asked.keeper.look()
    if seen.left > -asked.stale:
        return Found(value=seen.value, stale=seen.left <= 0, cause=seen.cause)
    if seen.cause is not None:
        raise seen.cause
    return None


def invalidate(asked: Fills, acquire: Callable[[float | None], Any]) -> Plan[None]:
    """Drop the value, and every value that somebody began to compute before now. `acquire`: as in `get`."""
    if asked.keeper.fenced:
        yield from asked.keeper.drop()
        return
    lease = yield Call(partial(acquire, asked.terms.wait))
    try:
        yield from asked.keeper.drop()
    except BaseException:
        lease._let_all_go()
        raise
    yield from _give_back(lease)


def _under(lease: Lease, asked: Fills, waited: float) -> Plan[Found[Any]]:
    """Look again, now that nobody else computes; compute if there is still nothing; give the lock back."""
    try:
        if lease.contended or waited:
            waited += lease.waited
        seen = yield from asked.keeper.look()
        if seen.left > 0:
            found = Found(value=seen.value, waited=waited)
        else:
            value = finished(asked.compute, (yield Call(asked.compute)))
            found = Found(value=(yield from asked.keeper.keep(value, lease)), computed=True, waited=waited)
    except BaseException:
        lease._let_all_go()
        raise
    yield from _give_back(lease)
    return found


def _give_back(lease: Lease) -> Plan[None]:
    try:
        yield Call(lease.release)
    except LockLost:  # what was done is good all the same: somebody else may compute it once more
        pass


def _open(asked: Fills, why: NoQuorum) -> Plan[Found[Any]]:
    """Compute without the lock, since nobody can know who has it."""
    yield Opened(name=asked.name, token="", waited=why.waited, error=why)
    value = finished(asked.compute, (yield Call(asked.compute)))
    return Found(value=(yield from asked.keeper.keep(value, None)), computed=True, cause=why)


# ------------------------------------------------ what users have


class Fill(ABC, Generic[T]):
    """The description of a fill: immutable, shared by as many users as you like. `get` gives its value, computed if need be.

    At most one computes at a time for a key, over all processes, while leases hold; who computes holds the fill's lock, a lease that is
    renewed meanwhile. Whoever else wants the value waits in line for it, or gets the stale one. A value is never replaced on a node by that
    of an earlier holder, and it is fresh, or stale, for as long as whoever computed it said. It is a cache: what nodes forget is computed
    again, and a node that has missed a newer value may show the one before it, for that one's ttl at most.
    """

    __slots__ = ("_fills",)

    def __init__(self, asked: Fills) -> None:
        self._fills = asked

    @property
    def name(self) -> str:
        """The fill's key."""
        return self._fills.name

    @property
    def ttl(self) -> float:
        """For how many seconds a value is fresh."""
        return self._fills.ttl

    @property
    def stale(self) -> float:
        """For how many seconds more a value may be shown."""
        return self._fills.stale

    @abstractmethod
    def get(self) -> Found[T] | Awaitable[Found[T]]:
        """The value, as a Found: one that is kept, if it is fresh; else the lock is waited for, and it is computed.

        One round trip where a fresh value is there. What `compute` raises is raised here, and nothing is kept: the next in line computes.
        If the lease is lost meanwhile the value is returned all the same, and computing is not interrupted. Raises LockBusy when
        `wait` has run out, NoQuorum when too few nodes answer to know (unless there is a stale value, or `fail_open`), SelfDeadlock inside
        of its own `compute`, ConfigError for a value that cannot be kept. Threads may hand over `cancel`, a `threading.Event`: soon (50 ms)
        after another thread has set it, waiting for the lock ends with Cancelled.
        """

    @abstractmethod
    def peek(self) -> Found[T] | Awaitable[Found[T] | None] | None:
        """Look at the value without computing one, and without waiting for a caller that computes.

        Returns:
            A Found, whose `stale` says whether the value is older than its ttl. None if there is no value that may be shown.

        Raises:
            NoQuorum: There is no such value on the nodes that answer, and too few answer to know.
        """

    @abstractmethod
    def invalidate(self) -> Awaitable[None] | None:
        """Drop the value, so that the next `get` computes a new one.

        Call it after you have changed what the value is computed from. A caller that is computing at this moment may have read the old
        data. It still gets its own value, which is not kept. Nobody who calls `get` later is given a value whose computing began before.

        With `cache=`, a mapping cannot refuse late values. Then this waits for a caller that computes, for at most `wait` seconds.

        Raises:
            NoQuorum: Too few nodes answer. The value may be dropped, or not: call it again.
            LockBusy: With `cache=`: `wait` ran out.
            Cancelled: With `cache=`, in threads: the event given as `cancel` was set.
        """

    def __repr__(self) -> str:
        return f"<Fill {self.name!r} ttl={self.ttl:g} stale={self.stale:g}>"
