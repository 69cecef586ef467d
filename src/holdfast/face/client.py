"""What both faces' clients are told, and what they know without waiting.

Knows the constructor's arguments and the environment. Must not know threads or tasks.
"""

from __future__ import annotations

import os
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, Self, TypeVar, Unpack, overload

from .. import checks
from ..checks import Seconds
from ..core.command import READER, WRITER
from ..engine.crew import NodeStatus
from ..engine.record import Stats
from ..engine.settings import DEFAULT_GUARD, DEFAULT_MAX_TTL, DEFAULT_PREFIX, DEFAULT_TTL, Default, Settings
from ..errors import Closed, ConfigError
from ..recipes.exclusive import LONGEST
from ..recipes.semaphore import Slots
from ..wire.address import masked
from . import environment
from . import shards as sharding
from .decorating import Choice, Kind, Name, Options, PermitOptions, RateOptions, keyed, named
from .lock import Lock
from .rwlock import RWLock
from .shards import Shard
from .sites import Sites
from .telling import Observer, Teller
from .terms import Terms, locks, side, terms

if TYPE_CHECKING:
    from ssl import SSLContext
    from threading import Event

    from ..embedded import Nodes
    from ..recipes.looking import LockStatus
    from .election import Election
    from .fill import FillOptions, Fills
    from .gathering import Barrier, Latch
    from .gathering import Terms as GatheringTerms
    from .once import Deed, Once
    from .rate import Limits, Rate
    from .repair import Repaired
    from .schedule import Calendar
    from .semaphore import Semaphore
    from .values import Serializer

Sets = Mapping[str, Iterable[str]] | Iterable[Iterable[str]]  # of nodes: what each is called, and where its nodes are

L = TypeVar("L", bound=Lock[Any])
D = TypeVar("D")  # the decorators of a face: what raises LockBusy,
S = TypeVar("S")  # and what does not
R = TypeVar("R", bound="Rate")
E = TypeVar("E", bound="Election[Any]")
O = TypeVar("O", bound="Once")  # noqa: E741 (what is done once)
A = TypeVar("A", bound="Latch")
B = TypeVar("B", bound="Barrier")
M = TypeVar("M", bound="Semaphore[Any]")
F = TypeVar("F", bound=Callable[..., Any])  # what is decorated


