"""Cached values: their options, where a value is kept, and who computes it.

For threads and for asyncio. Knows recipes, that queries have answers, and that a lock exists. Must
not know who waits. A plan yields what is to be done (nodes asked, functions called, observers
told), and returns the result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar, Unpack

from ... import checks
from ...checks import Seconds
from ...engine.plans import Ask, Call, Do, Plan
from ...engine.settings import Settings
from ...errors import ConfigError, HoldfastError, LockBusy, LockLost, NoQuorum, Overtaken
from ...events import Called, Opened
from ...face.decorators import Kind, finished, kind_of, label
from ...face.lease import Lease
from ...face.shards import Shards
from ...face.terms import Description, LockTerms, allow, terms
from ...face.tracing import ObservedCall
from ...face.values import JSON, Serializer, Unfit, packed, verdicts
from ...face.values import checked as serializing
from ...operations.inspection.plan import unheard
from ...operations.repair.plan import mend
from ...protocol.exclusive import LONGEST, Exclusive
from ...protocol.timing import Timing
from .commands import Cache, FillHeard, best, heard, settled

T = TypeVar("T")
SHORTEST, LASTS = 0.001, 1e8  # seconds: for which a value is fresh


class FillOptions(TypedDict, total=False):
    """The options that `fill` and `filled` have in common, for type checkers.

    Use it for functions of your own: `def mine(**options: Unpack[FillOptions])`.

    Attributes:
        stale: Seconds after `ttl` for which the old value may still be returned.
        lease: Seconds until another caller computes if this one crashed.
        wait: Seconds to wait for another caller that computes; None waits for ever.
        serializer: Anything with `dumps` and `loads`.
        cache: A mapping that keeps the values in place of the nodes.
        fail_open: Whether to compute without the lock when no majority answers.
        note: What the caller that computes says of itself.
    """

    stale: Seconds
    lease: Seconds | None
    wait: Seconds | None
    serializer: Serializer | None
    cache: MutableMapping[str, Any] | None
    fail_open: bool
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[T]):
    """The value of a fill, and where it comes from.

    Attributes:
        value: The value.
        computed: Whether this call computed it.
        waited: Seconds spent waiting for another caller that computed. 0.0 if there was none.
        stale: Whether the value is older than its ttl. It is returned because no newer one was
            available at once.
        cause: Why too few nodes answered, if that is the reason for a stale value, or for computing
            without the lock. Otherwise None.
    """

    value: T
    computed: bool = False
    waited: float = 0.0
    stale: bool = False
    cause: ConfigError | NoQuorum | None = None


class FillLook(NamedTuple):
    """The value that a look at a store has found.

    Attributes:
        value: The value. None if there is none.
        left: Seconds for which the value is fresh. 0 or less: since when it is not. -inf: there is
            no value.
        cause: Why there may be a newer value all the same. None if there is not.
    """

    value: Any = None
    left: float = -inf
    cause: ConfigError | NoQuorum | None = None


@dataclass(frozen=True, slots=True)
class FillTerms:
    """The options of a fill, checked. Times are in seconds.

    Attributes:
        terms: Those of the lock under which the value is computed.
    """

    settings: Settings
    name: str
    ttl: float
    stale: float
    compute: Callable[[], Any]
    fail_open: bool
    store: OnNodes | InMapping
    terms: LockTerms


def fills(
    shards: Shards,
    kinds: Collection[Kind],
    name: str,
    ttl: Seconds,
    compute: Callable[[], Any],
    **options: Unpack[FillOptions],
) -> tuple[FillTerms, int]:
    """Check the options of a fill.

    Args:
        shards: Where keys live.
        kinds: The kinds of functions that this client can call.
        name: The key.
        ttl: See `Client.fill`, and so for the others.

    Returns:
        The checked options, and the shard that the key lives on. While the key moves to another
        shard, one caller on each may compute, which does no harm.

    Raises:
        ConfigError: An option cannot work. The message says what to write instead.
    """
    at = shards.home(checks.name(name, "a fill's key", most=LONGEST))
    settings = shards.all[at].settings
    allow(options, "fill", FillOptions)
    serializer, cache = options.get("serializer"), options.get("cache")

    def locks(length: float) -> tuple[Exclusive]:
        return (Exclusive(name, prefix=settings.prefix, ttl=length, horizon=settings.horizon, own="fill"),)

    fresh = checks.seconds(ttl, "ttl", least=SHORTEST, most=LASTS)
    shown = checks.seconds(options.get("stale", 0.0), "stale", most=LASTS)
    asked = terms(settings, locks, ttl=options.get("lease"), wait=options.get("wait"), note=options.get("note"))
    store: OnNodes | InMapping
    if cache is None:
        kind = JSON if serializer is None else serializing(serializer)
        store = OnNodes(settings, name, locks(asked.timing.ttl)[0], fresh, shown, kind)
    else:
        store = InMapping(_mapping(cache, serializer), settings.prefix + name, fresh)
    made = FillTerms(
        settings=settings,
        name=name,
        ttl=fresh,
        stale=shown,
        compute=_computing(compute, kinds),
        fail_open=checks.flag(options.get("fail_open", False), "fail_open"),
        store=store,
        terms=asked._replace(timing=asked.timing._replace(news_needed=store.news)),
    )
    return made, at


def _mapping(cache: object, serializer: object) -> MutableMapping[str, Any]:
    """Return the user's mapping. Raise ConfigError if it is none, or there is a serializer, too."""
    if not isinstance(cache, MutableMapping):
        raise ConfigError(f"cache is a mapping that can be changed, such as a dict; not {checks.shown(cache)}")
    if serializer is not None:
        raise ConfigError("a mapping is given values as they are: leave out the serializer, or make the mapping use it")
    return cache


