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
        for metric, value, *labels in table.changes(event):
            if metric.named and self._names is not None:
                labels.append(self._names(event.facts()["name"]))
            self._put(metric, value, tuple(labels))
            if metric is table.WAITING:
                self._waiting += value
                if self._waiting <= 0:
                    # What was sampled last may be old.
                    self._put(table.LONGEST_WAIT, 0)

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