class Client(ABC, Generic[L, D, S, R, E, O, A, B, M]):
    """A client of N independent Redis or Valkey masters: describes locks on them. Connects with the first use.

    `nodes`: addresses, `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS or `unix:///path[?db=n]`, one by one or in an
    iterable; else those of the environment variable HOLDFAST_NODES. All who use these nodes must name the same nodes and `max_ttl`.

    All times are seconds, or timedeltas. `ttl`: the length of leases, which is how soon others take over after a crash;
    `max_ttl`: the longest ttl of anybody who uses these nodes; `prefix`: of all names; `node_timeout`: how long a node may owe an
    answer before its connection counts as broken (default max_ttl / 20, from 0.05 to 1). While a lock with a shorter ttl than three
    times that is held or waited for, a node may owe an answer for a third of that ttl;
    `restart_guard`: how long a node that restarted is left alone, since it may have forgotten leases (default max_ttl + 2, the
    least; None switches it off: only for tests, and nodes with `appendfsync always`); `outage`: how long a majority may be away
    before waiting ends with NoQuorum (default: ttl); `owner`: who this is, for operators (default host:pid); `fresh`: run_ids of
    servers that were just made and need no guard (default: those in HOLDFAST_FRESH, and those of the embedded servers that this process
    has started); `observer`: is called with every event, one at a time: on a thread of its own, or with asyncio on the event loop,
    where it may be a coroutine function. It delays no renewal (a plain function that blocks the event loop does). What it raises is logged.

    `ssl`: an SSLContext for all `rediss://` nodes, instead of the `ssl_...` options of their addresses (default: certificates and host
    names are verified, with the system's authorities). `credentials`: is called before each connection with the node's address (in
    another thread, so that it may block; with asyncio it may be a coroutine function, too), and gives a password or (user, password).
    When it raises, the node is down, and it is called again soon. docs/connections.md has the rest.

    `shards`: several sets of nodes instead of one, each with a majority of its own, over which names are spread: a mapping of what each is
    called to its nodes, or a list of lists (in HOLDFAST_NODES: with semicolons between sets). `previous`: the sets, or nodes, of before,
    while they are being changed: a name that lives elsewhere by now is held there, too (beside HOLDFAST_NODES: HOLDFAST_PREVIOUS).
    docs/shards.md has the rest.

    `long_hold`: after so many seconds of holding, each lease is worth one warning (a log line and a HeldLong event), since work that
    hangs holds its lock for as long as its process lives (default None: never). `max_hold` of a lock ends such a lease.

    Raises ConfigError for anything that cannot work. A context manager: leaving it closes the client.
    """

    def __init__(
        self,
        *nodes: str | Iterable[str],
        ttl: Seconds = DEFAULT_TTL,
        max_ttl: Seconds = DEFAULT_MAX_TTL,
        prefix: str = DEFAULT_PREFIX,
        node_timeout: Seconds | None = None,
        restart_guard: Seconds | None = DEFAULT_GUARD,
        outage: Seconds | None = None,
        owner: str | None = None,
        fresh: Collection[str] | None = None,
        observer: Observer | None = None,
        ssl: SSLContext | None = None,
        credentials: Callable[[str], object] | None = None,
        shards: Sets | None = None,
        previous: Sets | Iterable[str] | None = None,
        long_hold: Seconds | None = None,
        **unknown: Never,
    ) -> None:
        # First of all: whatever is raised from here on, no local variable shows a password.
        nodes, shards, previous = tuple(masked(nodes)), masked(shards), masked(previous)
        unknown = masked(unknown)
        checks.known(unknown, "client", CLIENT_OPTIONS, _MEANT)
        environment.check_platform()
        if observer is not None and not callable(observer):
            raise ConfigError(f"observer is a function of one argument, the event; not {checks.shown(observer)}")
        given: dict[str, object] = {"ttl": ttl, "max_ttl": max_ttl, "prefix": prefix, "restart_guard": restart_guard}
        told = {name: value for name, value in given.items() if not isinstance(value, Default)}
        if owner is not None:
            told["owner"] = owner
        defaults = {"ttl": 10.0, "max_ttl": 30.0, "prefix": "", "restart_guard": DEFAULT_GUARD, "owner": _myself()}
        unset = not nodes and shards is None and not environment.nodes()
        options: dict[str, Any] = {
            **defaults,
            **environment.options(),
            **told,
            "node_timeout": node_timeout,
            "outage": outage,
            "long_hold": long_hold,
            "unset": unset,
            "debug": environment.debug(),
        }
        listed = "" if nodes or shards is not None or unset else environment.previous()
        now, before = _sets(nodes, shards), _former(sharding.listed(listed) if previous is None else previous)
        options["fresh"] = _fresh((*now, *before)) if fresh is None else fresh
        self._sites = Sites(now, before, options, ssl, credentials)
        self.settings: Settings = self._sites.all[0].settings
        self._teller = Teller(observer)
        self._servers: Nodes | None = None
        self._prepare()

    # ------------------------------------------------ what a face adds

    _locked: Callable[[Choice], D]
    _skipping: Callable[[Choice, bool], S]
    _filled: Callable[[Choice], Any]
    _limited: Callable[[Choice], Any]
    _computes: Collection[Kind]  # the kinds of functions that a fill can call
    _cancels = False  # can an event end the wait of its callers?

    @abstractmethod
    def _prepare(self) -> None: ...

    @abstractmethod
    def _describe(self, terms: Terms) -> L: ...

    @abstractmethod
    def _permit(self, terms: Terms) -> M: ...

    @abstractmethod
    def _limit(self, limits: Limits, at: Sequence[int]) -> R: ...

    @abstractmethod
    def _elect(self, terms: Terms, at: int) -> E: ...

    @abstractmethod
    def _once(self, options: Deed) -> O: ...

    @abstractmethod
    def _latch(self, terms: GatheringTerms, at: int) -> A: ...

    @abstractmethod
    def _barrier(self, terms: GatheringTerms, at: int) -> B: ...

    @abstractmethod
    def nodes(self) -> tuple[NodeStatus, ...]:
        """How the nodes are, as far as this client knows: no I/O. (`ready` asks them.)"""

    @abstractmethod
    def stats(self) -> Stats:
        """What this client has done so far, in this process or event loop: no I/O."""

    @abstractmethod
    def inspect(self, name: str) -> LockStatus | Awaitable[LockStatus]:
        """How a lock is: its holder, who that is, for how long, its fence, who waits in which order, node by node. Print it.

        Changes nothing. Takes one or two round trips, at most `node_timeout` each. Raises NoQuorum if fewer than a majority answer.
        """

    @abstractmethod
    def locked_by(self, name: str) -> str | Awaitable[str | None] | None:
        """The token, or another client's value, that a majority of the nodes has for this lock; None if there is none.

        What it says may be over when it returns: to do something only if the lock is free, try to acquire it. Raises NoQuorum if
        too few nodes answer to tell.
        """

    @abstractmethod
    def is_locked(self, name: str) -> bool | Awaitable[bool]:
        """Does anybody hold this lock? Like `locked_by`. (Whether *you* hold it is `lease.held`.)"""

    @abstractmethod
    def names(self, pattern: str = "*") -> list[str] | Awaitable[list[str]]:
        """The names of all locks that are held or half held, in order; `pattern` with `*`, `?` and `[a-z]`, as the servers' SCAN has it.

        Asks in steps, so that no node is kept busy. Raises NoQuorum if fewer than a majority answer.
        """

    @abstractmethod
    def force_release(self, name: str, reason: str, only: str | None = None) -> int | Awaitable[int]:
        """Take a lock away from its holder, and hand it on. For operators: what it protected may still be going on.

        A holder that uses holdfast is told within a round trip, and loses its lease with reason "forced". The value of another program
        is deleted, and that program is not told.

        Args:
            name: The lock's name.
            reason: Why. This client's log and observers show it.
            only: Take it from this holder and from nobody else: a token (`lease.token`), or the value that another program wrote, as
                `inspect`, `locked_by` and LockBusy show it. (LockBusy shows at most 64 bytes of a value.)

        Returns:
            On how many nodes it was taken from a holder.

        Raises:
            NoQuorum: Fewer than a majority of the nodes answered.
        """

    @abstractmethod
    def repair(self, pause: Seconds = 0.01) -> Repaired | Awaitable[Repaired]:
        """Write back what nodes have forgotten, so that the next node can be restarted.

        A node that restarts without its data has forgotten what `once`, `fill`, `rate`, `latch` and `barrier` keep. This
        looks through all nodes in steps and copies to each what a majority has. Locks need no repair. Call it after each
        restart, once `nodes()` shows the node as up, and before the next one. docs/operations.md has the procedure.

        Args:
            pause: Seconds to wait after each step of at most 25 registers, from 0 to 3600. Larger values load the nodes less.

        Returns:
            What it found and did, as a `Repaired`. Nodes in `left_out` did not answer: repair again when they are up.

        Raises:
            NoQuorum: Fewer than a majority of a set of nodes answered.
            ConfigError: The pause is out of range.
        """

    @abstractmethod
    def ready(self, wait: Seconds = 5.0) -> tuple[NodeStatus, ...] | Awaitable[tuple[NodeStatus, ...]]:
        """Connect to every node and check it: for a program's start. Returns how they are, once all have told.

        Raises ConfigError at once if a node can never work like this, and NoQuorum, with what is wrong at each node, if no
        majority is of use after `wait` seconds.
        """

    @abstractmethod
    def close(self) -> Awaitable[None] | None:
        """Release everything and disconnect; leases that are still held are lost, with reason "closed", waiters get Closed.

        Waits for the nodes' answers, then for `on_lost`, the observer and the log: at most `node_timeout` each. Idempotent. The
        interpreter's exit closes, too. Entering the client again (`with`, `async with`) opens it again, with new connections; any other
        use of a closed client raises Closed.
        """

    # ------------------------------------------------ what needs no waiting

    def lock(
        self,
        *names: str,
        ttl: Seconds | None = None,
        wait: Seconds | None = None,
        renew: bool = True,
        max_hold: Seconds | None = None,
        reentrant: bool = False,
        fail_open: bool = False,
        on_lost: Callable[[Any], object] | None = None,
        **unknown: Never,
    ) -> L:
        """The description of an exclusive lock: use it in a `with` block, or call `acquire`. Sends nothing by itself.

        `names`: one name, or several, which are held all or none, in one lease; whoever else wants some of them, in whatever order,
        no two wait for each other. `ttl`: of its leases (default: the client's), 0.05 s to `max_ttl`; `wait`: how long to wait for
        it, None for ever, 0 exactly one try; `renew`: keep leases alive for as long as they are held, at most `max_hold` seconds if
        given; `reentrant`: the thread or task that holds it may enter it again (the last one to leave gives it back); `fail_open`:
        when no quorum answers, run the body all the same, with a lease that is OPEN and not held; `on_lost`: is called once, with the
        lease, when a lease is lost: on a thread that is there for that, or with asyncio on the event loop, where it may be a coroutine
        function. It may wait for locks of this client. What the lock protects should look at `lease.fence`, or at `lease.check()`: a
        process that is stopped cannot be told that its time is over. Raises ConfigError for what cannot work.
        """
        return self._describe(
            terms(
                self.settings,
                partial(locks, self.settings, names),
                ttl=ttl,
                wait=wait,
                renew=renew,
                max_hold=max_hold,
                reentrant=reentrant,
                fail_open=fail_open,
                on_lost=on_lost,
                **unknown,
            )
        )

    def semaphore(
        self,
        name: str,
        permits: int,
        *,
        count: int = 1,
        ttl: Seconds | None = None,
        wait: Seconds | None = None,
        renew: bool = True,
        max_hold: Seconds | None = None,
        fail_open: bool = False,
        on_lost: Callable[[Any], object] | None = None,
        **unknown: Never,
    ) -> M:
        """Describe a semaphore, of which at most `permits` permits are held at the same time. Sends nothing by itself.

        It is used like a lock. Clients are served in order, and the permits of a client that crashed come back within its ttl.

        Each permit is a numbered slot with one holder at most. `lease.slots` says which ones a lease holds, and `lease.fence` is
        greater than that of every earlier holder of that slot. So you can guard what a permit stands for (a connection, a GPU) by
        the fence of its slot.

        Name the same number of permits in all clients. A client uses the first `permits` slots. While clients name different
        numbers, at most the largest of these numbers can be held, and clients log a warning. So you can change the number by a
        rolling deployment.

        A thread or task that holds a permit may take another one, and waits for itself if there is none. A client that waits has a
        place in the queue of every slot. For hundreds of permits with many waiting clients, use several semaphores.

        Args:
            name: The semaphore's name.
            permits: How many permits it has, from 1 to 1,000.
            count: How many permits one lease takes, all at once or none. Nobody waits for another client's half (default: 1).
            ttl, wait, renew, max_hold, fail_open, on_lost: As for `lock`.

        Raises:
            ConfigError: An option cannot work.
        """
        return self._permit(
            terms(
                self.settings,
                partial(Slots, name, permits, count, prefix=self.settings.prefix, horizon=self.settings.horizon),
                ttl=ttl,
                wait=wait,
                renew=renew,
                max_hold=max_hold,
                fail_open=fail_open,
                on_lost=on_lost,
                **unknown,
            )
        )

    def rwlock(self, name: str) -> RWLock[L]:
        """The description of a read-write lock: `.read()` and `.write()` are its sides, with `lock`'s options. Sends nothing by itself.

        Raises ConfigError for a name that is none.
        """
        return RWLock(name, partial(self._side, name))

    def _side(self, name: str, kind: bytes, /, **options: Unpack[Options]) -> L:
        return self._describe(terms(self.settings, partial(side, self.settings, name, kind), **options))

    @overload
    def locked(self, name: Name, *, on_busy: Literal["raise"] = "raise", **options: Unpack[Options]) -> D: ...
    @overload
    def locked(self, name: Name, *, on_busy: Literal["skip"], **options: Unpack[Options]) -> S: ...
    def locked(self, name: Name, *, on_busy: str = "raise", **options: Unpack[Options]) -> D | S:
        """A decorator: each call of the function holds the lock that `name` says, a template over its arguments.

        `name` follows the rules of `str.format`, over the call's arguments, with defaults applied: `{day}`, `{user.id}`, `{self.id}`,
        `{day:%Y}`, `{0}` is the first positional parameter, `{rest[0]}` and `{more[key]}` are of `*rest` and `**more`; a brace that is
        meant literally is doubled. (No f-string: that would be filled when the function is defined. None is "None", as ever.) Or a
        function, called with the same arguments, that returns the name. `on_busy="skip"`: when LockBusy would be raised, a function
        returns None, and a generator yields nothing; NoQuorum is raised all the same. `options`: those of `lock`.

        A generator holds the lock from its first step until it is exhausted, closed, or raises. If the lock is lost between two
        steps it is closed, and its user's next step raises LockLost. `current()` gives the lease, inside.

        Raises ConfigError for options that cannot work; when it decorates, for a field that is no parameter, and for what is no
        function of this face's kinds; when the function is called, for a name that is none, before anything is sent.
        """
        self.lock("any", **options)  # says what is wrong with them now, and not at the first call
        return self._decorator(named(name, partial(self.lock, **options)), on_busy)

    def _decorator(self, choice: Choice, on_busy: str) -> D | S:
        if on_busy not in ("raise", "skip"):
            raise ConfigError(f"on_busy is 'raise' or 'skip', not {on_busy!r}")
        return self._locked(choice) if on_busy == "raise" else self._skipping(choice, True)

    @overload
    def permitted(
        self, name: Name, permits: int, *, on_busy: Literal["raise"] = "raise", **options: Unpack[PermitOptions]
    ) -> D: ...
    @overload
    def permitted(self, name: Name, permits: int, *, on_busy: Literal["skip"], **options: Unpack[PermitOptions]) -> S: ...
    def permitted(self, name: Name, permits: int, *, on_busy: str = "raise", **options: Unpack[PermitOptions]) -> D | S:
        """Decorate a function so that each call holds a permit of the semaphore that its arguments name.

        For a limit of its own for each tenant, say: `@locks.permitted("tenant:{tenant}", 4)`. In everything else the decorator
        does what `locked` does, and the semaphore what `semaphore` does.

        Args:
            name: A template over the call's arguments, or a function of them that returns the name, as for `locked`.
            permits: How many permits each of these semaphores has, from 1 to 1,000.
            on_busy: With "skip", a call that would raise LockBusy does not run: a function returns None, a generator yields
                nothing. Default: "raise".
            options: Those of `semaphore`.

        Returns:
            A decorator.

        Raises:
            ConfigError: An option cannot work, or, when it decorates, the template has a field that is no parameter.
        """
        self.semaphore("any", permits, **options)  # says what is wrong with them now, and not at the first call
        return self._decorator(named(name, lambda it: self.semaphore(it, permits, **options), "a semaphore's name"), on_busy)

    @overload
    def read_locked(self, name: Name, *, on_busy: Literal["raise"] = "raise", **options: Unpack[Options]) -> D: ...
    @overload
    def read_locked(self, name: Name, *, on_busy: Literal["skip"], **options: Unpack[Options]) -> S: ...
    def read_locked(self, name: Name, *, on_busy: str = "raise", **options: Unpack[Options]) -> D | S:
        """Decorate a function so that each call reads under the read-write lock that its arguments name.

        In everything else the decorator does what `locked` does, and the lock what `rwlock(name).read()` does.

        Args:
            name: A template over the call's arguments, or a function of them that returns the name, as for `locked`.
            on_busy: With "skip", a call that would raise LockBusy does not run: a function returns None, a generator yields
                nothing. Default: "raise".
            options: Those of `lock`.

        Returns:
            A decorator.

        Raises:
            ConfigError: An option cannot work, or, when it decorates, the template has a field that is no parameter.
        """
        return self._sided(name, READER, on_busy, options)

    @overload
    def write_locked(self, name: Name, *, on_busy: Literal["raise"] = "raise", **options: Unpack[Options]) -> D: ...
    @overload
    def write_locked(self, name: Name, *, on_busy: Literal["skip"], **options: Unpack[Options]) -> S: ...
    def write_locked(self, name: Name, *, on_busy: str = "raise", **options: Unpack[Options]) -> D | S:
        """Decorate a function so that each call writes under the read-write lock that its arguments name.

        In everything else the decorator does what `locked` does, and the lock what `rwlock(name).write()` does.

        Args:
            name: A template over the call's arguments, or a function of them that returns the name, as for `locked`.
            on_busy: With "skip", a call that would raise LockBusy does not run: a function returns None, a generator yields
                nothing. Default: "raise".
            options: Those of `lock`.

        Returns:
            A decorator.

        Raises:
            ConfigError: An option cannot work, or, when it decorates, the template has a field that is no parameter.
        """
        return self._sided(name, WRITER, on_busy, options)

    def _sided(self, name: Name, kind: bytes, on_busy: str, options: Options) -> D | S:
        self._side("any", kind, **options)  # says what is wrong with them now, and not at the first call
        return self._decorator(named(name, lambda it: self._side(it, kind, **options)), on_busy)

    def limited(
        self,
        name: Name,
        limit: int | Sequence[tuple[int, Seconds]],
        period: Seconds | None = None,
        *,
        key: Name | int | None = None,
        **options: Unpack[RateOptions],
    ) -> Callable[[F], F]:
        """Decorate a function so that each call waits for the rate that its arguments name.

        For a limit of its own for each user, say: `@locks.limited("api", 10, 60, key="{user}")`. In everything else it does what
        a `rate` does as a decorator.

        Args:
            name: A template over the call's arguments, or a function of them that returns the name, as for `locked`.
            limit: How many calls are allowed in a period; or several limits, as for `rate`.
            period: Seconds. Left out where there are several limits.
            key: Each key has a limit of its own: a template, or a function, like the name; or a whole number. Default: no key.
            options: Those of `rate`.

        Returns:
            A decorator.

        Raises:
            ConfigError: An option cannot work, or, when it decorates, a template has a field that is no parameter.
        """
        self.rate("any", limit, period, **options)  # says what is wrong with them now, and not at the first call
        number = key if isinstance(key, int) else None
        choice = named(name, lambda it: self.rate(it, limit, period, key=number, **options), "a rate's name")
        if key is not None and not isinstance(key, int):
            choice = keyed(name, key, lambda it, whose: self.rate(it, limit, period, key=whose, **options))
        decorator: Callable[[F], F] = self._limited(choice)
        return decorator

    def rate(
        self,
        name: str,
        limit: int | Sequence[tuple[int, Seconds]],
        period: Seconds | None = None,
        *,
        key: str | int | None = None,
        algorithm: Literal["gcra", "fixed window"] = "gcra",
        burst: int | None = None,
        wait: Seconds | None = None,
        fail_open: bool = False,
    ) -> R:
        """Describe a rate: at most `limit` calls in `period` seconds, over all processes.

        Sends nothing by itself. `take()` asks once, `acquire()` waits for its turn, `peek()` looks, `reset()` starts over.
        As a decorator, each call of a function waits for its turn. With several limits a call is
        counted by all of them or by none:

            locks.rate("api", [(10, 1), (1000, 3600)])

        Each limit is counted by itself, whether it stands alone or with others. Changing a limit
        begins a new count.

        Without failures, no more calls are allowed than that. With failures, at most N / q times as
        many are (`Rate` says it exactly). A node that restarts empty forgets what it counted over a
        period that is longer than its restart guard (`max_ttl` + 2 s).

        Args:
            name: The rate's name, without braces.
            limit: How many calls are allowed in a period, from 1 to 1e12; or up to 10 pairs of
                calls and seconds.
            period: Seconds, from 0.001 to 1e8. Left out where `limit` is a list of pairs.
            key: Each key has limits of its own: a user, an address, a tenant. Default: no key.
            algorithm: "gcra" (the default): calls flow back evenly. "fixed window": `limit` calls
                in each window, which begins with its first call. No call makes a window longer.
            burst: How many calls "gcra" allows at once (default: `limit`). Only with a single
                limit.
            wait: How many seconds `acquire()` waits. None: for ever (the default). 0: it tries
                once.
            fail_open: Allow calls when too few nodes answer. The Allowance says why.

        Raises:
            ConfigError: An option cannot work.
        """
        from .rate import limits

        checks.text(name, "a rate's name", most=LONGEST)
        at = self._sites.counting(name if key is None else f"{name}:{key}")
        return self._limit(
            limits(
                [self._sites.all[it].settings for it in at],
                name,
                limit,
                period,
                key=key,
                algorithm=algorithm,
                burst=burst,
                wait=wait,
                fail_open=fail_open,
            ),
            at,
        )

    def election(
        self,
        name: str,
        value: str = "",
        *,
        ttl: Seconds | None = None,
        wait: Seconds | None = None,
        max_hold: Seconds | None = None,
        on_lost: Callable[[Any], object] | None = None,
    ) -> E:
        """The description of an election: at most one leads, and everybody can see who. Sends nothing by itself.

        `with` and `campaign()` wait to become the leader, in turn, and give a Leadership, which is a lease: its body is stopped, or told,
        before anybody else can lead. `leader()` looks once who leads, `observe()` looks on, without polling. `value`: what the leader says
        of itself, such as its address, a text of at most 64 KiB; `leadership.publish` says something else. `ttl`: how soon a standby takes
        over after a crash (after a resignation it does at once); `wait`: how long to campaign, None for ever, 0 exactly one try;
        `max_hold`: a term lasts no longer; `on_lost`: is called once, with the leadership, when it is lost.

        `leadership.term` is greater than that of every earlier leader: what only the leader may do should be fenced with it, since a
        process that is stopped cannot be told that its time is over. What observers see may be old by a message's way, and after a crash
        by a ttl; terms and values are seen in order, by all. A lock of the same name is something else. Raises ConfigError for what cannot
        work.
        """
        from .election import offices

        at = self._sites.settled(checks.text(name, "an election's name", most=LONGEST), "election")
        settings = self._sites.all[at].settings
        found = terms(settings, partial(offices, settings, name, value), ttl=ttl, wait=wait, max_hold=max_hold, on_lost=on_lost)
        return self._elect(found, at)

    def once(
        self,
        key: Name,
        *,
        keep: Seconds,
        per: Seconds | Calendar | None = None,
        zone: str | None = None,
        slack: Seconds | None = None,
        ttl: Seconds | None = None,
        wait: Seconds | None = None,
        renew: bool = True,
        max_hold: Seconds | None = None,
        serializer: Serializer | None = None,
        on_lost: Callable[[Any], object] | None = None,
        cancel: Event | None = None,
    ) -> O:
        """Describe something that is done once: of all callers, one runs it, and the others get its result. Sends nothing by itself.

        `run(function, ...)` runs a function, or waits for the caller that does, and returns the result. `result()` only looks for one.
        `forget()` removes it, so that the next caller runs again.
        As a decorator, it runs each call of a function once for its key, a template over the call's arguments, as with `locked`.

        If a run raises, the next caller tries. If the process that runs it dies, another caller runs it within the ttl. While the result
        is kept and a majority remembers it, all callers get the same one. The function itself may have run more than once, if its
        process was cut off or stopped for longer than its ttl. `Once` says it exactly.

        Args:
            key: The name, a template for decorated functions, or a function of a decorated function's arguments.
            keep: Seconds for which the result is known, from 0.05 to 1e8. Later callers run again.
            per: Run once in each slot of time, for schedules that fire in several processes: seconds, from 0.001 to 1e8, or "day",
                "week" (from Monday) or "month" of a calendar. All callers must have the same `per`, `zone` and `slack`.
            zone: The time zone of that calendar, such as "Europe/Berlin" (default: "UTC").
            slack: A call within so many seconds before the next slot counts for that slot, unless it names its time by `at` (default: a
                tenth of `per`, and at most 10 s; at most half of `per`).
            ttl, wait, renew, max_hold, on_lost: As for `lock`. While a function runs, its lock is held.
            serializer: Has `dumps` and `loads`, like the module pickle (default: JSON). A result has at most 1 MB.
            cancel: For threads: an event, such as `threading.Event()`. Soon (50 ms) after another thread has set it, every call that
                waits for another caller's run ends with Cancelled. It does not stop a function that runs. With asyncio, cancel the task.

        Raises:
            ConfigError: An option is wrong, or `keep` is shorter than a slot can be: 26 hours for "day", 7 days and 2 hours for "week",
                31 days and 2 hours for "month".
        """
        from .once import deed

        if cancel is not None and not self._cancels:
            raise ConfigError("cancel= ends the wait of a thread. In asyncio, cancel the task that waits: task.cancel()")
        return self._once(
            deed(
                self._sites,
                key,
                keep=keep,
                per=per,
                zone=zone,
                slack=slack,
                ttl=ttl,
                wait=wait,
                renew=renew,
                max_hold=max_hold,
                serializer=serializer,
                on_lost=on_lost,
                cancel=cancel,
            )
        )

    @abstractmethod
    def fill(self, key: str, ttl: Seconds, compute: Callable[[], Any], **options: Unpack[FillOptions]) -> Any:
        """The description of a fill: a value that one computes, and all others wait for, or find. Sends nothing by itself: call `get`.

        `key`: a name, as a lock has one (and no lock of that name is in its way); `ttl`: for how long a value is fresh; `compute`: a
        function without arguments that returns it (with asyncio, it may be a coroutine function), called inside of the fill's lock by at
        most one at a time, over all processes, while leases hold. `stale`: for how long after its ttl a value may be shown: then one
        computes a new one, nobody waits for that, and where no quorum answers the stale value is better than none. `lease`: the ttl of the
        lock's leases (default: the client's): how soon others compute when a computer crashes, not how long computing may take; `wait`: how
        long to wait for whoever computes, None for ever; `fail_open`: when no quorum answers, compute without the lock.

        Values are kept on the nodes, as bytes: at most 1 MB, made by `serializer`, which has `dumps` and `loads` (default: JSON; the
        modules pickle and json will do). What `get` gives is always what was kept, for the one who has computed it, too. `cache`: a mapping
        to keep values in instead, as (value, until when it is fresh by `time.time()`): as consistent as it is itself. All who use a key
        should name the same options. Raises ConfigError for what cannot work.
        """

    def filled(self, key: Name, ttl: Seconds, **options: Unpack[FillOptions]) -> Callable[[F], F]:
        """A decorator: the function computes what a fill keeps, and each call gets the value for the key that its arguments say.

        `key`: a template over the arguments, or a function of them, as of `locked`; the other options are those of `fill`. Calls with the
        same key share one value, whatever else their arguments are. Raises ConfigError like `locked`.
        """
        self.fill("any", ttl, bool, **options)  # says what is wrong with them now, and not at the first call
        decorator: Callable[[F], F] = self._filled(named(key, lambda it: partial(self.fill, it, ttl, **options)))
        return decorator

    def _fills(self, key: str, *arguments: Any, **options: Any) -> tuple[Fills, int]:
        """Checked options, and the set of nodes where the key lives. (While it moves, one may compute on either: that does no harm.)"""
        from .fill import fills

        checks.text(key, "a fill's key", most=LONGEST)
        at = self._sites.home(key)
        return fills(self._sites.all[at].settings, self._computes, key, *arguments, **options), at

    def latch(self, name: str, count: int, *, keep: Seconds = 86400.0, wait: Seconds | None = None) -> A:
        """The description of a latch, which opens when `count` have arrived, and stays open. Sends nothing by itself.

        `arrive()` says that somebody has, `wait()` returns once all have; `arrived()` and `is_open()` look. `count`: from 1 to 1,000; all
        who use the latch must name the same (a ConfigError says so to those who do not, when they use it). `wait`: how long `wait()`
        waits, None for ever, 0 one look. `keep`: for how long the nodes remember it after it was used last (default: a day;
        `max_ttl` at least): another run takes another name, or comes later than that.

        It opens exactly when so many different ones have arrived, for everybody. It outlives the restart of any minority of the nodes while
        anybody waits, and afterwards, if it was last used while all nodes were there. What it costs is in docs/latch.md. Raises ConfigError
        for what cannot work.
        """
        return self._latch(*self._gathering("latch", name, count, keep, wait))

    def barrier(self, name: str, parties: int, *, keep: Seconds = 86400.0, wait: Seconds | None = None) -> B:
        """The description of a barrier, at which `parties` wait for each other, again and again. Sends nothing by itself.

        `wait()` arrives, and returns once all have. `parties`: from 1 to 1,000; all must name the same. `wait`: how long to wait for the
        others, None for ever, 0 one look. `keep`: for how long the nodes remember how far it has come, after it was used last (default:
        a day; `max_ttl` at least): longer than any party works between two calls, or it would begin anew without that one.

        Nobody passes a generation before all have arrived in it, and no two parties are ever more than one generation apart. It cannot
        know that a party died before it arrived. Raises ConfigError for what cannot work.
        """
        return self._barrier(*self._gathering("barrier", name, parties, keep, wait))

    def _gathering(self, kind: str, name: str, count: int, keep: Seconds, wait: Seconds | None) -> tuple[GatheringTerms, int]:
        from .gathering import terms as gathering

        checks.text(name, f"a {kind}'s name", most=LONGEST)
        at = self._sites.settled(name, kind)
        return gathering(self._sites.all[at].settings, kind, name, count, keep, wait), at

    @classmethod
    def local(cls, nodes: int = 5, shards: int = 1, **options: Any) -> Self:
        """Start real servers in a temporary directory, and make a client of them. Closing the client stops them.

        Starting takes some tenths of a second. The servers listen on Unix sockets that other users of the machine cannot open.
        More clients in this process are made with `Holdfast(*locks.urls)`, and need not wait for a restart guard. For other processes
        `locks.servers.environment` has the environment variables to set.

        Needs the extra `local`, or a Redis or Valkey server on PATH.

        Args:
            nodes: How many servers to start for each set.
            shards: How many sets of servers to start. They are called "1", "2" and so on.
            options: The client's own options.

        Raises:
            ConfigError: An option cannot work, or there is no server to start.
        """
        from ..embedded import Nodes

        if type(shards) is not int or shards < 1:
            raise ConfigError(f"{checks.shown(shards)} sets of nodes cannot be started: ask for at least one")
        cls("redis://nowhere", **options)  # whatever is wrong is said before any server is started
        servers = Nodes(nodes if shards == 1 else nodes * shards).start()
        try:
            fresh = {*servers.run_ids, *(options.pop("fresh", None) or ())}
            if shards == 1:
                client = cls(*servers.urls, fresh=fresh, **options)
            else:
                sets = {str(it + 1): servers.urls[it * nodes : (it + 1) * nodes] for it in range(shards)}
                client = cls(shards=sets, fresh=fresh, **options)
        except BaseException:
            servers.close()
            raise
        client._servers = servers
        return client

    @property
    def shards(self) -> dict[str, tuple[str, ...]]:
        """The sets of nodes by what they are called, each with its nodes' addresses, without passwords; former ones, too."""
        return {it.shard.name: tuple(node.label for node in it.settings.addresses) for it in self._sites.all}

    def shard_of(self, name: str) -> str:
        """What the set of nodes is called on which this lock lives. (Of a name that moves: its new one.)"""
        return self._sites.all[self._sites.homes(name)[0]].shard.name

    @property
    def urls(self) -> tuple[str, ...]:
        """The nodes' addresses, without passwords; of all sets, one after the other."""
        return tuple(node.label for it in self._sites.all for node in it.settings.addresses)

    @property
    def fresh(self) -> frozenset[str]:
        """The run_ids of servers that need no restart guard, because they were just made."""
        return self.settings.fresh

    @property
    def servers(self) -> Nodes | None:
        """The embedded servers of `local()`, to kill, freeze and restart them in tests."""
        return self._servers

    def __repr__(self) -> str:
        if not hasattr(self, "settings"):
            # It could not be made, and an error reporter looks at it.
            return f"<{type(self).__name__} that could not be made>"
        return f"{type(self).__name__}({', '.join(map(repr, self.urls))}, ttl={self.settings.ttl:g})"

    def _check_servers(self) -> None:
        if self._servers is not None:
            raise Closed("the servers of this client were stopped when it was closed: make a new one by `Holdfast.local()`")

    def _stop_servers(self) -> None:
        if self._servers is not None:
            self._servers.close()