def _computing(compute: object, kinds: Collection[Kind]) -> Callable[[], Any]:
    if not callable(compute):
        raise ConfigError(
            f"compute is a function without arguments, which returns the value; not {checks.shown(compute)}"
        )
    kind = Kind.FUNCTION if isinstance(compute, type) else kind_of(compute)
    if kind not in kinds:
        takes = " or ".join(it.value for it in kinds)
        raise ConfigError(f"{label(compute)} is {kind.value}, which this fill cannot call: it takes {takes}")
    return compute


# ------------------------------------------------ where values are kept

# A store has `look`, `drop` and `keep`, and says two things of itself. `news`: how many nodes must
# report a new value to end the wait of callers; 0, if none reports. `fenced`: whether it refuses,
# after a drop, what callers keep who began to compute earlier. If not, the holder of the lock drops
# the value, when nobody computes.


class OnNodes:
    """A store on the nodes, as bytes. Each node measures the age of its copy by its own clock."""

    news = 1
    fenced = True

    def __init__(
        self, settings: Settings, name: str, lock: Exclusive, ttl: float, stale: float, serializer: Serializer
    ) -> None:
        self._settings = settings
        self._name, self._cache, self._ttl, self._stale, self._serializer = name, Cache(lock), ttl, stale, serializer

    def look(self, news: bool = False) -> Plan[FillLook]:
        """Look for the value. `news`: some node, it is not known which, has reported a new one."""
        yield Do(lambda it: it.keeps("fill"))
        # If a majority has no value, no value was stored on a majority.
        decides = self._settings.quorum
        needed = len(decides.nodes) if news else decides.least

        def enough(answers: Mapping[int, object]) -> bool:
            return settled(answers.values(), decides.met(answers), needed)

        # A value may be large, and many callers may want it at once: they share the answers.
        seen = yield Ask(dict.fromkeys(decides.nodes, self._cache.peek), enough, share=(self._cache.peek, news))
        why = None if decides.met(seen.answers) else unheard(self._settings, seen, self._name, "look up")
        kept = best(seen.answers.values())
        if kept is not None and kept.fresh and not all(seen.answers.values()):
            yield mend(self._settings, self._cache.key)
        if kept is not None and kept.data is not None:
            try:
                return FillLook(self._serializer.loads(kept.data), kept.left_for(self._ttl), why)
            except verdicts():
                # The caller that kept it had another serializer, or other classes. Compute it
                # again.
                pass
        return FillLook(cause=why)

    def drop(self) -> Plan[None]:
        """Drop the value, and what callers keep later who began to compute earlier.

        Raises:
            NoQuorum: It is not certain that it was dropped.
        """
        told = yield from self._void(self._cache.void())
        # A lease that was granted before is not above these fences, because the majority that
        # granted it and the majority that has answered share a node.
        highest = max(it.fence for it in told)
        lasts = max(round((self._ttl + self._stale) * 1000), *(it.stays for it in told)) + 4 * self._cache.horizon
        yield from self._void(self._cache.void(highest, lasts))

    def _void(self, command: bytes) -> Plan[list[FillHeard]]:
        decides = self._settings.quorum
        seen = yield Ask(dict.fromkeys(decides.nodes, command), decides.met)
        told = {node: it for node, reply in seen.answers.items() if (it := heard(reply)) is not None}
        if not decides.met(told):
            raise unheard(self._settings, seen, self._name, "invalidate")
        return list(told.values())

    def keep(self, value: Any, lease: Lease | None) -> Plan[Any]:
        """Keep what was computed under this lease, or under none. Return it as others see it."""
        try:
            data = packed(value, self._serializer)
        except Unfit as why:
            raise ConfigError(
                f"fill {self._name!r} has a value that cannot be kept: {why}. Or give `serializer=` what can"
            ) from why
        # A value is as old as its lease: a process that was paused may come with a value that is
        # long out of date.
        fresh = 0.0 if lease is None else self._ttl - lease._overdue
        if lease is not None and fresh >= SHORTEST:
            ttl, stale = round(self._ttl * 1000), round(self._stale * 1000)
            put = self._cache.put(lease.fence, int(fresh * 1000), stale, ttl, data)
            try:
                yield Ask(dict.fromkeys(range(len(self._settings.addresses)), put), lambda _: True)
            except HoldfastError:
                # The client was closed meanwhile, so nobody finds the value.
                pass
        return self._serializer.loads(data)


