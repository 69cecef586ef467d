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


class Metering(Collector):
    """Counts what a gateway does, and tells it when it is asked.

    Args:
        leases: The leases of a gateway.
        streams: The open event streams.
        lag: How late its event loop is.

    Attributes:
        answers: How many answers had each status.
    """

    def __init__(self, leases: Leases, streams: Sized, lag: Lag) -> None:
        self._leases, self._streams, self._lag = leases, streams, lag
        self.answers: Counter[int] = Counter()

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Return the metrics as they are now."""
        answers = CounterMetricFamily("holdfast_gateway_responses", "Answers to requests.", labels=["status"])
        for status, count in self.answers.items():
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
        return b"".join(generate_latest(it) for it in (self, others) if it is not None)
