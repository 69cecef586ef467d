"""What the drivers of threads and of asyncio have in common.

Knows the engine. Must not know who waits, or how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ..engine.engine import Engine
from ..engine.status import NodeStatus
from ..events import Event
from .callbacks import Call


class BaseDriver(Protocol):
    """What a face may ask of any driver without waiting."""

    engine: Engine
    # Monotonic seconds.
    clock: Callable[[], float]

    def note(self, event: Event) -> None:
        """Record an event that happens now and that no node has reported."""

    def steer(self, do: Callable[[Engine, float], object]) -> None:
        """Have the engine do something, and wait for nothing."""

    def offer(self, make: Callable[[float], Event]) -> None:
        """Have observers hear of something that happens now, if anybody listens.

        Args:
            make: Makes the event, given the time on this driver's clock.
        """
        if self.engine.record.telling:
            self.note(make(self.clock()))

    def keeps(self, what: str) -> None:
        """Have it known that something is kept on the nodes that should outlive a restart.

        Said once.
        """
        if not self.engine.notices.lasting:
            self.steer(lambda engine, now: engine.notices.keeps(what, now))

    def servers(self) -> frozenset[str]:
        """The runs of the servers that this client is connected to, by run_id."""
        return self.engine.health.servers()

    def status(self) -> tuple[NodeStatus, ...]:
        """How the nodes are, as far as is known."""
        return self.engine.health.status(self.clock())


def told_lost(leases: Iterable[Any]) -> list[Call]:
    """Tell all these leases that they are lost. None: nobody has it any more.

    (A frame of its own: no driver must keep a lease.)

    Returns:
        What their users want called, which is called only once all of them are marked.
    """
    calls: list[Call] = []
    for lease in leases:
        if lease is not None:
            calls += lease._told_lost() or ()
    return calls
