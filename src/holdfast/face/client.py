"""What both faces' clients are told, and what they know without waiting.

Knows the constructor's arguments and the environment. Must not know threads or tasks.
"""

from __future__ import annotations

import os
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from .. import checks
from ..checks import Seconds
from ..engine.crew import NodeStatus
from ..engine.settings import DEFAULT_GUARD, Settings, settings
from ..errors import ConfigError
from .lock import Lock
from .telling import Observer, Teller
from .terms import Terms, terms

if TYPE_CHECKING:
    from ..embedded import Nodes


L = TypeVar("L", bound=Lock[Any])


class Client(ABC, Generic[L]):
    """A client of N independent Redis or Valkey masters: describes locks on them. Connects with the first use.

    `nodes`: addresses, `redis://[user:password@]host[:port][/db]` or `unix:///path[?db=n]`, one by one or in an iterable; else
    those of the environment variable HOLDFAST_NODES. All who use these nodes must name the same nodes and the same `max_ttl`.

    All times are seconds, or timedeltas. `ttl`: the length of leases, which is how soon others take over after a crash;
    `max_ttl`: the longest ttl of anybody who uses these nodes; `prefix`: of all names; `node_timeout`: how long a node may owe an
    answer before its connection counts as broken (default max_ttl / 20, from 0.05 to 1, and never above a third of a ttl);
    `restart_guard`: how long a node that restarted is left alone, since it may have forgotten leases (default max_ttl + 2, the
    least; None switches it off: only for tests, and nodes with `appendfsync always`); `outage`: how long a majority may be away
    before waiting ends with NoQuorum (default: ttl); `owner`: who this is, for operators (default host:pid); `fresh`: run_ids of
    servers that were just made and need no guard (default: those in HOLDFAST_FRESH); `observer`: is called with every event.

    Raises ConfigError for anything that cannot work. A context manager: leaving it closes the client.
    """

    def __init__(
        self,
        *nodes: str | Iterable[str],
        ttl: Seconds = 10.0,
        max_ttl: Seconds = 30.0,
        prefix: str = "",
        node_timeout: Seconds | None = None,
        restart_guard: Seconds | object | None = DEFAULT_GUARD,
        outage: Seconds | None = None,
        owner: str | None = None,
        fresh: Collection[str] | None = None,
        observer: Observer | None = None,
    ) -> None:
        if sys.platform == "win32":
            raise ConfigError("holdfast runs on Linux and macOS; Windows has neither the clock nor the sockets that it relies on")
        if observer is not None and not callable(observer):
            raise ConfigError(f"observer is a function of one argument, the event; not {checks.shown(observer)}")
        self.settings: Settings = settings(
            _flat(nodes) or _listed("HOLDFAST_NODES"),
            ttl=ttl,
            max_ttl=max_ttl,
            prefix=prefix,
            node_timeout=node_timeout,
            restart_guard=restart_guard,
            outage=outage,
            owner=_myself() if owner is None else owner,
            fresh=_listed("HOLDFAST_FRESH") if fresh is None else fresh,
        )
        self._teller = Teller(observer)
        self._servers: Nodes | None = None
        self._prepare()

    # ------------------------------------------------ what a face adds

    @abstractmethod
    def _prepare(self) -> None: ...

    @abstractmethod
    def _describe(self, terms: Terms) -> L: ...

    @abstractmethod
    def nodes(self) -> tuple[NodeStatus, ...]:
        """How the nodes are, as far as this client knows: no I/O. (`ready` asks them.)"""

    @abstractmethod
    def ready(self, wait: Seconds = 5.0) -> tuple[NodeStatus, ...] | Awaitable[tuple[NodeStatus, ...]]:
        """Connect to every node and check it: for a program's start. Returns how they are, once all have told.

        Raises ConfigError at once if a node can never work like this, and NoQuorum, with what is wrong at each node, if no
        majority is of use after `wait` seconds.
        """

    @abstractmethod
    def close(self) -> Awaitable[None] | None:
        """Release everything and disconnect; leases that are still held are lost, with reason "closed", waiters get Closed.

        Waits for the nodes' answers, at most `node_timeout`. Closing twice is nothing. The interpreter's exit closes, too.
        """

    # ------------------------------------------------ what needs no waiting

    def lock(
        self,
        name: str,
        *,
        ttl: Seconds | None = None,
        wait: Seconds | None = None,
        renew: bool = True,
        max_hold: Seconds | None = None,
        on_lost: Callable[[Any], object] | None = None,
    ) -> L:
        """The description of an exclusive lock: use it in a `with` block, or call `acquire`. Sends nothing by itself.

        `ttl`: of its leases (default: the client's), 0.05 s to `max_ttl`; `wait`: how long to wait for it, None for ever, 0 exactly
        one try; `renew`: keep leases alive for as long as they are held, at most `max_hold` seconds if given; `on_lost`: is
        called once, with the lease, when a lease is lost. What the lock protects should look at `lease.fence`, or at
        `lease.check()`: a process that is stopped cannot be told that its time is over. Raises ConfigError for what cannot work.
        """
        return self._describe(terms(self.settings, name, ttl=ttl, wait=wait, renew=renew, max_hold=max_hold, on_lost=on_lost))

    @classmethod
    def local(cls, nodes: int = 5, **options: Any) -> Self:
        """A client of `nodes` real servers of its own, on loopback, in a temporary directory, stopped at `close()`.

        Starting takes some tenths of a second. Other processes reach them by the environment variables HOLDFAST_NODES and
        HOLDFAST_FRESH, set to `" ".join(locks.urls)` and `" ".join(locks.fresh)`. Needs the extra `local`, or a Redis or
        Valkey server on PATH. `options`: the client's own.
        """
        from ..embedded import Nodes

        cls("redis://nowhere", **options)  # whatever is wrong is said before any server is started
        servers = Nodes(nodes).start()
        try:
            client = cls(*servers.urls, fresh={*servers.run_ids, *(options.pop("fresh", None) or ())}, **options)
        except BaseException:
            servers.close()
            raise
        client._servers = servers
        return client

    @property
    def urls(self) -> tuple[str, ...]:
        """The nodes' addresses, without passwords."""
        return tuple(it.label for it in self.settings.addresses)

    @property
    def fresh(self) -> frozenset[str]:
        """The run_ids of servers that need no restart guard, because they were just made."""
        return self.settings.fresh

    @property
    def servers(self) -> Nodes | None:
        """The embedded servers of `local()`, to kill, freeze and restart them in tests."""
        return self._servers

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.urls))}, ttl={self.settings.ttl:g})"

    def _stop_servers(self) -> None:
        if self._servers is not None:
            self._servers.close()


def _flat(nodes: Iterable[str | Iterable[str]]) -> list[str]:
    """One address after the other. (What is no text is complained of where addresses are read.)"""
    found: list[str] = []
    for it in nodes:
        found += [it] if isinstance(it, str) or not isinstance(it, Iterable) else it
    return found


def _listed(variable: str) -> list[str]:
    """What an environment variable lists, by commas or spaces."""
    return os.environ.get(variable, "").replace(",", " ").split()


def _myself() -> str:
    host = "".join(it for it in socket.gethostname() if "!" <= it <= "~") or "host"
    return f"{host[:100]}:{os.getpid()}"
