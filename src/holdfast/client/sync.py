"""The client for threads.

Knows the threads driver. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from ..checks import Seconds, flag, seconds
from ..drivers.threads.run import run
from ..engine.plans import Plan
from ..errors import ConfigError, NoQuorum
from ..face.decorators import Kind
from ..face.sync.decorators import Locked, Skipping
from ..face.sync.lease import Lease
from ..face.sync.lock import Lock
from ..version import VERSION
from . import shared as client

if TYPE_CHECKING:
    from ..engine.status import NodeStatus
    from ..face.sync.semaphore import Semaphore
    from ..operations.inspection.commands import LockStatus
    from ..operations.repair.plan import Repaired
    from ..operations.survey.sync import Survey
    from ..primitives.election.sync import Election
    from ..primitives.fill.plan import FillOptions
    from ..primitives.fill.sync import Compute, Fill
    from ..primitives.latch.sync import Barrier, Latch
    from ..primitives.once.sync import Once
    from ..primitives.rate.sync import Rate

    _Client = client.Client[Lock, Locked, Skipping, Rate, Election, Once, Latch, Barrier, Semaphore]
else:
    # What has no name yet would be compiled as text, which takes longer than to load this module.
    _Client = client.Client

T = TypeVar("T")


class Holdfast(_Client):
    _face = "holdfast"
    _lock = Lock
    _locked = Locked
    _skipping = Skipping
    _computes = (Kind.FUNCTION,)
    _cancels = True

    def _prepare(self) -> None:
        # Sockets and threads are loaded by the first client, and not when holdfast is imported.
        from ..drivers.threads import Driver

        tell, telling = self._teller, self._teller.wants_all
        self._drivers = tuple(Driver(it.settings, it.access, tell, telling, VERSION) for it in self._shards.every)
        self._ways = self._drivers
        self._driver = self._drivers[0]

    def fill(self, key: str, ttl: Seconds, compute: Compute[T], **options: Unpack[FillOptions]) -> Fill[T]:
        made: Fill[T] = self._fill(key, ttl, compute, **options)
        return made

    def _at(self, way: Any) -> Any:
        return way

    def inspect(self, name: str) -> LockStatus:
        return self._look(self._shards.inspect(name))

    def locked_by(self, name: str) -> str | None:
        return self._look(self._shards.locked_by(name))

    def is_locked(self, name: str) -> bool:
        return self.locked_by(name) is not None

    def names(self, pattern: str = "*") -> list[str]:
        return self._look(self._shards.names(pattern))

    def survey(self, pattern: str = "*", *, pause: float = 0.0) -> Survey:
        from ..operations.survey.sync import Survey

        return Survey(self._shards.survey(pattern, pause), self._drivers)

    def force_release(self, name: str, reason: str, only: str | None = None) -> int:
        return self._look(self._shards.force_release(name, reason, only))

    def adopt(
        self,
        ticket: str,
        *,
        ttl: Seconds | None = None,
        max_hold: Seconds | None = None,
        on_lost: Callable[[Any], object] | None = None,
    ) -> Lease:
        lease: Lease = self._look(self._adopting(ticket, ttl=ttl, max_hold=max_hold, on_lost=on_lost))
        return lease

    def repair(self, pause: Seconds = 0.01) -> Repaired:
        return self._look(self._shards.repair(pause))

    def _look(self, plan: Plan[T]) -> T:
        return run(plan, *self._drivers)

    def ready(self, wait: Seconds = 5.0) -> tuple[NodeStatus, ...]:
        clock = self._driver.clock
        deadline = clock() + seconds(wait, "wait", waits=True)
        # All shards connect now, so that the time that a node of the first one takes counts for the
        # others, too.
        for driver in self._disjoint[1:]:
            if not driver.closed:
                driver.steer(lambda engine, now: None)
        found: list[NodeStatus] = []
        for at, driver in enumerate(self._disjoint):
            nodes = driver.ready(max(0.0, deadline - clock()))
            self._look(self._shards.probe(at, nodes=nodes))
            # The nodes may stand differently by that.
            nodes = driver.ready(max(0.0, deadline - clock()))
            found += self._look(self._shards.checked(at, nodes))
        return tuple(found)

    def _seen(self, wait: float = 0.0) -> tuple[NodeStatus, ...]:
        """Ask every node once, as `ready` does. A majority that is missing is no error."""
        found: list[NodeStatus] = []
        for at, driver in enumerate(self._disjoint):
            # Whatever is wrong, the states say so.
            with suppress(NoQuorum, ConfigError):
                driver.ready(wait)
            self._look(self._shards.probe(at))
            found += self._look(self._shards.checked(at, driver.status()))
        return tuple(found)

    def close(self, leave: bool = False) -> None:
        if flag(leave, "leave"):
            for driver in self._drivers:
                driver.stay()
        for end in [it.closing() for it in self._drivers]:
            end()
        self._stop_servers()

    def __enter__(self) -> Self:
        if any(it.closed for it in self._drivers):
            self._check_servers()
            for driver in self._drivers:
                driver.reopen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
