"""The metrics of a gateway, for Prometheus.

Knows prometheus-client, and what a gateway can count. Must not know requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from .counted import Counted

Family = CounterMetricFamily | GaugeMetricFamily


class Metering(Collector):
    """Counts what a gateway does, and tells it when it is asked."""

    def __init__(self, gateway: Counted) -> None:
        """Begin to count.

        Args:
            gateway: The gateway.
        """
        self._gateway = gateway
        self._answers: Counter[int] = Counter()
        self._own = CollectorRegistry()
        self._own.register(self)

    def answered(self, status: int) -> None:
        """Count an answer."""
        self._answers[status] += 1

    def collect(self) -> Iterator[Family]:
        """Return the metrics as they are now."""
        gateway = self._gateway
        answers = CounterMetricFamily("holdfast_gateway_responses", "Answers to requests.", labels=["status"])
        for status, count in self._answers.items():
            answers.add_metric([str(status)], count)
        yield answers
        leases = GaugeMetricFamily("holdfast_gateway_leases", "Leases of clients of the gateway.", labels=["state"])
        waiting = gateway.leases.waiting
        leases.add_metric(["held"], len(gateway.leases) - waiting)
        leases.add_metric(["waiting"], waiting)
        yield leases
        streams = GaugeMetricFamily("holdfast_gateway_streams", "Open event streams.")
        streams.add_metric([], gateway.streams.total())
        yield streams
        lag = GaugeMetricFamily("holdfast_gateway_lag_seconds", "How late the event loop is.")
        lag.add_metric([], gateway.lag.late)
        yield lag

    def text(self, others: CollectorRegistry | None) -> bytes:
        """Return the metrics in Prometheus' own format.

        Args:
            others: More metrics.
        """
        return generate_latest(self._own) + (b"" if others is None else generate_latest(others))