class InMapping:
    """A store in a mapping of the user's: (the value, until when it is fresh).

    The time is by the clock of the process that has kept the value.
    """

    news = 0
    fenced = False

    def __init__(self, mapping: MutableMapping[str, Any], key: str, ttl: float) -> None:
        self._mapping, self._key, self._ttl = mapping, key, ttl

    def look(self, news: bool = False) -> Plan[FillLook]:
        match (yield Call(partial(self._mapping.get, self._key))):
            case (value, float() | int() as until):
                return FillLook(value, until - (yield Do(lambda it: it.wall())))
        return FillLook()

    def drop(self) -> Plan[None]:
        yield Call(partial(self._mapping.pop, self._key, None))

    def keep(self, value: Any, lease: Lease | None) -> Plan[Any]:
        until = (yield Do(lambda it: it.wall())) + self._ttl
        # A mapping has no fence by which it could prefer the value of a later holder.
        if lease is None or lease.held:
            yield Call(partial(self._mapping.__setitem__, self._key, (value, until)))
        return value


# ------------------------------------------------ what is to be done


def get(asked: FillTerms, acquire: Callable[[Timing], Any]) -> Plan[Found[Any]]:
    """Return the value. If there is none, compute it.

    Args:
        asked: The fill.
        acquire: Acquires the lock, as a timing says.
    """
    began: float = yield Do(lambda it: it.clock())
    found: Found[Any] = yield from _get(asked, acquire)
    facts: dict[str, Any] = {"name": asked.name, "kind": "fill", "how": how(found)}
    yield Do(lambda it: it.offer(lambda now: Called(**facts, took=now - began)))
    return found


def how(found: Found[Any]) -> str:
    """Where a value comes from, as in `Called.how`."""
    if found.computed:
        return "ran" if found.cause is None else "bypassed"
    if found.stale:
        return "stale"
    return "waited" if found.waited else "kept"


def _get(asked: FillTerms, acquire: Callable[[Timing], Any]) -> Plan[Found[Any]]:
    store, timing, waited = asked.store, asked.terms.timing, 0.0
    seen = yield from store.look()
    while seen.left <= 0:
        shown = seen.left > -asked.stale
        try:
            if seen.cause is not None and (shown or asked.fail_open):
                # The caller can be served at once. Otherwise wait for the lock, which takes until
                # `outage` at most.
                raise seen.cause
            lease = yield Call(partial(acquire, _patient(timing, waited, shown)))
        except Overtaken as news:
            waited += news.waited
            seen = yield from store.look(news=True)
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


def _patient(timing: Timing, waited: float, shown: bool) -> Timing:
    """The timing after this much waiting. A caller who can be shown a stale value tries once."""
    if shown:
        return timing._replace(wait=0.0)
    return timing if timing.wait is None else timing._replace(wait=max(0.0, timing.wait - waited))


def peek(asked: FillTerms) -> Plan[Found[Any] | None]:
    """Return the value if there is one that may be shown, or None.

    Raises:
        NoQuorum: There is none, and too few nodes answer to know.
    """
    seen = yield from asked.store.look()
    if seen.left > -asked.stale:
        return Found(value=seen.value, stale=seen.left <= 0, cause=seen.cause)
    if seen.cause is not None:
        raise seen.cause
    return None


def invalidate(asked: FillTerms, acquire: Callable[[Timing], Any]) -> Plan[None]:
    """Drop the value, and every value whose computing has begun before now.

    Args:
        asked: The fill.
        acquire: Acquires the lock, as a timing says.
    """
    if asked.store.fenced:
        yield from asked.store.drop()
        return
    lease = yield Call(partial(acquire, asked.terms.timing))
    try:
        yield from asked.store.drop()
    except BaseException:
        lease._let_go()
        raise
    yield from _give_back(lease)


