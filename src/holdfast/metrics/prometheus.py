"""Exports the metrics by prometheus-client.

Knows prometheus-client. Must not know what the metrics mean.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
except ImportError as missing:
    raise ImportError(
        'holdfast.metrics.Metrics needs prometheus-client: pip install "holdfast[metrics]"', name="prometheus_client"
    ) from missing

from . import table
from .table import Metric
from .tally import Change, MetricTally

__all__ = ["Metrics"]


class Metrics(MetricTally):
    """Metrics for Prometheus: an observer for `Holdfast(observer=…)`.

    One object may observe several clients. Names of locks are no labels unless you ask for it:
    each different name would be a time series.

    Args:
        registry: Where the metrics are registered. Default: the registry of prometheus-client.
        names: From the name of a lock to the value of the label `name`. For example
            `holdfast.metrics.first_part(":")`, or `holdfast.metrics.collapsed`. Default: no such
            label.
        most: How many different values of the label may appear. Further ones are "other", and a
            warning is logged. Default: 50.

    Raises:
        ValueError: `most` is less than 1, or the registry has these metrics already: make one
            `Metrics` for each registry.
    """

    def __init__(
        self, *, registry: CollectorRegistry = REGISTRY, names: Callable[[str], str] | None = None, most: int = 50
    ) -> None:
        named = names is not None
        self._collectors = {metric.name: _collector(metric, registry, named) for metric in table.ALL}
        super().__init__(names, most)
        itself = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _forked(itself()))

    def _bind(self, metric: Metric, labels: dict[str, str]) -> Change:
        collector = self._collectors[metric.name]
        child = collector.labels(**labels) if labels else collector
        match child:
            case Counter():
                return child.inc
            case Gauge():
                return child.inc if metric.kind == "updown" else child.set
            case _:
                return child.observe


def _collector(metric: Metric, registry: CollectorRegistry, named: bool) -> Counter | Gauge | Histogram:
    labels = (*metric.labels, "name") if named and metric.named else metric.labels
    match metric.kind:
        case "counter":
            return Counter(metric.name, metric.help, labels, registry=registry)
        case "histogram":
            return Histogram(metric.name, metric.help, labels, registry=registry, buckets=metric.buckets)
        case _:
            return Gauge(metric.name, metric.help, labels, registry=registry, multiprocess_mode=metric.processes)


def _forked(metrics: Metrics | None) -> None:
    """Forget what the parent holds and waits for. The leases stay with it."""
    # With several processes in one export, prometheus-client begins a new file by itself.
    if metrics is None or "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        return
    for metric in (table.HELD, table.WAITING):
        metrics._collectors[metric.name].clear()
    gone = (table.HELD.name, table.WAITING.name)
    metrics._changes = {key: change for key, change in metrics._changes.items() if key[0] not in gone}
