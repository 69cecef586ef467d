"""The options of a client, and what it knows without waiting. For threads and for asyncio.

Knows the constructor's arguments and the environment. Must not know threads or tasks.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, Self, TypeVar, Unpack, overload

from .. import checks
from ..checks import Seconds
from ..engine.plans import Plan
from ..engine.recorder import Stats, total
from ..engine.settings import (
    DEFAULT_GUARD,
    DEFAULT_GUARDIAN,
    DEFAULT_MAX_TTL,
    DEFAULT_PREFIX,
    DEFAULT_TTL,
    Default,
    Settings,
)
from ..errors import ConfigError, Misuse
from ..face import environment, spreading
from ..face.decorators import Choice, Function, Kind, Name, keyed, named
from ..face.lease import Lease, LeaseInfo, infos
from ..face.lock import Lock
from ..face.observers import Observer, Observers
from ..face.owner import Owners
from ..face.rwlock import RWLock
from ..face.shards import Shards
from ..face.spreading import ShardNodes
from ..face.terms import Bound, ElectionOptions, LockTerms, Options, allow, locks, side, terms
from ..face.tracing import Around
from ..node import Node
from ..options import OPTIONS
from ..protocol.command import READER, WRITER
from ..wire.address import masked

if TYPE_CHECKING:
    from ssl import SSLContext

    from ..embedded import Nodes
    from ..engine.status import NodeStatus
    from ..face.semaphore import PermitOptions
    from ..operations.inspection.commands import LockStatus
    from ..operations.repair.plan import Repaired
    from ..operations.survey.plan import Survey
    from ..primitives.fill.plan import FillOptions
    from ..primitives.once.plan import OnceOptions
    from ..primitives.rate.plan import RateOptions

# Shards: the name of each, if it has one, and the addresses of its nodes.
Sets = Mapping[str, Iterable[str | Node]] | Iterable[Iterable[str | Node]]

L = TypeVar("L", bound=Lock[Any])
# Decorators: one that raises LockBusy, and one that skips the call.
D = TypeVar("D")
S = TypeVar("S")
R = TypeVar("R")
E = TypeVar("E")
O = TypeVar("O")  # noqa: E741 (the first letter of Once)
A = TypeVar("A")
B = TypeVar("B")
M = TypeVar("M")
F = TypeVar("F", bound=Callable[..., Any])  # what is decorated


class Operations(Bound, ABC):
    """What operators and health checks ask of a client."""

    _shards: Shards
    _servers: Nodes | None
    _ways: Sequence[Any]  # to the driver of each shard: the driver, or a function that returns it

    @abstractmethod
    def _at(self, way: Any) -> Any:
        """Return the driver to which this is the way."""

    @property
    def _disjoint(self) -> Sequence[Any]:
        """The ways to drivers that have no node in common."""
        return self._ways[: len(self._shards.all)]

    def nodes(self) -> tuple[NodeStatus, ...]:
        """Return the state of each node, as far as this client knows. Asks no node.

        `ready` connects to the nodes and asks them. A closed client returns what it knew last.

        Returns:
            One NodeStatus for each node, in the order of the addresses.
        """
        return tuple(node for way in self._disjoint for node in self._at(way).status())

    def stats(self) -> Stats:
        """Return counts of what this client has done since it was created. Asks no node.

        They are for this process. With asyncio, they are for this event loop.

        Returns:
            The Stats, whose docstring explains each field.
        """
        return total(self._at(way).stats() for way in self._ways)

    def leases(self) -> tuple[LeaseInfo, ...]:
        """List the leases that this client holds in this process, or in this event loop.

        For health checks, and to see what hangs. Sends nothing and waits for nothing. A lock that
        was entered more than once is one lease.

        Returns:
            One LeaseInfo for each lease, the one that has been held longest first. Requests that
            wait are not among them.
        """
        return infos(lease for way in self._ways for lease in self._at(way).leases())

    @abstractmethod
    def inspect(self, name: str) -> LockStatus | Awaitable[LockStatus]:
        """Ask the nodes for everything about one lock: its holder, its fence, and who waits for it.

        Changes nothing. Takes one or two round trips, each of at most `node_timeout`.

        Args:
            name: The lock's name.

        Returns:
            A LockStatus, to print or to read: holder, owner, note, seconds left, fence and queue,
            node by node.

        Raises:
            NoQuorum: Fewer than a majority of the nodes answered.
            ConfigError: The name cannot be one.
        """

    @abstractmethod
    def locked_by(self, name: str) -> str | Awaitable[str | None] | None:
        """Ask the nodes who holds a lock.

        The answer may be out of date when you read it. To do something only if the lock is free,
        call `try_acquire()`.

        Args:
            name: The lock's name.

        Returns:
            The holder's token, or the value that another program wrote, if a majority of the nodes
            has it. "shared" while clients read under a read-write lock. None if no client holds the
            lock.

        Raises:
            NoQuorum: Too few nodes answered to know.
            ConfigError: The name cannot be one.
        """

    @abstractmethod
    def is_locked(self, name: str) -> bool | Awaitable[bool]:
        """Ask the nodes whether any client holds a lock. Whether you hold it is `lease.held`.

        Like `locked_by`, the answer may be out of date when you read it.

        Args:
            name: The lock's name.

        Returns:
            True if a majority of the nodes has a holder.

        Raises:
            NoQuorum: Too few nodes answered to know.
            ConfigError: The name cannot be one.
        """

    @abstractmethod
    def names(self, pattern: str = "*") -> list[str] | Awaitable[list[str]]:
        """List the names of all locks that are held, on a majority of the nodes or on fewer.

        Asks the nodes in steps, so that no node is kept busy.

        Args:
            pattern: Which names, with `*`, `?` and `[a-z]` as in Redis (default: all).

        Returns:
            The names, sorted.

        Raises:
            NoQuorum: Fewer than a majority of the nodes answered.
            ConfigError: The pattern is no text, or has more than 512 bytes.
        """

    @abstractmethod
    def survey(self, pattern: str = "*", *, pause: float = 0.0) -> Survey:
        """List many locks without disturbing the nodes: yields one Row for each lock that is held.

        Sends nothing until you loop over it (with asyncio, by `async for`), and changes nothing. It
        asks a node for 200 keys at a time, so that locks on that node do not wait for long. It
        remembers the names that it has shown, to show each lock once.

        Args:
            pattern: Which names, with `*`, `?` and `[a-z]` as in Redis (default: all).
            pause: The share of a node's time that the survey may take, from 0.001 to 1. With 0.02
                it rests 49 times as long as a step took. 0 takes no rest (default: 0).

        Returns:
            A Survey. Its `scanned` says how many keys the nodes have looked at so far.

        Raises:
            ConfigError: The pattern or the pause cannot work.
            NoQuorum: Raised by the loop: too few nodes answer to find every lock.
        """

    @abstractmethod
    def force_release(self, name: str, reason: str, only: str | None = None) -> int | Awaitable[int]:
        """Take a lock away from its holder, and give it to the next client that waits.

        For operators. The work that the lock protects may still be going on.

        A holder that uses holdfast loses its lease within a round trip, with the reason "forced".
        If another program wrote the value, it is deleted, and that program does not notice.

        Args:
            name: The lock's name.
            reason: Why. This client's log and observers show it.
            only: Take the lock from this holder and from no other: a token (`lease.token`), or the
                value that another program wrote, as `inspect`, `locked_by` and LockBusy show it.
                (LockBusy shows at most 64 bytes of a value.) Default: take it from any holder.

        Returns:
            The number of nodes that took the lock from a holder.

        Raises:
            NoQuorum: Fewer than a majority of the nodes answered.
            ConfigError: The name, `reason` or `only` cannot work, such as an empty reason.
        """

    @abstractmethod
    def repair(self, pause: Seconds = 0.01) -> Repaired | Awaitable[Repaired]:
        """Write back what nodes have forgotten, so that the next node can be restarted.

        A node that restarts without its data has forgotten what `once`, `fill`, `rate`, `latch` and
        `barrier` keep. This looks through all nodes in steps and copies to each what a majority
        has. Locks need no repair. Call it after each restart, once `nodes()` shows the node as up,
        and before the next one. docs/operations.md has the procedure.

        Args:
            pause: Seconds to wait after each step of at most 25 registers, from 0 to 3600. Larger
                values load the nodes less.

        Returns:
            What it found and did, as a `Repaired`. Nodes in `left_out` did not answer: repair again
            when they are up.

        Raises:
            NoQuorum: Fewer than a majority of the nodes of a shard answered.
            ConfigError: The pause is out of range.
        """

    @abstractmethod
    def ready(self, wait: Seconds = 5.0) -> tuple[NodeStatus, ...] | Awaitable[tuple[NodeStatus, ...]]:
        """Connect to every node and check it. Call it when your program starts.

        It also checks that the nodes accept writes.

        Args:
            wait: Seconds to wait until a majority can be used (default: 5).

        Returns:
            One NodeStatus for each node, in the order of the addresses.

        Raises:
            ConfigError: The nodes refuse this client, and waiting does not help: a wrong password,
                or a server that is too old. Raised at once.
            NoQuorum: Fewer than a majority can be used after `wait` seconds. The error has the
                reason for each node.
        """

    @abstractmethod
    def close(self, leave: bool = False) -> Awaitable[None] | None:
        """Release everything and disconnect.

        With asyncio, this is for the running event loop: each loop closes its own part. Leases that
        are still held are lost, with the reason "closed": `on_lost` is called, and
        asyncio blocks are cancelled. Callers that wait get Misuse (`closed`).

        Waits until a majority of the nodes has confirmed, and 20 ms for the others. They get the
        release all the same, unless they are down. Then waits for `on_lost`, the observer and the
        log. Either takes at most `node_timeout`. Idempotent.

        The interpreter's exit closes clients, too. Entering a closed client (`with`, `async with`)
        opens it again, with new connections. Any other use of it raises Misuse (`closed`).

        Args:
            leave: Do not release the locks that are held. They run out by themselves, at most one
                `ttl` later, as with `lease.leave()`. For work that goes on elsewhere. Requests that
                wait are given up all the same (default: False).

        Raises:
            ConfigError: `leave` is not a bool.
        """

    @property
    def shards(self) -> dict[str, tuple[str, ...]]:
        """The shards by name, each with the addresses of its nodes, without passwords.

        Former shards (`previous`) are among them.
        """
        return {it.listed.name: tuple(node.label for node in it.settings.addresses) for it in self._shards.all}

    def shard_of(self, name: str) -> str:
        """Return the name of the shard that a lock lives on.

        Args:
            name: The lock's name.

        Returns:
            The shard's name. For a name that moves, that of its new shard.

        Raises:
            ConfigError: The name cannot be one.
        """
        return self._shards.all[self._shards.homes(name)[0]].listed.name

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of all nodes, of one shard after the other, without passwords."""
        return tuple(node.label for it in self._shards.all for node in it.settings.addresses)

    @property
    def servers(self) -> Nodes | None:
        """The embedded servers of `local()`, for tests that kill and restart them, or None."""
        return self._servers

    def _check_servers(self) -> None:
        if self._servers is not None:
            raise Misuse(
                "the servers of this client were stopped when it was closed: make a new one by `Holdfast.local()`",
                "closed",
            )

    def _stop_servers(self) -> None:
        if self._servers is not None:
            self._servers.close()


