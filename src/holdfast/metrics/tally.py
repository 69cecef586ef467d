"""Turns what a client tells into changes of metrics.

Knows events, `nodes()`, `stats()` and the table of metrics. Must not know which library exports
them: an exporter says how a metric with its labels is changed, and the rest happens here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .. import events
from ..kit import majorities
from ..version import VERSION
from . import table
from .following import follow
from .labels import Limited
from .table import Metric

if TYPE_CHECKING:
    from .. import NodeStatus, Stats

__all__ = ["Change", "MetricTally"]

# What an exporter gives for a metric with its labels: a call that adds, sets or observes.
Change = Callable[[float], object]

SAMPLED_EVERY = 1.0


class MetricTally(ABC):
    """An observer that counts. Exporters inherit from it.

    Args:
        names: From the name of a lock to the value of the label `name`. None: no such label.
        most: How many different values of the label may appear. Further ones are "other".

    Raises:
        ValueError: `most` is less than 1.
    """

    def __init__(self, names: Callable[[str], str] | None, most: int) -> None:
        if most < 1:
            raise ValueError(f"most={most}: at least one value of the label must be allowed")
        self._names = None if names is None else Limited(names, most)
        self._changes: dict[tuple[str, ...], Change] = {}
        self._waiting = 0
        self._put(table.BUILD, 1, (VERSION,))

    @abstractmethod
    def _bind(self, metric: Metric, labels: dict[str, str]) -> Change:
        """Return the call that changes a metric with these labels."""

    def __call__(self, event: events.Event) -> None:
        """Count an event. This is what makes it an observer.

        Args:
            event: What happened.
        """
        match event:
            case events.Attempt():
                self._waits(1, event)
            case events.Acquired():
                self._acquired(event)
            case events.Renewed():
                self._put(table.RENEWALS, 1, ("ok",))
                self._put(table.MARGIN, max(0.0, event.left) / event.remaining)
            # A discarded lease is held until it is lost.
            case events.Ended() if event.how != "discarded":
                self._ended(event)
            case events.Called():
                self._called(event)
            case events.Refused():
                self._waits(-1, event)
                self._put(table.ACQUIRE, 1, self._labels(event, event.outcome))
            case events.Doubt():
                self._put(table.RENEWALS, 1, ("late",))
            case events.Opened():
                self._put(table.OPENED, 1)
            case events.Forced():
                self._put(table.FORCED, 1)
            case events.NodeEvent(state="down"):
                self._put(table.NODE_DOWN, 1, (event.node,))
            case events.NodeEvent(state="warned"):
                self._put(table.WARNINGS, 1, (event.about,))

    def follow(self, client: Any) -> None:
        """Read every second what no event tells: the nodes, and the longest wait.

        It ends with the client. For a client of `holdfast.aio`, call it where the event loop runs,
        for example at the start of your application.

        Args:
            client: A `Holdfast` of either face.

        Raises:
            RuntimeError: The client is of `holdfast.aio`, and no event loop runs.
        """
        follow(client, self.sample, SAMPLED_EVERY)

    def sample(self, nodes: Iterable[NodeStatus], stats: Stats) -> None:
        """Set the metrics that no event tells.

        Args:
            nodes: What `nodes()` returned.
            stats: What `stats()` returned.
        """
        known = list(nodes)
        # A client connects when it is first used. Before that, nothing is known.
        met = [it for it in known if it.state != "connecting"]
        for node in met:
            self._put(table.NODE_UP, node.state == "up", (node.node, node.shard))
            self._put(table.NODE_GUARD, node.guard_left or 0.0, (node.node,))
            if node.rtt is not None:
                self._put(table.NODE_RTT, node.rtt, (node.node,))
            if node.ahead is not None:
                self._put(table.NODE_CLOCK, node.ahead, (node.node,))
        for it in majorities(known):
            if it.shard in {node.shard for node in met}:
                self._put(table.QUORUM_SPARE, it.spare, (it.shard,))
        self._put(table.LONGEST_WAIT, stats.longest_wait)

    def _put(self, metric: Metric, value: float, labels: tuple[str, ...] = ()) -> None:
        change = self._changes.get((metric.name, *labels))
        if change is None:
            names = metric.labels if len(labels) == len(metric.labels) else (*metric.labels, "name")
            change = self._bind(metric, dict(zip(names, labels, strict=True)))
            self._changes[(metric.name, *labels)] = change
        change(value)

    def _labels(self, event: events.LockEvent | events.Called, *more: str) -> tuple[str, ...]:
        """The labels of a metric that may be told apart by the names of locks."""
        if self._names is None:
            return (event.kind, *more)
        return (event.kind, *more, self._names(event.name))

    def _waits(self, change: int, event: events.LockEvent) -> None:
        """Count a request that begins to wait, or waits no longer."""
        self._put(table.WAITING, change, self._labels(event))
        self._waiting += change
        if self._waiting <= 0:
            # What was sampled last may be old.
            self._put(table.LONGEST_WAIT, 0)

    def _acquired(self, event: events.Acquired) -> None:
        plain = self._labels(event)
        self._waits(-1, event)
        self._put(table.HELD, 1, plain)
        self._put(table.ACQUIRE, 1, self._labels(event, "held"))
        self._put(table.WAIT, event.waited, self._labels(event, "yes" if event.contended else "no"))

    def _ended(self, event: events.Ended) -> None:
        plain = self._labels(event)
        self._put(table.HELD, -1, plain)
        self._put(table.HOLD, event.held, plain)
        if event.how == "lost":
            self._put(table.LOST, 1, self._labels(event, event.reason))

    def _called(self, event: events.Called) -> None:
        if event.kind == "rate":
            self._put(table.RATE, 1, (event.how,))
        elif event.kind in ("once", "fill"):
            self._put(table.SERVED, 1, self._labels(event, event.how))