# The client's options, in the order of its signature, and what other libraries call them.
CLIENT_OPTIONS = (
    "ttl",
    "max_ttl",
    "prefix",
    "node_timeout",
    "restart_guard",
    "outage",
    "owner",
    "fresh",
    "observer",
    "ssl",
    "credentials",
    "shards",
    "previous",
    "long_hold",
)
_ADDRESSES = "the addresses themselves, Holdfast('redis://a:6379', 'redis://b:6379', ...)"
_MEANT = {
    **dict.fromkeys(("nodes", "node", "url", "urls", "host", "hosts", "masters", "servers", "addresses", "connections"), _ADDRESSES),
    "client": f"{_ADDRESSES}: holdfast opens its own connections",
    **dict.fromkeys(("timeout", "socket_timeout", "socket_connect_timeout"), "node_timeout (how long a node may take to answer)"),
    **dict.fromkeys(("password", "username", "user"), "an address with a password, redis://user:password@host, or credentials="),
    **dict.fromkeys(("expire", "lock_timeout", "auto_release_time"), "ttl (how long a crashed holder blocks others)"),
    "key_prefix": "prefix",
    "guard": "restart_guard",
}


def _sets(nodes: Sequence[str | Iterable[str]], shards: Sets | None) -> tuple[Shard, ...]:
    """The sets of nodes that a client is told of, if only by its environment."""
    if shards is None:
        if nodes:
            return (sharding.alone(_flat(nodes)),)
        found = sharding.listed(environment.nodes())
        return sharding.shards(found, "HOLDFAST_NODES") if len(found) > 1 else (sharding.alone(sharding.only(found)),)
    if nodes:
        raise ConfigError("shards= is instead of nodes: put those into one of the sets, or leave shards= out")
    return sharding.shards(shards, "shards")


def _former(previous: Sets | Iterable[str]) -> tuple[Shard, ...]:
    """The sets of nodes of before; none, if they are not being changed."""
    none = isinstance(previous, Collection) and not isinstance(previous, str | bytes) and not previous
    return () if none else sharding.shards(previous, "previous", flat=True)


def _flat(nodes: Iterable[str | Iterable[str]]) -> list[str]:
    """One address after the other. (What is no text is complained of where addresses are read.)"""
    found: list[str] = []
    for it in nodes:
        found += [it] if isinstance(it, str | bytes) or not isinstance(it, Iterable) else it
    return found


def _fresh(shards: Iterable[Shard]) -> list[str]:
    """The run_ids of servers that need no guard: those that the environment lists, and those that this process has made itself."""
    embedded = sys.modules.get("holdfast.embedded")  # (if it was not imported, nothing was started)
    started: Mapping[str, str] = embedded.started if embedded is not None else {}
    return [*environment.fresh(), *[started[node.label] for shard in shards for node in shard.nodes if node.label in started]]


def _myself() -> str:
    host = "".join(it for it in socket.gethostname() if "!" <= it <= "~") or "host"
    return f"{host[:100]}:{os.getpid()}"