class Client(Operations, Generic[L, D, S, R, E, O, A, B, M]):
    """A client of N independent Redis or Valkey servers. It describes the locks that live on them.

    Making a client sends nothing. It connects at its first use. All clients of the same nodes must
    have the same list of nodes and the same `max_ttl`: safety depends on both.

    A client is a context manager: leaving its block closes it. All times are seconds, as numbers or
    timedeltas. docs/connections.md has more about addresses, TLS and passwords, docs/operations.md
    about shards.

    Args:
        nodes: Addresses, one by one or in an iterable: `redis://[user:password@]host[:port][/db]`,
            `rediss://` for TLS, `unix:///path[?db=n]`, or `redis+sentinel://host,host/group`. A
            `Node` is an address with more options. Default: those in HOLDFAST_NODES.
        ttl: The length of leases, which is how soon another client takes over after a crash. From
            0.05 to `max_ttl` (default: 10, or `max_ttl` if that is shorter).
        max_ttl: The longest `ttl` of any client of these nodes, from 0.05 to 86400 (default: 30).
        prefix: Text that precedes all names on the nodes (default: none).
        node_timeout: How long a node may owe an answer before its connection counts as broken.
            While a lock is held or waited for whose `ttl` is shorter than three times this, a third
            of that `ttl` (default: `max_ttl / 20`, but 0.05 at least and 1 at most).
        restart_guard: How long the client ignores a node that restarted, because it may have
            forgotten locks. At least `max_ttl + 2`. Default: `max_ttl + 2`, or 12 s if no client
            uses a `ttl` above 10 s. None: it is used at once, which is safe only for tests, and for
            nodes with `appendfsync always`.
        outage: How long a call that waits gives an unreachable majority to come back before it
            raises NoQuorum: in seconds, at least `node_timeout` (default: `ttl`).
        owner: The name that operators see for this client (default: host:pid).
        observer: A function, or a list of functions. Each is called with every event, one at a
            time, on a thread of its own. With asyncio it is called on the event loop, and may be a
            coroutine function. An observer delays no renewal and no other observer, unless a plain
            function blocks the event loop. What it raises is logged.
        around: An object for tracing. holdfast calls its `begin(kind, names)` where a call begins,
            in the caller's thread or task, and `end(outcome, facts)` of what `begin` returned where
            the call ends. An object that can be called is also an observer, which hears of losses.
        guardian: Start a small process beside this one. If this process is killed, its locks are
            free within milliseconds, and not after their `ttl`. Linux only (default: False).
        ssl: An SSLContext for all `rediss://` nodes, in place of the `ssl_...` options in their
            addresses (default: certificates and host names are verified against the system's
            authorities).
        credentials: A function that is called with a node's address before each connection, and
            returns a password or (user, password). It runs in another thread, so it may block. With
            asyncio it may be a coroutine function. If it raises, the node is down, and it is called
            again soon.
        shards: Several shards, in place of `nodes`: sets of nodes with a majority of their own,
            over which names are spread. A mapping from each shard's name to its nodes, or a list of
            lists. In HOLDFAST_NODES, semicolons separate the shards.
        previous: The former shards, or nodes, while you change them. A name that moves is held on
            its old shard, too. If some nodes stay, a lock needs a majority of both lists. With
            HOLDFAST_NODES: HOLDFAST_PREVIOUS.

    Raises:
        ConfigError: An argument, or a variable of the environment, cannot work. The message names
            it and says what to write instead.
    """

    def __init__(
        self,
        *nodes: str | Node | Iterable[str | Node],
        ttl: Seconds = DEFAULT_TTL,
        max_ttl: Seconds = DEFAULT_MAX_TTL,
        prefix: str = DEFAULT_PREFIX,
        node_timeout: Seconds | None = None,
        restart_guard: Seconds | None = DEFAULT_GUARD,
        outage: Seconds | None = None,
        owner: str | None = None,
        observer: Observer | Collection[Observer] | None = None,
        around: Around | None = None,
        guardian: bool = DEFAULT_GUARDIAN,
        ssl: SSLContext | None = None,
        credentials: Callable[[str], object] | None = None,
        shards: Sets | None = None,
        previous: Sets | Iterable[str | Node] | None = None,
        **unknown: Never,
    ) -> None:
        # First of all: whatever is raised from here on, no local variable shows a password.
        nodes, shards, previous = tuple(masked(nodes)), masked(shards), masked(previous)
        unknown = masked(unknown)
        checks.known(unknown, "client", [it for it in OPTIONS if it != "nodes"], _MEANT)
        environment.check_platform()
        self._teller = Observers(observer, around)
        self._owners: Owners[Any] = Owners()
        given = _given(owner, ttl=ttl, max_ttl=max_ttl, prefix=prefix, restart_guard=restart_guard, guardian=guardian)
        options = {**_DEFAULTS, "owner": _myself(), **environment.options(), **given, "node_timeout": node_timeout}
        unset = not nodes and shards is None and not environment.nodes()
        options |= {"outage": outage, "around": around, "unset": unset}
        options["debug"] = environment.debug()
        listed = "" if nodes or shards is not None or unset else environment.previous()
        now = _sets(nodes, shards)
        before = _former(spreading.listed(listed) if previous is None else previous)
        named = given if unset or not (nodes or shards) else {**given, "nodes": nodes}
        self._shards = _shards(now, before, options, named, ssl, credentials)
        self.settings: Settings = self._shards.all[0].settings
        if self.settings.guardian:
            # Here, because it can start processes, and most programs need none.
            from ..drivers.guardian.keeper import prepare

            prepare([access for it in self._shards.all for access in it.access])
        self._servers = None
        # What rates count by themselves while no majority answers.
        self._alone = OrderedDict[bytes, float]()
        self._prepare()

    # ------------------------------------------------ what the clients for threads and asyncio add

    _face: str  # the package that has what is described
    _lock: Callable[..., L]
    _locked: Callable[[Choice], D]
    _skipping: Callable[[Choice, bool], S]
    _computes: Collection[Kind]  # the kinds of functions that a fill can call
    _cancels = False  # can an event end the wait of its callers?

    @abstractmethod
    def _prepare(self) -> None: ...

    def _describe(self, terms: LockTerms) -> L:
        home, at = self._shards.placed(terms) if len(self._ways) > 1 else (0, 0)
        moves = None
        if at != home:
            from ..face.migration import place

            moves = partial(place, self._shards, at, terms.name), self._ways
        return self._lock(terms, self._owners, self._ways[home], moves)

    def _class(self, name: str) -> Any:
        """Return what is called so for threads, or for asyncio. Its module is loaded now."""
        return getattr(import_module(self._face), name)

    @abstractmethod
    def adopt(
        self,
        ticket: str,
        *,
        ttl: Seconds | None = None,
        max_hold: Seconds | None = None,
        on_lost: Callable[[Any], object] | None = None,
    ) -> Lease | Awaitable[Lease]:
        """Adopt a lease that another owner has handed over, and return it.

        Nobody else has held the lock in between, and the fence is that of the lease before. From
        now on holdfast renews this lease until you release it.

        Args:
            ticket: What `lease.hand_over()` has returned.
            ttl: Seconds until another client takes over from a process that died (default: the
                client's).
            max_hold: Seconds from now after which the lease is not renewed any more (default: no
                limit).
            on_lost: A function that is called once with the lease when it is lost, as for `lock`.

        Returns:
            The lease.

        Raises:
            LockLost: The ticket was adopted before, or was not adopted in time (`ticket`).
            NoQuorum: Too few nodes answered. The ticket may be adopted later, as long as it lasts.
            ConfigError: It is no ticket, or an option cannot work.
            Misuse: The client is closed (`closed`).
        """

    def _adopting(self, ticket: str, **options: Any) -> Plan[Any]:
        from ..face.adoption import adopt, adopting

        found, given = adopting(self._shards, ticket, **options)
        return adopt(self._describe(found), given)

    # ------------------------------------------------ what needs no waiting

    def lock(self, *names: str, **options: Unpack[Options]) -> L:
        """Describe an exclusive lock. Sends nothing by itself.

        Use it in a `with` block, or call `acquire`. What the lock protects should check
        `lease.fence`, or your code should call `lease.check()`: a process that is paused learns too
        late that its lease has ended.

        Args:
            names: One name, or several, of which one lease holds all or none. Requests that overlap
                cannot deadlock, whatever the order of their names.
            options: Described below.
            ttl: Seconds until another client takes over from a process that died, from 0.05 to
                `max_ttl` (default: the client's).
            wait: Seconds to wait for the lock. None waits for ever (the default), 0 tries once.
            renew: Renew the lease while it is held (default: True).
            max_hold: Seconds after which the lease is not renewed any more (default: no limit).
            reentrant: The thread or task that holds the lock may enter it again. The last one to
                leave releases it (default: False).
            fail_open: If no majority answers, run the body without the lock. Its lease is OPEN and
                not held (default: False).
            on_lost: A function that is called once with the lease when the lease is lost. It runs
                on a thread of its own. With asyncio it runs on the event loop and may be a
                coroutine function. It may wait for locks of this client (default: none).
            note: A text of at most 1 KiB that says who holds the lock, such as "build 4711". It is
                on the nodes while the lock is held, and `inspect`, `survey` and LockBusy show it.
                Entering a reentrant lock again does not change it (default: none).
            at_least: Seconds, up to a day, for which the name stays taken after it was acquired,
                however soon it is released. For a short job that several hosts start at about the
                same time (default: none).

        Returns:
            The description. Make it once, and share it between threads or tasks.

        Raises:
            ConfigError: A name or an option cannot work.
        """
        allow(options, "lock", Options)
        return self._describe(terms(self.settings, partial(locks, self.settings, names), **options))

    def semaphore(self, name: str, permits: int, **options: Unpack[PermitOptions]) -> M:
        """Describe a semaphore: at most `permits` permits are held at the same time.

        Sends nothing by itself.

        You use it like a lock. Clients are served in order, and the permits of a client that
        crashed come back within its ttl.

        Each permit is a numbered slot with one holder at most. `lease.slots` says which ones a
        lease holds, and `lease.fence` is greater than that of every earlier holder of that slot. So
        you can guard what a permit stands for (a connection, a GPU) by the fence of its slot.

        Name the same number of permits in all clients. A client uses the first `permits` slots.
        While clients name different numbers, at most the largest of these numbers can be held, and
        clients log a warning. So you can change the number by a rolling deployment.

        A thread or task that holds a permit may take another one, and waits for itself if there is
        none. A client that waits has a place in the queue of every slot. For hundreds of permits
        with many waiting clients, use several semaphores.

        Args:
            name: The semaphore's name.
            permits: How many permits it has, from 1 to 1,000.
            options: `count`, how many permits one lease takes, all at once or none. Nobody waits
                for another client's half (default: 1). And `ttl`, `wait`, `renew`, `max_hold`,
                `fail_open`, `on_lost` and `note`, as for `lock`. Each permit has the note.

        Returns:
            The description. Make it once, and share it between threads or tasks.

        Raises:
            ConfigError: An option cannot work.
        """
        from ..face.semaphore import described

        found, at = described(self._shards, name, permits, options)
        made: M = self._class("Semaphore")(found, self._owners, self._ways[at])
        return made

    def rwlock(self, name: str) -> RWLock[L]:
        """Describe a read-write lock: many readers at a time, or one writer.

        Sends nothing by itself.

        `locks.rwlock("a").read()` and `.write()` are its two sides. You use each of them like a
        lock.

        Args:
            name: The lock's name. Do not use it for `lock`, too.

        Returns:
            The description. Make it once, and share it between threads or tasks.

        Raises:
            ConfigError: The name cannot be one.
        """
        return RWLock(name, partial(self._side, name))

    def _side(self, name: str, kind: bytes, /, **options: Unpack[Options]) -> L:
        allow(options, "lock", Options)
        return self._describe(terms(self.settings, partial(side, self.settings, name, kind), **options))

    @overload
    def locked(self, name: Name, *, on_busy: Literal["raise"] = "raise", **options: Unpack[Options]) -> D: ...
    @overload
    def locked(self, name: Name, *, on_busy: Literal["skip"], **options: Unpack[Options]) -> S: ...
    def locked(self, name: Name, *, on_busy: str = "raise", **options: Unpack[Options]) -> D | S:
        """Decorate a function so that each call holds the lock that its arguments name.

        `current()` returns the lease inside the function. A generator holds the lock from its first
        step until it is exhausted, closed, or raises. If the lock is lost between two steps, the
        generator is closed, and the caller's next step raises LockLost.

        A template follows the rules of `str.format`: `{day}`, `{user.id}`, `{self.id}`, `{day:%Y}`.
        `{0}` is the first positional parameter, `{rest[0]}` and `{more[key]}` are items of `*rest`
        and `**more`. Parameters that a call leaves out have their defaults. Double a brace that is
        part of the name. Do not use an f-string: Python would fill it once, when it defines the
        function. An argument that is None becomes "None".

        Args:
            name: A template over the call's arguments, or a function of them that returns the name.
            on_busy: With "skip", a call that would raise LockBusy does not run: a function returns
                None, a generator yields nothing. NoQuorum is raised in any case. Default: "raise".
            options: Those of `lock`.

        Returns:
            A decorator.

        Raises:
            ConfigError: An option cannot work. When it decorates: the template has a field that is
                no parameter, or the function is of a kind that this client does not run. When the
                function is called: the name cannot be one. All are raised before anything is sent.
        """
        return self._decorator(name, partial(self.lock, **options), on_busy)

    def _decorator(
        self, name: Name, describe: Callable[[str], L | M], on_busy: str, what: str = "a lock's name"
    ) -> D | S:
        """Return the decorator for locks that are described by the name of each call.

        Args:
            name: The template or function that gives the names.
            describe: Describes the lock of a name.
            on_busy: What the user has passed.
            what: What the name is, for errors.

        Raises:
            ConfigError: An option cannot work.
        """
        # Refuse wrong options here, and not at the first call.
        describe("any")
        choice = named(name, describe, what)
        if on_busy not in ("raise", "skip"):
            raise ConfigError(f"on_busy is 'raise' or 'skip', not {on_busy!r}")
        return self._locked(choice) if on_busy == "raise" else self._skipping(choice, True)

    @overload
    def permitted(
        self, name: Name, permits: int, *, on_busy: Literal["raise"] = "raise", **options: Unpack[PermitOptions]
    ) -> D: ...
    @overload
    def permitted(
        self, name: Name, permits: int, *, on_busy: Literal["skip"], **options: Unpack[PermitOptions]
    ) -> S: ...
    def permitted(self, name: Name, permits: int, *, on_busy: str = "raise", **options: Unpack[PermitOptions]) -> D | S:
        """Decorate a function so that each call holds a permit of a semaphore.

        The call's arguments name the semaphore. With `@locks.permitted("tenant:{tenant}", 4)`, each
        tenant has a limit of its own. In everything else the decorator does what `locked` does, and
        the semaphore what `semaphore` does.

        Args:
            name: A template over the call's arguments, or a function of them that returns the name,
                as for `locked`.
            permits: How many permits each of these semaphores has, from 1 to 1,000.
            on_busy: As for `locked`. Default: "raise".
            options: Those of `semaphore`.

        Returns:
            A decorator.

        Raises:
            ConfigError: As for `locked`.
        """
        return self._decorator(name, lambda it: self.semaphore(it, permits, **options), on_busy, "a semaphore's name")

    @overload
    def read_locked(self, name: Name, *, on_busy: Literal["raise"] = "raise", **options: Unpack[Options]) -> D: ...
    @overload
    def read_locked(self, name: Name, *, on_busy: Literal["skip"], **options: Unpack[Options]) -> S: ...
    def read_locked(self, name: Name, *, on_busy: str = "raise", **options: Unpack[Options]) -> D | S:
        """Decorate a function so that each call holds the read side of a read-write lock.

        In everything else the decorator does what `locked` does, and the lock what
        `rwlock(name).read()` does.

        Args:
            name: A template over the call's arguments, or a function of them that returns the name,
                as for `locked`.
            on_busy: As for `locked`. Default: "raise".
            options: Those of `lock`.

        Returns:
            A decorator.

        Raises:
            ConfigError: As for `locked`.
        """
        return self._sided(name, READER, on_busy, options)

    @overload
    def write_locked(self, name: Name, *, on_busy: Literal["raise"] = "raise", **options: Unpack[Options]) -> D: ...
    @overload
    def write_locked(self, name: Name, *, on_busy: Literal["skip"], **options: Unpack[Options]) -> S: ...
    def write_locked(self, name: Name, *, on_busy: str = "raise", **options: Unpack[Options]) -> D | S:
        """Decorate a function so that each call holds the write side of a read-write lock.

        In everything else the decorator does what `locked` does, and the lock what
        `rwlock(name).write()` does.

        Args:
            name: As for `read_locked`.
            on_busy: As for `locked`. Default: "raise".
            options: Those of `lock`.

        Returns:
            A decorator.

        Raises:
            ConfigError: As for `locked`.
        """
        return self._sided(name, WRITER, on_busy, options)

    def _sided(self, name: Name, kind: bytes, on_busy: str, options: Options) -> D | S:
        return self._decorator(name, lambda it: self._side(it, kind, **options), on_busy)

    def limited(
        self,
        name: Name,
        limit: int | Sequence[tuple[int, Seconds]],
        period: Seconds | None = None,
        *,
        key: Name | int | None = None,
        **options: Unpack[RateOptions],
    ) -> Callable[[F], F]:
        """Decorate a function so that each call waits until a rate allows it.

        With `@locks.limited("api", 10, 60, key="{user}")`, each user has a limit of its own. In
        everything else it does what a `rate` does as a decorator.

        Args:
            name: A template over the call's arguments, or a function of them that returns the name,
                as for `locked`.
            limit: How many calls are allowed in a period; or several limits, as for `rate`.
            period: Seconds. Leave it out if there are several limits.
            key: Each key has a limit of its own: a template, or a function, like the name; or a
                whole number (default: no key).
            options: Those of `rate`.

        Returns:
            A decorator.

        Raises:
            ConfigError: An option cannot work, or, when it decorates, a template has a field that
                is no parameter.
        """
        from ..primitives.rate.plan import RateOptions

        # Refuse wrong options here, and not at the first call.
        allow(options, "rate", RateOptions)
        self.rate("any", limit, period, **options)
        number = key if isinstance(key, int) else None
        rate: Callable[..., Any] = self.rate
        choice = named(name, lambda it: rate(it, limit, period, key=number, **options)._call, "a rate's name")
        if key is not None and not isinstance(key, int):
            choice = keyed(name, key, lambda it, whose: rate(it, limit, period, key=whose, **options)._call)
        decorator: Callable[[F], F] = self._class("Rate")._decorator(choice, "rate")
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
        fail_open: bool | int = False,
    ) -> R:
        """Describe a rate: at most `limit` calls in `period` seconds, over all processes.

        Sends nothing by itself. `take()` asks once, `acquire()` waits for its turn, `peek()` looks,
        `reset()` starts over. As a decorator, each call of a function waits for its turn. With
        several limits, a call is counted by all of them or by none:

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
            period: Seconds, from 0.001 to 1e8. Leave it out if `limit` is a list of pairs.
            key: Each key has limits of its own: a user, an address, a tenant (default: no key).
            algorithm: "gcra": calls flow back evenly. "fixed window": `limit` calls in each window,
                which begins with its first call. No call makes a window longer (default: "gcra").
            burst: How many calls "gcra" allows at once. Only with a single limit (default:
                `limit`). More than `limit`: calls that nobody has made are saved up for several
                periods.
            wait: Seconds that `acquire()` waits. None waits for ever (the default), 0 tries once.
            fail_open: Allow calls when too few nodes answer. The Allowance says why. A number: that
                of your processes, each of which allows its share of the limits then (default:
                False).

        Returns:
            The description. Make it once, and share it between threads or tasks.

        Raises:
            ConfigError: An option cannot work.
        """
        from ..primitives.rate.plan import limits

        options: RateOptions = {"algorithm": algorithm, "burst": burst, "wait": wait, "fail_open": fail_open}
        found, at = limits(self._shards, name, limit, period, key, self._alone, **options)
        made: R = self._class("Rate")(found, [self._ways[it] for it in at])
        return made

    def election(self, name: str, value: str = "", **options: Unpack[ElectionOptions]) -> E:
        """Describe an election: at most one leader, whom everybody can see.

        Sends nothing by itself.

        `with` and `campaign()` wait to become the leader, in turn. They return a Leadership, which
        is a lease. `leader()` reads who leads, and `observe()` follows it without polling.
        `leadership.term` is greater than that of every earlier leader: use it as a fence. What
        observers see may be old by the time that a message takes, and after a crash by a `ttl`. All
        observers see terms and values in the same order. A lock of the same name is another lock.

        Args:
            name: The election's name.
            value: What the leader announces, such as its address: a text of at most 64 KiB.
                `leadership.publish` announces another one.
            options: `ttl`, seconds until a standby takes over after a crash; after a resignation it
                takes over at once. `wait`, seconds to campaign. `renew`, whether holdfast renews
                the leadership. If not, call `leadership.extend()`, which also says the leader's
                value again. `max_hold`, seconds after which a term ends. `on_lost`, a function that
                is called once with the leadership when it is lost. Defaults as for `lock`.

        Returns:
            The description. Make it once, and share it between threads or tasks.

        Raises:
            ConfigError: An option cannot work.
        """
        from ..primitives.election.plan import campaign

        found, at = campaign(self._shards, name, value, options)
        made: E = self._class("Election")(found, self._owners, self._ways[at])
        return made

    def once(self, key: Name, *, keep: Seconds, **options: Unpack[OnceOptions]) -> O:
        """Describe work that is done once: one caller runs it, and all others get its result.

        Sends nothing by itself. `run(function, ...)` runs a function, or waits for the caller that
        does, and returns the result. `result()` only looks for one. `forget()` removes it, so that
        the next caller runs again. As a decorator, it runs each call of a function once for its
        key, a template over the call's arguments, as with `locked`.

        If a run raises, the next caller tries. If the process that runs it dies, another caller
        runs it within the ttl. While the result is kept and a majority remembers it, all callers
        get the same one. The function itself may have run more than once, if its process was cut
        off or stopped for longer than its ttl. `Once` says it exactly.

        Args:
            key: The name, a template for decorated functions, or a function of a decorated
                function's arguments.
            keep: Seconds for which the result is known, from 0.05 to 1e8. Later callers run again.
            options: Described below. And `ttl`, `wait`, `renew`, `max_hold`, `on_lost` and `note`,
                as for `lock`: while a function runs, its lock is held.
            per: Run once in each slot of time, for schedules that fire in several processes:
                seconds, from 0.001 to 1e8, or "hour", "day", "week" (from Monday) or "month" of a
                calendar.
                All callers must have the same `per`, `zone` and `slack` (default: no slots).
            zone: The time zone of that calendar, such as "Europe/Berlin" (default: "UTC").
            slack: A call that comes at most this many seconds before the next slot counts for that
                slot, unless it names its time by `at`. At most half of `per` (default: a tenth of
                `per`, and at most 10 s).
            serializer: Has `dumps` and `loads`, like the module pickle (default: JSON). A result
                has at most 1 MB.
            same: Whether a call with other arguments than those of the call that ran raises Misuse.
                Arguments that the template names are in the key, and are not compared (default: if
                the key is a template of a decorated function).
            cancel: Threads only: an event, such as `threading.Event()`. At most 50 ms after another
                thread has set it, every call that waits for another caller's run ends with
                Cancelled. It does not stop a function that runs. With asyncio, cancel the task.

        Returns:
            The description. Make it once, and share it between threads or tasks.

        Raises:
            ConfigError: An option is wrong, or `keep` is shorter than a slot can be: 26 hours for
                "day", 7 days and 2 hours for "week", 31 days and 2 hours for "month".
        """
        from ..primitives.once.plan import OnceOptions, described

        allow(options, "once", OnceOptions)
        if options.get("cancel") is not None and not self._cancels:
            raise ConfigError(
                "cancel= ends the wait of a thread. In asyncio, cancel the task that waits: task.cancel()"
            )
        made: O = self._class("Once")(described(self._shards, key, keep=keep, **options), self._ways, self._describe)
        return made

    @abstractmethod
    def fill(self, key: str, ttl: Seconds, compute: Callable[[], Any], **options: Unpack[FillOptions]) -> Any:
        """Describe a cached value: one caller computes it, and all others wait for it or find it.

        Sends nothing by itself. `get()` returns the value.

        Values are kept on the nodes as bytes, at most 1 MB each. `get()` always returns what was
        stored and read again, also in the call that computed it. All callers of a key should use
        the same options.

        Args:
            key: The name of the value. A lock of the same name is another lock.
            ttl: Seconds for which the value is fresh, from 0.001 to 1e8.
            compute: A function without arguments that returns the value. With asyncio it may be a
                coroutine function. It runs under the fill's lock: while leases hold, one call at a
                time over all processes.
            options: Described below.
            stale: Seconds after `ttl` for which the old value may still be returned. Then one
                caller computes a new one and nobody waits for it. If no majority answers, callers
                get the old value (default: 0).
            lease: Seconds until another caller computes if this one crashed. It does not limit how
                long computing may take (default: the client's `ttl`).
            wait: Seconds to wait for another caller that computes. None waits for ever (the
                default).
            serializer: Has `dumps` and `loads`, like the modules json and pickle (default: JSON).
            cache: A mapping of yours that keeps the values, in place of the nodes, as (value, until
                when it is fresh by `time.time()`). Callers agree on a value as far as that mapping
                does.
            fail_open: If no majority answers, compute without the lock (default: False).
            note: A text of at most 1 KiB that says who computes, as for `lock`.

        Returns:
            The description. Make it once, and share it between threads or tasks.

        Raises:
            ConfigError: An option cannot work, or `compute` is of a kind that this client does not
                call.
        """

    def filled(self, key: Name, ttl: Seconds, **options: Unpack[FillOptions]) -> Callable[[F], F]:
        """Decorate a function so that each call gets the cached value for its arguments.

        If there is no fresh value for the key, one caller runs the function. Calls with the same
        key share one value, whatever their other arguments are.

        Args:
            key: A template over the call's arguments, or a function of them that returns the key,
                as for `locked`.
            ttl: Seconds for which a value is fresh.
            options: Those of `fill`.

        Returns:
            A decorator.

        Raises:
            ConfigError: An option cannot work, or, when it decorates, the template has a field that
                is no parameter.
        """
        # Refuse wrong options here, and not at the first call.
        self.fill("any", ttl, bool, **options)

        def call_of(key: str) -> Function:
            return lambda function, *args, **kwargs: self.fill(
                key, ttl, partial(function, *args, **kwargs), **options
            )._value()

        decorator: Callable[[F], F] = self._class("Fill")._decorator(named(key, call_of), "fill")
        return decorator

    def _fill(self, key: str, *arguments: Any, **options: Any) -> Any:
        from ..primitives.fill.plan import fills

        found, at = fills(self._shards, self._computes, key, *arguments, **options)
        way = self._ways[at]
        return self._class("Fill")(found, (way,), self._lock(found.terms, self._owners, way))

    def latch(self, name: str, count: int, *, keep: Seconds = 86400.0, wait: Seconds | None = None) -> A:
        """Describe a latch, which opens when `count` different ids have arrived, and stays open.

        Sends nothing by itself. `arrive()` arrives, and `wait()` returns when all have arrived.
        `arrived()` and `is_open()` only look.

        Once it is open for one client, it is open for all that ask later. It survives the restart
        of any minority of the nodes while a client waits, and afterwards if all nodes were there
        when it was last used. docs/latch.md says what it costs.

        Args:
            name: The latch's name. Give each run a name of its own.
            count: How many must arrive, from 1 to 1,000. The same in all clients: a client with
                another count gets ConfigError when it uses the latch.
            keep: Seconds for which the nodes remember the latch after its last use, at least
                `max_ttl` (default: 86400, a day).
            wait: Seconds that `wait()` waits. None waits for ever (the default), 0 asks once.

        Returns:
            The description. Make it once, and share it between threads or tasks.

        Raises:
            ConfigError: An argument cannot work.
        """
        from ..primitives.latch.plan import terms

        found, at = terms(self._shards, "latch", name, count, keep, wait)
        made: A = self._class("Latch")(found, (self._ways[at],))
        return made

    def barrier(self, name: str, parties: int, *, keep: Seconds = 86400.0, wait: Seconds | None = None) -> B:
        """Describe a barrier, at which `parties` wait for each other, again and again.

        Sends nothing by itself. `wait()` arrives, and returns when all parties have arrived.

        No party passes before all have arrived, and no two parties are ever more than one
        generation apart. A barrier cannot know that a party died before it arrived: `wait` limits
        how long the others wait.

        Args:
            name: The barrier's name.
            parties: How many wait for each other, from 1 to 1,000. The same in all clients.
            keep: Seconds for which the nodes remember the barrier after its last use, at least
                `max_ttl`. Make it longer than any party works between two calls: a forgotten
                barrier begins again with generation 0 (default: 86400, a day).
            wait: Seconds that `wait()` waits for the others. None waits for ever (the default), 0
                asks once.

        Returns:
            The description. Make it once, and share it between threads or tasks.

        Raises:
            ConfigError: An argument cannot work.
        """
        from ..primitives.latch.plan import terms

        found, at = terms(self._shards, "barrier", name, parties, keep, wait)
        made: B = self._class("Barrier")(found, (self._ways[at],))
        return made

    @classmethod
    def local(cls, nodes: int = 5, shards: int = 1, **options: Any) -> Self:
        """Start real servers in a temporary directory, and return a client of them.

        Starting takes some tenths of a second. Closing the client stops the servers. They listen on
        Unix sockets that other users of the machine cannot open. To make more clients in this
        process, call `Holdfast(*locks.urls)`: they need not wait for a restart guard. For other
        processes, `locks.servers.environment` has the environment variables to set.

        Needs the extra `local`, or a Redis or Valkey server on PATH.

        Args:
            nodes: How many servers to start, for each shard (default: 5).
            shards: How many shards to start. They are called "1", "2" and so on (default: 1).
            options: The client's own options.

        Returns:
            The client.

        Raises:
            ConfigError: An option cannot work, or no server program was found.
        """
        from ..embedded import Nodes

        if type(shards) is not int or shards < 1:
            raise ConfigError(f"{checks.shown(shards)} shards cannot be started: ask for at least one")
        # Refuse wrong options before any server is started.
        cls("redis://nowhere", **options)
        servers = Nodes(nodes if shards == 1 else nodes * shards).start()
        try:
            if shards == 1:
                client = cls(*servers.urls, **options)
            else:
                sets = {str(it + 1): servers.urls[it * nodes : (it + 1) * nodes] for it in range(shards)}
                client = cls(shards=sets, **options)
        except BaseException:
            servers.close()
            raise
        client._servers = servers
        return client

    def __repr__(self) -> str:
        if not hasattr(self, "settings"):
            # Its constructor raised, and an error reporter shows it.
            return f"<{type(self).__name__} that could not be made>"
        return f"{type(self).__name__}({', '.join(map(repr, self.urls))}, ttl={self.settings.ttl:g})"