def _under(lease: Lease, asked: FillTerms, waited: float) -> Plan[Found[Any]]:
    """Under the lock, look again. If there is still no value, compute it. Then release the lock."""
    try:
        if lease.contended or waited:
            waited += lease.waited
        seen = yield from asked.store.look()
        if seen.left > 0:
            found = Found(value=seen.value, waited=waited)
        else:
            value = finished(asked.compute, (yield Call(asked.compute)))
            found = Found(value=(yield from asked.store.keep(value, lease)), computed=True, waited=waited)
    except BaseException:
        lease._let_go()
        raise
    yield from _give_back(lease)
    return found


def _give_back(lease: Lease) -> Plan[None]:
    try:
        yield Call(lease.release)
    except LockLost:
        # The value is good all the same. Another caller may compute it once more.
        pass


def _open(asked: FillTerms, why: NoQuorum) -> Plan[Found[Any]]:
    """Compute without the lock, because too few nodes answer to know who has it."""
    event = Opened(name=asked.name, token="", waited=why.waited, kind="fill", names=(asked.name,), error=why)
    yield Do(lambda it: it.note(event))
    value = finished(asked.compute, (yield Call(asked.compute)))
    return Found(value=(yield from asked.store.keep(value, None)), computed=True, cause=why)


# ------------------------------------------------ what users have


class Fill(Description, ABC, Generic[T]):
    """The description of a cached value. It is immutable, and any number of callers may share it.

    `get()` returns the value, and computes it if there is no fresh one. While leases hold, at most
    one caller computes a key at a time, over all processes. It holds the fill's lock, a lease that
    is renewed meanwhile. All others wait for the value, or get the stale one.

    A value stays fresh, and stale, for as long as the caller that computed it has set. A node never
    replaces a value by that of an earlier holder of the lock. It is a cache: what nodes forget is
    computed again, and a node that has missed a newer value may show the one before it, at most for
    that one's ttl.
    """

    __slots__ = ("_lock",)
    _terms: FillTerms

    def __init__(self, terms: FillTerms, drivers: Sequence[Any], lock: Any) -> None:
        super().__init__(terms, drivers)
        # The lock under which the value is computed.
        self._lock = lock

    @property
    def name(self) -> str:
        """The fill's key."""
        return self._terms.name

    @property
    def ttl(self) -> float:
        """Seconds for which a value is fresh."""
        return self._terms.ttl

    @property
    def stale(self) -> float:
        """Seconds after the ttl for which a value may still be shown."""
        return self._terms.stale

    def _surrounded(self) -> ObservedCall:
        """What hears of a call's beginning and end in its caller's context."""
        return ObservedCall(self._terms.settings.around, "fill", (self.name,))

    @abstractmethod
    def get(self) -> Found[T] | Awaitable[Found[T]]:
        """Return the value. If there is no fresh one, wait for the lock and compute it.

        Takes one round trip if there is a fresh value. If `compute` raises, this call raises the
        same, nothing is kept, and the next caller in the queue computes. If the lease is lost
        meanwhile, computing is not interrupted, and the value is returned all the same.

        Args:
            cancel: Threads only: a `threading.Event`. At most 50 ms after another thread has set
                it, waiting for the lock ends with Cancelled. With asyncio, cancel the task.

        Returns:
            A Found, with the value and where it comes from.

        Raises:
            LockBusy: `wait` ran out while another caller was computing.
            NoQuorum: Too few nodes answer to know who computes, there is no stale value, and
                `fail_open` is off.
            Misuse: `compute` has asked for its own key (`self_deadlock`).
            Cancelled: `cancel` was set.
            ConfigError: The value cannot be kept.
        """

    @abstractmethod
    def peek(self) -> Found[T] | Awaitable[Found[T] | None] | None:
        """Look at the value without computing one, and without waiting for a caller that computes.

        Returns:
            A Found, whose `stale` says whether the value is older than its ttl. None if there is no
            value that may be shown.

        Raises:
            NoQuorum: There is no such value on the nodes that answer, and too few answer to know.
        """

    @abstractmethod
    def invalidate(self) -> Awaitable[None] | None:
        """Drop the value, so that the next `get` computes a new one.

        Call it after you have changed what the value is computed from. A caller that is computing
        at this moment may have read the old data. It still gets its own value, which is not kept. A
        `get` that begins later never returns a value whose computing began before.

        With `cache=`, a mapping cannot refuse late values. Then this waits for a caller that
        computes, for at most `wait` seconds.

        Args:
            cancel: Threads only, and of use with `cache=`: a `threading.Event`. At most 50 ms after
                another thread has set it, the wait ends with Cancelled.

        Raises:
            NoQuorum: Too few nodes answer. The value may be dropped, or not: call it again.
            LockBusy: With `cache=`: `wait` ran out.
            Cancelled: With `cache=`: `cancel` was set.
        """

    def __repr__(self) -> str:
        return f"<Fill {self.name!r} ttl={self.ttl:g} stale={self.stale:g}>"
