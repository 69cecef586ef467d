"""The metrics of a gateway, for Prometheus.

Knows prometheus-client, and what a gateway can count. Must not know requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sized

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from .lag import Lag
from .leases import Leases

Family = CounterMetricFamily | GaugeMetricFamily


class Metering(Collector):
    """Counts what a gateway does, and tells it when it is asked."""

    def __init__(self, leases: Leases, streams: Sized, lag: Lag) -> None:
        """Begin to count.

        Args:
            leases: The leases of a gateway.
            streams: The open event streams.
            lag: How late its event loop is.
        """
        self._leases, self._streams, self._lag = leases, streams, lag
        self._answers: Counter[int] = Counter()
        self._own = CollectorRegistry()
        self._own.register(self)

    def answered(self, status: int) -> None:
        """Count an answer."""
        self._answers[status] += 1

    def collect(self) -> Iterator[Family]:
        """Return the metrics as they are now."""
        answers = CounterMetricFamily("holdfast_gateway_responses", "Answers to requests.", labels=["status"])
        for status, count in self._answers.items():
            answers.add_metric([str(status)], count)
        yield answers
        leases = GaugeMetricFamily("holdfast_gateway_leases", "Leases of clients of the gateway.", labels=["state"])
        waiting = self._leases.waiting
        leases.add_metric(["held"], len(self._leases) - waiting)
        leases.add_metric(["waiting"], waiting)
        yield leases
        yield GaugeMetricFamily("holdfast_gateway_streams", "Open event streams.", len(self._streams))
        yield GaugeMetricFamily("holdfast_gateway_lag_seconds", "How late the event loop is.", self._lag.late)

    def text(self, others: CollectorRegistry | None) -> bytes:
        """Return the metrics in Prometheus' own format.

        Args:
            others: More metrics.
        """
        return generate_latest(self._own) + (b"" if others is None else generate_latest(others))