_DEFAULTS: dict[str, Any] = {"ttl": DEFAULT_TTL, "max_ttl": 30.0, "prefix": "", "restart_guard": DEFAULT_GUARD}
# What other libraries call the options of a client.
_ADDRESSES = "the addresses themselves, Holdfast('redis://a:6379', 'redis://b:6379', ...)"
_MEANT = {
    **dict.fromkeys(
        ("nodes", "node", "url", "urls", "host", "hosts", "masters", "servers", "addresses", "connections"), _ADDRESSES
    ),
    "client": "Node.of(client), which takes its settings: holdfast opens its own connections",
    **dict.fromkeys(
        ("timeout", "socket_timeout", "socket_connect_timeout"), "node_timeout (how long a node may take to answer)"
    ),
    **dict.fromkeys(
        ("password", "username", "user"), "an address with a password, redis://user:password@host, or credentials="
    ),
    **dict.fromkeys(("expire", "lock_timeout", "auto_release_time"), "ttl (how long a crashed holder blocks others)"),
    "key_prefix": "prefix",
    "guard": "restart_guard",
}


def _given(owner: str | None, **options: object) -> dict[str, object]:
    """Return the options that the caller has passed, without those that have their defaults."""
    given = {name: value for name, value in options.items() if not isinstance(value, Default)}
    return given if owner is None else {**given, "owner": owner}


def _shards(
    now: Sequence[ShardNodes],
    before: Sequence[ShardNodes],
    options: dict[str, Any],
    given: Collection[str],
    ssl: SSLContext | None,
    credentials: Callable[[str], object] | None,
) -> Shards:
    """Make the shards of a client.

    Args:
        now: The nodes of each shard.
        before: Those of the former shards.
        options: All options of the client.
        given: The names of the options that the caller has passed. An error about another one names
            the variable of the environment that it comes from.
        ssl: The caller's SSLContext, or None.
        credentials: The caller's function, or None.
    """
    authority = environment.authority() if ssl is None else ssl
    if credentials is None:
        credentials = environment.credentials(_started())
    try:
        return Shards(now, before, options, authority, credentials)
    except ConfigError as error:
        raise environment.explained(error, given) from None


def _sets(nodes: Sequence[str | Node | Iterable[str | Node]], shards: Sets | None) -> tuple[ShardNodes, ...]:
    """Return the shards of the arguments, or of the environment if there are no such arguments."""
    if shards is None:
        if nodes:
            return (spreading.alone(_flat(nodes)),)
        found = spreading.listed(environment.nodes())
        if len(found) > 1:
            return spreading.shards(found, environment.NODES)
        try:
            return (spreading.alone(spreading.only(found)),)
        except ConfigError as error:
            raise environment.blamed(error, environment.NODES) from None
    if nodes:
        raise ConfigError("shards= is instead of nodes: put those into one of the shards, or leave shards= out")
    return spreading.shards(shards, "shards")


def _former(previous: Sets | Iterable[str | Node]) -> tuple[ShardNodes, ...]:
    """Return the former shards. Empty if shards are not being changed."""
    none = isinstance(previous, Collection) and not isinstance(previous, str | bytes) and not previous
    return () if none else spreading.shards(previous, "previous", flat=True)


def _flat(nodes: Iterable[str | Node | Iterable[str | Node]]) -> list[str | Node]:
    """Return all nodes in one list. Reading an address complains of what is no text."""
    found: list[str | Node] = []
    for it in nodes:
        found += [it] if isinstance(it, str | bytes | Node) or not isinstance(it, Iterable) else it
    return found


def _started() -> Container[str]:
    """Return the addresses of the embedded servers that this process has started."""
    # If it was not imported, nothing was started.
    embedded = sys.modules.get("holdfast.embedded")
    return () if embedded is None else embedded.started


def _myself() -> str:
    # Here, because a program that makes no client needs no sockets.
    import socket

    host = "".join(it for it in socket.gethostname() if "!" <= it <= "~") or "host"
    return f"{host[:100]}:{os.getpid()}"
